#!/usr/bin/env python3
"""Training against PyTorch on the same shapes: FP32, or BF16 autocast over FP32 masters, fused AdamW with clipping, scaled_dot_product_attention, random
tokens.
The two take turns; each line is the median of paired ratios (ours / PyTorch, tokens a second), their spread, then both speeds and peak memory.

    tests/bench/train_peer.py [ROUNDS [STEPS [THREADS]]]

Needs torch; llm-bench is taken from PATH. COMPILE=yes: the peer goes through torch.compile (needs a C++ compiler). SHAPES: a part of the names of those
wanted. PRECISION: bf16 [the default] or f32. ACTIVATIONS: what ours keeps of blocks for their way back, f32 [the default], bf16 or int8."""
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin for a CPU that others use would make it slower than it is
import torch
from torch import nn
from torch.nn import functional as F

precision, activations = os.environ.get("PRECISION", "bf16"), os.environ.get("ACTIVATIONS", "f32")
rounds, steps, threads = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((1, 5), (2, 3), (3, 2)))
LLAMA = {"model_type": "llama", "vocab_size": 32000, "hidden_size": 288, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 6,
         "num_key_value_heads": 6, "max_position_embeddings": 256, "tie_word_embeddings": True}
SHAPES = ({"name": "GPT-2 124M, 4 x 256", "config": "gpt2", "family": "gpt2", "batch": 4, "context": 256,
           "layers": 12, "heads": 12, "width": 768, "hidden": 3072, "vocab": 50257},
          {"name": "GPT-2 124M, 8 x 512", "config": "gpt2", "family": "gpt2", "batch": 8, "context": 512,
           "layers": 12, "heads": 12, "width": 768, "hidden": 3072, "vocab": 50257},
          {"name": "Llama 15M, 16 x 256", "config": LLAMA, "family": "llama", "batch": 16, "context": 256,
           "layers": 6, "heads": 6, "width": 288, "hidden": 768, "vocab": 32000})


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


class Peer:
    def __init__(self, s):
        self.s, self.model = s, Decoder(s)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=.1, fused=True)
        self.run = torch.compile(self.model) if os.environ.get("COMPILE") == "yes" else self.model
        self.step()

    def step(self):
        ids = torch.randint(0, self.s["vocab"], (self.s["batch"], self.s["context"] + 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = self.run(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def rate(self):
        seconds = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - start)
        return self.s["batch"] * self.s["context"] / statistics.median(seconds)


def ours(s, config):
    run = subprocess.run(["llm-bench", "train", "-c", config, "--batch", str(s["batch"]), "--context", str(s["context"]), "-r", str(steps), "-j",
                          str(threads), "--precision", precision, "--activations", activations], check=True, capture_output=True, text=True)
    names, values = (line.split("\t") for line in run.stdout.splitlines()[:2])
    return dict(zip(names, values))


def compare(s, folder):
    config = s["config"]
    if not isinstance(config, str):
        config = str(folder / "config.json")
        pathlib.Path(config).write_text(json.dumps(s["config"]))
    rss = float(ours(s, config)["peak_rss_bytes"]) / 1e9  # before the peer is there: a process begins with the peak of the one that forked it
    peer, rows = Peer(s), []
    for _ in range(rounds):
        row = ours(s, config)
        rows.append((float(row["tokens_per_s"]), peer.rate(), float(row["gflops_6n"]), float(row["share_of_peak"])))
    ratios, (a, b, gflops, share) = sorted(r[0] / r[1] for r in rows), map(statistics.median, zip(*rows))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(s["name"], precision, activations, f"{statistics.median(ratios):.2f}", f"{ratios[0]:.2f}-{ratios[-1]:.2f}", f"{a:.0f}", f"{b:.0f}", f"{gflops:.0f}", f"{share:.3f}",
          f"{rss:.2f}", f"{memory:.2f}", f"{rss / memory:.2f}", sep="\t", flush=True)


torch.set_num_threads(threads)
torch.manual_seed(1)
print("shape", "precision", "activations", "ratio", "spread", "tokens_per_s", f"torch_{torch.__version__}", "gflops_6n", "share_of_peak", "rss_gb", "torch_rss_gb", "rss_ratio", sep="\t", flush=True)
wanted = os.environ.get("SHAPES", "")  # a part of the name
with tempfile.TemporaryDirectory() as name:
    for shape in SHAPES:
        if wanted in shape["name"]:
            compare(shape, pathlib.Path(name))
