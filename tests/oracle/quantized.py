#!/usr/bin/env python3
"""tests/golden/tiny/quantized.tsv: what the gguf package makes of the matrices of tests/golden/tiny in Q8_0 and Q4_0. A line: type, tensor, SHA-256.

    tests/oracle/quantized.py > tests/golden/tiny/quantized.tsv

Needs numpy, torch, safetensors and gguf."""
import hashlib

import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf.quants import quantize
from safetensors.torch import load_file

tensors = load_file("tests/golden/tiny/model.safetensors")
for name, kind in (("q8_0", Type.Q8_0), ("q4_0", Type.Q4_0)):
    for tensor in sorted(tensors):
        x = tensors[tensor].to(torch.float32).numpy()
        if x.ndim == 2:
            blocks = quantize(np.ascontiguousarray(x), kind)
            print(name, tensor, hashlib.sha256(blocks.tobytes()).hexdigest(), sep="\t")
