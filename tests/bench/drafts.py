#!/usr/bin/env python3
"""Speed with drafts beside none: pairs of llm-infer processes in alternation; medians of the ratios, least and greatest, and the ratio of the best
rates of all turns ("best"), which other work on the machine disturbs least.

    MODELS=FOLDER [SMOLLM2=SmolLM2-135M-Instruct.Q4_1.gguf] [BIN=bin] [ROUNDS=5] [THREADS=2] [ONLY=text of a row's name] \
    [CLOCK=processor] python tests/bench/drafts.py

Real text: SmolLM2 copies a passage, and writes stories by chance, in which little repeats. The other rows need an exact rate of acceptance. Their models
have TinyLlama's shape, and a smaller one, and compute in full, but answer by a table (random_models.py): each token has one that follows it. The
smaller model is wrong about 30% of the tokens. "pass of 10.1 rows": the mean time of passes of 1, 5, 9 and 12 rows, whose drafts are all right, by that of a
pass of one row; the text repeats itself and is its own draft. The models are made in FOLDER when absent (3 GB; numpy, gguf). "next-token
layer": a model of 30M parameters that has one (num_nextn_predict_layers=1) and has learned 60 passages (trained when absent: some six minutes of two
quiet threads; ONLY=next-token makes no other model) writes one of them down. Each process decodes
twice; the second time counts, as the first packs weights. With CLOCK=processor it is the processor's seconds of a process that decodes three times
without those of one that decodes once: for a machine that does other work.
"""
import json
import os
import pathlib
import random
import statistics
import subprocess

import fair
from random_models import make

FOLDER, ROUNDS, ONLY = pathlib.Path(os.environ["MODELS"]), int(os.environ.get("ROUNDS", "5")), os.environ.get("ONLY", "")
THREADS = os.environ.get("THREADS", str(len(os.sched_getaffinity(0))))
BIN = os.environ.get("BIN", str(pathlib.Path(__file__).resolve().parents[2] / "bin"))
VOCABULARY = 32000


def table(cycle, wrong, seed):
    """previous[t] of a cycle through `cycle` tokens after another; of `wrong` of them another one's."""
    import numpy as np
    rng = np.random.default_rng(7)
    previous = np.empty(VOCABULARY, np.int64)
    order = rng.permutation(VOCABULARY)
    for at in range(0, VOCABULARY, cycle):
        part = order[at:at + cycle]
        previous[part] = np.roll(part, 1)
    if wrong > 0:
        chosen = np.random.default_rng(seed).permutation(VOCABULARY)[:int(VOCABULARY * wrong)]
        previous[chosen] = previous[np.roll(chosen, 1)]
    return previous


def chain(previous, n):
    """n tokens as the table has them."""
    import numpy as np
    following = np.argsort(previous)
    ids = [5]
    while len(ids) < n:
        ids.append(int(following[ids[-1]]))
    return ids


def models():
    FOLDER.mkdir(parents=True, exist_ok=True)
    large, small = (2048, 22, 32, 4, 5632), (768, 16, 12, 4, 2048)
    shapes = {"long": (large, table(VOCABULARY, 0, 1)), "short": (large, table(64, 0, 1)), "draft": (small, table(VOCABULARY, .3, 1))}
    for name, (shape, previous) in shapes.items():
        if not (FOLDER / f"{name}-Q8_0.gguf").exists():
            make(FOLDER / f"{name}-Q8_0.gguf", *shape, VOCABULARY, False, previous)
    if not (FOLDER / "short-Q4_K.gguf").exists():
        subprocess.run([BIN + "/llm-quantize", "-q", "-t", "q4_k", FOLDER / "short-Q8_0.gguf", FOLDER / "short-Q4_K.gguf"], check=True)


def passages(rng):
    """60 passages of four sentences."""
    parts = [part.split("|") for part in (
        "the baker|the old sailor|a young doctor|the night watchman|my neighbour|the village teacher|a travelling painter|the miller's daughter|the captain|"
        "the librarian",
        "carried|opened|mended|counted|hid|polished|measured|sold|buried|drew",
        "the silver lantern|a box of apples|the broken clock|twelve glass bottles|an iron key|the long ladder|a letter from the coast|the painted door|"
        "three grey horses|the last map",
        "behind the mill|under the stone bridge|near the harbour wall|in the cold cellar|at the edge of the forest|beside the river|on the market square|"
        "above the bakery|inside the tower|across the frozen field",
        "before the bells rang|while everybody slept|without saying a word|because winter was coming|as the rain began to fall|until the lamps went out|"
        "so that nobody would notice|after the boats had left|when the fair was over|although the road was closed")]
    return [" ".join(" ".join(rng.choice(part) for part in parts).capitalize() + "." for _ in range(4)) for _ in range(60)]


def next_token_model():
    """A model with a layer that predicts the token after the next one; trained when absent."""
    model, text, tokenizer, tokens = (FOLDER / f"next{end}" for end in (".llm", ".txt", ".json", ".tok"))
    if not model.exists():
        rng = random.Random(5)
        known = passages(rng)
        FOLDER.mkdir(parents=True, exist_ok=True)
        text.write_text("".join(rng.choice(known) + "\n\n" for _ in range(6000)))
        for target, *command in ((tokenizer, "train", "-q", "--vocab-size", "602", text), (tokens, "encode", "-T", tokenizer, text)):
            with open(target, "wb") as out:
                subprocess.run([BIN + "/llm-tokenize", *command], stdout=out, check=True)
        shape = {"num_hidden_layers": 16, "hidden_size": 384, "intermediate_size": 1152, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64,
                 "num_nextn_predict_layers": 1}
        subprocess.run([BIN + "/llm-train", "-q", "-c", "tiny", *(f"--set={key}={value}" for key, value in shape.items()), "-l", "128", "-b", "8", "-n", "500",
                        "--lr", "1e-3", "-T", tokenizer, "-o", model, tokens], check=True)
    return model


def infer(model, line, times, tokens, options):
    """The answers to a line that is asked so many times, and the processor's seconds."""
    command = [BIN + "/llm-infer", "-q", "-j", THREADS, "-m", str(model), "--jsonl", "--parallel", "1", "-n", str(tokens), "--ignore-eos", *options]
    out, seconds = fair.processor(command, ((line + "\n") * times).encode())
    return [json.loads(answer)["timings"] for answer in out.splitlines()], seconds


def decode(model, prompt, tokens, options):
    """Tokens per second of a completion after the first, and the share of drafts that were right."""
    line = json.dumps({"prompt": prompt} if isinstance(prompt, str) else {"ids": prompt})
    if os.environ.get("CLOCK") == "processor":
        timings, seconds = infer(model, line, 3, tokens, options)
        rate = 2 * tokens / (seconds - infer(model, line, 1, tokens, options)[1])
    else:
        timings, _ = infer(model, line, 2, tokens, options)
        rate = timings[1]["tokens_per_second"]
    return rate, timings[1].get("draft_n_accepted", 0) / max(timings[1].get("draft_n", 0), 1)


def row(name, model, prompt, tokens, options, drafts, cost=None):
    """`cost`: rows of a pass; the ratio is then that of times of passes."""
    if ONLY not in name:
        return
    ratios, best = [], {}
    for turn in range(ROUNDS):
        rates = {}
        for more in ((), drafts) if turn % 2 == 0 else (drafts, ()):
            rates[more] = decode(model, prompt, tokens, (*options, *more))
            best[more] = max(best.get(more, 0), rates[more][0])
        ratios.append(rates[drafts][0] / rates[()][0])
    ratios.append(best[drafts] / best[()])
    *ratios, best = [cost / ratio for ratio in ratios] if cost else ratios
    print(name, f"{statistics.median(ratios):.3f}", f"{min(ratios):.3f}-{max(ratios):.3f}", f"best {best:.3f}", f"right {rates[drafts][1]:.2f}", sep="\t",
          flush=True)


if "next-token" not in ONLY:
    models()
passage = ("The harbour master kept a ledger of every ship that entered: its name, its captain, the cargo it carried and the day on which it left. "
           "In the winter of that year a storm broke the mole in two places, and for nine weeks nothing larger than a rowing boat could reach the quay. "
           "Grain was hauled over the hills by mules, lamp oil grew dear, and the children of the fishermen learned to walk on the frozen salt marsh.")
if "SMOLLM2" in os.environ:
    real = os.environ["SMOLLM2"]
    row("n-gram, copies", real, f"Text: {passage}\nCopy: {passage}\nText: {passage}\nCopy:", 88, ("--temp", "0"), ("--draft-ngram",))
    row("n-gram, nothing repeats", real, "Once upon a time", 256, ("--temp", "1", "--top-k", "0"), ("--draft-ngram",))
for depth in ("1", "3"):
    if ONLY in (name := f"next-token layer, {depth} at a time"):
        row(name, next_token_model(), passages(random.Random(5))[0][:60], 160, ("--temp", "0"), ("--draft-max", depth))
row("n-gram, a table of 32,000 tokens", FOLDER / "long-Q8_0.gguf", [5], 96, ("--temp", "0"), ("--draft-ngram",))
row("draft model, right .7", FOLDER / "long-Q8_0.gguf", [5], 96, ("--temp", "0"), ("--draft", str(FOLDER / "draft-Q8_0.gguf")))
for kind in ("Q8_0", "Q4_K"):
    # 1 token by the prompt, 1 without a draft, then passes of 5, 9 and 8 times 12 rows: 11 passes instead of 111
    row(f"pass of 10.1 rows, {kind}", FOLDER / f"short-{kind}.gguf", chain(table(64, 0, 1), 130), 112, ("--temp", "0"),
        ("--draft-ngram", "--draft-max", "11"), 111 / 11)
