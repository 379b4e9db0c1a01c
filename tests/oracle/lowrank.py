#!/usr/bin/env python3
"""tests/golden/lowrank.tsv: the least squared error of the outputs that b·a of a rank leaves of a matrix, by numpy's singular values.

A line: rows, columns, what is known of the inputs (none, squares, products), rank, Σ of the squared singular values of w·R beyond the rank, where
R is the identity, the roots of the mean squares, or the Cholesky factor of the products; and the Σ of all.

    tests/oracle/lowrank.py > tests/golden/lowrank.tsv

Needs numpy."""
import numpy as np

TOKENS = 400


def matrix(rows, cols):
    i = np.arange(rows * cols, dtype=np.float64)
    return np.float32(np.sin(1.7 * i + 0.001 * i * i)).astype(np.float64).reshape(rows, cols)


def products(cols):
    t = np.arange(TOKENS, dtype=np.float64)[:, None]
    c = np.arange(cols, dtype=np.float64)[None, :]
    x = np.sin(0.37 * t * (1 + c % 7) + c * c) + 0.5 * np.cos(1.3 * t + 0.05 * c) + (c % 5) * 0.1 * np.sin(t * c * 0.77)
    return np.float32(x.T @ x).astype(np.float64)


for rows, cols in [(24, 40), (40, 24), (1, 8), (17, 1)]:
    w, h = matrix(rows, cols), products(cols)
    roots = {"none": np.eye(cols), "squares": np.diag(np.sqrt(np.float32(np.diag(h) / TOKENS).astype(np.float64))), "products": np.linalg.cholesky(h)}
    for known, root in roots.items():
        squares = np.linalg.svd(w @ root, compute_uv=False) ** 2
        for rank in [1, 4, 12, 24]:
            if rank <= min(rows, cols):
                print(rows, cols, known, rank, repr(float(squares[rank:].sum())), repr(float(squares.sum())), sep="\t")
