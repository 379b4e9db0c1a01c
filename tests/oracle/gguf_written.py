#!/usr/bin/env python3
"""Do others read the GGUF files that llm-quantize writes? Tiny models of every family with random weights, from Hugging Face folders: the gguf package must
find the tensors, and llama.cpp must compute the logits that transformers computes (and that llm-infer computes from the same file).

    PATH=$PWD/bin:$PATH python tests/oracle/gguf_written.py [FAMILY...]

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
MLA = dict(num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=6, num_experts_per_tok=2,
           moe_intermediate_size=32, first_k_dense_replace=1, num_hidden_layers=3, rms_norm_eps=1e-6)
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
    "mixtral": ("MixtralConfig", dict(num_local_experts=5, num_experts_per_tok=2, sliding_window=None)),
    "qwen3_moe": ("Qwen3MoeConfig", dict(head_dim=16, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=True,
                                         decoder_sparse_step=1, mlp_only_layers=[])),
    "deepseek_v2": ("DeepseekV2Config", dict(MLA, num_hidden_layers=27, q_lora_rank=None, n_shared_experts=2, topk_method="greedy", n_group=1, topk_group=1,
                                             routed_scaling_factor=1.5)),
    "deepseek_v3": ("DeepseekV3Config", dict(MLA, q_lora_rank=24, n_shared_experts=1, n_group=2, topk_group=1, norm_topk_prob=True,
                                             rope_parameters=dict(rope_type="yarn", factor=4.0, mscale=.7, mscale_all_dim=.7, **ROPE))),
    "mamba": ("MambaConfig", dict(intermediate_size=128, state_size=16, expand=2, conv_kernel=4)),
    "mamba2": ("Mamba2Config", dict(state_size=16, expand=2, conv_kernel=4, num_heads=8, head_dim=16, n_groups=2, chunk_size=16, use_bias=False)),
    "bert": ("BertConfig", dict(hidden_act="gelu", initializer_range=.15)),
    "t5": ("T5Config", dict(d_model=64, d_kv=16, d_ff=96, num_hidden_layers=3, num_decoder_layers=2, num_heads=4, feed_forward_proj="relu",
                            tie_word_embeddings=False, decoder_start_token_id=0)),
    "t5-gated": ("T5Config", dict(d_model=64, d_kv=16, d_ff=96, num_hidden_layers=3, num_decoder_layers=3, num_heads=4, feed_forward_proj="gated-gelu",
                                  tie_word_embeddings=False, decoder_start_token_id=0)),
    "stablelm": ("StableLmConfig", dict(partial_rotary_factor=.5, use_qkv_bias=True)),
}


class Peer:
    def __init__(self, path, n, embed=False):
        params, model = llama_cpp.llama_context_default_params(), llama_cpp.llama_model_default_params()
        model.use_extra_bufts = False  # its AMX products crash on some machines
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), model)
        assert self.model, f"llama.cpp does not load {path}"
        params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = 64, 64, 1, 1
        params.type_k = params.type_v = 0
        params.flash_attn_type = 0
        params.embeddings, params.pooling_type = embed, 0 if embed else params.pooling_type
        self.context = llama_cpp.llama_init_from_model(self.model, params) if n else None
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def run(self, step, ids):
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
        assert step(self.context, batch) == 0
        llama_cpp.llama_batch_free(batch)

    def rows(self, get, count, n):
        return np.stack([np.ctypeslib.as_array(get(self.context, i), (n,)).copy() for i in range(count)])

    def logits(self, ids, source=None):
        if source:
            self.run(llama_cpp.llama_encode, source)
        self.run(llama_cpp.llama_decode, ids)
        return self.rows(llama_cpp.llama_get_logits_ith, len(ids), llama_cpp.llama_vocab_n_tokens(self.vocab))

    def hidden(self, ids):
        self.run(llama_cpp.llama_encode, ids)
        return self.rows(llama_cpp.llama_get_embeddings_ith, len(ids), llama_cpp.llama_model_n_embd(self.model))

    def encode(self, text):
        raw, room = text.encode(), 4096
        out = (llama_cpp.llama_token * room)()
        return list(out[:llama_cpp.llama_tokenize(self.vocab, raw, len(raw), out, room, True, True)])


def quantize(folder, to, kind="f32"):
    subprocess.run(["llm-quantize", "-q", "-t", kind, folder, to], check=True)


def compare(name, model, path, ids):
    """(what transformers says in double precision, what llama.cpp says, what llm-infer says of the same file; None: it has no such output)."""
    kind, text = model.config.model_type, " ".join(map(str, ids))
    model, x = model.double(), torch.tensor([ids])
    with torch.no_grad():
        if kind == "bert":
            want = model(x).last_hidden_state[0].float().numpy()
            run = subprocess.run(["llm-infer", "-q", "-m", path, "--precision", "f32", "--embed", "--jsonl", "--pooling", "mean", "--embd-normalize",
                                  "-1"], input=json.dumps(dict(ids=ids)), check=True, capture_output=True, text=True)
            ours = np.array(json.loads(run.stdout)["embedding"]) - want.mean(0) + want
            return want, Peer(path, len(ids), embed=True).hidden(ids), ours
        if kind == "t5":
            answer = [0] + ids[::-1][:20]
            want = model(x, decoder_input_ids=torch.tensor([answer])).logits[0].float().numpy()
            return want, Peer(path, len(ids)).logits(answer, source=ids), None
        want = model(x).logits[0].float().numpy()
    run = subprocess.run(["llm-infer", "-q", "-m", path, "--precision", "f32", "--logits", "--ids", text], check=True, capture_output=True)
    return want, Peer(path, len(ids)).logits(ids), read_stream(run.stdout, "logits").reshape(-1, model.config.vocab_size)


def check_family(name, folder):
    config_class, extra = CASES[name]
    config = getattr(transformers, config_class)(**{**BASE, **extra})
    torch.manual_seed(sum(name.encode()))
    if config.model_type == "t5":
        config.tie_word_embeddings = False  # as T5 1.1: its constructor forgets
    made_by = {"bert": transformers.AutoModel, "t5": transformers.AutoModelForSeq2SeqLM}.get(config.model_type, transformers.AutoModelForCausalLM)
    model = made_by.from_config(config, **(dict(experts_implementation="eager") if "num_experts_per_tok" in config.to_dict() else {})).float().eval()
    if config.model_type == "t5":
        model.encoder.embed_tokens = model.decoder.embed_tokens = model.shared
    with torch.no_grad():
        for key, p in model.named_parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * .2)
        for key, p in model.named_buffers():
            if "correction_bias" in key:
                p.add_(torch.randn_like(p) * .2)
    model.save_pretrained(folder)
    path = os.path.join(folder, "model.gguf")
    quantize(folder, path)
    reader = GGUFReader(path)
    weights = sum(p.numel() for p in model.parameters()) + sum(p.numel() for key, p in model.named_buffers() if "correction_bias" in key)
    found = sum(int(np.prod(t.shape)) for t in reader.tensors if not t.name.startswith("rope_"))
    pooler = sum(p.numel() for key, p in model.named_parameters() if "pooler" in key)  # which files have no name for
    assert found == weights - pooler, (name, found, weights)
    ids = np.random.default_rng(3).integers(0, config.vocab_size, 40).tolist()
    want, theirs, ours = compare(name, model, path, ids)
    scale = float(want.max() - want.min())
    a, b = float(abs(theirs - want).max()) / scale, float(abs(ours - want).max()) / scale if ours is not None else 0
    good = a <= LIMIT and b <= 5e-6
    said = "               " if ours is None else f"llm-infer {b:.1e}"
    print(f"{name:16} llama.cpp {a:.1e}  {said} of the range{'' if good else '  DIFFERS'}", flush=True)
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
