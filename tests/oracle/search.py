"""Golden answers of beam search, guidance and contrastive search on tests/golden/tiny: tests/golden/search.jsonl.

Beam search and guidance are transformers' generate in float64 weights (its beam scores are float32). Diverse beams and contrastive search left
transformers' core: they are computed here from their definitions, Vijayakumar et al. 2016 (groups one after another, Hamming diversity) and
Su et al. 2022.

python tests/oracle/search.py > tests/golden/search.jsonl
"""
import json
import math
import pathlib
import random

import torch
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).parents[1] / "golden" / "tiny"
model = AutoModelForCausalLM.from_pretrained(ROOT, dtype=torch.float64).eval()
EOS = 0


def log_probs(ids):
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0, -1], -1)


def beams(ids, n, **options):
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), max_new_tokens=n, do_sample=False, pad_token_id=EOS, return_dict_in_generate=True,
                             output_scores=True, **options)
    rows, scores = out.sequences[:, len(ids):].tolist(), getattr(out, "sequences_scores", None)
    rows = [row[:row.index(EOS)] if EOS in row else row for row in rows]
    return rows, [] if scores is None else scores.tolist()


def diverse(ids, n, size, groups, penalty, length_penalty, repetition=1.0):
    """Groups of size // groups beams; ended texts as in transformers' beam search with early_stopping False."""
    each = size // groups
    live = [[(0.0, [])] for _ in range(groups)]
    ended = [[] for _ in range(groups)]
    done = [False] * groups
    for step in range(n):
        taken = {}
        for g in range(groups):
            if done[g]:
                continue
            choices = []
            for b, (score, text) in enumerate(live[g]):
                lp = log_probs(ids + text)
                for token, times in taken.items():
                    lp[token] -= penalty * times
                for token in set(ids + text):
                    lp[token] *= repetition  # transformers' repetition_penalty
                top = torch.topk(lp, 2 * each)
                choices += [(score + v, b, t) for v, t in zip(top.values.tolist(), top.indices.tolist())]
            choices = sorted(choices, key=lambda c: -c[0])[:2 * each]
            nexts, counted = [], 0
            for k, (score, b, token) in enumerate(choices):
                text = live[g][b][1] + [token]
                over = token == EOS or step + 1 == n
                if over and k < each:
                    ended[g] = sorted(ended[g] + [(score / len(text) ** length_penalty, text)], key=lambda c: -c[0])[:each]
                if token != EOS and counted < each:
                    taken[token] = taken.get(token, 0) + 1
                    counted += 1
                if not over and len(nexts) < each:
                    nexts.append((score, text))
            live[g] = nexts
            done[g] = not nexts or (len(ended[g]) == each and nexts[0][0] / (step + 1) ** length_penalty <= ended[g][-1][0])
        if all(done):
            break
    best = sorted(sum(ended, []), key=lambda c: -c[0])
    return [t[:-1] if t[-1] == EOS else t for _, t in best], [s for s, _ in best]


def contrastive(ids, n, k, alpha, penalty=1.0):
    """`penalty`: transformers' repetition_penalty, of logits."""
    text = []
    with torch.no_grad():
        hidden = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0]
        for _ in range(n):
            logits = model(torch.tensor([ids + text])).logits[0, -1].clone()
            for token in set(ids + text):
                logits[token] *= penalty if logits[token] < 0 else 1 / penalty
            top = torch.topk(torch.softmax(logits, -1), k)
            best = None
            for value, token in zip(top.values.tolist(), top.indices.tolist()):
                states = model(torch.tensor([ids + text + [token]]), output_hidden_states=True).hidden_states[-1][0]
                cosine = torch.nn.functional.cosine_similarity(states[:-1], states[-1:], dim=-1).max().item()
                score = (1 - alpha) * value - alpha * cosine
                if best is None or score > best[0]:
                    best = (score, token)
            if best[1] == EOS:
                break
            text.append(best[1])
    return [text], []


def put(options, ids, n, answer):
    rows, scores = answer
    print(json.dumps({"options": options, "ids": ids, "tokens": n, "texts": rows, "scores": [round(s, 6) for s in scores]}))


random.seed(7)
for case in range(8):
    ids = [random.randrange(1, 290) for _ in range(3 + 5 * case)]
    other = [random.randrange(1, 290) for _ in range(4)]
    n = 4 + 2 * case
    for size in (2, 5):
        for early, word in ((False, "no"), (True, "yes"), ("never", "never")):
            for lp in (1.0, 0.0, 2.0):
                put(f"--beams {size} --samples {size} --early-stopping {word} --length-penalty {lp}", ids, n,
                    beams(ids, n, num_beams=size, num_return_sequences=size, early_stopping=early, length_penalty=lp))
    put("--beams 4 --samples 2 --repeat-penalty 1.5 --repeat-last-n -1", ids, n,
        beams(ids, n, num_beams=4, num_return_sequences=2, repetition_penalty=1.5))
    for size, groups, penalty in ((4, 2, 0.5), (6, 3, 1.5), (4, 4, 3.0)):
        put(f"--beams {size} --samples {size} --beam-groups {groups} --diversity-penalty {penalty}", ids, n,
            diverse(ids, n, size, groups, penalty, 1.0))
    for k, alpha in ((4, 0.6), (8, 0.3), (3, 1.0)):
        put(f"--top-k {k} --penalty-alpha {alpha}", ids, n, contrastive(ids, n, k, alpha))
    for scale in (1.5, 3.0, 0.5):
        put(f"--temp 0 --cfg-scale {scale}", ids, n, beams(ids, n, guidance_scale=scale))
        put(f"--temp 0 --cfg-scale {scale} --negative-prompt {' '.join(map(str, other))}", ids, n,
            beams(ids, n, guidance_scale=scale, negative_prompt_ids=torch.tensor([other]),
                  negative_prompt_attention_mask=torch.ones(1, 4, dtype=torch.long)))
random.seed(8)
for case in range(6):  # long prompts have tokens that are likely
    ids = [random.randrange(1, 290) for _ in range(80)]
    put("--beams 4 --samples 4 --beam-groups 2 --diversity-penalty 0.5 --repeat-penalty 1.3 --repeat-last-n -1", ids, 8,
        diverse(ids, 8, 4, 2, 0.5, 1.0, 1.3))
    put("--top-k 4 --penalty-alpha 0.05 --repeat-penalty 1.3 --repeat-last-n -1", ids, 8, contrastive(ids, 8, 4, 0.05, 1.3))
