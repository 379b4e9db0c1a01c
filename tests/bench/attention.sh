#!/bin/bash
# Attention against PyTorch, in turns (attention_peer.py): 12 heads of 64, 1k, 4k and 16k tokens, forward and backward. Takes a few minutes.
#
#   tests/bench/attention.sh [ROUNDS [TOKENS,... [THREADS]]]
#
# VENV: a Python environment that has torch, made when absent [/tmp/llmutils-bench]. BIN: the folder of the programs [bin].
set -eu
. "${0%/*}/torch.sh"
python "$here/attention_peer.py" "$@"
