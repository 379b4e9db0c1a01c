#!/bin/bash
# Muon against AdamW: a character model of 6 layers, 256 wide, on tinyshakespeare; each at four learning rates, AdamW over STEPS steps, Muon over
# .85 of them, each with its schedule over its own horizon. A row a run in FOLDER/muon.tsv; rows that are there are not run again.
#
#   tests/slow/muon.sh TEXT FOLDER [STEPS [BATCH [CONTEXT]]]
set -eu -o pipefail
text=$1 folder=$2 steps=${3:-1000} batch=${4:-32} context=${5:-128}
rows=$folder/muon.tsv
mkdir -p "$folder"
if [[ ! -e $folder/val.tok ]]; then
    llm-tokenize train --model char -o "$folder/char.json" "$text"
    head -c 1003854 "$text" | llm-tokenize encode -T "$folder/char.json" -o "$folder/train.tok" -
    tail -c +1003855 "$text" | llm-tokenize encode -T "$folder/char.json" -o "$folder/val.tok" -
fi
[[ -e $rows ]] || printf 'optimizer\tlr\tsteps\tbatch\tcontext\tval_loss\n' > "$rows"

# row OPTIMIZER LR STEPS OPTION...
row() {
    local key
    printf -v key '%s\t%s\t%s\t%s\t%s' "$1" "$2" "$3" "$batch" "$context"
    if ! grep -qF "$key	" "$rows"; then
        llm-train -q -c nano --set n_layer=6 --set n_embd=256 --set n_head=8 -T "$folder/char.json" -l "$context" -b "$batch" -n "$3" --order random \
            --warmup $((steps / 20)) --schedule linear --min-lr 0 --beta2 .95 --val "$folder/val.tok" --eval-every 0 --log "$folder/log" "${@:4}" \
            "$folder/train.tok" -o "$folder/model.llm"
        printf '%s\t%s\n' "$key" "$(tail -n 1 "$folder/log" | jq .val_loss)" >> "$rows"
    fi
}
for lr in 5e-4 1e-3 2e-3 4e-3; do row adamw $lr "$steps" --optimizer adamw --lr $lr; done
for lr in 5e-3 1e-2 2e-2 4e-2; do row muon $lr $((steps * 85 / 100)) --optimizer muon --lr 2e-3 --muon-lr $lr; done
awk -F'\t' -v batch="$batch" -v context="$context" -v a="$steps" -v m=$((steps * 85 / 100)) '
    $4 == batch && $5 == context && $3 == ($1 == "muon" ? m : a) { if (!($1 in best) || $6 < best[$1]) { best[$1] = $6; at[$1] = $2 } }
    END { printf "adamw %s at %s in %d steps, muon %s at %s in %d\n", best["adamw"], at["adamw"], a, best["muon"], at["muon"], m
          exit !(best["muon"] <= best["adamw"]) }' "$rows"
