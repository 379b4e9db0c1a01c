#!/usr/bin/env python3
"""What tests/cli/quality.bats expects of `llm-bench quality`: perplexities of a generated text by the conventions of llama.cpp, of transformers'
documentation ("Perplexity of fixed-length models") and of lm-eval (its own rolling windows), and the divergences of a changed model from tests/golden/tiny.
All in FP64, from the formulas; a line a number.

Usage: tests/oracle/conventions.py CHANGED   (from the checkout. CHANGED: a Hugging Face folder with another model of the same vocabulary:
       llm-quantize -q -t q4_0 tests/golden/tiny - | llm-quantize -q -t f32 - changed)
Needs torch, transformers, lm_eval."""
import math
import re
import sys

import torch
from lm_eval import utils
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

TEXT = "".join(f"The cat no. {i} saw {i * 7 % 13}\u00a0birds, {i * i % 11} dogs;\n\n  and went on.\n" for i in range(1, 41))
CONTEXT, STRIDE = 64, 24


def log_probs(model, ids):
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)


def scored(model, ids, skip):
    p = log_probs(model, ids[:-1])
    return [float(p[i - 1, ids[i]]) for i in range(skip, len(ids))]


def main():
    tiny = "tests/golden/tiny"
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float64)
    changed = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float64)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{tiny}/tokenizer.json", eos_token="<|endoftext|>")
    ids = tokenizer(TEXT, add_special_tokens=False).input_ids
    print("tokens", len(ids))

    nats = [s for at in range(0, len(ids) - CONTEXT + 1, CONTEXT) for s in scored(model, ids[at:at + CONTEXT], CONTEXT // 2 + 1)]
    print("llama.cpp", len(nats), math.exp(-sum(nats) / len(nats)))

    total = count = before = number = 0
    for at in range(0, len(ids), STRIDE):
        end = min(at + CONTEXT, len(ids))
        new = end - before
        part = scored(model, ids[at:end], max(1, end - at - new))
        total += sum(part) / len(part) * (new - 1)
        count += new - 1
        number += len(part)
        before = end
        if end == len(ids):
            break
    print("hf-stride", number, math.exp(-total / count))

    total = number = 0
    windows = utils.get_rolling_token_windows(token_list=ids, prefix_token=tokenizer.eos_token_id, max_seq_len=CONTEXT, context_len=1)
    for context, continuation in map(utils.make_disjoint_window, windows):
        part = scored(model, context + continuation, len(context))
        total += sum(part)
        number += len(part)
    words = len(re.split(r"\s+", TEXT))
    print("word", number, math.exp(-total / number), words, math.exp(-total / words))

    entropy, kl, same, delta, ratio, n = 0, [], 0, [], 0, 0
    for at in range(0, len(ids), CONTEXT // 2):
        part = ids[at:at + CONTEXT]
        skip = 1 if at == 0 else CONTEXT // 2
        p, q = log_probs(model, part), log_probs(changed, part)
        for i in range(skip, len(part)):
            a, b, target = p[i - 1], q[i - 1], part[i]
            entropy -= float((a.exp() * a).sum())
            kl.append(float((a.exp() * (a - b)).sum()))
            same += int(a.argmax() == b.argmax())
            delta.append(float(b[target].exp() - a[target].exp()))
            ratio += float(a[target] - b[target])
            n += 1
        if at + CONTEXT >= len(ids):
            break
    print("document", n, "entropy", entropy / n)
    kl.sort()
    print("kl", sum(kl) / n, "median", (kl[n // 2] + kl[(n - 1) // 2]) / 2, "p99", kl[math.ceil(.99 * (n - 1))], "max", kl[-1], "same_top", same / n,
          "log_perplexity_ratio", ratio / n, "delta_p", sum(delta) / n, "delta_p_rms", math.sqrt(sum(d * d for d in delta) / n))


main()
