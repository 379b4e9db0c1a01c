# --profile of llm-train and llm-infer: rows for the work there was, calls and FLOPs as the cost model has them.
load ../helper
export LLM_THREADS=2

setup_file() {
    llm-tokenize train --model byte -o byte.json /dev/null
    seq 2000 | llm-tokenize encode -T byte.json -o data.tok
    export F=$PWD
    shape=(--set n_layer=2 --set n_embd=32 --set n_head=2)
    llm-train -q -c nano "${shape[@]}" -T byte.json -n 0 -l 31 -o model.llm data.tok
}

setup() {
    shape=(--set n_layer=2 --set n_embd=32 --set n_head=2)
}

# forward_flops CONTEXT: of a token, by the cost model
forward_flops() {
    llm-bench cost --json --table totals --context "$1" "$F/model.llm" | jq 'select(.what == "forward").value'
}

# rows FILE FILTER: what jq's filter finds in the JSON rows of a profile
rows() {
    grep '^{' "$1" | jq -s "$2"
}

@test "llm-train: rows for the ops, calls and FLOPs of the cost model" {
    llm-train --json --profile -c nano "${shape[@]}" -T "$F/byte.json" -n 3 -b 4 -l 31 --cross-document -o out.llm "$F/data.tok" 2> err
    rows err '[.[].what]' > names
    for name in linear 'linear dx' 'linear dw' head 'head dx' 'head dw' attention 'attention backward' layernorm 'layernorm backward' activation \
        'activation backward' add embedding 'embedding backward' cross-entropy optimizer 'gradient norm' batch load save elsewhere all products; do
        grep -qF "\"$name\"" names || fail "no row for '$name': $(cat names)"
    done
    flops=$(forward_flops 16) # 31 tokens see 16 on average
    wanted=$(jq -n "3 * 3 * 4 * 31 * $flops / 1e9")
    found=$(rows err '.[] | select(.what == "all").gflop')
    jq -en "($found / $wanted - 1) | fabs < 1e-9" || fail "expected $wanted GFLOP, found $found"
    found=$(rows err '[.[] | select(.kind == "part" and .gflop > 0).gflop] | add')
    attention=$(rows err '[.[] | select(.what | startswith("attention")).gflop] | add')
    jq -en "(($found + $attention) / $wanted - 1) | fabs < 1e-9" || fail "expected $wanted GFLOP in parts, found $found and $attention"
    [[ $(rows err '.[] | select(.what == "linear").calls') == $((3 * 2 * 4)) ]]
    [[ $(rows err '.[] | select(.what == "attention backward").calls') == $((3 * 2)) ]]
    [[ $(rows err '.[] | select(.what == "batch").calls') == 3 ]]
}

@test "perceivers: FLOPs of the cost model, whose blocks are not all alike" {
    perceiver=(llm-train -q --json --profile -c perceiver --set num_hidden_layers=3 --set hidden_size=32 --set intermediate_size=48
               --set num_attention_heads=2 -T "$F/byte.json" -n 3 -b 4 -o p.llm)
    "${perceiver[@]}" --set num_latents=9 -l 27 --cross-document "$F/data.tok" 2> err # three blocks of 9, of whom tokens see 5 on average, 14 of the text
    flops=$(llm-bench cost --json --table totals --context 14 p.llm | jq 'select(.what == "forward").value')
    found=$(rows err '.[] | select(.what == "all").gflop')
    jq -en "($found / (3 * 3 * 4 * 27 * $flops / 1e9) - 1) | fabs < 1e-9" || fail "expected $flops FLOPs a token, found $found GFLOP"
    llm-bench cost --table parts --context 14 p.llm > t
    [[ $(awk -F '\t' '$1 == "scores and values, context 14" { print $5 }' t | xargs) == "$((4 * 32 * 14)) $((4 * 32 * 5))" ]]
    awk -F '\t' '$1 == "block" { sum += $5 } $1 == "block 1" { sum += 2 * $5 } $1 == "3 blocks" { all = $5 } END { exit !(sum == all && sum > 0) }' t
    # learned latents look at a text of 32 once; what tells classes apart is one product a text
    for n in $(seq 60); do printf 'a text of thirty-two bytes, says\t%d\n' $((n % 2)); done > classes.tsv
    llm-tokenize encode -T "$F/byte.json" --tsv --label 2 -o classes.tok classes.tsv
    "${perceiver[@]}" --set latents=learned --set num_latents=6 -l 32 --objective classify classes.tok 2> err
    flops=$(llm-bench cost --json --table totals --context 32 p.llm | jq 'select(.what == "forward").value')
    found=$(rows err '.[] | select(.what == "all").gflop')
    jq -en "($found / (3 * 3 * 4 * (32 * ($flops - 2 * 2 * 32) + 2 * 2 * 32) / 1e9) - 1) | fabs < 1e-9" || fail "expected $flops, found $found GFLOP"
}

@test "llm-train: the same model with and without, quiet or not" {
    llm-train -q --profile -c nano "${shape[@]}" -T "$F/byte.json" -n 2 -l 31 -o a.llm "$F/data.tok" 2> err
    llm-train -q -c nano "${shape[@]}" -T "$F/byte.json" -n 2 -l 31 -o b.llm "$F/data.tok" 2> nothing
    cmp a.llm b.llm
    [[ ! -s nothing ]]
    head -n 1 err | grep -q '^what  *kind  *calls  *seconds  *share '
}

@test "llm-infer: rows for the ops, FLOPs of the cost model" {
    printf 'a text of thirty-one bytes, yes' > text
    llm-infer -q --profile --precision f32 -m "$F/model.llm" --score -f text > scores 2> err
    n=$(($(wc -l < scores) + 1))
    wanted=$(jq -n "31 * $(forward_flops 16) / 1e9")
    found=$(sed -E 's/ ([mun]?s|[KMGT]?i?B)( |$)/\2/g' err | awk '$1 == "all" { print $7 }') # without units
    [[ $n == 31 || $n == 32 ]]
    jq -en "($found / $wanted - 1) | fabs < 1e-4" || fail "expected $wanted GFLOP, found $found"
    llm-infer -q --profile -m "$F/model.llm" -n 5 --seed 1 abc > text1 2> err
    llm-infer -q -m "$F/model.llm" -n 5 --seed 1 abc > text2
    cmp text1 text2
    for name in 'attention over a cache' sampling tokenize load linear elsewhere; do grep -q "^$name " err || fail "no row for '$name'"; done
}
