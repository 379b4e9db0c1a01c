#!/usr/bin/env python3
"""tests/golden/formats/sample.gguf: a small GGUF file with every type of metadata and seven types of tensors, by the gguf package's own writer.

    tests/oracle/gguf_golden.py tests/golden/formats/sample.gguf
"""
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

w = GGUFWriter(sys.argv[1], "llama")
w.add_uint8("t.u8", 200)
w.add_int8("t.i8", -100)
w.add_uint16("t.u16", 60000)
w.add_int16("t.i16", -30000)
w.add_uint32("t.u32", 4000000000)
w.add_int32("t.i32", -2000000000)
w.add_float32("t.f32", 0.15625)
w.add_bool("t.bool", True)
w.add_string("t.string", "grüße")
w.add_uint64("t.u64", 1 << 40)
w.add_int64("t.i64", -(1 << 40))
w.add_float64("t.f64", -2.5)
w.add_array("t.numbers", [1, -2, 3])
w.add_array("t.words", ["one", "", "three"])
x = (np.arange(2 * 64, dtype=np.float32).reshape(2, 64) - 50) / 8
w.add_tensor("a.f32", x)
w.add_tensor("b.f16", x.astype(np.float16))
for name, kind in (("c.q8_0", GGMLQuantizationType.Q8_0), ("d.q4_0", GGMLQuantizationType.Q4_0), ("e.q5_1", GGMLQuantizationType.Q5_1),
                   ("f.bf16", GGMLQuantizationType.BF16)):
    w.add_tensor(name, quantize(x, kind), raw_dtype=kind)
w.add_tensor("g.i32", np.arange(5, dtype=np.int32))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
