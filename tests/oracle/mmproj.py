#!/usr/bin/env python3
"""The golden LLaVA 1.5, LLaVA-NeXT and Idefics 3 as llama.cpp has them: a GGUF file of the language model and an mmproj file, with the names and keys of
its converters. LLaVA's are those of the older converter, which names the matrices of a feed-forward part the other way round and leaves out what follows
the layer that is chosen. Weights are F32, so that results are those of the folders.

    python3 tests/oracle/mmproj.py tests/golden/mmproj

Needs gguf, safetensors, numpy."""
import json
import os
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

folder = sys.argv[1]
golden = os.path.join(folder, "..")
os.makedirs(folder, exist_ok=True)
OLD = {"layer_norm1": "ln1", "layer_norm2": "ln2", "mlp.fc1": "ffn_down", "mlp.fc2": "ffn_up", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
       "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out"}
NEW = OLD | {"mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
TEXT = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm"}


def layer(name, prefix, to, names):
    number, rest = name.removeprefix(prefix).split(".", 1)
    stem, suffix = rest.rsplit(".", 1)
    return f"{to}{number}.{names[stem]}.{suffix}"


def rotated(w, heads):
    return np.ascontiguousarray(w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape))


def write_text(path, config, weights, prefix, head, tokens, types, merges):
    t = config["text_config"]
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(t["max_position_embeddings"])
    out.add_embedding_length(t["hidden_size"])
    out.add_block_count(t["num_hidden_layers"])
    out.add_feed_forward_length(t["intermediate_size"])
    out.add_head_count(t["num_attention_heads"])
    out.add_head_count_kv(t["num_key_value_heads"])
    out.add_key_length(t["head_dim"])
    out.add_value_length(t["head_dim"])
    out.add_rope_dimension_count(t["head_dim"])
    out.add_layer_norm_rms_eps(t["rms_norm_eps"])
    rope = t["rope_parameters"]
    out.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        out.add_rope_scaling_factor(rope["factor"])
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(tokens)
    out.add_token_types(types)
    out.add_token_merges(merges)
    out.add_eos_token_id(t["eos_token_id"])
    for name, w in weights.items():
        if name.startswith(prefix + "layers."):
            heads = t["num_attention_heads"] if ".q_proj." in name else t["num_key_value_heads"] if ".k_proj." in name else 0
            out.add_tensor(layer(name, prefix + "layers.", "blk.", TEXT), rotated(w, heads) if heads else w)
        elif name.startswith(prefix) or name == head:
            out.add_tensor({prefix + "embed_tokens.weight": "token_embd.weight", prefix + "norm.weight": "output_norm.weight",
                            head: "output.weight"}[name], w)
    finish(out)


def finish(out):
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def begin_mmproj(path, config, kind, layers, preprocessor):
    v = config["vision_config"]
    out = gguf.GGUFWriter(path, "clip")
    out.add_bool("clip.has_vision_encoder", True)
    out.add_string("clip.projector_type", kind)
    for key, value in {"image_size": v["image_size"], "patch_size": v["patch_size"], "embedding_length": v["hidden_size"],
                       "feed_forward_length": v["intermediate_size"], "projection_dim": 768, "block_count": layers,
                       "attention.head_count": v["num_attention_heads"]}.items():
        out.add_uint32(f"clip.vision.{key}", value)
    out.add_float32("clip.vision.attention.layer_norm_epsilon", v["layer_norm_eps"])
    out.add_array("clip.vision.image_mean", preprocessor["image_mean"])
    out.add_array("clip.vision.image_std", preprocessor["image_std"])
    return out


def load(name):
    here = os.path.join(golden, name)
    return [json.load(open(os.path.join(here, f))) for f in ("config.json", "preprocessor_config.json")] + [
        load_file(os.path.join(here, "model.safetensors"))]


def llava(name, to, newline):
    config, preprocessor, weights = load(name)
    weights = {n.replace("vision_tower.vision_model.", "vision_tower.").replace("vision_tower.", "vision_tower.vision_model."): w for n, w in weights.items()}
    n = config["text_config"]["vocab_size"]
    tokens = [chr(ord("a") + i if i < 26 else ord("A") + i - 26) for i in range(n)]
    tokens[40] = "ab"
    tokens[config["image_token_index"]] = "<image>"
    types = [gguf.TokenType.CONTROL if t == "<image>" else gguf.TokenType.NORMAL for t in tokens]
    write_text(os.path.join(folder, to + ".gguf"), config, weights, "language_model.model.", "language_model.lm_head.weight", tokens, types, ["a b"])
    kept = config["vision_config"]["num_hidden_layers"] - 1
    out = begin_mmproj(os.path.join(folder, to + "-mmproj.gguf"), config, "mlp", kept, preprocessor)
    out.add_bool("clip.has_text_encoder", False)
    out.add_bool("clip.has_llava_projector", True)
    out.add_bool("clip.use_gelu", False)
    if newline:
        out.add_array("clip.vision.image_grid_pinpoints", [side for grid in config["image_grid_pinpoints"] for side in grid])
        out.add_string("clip.vision.mm_patch_merge_type", "spatial_unpad")
        out.add_tensor("model.image_newline", weights["image_newline"])
    v = "vision_tower.vision_model."
    for name, w in weights.items():
        if name.startswith("multi_modal_projector."):
            out.add_tensor(name.replace("multi_modal_projector.linear_1", "mm.0").replace("multi_modal_projector.linear_2", "mm.2"), w)
        elif name.startswith(v + "encoder.layers."):
            if int(name.split(".")[4]) < kept:
                out.add_tensor(layer(name, v + "encoder.layers.", "v.blk.", OLD), w)
        elif name.startswith(v) and "post_layernorm" not in name:
            out.add_tensor({"embeddings.class_embedding": "v.class_embd", "embeddings.patch_embedding.weight": "v.patch_embd.weight",
                            "embeddings.position_embedding.weight": "v.position_embd.weight", "pre_layrnorm.weight": "v.pre_ln.weight",
                            "pre_layrnorm.bias": "v.pre_ln.bias"}[name.removeprefix(v)], w)
    finish(out)


def idefics3():
    config, preprocessor, weights = load("idefics3/smolvlm")
    tokenizer = json.load(open(os.path.join(golden, "idefics3", "smolvlm", "tokenizer.json")))
    tokens = [f"[UNUSED_{i}]" for i in range(config["text_config"]["vocab_size"])]
    types = [gguf.TokenType.UNUSED] * len(tokens)
    for token, i in tokenizer["model"]["vocab"].items():
        tokens[i], types[i] = token, gguf.TokenType.NORMAL
    for token in tokenizer["added_tokens"]:
        tokens[token["id"]], types[token["id"]] = token["content"], gguf.TokenType.CONTROL
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    write_text(os.path.join(folder, "smolvlm.gguf"), config, weights, "model.text_model.", "lm_head.weight", tokens, types, merges)
    out = begin_mmproj(os.path.join(folder, "smolvlm-mmproj.gguf"), config, "idefics3", config["vision_config"]["num_hidden_layers"], preprocessor)
    out.add_type(gguf.GGUFType.MMPROJ)
    out.add_uint32("clip.vision.projector.scale_factor", config["scale_factor"])
    out.add_uint32("clip.vision.preproc_image_size", preprocessor["size"]["longest_edge"])
    out.add_bool("clip.use_gelu", True)
    v = "model.vision_model."
    for name, w in weights.items():
        if name.startswith(v + "encoder.layers."):
            out.add_tensor(layer(name, v + "encoder.layers.", "v.blk.", NEW), w)
        elif name.startswith(v):
            out.add_tensor(name.removeprefix(v).replace("embeddings.patch_embedding", "v.patch_embd")
                           .replace("embeddings.position_embedding", "v.position_embd").replace("post_layernorm", "v.post_ln"), w)
        elif name.startswith("model.connector."):
            out.add_tensor("mm.model.fc.weight", w)
    finish(out)


llava("llava", "llava", False)
llava("llava_next/llama", "llava_next", True)
idefics3()
