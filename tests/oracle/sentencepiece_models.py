#!/usr/bin/env python3
"""Small models that SentencePiece trained, and what it makes of awkward texts and random ids with them.

    python3 tests/oracle/sentencepiece_models.py     (sentencepiece 0.2.3)

writes tests/golden/sentencepiece/NAME.model and vectors.jsonl: {"model", "text" or "hex", "ids"} and {"model", "decode", "text"}.
"""
import io
import json
import random
import sys
from pathlib import Path

import sentencepiece

folder = Path(__file__).resolve().parent.parent / "golden" / "sentencepiece"
words = "the cat sat on the mat and the rat ran to the hat that the man had in his hand while he ran around the land".split()
rng = random.Random(7)
lines = [" ".join(rng.choice(words) for _ in range(rng.randint(3, 12))).capitalize() + rng.choice([".", "!", " ...", "?"]) for _ in range(400)]
rules = "\n".join(["C9\tE9", "65 301\tE9", "FB01\t66 69", "3000\t20", "9\t20", "A\t20", "200B\t", "41\t61", "54\t74 68", "FFFD\t20"]) + "\n"
texts = ["", " ", "   ", "the cat", " the  cat ", "The hat.\nThe mat\t!", "xyz", "x y z", "theéÉ e\u0301", "ﬁ ﬂ", "中文 the 中", "\u3000a\u3000\u3000b", "a\u200bb",
         "<0x41>", "<s>the</s>", "<sep>the <sep> cat<sep>", "<unk>", "▁the▁▁cat", "the" * 40, "hathathat", "ABAB", "TTT", "😀 the 😀😀", "\u0000a", "\ufffd", "a\ufffdb",
         "that the man had in his hand", "e\u0301e\u0301\u0301", "  \u3000  end  ", "tab\ttab", "end\n\n\n", "1 2 3", "\r\n"]
user_texts = ["the mat hath a hat", "xyz xy yx", "man m", "that the cat has", "hathat the cats"]
raw = [b"\xff", b"a\xc3", b"\xe4\xb8", b"\xf0\x9f\x98", b"the \x80\x80 cat", b"\xed\xa0\x80"]
models = {
    "bpe": dict(model_type="bpe", vocab_size=340, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False),
    "bpe-rules": dict(model_type="bpe", vocab_size=70, user_defined_symbols=["<sep>", "hath", "▁m"], rules=True),
    "unigram": dict(model_type="unigram", vocab_size=75, rules=True),
    "unigram-bytes": dict(model_type="unigram", vocab_size=340, byte_fallback=True, user_defined_symbols=["<sep>", "that"], control_symbols=["<ctl>"],
                          normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False),
    "char": dict(model_type="char", vocab_size=40, normalization_rule_name="identity", user_defined_symbols=["<sep>"]),
    "word": dict(model_type="word", vocab_size=30, normalization_rule_name="identity"),
    "word-bytes": dict(model_type="word", vocab_size=290, byte_fallback=True),
    "unigram-user": dict(model_type="unigram", vocab_size=75, user_defined_symbols=["▁m", "ha", "hat", " the c", "xy"]),
}


def train(name, options):
    options = dict(options)
    if options.pop("rules", False):
        tsv = Path("/tmp/sentencepiece-rules.tsv")
        tsv.write_text(rules)
        options["normalization_rule_tsv"] = str(tsv)
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, num_threads=1, hard_vocab_limit=False, minloglevel=2,
                                             self_test_sample_size=0, character_coverage=1.0, **options)
    (folder / f"{name}.model").write_bytes(out.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def main():
    folder.mkdir(exist_ok=True)
    with open(folder / "vectors.jsonl", "w") as f:
        def put(**row):
            f.write(json.dumps(row, ensure_ascii=True) + "\n")
        for name, options in models.items():
            sp = train(name, options)
            for text in texts + (user_texts if name == "unigram-user" else []):
                put(model=name, text=text, ids=sp.encode(text))
            for data in raw:
                put(model=name, hex=data.hex(), ids=sp.encode(data))
            usable = [i for i in range(sp.get_piece_size()) if not sp.is_control(i)]
            for _ in range(40):
                ids = [rng.choice(usable) for _ in range(rng.randint(1, 12))]
                put(model=name, decode=ids, text=sp.decode(ids))
    print(sum(p.stat().st_size for p in folder.iterdir()), "bytes", file=sys.stderr)


main()
