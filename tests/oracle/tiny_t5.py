#!/usr/bin/env python3
"""A tiny encoder-decoder as transformers saves it, for tests/cli/encoder_decoder.bats: tests/golden/tiny-t5.

    python tests/oracle/tiny_t5.py tests/golden/tiny-t5

Weights are random and strong; expected.json holds token ids and what transformers answers, greedily, in double precision (with and without an end).
"""
import json
import os
import sys

import torch
from transformers import T5Config, T5ForConditionalGeneration

out = sys.argv[1]
torch.manual_seed(5)
config = T5Config(vocab_size=61, d_model=24, d_kv=8, d_ff=24, num_layers=2, num_heads=3, num_decoder_layers=2, decoder_start_token_id=0,
                  feed_forward_proj="gated-gelu", tie_word_embeddings=False, relative_attention_num_buckets=12, relative_attention_max_distance=20)
model = T5ForConditionalGeneration(config).eval()
model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
with torch.no_grad():
    for name, p in model.named_parameters():
        p.copy_(torch.randn(p.shape) * (.3 if p.dim() == 1 else 1.3 / p.shape[-1] ** .5) + ("layer_norm" in name))
model.save_pretrained(out)
model.double()
cases = []
for length in (3, 9, 23, 70):
    ids = torch.randint(2, 61, (1, length))
    greedy = dict(max_new_tokens=24, do_sample=False)
    endless = model.generate(ids, suppress_tokens=[1], **greedy)[0, 1:].tolist()
    ended = model.generate(ids, **greedy)[0, 1:].tolist()
    hidden = model.encoder(ids).last_hidden_state[0].mean(0)
    cases.append({"ids": ids[0].tolist(), "endless": endless, "ended": [i for i in ended if i != 1], "mean": hidden.tolist()})
    print(len(set(endless)), len(ended))
with open(os.path.join(out, "expected.json"), "w") as f:
    f.write(json.dumps(cases) + "\n")
