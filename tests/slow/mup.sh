#!/bin/bash
# Whether learning rates transfer from width 128 to 512: a character model of 2 layers on tinyshakespeare at rates that are powers of 2, in the standard
# parametrisation and under muP with base width 128 (at 128 they are one). The mean training loss of the last fifth of the steps; a row a run in
# FOLDER/mup.tsv; rows that are there are not run again.
#
#   tests/slow/mup.sh TEXT FOLDER [STEPS [BATCH [CONTEXT]]]
set -eu -o pipefail
text=$1 folder=$2 steps=${3:-500} batch=${4:-16} context=${5:-64}
rows=$folder/mup.tsv
mkdir -p "$folder"
if [[ ! -e $folder/train.tok ]]; then
    llm-tokenize train --model char -o "$folder/char.json" "$text"
    head -c 1003854 "$text" | llm-tokenize encode -T "$folder/char.json" -o "$folder/train.tok" -
fi
[[ -e $rows ]] || printf 'kind\twidth\tlog2_lr\tsteps\tbatch\tcontext\tloss\n' > "$rows"

# row KIND WIDTH LOG2_LR OPTION...
row() {
    local key
    printf -v key '%s\t%s\t%s\t%s\t%s\t%s' "$1" "$2" "$3" "$steps" "$batch" "$context"
    grep -qF "$key	" "$rows" && return
    # a rate that is too high may end in a loss that is not a number: that is a row, too
    llm-train -q -c nano --set n_layer=2 --set n_embd="$2" --set n_head=$(($2 / 32)) -T "$folder/char.json" -l "$context" -b "$batch" -n "$steps" \
        --order random --warmup $((steps / 10)) --schedule constant --lr "$(awk -v k="$3" 'BEGIN { print 2 ^ k }')" "${@:4}" --log "$folder/log" \
        "$folder/train.tok" -o "$folder/model.llm" || true
    printf '%s\t%s\n' "$key" "$(jq -s --argjson n "$steps" 'if length < $n then 99 else .[length * 4 / 5 | floor:] | map(.loss) | add / length end' \
        "$folder/log")" >> "$rows"
}
for k in -6 -7 -8 -9 -5 -10 -11 -4; do
    row both 128 $k
    row standard 512 $k
    row mup 512 $k --mup --base-width 128
done
awk -F'\t' -v s="$steps" -v b="$batch" -v c="$context" '$4 == s && $5 == b && $6 == c { k = $1 "-" $2; if (!(k in best) || $7 < best[k]) { best[k] = $7; at[k] = $3 } }
    END { printf "best log2 rate: 128 wide %d; 512 wide: standard %d, muP %d\n", at["both-128"], at["standard-512"], at["mup-512"]
          d = at["mup-512"] - at["both-128"]; exit !(d >= -1 && d <= 1 && at["standard-512"] <= at["both-128"] - 2) }' "$rows"
