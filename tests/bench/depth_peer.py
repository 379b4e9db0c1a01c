#!/usr/bin/env python3
"""Decoding behind many tokens against llama.cpp, on the same GGUF file and with the same type of KV cache. The two take turns; what is printed is tokens a
second of each and the median of paired ratios.

    tests/bench/depth_peer.py MODEL.gguf [DEPTH [ROUNDS [TOKENS [THREADS [TYPES]]]]]

8,000 tokens, 5 rounds of 32 tokens, 2 threads, types f16,q8_0. Needs llama_cpp; llm-bench is taken from PATH. llama.cpp attends with what it chooses by
itself (flash attention on CPUs), without its AMX products, which crash here."""
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin for a CPU that others use would make it slower than it is
import llama_cpp as lib  # noqa: E402

model = sys.argv[1]
depth, rounds, tokens, threads = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((2, 8000), (3, 5), (4, 32), (5, 2)))
types = (sys.argv[6] if len(sys.argv) > 6 else "f16,q8_0").split(",")
GGML = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}
quiet = lib.llama_log_callback(lambda *_: None)
lib.llama_log_set(quiet, None)
lib.llama_backend_init()
options = lib.llama_model_default_params()
options.use_extra_bufts = False
loaded = lib.llama_model_load_from_file(model.encode(), options)


class Peer:
    def __init__(self, kind):
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_threads, params.n_threads_batch = depth + tokens + 16, threads, threads
        params.n_batch = params.n_ubatch = 512
        params.type_k = params.type_v = GGML[kind]
        self.context = lib.llama_init_from_model(loaded, params)
        self.batch = lib.llama_batch_init(512, 0, 1)
        for at in range(0, depth, 512):
            self.feed(at, min(512, depth - at))

    def feed(self, first, n):
        b = self.batch
        b.n_tokens = n
        for i in range(n):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = 100 + (first + i) * 7919 % 20000, first + i, 1, i + 1 == n
            b.seq_id[i][0] = 0
        if lib.llama_decode(self.context, b) != 0:
            raise SystemExit("llama_decode failed")
        lib.llama_get_logits(self.context)

    def rate(self):
        self.feed(depth, 1)
        start = time.perf_counter()
        for i in range(1, tokens + 1):
            self.feed(depth + i, 1)
        seconds = time.perf_counter() - start
        lib.llama_memory_seq_rm(lib.llama_get_memory(self.context), 0, depth, -1)
        return tokens / seconds


def ours(kind):
    run = subprocess.run(["llm-bench", "speed", "-m", model, "-p", "0", "-n", str(tokens), "-d", str(depth), "-r", "1", "-j", str(threads),
                          "--cache-type", kind], check=True, capture_output=True, text=True)
    header, row = (line.split("\t") for line in run.stdout.splitlines()[:2])
    return float(row[header.index("tokens_per_s")])


for kind in types:
    peer, rates = Peer(kind), []
    for i in range(rounds):
        rates.append((ours(kind), peer.rate()))
        print(f"{kind}, round {i}: llm-bench {rates[-1][0]:.2f}, llama.cpp {rates[-1][1]:.2f} tokens a second", file=sys.stderr, flush=True)
    ratios = sorted(x / y for x, y in rates)
    print(f"{statistics.median(ratios):.2f}\t{ratios[0]:.2f}-{ratios[-1]:.2f}\t{os.path.basename(model)}\tcache {kind}\ttg{tokens} @ {depth}\t"
          f"{statistics.median(x for x, _ in rates):.1f}\t{statistics.median(y for _, y in rates):.1f}", flush=True)
    lib.llama_free(peer.context)
