"""Truncated backpropagation through time with carried state: torch.nn.RNN and torch.nn.LSTM over windows of a text, the state of one handed to the next
without its gradient, in double. Writes tests/golden/train/carried-{rnn,lstm}.safetensors: the weights that the run begins with, its configuration, and
the loss of each step, which tests/cli/train_carry.bats expects of llm-train --carry-state.

    python tests/oracle/carried.py tests/golden/train
"""
import json
import sys

import torch
from safetensors.torch import save_file

ROWS, CONTEXT, STEPS, WIDTH, LAYERS, RATE = 3, 7, 12, 20, 2, 0.5
TEXT = "".join(f"{'the red cat sees a bird and '[i % 28]}{'nothing else, but a small green fish; '[i * 5 % 37]}" for i in range(115)).encode()


class Model(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding = torch.nn.Embedding(256, WIDTH)
        self.rnn = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM}[kind](WIDTH, WIDTH, LAYERS, batch_first=True)
        self.lm_head = torch.nn.Linear(WIDTH, 256, bias=False)


def detached(state):
    return tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()


def curve(model):
    ids = torch.tensor(list(TEXT))
    windows = (len(ids) - 1) // ROWS // CONTEXT
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    state, losses = None, []
    for step in range(STEPS):
        at = [(row * windows + step % windows) * CONTEXT for row in range(ROWS)]
        state = None if step % windows == 0 else detached(state)
        x = torch.stack([ids[a:a + CONTEXT] for a in at])
        y = torch.stack([ids[a + 1:a + CONTEXT + 1] for a in at])
        out, state = model.rnn(model.embedding(x), state)
        loss = torch.nn.functional.cross_entropy(model.lm_head(out).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert STEPS > windows + 1, "the run is to begin its parts again"
    return losses


for kind in ("rnn", "lstm"):
    torch.manual_seed(3)
    model = Model(kind)
    for p in model.parameters():
        p.data = torch.randn(p.shape) * (0.6 if kind == "lstm" else 0.25)
    weights = {name: p.data.clone() for name, p in model.named_parameters()}
    config = dict(model_type=kind, vocab_size=256, hidden_size=WIDTH, num_layers=LAYERS, bias=True, head_bias=False, tie_word_embeddings=False)
    losses = curve(model.double())
    save_file(weights, f"{sys.argv[1]}/carried-{kind}.safetensors",
              metadata={"llm.config": json.dumps(config), "text": TEXT.decode(), "losses": json.dumps(losses)})
    print(kind, losses)
