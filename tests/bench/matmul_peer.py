#!/usr/bin/env python3
"""Products of activations with packed weights: llm-bench kernels, oneDNN (torch.ops.mkldnn) and, in FP32, OpenBLAS (numpy) take turns. A line a shape and
arithmetic: medians over the rounds of paired ratios, ours / theirs, and of our share of the peak measured in the same run.

    tests/bench/matmul_peer.py [ROUNDS [THREADS]]

Needs torch and numpy; llm-bench is taken from PATH. Products shorter than a tick are repeated for a tenth of a second, both ways."""
import json
import statistics
import subprocess
import sys
import time

import numpy
import torch

rounds, threads = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((1, 5), (2, 2)))
SECONDS = 0.1
SHAPES = [(m, n, k) for m in (1024, 64) for n, k in ((768, 768), (3072, 768), (768, 3072))] + [(1024, 50257, 768)]
PEAK, ONEDNN, OPENBLAS = 0.93, 0.97, 1.05  # the least shares and ratios


def rate(product, operations):
    """GFLOP/s, the median of single products over SECONDS."""
    product()
    times, end = [], time.perf_counter() + SECONDS
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        product()
        times.append(time.perf_counter() - start)
    return operations / statistics.median(times) / 1e9


def ours():
    shapes = [f"--shape={m}x{n}x{k}" for m, n, k in SHAPES]
    run = subprocess.run(["llm-bench", "kernels", "--json", "-j", str(threads), "--seconds", str(SECONDS), *shapes], check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    peaks = {r["peak"]: r["value"] for r in rows if "peak" in r}
    found = {(r["m"], r["n"], r["k"], r["product"]): r["gflops"] for r in rows if "product" in r}
    return found, peaks


def peers(shape):
    m, n, k = shape
    x, w = torch.randn(m, k), torch.randn(n, k)
    rates = {}
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        a, packed = x.to(dtype), torch.ops.mkldnn._reorder_linear_weight(w.to(dtype), m)
        rates[name] = rate(lambda: torch.ops.mkldnn._linear_pointwise(a, packed, None, "none", [], ""), 2 * m * n * k)
    a, b, c = x.numpy(), w.numpy().T, numpy.empty((m, n), numpy.float32)
    rates["openblas"] = rate(lambda: numpy.matmul(a, b, out=c), 2 * m * n * k)
    return rates


def main():
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    runs = [(ours(), {shape: peers(shape) for shape in SHAPES}) for _ in range(rounds)]
    print("shape", "arithmetic", "share_of_peak", "/onednn", "/openblas", "gflops", "onednn", "openblas", "bars", sep="\t")
    missed = False
    for shape in SHAPES:
        for name in ("f32", "bf16"):
            mine = [found[(*shape, name)] for (found, _), _ in runs]
            share = statistics.median(x / (peaks[name] or peaks["f32"]) for x, ((_, peaks), _) in zip(mine, runs))
            theirs = [of[shape] for _, of in runs]
            onednn = statistics.median(x / t[name] for x, t in zip(mine, theirs))
            openblas = statistics.median(x / t["openblas"] for x, t in zip(mine, theirs)) if name == "f32" else None
            below = [what for what, bad in (("peak", share < PEAK), ("onednn", onednn < ONEDNN), ("openblas", openblas and openblas < OPENBLAS)) if bad]
            missed = missed or bool(below)
            print("x".join(map(str, shape)), name, f"{share:.2f}", f"{onednn:.2f}", f"{openblas:.2f}" if openblas else "-", f"{statistics.median(mine):.0f}",
                  f"{statistics.median(t[name] for t in theirs):.0f}", f"{statistics.median(t['openblas'] for t in theirs):.0f}" if openblas else "-",
                  "MISSED " + " ".join(below) if below else "ok", sep="\t", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
