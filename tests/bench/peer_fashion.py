#!/usr/bin/env python3
"""PyTorch on the vision transformer of RESULTS' Fashion-MNIST row: transformers' ViTForImageClassification of the shapes of `-c vit-nano --set patch_size=7`,
torch.optim.Muon for hidden matrices and AdamW for the rest, pictures mirrored with probability 1/2, a cosine after 200 steps of warm-up.

    python3 tests/bench/peer_fashion.py FOLDER rate SECONDS       steps a second
    python3 tests/bench/peer_fashion.py FOLDER train STEPS        accuracy on the 10,000 test pictures

FOLDER has the four IDX files of Fashion-MNIST, not compressed. THREADS, PRECISION (f32, bf16: autocast), COMPILE=1 and MUON are read from the environment.
torch.optim.Muon makes matrices orthogonal in BF16, which is slow on CPUs without BF16 products; MUON=f32 does it in F32 by the same formula."""
import math
import os
import sys
import time

import numpy as np
import torch
from transformers import ViTConfig, ViTForImageClassification

BATCH, WARMUP, LR, MUON_LR = 64, 200, 3e-3, .005


def pictures(folder, name):
    images = np.fromfile(f"{folder}/{name}-images-idx3-ubyte", np.uint8)[16:].reshape(-1, 1, 28, 28)
    labels = np.fromfile(f"{folder}/{name}-labels-idx1-ubyte", np.uint8)[8:]
    return torch.from_numpy(images), torch.from_numpy(labels).long()


def optimizers(model):
    hidden = [p for n, p in model.vit.named_parameters() if p.dim() == 2 and "embed" not in n]
    ids = {id(p) for p in hidden}
    rest = [p for p in model.parameters() if id(p) not in ids]
    return [(torch.optim.Muon(hidden, lr=MUON_LR, weight_decay=.1, momentum=.95), MUON_LR),
            (torch.optim.AdamW(rest, lr=LR, betas=(.9, .95), weight_decay=.1), LR)]


def orthogonal(grad, coefficients, steps, eps):
    """Newton and Schulz's iteration as torch.optim.Muon has it, in F32."""
    a, b, c = coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if grad.size(0) > grad.size(1) else x


def evaluate(model, images, labels):
    model.eval()
    right = 0
    with torch.no_grad():
        for i in range(0, len(images), 500):
            right += (model(images[i:i + 500].float() / 255).logits.argmax(-1) == labels[i:i + 500]).sum().item()
    return right / len(images)


def main():
    folder, what, amount = sys.argv[1], sys.argv[2], float(sys.argv[3])
    torch.set_num_threads(int(os.environ.get("THREADS", "2")))
    torch.manual_seed(0)
    bf16 = os.environ.get("PRECISION", "f32") == "bf16"
    if os.environ.get("MUON") == "f32":
        torch.optim._muon._zeropower_via_newtonschulz = orthogonal
    model = ViTForImageClassification(ViTConfig(image_size=28, patch_size=7, num_channels=1, hidden_size=128, intermediate_size=512, num_hidden_layers=4,
                                                num_attention_heads=4, hidden_dropout_prob=0, attention_probs_dropout_prob=0, layer_norm_eps=1e-6,
                                                initializer_range=.08, num_labels=10))
    images, labels = pictures(folder, "train")
    step_of = torch.compile(model) if os.environ.get("COMPILE") else model
    steps = int(amount) if what == "train" else 1 << 30
    order, done, began = torch.randperm(len(images)), 0, None
    all_optimizers = optimizers(model)
    model.train()
    while done < steps:
        if done == 20:
            began = time.perf_counter()
        if what == "rate" and began and time.perf_counter() - began > amount:
            break
        at = done * BATCH % len(images)
        if at + BATCH > len(images):
            order, at = torch.randperm(len(images)), 0
        batch = order[at:at + BATCH]
        x, mirrored = images[batch].float() / 255, torch.rand(BATCH) < .5
        x[mirrored] = x[mirrored].flip(-1)
        progress = 0 if what == "rate" else min(1, max(0, done - WARMUP) / max(1, steps - WARMUP))
        factor = min(1, (done + 1) / WARMUP) * (.1 + .9 * (1 + math.cos(math.pi * progress)) / 2)
        for optimizer, lr in all_optimizers:
            optimizer.zero_grad(set_to_none=True)
            optimizer.param_groups[0]["lr"] = lr * factor
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = torch.nn.functional.cross_entropy(step_of(x).logits.float(), labels[batch])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        for optimizer, _ in all_optimizers:
            optimizer.step()
        done += 1
    seconds = time.perf_counter() - began
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {done} steps, {(done - 20) / seconds:.2f} steps/s, loss {loss.item():.4f}",
          end="" if what == "train" else "\n")
    if what == "train":
        print(f", accuracy {evaluate(model, *pictures(folder, 't10k')):.4f}, {seconds:.0f} s")


main()
