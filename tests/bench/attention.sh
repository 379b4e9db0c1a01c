#!/bin/bash
# Attention against PyTorch, in turns (attention_peer.py): 12 heads of 64, 1k, 4k and 16k tokens, forward and backward. Takes a few minutes.
#
#   tests/bench/attention.sh [ROUNDS [TOKENS,... [THREADS]]]
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
exec "$venv/bin/python" "$here/attention_peer.py" "$@"
