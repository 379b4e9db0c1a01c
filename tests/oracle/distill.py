#!/usr/bin/env python3
"""Divergences of a student from a teacher and their gradients, by PyTorch's autograd in double, from TRL's generalized_jsd_loss (GKDTrainer; its ends 0
and 1 are the full divergences): tests/golden/divergence.tsv. Hard cases: equal distributions, near certainty, tokens that one of them excludes."""
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
print("beta\ttemperature\tstudent\tteacher\tloss\tgradient")
for student, teacher in rows:
    student, teacher = student.float().double(), teacher.float().double()
    for beta, temperature in [(0, 1), (1, 1), (.5, 1), (.1, 2), (.9, .5), (0, 3)]:
        x = student.clone().requires_grad_(True)
        loss = loss_of(x, teacher, beta, temperature)
        loss.backward()
        numbers = [",".join(repr(v) for v in y) for y in (student.tolist(), teacher.tolist())]
        print(beta, temperature, *numbers, repr(loss.item()), ",".join(repr(v) for v in x.grad.tolist()), sep="\t")
