#!/usr/bin/env python3
"""Golden for tests/unit/model/test_config_keys.c: what transformers makes of each key of its configurations.

    python tests/oracle/config_keys.py tests/golden/config_keys.jsonl

A line is a configuration: of each family the class's defaults, and a tiny model. "config" is config.json as transformers saves it; "changes"
gives each key another value, [value, effect]: null (not tried: the defaults), "shape" (other tensors), "logits", "train" (the same logits, but not
with dropout), "init" (other fresh weights), "error" (transformers refuses it) or "none". Keys of other families and of earlier versions, which
this family may ignore, are in "foreign", in the same form: added to "config" without its "rope_parameters", which would go before them.
"""
import json
import sys
import warnings

import torch
import transformers

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

BASE = dict(vocab_size=61, hidden_size=48, intermediate_size=40, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2,
            max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0, head_dim=8)
SIZES = {k: v for k, v in BASE.items() if k != "head_dim"}
EXPERTS = dict(num_experts_per_tok=2, moe_intermediate_size=20)
LATENT = dict(SIZES, **EXPERTS, num_key_value_heads=6, kv_lora_rank=20, q_lora_rank=18, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=12,
              n_routed_experts=6, n_shared_experts=1, first_k_dense_replace=1, n_group=3, topk_group=2)
MAMBA = dict(vocab_size=61, hidden_size=48, state_size=6, num_hidden_layers=3, bos_token_id=1, eos_token_id=2, pad_token_id=0)
FAMILIES = {
    "GPT2Config": dict(vocab_size=61, n_positions=64, n_embd=48, n_layer=3, n_head=6, bos_token_id=1, eos_token_id=2),
    "LlamaConfig": BASE, "MistralConfig": dict(BASE, sliding_window=8), "MixtralConfig": dict(BASE, num_local_experts=5),
    "Qwen2Config": dict(SIZES, sliding_window=8, max_window_layers=2), "Qwen3Config": dict(BASE, sliding_window=8, max_window_layers=2),
    "Qwen3MoeConfig": dict(BASE, **EXPERTS, num_experts=6, sliding_window=8),
    "Gemma2Config": dict(BASE, sliding_window=8), "Gemma3TextConfig": dict(BASE, sliding_window=8, sliding_window_pattern=2),
    "Phi3Config": dict(SIZES, sliding_window=8), "Olmo2Config": SIZES, "SmolLM3Config": SIZES,
    "GPTNeoXConfig": dict({k: v for k, v in SIZES.items() if k != "num_key_value_heads"}, num_attention_heads=2),
    "StableLmConfig": dict(SIZES, num_attention_heads=2),
    "DeepseekV2Config": dict(LATENT, topk_method="group_limited_greedy"), "DeepseekV3Config": LATENT,
    "BertConfig": dict({k: v for k, v in SIZES.items() if k != "num_key_value_heads"}),
    "T5Config": dict(vocab_size=61, d_model=48, d_kv=8, d_ff=40, num_layers=2, num_heads=6),
    "MambaConfig": MAMBA, "Mamba2Config": dict(MAMBA, num_heads=6, head_dim=16, n_groups=2, chunk_size=16),
}
# Keys of other families, and of older versions, that a file of this family may carry.
FOREIGN = {
    "partial_rotary_factor": .5, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 2.0, "sliding_window": 7, "use_sliding_window": True,
    "max_window_layers": 1, "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "query_pre_attn_scalar": 24, "logit_scale": .5,
    "attention_bias": True, "mlp_bias": True, "resid_pdrop": .2, "embd_pdrop": .2, "hidden_dropout": .2, "use_bidirectional_attention": True,
    "scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "mlp_only_layers": [1], "decoder_sparse_step": 2,
    "qk_layernorm": True, "use_parallel_residual": True, "norm_topk_prob": True, "moe_layer_freq": 2, "scoring_func": "sigmoid",
    "routed_scaling_factor": 1.5, "rope_interleave": False, "rope_theta": 500.0, "rope_interleaved": True,
    "rotary_pct": .5, "rotary_emb_base": 500, "no_rope_layer_interval": 2, "num_local_experts": 4, "sliding_window_pattern": 2,
    "router_jitter_noise": .1, "tie_word_embeddings": True, "position_embedding_type": "relative_key",
}
OTHER = {
    "activation_function": "relu", "hidden_act": "relu", "hidden_activation": "relu", "n_inner": 100, "layer_types": None, "num_key_value_heads": 1,
    "feed_forward_proj": "gated-gelu", "topk_method": "greedy", "time_step_rank": 5, "time_step_limit": [0.0, .01], "mlp_only_layers": [1],
    "no_rope_layers": [0, 1, 1, 1], "sliding_window": 5, "n_group": 1, "topk_group": 1, "q_lora_rank": 16, "num_decoder_layers": 1,
    "classifier_dropout": .3, "head_dim": 16, "num_experts_per_tok": 1, "eos_token_id": 5, "bos_token_id": 6, "pad_token_id": 7, "expand": 4,
    "query_pre_attn_scalar": 100, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 2.0, "use_bidirectional_attention": True,
    "original_max_position_embeddings": 20, "intermediate_size": 64, "num_attention_heads": 3, "n_head": 3, "num_heads": 3, "hidden_size": 96,
    "n_embd": 96, "d_model": 96, "dtype": "float16", "architectures": ["Other"], "summary_activation": "tanh", "summary_type": "first",
    "time_step_init_scheme": "constant", "state_size": 8, "n_groups": 1, "qk_rope_head_dim": 8, "problem_type": "regression",
    "time_step_min": .002, "time_step_max": .2, "time_step_floor": 2e-4, "id2label": {"0": "x", "1": "y"}, "label2id": {"x": 0, "y": 1},
}
SKIP = ("model_type", "transformers_version")


def other(key, value):
    if key == "rope_parameters":
        first = next(iter(value.values()))
        if isinstance(first, dict):
            return {k: dict(v, rope_theta=77.0) for k, v in value.items()}
        return dict(value, rope_theta=77.0)
    if key in OTHER:
        return OTHER[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value * 2 if value > 1 else value + 1
    if isinstance(value, float):
        return value * 2 if value else .25
    return "other" if value is None or isinstance(value, str) else value


def model_of(kind, values):
    torch.manual_seed(0)
    if "time_step_limit" in values:  # infinity is an object in JSON
        values = dict(values, time_step_limit=tuple(float("inf") if isinstance(x, dict) else x for x in values["time_step_limit"]))
    config = getattr(transformers, kind)(**{k: v for k, v in values.items() if k not in SKIP})
    config._attn_implementation = "eager"
    auto = transformers.AutoModelForSeq2SeqLM if kind == "T5Config" else transformers.AutoModelForMaskedLM if kind == "BertConfig" \
        else transformers.AutoModelForCausalLM
    return auto.from_config(config, attn_implementation="eager", dtype=torch.float64,
                            **(dict(experts_implementation="eager") if "num_experts_per_tok" in values else {}))


def logits(kind, model, train):
    model.train(train)
    torch.manual_seed(1)
    ids = torch.arange(7, 31)[None] % 61
    with torch.no_grad():
        return model(ids, **(dict(decoder_input_ids=ids) if kind == "T5Config" else {}), use_cache=False).logits


def differ(a, b):
    return bool((a - b).abs().max() > 1e-6 * (b.max() - b.min()))  # more than another order of computing


def harden(state):
    torch.manual_seed(2)
    for p in state.values():
        if p.is_floating_point():
            p += torch.randn_like(p) * (.3 if p.dim() == 1 else .6 / p.shape[-1] ** .5)


def effect(kind, base, values):
    plain, fresh, state, wanted, trained = base
    try:
        model = model_of(kind, values)
    except Exception:
        return "error"
    new = model.state_dict()
    if {k: v.shape for k, v in new.items()} != {k: v.shape for k, v in state.items()}:
        return "shape"
    differs = any(not torch.equal(new[k], fresh[k]) for k in new)
    model.load_state_dict(state)
    try:
        if differ(logits(kind, model, False), wanted):
            return "logits"
        if differ(logits(kind, model, True), trained):
            return "train"
    except Exception:
        return "error"
    return "init" if differs else "none"


def saved(kind, values):
    return json.loads(getattr(transformers, kind)(**values).to_json_string(use_diff=False))


lines = []
for kind, tiny in FAMILIES.items():
    whole = saved(kind, {})
    changes = {k: [other(k, v), None] for k, v in whole.items() if k not in SKIP}
    lines.append(dict(name=kind + ", defaults", config=whole, changes=changes, foreign={}))
    config = saved(kind, tiny)
    model = model_of(kind, config)
    fresh = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        harden(model.state_dict())
    state = {k: v.clone() for k, v in model.state_dict().items()}
    base = (model, fresh, state, logits(kind, model, False), logits(kind, model, True))
    changes = {}
    for k, v in config.items():
        if k in SKIP:
            continue
        new = other(k, v)
        found = effect(kind, base, {**config, k: new})
        if found in ("logits", "none", "init", "train") and k == "tie_word_embeddings":
            found = "shape"  # the same names in memory, not in files
        changes[k] = [new, found]
    old = {k: v for k, v in config.items() if k != "rope_parameters"}
    model = model_of(kind, old)
    model.load_state_dict(state)
    base = (model, fresh, state, logits(kind, model, False), logits(kind, model, True))
    foreign = {k: [v, effect(kind, base, {**old, k: v})] for k, v in FOREIGN.items() if k not in config}
    lines.append(dict(name=kind + ", tiny", config=config, changes=changes, foreign=foreign))
    counts = {}
    for _, e in changes.values():
        counts[e] = counts.get(e, 0) + 1
    print(kind, counts, {k: e for k, (_, e) in foreign.items() if e != "none"}, flush=True)
with open(sys.argv[1], "w") as f:
    for line in lines:
        f.write(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n")
