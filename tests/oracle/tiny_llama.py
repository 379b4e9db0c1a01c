#!/usr/bin/env python3
"""Makes tests/golden/tiny: a Llama of 34 thousand random parameters in BF16 with a byte-level tokenizer, as a Hugging Face folder, and what transformers
computes of it in double precision: log-probabilities of every token of a prompt, its last logits, greedy tokens behind it.

Gains are random and attention scores are spread widely, so that a missing part shows. Needs torch, transformers, tokenizers.
Usage: tests/oracle/tiny_llama.py  (from the checkout)"""
import json
import pathlib

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

out = pathlib.Path("tests/golden/tiny")
out.mkdir(parents=True, exist_ok=True)
text = ("Once upon a time there was a little cat. The cat had a red ball. She liked to play with the ball in the garden. "
        "One day the ball was gone. Where is my ball? said the cat. ") * 3

tok = Tokenizer(models.BPE())
tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tok.decoder = decoders.ByteLevel()
tok.train_from_iterator([text], trainers.BpeTrainer(
    vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
tok.save(str(out / "tokenizer.json"), pretty=False)

torch.manual_seed(1)
config = LlamaConfig(vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                     head_dim=32, max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True,
                     bos_token_id=None, eos_token_id=0, initializer_range=0.25, attn_implementation="eager")
model = LlamaForCausalLM(config)
with torch.no_grad():
    for name, p in model.named_parameters():
        if p.dim() == 1:
            p.copy_(0.5 + torch.rand_like(p))
        elif "q_proj" in name or "k_proj" in name:
            p.mul_(1.5)
model = model.to(torch.bfloat16)
model.save_pretrained(out, safe_serialization=True)
for extra in ("generation_config.json",):
    (out / extra).unlink(missing_ok=True)
keys = ("architectures model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
        "max_position_embeddings rms_norm_eps rope_theta hidden_act tie_word_embeddings bos_token_id eos_token_id attention_bias mlp_bias").split()
full = json.loads((out / "config.json").read_text())
full.setdefault("rope_theta", 10000.0)
(out / "config.json").write_text(json.dumps({k: full[k] for k in keys if k in full}, indent=1) + "\n")

# Read again: the cast to BF16 took the rotary frequencies with it.
model = LlamaForCausalLM.from_pretrained(out, dtype=torch.float64, attn_implementation="eager").eval()
prompt = "Once upon a time there was a red cat. She liked the garden."
ids = tok.encode(prompt).ids
with torch.no_grad():
    logits = model(torch.tensor([ids])).logits[0]
    logp = torch.log_softmax(logits, -1)
    scores = [logp[i, t].item() for i, t in enumerate(ids[1:])]
    greedy, gaps = list(ids), []
    for _ in range(24):
        last = model(torch.tensor([greedy])).logits[0, -1]
        top = torch.topk(last, 2)
        gaps.append((top.values[0] - top.values[1]).item())
        greedy.append(top.indices[0].item())
(out / "expected.json").write_text(json.dumps({
    "prompt": prompt, "ids": ids, "log_probs": [round(x, 9) for x in scores], "last_logits": [round(x, 7) for x in logits[-1].tolist()],
    "greedy": greedy[len(ids):], "smallest_gap": min(gaps)}) + "\n")
print("spread of logits", logits.std().item(), "smallest gap", min(gaps), greedy[len(ids):])
