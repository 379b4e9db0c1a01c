#!/usr/bin/env python3
"""CLIP's loss and its gradients in double precision, for tests/unit/tensor/test_contrastive.c: tests/golden/contrastive.tsv.

    python tests/oracle/contrastive.py > tests/golden/contrastive.tsv

Vectors are made by a formula that the test knows too. Columns: pairs, width, logit_scale, loss (mean), its gradient by logit_scale, the gradient by the
vectors before they were normalised: norm and the inner product with a third set of vectors.
"""
import math

import torch
import torch.nn.functional as F


def numbers(rows, cols, k):
    return torch.tensor([[math.sin(1 + k + 1.7 * i * cols + 1.7 * j + .3 * i * j) for j in range(cols)] for i in range(rows)], dtype=torch.float64)


for n, d, s in [(2, 5, 2.6592), (7, 24, 2.6592), (16, 33, 3.9), (5, 8, 0.), (6, 9, 4.7)]:
    x = numbers(2 * n, d, 0).requires_grad_()
    scale = torch.tensor(s, dtype=torch.float64, requires_grad=True)
    u = F.normalize(x, dim=-1)
    logits = scale.clamp(max=math.log(100.)).exp() * u[:n] @ u[n:].T
    target = torch.arange(n)
    loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
    loss.backward()
    print(n, d, s, *(f"{v:.12g}" for v in (loss.item(), scale.grad.item(), x.grad.norm().item(), (x.grad * numbers(2 * n, d, 5)).sum().item())), sep="\t")
