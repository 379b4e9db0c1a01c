#!/usr/bin/env python3
"""Goldens for tests/unit/train/test_oracle.c: logits, loss, every gradient (norm and 64 random projections) and a 20-step loss curve of a GPT-2-shaped and
of a Llama-shaped model with hard weights (ORACLES, "Tests that can fail"), by PyTorch in double precision. The models are written out here from their
formulas; transformers, in single precision, must agree with them.

    /work/tmp/venv/bin/python tests/oracle/train_goldens.py tests/golden/train
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
torch.set_default_dtype(torch.float64)

GPT2 = dict(model_type="gpt2", vocab_size=101, n_positions=96, n_embd=48, n_layer=2, n_head=3, n_inner=176, activation_function="gelu_new",
            layer_norm_epsilon=1e-5, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=True, bos_token_id=None,
            eos_token_id=None)
LLAMA = dict(model_type="mistral", vocab_size=101, hidden_size=48, intermediate_size=112, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=96, hidden_act="silu", rms_norm_eps=1e-5, rope_theta=500.0,
             sliding_window=16, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)


def shapes(c):
    """(name, shape [out, in], deviation) in the order of lib/model; vectors are gains (around 1) or biases."""
    if c["model_type"] == "gpt2":
        e, f = c["n_embd"], c["n_inner"]
        out = [("transformer.wte.weight", (c["vocab_size"], e), .5), ("transformer.wpe.weight", (c["n_positions"], e), .5)]
        for i in range(c["n_layer"]):
            p = f"transformer.h.{i}."
            out += [(p + "ln_1.weight", (e,), .3), (p + "ln_1.bias", (e,), .3)]
            for stem, n, k, a in (("attn.c_attn", 3 * e, e, 1.7), ("attn.c_proj", e, e, 1)):
                out += [(p + stem + ".weight", (n, k), a / math.sqrt(k)), (p + stem + ".bias", (n,), .3)]
            out += [(p + "ln_2.weight", (e,), .3), (p + "ln_2.bias", (e,), .3)]
            for stem, n, k in (("mlp.c_fc", f, e), ("mlp.c_proj", e, f)):
                out += [(p + stem + ".weight", (n, k), 1 / math.sqrt(k)), (p + stem + ".bias", (n,), .3)]
        return out + [("transformer.ln_f.weight", (e,), .3), ("transformer.ln_f.bias", (e,), .3)]
    e, f, d = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = d * c["num_attention_heads"], d * c["num_key_value_heads"]
    out = [("model.embed_tokens.weight", (c["vocab_size"], e), .5)]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        out += [(p + "input_layernorm.weight", (e,), .3)]
        for stem, n, k, a in (("q_proj", q, e, 1.7), ("k_proj", kv, e, 1.7), ("v_proj", kv, e, 1.7), ("o_proj", e, q, 1)):
            out += [(p + "self_attn." + stem + ".weight", (n, k), a / math.sqrt(k))]
        out += [(p + "post_attention_layernorm.weight", (e,), .3)]
        for stem, n, k in (("gate_proj", f, e), ("up_proj", f, e), ("down_proj", e, f)):
            out += [(p + "mlp." + stem + ".weight", (n, k), 1 / math.sqrt(k))]
    return out + [("model.norm.weight", (e,), .3), ("lm_head.weight", (c["vocab_size"], e), .5)]


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


def attend(q, k, v, window):
    """[rows, heads, length, d]; grouped keys and values."""
    n = q.shape[2]
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    seen = (j <= i) & ((i - j < window) if window else (j <= i))
    s = s.masked_fill(~seen, -math.inf)
    attend.deviation = s[..., -1, :][s[..., -1, :] > -math.inf].std().item()
    return s.softmax(-1) @ v


def heads(x, n):
    return x.view(x.shape[0], x.shape[1], n, -1).transpose(1, 2)


def gpt2(c, w, ids):
    e, n = c["n_embd"], c["n_head"]
    norm = lambda x, p: F.layer_norm(x, (e,), w[p + ".weight"], w[p + ".bias"], c["layer_norm_epsilon"])
    linear = lambda x, p: x @ w[p + ".weight"].T + w[p + ".bias"]
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: ids.shape[1]]
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        q, k, v = (heads(y, n) for y in linear(norm(x, p + "ln_1"), p + "attn.c_attn").split(e, -1))
        x = x + linear(attend(q, k, v, 0).transpose(1, 2).flatten(2), p + "attn.c_proj")
        h = linear(norm(x, p + "ln_2"), p + "mlp.c_fc")
        h = .5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + .044715 * h**3)))
        x = x + linear(h, p + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def llama(c, w, ids):
    d, n, m = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    norm = lambda x, p: w[p + ".weight"] * x / torch.sqrt((x * x).mean(-1, keepdim=True) + c["rms_norm_eps"])
    linear = lambda x, p: x @ w[p + ".weight"].T
    angle = torch.arange(ids.shape[1])[:, None] * c["rope_theta"] ** (-2 * torch.arange(d // 2) / d)
    cos, sin = angle.cos(), angle.sin()

    def rope(x):
        a, b = x[..., : d // 2], x[..., d // 2:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = norm(x, p + "input_layernorm")
        q, k, v = (heads(linear(h, p + f"self_attn.{s}_proj"), a) for s, a in (("q", n), ("k", m), ("v", m)))
        x = x + linear(attend(rope(q), rope(k), v, c["sliding_window"]).transpose(1, 2).flatten(2), p + "self_attn.o_proj")
        h = norm(x, p + "post_attention_layernorm")
        x = x + linear(F.silu(linear(h, p + "mlp.gate_proj")) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
    return norm(x, "model.norm") @ w["lm_head.weight"].T


def loss_of(model, c, w, batch):
    logits = model(c, w, batch[:, :-1])
    return logits, F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def curve(model, c, exact):
    """lr 1e-3, no warm-up, AdamW .9 .95, decay .1 of matrices, clip 1: the losses of STEPS steps."""
    w = weights(c) if exact else {k: v.detach().float().requires_grad_() for k, v in weights(c).items()}
    groups = [{"params": [x for x in w.values() if x.dim() > 1], "weight_decay": .1}, {"params": [x for x in w.values() if x.dim() == 1],
              "weight_decay": 0.0}]
    optim, out = torch.optim.AdamW(groups, lr=1e-3, betas=(.9, .95), eps=1e-8), []
    for step in range(STEPS):
        optim.zero_grad()
        _, loss = loss_of(model, c, w, tokens(c, step))
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
    for name, model, c in (("gpt2", gpt2, GPT2), ("llama", llama, LLAMA)):
        w, batch = weights(c), tokens(c, 0)
        logits, loss = loss_of(model, c, w, batch)
        loss.backward()
        theirs = peer(c, w, batch)
        spread = (logits.max() - logits.min()).item()
        print(f"{name}: loss {loss.item():.6f}, scores deviate by {attend.deviation:.2f}, logits {spread:.1f} wide, transformers differs by "
              f"{(theirs - logits).abs().max().item() / spread:.1e} of it")
        assert (theirs - logits).abs().max() < 1e-5 * spread
        single = {k: v.detach().float().requires_grad_() for k, v in w.items()}
        torch.set_default_dtype(torch.float32)
        single_logits, single_loss = loss_of(model, c, single, batch)
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
