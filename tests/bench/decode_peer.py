#!/usr/bin/env python3
"""Decoding against llama.cpp on the same Q8_0 weights: a Llama of TinyLlama's shape (1.1B parameters) with random weights, the same blocks in a GGUF file
and in safetensors. The two take turns; what is printed is tokens a second of each and the median of paired ratios.

    tests/bench/decode_peer.py [FOLDER [ROUNDS [TOKENS [THREADS]]]]

FOLDER (made when absent, 2.4 GB) keeps the models. Needs numpy, gguf, safetensors, llama_cpp; programs are taken from PATH."""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin for a CPU that others use would make it slower than it is
folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp/decode-peer")
rounds, tokens, threads = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((2, 5), (3, 32), (4, 2)))
H, L, A, K, F, V = 2048, 22, 32, 4, 5632, 32000
NAMES = (("attn_q", "self_attn.q_proj", H, H), ("attn_k", "self_attn.k_proj", K * (H // A), H), ("attn_v", "self_attn.v_proj", K * (H // A), H),
         ("attn_output", "self_attn.o_proj", H, H), ("ffn_gate", "mlp.gate_proj", F, H), ("ffn_up", "mlp.up_proj", F, H), ("ffn_down", "mlp.down_proj", H, F))


def unpermute(blocks, heads):
    """Rows of q and k as llama.cpp orders them (pairs beside each other), back in halves."""
    rows = blocks.shape[0]
    return blocks.reshape(heads, rows // heads // 2, 2, -1).swapaxes(1, 2).reshape(blocks.shape)


def make():
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    w = GGUFWriter(str(folder / "model.gguf"), "llama")
    for add, value in ((w.add_context_length, 2048), (w.add_embedding_length, H), (w.add_block_count, L), (w.add_feed_forward_length, F),
                       (w.add_head_count, A), (w.add_head_count_kv, K), (w.add_layer_norm_rms_eps, 1e-5), (w.add_rope_dimension_count, H // A),
                       (w.add_rope_freq_base, 10000.0), (w.add_vocab_size, V), (w.add_file_type, 7)):
        add(value)
    w.add_tokenizer_model("llama")
    w.add_token_list([f"t{i}" for i in range(V)])
    w.add_token_scores([0.0] * V)
    w.add_token_types([1] * V)
    ours, header, at = [], {}, 0

    def put(gguf_name, name, rows, cols, heads=0):
        nonlocal at
        if rows == 0:
            data = np.ones(cols, np.float32)
            w.add_tensor(gguf_name, data)
            header[name] = {"dtype": "F32", "shape": [cols]}
        else:
            data = quantize((rng.standard_normal((rows, cols), np.float32) * np.float32(.02)), GGMLQuantizationType.Q8_0)
            w.add_tensor(gguf_name, data, raw_dtype=GGMLQuantizationType.Q8_0)
            header[name] = {"dtype": "U8", "shape": [data.size]}
            types[name] = {"dtype": "q8_0", "shape": [rows, cols]}
            if heads:
                data = np.ascontiguousarray(unpermute(data, heads))
        ours.append((name, data))

    types = {}
    put("token_embd.weight", "model.embed_tokens.weight", V, H)
    for i in range(L):
        ggml, hf = f"blk.{i}.", f"model.layers.{i}."
        put(ggml + "attn_norm.weight", hf + "input_layernorm.weight", 0, H)
        put(ggml + "ffn_norm.weight", hf + "post_attention_layernorm.weight", 0, H)
        for a, b, rows, cols in NAMES:
            put(f"{ggml}{a}.weight", f"{hf}{b}.weight", rows, cols, {"attn_q": A, "attn_k": K}.get(a, 0))
    put("output_norm.weight", "model.norm.weight", 0, H)
    put("output.weight", "lm_head.weight", V, H)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    config = {"model_type": "llama", "vocab_size": V, "hidden_size": H, "intermediate_size": F, "num_hidden_layers": L, "num_attention_heads": A,
              "num_key_value_heads": K, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": False}
    ours.sort(key=lambda t: (-t[1].dtype.itemsize, t[0]))
    ordered = {"__metadata__": {"llm.kind": "checkpoint", "llm.config": json.dumps(config), "llm.tensors": json.dumps(types)}}
    for name, data in ours:
        ordered[name] = {**header[name], "data_offsets": [at, at + data.nbytes]}
        at += data.nbytes
    text = json.dumps(ordered, separators=(",", ":")).encode()
    with open(folder / "model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, data in ours:
            f.write(data.tobytes())


class Peer:
    def __init__(self):
        import llama_cpp
        self.lib, self.quiet = llama_cpp, llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.quiet, None)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_threads, params.n_threads_batch = 256, threads, threads
        model = llama_cpp.llama_model_default_params()
        model.use_extra_bufts = False  # its AMX products crash here; those of AVX-512 VNNI are as fast at one token
        self.model = llama_cpp.llama_model_load_from_file(str(folder / "model.gguf").encode(), model)
        self.context = llama_cpp.llama_init_from_model(self.model, params)

    def run(self, first, count):
        """Greedy tokens behind `first`, and the seconds that all but the prompt took."""
        lib, ids, start = self.lib, list(first), None
        lib.llama_memory_clear(lib.llama_get_memory(self.context), True)
        feed, out = ids, []
        for _ in range(count):
            held = (lib.llama_token * len(feed))(*feed)  # the batch only points to it
            assert lib.llama_decode(self.context, lib.llama_batch_get_one(held, len(feed))) == 0
            logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(self.context, -1), (V,))
            out.append(int(logits.argmax()))
            start = start or time.perf_counter()
            feed = out[-1:]
        return out, time.perf_counter() - start


def ours(first, count):
    run = subprocess.run(["llm-infer", "-m", str(folder / "model.safetensors"), "-v", "--ids", "--ignore-eos", "--temp", "0", "-c", "256", "-j", str(threads),
                          "-n", str(count), " ".join(map(str, first))], check=True, capture_output=True, text=True)
    return [int(i) for i in run.stdout.split()], float(re.search(r"tokens in [\d.]+ s, \d+ tokens in ([\d.]+) s", run.stderr).group(1))


if not (folder / "model.safetensors").exists():
    make()
first, rates = [1, 100, 2000, 30000], []
peer = Peer()
for i in range(rounds):
    a, seconds = ours(first, tokens)
    b, peer_seconds = peer.run(first, tokens)
    rates.append(((tokens - 1) / seconds, (tokens - 1) / peer_seconds))
    agree = next((k for k in range(tokens) if a[k] != b[k]), tokens)
    print(f"round {i}: llm-infer {rates[-1][0]:.2f}, llama.cpp {rates[-1][1]:.2f} tokens a second; the first {agree} tokens agree", flush=True)
ratios = sorted(x / y for x, y in rates)
print(f"median ratio {statistics.median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}")
