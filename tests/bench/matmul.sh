#!/bin/bash
# Matrix products against oneDNN on packed weights (through PyTorch) and OpenBLAS (through numpy), in turns (matmul_peer.py), and against the peak that
# the same run measures. Prints a table; status 1 below a bar. Takes a few minutes.
#
#   tests/bench/matmul.sh [ROUNDS [THREADS]]
#
# LLM_ISA: the instruction set of both, avx512, avx512bf16 or amx [the best]. VENV: a Python environment that has torch, made when absent
# [/tmp/llmutils-bench]. BIN: the folder of the programs [bin].
set -eu
. "${0%/*}/torch.sh"
case ${LLM_ISA-} in
avx512) export ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI ;;
avx512bf16) export ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 ;;
esac
export OPENBLAS_NUM_THREADS=${2:-2}
python "$here/matmul_peer.py" "$@"
