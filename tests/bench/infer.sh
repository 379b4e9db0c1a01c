#!/bin/bash
# Prefill and decoding: shares of the arithmetic peak and of a streaming read of the same bytes, measured in turns within the run; then decoding in
# turns with llama.cpp on the same Q8_0 weights (decode_peer.py), where the Python environment has it. Takes a few minutes.
#
#   tests/bench/infer.sh [RUNS]
#
# VENV: a Python environment with numpy, gguf, safetensors, llama_cpp; absent: without the peer. MODELS keeps the peer's models, 2.4 GB
# [/tmp/decode-peer]. BIN: the folder of the programs [bin].
set -eu
here=$(cd "${0%/*}" && pwd)
PATH=$(cd "${BIN:-$here/../../bin}" && pwd):$PATH
runs=${1:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT

# The shapes of TinyLlama 1.1B and of a 15M Llama, with random weights.
cat > "$work/1.1b.json" << 'END'
{"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
 "num_attention_heads": 32, "num_key_value_heads": 4, "max_position_embeddings": 2048, "tie_word_embeddings": false}
END
cat > "$work/15m.json" << 'END'
{"model_type": "llama", "vocab_size": 32000, "hidden_size": 288, "intermediate_size": 768, "num_hidden_layers": 6,
 "num_attention_heads": 6, "num_key_value_heads": 6, "max_position_embeddings": 1024, "tie_word_embeddings": true}
END

head=
bench() {
    llm-bench speed "$@" -r "$runs" | sed -n "${head:-1},\$p" | awk -F '\t' -v OFS='\t' '{ sub(/.*\//, "", $1); print $11, $10, $1, $4, $7, $8, $9 }'
    head=2
}
bench -c "$work/1.1b.json" -t q8_0 -p 512 -n 32
bench -c "$work/1.1b.json" -t q4_0 -p 512 -n 32
for type in bf16 q8_0 q4_0; do bench -c smollm -t "$type" -p 512 -n 64; done
for type in bf16 q8_0; do bench -c "$work/15m.json" -t "$type" -p 512 -n 256; done
if [[ -n ${VENV:-} ]] && "$VENV/bin/python" -c 'import llama_cpp, gguf, safetensors' 2> "$work/why"; then
    "$VENV/bin/python" "$here/decode_peer.py" "${MODELS:-/tmp/decode-peer}" "$runs"
else
    echo "no peer: $(tail -n 1 "$work/why" 2> /dev/null || true)${VENV:+ ($VENV)}" >&2
fi
