#!/usr/bin/env python3
"""Answers in generated texts by lm-eval's RegexFilter and what its exact_match compares (regexes_to_ignore, ignore_case): tests/golden/extract.jsonl.
White space at the ends goes, also what patterns that are ignored leave there, which exact_match keeps. null: no answer.

    python tests/oracle/extract.py > tests/golden/extract.jsonl      needs lm_eval
"""
import json
import random
import re

from lm_eval.filters.extraction import RegexFilter

random.seed(11)
PATTERNS = [None, r"#### (\-?[0-9\.\,]+)", r"(-?[$0-9.,]{2,})|(-?[0-9]+)", r"(-?)(\d+)", r"answer is (.*?)\.", r"(?i)the answer is \(?([A-D])\)?", r"\d+", r"\w+",
            r"(a)|b", r"(x*)(y*)", r"x*", r"(?<=a)b*", r"\b\w", r"(?s)<answer>(.*)</answer>", r"[A-Z]", r"(\S+)\s*$", r"x*?|y", r"^.", r"(?m)^(.*)$"]
IGNORE = [[], [","], [",", r"\$", r"(?s).*#### ", r"\.$"], [r"x*"], [r"^a"], [r"(?<=a)b"], [r"\s+"], [r"x*?"], [r"\b"], ["a", "b"], [r"\W"]]
PIECES = ["42", "-7", "1,234.", "$5", "#### ", "the answer is ", "The Answer is (B)", ".", " ", "\n", "a", "b", "aab", "abb", "xxy", "x", "yyx", "\u00c9t\u00e9",
          "\u00a0", "\u0663", "\U0001f600", "<answer>", "</answer>", "Paris", "\u0391\u03c3", "stra\u00dfe", "\u212a"]


def clean(text, ignore, lower):
    text = text.strip()
    for pattern in ignore:
        text = re.sub(pattern, "", text)
    text = text.strip()
    return text.lower() if lower else text


class Nothing(str):
    """A fallback that survives strip()."""

    def strip(self):
        return self


for case in range(600):
    text = "".join(random.choice(PIECES) for _ in range(random.randrange(1, 9)))
    pattern, ignore, last, lower = random.choice(PATTERNS), random.choice(IGNORE), random.random() < .4, random.random() < .3
    found = text
    if pattern is not None:
        found = RegexFilter(pattern, -1 if last else 0, fallback=Nothing("\0")).apply([[text]], [])[0][0]
    task = {"ignore": ignore, "ignore_case": lower, "extract_last": last} | ({"extract": pattern} if pattern else {})
    print(json.dumps({"task": task, "text": text, "answer": None if found == "\0" else clean(found, ignore, lower)}))
