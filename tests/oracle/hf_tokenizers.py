#!/usr/bin/env python3
"""Hugging Face's tokenizers loads every tokenizer.json that llm-tokenize writes, and gives the same ids and the same text.

    tests/oracle/hf_tokenizers.py SHARED [BIN]        SHARED: the folder that holds data/; BIN: that of llm-tokenize [bin]

Trains tokenizers of each type and split pattern, exports published ones, and encodes the golden inputs and random text with both programs.
Exits 1 when anything differs. Needs Python's tokenizers.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

SHARED = os.path.join(sys.argv[1], "data")
BIN = os.path.join(sys.argv[2] if len(sys.argv) > 2 else "bin", "llm-tokenize")


def run(*args, data=None):
    return subprocess.run([BIN, *args], input=data, stdout=subprocess.PIPE, check=True).stdout


def texts():
    rows = json.load(open(os.path.join(SHARED, "golden/inputs.json"), encoding="utf-8"))
    rows = rows.values() if isinstance(rows, dict) else rows
    for row in rows:
        text = row if isinstance(row, str) else row.get("text")
        if isinstance(text, str) and len(text) < 5000:
            yield text
    rng = random.Random(1)
    pool = "  \n\r\t'sStTdlLvVeEmM0123456789.,!?/_-abzABZéÉñßſ̈̀中文あア한ไทยעבا٠٣½Ⅷ🙂👩‍🚀\u00a0\u2028\u3000"
    for _ in range(300):
        yield "".join(rng.choice(pool) for _ in range(rng.randrange(1, 60)))


def ours(path, every, special):
    lines = "".join(json.dumps({"text": t}) + "\n" for t in every).encode()
    out = run("encode", "-T", path, "--jsonl", "--text", *(["--special"] if special else []), data=lines)
    return [[int(x) for x in line.split()] for line in out.decode().split("\n")[:-1]]


def compare(name, path, every, special):
    """Special tokens in the text always count in Hugging Face's library."""
    theirs = Tokenizer.from_file(path)
    theirs.no_truncation()
    theirs.no_padding()
    mine = ours(path, every, special)
    assert len(mine) == len(every), (name, len(mine), len(every))
    bad = 0
    for text, ids in zip(every, mine):
        want = theirs.encode(text, add_special_tokens=False).ids
        back = theirs.decode(ids, skip_special_tokens=False)
        if ids != want or (theirs.normalizer is None and back != text):
            bad += 1
            if bad == 1:
                print(f"{name}: {text!r}\n  ours   {ids}\n  theirs {want}\n  back {back!r}")
    print(f"{'ok  ' if not bad else 'FAIL'}  {name}: {len(every)} texts, {bad} differ")
    return bad


def main():
    every = list(texts())
    bad = 0
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, "tok.json")
        corpus = os.path.join(SHARED, "corpora/botchan.txt")
        japanese = os.path.join(SHARED, "corpora/wagahaiwa_nekodearu.ja.txt")
        for pattern in ["gpt2", "llama3", "cl100k", "qwen2", "o200k", r"[\p{L}']+|\p{N}|\s+|[^\s\p{L}\p{N}]+"]:
            run("train", "-q", "--vocab-size", "3000", "--pattern", pattern, "--special", "<|endoftext|>", "-o", out, corpus, japanese)
            bad += compare(f"trained, {pattern}", out, every, True)
        run("train", "-q", "--model", "byte", "-o", out, data=b"")
        bad += compare("bytes", out, every, True)
        run("train", "-q", "--model", "char", "-o", out, data="".join(every).replace("\0", "").encode())
        bad += compare("characters", out, [t for t in every if "\0" not in t], True)
        for name in ["gpt2", "gpt2/tokenizer.json", "tiktoken/r50k_base.tiktoken", "tiktoken/cl100k_base.tiktoken", "tiktoken/o200k_base.tiktoken",
                     "llama3/tokenizer.json", "qwen3/tokenizer.json"]:
            with open(out, "wb") as f:
                f.write(run("info", "-T", os.path.join(SHARED, "tokenizers", name), "--export"))
            bad += compare(f"{name}, exported", out, every, True)
    sys.exit(1 if bad else 0)


main()
