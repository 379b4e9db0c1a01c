#!/bin/bash
# Prefill and decoding against this machine's limits and against llama.cpp, with the bars that are to be reached; status 1 below one. Shares are of the
# arithmetic peak and of a streaming read of the same bytes, measured in turns within the run. Takes half an hour quiet.
#
#   tests/bench/infer.sh [RUNS [NAME=MODEL.gguf ...]]
#
# RUNS: rounds, of which the median counts [5]. Further models: SmolLM2=... and Gemma=... have rows of their own; without them these rows are missed.
# VENV: a Python environment with numpy, gguf, llama_cpp; absent: without the peer and with shares alone. MODELS keeps models of random weights, 4 GB
# [/tmp/speed-peer]. ONLY, DEPTH, THREADS: see speed_peer.py. BIN: the folder of the programs [bin].
set -eu
here=$(cd "${0%/*}" && pwd)
PATH=$(cd "${BIN:-$here/../../bin}" && pwd):$PATH
runs=${1:-5}
shift $(($# > 0))
if [[ -n ${VENV:-} ]]; then
    ROUNDS=$runs exec "$VENV/bin/python" "$here/speed_peer.py" "${MODELS:-/tmp/speed-peer}" "$@"
fi
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

# bench BAR OPTION...: one line a test; the bar is for decoding's share.
missed=0
bench() {
    local bar=$1
    shift
    llm-bench speed "$@" -r "$runs" | awk -F '\t' -v OFS='\t' -v bar="$bar" '
        NR > 1 { sub(/.*\//, "", $1); low = $7 ~ /^tg/ && $11 < bar; missed += low; print $11, $10, $1, $4, $7, $8, $9, low ? "MISSED: " bar : "ok" }
        END { exit missed > 0 }' || missed=1
}
printf 'share\tlimit\tmodel\ttype\ttest\ttokens_per_s\tdeviation\tbar\n'
for type in q8_0 q4_0 bf16; do bench .92 -c "$work/1.1b.json" -t "$type" -p 512 -n 32; done
for type in bf16 q8_0 q4_0; do bench .75 -c smollm -t "$type" -p 512 -n 64; done
for type in bf16 q8_0; do bench 0 -c "$work/15m.json" -t "$type" -p 512 -n 256; done
exit "$missed"
