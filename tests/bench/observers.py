#!/usr/bin/env python3
"""What observers cost in decoding: pairs of llm-infer processes in alternation, ratios of their rates (wall clock, and processor time). "least" is the
ratio of the least processor times of all turns, which other work on the machine disturbs least.

    MODEL=SmolLM2-135M-Instruct.Q4_1.gguf [BIN=bin] [ROUNDS=7] [TOKENS=256] [THREADS=2] [WITHOUT=FOLDER/bin/llm-infer] python tests/bench/observers.py

Row 1: tokens read one a pass with `--export` of one layer's residual, beside the same passes without an observer (`--kv-out /dev/null`); neither computes
logits, so the export's share is greater than in generation. Row 2, if WITHOUT names a program built without the hooks: greedy generation by that program
and by ours. The time of loading is taken off by a run with one token.
"""
import os
import pathlib
import resource
import statistics
import subprocess
import time

THREADS = os.environ.get("THREADS", str(len(os.sched_getaffinity(0))))
BIN = os.environ.get("BIN", str(pathlib.Path(__file__).resolve().parents[2] / "bin")) + "/llm-infer"
MODEL, TOKENS, ROUNDS = os.environ["MODEL"], int(os.environ.get("TOKENS", "256")), int(os.environ.get("ROUNDS", "7"))


def seconds(command):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def passes(n, *more):
    return [BIN, "-q", "-j", THREADS, "-m", MODEL, "-b", "1", *more, "--ids", " ".join(str(1 + 37 * i % 40000) for i in range(n))]


def generation(program, n):
    return [program, "-q", "-j", THREADS, "-m", MODEL, "-n", str(n), "--temp", "0", "--ignore-eos", "Once upon a time"]


def net(make):
    """Times of TOKENS tokens less those of one."""
    short, long = seconds(make(1)), seconds(make(TOKENS + 1))
    return [b - a for a, b in zip(short, long)]


def row(name, plain, changed):
    ratios, least = [[], []], [float("inf"), float("inf")]
    for turn in range(ROUNDS):
        a, b = (net(plain), net(changed)) if turn % 2 == 0 else reversed((net(changed), net(plain)))
        for i in range(2):
            ratios[i].append(a[i] / b[i])
        least = [min(least[0], a[1]), min(least[1], b[1])]
    middle = (f"{what} {statistics.median(r):.4f} ({min(r):.4f}-{max(r):.4f})" for what, r in zip(("wall", "processor"), ratios))
    print(name, *middle, f"least {least[0] / least[1]:.4f}", sep="\t", flush=True)


row("export of one layer / none", lambda n: passes(n, "-n", "0", "--kv-out", "/dev/null"),
    lambda n: passes(n, "--export", "layers.15.residual.after", "-o", "/dev/null"))
if "WITHOUT" in os.environ:
    row("hooks, no observer / no hooks", lambda n: generation(os.environ["WITHOUT"], n), lambda n: generation(BIN, n))
