"""Truncated backpropagation through time with carried state: torch.nn.RNN and torch.nn.LSTM over windows of a text, the state of one handed to the next
without its gradient, in double. Writes tests/golden/train/carried-{rnn,lstm}.safetensors: the weights that the run begins with, its configuration, and
the loss of each step, which tests/cli/train_carry.bats expects of llm-train --carry-state. Also dropped-{rnn,lstm}: three layers with dropout between
them, as torch.nn.LSTM has it (of each layer's outputs but the last's), by the masks that llm-train draws.

    python tests/oracle/carried.py tests/golden/train
"""
import json
import math
import os
import sys

import numpy as np
import torch
from safetensors.torch import save_file

sys.path.insert(0, os.path.dirname(__file__))
import philox

ROWS, CONTEXT, STEPS, WIDTH, LAYERS, RATE = 3, 7, 12, 20, 2, 0.5
SEED, DROPOUT, SITE = 9, 0.3, 5  # LLM_RNG_DROPOUT_RESID
TEXT = "".join(f"{'the red cat sees a bird and '[i % 28]}{'nothing else, but a small green fish; '[i * 5 % 37]}" for i in range(115)).encode()


class Model(torch.nn.Module):
    def __init__(self, kind, layers):
        super().__init__()
        self.embedding = torch.nn.Embedding(256, WIDTH)
        self.rnn = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM}[kind](WIDTH, WIDTH, layers, batch_first=True)
        self.lm_head = torch.nn.Linear(WIDTH, 256, bias=False)


def mask(step, layer):
    drop = math.ceil(DROPOUT * 2**24)
    draws = [[philox.u32(SEED, step, SITE, layer, row, t, WIDTH) >> 8 for t in range(CONTEXT)] for row in range(ROWS)]
    return torch.tensor((np.array(draws) >= drop) / (1 - DROPOUT))


def dropped(model, x, state, step):
    """torch.nn.RNN or torch.nn.LSTM layer by layer, with masks of ours between."""
    rnn, after = model.rnn, []
    zero = torch.zeros(1, ROWS, WIDTH, dtype=x.dtype)
    lstm = rnn.mode == "LSTM"
    for layer in range(rnn.num_layers):
        weights = [getattr(rnn, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        before = state[layer] if state else (zero, zero) if lstm else zero
        run = torch._VF.lstm if lstm else torch._VF.rnn_tanh
        x, *left = run(x, before, weights, True, 1, 0.0, True, False, True)
        after.append(tuple(left) if lstm else left[0])
        if layer + 1 < rnn.num_layers:
            x = x * mask(step, layer)
    return x, after


def detached(state):
    if isinstance(state, list):
        return [detached(s) for s in state]
    return tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()


def curve(model, drops):
    ids = torch.tensor(list(TEXT))
    windows = (len(ids) - 1) // ROWS // CONTEXT
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    state, losses = None, []
    for step in range(STEPS):
        at = [(row * windows + step % windows) * CONTEXT for row in range(ROWS)]
        state = None if step % windows == 0 else detached(state)
        x = torch.stack([ids[a:a + CONTEXT] for a in at])
        y = torch.stack([ids[a + 1:a + CONTEXT + 1] for a in at])
        out, state = dropped(model, model.embedding(x), state, step) if drops else model.rnn(model.embedding(x), state)
        loss = torch.nn.functional.cross_entropy(model.lm_head(out).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert STEPS > windows + 1, "the run is to begin its parts again"
    return losses


for name, kind, layers in (("carried-rnn", "rnn", LAYERS), ("carried-lstm", "lstm", LAYERS), ("dropped-rnn", "rnn", 3), ("dropped-lstm", "lstm", 3)):
    torch.manual_seed(3)
    drops = name.startswith("dropped")
    model = Model(kind, layers)
    for p in model.parameters():
        p.data = torch.randn(p.shape) * (0.6 if kind == "lstm" else 0.25)
    weights = {name: p.data.clone() for name, p in model.named_parameters()}
    config = dict(model_type=kind, vocab_size=256, hidden_size=WIDTH, num_layers=layers, bias=True, head_bias=False, tie_word_embeddings=False,
                  **({"dropout": DROPOUT} if drops else {}))
    losses = curve(model.double(), drops)
    save_file(weights, f"{sys.argv[1]}/{name}.safetensors",
              metadata={"llm.config": json.dumps(config), "text": TEXT.decode(), "losses": json.dumps(losses)})
    print(name, losses)
