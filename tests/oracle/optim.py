#!/usr/bin/env python3
"""Golden for tests/unit/train/test_optim.c: 100 steps of each optimizer by torch.optim in double, of a matrix that decays and a vector that does not.

    /work/tmp/venv/bin/python tests/oracle/optim.py > tests/golden/train/optim.tsv
"""
import math

import torch

STEPS, LR, DECAY = 100, 1e-2, .1
SHAPES = ((3, 5), (7,))


def start(i, which):
    return math.cos(.9 * i + which)


def gradient(i, which, step):
    return math.sin(1.3 * i + .7 * step + which) * (1 + .25 * i)


def filled(f, shape, *rest):
    return torch.tensor([f(i, *rest) for i in range(math.prod(shape))], dtype=torch.float32).double().view(shape)


print("optimizer\tparameter\telement\tvalue")
for name, make in {
    "adamw": lambda g: torch.optim.AdamW(g, lr=LR, betas=(.9, .95), eps=1e-8),
    "adam": lambda g: torch.optim.Adam(g, lr=LR, betas=(.9, .95), eps=1e-8),
    "sgd": lambda g: torch.optim.SGD(g, lr=LR, momentum=.9),
    "adagrad": lambda g: torch.optim.Adagrad(g, lr=LR, eps=1e-8),
}.items():
    w = [filled(start, shape, k).requires_grad_() for k, shape in enumerate(SHAPES)]
    optim = make([{"params": [w[0]], "weight_decay": DECAY}, {"params": [w[1]], "weight_decay": 0.0}])
    for step in range(STEPS):
        for k, shape in enumerate(SHAPES):
            w[k].grad = filled(gradient, shape, k, step)
        optim.step()
    for k, x in enumerate(w):
        for i, v in enumerate(x.flatten().tolist()):
            print(f"{name}\t{k}\t{i}\t{v:.17g}")
