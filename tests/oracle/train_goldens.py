#!/usr/bin/env python3
"""Goldens for tests/unit/train/test_oracle.c: logits, loss, every gradient (norm and 64 random projections) and a 20-step loss curve of a GPT-2-shaped and
of a Llama-shaped model with hard weights, by PyTorch in double precision. The models are written out here from their
formulas; transformers, in single precision, must agree with them.

    python tests/oracle/train_goldens.py tests/golden/train
"""
import json
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

sys.path.insert(0, os.path.dirname(__file__))
import philox

SEED, ROWS, LENGTH, STEPS = 11, 3, 80, 20
PREFIX = 13  # LLM_RNG_PREFIX
torch.set_default_dtype(torch.float64)

GPT2 = dict(model_type="gpt2", vocab_size=101, n_positions=96, n_embd=48, n_layer=2, n_head=3, n_inner=176, activation_function="gelu_new",
            layer_norm_epsilon=1e-5, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=True, bos_token_id=None,
            eos_token_id=None)
LLAMA = dict(model_type="mistral", vocab_size=101, hidden_size=48, intermediate_size=112, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=96, hidden_act="silu", rms_norm_eps=1e-5, rope_theta=500.0,
             sliding_window=16, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)


# The same families with everything else that a configuration can say.
GPT2_ODD = {**GPT2, "activation_function": "gelu", "tie_word_embeddings": False, "bias": False, "position_embedding": "sinusoidal", "norm_place": "post",
            "logit_scale": "1/sqrt(hidden)", "sliding_window": 24}
LLAMA_ODD = {**LLAMA, "model_type": "llama", "num_key_value_heads": 1, "hidden_act": "gelu", "tie_word_embeddings": True, "attention_bias": True,
             "mlp_bias": True, "rope_pairing": "interleaved", "sliding_window": 0}

# The first tokens of each row see each other both ways.
LLAMA_PREFIX = {**LLAMA, "model_type": "llama", "num_key_value_heads": 3, "sliding_window": 0, "prefix_lm": True}


def shapes(c):
    """(name, shape [out, in], deviation) in the order of lib/model; vectors are gains (around 1) or biases."""
    def linear(name, n, k, a=1.0):
        return [(name + ".weight", (n, k), a / math.sqrt(k))] + [(name + ".bias", (n,), .3)] * bias

    def norm(name):
        return [(name + ".weight", (e,), .3)] + [(name + ".bias", (e,), .3)] * (gpt and bias)

    gpt = c["model_type"] == "gpt2"
    e, f = (c["n_embd"], c["n_inner"]) if gpt else (c["hidden_size"], c["intermediate_size"])
    bias = c.get("bias", True) if gpt else c.get("attention_bias", False)
    out = [("transformer.wte.weight" if gpt else "model.embed_tokens.weight", (c["vocab_size"], e), .5)]
    if gpt and c.get("position_embedding", "learned") == "learned":
        out += [("transformer.wpe.weight", (c["n_positions"], e), .5)]
    for i in range(c["n_layer"] if gpt else c["num_hidden_layers"]):
        if gpt:
            p = f"transformer.h.{i}."
            out += norm(p + "ln_1") + linear(p + "attn.c_attn", 3 * e, e, 1.7) + linear(p + "attn.c_proj", e, e)
            out += norm(p + "ln_2") + linear(p + "mlp.c_fc", f, e) + linear(p + "mlp.c_proj", e, f)
        else:
            p, q, kv = f"model.layers.{i}.", c["head_dim"] * c["num_attention_heads"], c["head_dim"] * c["num_key_value_heads"]
            out += norm(p + "input_layernorm")
            for stem, n, k, a in (("q_proj", q, e, 1.7), ("k_proj", kv, e, 1.7), ("v_proj", kv, e, 1.7), ("o_proj", e, q, 1)):
                out += linear(p + "self_attn." + stem, n, k, a)
            out += norm(p + "post_attention_layernorm")
            for stem, n, k in (("gate_proj", f, e), ("up_proj", f, e), ("down_proj", e, f)):
                out += linear(p + "mlp." + stem, n, k)
    out += norm("transformer.ln_f" if gpt else "model.norm")
    return out + ([] if c["tie_word_embeddings"] else [("lm_head.weight", (c["vocab_size"], e), .5)])


def weights(c):
    w = {}
    for i, (name, shape, deviation) in enumerate(shapes(c)):
        x = philox.matrix(SEED, i, shape[0], shape[1] if len(shape) > 1 else 1, philox.TEST) * np.float32(deviation)
        if len(shape) == 1:
            x = x[:, 0] + np.float32(name.endswith("weight"))
        w[name] = torch.tensor(x.astype(np.float64), requires_grad=True)
    return w


def tokens(c, step):
    """[ROWS, LENGTH + 1]"""
    return torch.tensor(np.stack([philox.below(SEED, step, philox.TEST, 0, r, 0, LENGTH + 1, c["vocab_size"]) for r in range(ROWS)]))


def prefixes(step):
    """Of each row, as lib/train/objective/prefix.c draws them: tokens that all queries see and that are not learned."""
    return torch.tensor([1 + int(philox.below(SEED, step, PREFIX, 0, r, 0, 1, LENGTH - 1)[0]) for r in range(ROWS)])


def attend(q, k, v, window, prefix=None):
    """[rows, heads, length, d]; grouped keys and values."""
    n = q.shape[2]
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    seen = (j <= i) & ((i - j < window) if window else (j <= i))
    if prefix is not None:
        seen = seen | (j[None] < prefix[:, None, None])[:, None]
    s = s.masked_fill(~seen, -math.inf)
    attend.deviation = s[..., -1, :][s[..., -1, :] > -math.inf].std().item()
    return s.softmax(-1) @ v


def heads(x, n):
    return x.view(x.shape[0], x.shape[1], n, -1).transpose(1, 2)


def gelu(x):
    return .5 * x * (1 + torch.erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return .5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + .044715 * x**3)))


def sinusoid(n, e):
    angle = torch.arange(n)[:, None] * 10000.0 ** (-(torch.arange(e) // 2 * 2) / e)
    return torch.where(torch.arange(e) % 2 == 0, angle.sin(), angle.cos())


def linear_of(w):
    def linear(x, p):
        y = x @ w[p + ".weight"].T
        return y + w[p + ".bias"] if p + ".bias" in w else y
    return linear


def gpt2(c, w, ids, prefix=None):
    e, n = c["n_embd"], c["n_head"]
    norm = lambda x, p: F.layer_norm(x, (e,), w[p + ".weight"], w.get(p + ".bias"), c["layer_norm_epsilon"])
    linear, act = linear_of(w), gelu if c["activation_function"] == "gelu" else gelu_tanh
    learned = c.get("position_embedding", "learned") == "learned"
    x = w["transformer.wte.weight"][ids] + (w["transformer.wpe.weight"][: ids.shape[1]] if learned else sinusoid(ids.shape[1], e))

    def attention(x, p):
        q, k, v = (heads(y, n) for y in linear(x, p + "attn.c_attn").split(e, -1))
        return linear(attend(q, k, v, c.get("sliding_window", 0)).transpose(1, 2).flatten(2), p + "attn.c_proj")

    def mlp(x, p):
        return linear(act(linear(x, p + "mlp.c_fc")), p + "mlp.c_proj")

    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        for module, name in ((attention, "ln_1"), (mlp, "ln_2")):
            x = norm(x + module(x, p), p + name) if c.get("norm_place") == "post" else x + module(norm(x, p + name), p)
    head = w["transformer.wte.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
    return norm(x, "transformer.ln_f") @ head.T / (math.sqrt(e) if "logit_scale" in c else 1)


def llama(c, w, ids, prefix=None):
    d, n, m = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    norm = lambda x, p: w[p + ".weight"] * x / torch.sqrt((x * x).mean(-1, keepdim=True) + c["rms_norm_eps"])
    linear, act = linear_of(w), gelu if c["hidden_act"] == "gelu" else F.silu
    angle = torch.arange(ids.shape[1])[:, None] * c["rope_theta"] ** (-2 * torch.arange(d // 2) / d)
    cos, sin = angle.cos(), angle.sin()

    def rope(x):
        if c.get("rope_pairing") == "interleaved":
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        a, b = x[..., : d // 2], x[..., d // 2:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = norm(x, p + "input_layernorm")
        q, k, v = (heads(linear(h, p + f"self_attn.{s}_proj"), a) for s, a in (("q", n), ("k", m), ("v", m)))
        x = x + linear(attend(rope(q), rope(k), v, c["sliding_window"], prefix).transpose(1, 2).flatten(2), p + "self_attn.o_proj")
        h = norm(x, p + "post_attention_layernorm")
        x = x + linear(act(linear(h, p + "mlp.gate_proj")) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
    return norm(x, "model.norm") @ w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"].T


def loss_of(model, c, w, step):
    batch = tokens(c, step)
    if "prefix_lm" not in c:
        logits = model(c, w, batch[:, :-1])
        return logits, F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    prefix = prefixes(step)
    logits = model(c, w, batch[:, :-1], prefix)
    targets = batch[:, 1:].masked_fill(torch.arange(LENGTH)[None] + 1 < prefix[:, None], -100)
    return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def curve(model, c, exact):
    """lr 1e-3, no warm-up, AdamW .9 .95, decay .1 of matrices, clip 1: the losses of STEPS steps."""
    w = weights(c) if exact else {k: v.detach().float().requires_grad_() for k, v in weights(c).items()}
    groups = [{"params": [x for x in w.values() if x.dim() > 1], "weight_decay": .1}, {"params": [x for x in w.values() if x.dim() == 1],
              "weight_decay": 0.0}]
    optim, out = torch.optim.AdamW(groups, lr=1e-3, betas=(.9, .95), eps=1e-8), []
    for step in range(STEPS):
        optim.zero_grad()
        _, loss = loss_of(model, c, w, step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optim.step()
        out.append(loss.item())
    return np.array(out)


def peer(c, w, batch):
    """transformers' opinion, in single precision."""
    import transformers
    conf = {k: v for k, v in c.items() if k != "model_type"}
    kind = transformers.GPT2LMHeadModel if c["model_type"] == "gpt2" else transformers.MistralForCausalLM
    m = kind(kind.config_class(**conf, attn_implementation="eager")).float().eval()
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    state = {k: (v.detach().T if k.endswith(turned) else v.detach()).float() for k, v in w.items()}
    missing, extra = m.load_state_dict(state, strict=False)
    assert not extra and all(k == "lm_head.weight" for k in missing), (missing, extra)
    with torch.no_grad():
        return m(batch[:, :-1]).logits.double()


def signs(i, shape):
    """[64, n] of ±1: two numbers of 32 bits for each element."""
    rows = [philox.u32(SEED, 1, philox.TEST, i, r, 0, 2 * (shape[1] if len(shape) > 1 else 1)) for r in range(shape[0])]
    u = np.concatenate(rows).reshape(-1, 2).astype(np.uint64)
    bits = u[:, 0] | u[:, 1] << np.uint64(32)
    return 1.0 - 2.0 * ((bits[None] >> np.arange(64, dtype=np.uint64)[:, None]) & np.uint64(1)).astype(np.float64)


def main(folder):
    for name, model, c in (("gpt2", gpt2, GPT2), ("llama", llama, LLAMA), ("gpt2-odd", gpt2, GPT2_ODD), ("llama-odd", llama, LLAMA_ODD),
                           ("llama-prefix", llama, LLAMA_PREFIX)):
        w, batch = weights(c), tokens(c, 0)
        logits, loss = loss_of(model, c, w, 0)
        loss.backward()
        spread = (logits.max() - logits.min()).item()
        print(f"{name}: loss {loss.item():.6f}, scores deviate by {attend.deviation:.2f}, logits {spread:.1f} wide")
        if name in ("gpt2", "llama"): # what transformers can be
            apart = (peer(c, w, batch) - logits).abs().max().item()
            print(f"  transformers differs by {apart / spread:.1e} of that")
            assert apart < 1e-5 * spread
        single = {k: v.detach().float().requires_grad_() for k, v in w.items()}
        torch.set_default_dtype(torch.float32)
        single_logits, single_loss = loss_of(model, c, single, 0)
        single_loss.backward()
        single_curve = curve(model, c, False)
        torch.set_default_dtype(torch.float64)
        errors = [((single[k].grad.double() - v.grad).norm() / v.grad.norm()).item() for k, v in w.items()]
        exact = curve(model, c, True)
        print(f"  PyTorch FP32: gradients differ by at most {max(errors):.1e}, curve by {np.abs(single_curve / exact - 1).max():.1e}, logits by "
              f"{(single_logits.double() - logits).abs().max().item() / spread:.1e}")
        grads = [v.grad.numpy().reshape(-1) for v in w.values()]
        tensors = {
            "logits": logits.detach().numpy().reshape(-1, c["vocab_size"])[::5].astype(np.float32).copy(),
            "loss": np.array([loss.item()]),
            "norms": np.array([np.linalg.norm(g) for g in grads]),
            "projections": np.stack([signs(i, v.shape) @ g for i, (v, g) in enumerate(zip(w.values(), grads))]),
            "single": np.array(errors),
            "curve": exact,
        }
        meta = {"llm.config": json.dumps(c), "note": "tests/oracle/train_goldens.py; logits: every 5th token"}
        save_file(tensors, os.path.join(folder, name + ".safetensors"), meta)


if __name__ == "__main__":
    main(sys.argv[1])
