#!/usr/bin/env python3
"""The reference of peer_infer.py: a GGUF file's weights, dequantised by the gguf package and run by transformers, in FP32.

As a program, in FP64: checks greedy continuations. Standard input: {"model": FILE, "runs": [{"prompt": [ids], "ids": [ids], "ended": bool}, ...]}.
Standard output: {"positions": N, "ties": N, "wrong": [[run, position, gap], ...]}: where the reference's best token is another one. Its own two best
differ by no more than 1e-3 at a tie. What stands behind a token that is not the reference's is checked too, given what stands before it."""
import json
import sys

import numpy as np
import torch

if __name__ == "__main__":  # what transformers casts to single precision stays double
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)

import re

from gguf import GGUFReader
from gguf.quants import dequantize
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
         "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_norm": "post_attention_layernorm"}
GEMMA = {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
CONTROL = 3  # a token type of GGUF


def halves(rows, heads):
    """Rows of q and k as llama.cpp orders them for the Llama family (pairs beside each other), back in halves."""
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


class Reference:
    def __init__(self, path):
        reader = GGUFReader(path)
        field = {name: f.contents() for name, f in reader.fields.items()}
        arch = field["general.architecture"]
        self.gemma, get = arch == "gemma3", lambda key, other=None: field.get(f"{arch}.{key}", other)
        self.control = {i for i, kind in enumerate(field["tokenizer.ggml.token_type"]) if kind == CONTROL}
        heads, width = get("attention.head_count"), get("embedding_length")
        common = dict(vocab_size=len(field["tokenizer.ggml.tokens"]), hidden_size=width, intermediate_size=get("feed_forward_length"),
                      num_hidden_layers=get("block_count"), num_attention_heads=heads, num_key_value_heads=get("attention.head_count_kv"),
                      head_dim=get("attention.key_length", width // heads), max_position_embeddings=get("context_length"),
                      rms_norm_eps=get("attention.layer_norm_rms_epsilon"), tie_word_embeddings=True, attn_implementation="eager")
        base = get("rope.freq_base", 10000.0)
        if self.gemma:
            ropes = {"full_attention": {"rope_type": "default", "rope_theta": base}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
            kinds = ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(common["num_hidden_layers"])]
            config = Gemma3TextConfig(**common, rope_parameters=ropes, layer_types=kinds, sliding_window=get("attention.sliding_window"),
                                      query_pre_attn_scalar=common["head_dim"])
            self.model = Gemma3ForCausalLM(config)
        else:
            config = LlamaConfig(**common, rope_parameters={"rope_type": "default", "rope_theta": base})
            self.model = LlamaForCausalLM(config)
        state = {self.name(t.name): self.weight(t, heads, common["num_key_value_heads"]) for t in reader.tensors}
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
        self.model.load_state_dict(state)
        self.model.eval()

    def name(self, name):
        whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
        if name in whole:
            return whole[name]
        layer, part = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name).groups()
        return f"model.layers.{layer}.{GEMMA.get(part, LAYER.get(part)) if self.gemma else LAYER[part]}.weight"

    def weight(self, t, heads, kv_heads):
        data = dequantize(t.data, t.tensor_type).astype(np.float32).reshape(tuple(int(n) for n in reversed(t.shape)))
        if self.gemma and data.ndim == 1:
            data = data - np.float32(1)  # GGUF holds 1 + w
        if not self.gemma and (t.name.endswith("attn_q.weight") or t.name.endswith("attn_k.weight")):
            data = halves(data, heads if t.name.endswith("attn_q.weight") else kv_heads)
        return torch.from_numpy(np.ascontiguousarray(data))

    @torch.no_grad()
    def hidden(self, ids):
        return self.model.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[0]

    @torch.no_grad()
    def logits(self, hidden):
        return self.model.lm_head(hidden).numpy()


def check(request):
    reference = Reference(request["model"])
    answer = {"positions": 0, "ties": 0, "wrong": []}
    for i, run in enumerate(request["runs"]):
        n, ids = len(run["prompt"]), run["ids"]
        rows = reference.logits(reference.hidden(run["prompt"] + ids)[n - 1 : n + len(ids) - (not run["ended"])])
        for at, row in enumerate(rows):
            second, best = np.partition(row, -2)[-2:]
            same = row.argmax() == ids[at] if at < len(ids) else int(row.argmax()) in reference.control
            answer["positions"] += 1
            answer["ties"] += bool(best - second <= 1e-3)
            if not same and best - second > 1e-3:
                answer["wrong"].append([i, at, float(best - second)])
    return answer


if __name__ == "__main__":
    json.dump(check(json.load(sys.stdin)), sys.stdout)
