"""Sparse sums of planted directions as a stream of activations (formats/activations.md), and how well a dictionary has found them.
planted.py make FILE SEED ROWS WIDTH FEATURES ACTIVE FINGERPRINT PLACE [OTHER]: each activation is the sum of ACTIVE of FEATURES directions, times
    numbers from 10 to 30, and 5. OTHER: a second place, where the directions are others with the same numbers.
planted.py found DICTIONARY.safetensors SEED WIDTH FEATURES [other]: the share of the directions that a column of the decoder has a cosine of .9 with"""
import ctypes
import json
import math
import random
import struct
import sys


def xxh64(data):
    f = ctypes.CDLL("libxxhash.so.0").XXH64
    f.restype, f.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64)
    return f(data, len(data), 0)


def message(kind, meta, tensors):
    header, data = {"__metadata__": {"llm.kind": kind, **meta}}, b""
    for name, dtype, shape, content in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return struct.pack("<Q", len(text)) + text + data


def directions(seed, width, features):
    r, out = random.Random(seed), []
    for _ in range(features):
        v = [r.gauss(0, 1) for _ in range(width)]
        n = math.sqrt(sum(x * x for x in v))
        out.append([x / n for x in v])
    return out


def make(path, seed, rows, width, features, active, fingerprint, *places):
    seed, rows, width, features, active = map(int, (seed, rows, width, features, active))
    planted = [directions(seed + 1000 * i, width, features) for i in range(len(places))]
    r, out, n = random.Random(seed + 1), b"", 0
    for first in range(0, rows, 64):
        m = min(64, rows - first)
        values = [[] for _ in places]
        for _ in range(m):
            chosen = [(j, 10 + 20 * r.random()) for j in r.sample(range(features), active)]
            for x, d in zip(values, planted):
                v = [5.0] * width
                for j, a in chosen:
                    v = [p + a * q for p, q in zip(v, d[j])]
                x += v
        tensors = [(p, "F32", [m, width], struct.pack("<%df" % len(x), *x)) for p, x in zip(places, values)]
        zeros = bytes(4 * m)
        out += message("activations", {"llm.fingerprint": fingerprint}, tensors + [("ids", "I32", [m], zeros), ("positions", "I32", [m], zeros)])
        n += 1
    with open(path, "wb") as f:
        f.write(out + message("end", {"llm.count": str(n), "llm.xxh64": "%016x" % xxh64(out)}, []))


def found(path, seed, width, features, other=None):
    b = open(path, "rb").read()
    n = int.from_bytes(b[:8], "little")
    t = json.loads(b[8:8 + n])["decoder.weight"]
    lo, hi = t["data_offsets"]
    out, count = t["shape"]
    w = struct.unpack("<%df" % (out * count), b[8 + n + lo:8 + n + hi])
    columns = [w[j::count] for j in range(count)]
    assert all(abs(sum(x * x for x in c) - 1) < 1e-5 for c in columns), "columns of length 1"
    best = [max(sum(p * q for p, q in zip(d, c)) for c in columns)
            for d in directions(int(seed) + (1000 if other else 0), int(width), int(features))]
    print(sum(x >= .9 for x in best) / len(best))


{"make": make, "found": found}[sys.argv[1]](*sys.argv[2:])
