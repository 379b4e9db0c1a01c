#!/bin/bash
# Seeds for the fuzzers of formats, from the goldens:  tests/fuzz/make-corpus.sh FOLDER
# makes FOLDER/fuzz_message, FOLDER/fuzz_json_header, FOLDER/fuzz_checkpoint, FOLDER/fuzz_gguf, FOLDER/fuzz_kv, FOLDER/fuzz_rwkv_cpp,
# FOLDER/fuzz_image, FOLDER/fuzz_spm and FOLDER/fuzz_ngram.
set -eu
golden=$(cd "${0%/*}/../golden/formats" && pwd)
mkdir -p "$1"/fuzz_image "$1"/fuzz_ngram "$1"/fuzz_spm "$1"/fuzz_gguf "$1"/fuzz_kv "$1"/fuzz_rwkv_cpp "$1"/fuzz_message "$1"/fuzz_json_header "$1"/fuzz_checkpoint
cp "$golden"/*.{tensors,tok,kv,safetensors} "$golden"/bad/*.tensors "$1/fuzz_message"
cp "$golden"/*.{llm,safetensors} "$golden"/bad/*.llm "$1/fuzz_checkpoint"
for file in "$1"/fuzz_message/*; do
    tail -c +9 "$file" > "$1/fuzz_json_header/${file##*/}"
done
cp "$golden"/../sentencepiece/*.model "$1/fuzz_spm"
cp "$golden"/ngram.safetensors "$1/fuzz_ngram"
cp "$golden"/*.gguf "$1/fuzz_gguf"
cp "$golden"/*.kv "$1/fuzz_kv"
cp "$golden"/*.rwkv "$1/fuzz_rwkv_cpp"
cp "$golden"/../image/*.{png,jpg} "$1/fuzz_image"
