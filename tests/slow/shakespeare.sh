#!/bin/bash
# tinyshakespeare, character by character: architectures trained within the same arithmetic, three seeds, loss on the whole validation split in windows
# that go on by half. A line a row and seed; lines that TABLE has already are kept, so an interrupted run goes on.
#
#   tests/slow/shakespeare.sh [-n] TABLE [ROW...]      -n: say what would run, with its steps
set -euo pipefail
here=$(cd "${0%/*}/../.." && pwd)
export PATH="${BIN:-$here/bin}:$PATH"
dry=
if [[ ${1-} == -n ]]; then
    dry=1
    shift
fi
table=${1:?expected a table}
shift
text=${LLM_SHARED:-$here/../shared}/data/corpora/tinyshakespeare.txt
[[ -e $text ]] || { echo "$0: expected $text" >&2; exit 66; }

# ROW|FLOPs|most nats|options of llm-train. The limits allow 6e14 FLOPs to llama and 3e14 to the others.
muon='--optimizer muon --lr 2e-3 --schedule linear --min-lr 1e-5'
rows="mla|8e13|1.56|-c mla --set num_hidden_layers=6 --dropout .1 $muon
lstm|8e13|1.60|-c lstm --dropout .2 --lr 4e-3 --schedule linear --min-lr 1e-5
mamba|5e13|1.56|-c mamba --dropout .1 $muon
moe|8e13|1.56|-c moe --set num_hidden_layers=5 --dropout .1 $muon
llama|1e14|1.51|-c tiny --set num_hidden_layers=6 --set num_key_value_heads=4 --dropout .1 $muon
nanogpt-gpu|1e14|9|-c nano --set n_layer=6 --set n_head=6 --set n_embd=384 --dropout .2 --lr 1e-3 --beta2 .99"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
llm-tokenize train -q --model char -o "$folder/char.json" "$text"
head -c 1003854 "$text" | llm-tokenize encode -q -T "$folder/char.json" -o "$folder/train.tok" -
tail -c +1003855 "$text" | llm-tokenize encode -q -T "$folder/char.json" -o "$folder/val.tok" -
[[ -e $table ]] || printf 'row\tseed\tflops\tsteps\tnats\tmost\tseconds\n' > "$table"

for seed in 1 2 3; do
    while IFS='|' read -r row flops most options; do
        (($# == 0)) || [[ " $* " == *" $row "* ]] || continue
        ! cut -f 1,2 "$table" | grep -qx "$row"$'\t'"$seed" || continue
        read -ra options <<< "$options"
        train=(llm-train -q "${options[@]}" -T "$folder/char.json" -l 256 -b 16 --warmup 100 "$folder/train.tok")
        steps=$("${train[@]}" --plan --json | jq --argjson f "$flops" '$f / .flops_per_step | floor')
        echo "$row, seed $seed: $steps steps of $flops FLOPs in all" >&2
        [[ -z $dry ]] || continue
        start=$EPOCHSECONDS
        "${train[@]}" --seed $seed -n "$steps" -o "$folder/model.llm"
        nats=$(llm-bench quality -q --json -m "$folder/model.llm" -c 256 "$folder/val.tok" | jq .nats_per_token)
        printf '%s\t%s\t%s\t%s\t%.4f\t%s\t%s\n' "$row" $seed "$flops" "$steps" "$nats" "$most" $((EPOCHSECONDS - start)) >> "$table"
    done <<< "$rows"
done
