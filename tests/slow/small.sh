#!/bin/bash
# The model on which methods of compression and distillation are compared: the preset `small`, 30M parameters, trained on English text of shared/data.
# Two threads take about an hour with AVX-512. Makes in FOLDER: tok.json, train.tok, val.tok (the last sixteenth of each text), small.llm.
#
#   tests/slow/small.sh DATA FOLDER [STEPS [OPTION...]]   # DATA: the folder shared/data; options of llm-train; a run that was stopped goes on
set -eu -o pipefail
data=$1 folder=$2 steps=${3:-1500}
corpora=$data/corpora
mkdir -p "$folder"

# of a text on standard input, whole lines: the last sixteenth to val.txt, the rest to train.txt
split() {
    cat > "$folder/text"
    local lines
    lines=$(wc -l < "$folder/text")
    head -n $((lines - lines / 16)) "$folder/text" >> "$folder/train.txt"
    tail -n $((lines / 16)) "$folder/text" >> "$folder/val.txt"
    rm "$folder/text"
}

if [[ ! -e $folder/val.tok ]]; then
    : > "$folder/train.txt" > "$folder/val.txt"
    split < "$corpora/wikitext-2/wiki.test.raw"
    split < "$corpora/tinyshakespeare.txt"
    split < "$corpora/botchan.txt"
    split < "$corpora/llama-factory/wiki_demo.txt"
    jq -r .text "$corpora/llama-factory/c4_demo.jsonl" | split
    jq -r '.question + "\n" + .answer + "\n"' "$corpora/gsm8k/train.jsonl" | split
    awk 'NR % 6 == 1 { context = $0 } NR % 6 == 2 { right = $0 } NR % 6 == (right + 3) % 6 { print context " " $0 }' "$data/eval/hellaswag-5000.txt" | split
    llm-tokenize train -q --vocab-size 8192 -o "$folder/tok.json" "$folder/train.txt"
    llm-tokenize encode -q -T "$folder/tok.json" -o "$folder/train.tok" "$folder/train.txt"
    llm-tokenize encode -q -T "$folder/tok.json" -o "$folder/val.tok.new" "$folder/val.txt"
    mv "$folder/val.tok.new" "$folder/val.tok"
fi
if [[ -e $folder/small.llm ]]; then
    llm-train -q --resume "$folder/small.llm" -n "$steps" --log "$folder/log" "${@:4}"
else
    llm-train -q -c small -T "$folder/tok.json" -l 256 -b 8 -n "$steps" --optimizer muon --lr 1e-3 --muon-lr 2e-2 --schedule wsd --order random \
        --save-every 50 --val "$folder/val.tok" --eval-every 250 --log "$folder/log" "${@:4}" -o "$folder/small.llm" "$folder/train.tok"
fi
