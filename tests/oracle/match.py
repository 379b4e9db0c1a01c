#!/usr/bin/env python3
"""Squared error and cosine distance of projected vectors from given ones, with gradients, in double precision, for tests/unit/tensor/test_match.c:
tests/golden/match.tsv.

    python tests/oracle/match.py > tests/golden/match.tsv

Vectors are made by a formula that the test knows too, rounded to single precision; every third row has no loss. Columns: rows, width, width of the
targets (0: the same, without a projection), loss (mse 0, cosine 1), the loss (mean over the rows that count), the gradient by the vectors (norm, inner
product with other vectors), and by the projection (the same; 0 without one).
"""
import math

import torch
import torch.nn.functional as F


def numbers(rows, cols, k):
    return torch.tensor([[math.sin(1 + k + 1.7 * i * cols + 1.7 * j + .3 * i * j) for j in range(cols)] for i in range(rows)]).float().double()


for n, d, e in [(1, 3, 0), (4, 7, 0), (9, 32, 0), (5, 8, 13), (12, 33, 20)]:
    for cosine in (0, 1):
        x = numbers(n, d, 0).requires_grad_()
        w = numbers(e, d, 2).requires_grad_() if e else None
        y = x @ w.T if e else x
        t = numbers(n, e or d, 3)
        counts = torch.tensor([i % 3 != 2 for i in range(n)])
        loss = (1 - F.cosine_similarity(y, t, dim=-1, eps=1e-30) if cosine else F.mse_loss(y, t, reduction="none").mean(-1))[counts].mean()
        loss.backward()
        of = [loss.item(), x.grad.norm().item(), (x.grad * numbers(n, d, 5)).sum().item()]
        of += [w.grad.norm().item(), (w.grad * numbers(e, d, 6)).sum().item()] if e else [0, 0]
        print(n, d, e, cosine, *(f"{v:.12g}" for v in of), sep="\t")
