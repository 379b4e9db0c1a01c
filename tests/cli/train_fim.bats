# Models that fill in the middle of a text.
load ../helper
export LLM_THREADS=1

setup_file() {
    # a word comes three times; what stands between two of them is known
    awk 'BEGIN { split("red green small old quick cat dog bird fish hen", w)
        for (i = 0; i < 500; i++) { a = w[i % 10 + 1]; printf "%s is %s and %s\n", a, a, a } }' > text
    llm-tokenize train --model byte --special '<|fim_prefix|>' --special '<|fim_suffix|>' --special '<|fim_middle|>' --special '</s>' -o tok.json text
    llm-tokenize encode -T tok.json --lines --append-eos -o data.tok text
    export F=$PWD
}

setup() {
    shape=(-c tiny --set num_hidden_layers=2 --set hidden_size=64 --set intermediate_size=96 --set num_attention_heads=4)
    new=(llm-train -q "${shape[@]}" -l 48 -T "$F/tok.json" --objective fim "$F/data.tok")
}

@test "gradients pass the check, one batch is learned by heart" {
    "${new[@]}" -b 2 --gradcheck > /dev/null
    without_sanitizer "${new[@]}" -n 120 -b 2 --overfit-one --lr 5e-3
}

@test "the same bytes by any threads, any passes of a step, and after an interruption; other rates are other models" {
    same_by_threads "${new[@]}" -n 6 -b 4
    for rates in "--fim-rate 1" "--fim-spm-rate 1" "--fim-rate 0"; do
        "${new[@]}" -n 6 -b 4 $rates --log other.jsonl -o other.llm
        [[ $(hashes other.jsonl | tail -n 1) != "$(hashes whole.jsonl | tail -n 1)" ]]
    done
    same_by_threads "${new[@]}" -n 6 -b 4 --set tie_word_embeddings=false
    same_steps "${new[@]}" -n 6 -b 1 --accumulate 4 --set tie_word_embeddings=false
    same_when_resumed 3 "${new[@]}" -b 4 --fim-rate .9 --val .2 --eval-every 2
    # without any document cut it is the language model's objective
    "${new[@]}" -n 6 -b 4 --fim-rate 0 --log whole.jsonl -o none.llm
    same_steps llm-train -q "${shape[@]}" -l 48 -T "$F/tok.json" "$F/data.tok" -n 6 -b 4
}

@test "what stands between two texts is filled in, in either order, alone and by lines" {
    without_sanitizer "${new[@]}" -n 1000 -b 16 --lr 3e-3 --fim-rate .8 -o m.llm
    fill=(llm-infer -m m.llm --temp 0 --fim-spm)
    for word in cat dog fish; do
        printf '%s is ' "$word" > before
        printf ' and %s' "$word" > behind
        run -0 "${fill[@]}" --fim-prefix before --fim-suffix behind
        assert_output "$word"
    done
    # the other order, in which this small model looks less far: the right word is the likeliest
    score() { llm-infer -m m.llm --special --score "<|fim_prefix|>dog is <|fim_suffix|> and dog<|fim_middle|>$1</s>" | tail -n $((${#1} + 1)) \
        | awk -F'\t' '{ s += $3 } END { print s }'; }
    awk -v right="$(score dog)" -v wrong="$(score cat)" 'BEGIN { exit !(right > wrong + 1) }'
    printf 'dog is ' > before
    printf ' and dog' > behind
    llm-infer -m m.llm -n 9 --seed 4 --fim-prefix before --fim-suffix behind > plain
    llm-infer -m m.llm -n 9 --seed 4 --special '<|fim_prefix|>dog is <|fim_suffix|> and dog<|fim_middle|>' | cmp - plain
    run -0 "${fill[@]}" --echo --fim-prefix before --fim-suffix behind
    assert_output "dog is dog and dog"
    run -0 bash -c 'llm-infer -m m.llm --temp 0 --fim-spm --fim-prefix - --fim-suffix behind < before'
    assert_output dog
    printf ' is dog and dog' > behind
    run -0 "${fill[@]}" --fim-suffix behind
    assert_output dog
    printf '{"input_prefix": "hen is ", "input_suffix": " and hen"}\n{"prompt": "bird is "}\n' > lines
    "${fill[@]}" --no-timings --jsonl lines > filled
    assert_equal "$(jq -r .text filled)" $'hen\nbird and bird'
    assert_equal "$(jq -c 'keys' filled | sort -u)" '["completion_tokens","finish_reason","id","prompt_tokens","text"]'
    "${fill[@]}" --no-timings --jsonl --parallel 1 -j 2 lines | cmp - filled
}

@test "what cannot be is one line" {
    llm-tokenize train --model byte --special '</s>' -o plain.json "$F/text"
    llm-tokenize encode -T plain.json --lines -o plain.tok "$F/text"
    run -65 --separate-stderr llm-train -q "${shape[@]}" -l 48 -T plain.json --objective fim -o m.llm plain.tok
    assert_equal "$stderr" "llm-train: --objective fim: filling in: expected tokens that name a text's parts (<|fim_prefix|>, <|fim_suffix|>, <|fim_middle|> and others of the tokenizer), found none"
    local refused=$stderr
    run -65 --separate-stderr llm-train -q "${shape[@]}" -l 48 -T plain.json --objective fim --plan
    assert_equal "$stderr" "$refused"
    run -65 --separate-stderr llm-train -q "${shape[@]}" -l 48 -T plain.json --objective fim --grad-shards 2 -b 2 --plan --shard auto,ranks=2
    assert_equal "$stderr" "$refused"
    "${new[@]}" --plan > /dev/null
    run -2 --separate-stderr "${new[@]}" --cross-document -o m.llm
    assert_equal "$stderr" "llm-train: --objective fim: documents are cut: not with --cross-document"
    llm-train -q "${shape[@]}" -l 48 -T plain.json -n 0 -o fresh.llm plain.tok
    echo > before
    run -65 --separate-stderr llm-infer -m fresh.llm --fim-prefix before
    one_line "$stderr"
    run -2 --separate-stderr llm-infer -m fresh.llm --fim-prefix before text
    [[ $stderr == *"--fim-prefix and --fim-suffix are the prompt"* ]]
    run -66 --separate-stderr llm-infer -m fresh.llm --fim-suffix missing
    one_line "$stderr"
    assert_not_exist m.llm
}
