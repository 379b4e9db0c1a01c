#!/usr/bin/env python3
"""Advantages of rollouts in double, from the formulas of TRL's PPOTrainer (rewards less the KL of each token, generalised advantage estimation,
masked_whiten), RLOOTrainer and GRPOTrainer, the losses of values, and the adaptive coefficient of a KL (Ziegler et al. 2019): tests/golden/credit.tsv.
Hard cases: completions of one token, tokens that do not count at any place, completions without a token that counts, all rewards equal, gamma and
lambda 0 and 1."""
import math
import numpy as np

rng = np.random.default_rng(16)
f32 = lambda x: np.asarray(x, np.float32).astype(np.float64)


def estimate(x, kind):
    return {"k1": -x, "k2": x * x / 2, "k3": math.expm1(x) - x}[kind]


def gae(reward, value, gamma, lam):
    out, last = np.zeros(len(reward)), 0.0
    for t in reversed(range(len(reward))):
        after = value[t + 1] if t + 1 < len(reward) else 0.0
        last = reward[t] + gamma * after - value[t] + gamma * lam * last
        out[t] = last
    return out


def batch(name, lengths, gamma, lam, white, coef, kind, equal=False, masks=True, cut=()):
    groups, completions = [g for g, n in enumerate(lengths) for _ in n], [n for group in lengths for n in group]
    data = []
    for n in completions:
        mask = rng.random(n) > .3 if masks and n > 1 else np.ones(n, bool)
        mask[rng.integers(n)] = len(data) not in cut
        mask &= len(data) not in cut
        logprob, value = f32(-rng.exponential(1.5, n)), f32(rng.normal(0, 1, n))
        reward = f32(np.where(rng.random(n) > .6, rng.normal(0, 1, n), 0))
        if equal:
            reward, value = np.zeros(n), np.zeros(n)
            reward[-1] = 1
        data.append((mask, logprob, f32(logprob + rng.normal(0, .3, n)), value, reward))
    steps, totals, before = [], [], []
    for mask, logprob, reference, value, reward in data:
        taken = np.flatnonzero(mask)
        own = [reward[t] - coef * estimate(reference[t] - logprob[t], kind) for t in taken]
        for t in range(len(mask)):  # what the environment gives after a token belongs to it
            if not mask[t] and (taken < t).any():
                own[np.flatnonzero(taken < t)[-1]] += reward[t]
        steps.append((taken, np.array(own)))
        before.append(reward[: taken[0] if len(taken) else len(mask)].sum())
        totals.append(before[-1] + sum(own))
    if name == "gae":
        advantages = [gae(own, data[i][3][taken], gamma, lam) for i, (taken, own) in enumerate(steps)]
    else:
        advantages = []
        for i, (_, own) in enumerate(steps):
            group = [totals[j] for j in range(len(totals)) if groups[j] == groups[i]]
            mates = [totals[j] for j in range(len(totals)) if groups[j] == groups[i] and j != i]
            gain = totals[i] - np.mean(group if name == "grpo" else mates) - before[i] - (np.cumsum(own) - own)
            advantages.append(gain / (np.std(group, ddof=1) + 1e-4) if name == "grpo" else gain)
    returns = [a + data[i][3][steps[i][0]] for i, a in enumerate(advantages)]
    kl = np.mean([sum(d[1][t] - d[2][t] for t in s[0]) for d, s in zip(data, steps)]) if coef else 0
    if white:
        every = np.concatenate(advantages)
        mean, var = every.mean(), every.var(ddof=1)
        advantages = [(a - mean) / math.sqrt(var + 1e-8) for a in advantages]
    print("batch", name, len(data), gamma, lam, int(white), coef, kind, repr(float(kl)), repr(float(np.mean(totals))), sep="\t")
    for (mask, logprob, reference, value, reward), (taken, _), a, r, g in zip(data, steps, advantages, returns, groups):
        print("completion", len(mask), g, sep="\t")
        for t in range(len(mask)):
            at = np.flatnonzero(taken == t)
            found = (float(a[at[0]]), float(r[at[0]])) if len(at) else (0.0, 0.0)
            print("token", int(mask[t]), *(repr(float(x)) for x in (logprob[t], reference[t], value[t], reward[t], *found)), sep="\t")


for gamma, lam in ((1, .95), (1, 1), (1, 0), (.9, .5), (0, .95)):
    for white in (False, True):
        for coef, kind in ((0, "k1"), (.05, "k1"), (.2, "k2"), (1.5, "k3")):
            batch("gae", [[5, 1], [9, 12], [1, 1]], gamma, lam, white, coef, kind)
batch("gae", [[4, 4], [4, 4]], 1, .95, True, 0, "k1", equal=True, masks=False)
for coef, kind in ((0, "k1"), (.05, "k1"), (1.5, "k3")):
    batch("rloo", [[5, 1, 7], [9, 12], [1, 1, 2, 3]], 1, 1, False, coef, kind)
for coef, kind in ((0, "k1"), (.05, "k1"), (1.5, "k3")):
    batch("grpo", [[5, 1, 7], [9, 12], [1, 1, 2, 3]], 1, 1, False, coef, kind, cut=(1, 4))
    batch("rloo", [[5, 2, 7], [9, 12]], 1, 1, False, coef, kind, cut=(0, 3))
for value, old, target, clip in ((1, .5, 2, .2), (1, .5, .2, .2), (.6, .5, 2, .2), (-3, -3, 1, .2), (1, .5, .9, .2), (1, .5, 2, 0), (0, 0, 0, .2), (2, .5, 1, .2)):
    bounded = min(max(value, old - clip), old + clip) if clip else value
    loss = .5 * max((value - target) ** 2, (bounded - target) ** 2)
    slope = value - target if (value - target) ** 2 >= (bounded - target) ** 2 else 0
    print("value", value, old, target, clip, repr(float(loss)), repr(float(slope)), sep="\t")
for coef, kl, target, horizon, n in ((.2, 3, 6, 10000, 64), (.2, 6.3, 6, 10000, 256), (.2, 60, 6, 10000, 256), (.01, -5, 6, 500, 1000)):
    print("adapt", coef, kl, target, horizon, n, repr(coef * (1 + float(np.clip(kl / target - 1, -.2, .2)) * n / horizon)), sep="\t")
