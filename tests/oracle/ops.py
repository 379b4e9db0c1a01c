#!/usr/bin/env python3
"""PyTorch goldens of single ops, in FP64: writes tests/golden/ops/ops.json.

Inputs and parameters are drawn by our own generator (Philox4x32-10, lib/base/rng.h), so that the golden holds no data: for each output and gradient
only its norm and 64 projections on vectors of signs. Needs torch and numpy; the tests do not need it.
"""
import json
import sys
import numpy as np
import torch
import torch.nn.functional as F
import philox


def u32(seed, step, layer, n):
    return philox.u32(seed, step, philox.TEST, layer, 0, 0, n)


def normal(seed, step, layer, n):
    return philox.normal(seed, step, philox.TEST, layer, 0, 0, n)


def summary(t):
    x = t.detach().double().numpy().ravel()
    bits = u32(99, 0, 0, 2 * x.size).reshape(-1, 2)  # 64 signs for each number
    signs = [np.where((bits[:, k // 32] >> np.uint32(k % 32)) & np.uint32(1), 1.0, -1.0) for k in range(64)]
    return {"norm": float(np.sqrt((x * x).sum())), "projections": [float((s * x).sum()) for s in signs]}


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def rope_halves(x):  # transformers' apply_rotary_pos_emb; 3 heads of 16, all turned
    x = x.view(-1, 3, 16)
    freq = torch.tensor([np.float32(10000.0 ** (-i / 8)) for i in range(8)], dtype=torch.float64)
    angle = torch.arange(x.shape[0], dtype=torch.float64)[:, None] * 5 * freq
    angle = torch.cat((angle, angle), -1)[:, None]
    return (x * angle.cos() + rotate_half(x) * angle.sin()).reshape(-1, 48)


def rope_pairs(x):  # complex multiplication, as in the original Llama code
    z = torch.view_as_complex(x.reshape(-1, 3, 8, 2).contiguous())
    freq = torch.tensor([np.float32(10000.0 ** (-i / 8)) for i in range(8)], dtype=torch.float64)
    angle = torch.arange(z.shape[0], dtype=torch.float64)[:, None] * 5 * freq
    return torch.view_as_real(z * torch.polar(torch.ones_like(angle), angle)[:, None]).reshape(-1, 48)


def rms(x, g):
    return F.rms_norm(x, (x.shape[-1],), g, float(np.float32(1e-5)))


def sinusoidal(x):  # "Attention Is All You Need", 3.5
    angle = 5 * torch.arange(70, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, 48, 2, dtype=torch.float64) / 48)
    return x + torch.stack((angle.sin(), angle.cos()), -1).reshape(70, 48)


def z_loss(x, w):  # PaLM's (Chowdhery et al. 2022), over the tokens that count
    logits, targets = x @ w.T * 0.25, torch.tensor(TARGETS)
    return F.cross_entropy(logits, targets, ignore_index=-1) + 0.01 * logits.logsumexp(-1).square()[targets >= 0].mean()


TOKENS, IDS = 70, [(7 * t * t + 3 * t) % 97 for t in range(70)]
TARGETS = [-1 if t % 9 == 4 else (11 * t * t + t) % 97 for t in range(70)]
EPS = float(np.float32(1e-5))
CASES = {  # name: (shapes of inputs, shapes of parameters, function)
    "linear": ([(70, 48)], [(97, 48), (97,)], lambda x, w, b: F.linear(x, w, b)),
    "embedding": ([], [(97, 48)], lambda w: F.embedding(torch.tensor(IDS), w)),
    "layernorm": ([(70, 48)], [(48,), (48,)], lambda x, g, b: F.layer_norm(x, (48,), g, b, EPS)),
    "rmsnorm": ([(70, 48)], [(48,)], rms),
    "gelu": ([(70, 48)], [], lambda x: F.gelu(x)),
    "gelu_tanh": ([(70, 48)], [], lambda x: F.gelu(x, approximate="tanh")),
    "groupnorm": ([(70, 48)], [(48,), (48,)], lambda x, g, b: F.group_norm(x, 6, g, b, EPS)),
    "batchnorm": ([(70, 48)], [(48,), (48,)], lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True, eps=EPS)),
    "relu2": ([(70, 48)], [], lambda x: F.relu(x).square()),
    "relu": ([(70, 48)], [], F.relu),
    "silu": ([(70, 48)], [], F.silu),
    "sigmoid": ([(70, 48)], [], torch.sigmoid),
    "tanh": ([(70, 48)], [], torch.tanh),
    "swiglu": ([(70, 48), (70, 48)], [], lambda g, u: F.silu(g) * u),
    "geglu": ([(70, 48), (70, 48)], [], lambda g, u: F.gelu(g) * u),
    "add": ([(70, 48), (70, 48)], [], torch.add),
    "scale": ([(70, 48)], [], lambda x: x * 0.375),
    "sinusoidal": ([(70, 48)], [], sinusoidal),
    "softmax": ([(70, 48)], [], lambda x: F.softmax(x, -1)),
    "rope_halves": ([(70, 48)], [], rope_halves),
    "rope_pairs": ([(70, 48)], [], rope_pairs),
    "z_loss": ([(70, 48)], [(97, 48)], z_loss),
    "cross_entropy": ([(70, 48)], [(97, 48)], lambda x, w: F.cross_entropy(x @ w.T * 0.25, torch.tensor(TARGETS), ignore_index=-1)),
}


def main():
    golden = {}
    for name, (inputs, params, function) in CASES.items():
        values = []
        for layer, shape in [*enumerate(inputs), *((4 + i, s) for i, s in enumerate(params))]:
            v = normal(31, 0, layer, int(np.prod(shape))).reshape(shape)
            values.append(torch.tensor(v, dtype=torch.float64, requires_grad=True))
        y = function(*values)
        if y.dim():
            w = normal(31, 1, 0, y.numel()).reshape(tuple(y.shape))
            y.backward(torch.tensor(w, dtype=torch.float64))
        else:
            y.backward()
        golden[name] = {"output": summary(y), "gradients": [summary(v.grad) for v in values]}
    json.dump(golden, open(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/ops/ops.json", "w"), indent=0)


main()
