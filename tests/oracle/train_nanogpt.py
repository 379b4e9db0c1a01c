#!/usr/bin/env python3
"""nanoGPT's setting for a CPU (tests/slow/nanogpt.bats) in PyTorch, FP32, from the weights that llm-train begins with and on the batches that it sees:
after 2000 steps both must be within .005 of one another on the whole validation split.

    PATH=$PWD/bin:$PATH python tests/oracle/train_nanogpt.py ../shared/data/corpora/tinyshakespeare.txt FOLDER [SEED [STEPS]]
"""
import json
import math
import os
import subprocess
import sys

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(__file__))
import llmfiles
import philox

TEXT, FOLDER = sys.argv[1:3]
SEED, STEPS = (int(x) for x in (sys.argv[3:] + ["1", "2000"][len(sys.argv) - 3 :]))
LAYERS, HEADS, WIDTH, CONTEXT, BATCH, WARMUP, SPLIT = 4, 4, 128, 64, 12, 100, 1003854
at = lambda name: os.path.join(FOLDER, name)
run = lambda *a: subprocess.run(a, check=True, stdout=subprocess.PIPE).stdout


def train(steps, out):
    return run("llm-train", "-q", "-c", "nano", "-T", at("char.json"), "-l", str(CONTEXT), "-b", str(BATCH), "-n", str(steps), "--order", "random", "--lr",
               "1e-3", "--min-lr", "1e-4", "--warmup", str(WARMUP), "--beta2", ".99", "--precision", "f32", "--seed", str(SEED), "--val", at("val.tok"),
               "--eval-every", "0", "--log", "-", "-o", at(out), at("train.tok"))


def forward(w, ids):
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: ids.shape[1]]
    for i in range(LAYERS):
        p = f"transformer.h.{i}."
        norm = lambda x, name: F.layer_norm(x, (WIDTH,), w[p + name])
        q, k, v = (y.view(*ids.shape, HEADS, -1).transpose(1, 2) for y in (norm(x, "ln_1.weight") @ w[p + "attn.c_attn.weight"]).split(WIDTH, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2) @ w[p + "attn.c_proj.weight"]
        x = x + F.gelu(norm(x, "ln_2.weight") @ w[p + "mlp.c_fc.weight"]) @ w[p + "mlp.c_proj.weight"]
    return F.layer_norm(x, (WIDTH,), w["transformer.ln_f.weight"]) @ w["transformer.wte.weight"].T


def loss_of(w, ids, targets, reduction="mean"):
    return F.cross_entropy(forward(w, ids).flatten(0, 1), targets.flatten(), reduction=reduction)


def rate(it):
    if it < WARMUP:
        return 1e-3 * (it + 1) / (WARMUP + 1)
    return 1e-4 + .5 * (1 + math.cos(math.pi * (it - WARMUP) / (STEPS - WARMUP))) * 9e-4


def validate(w, val):
    """Over windows of CONTEXT from the beginning, the last one shorter."""
    total, whole = 0.0, (len(val) - 1) // CONTEXT
    windows = val[: whole * CONTEXT].view(whole, CONTEXT), val[1 : whole * CONTEXT + 1].view(whole, CONTEXT)
    with torch.no_grad():
        for ids, targets in zip(*(x.split(64) for x in windows)):
            total += loss_of(w, ids, targets, "sum").item()
        rest = val[whole * CONTEXT :][None]
        if rest.shape[1] > 1:
            total += loss_of(w, rest[:, :-1], rest[:, 1:], "sum").item()
    return total / (len(val) - 1)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    text = open(TEXT, "rb").read()
    run("llm-tokenize", "train", "--model", "char", "-o", at("char.json"), TEXT)
    for name, part in (("train", text[:SPLIT]), ("val", text[SPLIT:])):
        subprocess.run(["llm-tokenize", "encode", "-T", at("char.json"), "-o", at(name + ".tok"), "-"], input=part, check=True)
    log = [json.loads(line) for line in train(STEPS, "out.llm").splitlines()]
    # the same beginning: the weights of 0 steps; the same ids: of the token streams
    train(0, "zero.llm")
    w = {k: torch.tensor(x, requires_grad=True) for k, x in llmfiles.read_checkpoint(at("zero.llm"))[1].items() if k.startswith("transformer.")}
    data, val = (torch.tensor(llmfiles.parse(open(at(n), "rb").read())[1]["ids"].astype(np.int64)) for n in ("train.tok", "val.tok"))
    groups = [{"params": [x for x in w.values() if x.dim() > 1], "weight_decay": .1}, {"params": [x for x in w.values() if x.dim() == 1],
              "weight_decay": 0.0}]
    optim = torch.optim.AdamW(groups, lr=1e-3, betas=(.9, .99), eps=1e-8)
    apart = []
    for it in range(STEPS):
        first = [int(philox.below(SEED, 0, philox.ORDER, 0, 0, it * BATCH + r, 1, len(data) - CONTEXT)[0]) for r in range(BATCH)]
        rows = torch.stack([data[i : i + CONTEXT + 1] for i in first])
        for g in optim.param_groups:
            g["lr"] = rate(it)
        optim.zero_grad()
        loss = loss_of(w, rows[:, :-1], rows[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optim.step()
        apart.append(abs(log[it]["loss"] / loss.item() - 1))
    mine, torchs = log[-1]["val_loss"], validate(w, val)
    print(f"seed {SEED}, {STEPS} steps: llm-train {mine:.4f}, PyTorch {torchs:.4f}, apart {abs(mine - torchs):.5f}; losses of steps apart by at most "
          f"{max(apart[:20]):.1e} in the first 20, {max(apart[:200]):.1e} in the first 200, {max(apart):.1e} in all")
    sys.exit(abs(mine - torchs) > .005)


main()
