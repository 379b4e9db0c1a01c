#!/usr/bin/env python3
"""tests/golden/blocks.tsv: random blocks of each block type, decoded by the gguf package, or here where it has no such type.

    tests/oracle/blocks.py > tests/golden/blocks.tsv

A line: type, the block in hexadecimal, SHA-256 of its decoded values as little-endian FP32. Needs numpy and gguf.
"""
import hashlib

import numpy as np
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize

# where a block's FP16 numbers stand; random bits would make them NaN or infinite
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208], "Q8_K": [], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
          "NVFP4": [], "IQ3_S": [0], "IQ3_XXS": [0], "IQ2_S": [0], "IQ2_XS": [0], "IQ2_XXS": [0], "IQ1_S": [0], "IQ1_M": [],
          "TQ1_0": [52], "TQ2_0": [64]}
rng = np.random.default_rng(20261121)
for name, halves in HALVES.items():
    size, n_bytes = GGML_QUANT_SIZES[Type[name]]
    for i in range(12):
        block = rng.integers(0, 256, n_bytes, dtype=np.uint8)
        for at in halves:
            block[at : at + 2] = np.frombuffer(np.float16(rng.standard_normal() * 10.0 ** -int(i % 5)).tobytes(), np.uint8)
        if name == "MXFP4":
            block[0] = [0, 1, 2, 120, 127, 128, 140, 200, 240, 245, 117, 64][i]
        if name == "IQ1_M":  # the upper four bits of four words
            half = int(np.float16(rng.standard_normal() * 10.0 ** -int(i % 5)).view(np.uint16))
            for word in range(4):
                block[49 + 2 * word] = (block[49 + 2 * word] & 15) | (half >> 4 * word & 15) << 4
        if name == "Q8_K":  # the package has no decoder: d · q
            block[:4] = np.frombuffer(np.float32(rng.standard_normal()).tobytes(), np.uint8)
            values = block[:4].view("<f4") * block[4:260].view(np.int8).astype(np.float32)
        else:
            with np.errstate(over="ignore"):
                values = dequantize(block[None, :], Type[name])[0]
        values = values.astype("<f4")
        assert np.isfinite(values).all() and len(values) == size, name
        print(name.lower(), block.tobytes().hex(), hashlib.sha256(values.tobytes()).hexdigest(), sep="\t")

# ours: codes of four bits, then sixteen values of Q8_0 (behind a scale) or BF16
PLACES = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 1), (0, 1)]
for name, values_at in {"q8_0_2of4": 6, "bf16_2of4": 4}.items():
    for i in range(12):
        block = rng.integers(0, 256, 22 if name == "q8_0_2of4" else 36, dtype=np.uint8)
        if name == "q8_0_2of4":
            block[:2] = np.frombuffer(np.float16(rng.standard_normal() * 10.0 ** -int(i % 5)).tobytes(), np.uint8)
            kept = block[:2].view("<f2").astype("<f4") * block[6:].view(np.int8).astype("<f4")
        else:
            block[4:] = np.frombuffer((rng.standard_normal(16).astype("<f4").view("<u4") >> 16).astype("<u2").tobytes(), np.uint8)
            kept = (block[4:].view("<u2").astype("<u4") << 16).view("<f4")
        codes = [int(byte) >> shift & 7 for byte in block[values_at - 4 : values_at] for shift in (0, 4)]
        values = np.zeros(32, "<f4")
        for four, code in enumerate(codes):
            for j, place in enumerate(PLACES[code]):
                values[four * 4 + place] = kept[four * 2 + j]
        print(name, block.tobytes().hex(), hashlib.sha256(values.tobytes()).hexdigest(), sep="\t")

# blocks of Q8_0 and Q4_0 whose values are multiplied by the Hadamard matrix of 32 over the root of 32, by steps that round to FP32
for name in ("Q8_0", "Q4_0"):
    for i in range(12):
        block = rng.integers(0, 256, GGML_QUANT_SIZES[Type[name]][1], dtype=np.uint8)
        block[:2] = np.frombuffer(np.float16(rng.standard_normal() * 10.0 ** -int(i % 5)).tobytes(), np.uint8)
        values = dequantize(block[None, :], Type[name])[0].astype("<f4")
        for step in (1, 2, 4, 8, 16):
            pairs = values.reshape(-1, 2, step)
            values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).reshape(32)
        values = values * np.float32(32**-0.5)
        print(name.lower() + "_rot", block.tobytes().hex(), hashlib.sha256(values.tobytes()).hexdigest(), sep="\t")
