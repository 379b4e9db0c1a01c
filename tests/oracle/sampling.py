#!/usr/bin/env python3
"""tests/golden/sampling.json: distributions after penalties, filters and temperature, by transformers' logits processors in double precision
(repetition penalty, top-k, typical, top-p, min-p); bias, temperature, presence and frequency penalties by their formulas.

    tests/oracle/sampling.py > tests/golden/sampling.json

The steps come in llm-infer's order. Cases whose cut hangs on a rounding are left out. Needs torch and transformers."""
import json
import math

import torch
from transformers.generation import logits_process as lp

N = 24
torch.manual_seed(11)
cases = []


def close_cut(p, mass):
    """Whether a sum of the sorted probabilities comes near `mass`."""
    return (torch.cumsum(p, 0) - mass).abs().min().item() < 1e-5


def distribution(logits, history, o):
    x = torch.tensor([logits], dtype=torch.float64)
    for i, b in o.get("bias", []):
        x[0, i] += b
    last = o.get("repeat_last_n", 64)
    recent = history if last < 0 else history[len(history) - min(last, len(history)):]
    if recent:
        x = lp.RepetitionPenaltyLogitsProcessor(o.get("repeat_penalty", 1.0))(torch.tensor([recent]), x)
        for i in set(recent):
            x[0, i] -= o.get("presence_penalty", 0) + o.get("frequency_penalty", 0) * recent.count(i)
    ids = torch.tensor([[0]])
    if o.get("top_k", 0):
        x = lp.TopKLogitsWarper(o["top_k"])(ids, x)
    if o.get("typical", 1) < 1:
        p = torch.softmax(x, -1)[0]
        logp = torch.log_softmax(x, -1)[0]
        entropy = -torch.nansum(p * logp)
        order = torch.argsort((-logp - entropy).abs())
        if close_cut(p[order], o["typical"]):
            return None
        x = lp.TypicalLogitsWarper(mass=o["typical"])(ids, x)
    if o.get("top_p", 1) < 1:
        if close_cut(torch.softmax(x, -1)[0].sort(descending=True).values, o["top_p"]):
            return None
        x = lp.TopPLogitsWarper(top_p=o["top_p"])(ids, x)
    if o.get("min_p", 0):
        p = torch.softmax(x, -1)[0]
        if (p - o["min_p"] * p.max()).abs().min().item() < 1e-6:
            return None
        x = lp.MinPLogitsWarper(min_p=o["min_p"])(ids, x)
    if o.get("temperature", 1) != 1:
        x = x / o["temperature"]
    return torch.softmax(x, -1)[0].tolist()


singles = [{}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 1}, {"top_k": 5}, {"top_k": 100}, {"top_p": 0.3}, {"top_p": 0.9}, {"min_p": 0.05},
           {"min_p": 0.5}, {"typical": 0.2}, {"typical": 0.6}, {"typical": 0.95}, {"repeat_penalty": 1.7}, {"presence_penalty": 1.25},
           {"frequency_penalty": 0.5}, {"repeat_penalty": 1.3, "repeat_last_n": 3}, {"frequency_penalty": -0.4, "repeat_last_n": -1},
           {"bias": [[3, 2.5], [7, -1000.0]]}, {"repeat_last_n": 0, "presence_penalty": 5}]
several = [{"top_k": 12, "top_p": 0.8, "min_p": 0.1, "temperature": 0.7}, {"typical": 0.7, "top_p": 0.85, "temperature": 1.5},
           {"bias": [[0, 1.5]], "repeat_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.2, "top_k": 10, "typical": 0.9, "top_p": 0.95,
            "min_p": 0.02, "temperature": 0.8}]
for spread in (0.7, 2.0, 5.0):
    for options in singles + several:
        logits = [round(v, 3) for v in (spread * torch.randn(N)).tolist()]
        history = torch.randint(0, N, (80 if options.get("repeat_last_n", 0) < 0 else 10,)).tolist()
        p = distribution(logits, history, options)
        if p is not None and len(set(logits)) == N:
            cases.append({"options": options, "logits": logits, "history": history, "p": [0 if v < 1e-300 else float(f"{v:.12g}") for v in p]})
assert len(cases) >= 60 and all(math.isclose(sum(c["p"]), 1, abs_tol=1e-9) for c in cases)
print("[" + ",\n".join(json.dumps(c) for c in cases) + "]")
