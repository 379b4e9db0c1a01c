# Reward models: scores of replies, learned from pairs.
load ../helper
export LLM_THREADS=1

setup_file() {
    local words=(tea milk salt bread soap wine) i
    for ((i = 0; i < 36; i++)); do
        printf '{"prompt": "%s? ", "chosen": "yes %s", "rejected": "no %s"}\n' "${words[i % 6]}" "${words[i % 5]}" "${words[i % 5]}"
    done > pairs.jsonl
    llm-tokenize train --model byte --special '</s>' --special '<|im_start|>' --special '<|im_end|>' -o tok.json /dev/null
    export F=$PWD
}

setup() {
    shape=(-c tiny --set num_hidden_layers=2 --set hidden_size=64 --set intermediate_size=96 --set num_attention_heads=4 -T "$F/tok.json" -l 48)
    new=(llm-train -q "${shape[@]}" --objective reward --lr 3e-3 --warmup 0)
}

@test "gradients pass the check, with a margin and centred scores" {
    "${new[@]}" -b 3 --gradcheck > checked
    grep -q '^score.weight' checked
    run -1 grep lm_head checked
    "${new[@]}" -b 3 --center-rewards .1 --gradcheck > checked
}

@test "the loss is -log sigmoid of the scores' difference less the margin" {
    echo '{"prompt": "tea? ", "chosen": "yes", "rejected": "no"}' > plain.jsonl
    echo '{"prompt": "tea? ", "chosen": "yes", "rejected": "no", "margin": 2}' > margin.jsonl
    one=("${new[@]}" --lr 0 -n 1 -b 1 --precision f32)
    "${one[@]}" --log plain.log -o x.llm plain.jsonl
    "${one[@]}" --log margin.log -o x.llm margin.jsonl
    "${one[@]}" --center-rewards .5 --log center.log -o x.llm plain.jsonl
    jq -s -e '(.[0] | (1 + ((-.reward_margin) | exp) | log) - .loss | fabs) < 1e-6' plain.log
    jq -s -e '(.[0] | (1 + ((2 - .reward_margin) | exp) | log) - .loss | fabs) < 1e-6' margin.log
    jq -s -e '((.[1].loss - .[0].loss) - .5 * (.[0].reward_chosen + .[0].reward_rejected | . * .) | fabs) < 1e-6' plain.log center.log
}

@test "replies are told apart; llm-infer --score-reward says the scores that the log has; a line keeps what it carries" {
    "${new[@]}" -n 40 -b 6 --val .2 --log log.jsonl -o m.llm "$F/pairs.jsonl"
    jq -s -e '.[-1].loss < .3 and .[-1].reward_accuracy == 1 and .[-1].val_reward_accuracy == 1' log.jsonl
    llm-train -q --init m.llm -l 48 --objective reward --lr 0 -n 1 -b 1 --precision f32 --order sequential --log one.jsonl -o x.llm "$F/pairs.jsonl"
    printf '%s\n' '{"id": 7, "prompt": "tea? ", "completion": "yes tea", "x": [1]}' '{"id": 8, "prompt": "tea? ", "completion": "no tea"}' > lines
    llm-infer -q -m m.llm --precision f32 --score-reward --jsonl lines > scored
    jq -s -e '.[0].x == [1] and .[0].completion == "yes tea" and .[0].id == 7' scored
    jq -s -e '(.[0].reward - .[2].reward_chosen | fabs) < 1e-5 and (.[1].reward - .[2].reward_rejected | fabs) < 1e-5' scored one.jsonl
    # many lines share passes, in their order, with the bits that each has alone; one that cannot be used is answered in its place
    for ((i = 0; i < 90; i++)); do
        printf '{"id": %d, "prompt": "%s", "completion": "yes"}\n' $i "$(head -c $((i * 7 % 40)) < /dev/zero | tr '\0' t)"
        (( i == 50 )) && printf '%s\n' '' '{"id": "x", "prompt": 1}' ''
    done > many
    for batch in 1 40 512; do
        run -65 --separate-stderr bash -c "llm-infer -q -m m.llm -b $batch --score-reward --jsonl many > by-$batch"
        [[ $stderr == *"many: line 53: expected"* ]]
    done
    cmp by-1 by-40
    cmp by-1 by-512
    assert_equal "$(jq -r .id by-1 | paste -sd ' ')" "$(echo {0..50} x {51..89})"
    # a rollout's ids, and a text alone
    llm-tokenize encode -T "$F/tok.json" --text <<< "tea? yes tea" > /dev/null
    p=$(printf 'tea? ' | llm-tokenize encode -T "$F/tok.json" --text) c=$(printf 'yes tea' | llm-tokenize encode -T "$F/tok.json" --text)
    eos=$(jq '.added_tokens[] | select(.content == "</s>") | .id' "$F/tok.json")
    echo "{\"prompt_ids\": [${p// /,}], \"ids\": [${c// /,},$eos]}" | llm-infer -q -m m.llm --precision f32 --score-reward --jsonl - > ids
    cmp <(jq .reward ids) <(jq -s '.[0].reward' scored)
    run -0 llm-infer -q -m m.llm --score-reward "tea? yes"
    [[ $output =~ ^-?[0-9.e-]+$ ]]
}

@test "the model is a classifier of one class, as Hugging Face's; conversations are scored by their template" {
    echo '{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}],
           "rejected": [{"role": "assistant", "content": "c"}]}' | jq -c . > chat.jsonl
    "${new[@]}" --chat-template chatml -n 2 -b 1 -o m.llm chat.jsonl
    echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}' | llm-infer -q -m m.llm --score-reward --jsonl - |
        jq -e '.reward | type == "number"'
    llm-quantize -t keep m.llm m.safetensors
    llm-infer -q -m m.llm --score-reward abc > a
    llm-infer -q -m m.safetensors --score-reward abc | cmp - a
    head -c $((8 + $(od -A n -t u8 -N 8 m.safetensors))) m.safetensors | tail -c +9 > header
    assert_equal "$(jq -c '[."score.weight".shape, (.__metadata__."llm.config" | fromjson | .architectures, .num_labels)]' header)" \
        '[[1,64],["LlamaForSequenceClassification"],1]'
}

@test "the same bytes by any threads, any passes of a step, and after an interruption" {
    cp "$F/pairs.jsonl" .
    same_by_threads "${new[@]}" -n 6 -b 4 pairs.jsonl
    same_steps "${new[@]}" -n 6 -b 1 --accumulate 4 pairs.jsonl
    same_when_resumed 3 "${new[@]}" -b 4 --val .2 --eval-every 2 pairs.jsonl
}

@test "what cannot be is one line" {
    "${new[@]}" -n 1 -b 1 -o m.llm "$F/pairs.jsonl"
    llm-train -q "${shape[@]}" -n 0 -o lm.llm
    run -69 --separate-stderr llm-infer -m lm.llm --score-reward abc
    [[ $stderr =~ "lm.llm: expected a model of one score (llm-train --objective reward, a cross-encoder), found another" ]]
    run -2 --separate-stderr llm-infer -m m.llm --score-reward --classify abc
    run -65 --separate-stderr llm-infer -m m.llm --score-reward --jsonl - <<< '{"id": 3, "text": "x"}'
    assert_equal "$(jq -c '[.id, .error]' <<< "$output")" '[3,"expected \"messages\", \"ids\", or \"prompt\", a text"]'
    run -65 --separate-stderr "${new[@]}" -o x.llm <(echo '{"prompt": "a", "chosen": "b", "rejected": "c", "margin": null}')
    [[ $stderr == *": line 1: 'margin': expected a number" ]]
}
