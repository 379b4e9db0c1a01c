#!/usr/bin/env python3
"""Golden for tests/unit/train/test_optim.c: 100 steps of each optimizer in double, by torch.optim where it has it (Lion is the paper's formula), of a wide
and a tall matrix that decay and a vector that does not.

    python tests/oracle/optim.py > tests/golden/train/optim.tsv
"""
import math

import torch

STEPS, LR, MUON_LR, DECAY = 100, 1e-2, 2e-2, .1
SHAPES = ((3, 5), (7,), (6, 4))

torch.Tensor.to = (lambda to: lambda self, *a, **k: to(self, *a, **{**k, "dtype": self.dtype}) if k.get("dtype") is torch.bfloat16 else to(self, *a, **k))(
    torch.Tensor.to)  # torch.optim.Muon rounds to BF16: here it stays in double


def start(i, which):
    return math.cos(.9 * i + which)


def gradient(i, which, step):
    return math.sin(1.3 * i + .7 * step * (1 + i % 3) + which) * (1 + .25 * i)


def filled(f, shape, *rest):
    return torch.tensor([f(i, *rest) for i in range(math.prod(shape))], dtype=torch.float32).double().view(shape)


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, params, lr, betas, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                m = self.state[w].setdefault("m", torch.zeros_like(w))
                b1, b2 = group["betas"]
                c = b1 * m + (1 - b1) * w.grad
                w -= group["lr"] * (c.sign() + group["weight_decay"] * w)
                m.mul_(b2).add_((1 - b2) * w.grad)


class Both:
    """Muon for matrices, AdamW for the rest."""

    def __init__(self, groups, **options):
        adamw = lambda g: torch.optim.AdamW(g, lr=LR, betas=(.9, .95), eps=1e-8)
        self.parts = torch.optim.Muon(groups[:1], lr=MUON_LR, momentum=.95, **options), adamw(groups[1:])

    def step(self):
        for part in self.parts:
            part.step()


print("optimizer\tparameter\telement\tvalue")
for name, make in {
    "adamw": lambda g: torch.optim.AdamW(g, lr=LR, betas=(.9, .95), eps=1e-8),
    "adam": lambda g: torch.optim.Adam(g, lr=LR, betas=(.9, .95), eps=1e-8),
    "sgd": lambda g: torch.optim.SGD(g, lr=LR, momentum=.9),
    "sgd-nesterov": lambda g: torch.optim.SGD(g, lr=LR, momentum=.9, nesterov=True),
    "adagrad": lambda g: torch.optim.Adagrad(g, lr=LR),
    "lion": lambda g: Lion(g, lr=LR, betas=(.9, .99)),
    "muon": lambda g: Both(g),
    "muon-plain": lambda g: Both(g, nesterov=False),
    "muon-match": lambda g: Both(g, adjust_lr_fn="match_rms_adamw"),
}.items():
    w = [filled(start, shape, k).requires_grad_() for k, shape in enumerate(SHAPES)]
    optim = make([{"params": [w[0], w[2]], "weight_decay": DECAY}, {"params": [w[1]], "weight_decay": 0.0}])
    for step in range(STEPS):
        for k, shape in enumerate(SHAPES):
            w[k].grad = filled(gradient, shape, k, step)
        optim.step()
    for k, x in enumerate(w):
        for i, v in enumerate(x.flatten().tolist()):
            print(f"{name}\t{k}\t{i}\t{v:.17g}")
