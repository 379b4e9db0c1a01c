#!/bin/bash
# Training against PyTorch, in turns (train_peer.py): GPT-2 124M at 4 x 256 and 8 x 512 and a 15M Llama at 16 x 256, BF16 and FP32. Takes half an hour.
#
#   tests/bench/train.sh [ROUNDS [STEPS [THREADS]]]
#
# SHAPES, PRECISIONS: some of them ["GPT-2 124M, 4" "GPT-2 124M, 8" Llama; bf16 f32], a shape a line. COMPILE=yes: PyTorch through torch.compile.
# ACTIVATIONS: what ours keeps of blocks for their way back [f32].
# VENV: a Python environment that has torch, made when absent [/tmp/llmutils-bench]. BIN: the folder of the programs [bin].
set -eu
. "${0%/*}/torch.sh"
# One process a shape: the peak memory of a process never falls again.
mapfile -t shapes <<< "${SHAPES:-$'GPT-2 124M, 4\nGPT-2 124M, 8\nLlama'}"
for precision in ${PRECISIONS:-bf16 f32}; do
    for shape in "${shapes[@]}"; do PRECISION=$precision SHAPES=$shape python "$here/train_peer.py" "$@"; done
done
