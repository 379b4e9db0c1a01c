#!/usr/bin/env python3
"""tests/golden/prune.tsv: matrices pruned by the formulas of the papers, in double precision. A line: method, pattern, then the 5 × 160 elements.

magnitude: the smallest of the matrix. wanda: of each row (n:m: of each m neighbours) the least |w|·‖x‖. sparsegpt: for each column j from the
left, the inverse of the products of columns j and later is found anew by numpy.linalg.inv (no triangular factor); an element that becomes 0 takes
w_j / inv_00 times the inverse's first column from those columns. The mask of 128 columns, or of m neighbours, is of those with the least w² / inv_00
when the first of them is reached.

    tests/oracle/prune.py > tests/golden/prune.tsv

Needs numpy."""
import numpy as np

ROWS, COLS, TOKENS = 5, 160, 400
i = np.arange(ROWS * COLS, dtype=np.float64)
w0 = np.float32(np.sin(1.7 * i + 0.001 * i * i)).astype(np.float64).reshape(ROWS, COLS)
t = np.arange(TOKENS, dtype=np.float64)[:, None]
c = np.arange(COLS, dtype=np.float64)[None, :]
x = np.sin(0.37 * t * (1 + c % 7) + c * c) + 0.5 * np.cos(1.3 * t + 0.05 * c) + (c % 5) * 0.1 * np.sin(t * c * 0.77)
h = np.float32(x.T @ x).astype(np.float64)
norms = np.sqrt(np.diag(h) / TOKENS)


def least(score, count):
    mask = np.zeros(score.size, bool)
    mask[np.argsort(score, axis=None, kind="stable")[:count]] = True
    return mask.reshape(score.shape)


def neighbours(score, kept, of):
    mask = np.zeros_like(score, dtype=bool)
    for row in range(score.shape[0]):
        for at in range(0, score.shape[1], of):
            part = score[row, at:at + of]
            mask[row, at:at + of] = least(part, part.size - kept)
    return mask


def by_score(score, pattern, whole):
    if isinstance(pattern, tuple):
        return np.where(neighbours(score, *pattern), 0, w0)
    if whole:
        return np.where(least(score, round(pattern * score.size)), 0, w0)
    return np.where(np.stack([least(row, round(pattern * row.size)) for row in score]), 0, w0)


def sparsegpt(pattern):
    w, damped = w0.copy(), h + 0.01 * np.mean(np.diag(h)) * np.eye(COLS)
    first = np.array([np.linalg.inv(damped[j:, j:])[0, 0] for j in range(COLS)])
    step = pattern[1] if isinstance(pattern, tuple) else 128
    for j in range(COLS):
        if j % step == 0:
            score = w[:, j:j + step] ** 2 / first[j:j + step]
            mask = neighbours(score, *pattern) if isinstance(pattern, tuple) else least(score, round(pattern * score.size))
        inverse = np.linalg.inv(damped[j:, j:])
        for row in np.nonzero(mask[:, j % step])[0]:
            w[row, j:] -= w[row, j] / inverse[0, 0] * inverse[:, 0]
            w[row, j] = 0
    return w


for name, pattern in ((".5", .5), ("2:4", (2, 4)), (".7", .7), ("3:8", (3, 8))):
    for method, values in (("magnitude", by_score(np.abs(w0), pattern, True)), ("wanda", by_score(np.abs(w0) * norms, pattern, False)),
                           ("sparsegpt", sparsegpt(pattern))):
        print(method, name, *(f"{v:.9g}" for v in values.flat), sep="\t")
