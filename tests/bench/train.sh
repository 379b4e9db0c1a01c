#!/bin/bash
# Training against PyTorch, in turns (train_peer.py): GPT-2 124M at 4 x 256 and a 15M Llama at 16 x 256, BF16. Takes a few minutes.
#
#   tests/bench/train.sh [ROUNDS [STEPS [THREADS]]]
#
# VENV: a Python environment that has torch, made when absent [/tmp/llmutils-bench]. BIN: the folder of the programs [bin].
set -eu
here=${0%/*}
venv=${VENV:-/tmp/llmutils-bench}
PATH=$(cd "${BIN:-$here/../../bin}" && pwd):$PATH
if [[ ! -x $venv/bin/python ]]; then
    python3 -m venv "$venv" >&2
    "$venv/bin/pip" install --quiet torch numpy >&2
fi
# One process a shape: the peak memory of a process never falls again.
for shape in GPT-2 Llama; do SHAPES=$shape "$venv/bin/python" "$here/train_peer.py" "$@"; done
