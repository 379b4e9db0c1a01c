#!/usr/bin/env python3
"""Writes tests/golden/ngram: a small corpus, and what KenLM's lmplz makes of it (PyPI: kenlm, whose sources have lm/builder; cmake, Boost).

    LMPLZ=/path/to/lmplz tests/oracle/ngrams.py [FOLDER]

toy.arpa: "a a b a / b a a b", order 3, fallback discounts. letters.txt: 400 lines of letters, each line a text; letters.arpa: order 4;
letters-pruned.arpa: order 4, --prune 0 0 1 2. Every letter is a word. And ../formats/ngram.safetensors: toy.arpa as tables, by formats/ngram.md
alone, with the ids a 0, b 1, </s> 2, which stands before texts too.
"""
import math
import os
import struct
import subprocess
import sys

from format_goldens import dump, message

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


def tables(arpa, ids, order, begin):
    """The checkpoint that formats/ngram.md describes."""
    grams = {}
    for line in arpa.splitlines():
        fields = line.split("\t")
        if len(fields) > 1:
            words = tuple({"<s>": begin, "<unk>": len(ids)}.get(w, ids.get(w)) for w in fields[1].split(" "))
            name = fields[1].split(" ")
            first = words if name != ["<s>"] else ("<s>",)
            grams[first] = (float(fields[0]) * math.log(10), float(fields[2] if len(fields) > 2 else 0) * math.log(10))
    backoff = {words: b for words, (_, b) in grams.items()}
    backoff[(begin,)] = backoff.pop(("<s>",))
    vocab, out = len(ids), {}

    def put(name, dtype, values):
        form = {"F32": "f", "U32": "I", "U16": "H"}[dtype]
        out[name] = (name, dtype, [len(values)], struct.pack("<%d%s" % (len(values), form), *values))

    put("ngram.1.log_prob", "F32", [grams[(i,)][0] for i in range(vocab + 1)])
    for k in range(1, order):
        lists = {}
        for words, (p, _) in grams.items():
            if len(words) == k + 1:
                lists.setdefault(words[:-1], []).append((words[-1], p))
        contexts = [(i,) for i in range(vocab + 1)] if k == 1 else sorted(lists, key=lambda c: c[::-1])
        if k > 1:
            put("context.%d.token" % k, "U16", [c[0] for c in contexts])
            put("context.%d.longer" % (k - 1), "U32", [sum(c[1:][::-1] < b[::-1] for c in contexts) for b in before] + [len(contexts)])
        put("context.%d.backoff" % k, "F32", [backoff.get(c, 0) for c in contexts])
        flat, first = [], []
        for c in contexts:
            first.append(len(flat))
            flat += sorted(lists.get(c, []))
        put("context.%d.ngrams" % k, "U32", first + [len(flat)])
        put("ngram.%d.token" % (k + 1), "U16", [w for w, _ in flat])
        put("ngram.%d.log_prob" % (k + 1), "F32", [p for _, p in flat])
        before = contexts
    config = {"architectures": ["NgramForCausalLM"], "model_type": "ngram", "vocab_size": vocab, "ngram_order": order, "ngram_begin": begin,
              "max_position_embeddings": 1 << 24, "bos_token_id": None, "eos_token_id": ids["</s>"]}
    size = {"F32": 4, "U32": 4, "U16": 2}
    return message("checkpoint", {"llm.config": dump(config)}, sorted(out.values(), key=lambda t: (-size[t[1]], t[0])))


os.makedirs(OUT, exist_ok=True)
for name, text in (("toy.arpa", lmplz(["aaba", "baab"], "-o", "3", "--discount_fallback")),
                   ("letters.txt", "".join(line + "\n" for line in letters())),
                   ("letters.arpa", lmplz(letters(), "-o", "4", "--discount_fallback")),
                   ("letters-pruned.arpa", lmplz(letters(), "-o", "4", "--discount_fallback", "--prune", "0", "0", "1", "2"))):
    with open(os.path.join(OUT, name), "w") as f:
        f.write(text)

with open(os.path.join(OUT, "toy.arpa")) as f:
    toy = f.read()
with open(os.path.join(OUT, "../formats/ngram.safetensors"), "wb") as f:
    f.write(tables(toy, {"a": 0, "b": 1, "</s>": 2}, 3, 2))
