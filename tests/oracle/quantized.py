#!/usr/bin/env python3
"""tests/golden/tiny/quantized.tsv: what the gguf package makes of the matrices of tests/golden/tiny in Q8_0 and Q4_0. A line: type, tensor, SHA-256.
tests/golden/tiny/quantized_scores.tsv: what the model then says of a text, in PyTorch in double precision with the weights that those blocks stand
for. A line: type, then log p of each token after the first.

    tests/oracle/quantized.py

Needs numpy, torch, transformers, safetensors and gguf."""
import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

tiny = Path("tests/golden/tiny")
tensors = load_file(tiny / "model.safetensors")
ids = json.loads((tiny / "expected.json").read_text())["ids"]


def scores(weights):
    model = LlamaForCausalLM._from_config(LlamaConfig.from_pretrained(tiny), attn_implementation="eager", dtype=torch.float64).eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    with torch.no_grad():
        log_p = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return [f"{log_p[i, t].item():.9f}" for i, t in enumerate(ids[1:])]


hashes, lines = [], []
for name, kind in (("f32", None), ("q8_0", Type.Q8_0), ("q4_0", Type.Q4_0)):
    weights = {}
    for tensor in sorted(tensors):
        x = np.ascontiguousarray(tensors[tensor].to(torch.float32).numpy())
        if x.ndim == 2 and kind is not None:
            blocks = quantize(x, kind)
            hashes.append("\t".join((name, tensor, hashlib.sha256(blocks.tobytes()).hexdigest())) + "\n")
            x = dequantize(blocks, kind).reshape(x.shape)
        weights[tensor] = torch.from_numpy(x).double()
    lines.append("\t".join([name, *scores(weights)]) + "\n")
(tiny / "quantized.tsv").write_text("".join(hashes))
(tiny / "quantized_scores.tsv").write_text("".join(lines))
