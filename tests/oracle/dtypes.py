#!/usr/bin/env python3
"""tests/golden/dtypes.tsv: blocks of the types of 32 values by the gguf package's own encoder and decoder.

    tests/oracle/dtypes.py > tests/golden/dtypes.tsv

A line: type, 32 inputs (little-endian FP32 in hexadecimal), the block, the 32 decoded values. Needs numpy and gguf.
"""
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

rng = np.random.default_rng(20261121)
rows = []
for i in range(64):
    x = rng.standard_normal(32).astype(np.float32) * np.float32(10.0 ** rng.integers(-6, 4))
    if i % 8 == 1:
        x[:] = 0
        x[i % 32] = -1.5
    if i % 8 == 2:
        x = np.round(x * 4) / np.float32(4)  # ties
    if i % 8 == 3:
        x = np.arange(-16, 16, dtype=np.float32) / np.float32(2)
    if i % 8 == 4:
        x = np.abs(x)
    rows.append(x.astype(np.float32))
rows[0][:] = 0
for name, kind in (("q8_0", Type.Q8_0), ("q4_0", Type.Q4_0), ("q4_1", Type.Q4_1), ("q5_0", Type.Q5_0), ("q5_1", Type.Q5_1),
                   ("mxfp4", Type.MXFP4)):
    for x in rows:
        block = quantize(x[None, :], kind)
        back = dequantize(block, kind).astype("<f4")
        print(name, x.astype("<f4").tobytes().hex(), block.tobytes().hex(), back.tobytes().hex(), sep="\t")
