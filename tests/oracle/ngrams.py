#!/usr/bin/env python3
"""Writes tests/golden/ngram: a small corpus, and what KenLM's lmplz makes of it (PyPI: kenlm, whose sources have lm/builder; cmake, Boost).

    LMPLZ=/path/to/lmplz tests/oracle/ngrams.py [FOLDER]

toy.arpa: "a a b a / b a a b", order 3, fallback discounts. letters.txt: 400 lines of letters, each line a text; letters.arpa: order 4;
letters-pruned.arpa: order 4, --prune 0 0 1 2. Every letter is a word.
"""
import os
import subprocess
import sys

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../golden/ngram")
LMPLZ = os.environ.get("LMPLZ", "lmplz")


def lmplz(lines, *options):
    words = "".join(" ".join(line) + "\n" for line in lines)
    run = subprocess.run([LMPLZ, "-S", "64M", *options], input=words.encode(), stdout=subprocess.PIPE, check=True)
    return run.stdout.decode()


def letters():
    """A chain of second order over 12 letters, some rare."""
    state, lines = 1, []
    for _ in range(400):
        line, a, b = "", 0, 0
        while len(line) < 40:
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            r = state >> 33
            c = (a * 5 + b * 3 + (r % 7) * (r // 7 % 5 == 0) + (r // 35 % 3)) % 12 if r % 11 else r // 385 % 12
            line += "abcdefghijkl"[c]
            a, b = b, c
            if r % 23 == 0 and len(line) > 2:
                break
        lines.append(line)
    return lines


os.makedirs(OUT, exist_ok=True)
for name, text in (("toy.arpa", lmplz(["aaba", "baab"], "-o", "3", "--discount_fallback")),
                   ("letters.txt", "".join(line + "\n" for line in letters())),
                   ("letters.arpa", lmplz(letters(), "-o", "4", "--discount_fallback")),
                   ("letters-pruned.arpa", lmplz(letters(), "-o", "4", "--discount_fallback", "--prune", "0", "0", "1", "2"))):
    with open(os.path.join(OUT, name), "w") as f:
        f.write(text)
