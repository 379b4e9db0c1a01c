#!/usr/bin/env python3
"""Writes tests/golden/formats: small files of each format, good ones and bad ones, by the pages in formats/ alone (struct, json, the zstd program).

    tests/oracle/format_goldens.py [FOLDER]

good.tsv and bad.tsv list them: file, then what it holds or what a reader should complain of.
"""
import json
import os
import struct
import subprocess
import sys

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../golden/formats")
P = [11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261]
M = (1 << 64) - 1


def rotl(x, r):
    return ((x << r) | (x >> (64 - r))) & M


def xxh64(data, seed=0):
    def rnd(acc, lane):
        return rotl((acc + lane * P[1]) & M, 31) * P[0] & M

    at = 0
    if len(data) >= 32:
        v = [(seed + P[0] + P[1]) & M, (seed + P[1]) & M, seed, (seed - P[0]) & M]
        while at + 32 <= len(data):
            for i, lane in enumerate(struct.unpack_from("<4Q", data, at)):
                v[i] = rnd(v[i], lane)
            at += 32
        h = (rotl(v[0], 1) + rotl(v[1], 7) + rotl(v[2], 12) + rotl(v[3], 18)) & M
        for x in v:
            h = ((h ^ rnd(0, x)) * P[0] + P[3]) & M
    else:
        h = (seed + P[4]) & M
    h = (h + len(data)) & M
    while at + 8 <= len(data):
        h = (rotl(h ^ rnd(0, struct.unpack_from("<Q", data, at)[0]), 27) * P[0] + P[3]) & M
        at += 8
    if at + 4 <= len(data):
        h = (rotl(h ^ (struct.unpack_from("<I", data, at)[0] * P[0] & M), 23) * P[1] + P[2]) & M
        at += 4
    for b in data[at:]:
        h = rotl(h ^ (b * P[4] & M), 11) * P[0] & M
    h = ((h ^ (h >> 33)) * P[1]) & M
    h = ((h ^ (h >> 29)) * P[2]) & M
    return h ^ (h >> 32)


def dump(x):
    return json.dumps(x, separators=(",", ":"), ensure_ascii=False)


def head(header):
    text = (header if isinstance(header, str) else dump(header)).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return struct.pack("<Q", len(text)) + text


def message(kind, meta, tensors):
    """tensors: (name, dtype, shape, bytes) in canonical order."""
    header, at = {"__metadata__": {**({"llm.kind": kind} if kind else {}), **meta}}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    return head(header) + b"".join(t[3] for t in tensors)


def end(count, before):
    return message("end", {"llm.count": str(count), "llm.xxh64": "%016x" % xxh64(before)}, [])


def frame(data, *options):
    # Content size, checksum: from a file the program knows the size.
    path = os.path.join(OUT, "frame.tmp")
    with open(path, "wb") as f:
        f.write(data)
    packed = subprocess.run(["zstd", "-q", "-c", "-3", *(options or ("--check",)), path], check=True, capture_output=True).stdout
    os.unlink(path)
    return packed


NAME = b"llmutils checkpoint 1\n"
NAMING = struct.pack("<II", 0x184D2A50, len(NAME)) + NAME


def table(frames, count=None, descriptor=0, magic=0x8F92EAB1):
    entries = b"".join(struct.pack("<II", packed, content) for packed, content in frames)
    footer = struct.pack("<IBI", len(frames) if count is None else count, descriptor, magic)
    return struct.pack("<II", 0x184D2A5E, len(entries) + len(footer)) + entries + footer


def checkpoint(contents, **options):
    packed = [frame(c) for c in contents]
    return NAMING + b"".join(packed) + table([(len(NAMING), 0)] + [(len(p), len(c)) for p, c in zip(packed, contents)], **options)


def planes(values, width):
    bits = 8 * width
    rotated = [((v << 1) | (v >> (bits - 1))) & ((1 << bits) - 1) for v in values]
    return b"".join(bytes((v >> (8 * b)) & 255 for v in rotated) for b in reversed(range(width)))


def main():
    os.makedirs(os.path.join(OUT, "bad"), exist_ok=True)
    good, bad = [], []

    def put(name, data, says, rows):
        with open(os.path.join(OUT, name), "wb") as f:
            f.write(data)
        rows.append("%s\t%s\n" % (name, says))

    # ---- messages ----
    floats = struct.pack("<3f", 0.5, -1.0, 2.0)
    one = message("logits", {"llm.vocab_size": "3"}, [("logits", "F32", [1, 3], floats)])
    stream = one + end(1, one)
    put("logits.tensors", stream, "message", good)
    block = struct.pack("<e", 0.5) + bytes(range(32))
    types = dump({"w": {"dtype": "q8_0", "shape": [1, 32]}})
    put("q8_0.tensors", message("weights", {"llm.tensors": types}, [("w", "U8", [34], block)])
        + end(1, message("weights", {"llm.tensors": types}, [("w", "U8", [34], block)])), "message", good)
    put("foreign.safetensors", message(None, {"format": "pt"}, [("b", "F64", [], struct.pack("<d", 1.5)), ("a", "F16", [2], b"\0\x3c\0\xc0"),
                                                                ("e", "BOOL", [0, 4], b"")]), "message", good)
    ids = struct.pack("<6H", 5, 1, 4, 2, 0, 3)
    tok = message("tokens", {"llm.tokenizer": "0" * 64, "llm.vocab_size": "6"},
                  [("doc_ends", "U64", [2], struct.pack("<2Q", 4, 6)), ("ids", "U16", [6], ids), ("loss_mask", "U8", [6], b"\0\1\1\1\0\1")])
    tok += end(1, tok)
    put("tokens.tok", tok, "message", good)
    put("two.tok", tok + tok, "message", good)
    config = dump({"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 4,
                   "intermediate_size": 4, "vocab_size": 6, "head_dim": 2})
    meta = {"llm.config": config, "llm.fingerprint": "0123456789abcdef", "llm.tokenizer": "0" * 64}
    tensors = [("ids", "I32", [2], struct.pack("<2i", 5, 1)), ("positions", "I32", [2], struct.pack("<2i", 0, 1)),
               ("layers.0.k", "F16", [2, 1, 2], struct.pack("<4e", 1, 2, 3, 4)), ("layers.0.v", "F16", [2, 1, 2], struct.pack("<4e", 5, 6, 7, 8))]
    sums = {name: "%016x" % xxh64(data) for name, data in [(t[0], t[3]) for t in tensors] + [(k, v.encode()) for k, v in meta.items()]}
    kv = message("kvcache", dict(meta, **{"llm.checksums": dump(sums)}), tensors)
    put("cache.kv", kv, "message", good)
    put("old.kv", message("kvcache", meta, tensors), "message", good)  # as it was before there were checksums

    # evicted: of three tokens each of two heads has two keys, not the same ones
    two = dump(dict(json.loads(config), num_key_value_heads=2))
    old = dict(meta, **{"llm.config": two})
    rows = [("ids", "I32", [3], struct.pack("<3i", 5, 1, 4)), ("layers.0.positions", "I32", [2, 2], struct.pack("<4i", 0, 1, 2, 2)),
            ("positions", "I32", [3], struct.pack("<3i", 0, 1, 2)), ("layers.0.k", "F16", [2, 2, 2], struct.pack("<8e", *range(1, 9))),
            ("layers.0.v", "F16", [2, 2, 2], struct.pack("<8e", *range(9, 17)))]
    seen = {name: "%016x" % xxh64(data) for name, data in [(t[0], t[3]) for t in rows] + [(k, v.encode()) for k, v in old.items()]}
    put("evicted.kv", message("kvcache", dict(old, **{"llm.checksums": dump(seen)}), rows), "message", good)

    def summed(**changes):  # the cache with other checksums
        new = {k: v for k, v in dict(sums, **changes).items() if v}
        return message("kvcache", dict(meta, **{"llm.checksums": dump(new)}), tensors)
    settings = dump({"type": "char", "normalizer": None, "splits": [], "ignore_merges": False, "add_prefix_space": False, "unknown": -1,
                     "before": [], "after": [], "bos": -1, "eos": -1,
                     "id": "ff9abae39d93d1f5b3a9e6d5661b789470ea686207a83e72f19f8d41f37014db"}).encode()
    put("tokenizer.safetensors", message("checkpoint", {}, [("tokenizer.offsets", "U32", [4], struct.pack("<4I", 0, 1, 2, 5)),
                                                            ("tokenizer.flags", "U8", [3], bytes((0x11, 0x11, 7))),
                                                            ("tokenizer.pieces", "U8", [5], b"ab<e>"),
                                                            ("tokenizer.settings", "U8", [len(settings)], settings)]), "checkpoint", good)

    def tensor(dtype="U8", shape="[4]", offsets="[0,4]", name="a"):
        return '"%s":{"dtype":"%s","shape":%s,"data_offsets":%s}' % (name, dtype, shape, offsets)

    def foreign(*tensors, data=b"abcd"):
        return head("{" + ",".join(tensors) + "}") + data

    h = 8 + struct.unpack("<Q", one[:8])[0]
    for name, data, says in [
            ("cut-in-length", stream[:5], "cut short"), ("cut-in-header", stream[:40], "cut short"), ("cut-before-data", stream[:h], "cut short"),
            ("cut-in-data", stream[:h + 5], "cut short"), ("cut-before-end", one, "cut short"), ("cut-in-end", stream[:len(one) + 30], "cut short"),
            ("changed-data", stream[:h] + b"\1" + stream[h + 1:], "checksum"), ("end-count", one + end(2, one), "count"),
            ("end-hash", one + end(1, one + b"x"), "checksum"), ("second-without-end", tok + tok[:-128], "cut short"),
            ("kv-changed-value", kv[:-1] + b"\x49", "checksum"), ("kv-changed-metadata", kv.replace(b"0123456789abcdef", b"1123456789abcdef", 1), "checksum"),
            ("kv-sum-missing", summed(ids=None), "checksum"), ("kv-sum-of-nothing", summed(more="0" * 16), "checksums"),
            ("single-within", one + kv, "'end'"), ("empty", b"", "empty"),
            ("length-2-63", struct.pack("<Q", 1 << 63) + one[8:], "header length"), ("length-100000001", struct.pack("<Q", 100000001) + one[8:], "header length"),
            ("not-json", struct.pack("<Q", 4) + b"{a}}", "JSON"), ("offsets-overlap", foreign(tensor(), tensor(name="b", offsets="[2,6]"), data=b"abcdef"), "begin at"),
            ("offsets-gap", foreign(tensor(), tensor(name="b", offsets="[5,9]"), data=b"abcdefghi"), "begin at"),
            ("offsets-beyond", foreign(tensor(shape="[400]", offsets="[0,400]")), "cut short"), ("offsets-backwards", foreign(tensor(offsets="[4,0]")), "data_offsets"),
            ("offsets-negative", foreign(tensor(offsets="[-4,0]")), "data_offsets"), ("duplicate-name", foreign(tensor(), tensor(offsets="[4,8]"), data=b"abcdefgh"), "uplicate"),
            ("shape-overflow", foreign(tensor(shape="[4294967296,4294967297]")), "overflow"), ("shape-negative", foreign(tensor(shape="[-4]")), "dimension"),
            ("shape-fraction", foreign(tensor(shape="[4.0]")), "dimension"), ("shape-nine", foreign(tensor(shape="[1,1,1,1,1,1,1,1,4]")), "dimensions"),
            ("size-differs", foreign(tensor(shape="[3]")), "expected 3 bytes"), ("dtype-unknown", foreign(tensor(dtype="F7")), "unknown dtype"),
            ("metadata-number", head('{"__metadata__":{"a":1}}'), "string"), ("metadata-require", head('{"__metadata__":{"llm.require.x":"1"}}'), "later version"),
            ("true-type-size", message("weights", {"llm.tensors": dump({"w": {"dtype": "q8_0", "shape": [64]}})}, [("w", "U8", [34], block)]), "expected 68 bytes"),
            ("true-type-absent", message("weights", {"llm.tensors": dump({"v": {"dtype": "q8_0", "shape": [32]}})}, [("w", "U8", [34], block)]), "no tensor")]:
        put("bad/%s.tensors" % name, data, says, bad)

    # ---- checkpoints ----
    values = [0x3F80, 0xBF00, 0x3DCD, 0x4049, 0x8000, 0xC2C8]  # 1, -0.5, 0.1, 3.14, -0, -100
    text = b'{"model":{}}'
    types = dump({"w": {"dtype": "BF16", "shape": [2, 3], "encoding": "planes"}})
    contents = [message("checkpoint", {"llm.config": "{}", "llm.tensors": types}, [("tokenizer.json", "U8", [12], b""), ("w", "U8", [12], b"")])]
    header = {"__metadata__": {"llm.kind": "checkpoint", "llm.config": "{}", "llm.tensors": types},
              "tokenizer.json": {"dtype": "U8", "shape": [12], "data_offsets": [0, 12]}, "w": {"dtype": "U8", "shape": [12], "data_offsets": [12, 24]}}
    contents = [head(header), text, planes(values, 2)]
    llm = checkpoint(contents)
    put("checkpoint.llm", llm, "checkpoint", good)
    native = dict(header, __metadata__={"llm.kind": "checkpoint", "llm.config": "{}"},
                  w={"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]})
    native["tokenizer.json"] = {"dtype": "U8", "shape": [12], "data_offsets": [12, 24]}
    raw = struct.pack("<6H", *values)
    put("native.llm", checkpoint([head(native), raw, text]), "checkpoint", good)
    put("native.safetensors", head(native) + raw + text, "checkpoint", good)
    packed = [frame(c) for c in contents]
    sizes = [(len(NAMING), 0)] + [(len(p), len(c)) for p, c in zip(packed, contents)]
    body = NAMING + b"".join(packed)
    flipped = bytearray(llm)
    flipped[len(body) - 8] ^= 1
    unchecked = [frame(c, "--no-check") for c in contents]
    for name, data, says in [
            ("cut-in-name", llm[:20], "checkpoint"), ("cut-in-header", llm[:60], "cut short"), ("cut-before-data", body[:len(NAMING) + len(packed[0])], "cut short"),
            ("cut-in-data", body[:-5], "cut short"), ("no-table", body, "table"), ("cut-in-table", llm[:-7], "table"), ("after-table", llm + b"x", "table"),
            ("changed-data", bytes(flipped), "hecksum"), ("no-checksum", NAMING + b"".join(unchecked)
             + table([sizes[0]] + [(len(p), len(c)) for p, c in zip(unchecked, contents)]), "checksum"),
            ("table-content", body + table(sizes[:2] + [(sizes[2][0], 13)] + sizes[3:]), "frame"), ("table-packed", body + table(sizes[:2] + [(sizes[2][0] + 1, 12)] + sizes[3:]), "table"),
            ("table-count", body + table(sizes, count=5), "table"), ("table-descriptor", body + table(sizes, descriptor=0x80), "table"),
            ("table-magic", body + table(sizes, magic=0x8F92EAB2), "table"), ("table-moved", body + table(sizes[:2] + [(sizes[2][0] + 1, 12), (sizes[3][0] - 1, 12)]), "frame"),
            ("two-tensors-a-frame", checkpoint([contents[0], text + contents[2]]), "frame"), ("header-and-tensor", checkpoint([contents[0] + text, contents[2]]), "frame"),
            ("content-missing", checkpoint(contents[:2]), "frame"), ("content-more", checkpoint(contents + [b"x"]), "header"),
            ("version", llm.replace(b"checkpoint 1\n", b"checkpoint 2\n"), "version"), ("no-name", body[len(NAMING):] + table(sizes[1:]), "checkpoint"),
            ("plain-zstd", frame(head(native) + raw + text), "checkpoint"), ("length-2-63", checkpoint([struct.pack("<Q", 1 << 63) + b"{}"]), "header length"),
            ("kind", checkpoint([message("tokens", {}, [])]), "kind"), ("encoding-unknown", checkpoint([contents[0].replace(b"planes", b"gold  ")] + contents[1:]), "encoding")]:
        put("bad/%s.llm" % name, data, says, bad)

    for name, rows in (("good.tsv", good), ("bad.tsv", bad)):
        with open(os.path.join(OUT, name), "w") as f:
            f.writelines(rows)


if __name__ == "__main__":
    main()
