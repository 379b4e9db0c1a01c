#!/usr/bin/env python3
"""tiktoken or Hugging Face's tokenizers as a peer: one request in the first operand, one answer as a line of JSON, and the process ends.

    {"library": "tiktoken" or "tokenizers", "name": "gpt2" or "llama3", "folder": FOLDER, "text": FILE}
    {"seconds": of the processor for encoding, "loading": likewise, "ids": their number, "version": ...}

FOLDER has tiktoken/r50k_base.tiktoken, gpt2/tokenizer.json and llama3/tokenizer.json. One thread."""
import base64
import json
import os
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def tiktoken_encoder(name, folder):
    import tiktoken
    if name == "gpt2":
        table = {base64.b64decode(a): int(b) for a, b in (line.split() for line in open(folder + "/tiktoken/r50k_base.tiktoken", "rb"))}
        pattern = GPT2
    else:
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        byte = {chr(b): b for b in printable}
        byte.update({chr(256 + i): b for i, b in enumerate(sorted(set(range(256)) - set(printable)))})
        vocab = json.load(open(folder + "/llama3/tokenizer.json", encoding="utf-8"))["model"]["vocab"]
        table = {bytes(byte[c] for c in text): id for text, id in vocab.items()}
        pattern = LLAMA3
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=table, special_tokens={}).encode_ordinary


def tokenizers_encoder(name, folder):
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(f"{folder}/{name}/tokenizer.json")
    return lambda text: t.encode(text, add_special_tokens=False).ids


request = json.loads(sys.argv[1])
library = __import__(request["library"])
start = time.process_time()
encode = {"tiktoken": tiktoken_encoder, "tokenizers": tokenizers_encoder}[request["library"]](request["name"], request["folder"])
loading = time.process_time() - start
text = open(request["text"], encoding="utf-8", errors="replace", newline="").read()
start = time.process_time()
n = len(encode(text))
print(json.dumps({"seconds": time.process_time() - start, "loading": loading, "ids": n, "version": f"{request['library']} {library.__version__}"}))
