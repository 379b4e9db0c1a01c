#!/usr/bin/env python3
"""What llm-kvinspect says of a cache, as NumPy computes it from the keys, values and attentions of transformers in FP32.

Usage: tests/oracle/kvinspect.py       (from the checkout: makes tests/golden/kvinspect/expected.json of tests/golden/tiny)
Needs numpy, torch, transformers."""
import json

import numpy as np
import torch
from transformers import AutoModelForCausalLM

IDS = list(range(1, 71))
FILE = "tests/golden/kvinspect/expected.json"


def digits(x):
    return [float("%.8g" % v) for v in np.asarray(x, dtype=np.float64).ravel()]


def spectrum(x):
    """x [tokens, channels]: singular values and the ranks that they say."""
    s = np.linalg.svd(x.astype(np.float64), compute_uv=False)
    p, energy = s / s.sum(), np.cumsum(s ** 2) / (s ** 2).sum()
    return dict(values=digits(s), effective_rank=float(np.exp(-(p * np.log(p)).sum())), stable_rank=float((s ** 2).sum() / s[0] ** 2),
                rank_90=int(np.argmax(energy >= .9)) + 1, rank_99=int(np.argmax(energy >= .99)) + 1)


def main():
    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained("tests/golden/tiny", dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        out = model(torch.tensor([IDS]), use_cache=True, output_attentions=True)
    layers = [(layer.keys[0].numpy(), layer.values[0].numpy()) for layer in out.past_key_values.layers]
    spectra = []
    for number, pair in enumerate(layers):
        for head in range(pair[0].shape[0]):
            for name, x in zip("kv", pair):
                for centred in False, True:
                    y = x[head] - x[head].mean(0) if centred else x[head]
                    spectra.append(dict(layer=number, kv_head=head, tensor=name, centred=centred, **spectrum(y)))
    # where the last 8 queries look: [layer][head][8, 70]
    attention = [[digits(a[0, h, -8:]) for h in range(a.shape[1])] for a in out.attentions]
    with open(FILE, "w") as f:
        json.dump(dict(ids=IDS, spectrum=spectra, attention=attention), f, separators=(",", ":"))
        f.write("\n")


main()
