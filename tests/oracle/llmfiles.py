"""Checkpoints and token streams in NumPy, from formats/*.md alone, for oracles that train what llm-train trains."""
import ctypes
import json
import struct
import subprocess

import numpy as np

DTYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "u2", "U8": "u1", "I32": "i4", "U16": "u2", "U32": "u4", "I64": "i8", "U64": "u8"}


def xxh64(data):
    f = ctypes.CDLL("libxxhash.so.0").XXH64
    f.restype, f.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64)
    return f(data, len(data), 0)


def message(kind, meta, tensors):
    header, at = {"__metadata__": {"llm.kind": kind, **meta}}, 0
    for name, dtype, x in tensors:
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return struct.pack("<Q", len(text)) + text + b"".join(x.tobytes() for _, _, x in tensors)


def write_tokens(path, ids, vocab_size, doc_ends=()):
    """At most 2^22 ids."""
    wide = vocab_size > 65536
    ids = np.asarray(ids, dtype="<u4" if wide else "<u2")
    out = message("tokens", {"llm.vocab_size": str(vocab_size)},
                  [("doc_ends", "U64", np.asarray(doc_ends, dtype="<u8")), ("ids", "U32" if wide else "U16", ids)])
    with open(path, "wb") as f:
        f.write(out + message("end", {"llm.count": "1", "llm.xxh64": "%016x" % xxh64(out)}, []))


def unplane(data, width):
    """Every 4 MiB by itself: planes from the most significant byte down, of elements rotated left by a bit."""
    out = []
    for at in range(0, len(data), 1 << 22):
        piece = data[at : at + (1 << 22)].reshape(width, -1)
        bits, x = 8 * width, np.zeros(piece.shape[1], dtype=f"<u{width}")
        for plane in piece:
            x = (x << np.asarray(8, x.dtype) if width > 1 else x) | plane
        out.append((x >> np.asarray(1, x.dtype)) | (x << np.asarray(bits - 1, x.dtype)))
    return np.concatenate(out)


def parse(raw):
    """(metadata, {name: array}, where it ends); BF16 becomes F32."""
    n = struct.unpack("<Q", raw[:8])[0]
    header, out = json.loads(raw[8 : 8 + n]), {}
    meta, last = header.pop("__metadata__", {}), 0
    true = json.loads(meta.get("llm.tensors", "{}"))
    for name, t in header.items():
        data = np.frombuffer(raw, dtype="u1", count=t["data_offsets"][1] - t["data_offsets"][0], offset=8 + n + t["data_offsets"][0])
        last = max(last, t["data_offsets"][1])
        said = true.get(name, t)
        kind = np.dtype("<" + DTYPES[said["dtype"]])
        if said.get("encoding") == "planes":
            data = unplane(data, kind.itemsize)
        x = data.view(kind).reshape(said["shape"])
        if said["dtype"] == "BF16":
            x = (x.astype("u4") << 16).view("f4")
        out[name] = x
    return meta, out, 8 + n + last


def read_stream(raw, name):
    """Tensor `name` of all messages before `end`, one after another."""
    out = []
    while True:
        meta, tensors, size = parse(raw)
        if meta["llm.kind"] == "end":
            return np.concatenate(out)
        out.append(tensors[name])
        raw = raw[size:]


def read_checkpoint(path):
    """(metadata, {name: array}) of a .llm."""
    return parse(subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True).stdout)[:2]
