#!/usr/bin/env python3
"""Losses over pairs of replies and their gradients, by PyTorch's autograd in double, from the formulas of TRL (DPOTrainer.dpo_loss, CPOTrainer.cpo_loss
for SimPO, ORPOTrainer.odds_ratio_loss): tests/golden/preference.tsv; with the argument kto of KTOTrainer's loss of one reply,
tests/golden/kto.tsv. Hard cases: ties, replies of one token, near certainty, large differences."""
import itertools
import sys
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def loss_of(kind, beta, smoothing, gamma, policy, reference, n):
    length = torch.tensor([float(x) for x in n])
    if kind in ("ipo", "simpo", "orpo"):
        policy, reference = policy / length, reference / length
    if kind == "orpo":
        odds = (policy[0] - policy[1]) - (torch.log1p(-torch.exp(policy[0])) - torch.log1p(-torch.exp(policy[1])))
        return -policy[0] - beta * F.logsigmoid(odds)
    logits = policy[0] - policy[1]
    if kind == "simpo":
        logits = logits - gamma / beta
    else:
        logits = logits - (reference[0] - reference[1])
    if kind in ("sigmoid", "simpo"):
        return -F.logsigmoid(beta * logits) * (1 - smoothing) - F.logsigmoid(-beta * logits) * smoothing
    if kind == "robust":
        return (-F.logsigmoid(beta * logits) * (1 - smoothing) + F.logsigmoid(-beta * logits) * smoothing) / (1 - 2 * smoothing)
    if kind == "hinge":
        return torch.relu(1 - beta * logits)
    return (logits - 1 / (2 * beta)) ** 2


if sys.argv[1:] == ["kto"]:
    print("beta\tweight\tlabel\tratio\tkl\tvalue\tslope")
    for beta, weight, label, ratio, kl in itertools.product((.1, 2.5), (1., .25), (1, 0), (-800., -3., 0., 1e-3, 2., 900.), (0., .5, 40.)):
        r = torch.tensor(ratio, requires_grad=True)
        loss = weight * (1 - torch.sigmoid(beta * (r - kl)) if label else 1 - torch.sigmoid(beta * (kl - r)))
        loss.backward()
        print("\t".join(repr(x) for x in (beta, weight, label, ratio, kl, loss.item(), r.grad.item())))
    sys.exit()

pairs = [((-12.5, -14.25), (-13.0, -13.0), (5, 7)), ((-3.0, -3.0), (-3.0, -3.0), (1, 1)), ((-900.0, -20.0), (-30.0, -400.0), (200, 9)),
         ((-20.0, -900.0), (-400.0, -30.0), (9, 200)), ((-1e-3, -40.0), (-2.0, -35.0), (1, 12)), ((-60.0, -2e-2), (-55.0, -1.0), (31, 2))]
kinds = ["sigmoid", "ipo", "hinge", "robust", "simpo", "orpo"]
print("loss\tbeta\tsmoothing\tmargin\tpolicy_chosen\tpolicy_rejected\tref_chosen\tref_rejected\tn_chosen\tn_rejected\tvalue\tslope_chosen\tslope_rejected")
for kind, (policy, reference, n), (beta, smoothing, gamma) in itertools.product(kinds, pairs, [(.1, 0, .5), (2.5, .2, 1.0), (.01, .05, 0)]):
    p = torch.tensor(policy, requires_grad=True)
    loss = loss_of(kind, beta, smoothing, gamma, p, torch.tensor(reference), n)
    loss.backward()
    row = [kind, beta, smoothing, gamma, *policy, *reference, *n, loss.item(), *p.grad.tolist()]
    print("\t".join(repr(x) if isinstance(x, float) else str(x) for x in row))
