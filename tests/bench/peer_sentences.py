#!/usr/bin/env python3
"""sentence-transformers as a peer: one request in the first operand, one answer as a line of JSON, and the process ends.

    {"model": FOLDER, "texts": FILE, "threads": N, "name": ROW}
    {"rates": {ROW: texts a second of `encode`}, "version": ...}

`encode` sorts the texts by length and computes batches of 32, in FP32; reading and loading are not counted. Each line of the texts is {"text": …}."""
import json
import sys
import time

import sentence_transformers
import torch

request = json.loads(sys.argv[1])
torch.set_num_threads(request["threads"])
model = sentence_transformers.SentenceTransformer(request["model"], device="cpu")
texts = [json.loads(line)["text"] for line in open(request["texts"], encoding="utf-8")]
model.encode(texts[:64])
start = time.perf_counter()
model.encode(texts, normalize_embeddings=True)
seconds = time.perf_counter() - start
print(json.dumps({"rates": {request["name"]: len(texts) / seconds},
                  "version": f"sentence-transformers {sentence_transformers.__version__}, PyTorch {torch.__version__}",
                  "flags": torch.backends.cpu.get_cpu_capability()}))
