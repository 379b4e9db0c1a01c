#!/usr/bin/env python3
"""Golden for tests/unit/model/test_rope_keys.c: the rotary frequencies that transformers computes from "rope_scaling" and "rope_parameters", one or
both, flat or with an object for each kind of layer, and the keys beside them.

    python tests/oracle/rope_keys.py tests/golden/rope_keys.jsonl [SEED [ROWS]]

A line is a random configuration of a tiny model and what its rotary embedding holds: "global" and, where local layers have their own, "local";
"scale" is the factor of DeepSeek's scores. Configurations that transformers cannot run are left out, as are those with scaled local layers.
"""
import copy
import json
import random
import sys
import warnings

import torch
import transformers

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

HEAD = 8
SIZES = dict(vocab_size=61, hidden_size=48, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LATENT = dict(SIZES, num_key_value_heads=6, kv_lora_rank=20, q_lora_rank=18, qk_nope_head_dim=10, qk_rope_head_dim=HEAD, v_head_dim=12,
              n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=20, first_k_dense_replace=1, n_group=3,
              topk_group=2)
FAMILIES = {
    "LlamaConfig": SIZES, "MistralConfig": SIZES, "MixtralConfig": dict(SIZES, num_experts_per_tok=2, num_local_experts=4), "Qwen2Config": SIZES,
    "Qwen3Config": dict(SIZES, head_dim=HEAD),
    "Qwen3MoeConfig": dict(SIZES, num_experts_per_tok=2, head_dim=HEAD, num_experts=4, moe_intermediate_size=20),
    "Gemma2Config": dict(SIZES, head_dim=HEAD), "Gemma3TextConfig": dict(SIZES, head_dim=HEAD, num_hidden_layers=6), "Phi3Config": SIZES,
    "SmolLM3Config": SIZES, "Olmo2Config": SIZES, "GPTNeoXConfig": {k: v for k, v in SIZES.items() if k != "num_key_value_heads"},
    "StableLmConfig": SIZES, "DeepseekV2Config": dict(LATENT, topk_method="group_limited_greedy"), "DeepseekV3Config": LATENT,
    "LlavaConfig": SIZES,
}
TOWER = dict(model_type="clip_vision_model", hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, image_size=8,
             patch_size=4, projection_dim=16)


def chance(p):
    return random.random() < p


def scaling(kind, partial):
    phi3, channels = kind == "Phi3Config", int(HEAD * partial)
    word = random.choice(["longrope", "longrope", "su", "yarn", "default"] if phi3 else
                         ["linear", "linear", "default", "dynamic", "yarn", "llama3", "longrope"])
    o = {k: word for k in random.choice([["type"], ["rope_type"], ["rope_type"], ["type", "rope_type"]])}
    if word in ("linear", "dynamic", "yarn", "llama3"):
        o["factor"] = random.choice([2.0, 4.0, 8.0, 1.0])
    if word in ("yarn", "llama3", "longrope", "su") and chance(.7):
        o["original_max_position_embeddings"] = random.choice([16, 32, 48])
    if word == "llama3":
        o.update(low_freq_factor=1.0, high_freq_factor=random.choice([2.0, 4.0]))
    if word == "yarn":
        for key, value in (("beta_fast", 16.0), ("truncate", False), ("mscale_all_dim", 1.0)):
            if chance(.25):
                o[key] = value
        if chance(.3):
            o.update(mscale=1.0, mscale_all_dim=random.choice([.5, .8, .0]))
        elif chance(.3):
            o["attention_factor"] = 1.25
    if word in ("longrope", "su") or (phi3 and word == "yarn"):
        o.update(short_factor=[round(1 + i / 10, 2) for i in range(channels // 2)], long_factor=[2.0 + i for i in range(channels // 2)])
        if chance(.3):
            o["factor"] = 4.0
    if chance(.5):
        o["rope_theta"] = random.choice([77.0, 500.0, 10000.0])
    if chance(.15 if partial == 1 else .3):
        o["partial_rotary_factor"] = partial
    return o


def keys(kind):
    """What a configuration of the family says of rotary positions."""
    o, partial = {}, {"GPTNeoXConfig": .25, "StableLmConfig": .25}.get(kind, 1.0)
    if kind != "LlavaConfig" and chance(.25):  # there it is refused by name
        o["partial_rotary_factor"] = random.choice([.5, 1.0])
        if kind in ("StableLmConfig", "Phi3Config"):
            partial = o["partial_rotary_factor"]
    if kind == "GPTNeoXConfig" and chance(.4):
        o["rotary_pct"] = partial = random.choice([.5, 1.0])
    for key, values, p in (("rotary_emb_base", [300, 10000], .4 * (kind == "GPTNeoXConfig")), ("rope_theta", [123.0, 2000.0, 1000000.0], .5),
                           ("rope_local_base_freq", [55.0, 20000.0], .4 * (kind == "Gemma3TextConfig")),
                           ("original_max_position_embeddings", [20, 40], .6 if kind == "Phi3Config" else .3)):
        if chance(p):
            o[key] = random.choice(values)

    def nested():
        local = [lambda: {"rope_type": "default", "rope_theta": random.choice([44.0, 33.0])}, lambda: None, lambda: {"rope_type": "default"}]
        return {k: random.choice(local + ([lambda: scaling(kind, partial)] * 3 if k == "full_attention" else []))()
                for k in ("full_attention", "sliding_attention") if chance(.85)}

    def flat():
        return scaling(kind, partial)
    if chance(.85):
        o["rope_parameters"] = random.choice([flat, nested if kind == "Gemma3TextConfig" or chance(.3) else flat, lambda: None, lambda: {}])()
    if chance(.6):
        o["rope_scaling"] = random.choice([flat, flat, flat, lambda: None, lambda: {}])()
    if kind in ("SmolLM3Config", "Qwen2Config", "Qwen3Config", "Gemma2Config") and chance(.2):
        o["layer_types"] = ["full_attention"] * FAMILIES[kind]["num_hidden_layers"]
    return o


def configuration(kind):
    o = dict(FAMILIES[kind], **keys(kind))
    if kind != "LlavaConfig":
        return o
    text = {k: v for k, v in o.items() if k not in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return dict(text_config=dict(text, model_type=random.choice(["llama", "mistral", "qwen2"])), vision_config=TOWER, image_token_index=60,
                vision_feature_layer=-1)


def short(x):
    return float(f"{float(x):.9g}")


def wanted(kind, values):
    config = getattr(transformers, kind)(**copy.deepcopy(values))
    auto = transformers.AutoModelForImageTextToText if kind == "LlavaConfig" else transformers.AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        model(torch.arange(5, 11)[None])
    rotary = next(m for n, m in model.named_modules() if n.endswith("rotary_emb"))
    parameters, out = config.get_text_config().rope_parameters, {}
    for layers in ("", "full_attention", "sliding_attention"):
        of = layers and layers + "_"
        if not hasattr(rotary, of + "inv_freq"):
            continue
        p = parameters[layers] if layers else parameters
        out["local" if layers == "sliding_attention" else "global"] = dict(
            inv_freq=[short(x) for x in getattr(rotary, of + "inv_freq")], magnitude=short(getattr(rotary, of + "attention_scaling")),
            **(dict(original=p["original_max_position_embeddings"]) if p["rope_type"] == "longrope" else {}))
    if "Deepseek" in kind:
        out["scale"] = short(model.model.layers[0].self_attn.scaling)
    return out


random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
with open(sys.argv[1], "w") as f:
    for kind in FAMILIES:
        rows = 0
        while rows < (int(sys.argv[3]) if len(sys.argv) > 3 else 12):
            values = configuration(kind)
            try:
                found = wanted(kind, values)
            except Exception:
                continue
            line = dict(config=dict(values, model_type=getattr(transformers, kind).model_type, transformers_version=transformers.__version__),
                        wanted=found)
            f.write(json.dumps(line, separators=(",", ":")) + "\n")
            rows += 1
