#!/usr/bin/env python3
"""Goldens for tests/unit/model/test_families.c: tiny models of every family, made hard: random gains and biases, attention
scores that deviate by 2 to 5, windows of 16, prompts beyond the original context. Logits by transformers in double precision throughout.

    python tests/oracle/families.py tests/golden/families [CASE...]

Each golden is a safetensors file: "logits" (every EVERY-th row; of a model without a head its final hidden states), and in its metadata config.json, the tensors' names and shapes, and the context that the
test is to ask for. Weights are not stored: parameter i in order of names is drawn from Philox by both sides.
"""
import json
import math
import os
import sys
import tempfile

import numpy as np
import torch

torch.float32 = torch.float = torch.float64  # what transformers casts to single precision stays double
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)

import transformers
from safetensors.numpy import save_file
from safetensors.torch import load_file, save_file as save_torch

sys.path.insert(0, os.path.dirname(__file__))
import philox
import hyena
import rwkv

SEED, LENGTH, EVERY, VOCAB = 23, 40, 5, 61
BASE = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
            max_position_embeddings=64, attn_implementation="eager", bos_token_id=None, eos_token_id=None, pad_token_id=None)
ROPE = dict(rope_theta=300.0, original_max_position_embeddings=16)


def factors(low, high, n):
    return [round(low + (high - low) * i / (n - 1), 3) for i in range(n)]


LONG = dict(rope_type="longrope", rope_theta=300.0, short_factor=factors(1, 1.5, 4), long_factor=factors(1.2, 6, 4))
CASES = {
    "llama": ("LlamaConfig", dict(attention_bias=True, mlp_bias=True, rope_parameters=dict(rope_type="default", rope_theta=300.0))),
    "llama-llama3": ("LlamaConfig", dict(rope_parameters=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, **ROPE))),
    "llama-linear": ("LlamaConfig", dict(rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=300.0))),
    "llama-dynamic": ("LlamaConfig", dict(max_position_embeddings=24, rope_parameters=dict(rope_type="dynamic", factor=3.0, rope_theta=300.0))),
    "llama-yarn": ("LlamaConfig", dict(rope_parameters=dict(rope_type="yarn", factor=4.0, **ROPE))),
    "mistral": ("MistralConfig", dict(head_dim=8, sliding_window=16, rope_parameters=dict(rope_type="default", rope_theta=300.0))),
    "qwen2": ("Qwen2Config", dict(tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=300.0))),
    "qwen2-window": ("Qwen2Config", dict(use_sliding_window=True, sliding_window=16, max_window_layers=1)),
    "qwen3": ("Qwen3Config", dict(head_dim=12)),
    "gemma2": ("Gemma2Config", dict(head_dim=16, query_pre_attn_scalar=24, sliding_window=16, attn_logit_softcapping=3.0,
                                    final_logit_softcapping=5.0)),
    "gemma3": ("Gemma3TextConfig", dict(head_dim=16, query_pre_attn_scalar=24, sliding_window=16, num_hidden_layers=4, sliding_window_pattern=3)),
    "gemma3-bidirectional": ("Gemma3TextConfig", dict(head_dim=16, query_pre_attn_scalar=24, sliding_window=13, num_hidden_layers=4,
                                                      sliding_window_pattern=3, use_bidirectional_attention=True)),
    "phi3": ("Phi3Config", dict(sliding_window=16)),
    "phi3-short": ("Phi3Config", dict(original_max_position_embeddings=48, rope_parameters=dict(LONG, original_max_position_embeddings=48))),
    "phi3-long": ("Phi3Config", dict(original_max_position_embeddings=16, rope_parameters=dict(LONG, original_max_position_embeddings=16))),
    "smollm3": ("SmolLM3Config", dict(num_hidden_layers=4, no_rope_layer_interval=2)),
    "smollm3-window": ("SmolLM3Config", dict(num_hidden_layers=4, no_rope_layer_interval=2, sliding_window=16, use_sliding_window=True)),
    "smollm3-types": ("SmolLM3Config", dict(num_hidden_layers=4, no_rope_layer_interval=2, sliding_window=13, use_sliding_window=False, layer_types=[
        "sliding_attention", "full_attention", "full_attention", "sliding_attention"])),
    "smollm3-local": ("SmolLM3Config", dict(num_hidden_layers=3, no_rope_layer_interval=2, sliding_window=13,
                                            layer_types=["sliding_attention"] * 3)),
    "olmo2": ("Olmo2Config", dict()),
    "gpt2": ("GPT2Config", dict(n_inner=80, activation_function="gelu_new")),
    "gpt2-inverse-layer": ("GPT2Config", dict(scale_attn_by_inverse_layer_idx=True)),
    "gpt2-unscaled": ("GPT2Config", dict(scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True)),
    "gpt_neox": ("GPTNeoXConfig", dict(rotary_pct=.5, rope_parameters=dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=.5))),
    "gpt_neox-serial": ("GPTNeoXConfig", dict(use_parallel_residual=False)),
    "mixtral": ("MixtralConfig", dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=40)),
    "qwen3_moe": ("Qwen3MoeConfig", dict(head_dim=12, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, norm_topk_prob=True)),
    "qwen3_moe-plain": ("Qwen3MoeConfig", dict(head_dim=12, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=20, norm_topk_prob=False,
                                               decoder_sparse_step=2)),
    "qwen3_moe-window": ("Qwen3MoeConfig", dict(head_dim=12, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
                                                norm_topk_prob=True, use_sliding_window=True, sliding_window=16)),
    "qwen3_moe-dense": ("Qwen3MoeConfig", dict(head_dim=12, num_hidden_layers=4, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
                                               norm_topk_prob=True, decoder_sparse_step=2, mlp_only_layers=[0, 3])),
    "bert": ("BertConfig", dict(type_vocab_size=3, hidden_act="gelu")),
    "bert-model": ("BertConfig", dict(hidden_act="gelu_new", layer_norm_eps=1e-5)),
    "deepseek_v2": ("DeepseekV2Config", dict(
        num_key_value_heads=6, kv_lora_rank=20, q_lora_rank=None, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=12, n_routed_experts=6,
        num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=20, first_k_dense_replace=1, topk_method="group_limited_greedy",
        n_group=3, topk_group=2, routed_scaling_factor=1.7, rope_parameters=dict(rope_type="default", rope_theta=300.0))),
    "deepseek_v2-norm": ("DeepseekV2Config", dict(
        num_key_value_heads=6, kv_lora_rank=20, q_lora_rank=None, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=12, n_routed_experts=6,
        num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=20, norm_topk_prob=True)),
    "deepseek_v3": ("DeepseekV3Config", dict(
        num_key_value_heads=6, kv_lora_rank=20, q_lora_rank=18, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=12, n_routed_experts=6,
        num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=20, first_k_dense_replace=1, n_group=3, topk_group=2,
        rope_parameters=dict(rope_type="yarn", factor=4.0, mscale=1.0, mscale_all_dim=.8, **ROPE))),
    "t5": ("T5Config", dict(relative_attention_num_buckets=10, relative_attention_max_distance=18, num_decoder_layers=2)),
    "t5-gated": ("T5Config", dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False, relative_attention_max_distance=40)),
    "stablelm": ("StableLmConfig", dict(use_qkv_bias=True, rope_parameters=dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=.5))),
    "stablelm-parallel": ("StableLmConfig", dict(use_parallel_residual=True, qk_layernorm=True, layer_norm_eps=.02)),
    "stablelm-heads": ("StableLmConfig", dict(qk_layernorm=True, use_qkv_bias=True)),
    "rnn": ("torch", dict(model_type="rnn", vocab_size=VOCAB, hidden_size=48, num_layers=2, bias=True, head_bias=True)),
    "lstm": ("torch", dict(model_type="lstm", vocab_size=VOCAB, input_size=24, hidden_size=48, num_layers=3, bias=True, head_bias=False)),
    "rwkv": ("RwkvConfig", dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=3)),
    "rwkv5": ("torch", dict(model_type="rwkv5", vocab_size=VOCAB, hidden_size=48, attention_hidden_size=40, head_size=10, intermediate_size=80,
                            num_hidden_layers=3)),
    "rwkv6": ("torch", dict(model_type="rwkv6", vocab_size=VOCAB, hidden_size=48, attention_hidden_size=40, head_size=10, intermediate_size=80,
                            num_hidden_layers=3)),
    "rwkv7": ("torch", dict(model_type="rwkv7", vocab_size=VOCAB, hidden_size=48, head_dim=12, intermediate_size=80, num_hidden_layers=3,
                            decay_low_rank_dim=7, a_low_rank_dim=5, v_low_rank_dim=6, gate_low_rank_dim=9)),
    "hyena": ("torch", dict(model_type="hyenadna", vocab_size=57, d_model=48, d_inner=80, n_layer=3, max_seq_len=64, emb_dim=7, filter_order=20)),
    "hyena-order4": ("torch", dict(model_type="hyenadna", vocab_size=VOCAB, pad_vocab_size_multiple=1, d_model=24, n_layer=2, max_seq_len=40,
                                   hyena_order=4, filter_order=9, num_inner_mlps=1)),
    "mamba": ("MambaConfig", dict(vocab_size=VOCAB, hidden_size=48, state_size=5, num_hidden_layers=3, expand=2, conv_kernel=4, time_step_rank=7)),
    "mamba-bias": ("MambaConfig", dict(vocab_size=VOCAB, hidden_size=40, state_size=16, num_hidden_layers=2, intermediate_size=64, use_bias=True,
                                       use_conv_bias=False, tie_word_embeddings=False, layer_norm_epsilon=.3)),
    "mamba-act": ("MambaConfig", dict(vocab_size=VOCAB, hidden_size=48, state_size=5, num_hidden_layers=3, hidden_act="gelu")),
    "mamba2-act": ("Mamba2Config", dict(vocab_size=VOCAB, hidden_size=48, state_size=12, num_hidden_layers=3, num_heads=6, head_dim=16, n_groups=2,
                                        chunk_size=16, expand=2, hidden_act="gelu_new")),
    "mamba2": ("Mamba2Config", dict(vocab_size=VOCAB, hidden_size=48, state_size=12, num_hidden_layers=3, num_heads=6, head_dim=16, n_groups=2,
                                    chunk_size=16, expand=2, conv_kernel=4, use_bias=True)),
}


def file_tensors(model):
    """Names as files have them: transformers keeps the matrices of all experts as one, files do not."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(os.path.join(folder, "model.safetensors"))


def with_file_tensors(model, tensors):
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        save_torch(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        again = type(model).from_pretrained(folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager").eval()
    for name, p in again.named_parameters():
        assert p.dtype == torch.float64, name
    return again


def harden(model):
    mixture = "num_experts_per_tok" in model.config.to_dict()
    offset = 0 if "gemma" in model.config.model_type else 1
    tied = model.config.tie_word_embeddings
    tensors = file_tensors(model) if mixture else model.state_dict()
    named = sorted((n, p) for n, p in tensors.items() if not (tied and model.config.model_type != "t5" and n in ("lm_head.weight", "cls.predictions.decoder.weight")))
    if model.config.model_type == "bert":
        named = [(n, p) for n, p in named if n not in ("cls.predictions.decoder.bias", "embeddings.position_ids", "bert.embeddings.position_ids")]
    if model.config.model_type == "t5":
        named = [(n, p) for n, p in named if "embed_tokens" not in n and (n != "lm_head.weight" or model.lm_head.weight is not model.shared.weight)]
    if type(model).__name__ == "BertModel":  # norms as old files name them
        named = [(n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"), p) for n, p in named]
    if model.config.model_type == "gpt_neox":  # its name in files
        named = sorted((n.replace("lm_head", "embed_out"), p) for n, p in named)
    for i, (name, p) in enumerate(named):
        x = philox.matrix(SEED, i, p.shape[0], math.prod(p.shape[1:]), philox.TEST)
        if p.dim() == 1:
            gain = ("norm" in name or ".ln_" in name or "LayerNorm" in name) and name.endswith(("weight", "gamma"))
            x = x[:, 0] * np.float32(.3) + np.float32(gain * offset + ("q_norm" in name or "k_norm" in name))
        elif any(s in name for s in ("embed", "wte", "wpe", "lm_head")):
            x = x * np.float32(.5)
        elif not any(s in name for s in ("pos_emb", "deltas", ".freq")):  # of Hyena's filters
            fan_in = p.shape[0] if model.config.model_type == "gpt2" else math.prod(p.shape[1:])
            strong = any(s in name for s in ("q_proj", "k_proj", "v_proj", "qkv", "c_attn", "query_key_value", "self.query", "self.key", "self.value"))
            x = x * np.float32((1.7 if strong else 1) / math.sqrt(fan_in))
        p.copy_(torch.tensor(x.astype(np.float64)).reshape(p.shape))
    return named, with_file_tensors(model, tensors) if mixture else model


def round_frequencies(model):
    """Angles are position · frequency, with frequencies rounded to single precision as every implementation keeps them."""
    for module in model.modules():
        for name, x in list(module.named_buffers(recurse=False)):
            if "inv_freq" in name:
                x.copy_(torch.tensor(x.numpy().astype(np.float32).astype(np.float64)))


class Recurrent(torch.nn.Module):
    """A language model of torch.nn.RNN or torch.nn.LSTM, with the names that our files have."""
    def __init__(self, config):
        super().__init__()
        layers = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM}[config["model_type"]]
        width = config.get("input_size", config["hidden_size"])
        self.config = transformers.PretrainedConfig(tie_word_embeddings=False)
        self.config.model_type = config["model_type"]
        self.embedding = torch.nn.Embedding(config["vocab_size"], width)
        self.rnn = layers(width, config["hidden_size"], config["num_layers"], bias=config["bias"], batch_first=True)
        self.lm_head = torch.nn.Linear(config["hidden_size"], config["vocab_size"], bias=config["head_bias"])

    def forward(self, ids):
        return (self.lm_head(self.rnn(self.embedding(ids))[0]),)


def write(name, config, model, named, out):
    with torch.no_grad():
        ids = torch.tensor(philox.below(SEED, 0, philox.TEST, 0, 0, 0, LENGTH, VOCAB))[None]
        more = dict(decoder_input_ids=ids.flip(1)) if config["model_type"] == "t5" else {}
        logits = model(ids, **more)[0][0].numpy()
    shapes = json.dumps([[n, list(p.shape)] for n, p in named])
    save_file({"logits": logits[::EVERY].astype(np.float32).copy()}, os.path.join(out, name + ".safetensors"),
              metadata={"config": json.dumps(config).replace("Infinity", "null"), "tensors": shapes, "context": str(LENGTH)})
    print(f"{name:18} logits deviate by {logits.std():.2f}, range {logits.max() - logits.min():.1f}")


def run_torch(name, config, out):
    kind = {"rwkv5": rwkv.Rwkv, "rwkv6": rwkv.Rwkv, "rwkv7": rwkv.Rwkv7, "hyena": hyena.Hyena, "hyena-order4": hyena.Hyena}.get(name, Recurrent)
    model = kind(config).eval()
    with torch.no_grad():
        named, model = harden(model)
    write(name, config, model, named, out)


def run(name, kind, changes, out):
    config = getattr(transformers, kind)(**{**BASE, **changes})
    if kind == "GPT2Config":
        config = transformers.GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=48, n_layer=3, n_head=6, attn_implementation="eager",
                                         bos_token_id=None, eos_token_id=None, **changes)
    if kind == "T5Config":
        config = transformers.T5Config(vocab_size=VOCAB, d_model=48, d_kv=8, d_ff=80, num_layers=3, num_heads=6, decoder_start_token_id=0, **changes)
        config._attn_implementation = "eager"
    if kind == "T5Config":
        model = transformers.T5ForConditionalGeneration(config).eval()
        if "gated" in name:  # as 1.1 has it; transformers 5 ties what it makes itself
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    else:
        auto = transformers.AutoModel if name == "bert-model" else transformers.AutoModelForMaskedLM if kind == "BertConfig" else \
            transformers.AutoModelForCausalLM
        model = auto.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        named, model = harden(model)
        ids = torch.tensor(philox.below(SEED, 0, philox.TEST, 0, 0, 0, LENGTH, VOCAB))[None]
        inputs = dict(input_ids=ids, decoder_input_ids=ids.flip(1)) if kind == "T5Config" else dict(input_ids=ids)
        model(**inputs)  # some frequencies are set by the first pass
        round_frequencies(model)
    text = config.to_dict()
    if name == "t5-gated":
        text["tie_word_embeddings"] = False
        text.pop("scale_decoder_outputs")
    text.pop("transformers_version", None)
    write(name, text, model, named, out)


for case, (kind, changes) in CASES.items():
    if len(sys.argv) > 2 and case not in sys.argv[2:]:
        continue
    (run_torch(case, changes, sys.argv[1]) if kind == "torch" else run(case, kind, changes, sys.argv[1]))
