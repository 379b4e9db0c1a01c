#!/usr/bin/env python3
"""Tokenizers whose words end in "</w>": CLIP's real vocabulary, and a GPT-1 of characters. llm-tokenize gives the ids and the texts that transformers
gives, from the folder that transformers writes, from vocab.json with merges.txt, and from llm-tokenize's own tokenizer.json.

    tests/oracle/clip_tokenizer.py WHEEL SHARED [BIN]
        WHEEL: of PyPI's open_clip_torch, which has CLIP's merges; SHARED: the folder that holds data/; BIN: that of llm-tokenize [bin]

If ftfy is installed, the ids of open_clip's own tokenizer are compared too, and how many texts differ is printed.
Exits 1 when anything differs from transformers. Needs transformers."""
import gzip
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata
import zipfile

from tokenizers import Tokenizer
from transformers import CLIPTokenizer, OpenAIGPTTokenizer

wheel = sys.argv[1]
shared = os.path.join(sys.argv[2], "data")
program = os.path.join(sys.argv[3] if len(sys.argv) > 3 else "bin", "llm-tokenize")
rng = random.Random(5)
WORDS = ("a photo of the cat's dog don't WE'LL I'm they've you're he'd O'Neill naïve Straße ﬁne ǅungla İstanbul ΌΔΟΣ 42nd 3.14 1,000 ½ Ⅷ ٣ "
         "supercalifragilisticexpialidocious pneumonoultramicroscopicsilicovolcanoconiosis e\u0301te\u0301 अनुच्छेद 中文字符 日本語です한국어 ไทย "
         "👩‍🚀 🙂🙂 🇩🇪 <b>tag</b> &amp; http://x.y/z?q=1 C++ #1 @you ... !!! --- ___ '''s 's 't \u0130 \ufb01 \u212b \u2126 <|startoftext|> "
         "<|endoftext|> </w> a</w> \u200b \u00ad \ufeff \x00 \x07 \x1b[0m \x85 \x7f").split(" ")
BLANKS = [" ", " ", " ", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028", "\u180e", "\v", "", "", "\x1c", "\u200b"]


def character():
    """Any of Unicode 3.2 whose category is still the same: the libraries' tables of Unicode differ in age."""
    while True:
        c = rng.choice([rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x110000)])
        if unicodedata.ucd_3_2_0.category(chr(c)) == unicodedata.category(chr(c)) not in ("Cn", "Cs"):
            return chr(c)


def texts(n):
    yield from ["", " ", "\n \t", "'", "s", "x" * 63, "x" * 64, "x" * 65, "abcdefghijk" * 50, "é" * 200, "0" * 100, "!" * 300, "\U0001f642" * 40]
    for name in ["corpora/botchan.txt", "corpora/wagahaiwa_nekodearu.ja.txt"]:
        for line in open(os.path.join(shared, name), encoding="utf-8"):
            yield line.rstrip("\n")[:2000]
    for _ in range(n):
        kind = rng.randrange(3)
        if kind == 0:
            yield "".join(rng.choice(WORDS) + rng.choice(BLANKS) for _ in range(rng.randrange(1, 20)))
        elif kind == 1:
            yield "".join(character() for _ in range(rng.randrange(1, 30)))
        else:
            yield "".join(rng.choice(" '’sStTdDlLvVeErRmM0129.,!?-_aAbBzZéÉß") for _ in range(rng.randrange(1, 80)))


def lines(*args, data):
    out = subprocess.run([program, *args], input=data.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()
    return out[:-1].split("\n")


def encode(path, every, *options):
    data = "".join(json.dumps({"text": t}) + "\n" for t in every)
    return [[int(x) for x in line.split()] for line in lines("encode", "-T", path, "--jsonl", "--text", "--special", *options, data=data)]


def compare(name, got, want, every):
    bad = [i for i in range(len(every)) if got[i] != want[i]] if len(got) == len(want) else [0]
    print(f"{'FAIL' if bad else 'ok  '}  {name}: {len(every)} texts, {len(bad)} differ")
    for i in bad[:3]:
        print(f"      {every[i]!r}\n      ours   {got[i]!r}\n      theirs {want[i]!r}")
    return len(bad)


def identity(path):
    info = subprocess.run([program, "info", "-T", path, "--json"], stdout=subprocess.PIPE, check=True).stdout
    return json.loads(info)["id"]


def decode(path, every):
    """The texts of lists of ids; what separates them is in no text."""
    data = "".join(" ".join(map(str, ids)) + "\n" for ids in every).encode()
    out = subprocess.run([program, "decode", "-T", path, "--text", "--separator", "\x01|\x02"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return [text.decode(errors="replace") for text in out.split(b"\x01|\x02")[:-1]]


def check(name, paths, theirs, every):
    """Ids with and without what stands around a text, and texts of ids, from each of the paths, which are one tokenizer."""
    plain = [e.ids for e in theirs.encode_batch(every, add_special_tokens=False)]
    around = [e.ids for e in theirs.encode_batch(every)]
    lists = [ids for ids in plain if ids]
    back = [theirs.decode(ids, skip_special_tokens=False) for ids in lists]
    bad = sum(identity(path) != identity(paths[0]) for path in paths)
    print(f"{'FAIL' if bad else 'ok  '}  {name}: {len(paths)} sources, one identity")
    for path in paths:
        bad += compare(f"{name}, {os.path.basename(path)}", encode(path, every), plain, every)
        bad += compare(f"{name}, {os.path.basename(path)} --add-special", encode(path, every, "--add-special"), around, every)
        # transformers strips blanks at both ends; a text's own blanks at its ends are in no token of CLIP, but other controls may be
        bad += compare(f"{name}, {os.path.basename(path)}, decoded", [t.strip() for t in decode(path, lists)], [t.strip() for t in back], lists)
    return bad


def clip_files(folder):
    packed = zipfile.ZipFile(wheel).read("open_clip/bpe_simple_vocab_16e6.txt.gz")
    merges = [tuple(line.split()) for line in gzip.open(io.BytesIO(packed)).read().decode().split("\n")[1:49152 - 256 - 2 + 1]]
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    vocab = alphabet + [c + "</w>" for c in alphabet] + ["".join(m) for m in merges] + ["<|startoftext|>", "<|endoftext|>"]
    vocab = {text: i for i, text in enumerate(vocab)}
    CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=77).save_pretrained(os.path.join(folder, "clip"))
    os.mkdir(os.path.join(folder, "files"))
    with open(os.path.join(folder, "files/vocab.json"), "w") as f:
        json.dump(vocab, f)
    with open(os.path.join(folder, "files/merges.txt"), "w") as f:
        f.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    with open(os.path.join(folder, "files/tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "CLIPTokenizer", "model_max_length": 77}, f)


def gpt1_files(folder):
    """A GPT-1 of characters, trained here on words with the suffix."""
    from tokenizers import models, normalizers, pre_tokenizers, trainers
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train([os.path.join(shared, "corpora/botchan.txt")], trainers.BpeTrainer(vocab_size=3000, end_of_word_suffix="</w>", special_tokens=["<unk>"],
                                                                             show_progress=False))
    model = json.loads(t.to_str())["model"]
    OpenAIGPTTokenizer(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]]).save_pretrained(os.path.join(folder, "gpt1"))


def exported(path):
    out = path + "-exported.json"
    subprocess.run([program, "info", "-T", path, "--export", "-o", out], check=True)
    return out


def compare_open_clip(path, every):
    try:
        import importlib.util
        with tempfile.TemporaryDirectory() as tmp:
            zipfile.ZipFile(wheel).extract("open_clip/tokenizer.py", tmp)
            zipfile.ZipFile(wheel).extract("open_clip/bpe_simple_vocab_16e6.txt.gz", tmp)
            spec = importlib.util.spec_from_file_location("simple", os.path.join(tmp, "open_clip/tokenizer.py"))
            simple = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(simple)
            theirs = simple.SimpleTokenizer()
    except ImportError as e:
        print(f"      open_clip's own tokenizer: not compared ({e})")
        return
    different = [(t, ours, want) for t, ours, want in zip(every, encode(path, every), map(theirs.encode, every)) if ours != want]
    print(f"      open_clip's own tokenizer: {len(different)} of {len(every)} texts differ, for instance")
    for text, ours, want in different[:8]:
        print(f"      {text[:60]!r}: ours {ours[:10]}, theirs {want[:10]}")


def main():
    every = [t for t in texts(25000)]
    with tempfile.TemporaryDirectory() as folder:
        clip_files(folder)
        gpt1_files(folder)
        clip, files, gpt1 = (os.path.join(folder, name) for name in ["clip", "files", "gpt1"])
        own = exported(files)
        theirs = CLIPTokenizer.from_pretrained(clip).backend_tokenizer
        bad = check("clip", [clip, files, own], theirs, every)
        read_back = Tokenizer.from_file(own)  # what we write, read by Hugging Face's library
        bad += compare("clip, our file in tokenizers", [e.ids for e in read_back.encode_batch(every)], [e.ids for e in theirs.encode_batch(every)], every)
        bad += check("gpt-1", [gpt1], OpenAIGPTTokenizer.from_pretrained(gpt1).backend_tokenizer, every)
        compare_open_clip(clip, every)
    sys.exit(1 if bad else 0)


main()
