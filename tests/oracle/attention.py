#!/usr/bin/env python3
"""tests/golden/attention.tsv: attention in double by PyTorch, forward and gradients.

    tests/oracle/attention.py > tests/golden/attention.tsv

Problems are those of tests/unit/tensor/attention_reference.h, their numbers drawn by the same counters. A line: problem, tensor, its norm, eight random
projections. scaled_dot_product_attention where it has the arguments, else the formula with autograd (soft-cap, sinks, rows that see nothing).
Needs numpy and torch.
"""
import math
import sys

import numpy as np
import torch

INIT_TEST = 7  # LLM_RNG_TEST


def philox(counter, key):
    c = [x.astype(np.uint64) for x in counter]
    k = [np.uint64(x) for x in key]
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ k[0], b & low, (a >> np.uint64(32)) ^ c[3] ^ k[1], a & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return c


def mix(z):
    m = (1 << 64) - 1
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & m
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & m
    return z ^ (z >> 31)


def normals(seed, which, n, scale):
    m = (1 << 64) - 1
    key = mix((mix((seed + 0x9E3779B97F4A7C15) & m) + 0) & m)
    channel = np.arange(2 * n, dtype=np.uint64)
    zero = np.zeros(2 * n, np.uint64)
    out = philox([channel // np.uint64(4), zero, zero + np.uint64(INIT_TEST << 24 | which), zero], [key & 0xFFFFFFFF, key >> 32])
    u = np.choose((channel % np.uint64(4)).astype(int), out)
    u, v = (u[0::2] >> np.uint64(8)).astype(float), (u[1::2] >> np.uint64(8)).astype(float)
    x = np.sqrt(-2 * np.log((u + 1) * 2.0**-24)) * np.cos(6.283185307179586 * v * 2.0**-24)
    return (np.float32(scale) * x.astype(np.float32)).astype(np.float64)


def case(name, n_rows, row_len, heads, kv_heads, d_k, d_v, **more):
    return dict(dict(causal=0, window=0, prefix=0, kv_row_len=0, rel_max=0, softcap=0, sinks=0, masked=0, documents=[]), name=name, n_rows=n_rows,
                row_len=row_len, heads=heads, kv_heads=kv_heads, d_k=d_k, d_v=d_v, **more)


CASES = [  # in the order of the C table; None: not here (dropout)
    case("one token", 1, 1, 1, 1, 1, 1, causal=1),
    case("causal", 2, 131, 2, 2, 33, 33, causal=1),
    case("bidirectional", 2, 64, 3, 1, 64, 64),
    case("grouped, d_k > d_v", 1, 97, 6, 2, 80, 7, causal=1),
    case("window", 1, 200, 2, 1, 16, 16, causal=1, window=16),
    case("two-sided window", 1, 170, 2, 2, 8, 40, window=70),
    case("prefix", 2, 150, 2, 2, 16, 16, causal=1, prefix=75, window=30),
    case("documents", 2, 190, 2, 1, 16, 24, causal=1, prefix=3, documents=[1, 66, 140]),
    case("bidirectional documents", 1, 190, 1, 1, 16, 16, documents=[70, 140]),
    case("cross-attention", 2, 70, 4, 4, 16, 32, kv_row_len=133, masked=1),
    case("padded keys", 3, 80, 1, 1, 16, 16, causal=1, masked=1),
    case("bias", 1, 140, 4, 2, 16, 16, rel_max=20),
    case("causal bias", 2, 140, 2, 2, 16, 16, rel_max=200, causal=1, documents=[1, 70]),
    case("sinks", 1, 140, 4, 2, 16, 16, causal=1, window=50, sinks=1),
    case("soft-cap", 1, 140, 2, 1, 16, 16, causal=1, softcap=3),
    None,
    case("chunks", 1, 1100, 1, 1, 8, 8, causal=1),
    case("chunks, two-sided", 1, 20, 2, 1, 8, 8, kv_row_len=2100, sinks=1),
]


def seen(c, row):
    n = c["kv_row_len"] or c["row_len"]
    i, j = torch.arange(c["row_len"])[:, None], torch.arange(n)[None, :]
    start = torch.zeros(max(n, c["row_len"]), dtype=torch.long)
    for d in c["documents"]:
        start[d:] = d
    mask = torch.ones(c["row_len"], n, dtype=torch.bool)
    if c["causal"]:
        mask &= j <= i
    if c["window"]:
        mask &= (i - j).abs() < c["window"]
    mask |= j - start[:n][None, :] < c["prefix"]
    mask &= start[: c["row_len"]][:, None] == start[:n][None, :]
    if c["masked"]:
        mask &= j < row * n * 4 // 5
    return mask


def solve(c, seed):
    rows, t, n, h, g = c["n_rows"], c["row_len"], c["kv_row_len"] or c["row_len"], c["heads"], c["kv_heads"]

    def tensor(which, shape, scale):
        return torch.tensor(normals(seed, which, math.prod(shape), scale).reshape(shape), requires_grad=True)

    q, k, v = tensor(1, (rows, t, h, c["d_k"]), 3), tensor(2, (rows, n, g, c["d_k"]), 1), tensor(3, (rows, n, g, c["d_v"]), 1)
    d_out = tensor(4, (rows, t, h, c["d_v"]), 1).detach()
    bias = tensor(5, (h, 2 * c["rel_max"] - 1), 2) if c["rel_max"] else None
    sinks = tensor(6, (h,), 2) if c["sinks"] else None
    scale = float(np.float32(1) / np.sqrt(np.float32(c["d_k"])))
    mask = torch.stack([seen(c, r) for r in range(rows)])[:, None]
    qh, kh, vh = (x.transpose(1, 2) for x in (q, k.repeat_interleave(h // g, 2), v.repeat_interleave(h // g, 2)))
    s = qh @ kh.transpose(2, 3) * scale
    if c["softcap"]:
        s = c["softcap"] * torch.tanh(s / c["softcap"])
    added = torch.zeros_like(s)
    if bias is not None:
        d = (torch.arange(n)[None, :] - torch.arange(t)[:, None]).clamp(1 - c["rel_max"], c["rel_max"] - 1) + c["rel_max"] - 1
        added = added + bias[:, d]
    logits = (s + added).masked_fill(~mask, -math.inf)
    if sinks is not None:
        logits = torch.cat([logits, sinks[None, :, None, None].expand(rows, h, t, 1)], 3)
    lse = torch.logsumexp(logits, 3)
    if c["softcap"] or c["sinks"] or not mask.any(3).all():
        some = torch.where(torch.isfinite(lse), lse, torch.zeros_like(lse))
        out = torch.exp(logits[..., :n] - some[..., None]).masked_fill(~mask, 0) @ vh
    else:
        out = torch.nn.functional.scaled_dot_product_attention(qh, kh, vh, added.masked_fill(~mask, -math.inf), scale=scale)
    out = out.transpose(1, 2)
    given = {"dq": q, "dk": k, "dv": v, "d bias": bias, "d sinks": sinks}
    given = {name: x for name, x in given.items() if x is not None}
    grads = torch.autograd.grad((out * d_out).sum(), list(given.values()))
    lse = lse.transpose(1, 2).detach()
    return {"out": out.detach(), "lse": torch.where(torch.isfinite(lse), lse, 0), **dict(zip(given, grads))}


for index, c in enumerate(CASES):
    if c is None:
        continue
    for which, (name, x) in enumerate(solve(c, 1 + index).items()):
        x = x.contiguous().numpy().ravel()
        directions = [normals(1 + index, 100 + 8 * which + p, x.size, 1) for p in range(8)]
        numbers = [np.linalg.norm(x)] + [x @ d for d in directions]
        print(c["name"], name, *(f"{y:.12e}" for y in numbers), sep="\t")
    print(c["name"], file=sys.stderr)
