#!/usr/bin/env python3
"""Causal attention of one row, forward and backward, against PyTorch's scaled_dot_product_attention: 12 heads of 64 by default, BF16 and FP32, in turns.
Each line: the median of paired ratios (ours / PyTorch), their spread, both in GFLOP/s of the half that is not masked (thrice the forward's), our share of
the peak measured in the same run, and bytes of inputs, outputs, gradients and what lies between (ours), growth of the process (PyTorch).

    tests/bench/attention_peer.py [ROUNDS [TOKENS,... [THREADS]]]

Needs torch; llm-bench is taken from PATH."""
import os
import resource
import statistics
import subprocess
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin for a CPU that others use would make it slower than it is
import torch
from torch.nn.functional import scaled_dot_product_attention

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
lengths = [int(t) for t in (sys.argv[2] if len(sys.argv) > 2 else "1024,4096,16384").split(",")]
threads = int(sys.argv[3]) if len(sys.argv) > 3 else 2
HEADS, WIDTH = 12, 64


def ours(tokens):
    """Rows of llm-bench by name: GFLOP/s, share of the peak, bytes."""
    run = subprocess.run(["llm-bench", "kernels", "--attention", f"{tokens}x{HEADS}x{WIDTH}", "--seconds", "0.3", "-j", str(threads)], check=True,
                         capture_output=True, text=True)
    lines = [line.split("\t") for line in run.stdout.split("\n\n")[1].splitlines()]
    rows = [dict(zip(lines[0], line)) for line in lines[1:]]
    return {r["attention"]: (float(r["gflops"]), float(r["share_of_limit"]), float(r["bytes"])) for r in rows}


def peer(tokens, dtype):
    """Seconds of the fastest of three runs, forward and backward."""
    q, k, v = (torch.randn(1, tokens, HEADS, WIDTH, dtype=dtype).transpose(1, 2).detach().requires_grad_() for _ in range(3))
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        y.backward(y.detach())
        best = min(best, time.perf_counter() - start)
        q.grad = k.grad = v.grad = None
    return best


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


torch.set_num_threads(threads)
torch.manual_seed(1)
print("tokens", "arithmetic", "ratio", "spread", "gflops", f"torch_{torch.__version__}", "share_of_peak", "bytes", "torch_bytes", sep="\t", flush=True)
for tokens in lengths:
    flops = 3 * 4 * HEADS * WIDTH * tokens * (tokens + 1) / 2
    for name, dtype in (("bf16", torch.bfloat16), ("f32", torch.float32)):
        peer(min(tokens, 1024), dtype)
        before, rows = peak_bytes(), []
        for _ in range(rounds):
            own = ours(tokens)[f"{name} both ways"]
            rows.append((own[0], flops / peer(tokens, dtype) / 1e9, own[1], own[2]))
        ratios = sorted(r[0] / r[1] for r in rows)
        gflops, other, share, own_bytes = map(statistics.median, zip(*rows))
        print(tokens, name, f"{statistics.median(ratios):.2f}", f"{ratios[0]:.2f}-{ratios[-1]:.2f}", f"{gflops:.0f}", f"{other:.0f}", f"{share:.3f}",
              f"{own_bytes:.0f}", peak_bytes() - before, sep="\t", flush=True)
