#!/usr/bin/env python3
"""Do others read the GGUF files that llm-quantize writes? Tiny models of every family with random weights, from Hugging Face folders: the gguf package must
find the tensors, and llama.cpp must compute the logits that transformers computes (and that llm-infer computes from the same file).

    PATH=$PWD/bin:$PATH /work/tmp/venv/bin/python tests/oracle/gguf_written.py [FAMILY...]

With --tokenizer FOLDER-OR-FILE... instead: writes a model with that tokenizer and compares its ids in llama.cpp with ours on the lines of this script.
Needs torch, transformers, gguf, llama_cpp. Prints a table; status 1 when something differs by more than LIMIT of the range of logits.
"""
import ctypes
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
import llama_cpp
from gguf import GGUFReader

from llmfiles import read_stream

LIMIT = 3e-4  # llama.cpp looks GELU up in a table of half precision
BASE = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None, attn_implementation="eager", initializer_range=.15)
ROPE = dict(rope_theta=1000.0, original_max_position_embeddings=16)
CASES = {
    "llama": ("LlamaConfig", dict(rope_parameters=dict(rope_type="default", rope_theta=1000.0))),
    "llama-llama3": ("LlamaConfig", dict(rope_parameters=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, **ROPE))),
    "llama-linear": ("LlamaConfig", dict(rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=1000.0))),
    "llama-yarn": ("LlamaConfig", dict(rope_parameters=dict(rope_type="yarn", factor=4.0, **ROPE))),
    "mistral": ("MistralConfig", dict(sliding_window=None, head_dim=24)),
    "qwen2": ("Qwen2Config", dict(tie_word_embeddings=True)),
    "qwen3": ("Qwen3Config", dict(head_dim=24)),
    "gemma2": ("Gemma2Config", dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=16)),
    "gemma3": ("Gemma3TextConfig", dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=16, num_hidden_layers=8)),
    "phi3": ("Phi3Config", dict(sliding_window=None)),
    "smollm3": ("SmolLM3Config", dict(num_hidden_layers=4)),
    "olmo2": ("Olmo2Config", dict()),
    "gpt2": ("GPT2Config", dict(n_inner=96, activation_function="gelu_new")),
    "gpt_neox": ("GPTNeoXConfig", dict(rotary_pct=.5, hidden_act="gelu")),
    "stablelm": ("StableLmConfig", dict(partial_rotary_factor=.5, use_qkv_bias=True)),
}


class Peer:
    def __init__(self, path, n):
        params, model = llama_cpp.llama_context_default_params(), llama_cpp.llama_model_default_params()
        model.use_extra_bufts = False  # its AMX products crash on some machines
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), model)
        assert self.model, f"llama.cpp does not load {path}"
        params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = 64, 64, 1, 1
        params.type_k = params.type_v = 0
        params.flash_attn_type = 0
        self.context = llama_cpp.llama_init_from_model(self.model, params) if n else None
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def logits(self, ids):
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
        assert llama_cpp.llama_decode(self.context, batch) == 0
        n = llama_cpp.llama_vocab_n_tokens(self.vocab)
        out = np.stack([np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, i), (n,)).copy() for i in range(len(ids))])
        llama_cpp.llama_batch_free(batch)
        return out

    def encode(self, text):
        raw, room = text.encode(), 4096
        out = (llama_cpp.llama_token * room)()
        return list(out[:llama_cpp.llama_tokenize(self.vocab, raw, len(raw), out, room, True, True)])


def quantize(folder, to, kind="f32"):
    subprocess.run(["llm-quantize", "-q", "-t", kind, folder, to], check=True)


def check_family(name, folder):
    config_class, extra = CASES[name]
    config = getattr(transformers, config_class)(**{**BASE, **extra})
    torch.manual_seed(sum(name.encode()))
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * .2)
    model.save_pretrained(folder)
    path = os.path.join(folder, "model.gguf")
    quantize(folder, path)
    reader = GGUFReader(path)
    weights = sum(p.numel() for p in model.parameters())
    found = sum(int(np.prod(t.shape)) for t in reader.tensors if not t.name.startswith("rope_"))
    assert found == weights, (name, found, weights)
    ids = np.random.default_rng(3).integers(0, config.vocab_size, 40).tolist()
    with torch.no_grad():
        want = model.double()(torch.tensor([ids])).logits[0].float().numpy()
    theirs = Peer(path, len(ids)).logits(ids)
    run = subprocess.run(["llm-infer", "-q", "-m", path, "--precision", "f32", "--logits", "--ids", " ".join(map(str, ids))], check=True, capture_output=True)
    ours = read_stream(run.stdout, "logits").reshape(-1, config.vocab_size)
    scale = float(want.max() - want.min())
    a, b = float(abs(theirs - want).max()) / scale, float(abs(ours - want).max()) / scale
    good = a <= LIMIT and b <= 5e-6
    print(f"{name:16} llama.cpp {a:.1e}  llm-infer {b:.1e} of the range{'' if good else '  DIFFERS'}", flush=True)
    return good


def check_tokenizer(source, folder):
    """A one-layer model around the tokenizer, then the ids of this script's lines and a few harder ones."""
    from safetensors.numpy import save_file
    info = json.loads(subprocess.run(["llm-tokenize", "info", "--json", "-T", source], check=True, capture_output=True, text=True).stdout)
    vocab = info["vocab_size"] + 3
    config = dict(model_type="llama", vocab_size=vocab, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1,
                  tie_word_embeddings=True, bos_token_id=None, eos_token_id=None)
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))
    names = [("self_attn.q_proj", 2), ("self_attn.k_proj", 2), ("self_attn.v_proj", 2), ("self_attn.o_proj", 2), ("mlp.gate_proj", 2),
             ("mlp.up_proj", 2), ("mlp.down_proj", 2), ("input_layernorm", 1), ("post_attention_layernorm", 1)]
    tensors = {f"model.layers.0.{n}.weight": np.zeros((32,) * d, np.float16) for n, d in names}
    tensors |= {"model.norm.weight": np.zeros(32, np.float16), "model.embed_tokens.weight": np.zeros((vocab, 32), np.float16)}
    save_file(tensors, os.path.join(folder, "model.safetensors"))
    if os.path.isdir(source):
        source = os.path.join(source, "tokenizer.json")
    subprocess.run(["cp", source, os.path.join(folder, "tokenizer.json" if source.endswith(".json") else "tokenizer.model")], check=True)
    path = os.path.join(folder, "model.gguf")
    quantize(folder, path, "keep")
    peer = Peer(path, 0)
    lines = [line for line in open(__file__, encoding="utf-8").read().split("\n") if line]
    lines += ["na\u00efve caf\u00e9 \u4e2d\u6587 \u043f\u0440\u0438\u0432\u0435\u0442 \U0001f600!", "  two  spaces\t\ttabs ", "1234567 3.14 x2", "don't WE'LL it's"]
    bad = 0
    for line in lines:
        run = subprocess.run(["llm-tokenize", "encode", "-T", path, "--text", "--special", "--add-special"], input=line, check=True, capture_output=True,
                             text=True)
        ours = [int(i) for i in run.stdout.split()]
        theirs = peer.encode(line)
        if ours != theirs:
            bad += 1
            print(f"  {line!r}: {ours} {theirs}")
    print(f"{source}: {len(lines) - bad} of {len(lines)} texts have the same ids in llama.cpp", flush=True)
    return bad == 0


quiet = llama_cpp.llama_log_callback(lambda *_: None)
llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()
good = True
with_tokenizers = "--tokenizer" in sys.argv
for name in [a for a in sys.argv[1:] if a[:2] != "--"] or ([] if with_tokenizers else CASES):
    with tempfile.TemporaryDirectory() as folder:
        good &= check_tokenizer(name, folder) if with_tokenizers else check_family(name, folder)
sys.exit(not good)
