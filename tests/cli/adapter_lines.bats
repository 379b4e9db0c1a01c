# Lines of --jsonl that name their own adapters: mixed in passes, each line gets what it would get alone.
load ../helper
export LLM_THREADS=2

setup_file() {
    [[ -z ${SANITIZER-} ]] || return 0
    sentences_tokens
    local -A sets=([llama]="-c tiny --set num_hidden_layers=2 --set hidden_size=64 --set tie_word_embeddings=false" [gpt2]="-c gpt2 --set n_layer=2 --set n_embd=64 --set n_head=2"
        [moe]="-c moe --set num_hidden_layers=2 --set hidden_size=64 --set num_local_experts=4" [mla]="-c mla --set num_attention_heads=2"
        [mamba]="-c mamba --set num_hidden_layers=2 --set hidden_size=64")
    for model in "${!sets[@]}"; do
        llm-train -q ${sets[$model]} -T tok.json -l 24 -n 10 --lr 1e-2 -b 4 -o $model.llm data.tok
        for seed in 1 2; do
            llm-train -q --init $model.llm --adapter lora --rank $((seed + 1)) --seed $seed -l 24 -b 4 -n 6 --lr 2e-2 -o $model-$seed.llm data.tok
        done
    done
    llm-train -q --init llama.llm --adapter lora --targets lm_head --targets q_proj -l 24 -b 4 -n 6 --lr 2e-2 -o llama-head.llm data.tok
    llm-train -q --init mla.llm --adapter lora --targets q_proj --targets o_proj -l 24 -b 4 -n 6 --lr 2e-2 -o mla-1.llm data.tok
    llm-train -q --init mla.llm --adapter lora --targets down_proj -l 24 -b 4 -n 6 --lr 2e-2 -o mla-2.llm data.tok
    cut -d ' ' -f 1-5 text | head -n 12 | jq -Rc '{id: input_line_number, prompt: .}' > prompts.jsonl
}

setup() {
    [[ -z ${SANITIZER-} ]] || skip "minutes under $SANITIZER, which the unit tests of this code run under"
    ln -sf "$F"/*.llm .
}

# alone MODEL ADAPTER...: completions of all prompts with these adapters
alone() { llm-infer -q -m "$1" "${@:2}" --jsonl --no-timings -n 10 --temp .8 "$F/prompts.jsonl" | jq -c '[.id, .text]'; }

@test "lines with different adapters in one pass give what each gives alone" {
    for model in llama gpt2 moe mla mamba; do
        alone $model.llm > none
        alone $model.llm --adapter $model-1.llm > first
        alone $model.llm --adapter $model-2.llm > second
        alone $model.llm --adapter $model-1.llm --adapter $model-2.llm > both
        run -1 cmp -s none first
        jq -c --arg a $model-1.llm --arg b $model-2.llm '.adapter = [null, $a, [$b], [$a, $b]][.id % 4] | if .id % 4 == 3 and .id > 8 then del(.adapter) else . end' \
            "$F/prompts.jsonl" > mixed.jsonl
        paste -d '\n' none first second both | awk '(NR - 1) % 4 == (int((NR - 1) / 4) + 1) % 4' > wanted
        for options in "--parallel 16" "--parallel 3 -b 8" "--parallel 16 -j 1"; do
            llm-infer -q -m $model.llm --adapter $model-1.llm --adapter $model-2.llm --jsonl --no-timings -n 10 --temp .8 $options mixed.jsonl > lines
            jq -c '[.id, .text]' lines | cmp - wanted
        done
    done
    jq -es '.[1].adapter == ["mamba-2.llm"]' lines
}

@test "an adapter of the head, scales of lines, samples" {
    jq -c '.adapter = ["llama-head.llm", "llama-1.llm:.5", []][.id % 3]' "$F/prompts.jsonl" > mixed.jsonl
    llm-infer -q -m llama.llm --adapter llama-head.llm --adapter llama-1.llm --jsonl --no-timings -n 8 --samples 3 --temp .8 mixed.jsonl | jq -c '[.id, .sample, .text]' > found
    for i in 0 1 2; do
        options=(--adapter llama-head.llm)
        if [[ $i == 1 ]]; then options=(--adapter llama-1.llm:.5); fi
        if [[ $i == 2 ]]; then options=(); fi
        llm-infer -q -m llama.llm "${options[@]}" --jsonl --no-timings -n 8 --samples 3 --temp .8 "$F/prompts.jsonl" | jq -c "select(.id % 3 == $i) | [.id, .sample, .text]"
    done | sort -t , -k 1.2n,1 -k 2n,2 > wanted
    sort -t , -k 1.2n,1 -k 2n,2 found | cmp - wanted
}

@test "scores of lines" {
    jq -c '.adapter = (if .id % 2 == 0 then "llama-1.llm" else null end)' "$F/prompts.jsonl" > mixed.jsonl
    llm-infer -q -m llama.llm --adapter llama-1.llm --score --jsonl mixed.jsonl | jq -c '[.id, .sum]' > found
    paste -d '\n' <(llm-infer -q -m llama.llm --score --jsonl "$F/prompts.jsonl" | jq -c '[.id, .sum]') \
        <(llm-infer -q -m llama.llm --adapter llama-1.llm --score --jsonl "$F/prompts.jsonl" | jq -c '[.id, .sum]') | awk 'NR % 4 == 1 || NR % 4 == 0' | cmp - found
}

@test "a line that names what was not loaded, or something else, is answered with an error; the others go on" {
    line() { echo '{"prompt": "a", "adapter": '"$1"'}' | llm-infer -q -m "${@:2}" --jsonl -n 2 2> /dev/null | jq -r .error; }
    assert_equal "$(line '"x.llm"' llama.llm --adapter llama-1.llm)" "\"adapter\": expected a file of --adapter, found 'x.llm'"
    assert_equal "$(line 3 llama.llm --adapter llama-1.llm)" '"adapter": expected a string or a list of strings'
    assert_equal "$(line '"x.llm"' llama.llm)" '"adapter": expected --adapter, which loads what lines may name'
    llm-train -q --init mla.llm --adapter lora --targets '*kv_b*' -l 24 -b 4 -n 2 -o kv_b.llm "$F/data.tok"
    [[ $(line '"kv_b.llm"' mla.llm --adapter kv_b.llm) == *"absorbed into queries and outputs"* ]]
    llm-train -q --init llama.llm --adapter lora --also-train model.norm.weight -l 24 -b 4 -n 2 -o whole.llm "$F/data.tok"
    [[ $(line '"whole.llm"' llama.llm --adapter whole.llm) == *"stored whole in whole.llm" ]]
    [[ $(echo '{"prompt": "a", "adapter": "llama-1.llm"}' | llm-infer -q -m llama.llm --adapter llama-1.llm --jsonl --embed 2> /dev/null | jq -r .error) == *"for all lines" ]]
    { echo '{"prompt": "a", "adapter": "x"}'; echo '{"prompt": "a"}'; } > two.jsonl
    run -65 --separate-stderr llm-infer -q -m llama.llm --adapter llama-1.llm --jsonl -n 2 two.jsonl
    assert_equal "${#lines[@]}" 2
}
