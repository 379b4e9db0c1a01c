# Every preset of llm-train -c: its run can be planned, and it learns one batch by heart.
load ../helper
export LLM_THREADS=1

setup_file() {
    sentences_tokens
    llm-tokenize train --vocab-size 280 --special '<|endoftext|>' -o ended.json text
}

# each PRESET OPTION...: llm-train with the preset's objective
each() {
    local of=(--objective lm)
    case $1 in
    bert-mini) of=(--objective mlm) ;;
    t5-mini) of=(--objective seq2seq) ;;
    clip-nano) of=(--objective contrastive -T "$F/ended.json") ;;
    llava-nano) of=(--objective sft) ;;
    vit-nano) of=(--objective classify --set num_labels=10) ;;
    esac
    [[ $1 == vit-nano || $1 == clip-nano ]] || of+=(-l 16 -T "$F/tok.json")
    llm-train -q -c "$1" "${of[@]}" "${@:2}"
}

@test "a run of every preset can be planned" {
    run -66 llm-train -c nosuch -o out.llm "$F/data.tok"
    presets=$(sed 's/.* one of //; s/: nosuch.*//; s/,//g' <<< "$output")
    [[ $(wc -w <<< "$presets") -ge 15 ]]
    for preset in $presets; do
        [[ $preset != gpt2 && $preset != smollm ]] || continue # the same families as others here, and large
        each "$preset" -b 2 --plan --json > plan.json || fail "$preset"
        jq -e '.parameters > 0 and .activation_bytes > 0 and .flops_per_step > 0' plan.json > /dev/null || fail "$preset: $(< plan.json)"
    done
}

@test "layers that are not alike are planned as they are" {
    llm-train -q -c bengio --set intermediate_size=300 -l 16 -b 1 --plan --json > plan.json # the last layer alone has direct connections
    assert_equal "$(jq .parameters plan.json)" $((4096 * 60 + 300 * 301 + 4096 * 601))
}

@test "models from before attention and beside it learn one batch by heart" {
    local layers
    for preset in rnn mamba mamba2 rwkv rwkv5 rwkv6 rwkv7 hyena mlp bengio; do
        case $preset in # two layers are enough to show that they learn
        mamba* | rwkv*) layers="--set num_hidden_layers=2" ;;
        hyena) layers="--set n_layer=2" ;;
        *) layers= ;;
        esac
        # shellcheck disable=SC2086  # two words, or none
        without_sanitizer each $preset $layers -l 12 -b 2 -n 120 --lr 1e-2 --overfit-one "$F/data.tok" > log 2>&1 || fail "$preset: $(tail -n 1 log)"
    done
    without_sanitizer each lstm --set hidden_size=64 --set num_layers=1 -l 12 -b 2 -n 150 --lr 1e-2 --overfit-one "$F/data.tok" > log 2>&1 || fail "lstm: $(tail -n 1 log)"
    run -1 without_sanitizer each lstm --set hidden_size=64 --set num_layers=1 -l 12 -b 2 -n 150 --lr 1e-5 --overfit-one "$F/data.tok" # it can fail
}

@test "--set takes .1 for 0.1" {
    for value in .1 0.1; do
        llm-train -q -c nano --set n_layer=1 --set n_embd=32 --set n_head=2 --set resid_pdrop=$value -T "$F/tok.json" -n 0 -o model$value.llm "$F/data.tok"
    done
    cmp model.1.llm model0.1.llm
}
