#!/usr/bin/env python3
"""Models of full width against PyTorch in double precision: GPT-2 124M, and a Llama shape with grouped keys and a window, with hard weights.
llm-infer gives the logits, llm-train the gradients: after one step of SGD without decay and clipping its momentum is the gradient.

    PATH=$PWD/bin:$PATH python tests/oracle/train_shapes.py FOLDER [gpt2|llama]...

FOLDER is for files (about 1 GB, removed again). A line a tensor: ‖Δ‖/‖g‖ of ours and of PyTorch in single precision, both from the double. Fails when
logits differ by more than 5e-6 of their range, or a gradient by more than 1e-5 and more than twice what PyTorch's does.
"""
import json
import math
import os
import subprocess
import sys

import numpy as np
import torch
from safetensors.numpy import save_file

sys.path.insert(0, os.path.dirname(__file__))
import llmfiles
from train_goldens import attend, gpt2, llama, loss_of, shapes

LENGTH = 96
GPT2 = dict(model_type="gpt2", vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12, n_inner=3072, activation_function="gelu_new",
            layer_norm_epsilon=1e-5, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=True, bos_token_id=None,
            eos_token_id=None)
LLAMA = dict(model_type="mistral", vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=12, num_attention_heads=9,
             num_key_value_heads=3, head_dim=64, max_position_embeddings=2048, hidden_act="silu", rms_norm_eps=1e-5, rope_theta=10000.0,
             sliding_window=16, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)


def weights(c):
    """Gains around 1, biases, matrices: deviations as in train_goldens, but residual branches as small, and embeddings as large, as the number of layers
    asks: else rounding grows from layer to layer until single precision is of no use to anybody."""
    rng, w, layers = np.random.default_rng(5), {}, c.get("n_layer", c.get("num_hidden_layers"))
    for name, shape, deviation in shapes(c):
        x = rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation)
        if name.endswith(("c_proj.weight", "o_proj.weight", "down_proj.weight")):
            x /= np.float32(math.sqrt(layers / 2))
        if name == "model.embed_tokens.weight":
            x *= np.float32(4)
        w[name] = x + np.float32(name.endswith("weight")) if len(shape) == 1 else x
    return w


def turned(c, name, x):
    """GPT-2's files keep the matrices of its layers as [in, out]."""
    return np.ascontiguousarray(x.T) if c["model_type"] == "gpt2" and ".h." in name and x.ndim == 2 else x


def ours(c, w, ids, folder):
    """Logits, loss and gradients by llm-infer and llm-train."""
    path = lambda name: os.path.join(folder, name)
    save_file({k: turned(c, k, x) for k, x in w.items()}, path("model.safetensors"), {"format": "pt"})
    with open(path("config.json"), "w") as f:
        json.dump(c, f)
    llmfiles.write_tokens(path("ids.tok"), ids, c["vocab_size"])
    run = lambda *a: subprocess.run(a, check=True, stdout=subprocess.PIPE).stdout
    stream = run("llm-infer", "-q", "-m", folder, "--precision", "f32", "--logits", "--ids", " ".join(str(i) for i in ids[:-1]))
    logits = llmfiles.read_stream(stream, "logits").reshape(-1, c["vocab_size"])
    log = run("llm-train", "-q", "--init", folder, "--precision", "f32", "--optimizer", "sgd", "--weight-decay", "0", "--clip", "0", "-n", "1", "-b", "1",
              "-l", str(len(ids) - 1), "--order", "sequential", "--cross-document", "--log", "-", "-o", path("out.llm"), path("ids.tok"))
    _, state = llmfiles.read_checkpoint(path("out.llm"))
    for name in ("model.safetensors", "config.json", "ids.tok", "out.llm"):
        os.unlink(path(name))
    return logits, json.loads(log), {k: state["training.m." + k] for k in w}


def theirs(model, c, w, batch, kind):
    torch.set_default_dtype(kind)
    w = {k: torch.tensor(x, dtype=kind, requires_grad=True) for k, x in w.items()}
    logits, loss = loss_of(model, c, w, batch)
    loss.backward()
    return logits.detach().double()[0].numpy(), loss.item(), {k: x.grad.double().numpy() for k, x in w.items()}


def check(name, folder):
    model, c = {"gpt2": (gpt2, GPT2), "llama": (llama, LLAMA)}[name]
    w = weights(c)
    ids = np.random.default_rng(6).integers(0, c["vocab_size"], LENGTH + 1)
    batch = torch.tensor(ids)[None]
    logits, log, grads = ours(c, w, ids, folder)
    exact, loss, exact_grads = theirs(model, c, w, batch, torch.float64)
    single, _, single_grads = theirs(model, c, w, batch, torch.float32)
    spread, norm = exact.max() - exact.min(), math.sqrt(sum((g**2).sum() for g in exact_grads.values()))
    worst, bad = abs(logits - exact).max() / spread, []
    print(f"{name}\tlogits\t{worst:.1e}\t{abs(single - exact).max() / spread:.1e}")
    print(f"{name}\tloss\t{abs(log['loss'] / loss - 1):.1e}")
    print(f"{name}\tgrad_norm\t{abs(log['grad_norm'] / norm - 1):.1e}")
    if worst > 5e-6:
        bad.append("logits")
    if abs(log["loss"] / loss - 1) > 1e-6 or abs(log["grad_norm"] / norm - 1) > 1e-5:
        bad.append("loss or norm")
    for k, g in exact_grads.items():
        size = np.linalg.norm(g)
        size = norm if size < 1e-7 * norm else size  # a key's bias: its true gradient is zero
        a, b = np.linalg.norm(grads[k] - g) / size, np.linalg.norm(single_grads[k] - g) / size
        print(f"{name}\t{k}\t{a:.1e}\t{b:.1e}")
        if a > 1e-5 or (a > 2 * b and a > 1e-6):
            bad.append(k)
    print(f"{name}: {len(exact_grads)} gradients, scores deviate by {attend.deviation:.1f}, logits {spread:.1f} wide: {str(len(bad)) + ' outside, as ' + bad[0] if bad else 'all within tolerance'}", file=sys.stderr)
    return not bad


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    good = [check(name, sys.argv[1]) for name in sys.argv[2:] or ("gpt2", "llama")]
    sys.exit(not all(good))
