#!/usr/bin/env python3
"""llama.cpp as a process of its own: a JSON object a line on standard input, an answer a line on standard output (behind "logits": raw FP32 rows).

    {"do": "load", "model": FILE, "context": N, "threads": N}   {"vocab": N, "system": what it was built with, "version": ...}; optional "cache": "f16" or "q8_0", "sequences": N
    {"do": "encode", "text": TEXT}                              {"ids": [...]} with the token that begins a text, where the model wants it
    {"do": "logits", "ids": [...]}                              {"rows": N}, then N rows
    {"do": "score", "documents": [[...], ...]}                  {"nats": [...]} of each document's tokens but the first, summed
    {"do": "memory", "ids": [...], "generate": N}               {"bytes": N} resident at most, less what Python had before the model was loaded
    {"do": "speed", "prompt": N, "generate": N, "runs": N}      {"prompt": tokens a second, the mean of the runs, "generate": tokens a second}
    {"do": "deep", "depth": N, "generate": N}                   {"generate": tokens a second behind so many tokens, which are read once}
    {"do": "together", "generate": N}                           {"generate": tokens a second of all sequences, one token of each in a pass}
    {"do": "convert", "model": FILE, "to": FILE, "type": N}     {}: the GGUF file in another type of weights, by llama.cpp's number

A crash of the library is then the end of this process and not of the comparison."""
import json
import sys
import time

import llama_cpp as lib
import numpy as np

PASS = 256  # tokens whose logits are in memory at once


def resident(kind):
    with open("/proc/self/status") as f:
        return 1024 * int(f.read().split(kind + ":")[1].split()[0])


class Peer:
    def __init__(self, request):
        self.before = resident("VmRSS")
        model = lib.llama_model_default_params()
        self.model = lib.llama_model_load_from_file(request["model"].encode(), model)
        params = lib.llama_context_default_params()
        self.sequences = request.get("sequences", 1)
        params.n_ctx = request["context"]
        params.n_seq_max = self.sequences
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = request["threads"]
        params.type_k = params.type_v = {"f16": 1, "q8_0": 8}[request.get("cache", "f16")]
        self.depth = 0
        self.context = lib.llama_init_from_model(self.model, params)
        self.vocabulary = lib.llama_model_get_vocab(self.model)
        self.vocab = lib.llama_vocab_n_tokens(self.vocabulary)
        self.batch = lib.llama_batch_init(512, 0, 1)
        flags = [word.strip() for word in lib.llama_print_system_info().decode().replace("CPU :", "|").split("|") if word.strip().endswith("= 1")]
        self.answer = {"vocab": self.vocab, "system": " ".join(word.replace(" = 1", "") for word in flags), "version": lib.__version__}

    def clear(self):
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)

    def decode(self, ids, first, every):
        """Rows of logits: of every token, or of the last."""
        b = self.batch
        b.n_tokens = len(ids)
        for i, token in enumerate(ids):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, first + i, 1, every or i + 1 == len(ids)
            b.seq_id[i][0] = 0
        if lib.llama_decode(self.context, b) != 0:
            raise SystemExit("llama_decode failed")
        rows = len(ids) if every else 1
        return np.ctypeslib.as_array(lib.llama_get_logits(self.context), (rows, self.vocab))

    def step(self, ids, position):
        """One token of each sequence."""
        b = self.batch
        b.n_tokens = len(ids)
        for i, token in enumerate(ids):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, position, 1, True
            b.seq_id[i][0] = i
        if lib.llama_decode(self.context, b) != 0:
            raise SystemExit("llama_decode failed")
        lib.llama_get_logits(self.context)

    def passes(self, ids):
        self.clear()
        for at in range(0, len(ids), PASS):
            yield at, self.decode(ids[at : at + PASS], at, True)

    def encode(self, request):
        text = request["text"].encode()
        room = (lib.llama_token * (len(text) + 8))()
        n = lib.llama_tokenize(self.vocabulary, text, len(text), room, len(room), True, False)
        return {"ids": list(room[:n])}

    def logits(self, request):
        put({"rows": len(request["ids"])})
        for _, rows in self.passes(request["ids"]):
            sys.stdout.buffer.write(rows.tobytes())
        sys.stdout.buffer.flush()

    def score(self, request):
        sums = []
        for ids in request["documents"]:
            nats = 0.0
            for at, rows in self.passes(ids):
                for row, target in zip(rows, ids[at + 1 :]):
                    top = row.max()
                    nats += float(top - row[target]) + float(np.log(np.exp(row - top).sum(dtype=np.float64)))
            sums.append(nats)
        return {"nats": sums}

    def memory(self, request):
        self.clear()
        ids = request["ids"]
        for at in range(0, len(ids), 512):
            self.decode(ids[at : at + 512], at, False)
        for i in range(request["generate"]):
            self.decode([i], len(ids) + i, False)
        return {"bytes": resident("VmHWM") - self.before}

    def speed(self, request):
        rng, out = np.random.default_rng(1), {}
        n, generate = request["prompt"], request["generate"]
        ids = rng.integers(0, self.vocab, max(n, generate)).tolist()
        for warm in (True, False):
            rates = []
            for _ in range(2 if warm else request.get("runs", 1)):
                self.clear()
                start = time.perf_counter()
                for at in range(0, n, 512):
                    self.decode(ids[at : min(at + 512, n)], at, False)
                rates.append(n / (time.perf_counter() - start))
            out["prompt"] = sum(rates) / len(rates)
            self.clear()
            start = time.perf_counter()
            for at in range(4 if warm else generate):
                self.decode(ids[at : at + 1], at, False)
            out["generate"] = generate / (time.perf_counter() - start)
        return out

    def deep(self, request):
        depth, generate = request["depth"], request["generate"]
        ids = [i * 7919 % self.vocab for i in range(depth + generate)]
        if self.depth != depth:
            self.clear()
            for at in range(0, depth, 512):
                self.decode(ids[at : min(at + 512, depth)], at, False)
            self.depth = depth
        start = time.perf_counter()
        for at in range(depth, depth + generate):
            self.decode(ids[at : at + 1], at, False)
        rate = generate / (time.perf_counter() - start)
        lib.llama_memory_seq_rm(lib.llama_get_memory(self.context), 0, depth, -1)
        return {"generate": rate}

    def together(self, request):
        n = request["generate"]
        ids = np.random.default_rng(1).integers(0, self.vocab, (n, self.sequences)).tolist()
        for warm in (True, False):
            self.clear()
            start = time.perf_counter()
            for at in range(2 if warm else n):
                self.step(ids[at], at)
        return {"generate": n * self.sequences / (time.perf_counter() - start)}


def convert(request):
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.pure = request["type"], True, True
    if lib.llama_model_quantize(request["model"].encode(), request["to"].encode(), params) != 0:
        raise SystemExit("llama_model_quantize failed")
    return {}


def put(answer):
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


quiet = lib.llama_log_callback(lambda *_: None)
lib.llama_log_set(quiet, None)
lib.llama_backend_init()
peer = None
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "convert":
        put(convert(request))
    elif request["do"] == "load":
        peer = Peer(request)
        put(peer.answer)
    else:
        answer = getattr(peer, request["do"])(request)
        if answer is not None:
            put(answer)
