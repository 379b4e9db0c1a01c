#!/usr/bin/env python3
"""What llm-kvinspect says of a cache, as NumPy computes it from the keys, values and attentions of transformers in FP32.

Usage: tests/oracle/kvinspect.py       (from the checkout: makes tests/golden/kvinspect/expected.json of tests/golden/tiny)
Needs gguf, numpy, torch, transformers."""
import json

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward

IDS = list(range(1, 71))
TRACED, HOLD, MORE = 40, 10, [5, 6, 7, 8]
FILE = "tests/golden/kvinspect/expected.json"


def digits(x):
    return [float("%.8g" % v) for v in np.asarray(x, dtype=np.float64).ravel()]


def spectrum(x):
    """x [tokens, channels]: singular values and the ranks that they say."""
    s = np.linalg.svd(x.astype(np.float64), compute_uv=False)
    p, energy = s / s.sum(), np.cumsum(s ** 2) / (s ** 2).sum()
    return dict(values=digits(s), effective_rank=float(np.exp(-(p * np.log(p)).sum())), stable_rank=float((s ** 2).sum() / s[0] ** 2),
                rank_90=int(np.argmax(energy >= .9)) + 1, rank_99=int(np.argmax(energy >= .99)) + 1)


def traced(model, ids):
    """The model's logits, and the rotated queries [heads, tokens, d] of each layer."""
    queries, n = [], len(ids)
    causal = torch.full((1, 1, n, n), torch.finfo(torch.float32).min).triu(1)

    def attend(module, query, key, value, mask, **more):
        queries.append(query[0].numpy().copy())
        return eager_attention_forward(module, query, key, value, causal, **more)
    ALL_ATTENTION_FUNCTIONS["traced"] = attend
    model.set_attn_implementation("traced")
    with torch.no_grad():
        out = model(torch.tensor([ids]))
    model.set_attn_implementation("eager")
    return out.logits, queries


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def probabilities(q, k, first):
    """q [queries, d] of the tokens from `first` on, k [tokens, d]: in double."""
    s = q.astype(np.float64) @ k.astype(np.float64).T / np.sqrt(q.shape[1])
    s[np.arange(k.shape[0])[None] > first + np.arange(q.shape[0])[:, None]] = -np.inf
    return softmax(s)


def kept(method, keep, p, end):
    """The tokens before `end` that one head of keys keeps; p [heads, queries, tokens]: what its queries before `end` look at."""
    keep = min(keep, end)
    half = max(1, keep // 2)
    if method == "window":
        return list(range(end - keep, end))
    if method == "sinks":
        first = min(4, keep - 1)
        return list(range(first)) + list(range(end - keep + first, end))
    if method == "h2o":  # one query after another, over what the ones before have left
        got, left = np.zeros(end), list(range(end - p.shape[1]))
        for t in range(end - p.shape[1], end):
            left.append(t)
            now = p[:, t - end, left]
            got[left] += (now / now.sum(1, keepdims=True)).sum(0)
            while len(left) > keep:
                left.remove(min((i for i in left if i <= t - half), key=lambda i: (got[i], i)))
        return left
    recent = min(half, 32)
    old = end - recent
    score = p[:, -32:, :end].sum((0, 1))
    score = np.array([score[max(0, i - 3):min(old, i + 4)].max() for i in range(old)])  # the largest of seven neighbours
    best = sorted(range(old), key=lambda i: (-score[i], i))[:keep - recent]
    return sorted(best) + list(range(old, end))


def evicted(model, layers, queries):
    """What each method keeps; what is lost of the last HOLD queries; log-probabilities of MORE over the cache that is left."""
    n, rows, losses = len(IDS), [], []
    maps = [[probabilities(q[h, n - TRACED:], k[0], n - TRACED) for h in range(q.shape[0])] for q, (k, _) in zip(queries, layers)]
    for method in "window", "sinks", "h2o", "snapkv":
        for keep in 7, 24:
            for layer, (_, v) in enumerate(layers):
                rest = kept(method, keep, np.array(maps[layer])[:, :TRACED - HOLD], n - HOLD)
                for h, p in enumerate(maps[layer]):
                    mask = np.zeros(n)
                    mask[rest] = mask[n - HOLD:] = 1
                    part = p[TRACED - HOLD:] * mask
                    mass, o = part.sum(1), p[TRACED - HOLD:] @ v[0].astype(np.float64)
                    d = part @ v[0].astype(np.float64) / mass[:, None] - o
                    losses.append(dict(method=method, keep=keep, layer=layer, head=h, lost=float((1 - mass).mean()),
                                       kl=float(-np.log(mass).mean()), output_error=float(np.sqrt((d ** 2).sum() / (o ** 2).sum()))))
            choice = [kept(method, keep, np.array(m), n) for m in maps]
            cache = DynamicCache()
            for layer, (k, v) in enumerate(layers):
                at = choice[layer][:-1]  # the last token is run again
                cache.update(torch.tensor(k[:, at])[None], torch.tensor(v[:, at])[None], layer)
            ids = IDS[-1:] + MORE
            with torch.no_grad():
                out = model(torch.tensor([ids]), past_key_values=cache, position_ids=torch.arange(n - 1, n - 1 + len(ids))[None])
            log_p = out.logits[0].double().log_softmax(-1)
            rows.append(dict(method=method, keep=keep, kept=choice, log_prob=digits([log_p[i, t] for i, t in enumerate(MORE)])))
    return rows, losses


def joined(model):
    """Keys of a second text, rotated as if it stood after a first that it does not see; log-probabilities of MORE over both."""
    first, second = IDS[:30], IDS[40:60]
    n, keys, cache = len(first), [], DynamicCache()
    with torch.no_grad():
        a = model(torch.tensor([first]), use_cache=True).past_key_values
        b = model(torch.tensor([second]), position_ids=torch.arange(n, n + len(second))[None], use_cache=True).past_key_values
        for layer, (x, y) in enumerate(zip(a.layers, b.layers)):
            keys.append(digits(y.keys[0, 0]))
            cache.update(torch.cat([x.keys, y.keys[:, :, :-1]], 2), torch.cat([x.values, y.values[:, :, :-1]], 2), layer)
        ids = second[-1:] + MORE
        out = model(torch.tensor([ids]), past_key_values=cache, position_ids=torch.arange(n + len(second) - 1, n + len(second) - 1 + len(ids))[None])
    log_p = out.logits[0].double().log_softmax(-1)
    return dict(first=first, second=second, keys=keys, log_prob=digits([log_p[i, t] for i, t in enumerate(MORE)]))


def rounded(layers, queries):
    """Attention of the traced queries with rounded keys and values."""
    types = {"f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "q4_0": "Q4_0"}
    n, out = len(IDS), []
    for name, kind in types.items():
        kind = gguf.GGMLQuantizationType[kind]

        def store(x):
            if name == "f16":
                return x.astype(np.float16).astype(np.float32)
            return gguf.dequantize(gguf.quantize(np.ascontiguousarray(x), kind), kind)
        for layer, (k, v) in enumerate(layers):
            k, v, rk, rv = k[0], v[0], store(k[0]), store(v[0])
            for h, q in enumerate(queries[layer]):
                p, r = (probabilities(q[n - TRACED:], x, n - TRACED) for x in (k, rk))
                o, d = p @ v.astype(np.float64), p @ v.astype(np.float64) - r @ rv.astype(np.float64)
                with np.errstate(divide="ignore", invalid="ignore"):
                    kl = np.where(p > 0, p * np.log(p / r), 0).sum(1)
                size = lambda x: np.sqrt((x.astype(np.float64) ** 2).sum())
                out.append(dict(type=name, layer=layer, head=h, kl=float(kl.mean()), output_error=float(size(d) / size(o)),
                                k_error=float(size(k - rk) / size(k)), v_error=float(size(v - rv) / size(v))))
    return out


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
    logits, queries = traced(model, IDS)
    assert (logits - out.logits).abs().max() < 1e-5
    rows, losses = evicted(model, layers, queries)
    with open(FILE, "w") as f:
        json.dump(dict(ids=IDS, spectrum=spectra, attention=attention, traced=TRACED, hold=HOLD, more=MORE, evict=rows, loss=losses,
                       quant=rounded(layers, queries), join=joined(model)), f, separators=(",", ":"))
        f.write("\n")


main()
