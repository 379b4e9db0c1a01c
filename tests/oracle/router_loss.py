#!/usr/bin/env python3
"""Golden for tests/unit/train/test_router_loss.c: gradients of a small Mixtral whose loss is that of the tokens and a strong auxiliary loss by
transformers' load_balancing_loss_func, of one row, in double precision.

    python tests/oracle/router_loss.py tests/golden/train/mixtral

Writes a model folder (config.json, model.safetensors) and gradients.safetensors, with the names that files have; its metadata has the auxiliary loss
by the number of experts of a token. The tokens are those that llm-train invents without data.
"""
import json
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
from safetensors.torch import load_file
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

sys.path.insert(0, os.path.dirname(__file__))
import philox

SEED, LENGTH, VOCAB, COEF = 29, 48, 31, 3.0


def file_tensors(model):
    """Names as files have them: transformers keeps the matrices of all experts as one, files do not."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return {n: x.numpy().astype(np.float32) for n, x in sorted(load_file(os.path.join(folder, "model.safetensors")).items())}


config = transformers.MixtralConfig(
    vocab_size=VOCAB, hidden_size=16, intermediate_size=12, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=4,
    max_position_embeddings=64, num_local_experts=4, num_experts_per_tok=2, router_aux_loss_coef=COEF, attn_implementation="eager", experts_implementation="eager",
    bos_token_id=None, eos_token_id=None, pad_token_id=None)
model = transformers.MixtralForCausalLM(config)
with torch.no_grad():
    for i, (name, p) in enumerate(sorted(model.named_parameters())):
        x = philox.matrix(SEED, i, p.shape[0], max(1, p[0].numel()), philox.TEST).astype(np.float32)
        x = x * np.float32(.3) + np.float32(1) if p.dim() == 1 else x * np.float32(1.2 / np.sqrt(p.shape[-1]))
        p.copy_(torch.tensor(x.astype(np.float32).astype(np.float64)).reshape(p.shape))
ids = torch.tensor(philox.below(SEED, 0, philox.TEST, 0, 0, 0, LENGTH + 1, VOCAB))
out = model(ids[None, :LENGTH], output_router_logits=True)
aux = load_balancing_loss_func(out.router_logits, config.num_local_experts, config.num_experts_per_tok)
apart = sum(load_balancing_loss_func((x,), config.num_local_experts, config.num_experts_per_tok) for x in out.router_logits)
loss = torch.nn.functional.cross_entropy(out.logits[0], ids[1:])
(loss + COEF * aux).backward()

os.makedirs(sys.argv[1], exist_ok=True)
text = {k: v for k, v in config.to_dict().items() if k not in ("transformers_version", "dtype")}
with open(os.path.join(sys.argv[1], "config.json"), "w") as f:
    json.dump({**text, "architectures": ["MixtralForCausalLM"]}, f, indent=1)
save_file(file_tensors(model), os.path.join(sys.argv[1], "model.safetensors"), metadata={"format": "pt"})
with torch.no_grad():
    for p in model.parameters():
        p.copy_(p.grad)
save_file(file_tensors(model), os.path.join(sys.argv[1], "gradients.safetensors"),
          metadata={"balance": repr(float(aux.detach()) / config.num_experts_per_tok), "loss": repr(float(loss.detach()))})
print(f"loss {loss.item():.6f}, auxiliary loss {aux.item():.6f} (summed over layers {apart.item():.6f})")
