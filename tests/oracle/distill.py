#!/usr/bin/env python3
"""Divergences of a student from a teacher and their gradients, by PyTorch's autograd in double, from TRL's generalized_jsd_loss (GKDTrainer; its ends 0
and 1 are the full divergences): tests/golden/divergence.tsv. Hard cases: equal distributions, near certainty, tokens that one of them excludes.
With the argument top: the same where only the two most likely tokens of the teacher are known, tests/golden/divergence_top.tsv; all others are one
bucket of both, or, with the tail nan, are left out of the forward divergence."""
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def loss_of(student, teacher, beta, temperature):
    s, t = F.log_softmax(student / temperature, -1), F.log_softmax(teacher / temperature, -1)
    if beta == 0:
        return F.kl_div(s, t, reduction="sum", log_target=True)
    if beta == 1:
        return F.kl_div(t, s, reduction="sum", log_target=True)
    b = torch.tensor(beta)
    m = torch.logsumexp(torch.stack([s + torch.log1p(-b), t + torch.log(b)]), dim=0)
    return b * F.kl_div(m, t, reduction="sum", log_target=True) + (1 - b) * F.kl_div(m, s, reduction="sum", log_target=True)


torch.manual_seed(3)
rows = [(torch.randn(5) * 2, torch.randn(5) * 2) for _ in range(4)]
rows += [(torch.tensor([1., 2, 3, 4, 5]), torch.tensor([1., 2, 3, 4, 5])), (torch.tensor([40., 0, 0, 0, -40]), torch.tensor([0., 30, 0, -30, 0])),
         (torch.tensor([0., 0, 0, 0, 0]), torch.tensor([300., 0, 0, 0, 0])), (torch.tensor([1e4, 1e4 + 1, 1e4, 1e4, 1e4]), torch.tensor([0., 1, 2, 3, 4]))]


def bucketed(student, teacher, beta, tail):
    s, t = F.log_softmax(student, -1), F.log_softmax(teacher, -1)
    top = sorted(teacher.topk(2).indices.tolist())
    rest = [i for i in range(5) if i not in top]
    if not tail:
        return sum(t[i].exp() * (t[i] - s[i]) for i in top), top, t, float("nan")
    ends = [torch.cat([x[top], torch.logsumexp(x[rest], 0, keepdim=True)]) for x in (student, teacher)]
    return loss_of(*ends, beta, 1), top, t, torch.logsumexp(t[rest], 0).item()


if sys.argv[1:] == ["top"]:
    print("beta\tstudent\ttop_ids\ttop_logprobs\ttail\tloss\tgradient")
    for student, teacher in rows:
        student, teacher = student.float().double(), teacher.float().double()
        for beta, tail in [(0, True), (1, True), (.5, True), (.1, True), (0, False)]:
            x = student.clone().requires_grad_(True)
            loss, top, t, rest = bucketed(x, teacher, beta, tail)
            loss.backward()
            lists = [",".join(repr(v) for v in y) for y in (student.tolist(), top, t[top].tolist())]
            print(beta, *lists, repr(rest), repr(loss.item()), ",".join(repr(v) for v in x.grad.tolist()), sep="\t")
    sys.exit()
print("beta\ttemperature\tstudent\tteacher\tloss\tgradient")
for student, teacher in rows:
    student, teacher = student.float().double(), teacher.float().double()
    for beta, temperature in [(0, 1), (1, 1), (.5, 1), (.1, 2), (.9, .5), (0, 3)]:
        x = student.clone().requires_grad_(True)
        loss = loss_of(x, teacher, beta, temperature)
        loss.backward()
        numbers = [",".join(repr(v) for v in y) for y in (student.tolist(), teacher.tolist())]
        print(beta, temperature, *numbers, repr(loss.item()), ",".join(repr(v) for v in x.grad.tolist()), sep="\t")
