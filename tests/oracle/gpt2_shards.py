#!/usr/bin/env python3
"""Makes tests/golden/gpt2-shards: a GPT-2 of random weights as transformers saves it, in several files with an index, and log-probabilities and greedy
tokens that transformers computes of it in double precision.

Weights, gains and biases are large, so that a missing part shows. Needs torch and transformers.
Usage: tests/oracle/gpt2_shards.py  (from the checkout)"""
import json
import pathlib

import torch
from transformers import GPT2Config, GPT2LMHeadModel

out = pathlib.Path("tests/golden/gpt2-shards")
out.mkdir(parents=True, exist_ok=True)
torch.manual_seed(3)
config = GPT2Config(vocab_size=160, n_embd=32, n_layer=2, n_head=4, n_positions=96, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
with torch.no_grad():
    for name, p in model.named_parameters():
        if p.dim() == 1:
            p.copy_(0.3 * torch.randn_like(p) + (1 if "ln" in name and "weight" in name else 0))
        else:
            p.mul_(8)
model.to(torch.bfloat16).save_pretrained(out, max_shard_size="24KB")
(out / "generation_config.json").unlink(missing_ok=True)
keys = ("model_type vocab_size n_embd n_layer n_head n_positions n_inner layer_norm_epsilon activation_function tie_word_embeddings bos_token_id "
        "eos_token_id").split()
full = json.loads((out / "config.json").read_text())
(out / "config.json").write_text(json.dumps({k: full[k] for k in keys if k in full}, indent=1) + "\n")

model = GPT2LMHeadModel.from_pretrained(out, dtype=torch.float64, attn_implementation="eager").eval()
ids = torch.randint(1, 160, (70,)).tolist()
with torch.no_grad():
    logp = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
    scores = [logp[i, t].item() for i, t in enumerate(ids[1:])]
    greedy, gap = list(ids), 1e9
    for _ in range(20):
        top = torch.topk(model(torch.tensor([greedy])).logits[0, -1], 2)
        gap = min(gap, (top.values[0] - top.values[1]).item())
        greedy.append(top.indices[0].item())
(out / "expected.json").write_text(json.dumps({"ids": ids, "log_probs": [round(s, 8) for s in scores], "greedy": greedy[70:]}) + "\n")
print("smallest gap", gap, "files", len(list(out.glob("*.safetensors"))))
