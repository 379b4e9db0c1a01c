#!/usr/bin/env python3
"""PyTorch, oneDNN, MKL or OpenBLAS as a peer: one request in the first operand, one answer as a line of JSON, and the process ends.

    {"do": "products", "library": "onednn", "shapes": [[m, n, k], ...], "dtypes": ["f32"], "seconds": S}  rates in GFLOP/s; library: onednn, mkl, openblas
    {"do": "attention", "tokens": [N, ...], "heads": H, "width": D, "dtypes": ["f32"]}                    rates in GFLOP/s of the half that is not masked
    {"do": "pictures", "batch": N, "precision": "f32", "seconds": S, "compile": false, "name": ROW}       rates in pictures a second: ViT-B/16, 224 x 224
    {"do": "train", "shape": {...}, "precision": "f32", "steps": N, "compile": false, "name": ROW}        rates in tokens a second

Training: fused AdamW with clipping, BF16 by autocast over FP32 masters, scaled_dot_product_attention, random tokens."""
import json
import os
import resource
import statistics
import sys
import time

import numpy
import torch
from torch import nn
from torch.nn import functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def rate(work, operations, seconds):
    """Operations a second: the median of single runs of work() over so many seconds, at least three."""
    work()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return operations / statistics.median(times)


def product(library, x, w, dtype):
    """A function that multiplies activations x [m, k] by weights w [n, k]."""
    a, b = x.to(dtype), w.to(dtype)
    if library == "onednn":
        packed = torch.ops.mkldnn._reorder_linear_weight(b, x.shape[0])
        return lambda: torch.ops.mkldnn._linear_pointwise(a, packed, None, "none", [], "")
    if library == "mkl":
        out, right = torch.empty(x.shape[0], w.shape[0]), b.t()
        return lambda: torch.mm(a, right, out=out)
    left, right, out = a.numpy(), b.numpy().T, numpy.empty((x.shape[0], w.shape[0]), numpy.float32)
    return lambda: numpy.matmul(left, right, out=out)


def products(request):
    rates, library = {}, request["library"]
    for m, n, k in request["shapes"]:
        x, w = torch.randn(m, k), torch.randn(n, k)
        for name in request["dtypes"]:
            rates[f"product {m}x{n}x{k} {name}"] = rate(product(library, x, w, DTYPES[name]), 2 * m * n * k, request["seconds"]) / 1e9
    return rates


def attention(request):
    rates, heads, width = {}, request["heads"], request["width"]
    for tokens in request["tokens"]:
        for name in request["dtypes"]:
            q, k, v = (torch.randn(1, tokens, heads, width, dtype=DTYPES[name]).transpose(1, 2).detach().requires_grad_() for _ in range(3))

            def work():
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                y.backward(y.detach())
                q.grad = k.grad = v.grad = None

            rates[f"attention {tokens} {name} forward and backward"] = rate(work, 3 * 4 * heads * width * tokens * (tokens + 1) / 2, 0.3) / 1e9
    return rates


def rotate(x):
    """Rotary positions in halves; x is [batch, heads, tokens, width of a head]."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    sin, cos = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        width, self.heads, self.gpt2 = s["width"], s["heads"], s["family"] == "gpt2"
        norm = nn.LayerNorm if self.gpt2 else nn.RMSNorm
        self.norm1, self.norm2 = norm(width, eps=1e-5), norm(width, eps=1e-5)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=self.gpt2), nn.Linear(width, width, bias=self.gpt2)
        self.up, self.down = nn.Linear(width, s["hidden"] * (1 if self.gpt2 else 2), bias=self.gpt2), nn.Linear(s["hidden"], width, bias=self.gpt2)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (t.view(batch, tokens, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, -1))
        if not self.gpt2:
            q, k = rotate(q), rotate(k)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, tokens, width))
        h = self.up(self.norm2(x))
        if self.gpt2:
            return x + self.down(F.gelu(h, approximate="tanh"))
        gate, up = h.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gpt2 = s["family"] == "gpt2"
        self.embedding = nn.Embedding(s["vocab"], s["width"])
        self.positions = nn.Embedding(1024, s["width"]) if self.gpt2 else None
        self.blocks = nn.Sequential(*(Block(s) for _ in range(s["layers"])))
        self.norm = (nn.LayerNorm if self.gpt2 else nn.RMSNorm)(s["width"], eps=1e-5)
        nn.init.normal_(self.embedding.weight, std=.02)

    def forward(self, ids, targets):
        x = self.embedding(ids)
        if self.gpt2:
            x = x + self.positions.weight[: ids.shape[1]]
        logits = F.linear(self.norm(self.blocks(x)), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(request):
    s = request["shape"]
    model = Decoder(s)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=.1, fused=True)
    forward = torch.compile(model) if request["compile"] else model

    def step():
        ids = torch.randint(0, s["vocab"], (s["batch"], s["context"] + 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=request["precision"] == "bf16"):
            loss = forward(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    seconds = []
    for i in range(1 + request["steps"]):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {request["name"]: s["batch"] * s["context"] / statistics.median(seconds[1:]), request["name"] + ", memory": memory}


def pictures(request):
    """ViT-B/16 of transformers: weights in the precision itself, its fastest attention."""
    from transformers import ViTConfig, ViTModel
    dtype, n = DTYPES[request["precision"]], request["batch"]
    model = ViTModel(ViTConfig(), add_pooling_layer=False).to(dtype).eval()
    run, pixels = torch.compile(model) if request["compile"] else model, torch.randn(n, 3, 224, 224, dtype=dtype)
    with torch.inference_mode():
        return {request["name"]: rate(lambda: run(pixels), n, request["seconds"])}


def version(library):
    if library == "openblas":
        return "OpenBLAS " + numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]["version"]
    words = [line.strip("- \n") for line in torch.__config__.show().splitlines()]
    parts = {"onednn": "MKL-DNN", "mkl": "Math Kernel Library"}
    found = [w.split(" (")[0] for w in words if library in parts and parts[library] in w]
    return f"PyTorch {torch.__version__}" + "".join("; " + w for w in found)


request = json.loads(sys.argv[1])
threads = int(os.environ["OMP_NUM_THREADS"])
torch.set_num_threads(threads)
torch.manual_seed(1)
rates = {"products": products, "attention": attention, "train": train, "pictures": pictures}[request["do"]](request)
flags = {"compiled": True} if request.get("compile") else {}
flags.update({name: value for name, value in os.environ.items() if name in ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS",
                                                                          "OPENBLAS_CORETYPE", "OMP_WAIT_POLICY")})
flags["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
print(json.dumps({"rates": rates, "version": version(request.get("library", "torch")), "flags": " ".join(f"{k}={v}" for k, v in flags.items())}))
