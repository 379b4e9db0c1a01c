# Learning a teacher's distributions.
load ../helper
export LLM_THREADS=1

setup_file() {
    awk 'BEGIN { split("red green small old quick cat dog bird fish hen", w)
        for (i = 0; i < 300; i++) { a = w[i % 10 + 1]; printf "%s is %s and %s\n", a, a, w[i * 7 % 10 + 1] } }' > text
    llm-tokenize train --model byte --special '</s>' -o tok.json text
    llm-tokenize encode -T tok.json --lines --append-eos -o data.tok text
    llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=64 --set intermediate_size=96 --set num_attention_heads=4 -l 48 -T tok.json \
        -n 120 -b 8 --lr 4e-3 -o teacher.llm data.tok
    export F=$PWD
}

setup() {
    shape=(-c tiny --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -T "$F/tok.json" -l 48)
    new=(llm-train -q "${shape[@]}" --objective distill --teacher "$F/teacher.llm")
}

@test "gradients pass the check for forward and reverse KL and between, with a temperature and a soft cap" {
    for beta in 0 .3 1; do "${new[@]}" -b 2 --jsd-beta $beta --temperature 2 --gradcheck > /dev/null; done
    "${new[@]}" -b 2 --set logit_scale=0.5 --gradcheck > /dev/null
    jq -nc '{model_type: "gemma2", hidden_size: 32, intermediate_size: 48, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 2,
             head_dim: 16, final_logit_softcapping: 2, attn_logit_softcapping: 5, query_pre_attn_scalar: 16, vocab_size: 257,
             max_position_embeddings: 64}' > config.json
    llm-train -q -c config.json -T "$F/tok.json" -l 48 --objective distill --teacher "$F/teacher.llm" -b 2 --gradcheck > /dev/null
}

@test "a model is not far from itself: the loss is 0" {
    for beta in 0 .5 1; do
        llm-train -q --init "$F/teacher.llm" -l 48 --objective distill --teacher "$F/teacher.llm" --jsd-beta $beta --lr 0 -n 1 -b 2 \
            --log log.jsonl -o x.llm "$F/data.tok"
        jq -s -e '.[0].loss | fabs < 1e-12' log.jsonl
    done
}

@test "every divergence falls, and the student comes to predict the text that the teacher learned" {
    "${new[@]}" -n 0 -o none.llm
    for beta in 0 .5 1; do
        "${new[@]}" -n 150 -b 8 --lr 4e-3 --jsd-beta $beta --val .1 --log log.jsonl -o m.llm "$F/data.tok"
        jq -s -e '.[-1].loss < .[0].loss * 2 / 3 and .[-1].val_loss < .[0].loss * 2 / 3' log.jsonl
        before=$(llm-infer -q -m none.llm --score -f "$F/text" -c 4096 | head -n 200 | awk '{ s -= $NF } END { print s / NR }')
        after=$(llm-infer -q -m m.llm --score -f "$F/text" -c 4096 | head -n 200 | awk '{ s -= $NF } END { print s / NR }')
        awk "BEGIN { exit !($after < $before * .6) }"
    done
}

@test "the same bytes by any threads, any passes of a step, and after an interruption" {
    cp "$F/data.tok" "$F/teacher.llm" .
    new=("${new[@]/"$F/teacher.llm"/teacher.llm}" data.tok)
    same_by_threads "${new[@]}" -n 6 -b 4
    same_steps "${new[@]}" -n 6 -b 1 --accumulate 4
    same_when_resumed 3 "${new[@]}" -b 4 --jsd-beta .4 --temperature 1.5 --val .2 --eval-every 2
}

# taught K: the first texts with the teacher's K most likely tokens, as lines
taught() { head -n 40 "$F/text" | jq -Rc '{prompt: .}' | llm-infer -q -m "$F/teacher.llm" --precision f32 --logits --top "$1" --jsonl --add-eos; }

@test "a pipe of the teacher's most likely tokens: with all of them the loss is the teacher's own; a text alone is a line" {
    head -n 1 "$F/text" | llm-tokenize encode -q -T "$F/tok.json" --append-eos -o one.tok
    head -n 1 "$F/text" | llm-infer -q -m "$F/teacher.llm" --precision f32 --logits --top 1000 --add-eos > one.jsonl
    jq -e '.vocab_size == 257 and (.ids | length) == (.top_ids | length) and (.top_ids[0] | length) == 257 and .tail_logprobs[0] == null' one.jsonl
    n=$(jq '.ids | length - 1' one.jsonl)
    for beta in 0 .4 1; do
        run_one=("${shape[@]}" -l "$n" -n 1 -b 1 --precision f32 --jsd-beta $beta --objective distill)
        llm-train -q "${run_one[@]}" --teacher "$F/teacher.llm" --log model.log -o x.llm one.tok
        llm-train -q "${run_one[@]}" --log lines.log -o x.llm - < one.jsonl
        jq -s -e '(.[0].loss - .[1].loss | fabs) < 1e-6 * .[0].loss and (.[0].grad_norm - .[1].grad_norm | fabs) < 1e-5 * .[0].grad_norm' model.log lines.log
    done
}

@test "a pipe of the teacher's 8 most likely tokens and their tail: gradients, threads, passes, interruption; every divergence falls" {
    taught 8 > taught.jsonl
    jq -s -e 'length == 40 and all(.[]; [.top_logprobs, .tail_logprobs] | transpose | all((.[0] | map(exp) | add) + (.[1] | exp) - 1 | fabs < 1e-5))' taught.jsonl
    jq -s -e 'all(.[]; .top_logprobs | all(. == (sort | reverse)))' taught.jsonl
    lines=(llm-train -q "${shape[@]}" --objective distill)
    for beta in 0 .3 1; do
        "${lines[@]}" -b 2 --jsd-beta $beta --gradcheck taught.jsonl > /dev/null
        "${lines[@]}" -n 100 -b 8 --lr 4e-3 --jsd-beta $beta --val .1 --log log.jsonl -o m.llm taught.jsonl
        jq -s -e '.[-1].loss < .[0].loss * 2 / 3 and .[-1].val_loss < .[0].loss * 2 / 3' log.jsonl
    done
    jq -c 'del(.tail_logprobs)' taught.jsonl > forward.jsonl
    "${lines[@]}" -b 2 --gradcheck forward.jsonl > /dev/null
    same_by_threads "${lines[@]}" -n 6 -b 4 taught.jsonl
    same_steps "${lines[@]}" -n 6 -b 1 --accumulate 4 taught.jsonl
    same_when_resumed 3 "${lines[@]}" -b 4 --jsd-beta .4 --val .2 --eval-every 2 taught.jsonl
    jq -c '.mask = [.ids | keys[] | if . % 3 == 1 then 1 else 0 end]' taught.jsonl > masked.jsonl
    "${lines[@]}" -n 1 -b 40 --log masked.log -o x.llm masked.jsonl
    "${lines[@]}" -n 1 -b 40 --log all.log -o x.llm taught.jsonl
    [[ $(jq .loss masked.log) != $(jq .loss all.log) ]]
}

@test "on policy: the student writes, the teacher judges each token; one process = a pipe an iteration, also after an interruption" {
    head -n 8 "$F/text" | jq -Rc '{prompt: .[0:4]}' > prompts
    "${new[@]}" -n 20 -b 8 --lr 4e-3 -o begin.llm "$F/data.tok"
    cp begin.llm pipe.llm
    policy=(llm-train -q --objective distill --on-policy --teacher "$F/teacher.llm" --jsd-beta .5 --lr 4e-3 -b 16 --accumulate 2)
    for k in 1 2 3; do
        llm-infer -q -m pipe.llm --jsonl --rollout -n 16 --samples 4 -c 48 prompts | tee lines.$k | "${policy[@]}" --resume pipe.llm --log pipe.log -
    done
    process=("${policy[@]}" --prompts prompts --samples 4 --tokens 16)
    cp begin.llm p.llm
    "${process[@]}" --resume p.llm --iterations 3 --log log --rollout-log rollouts
    cmp p.llm pipe.llm
    cmp <(jq -c 'del(.iteration)' rollouts) <(jq -c . lines.1 lines.2 lines.3)
    jq -s -e 'all(.[]; .length > 0 and .truncated >= 0 and has("rewards") == false)' log
    cp begin.llm q.llm
    head -n 40 rollouts > part
    "${process[@]}" --resume q.llm -j 2 --parallel 5 -b 4 --accumulate 8 --iterations 3 --rollout-log part
    cmp q.llm pipe.llm
    cp begin.llm q.llm
    "${process[@]}" --resume q.llm --iterations 60
    for model in begin q; do # what the teacher thinks of what the student writes
        llm-infer -q -m $model.llm --jsonl --rollout -n 16 --samples 8 --seed 5 prompts | jq -c '{ids: (.prompt_ids + .ids)}' |
            llm-infer -q -m "$F/teacher.llm" --jsonl --score | jq -s '[.[].sum] | add' > $model.judged
    done
    jq -s -e '.[1] > .[0] * .9' begin.judged q.judged
    refused 65 '"model": expected' "${policy[@]}" --resume q.llm lines.1
    "${policy[@]}" --resume q.llm --off-policy - < lines.1
    run -2 --separate-stderr llm-train -q "${shape[@]}" --objective distill --on-policy --off-policy -o x.llm lines.1
    [[ $stderr == *"--on-policy: expected --teacher MODEL, which judges"* ]]
    for option in "--reward cat" "--redraw 1"; do
        # shellcheck disable=SC2086
        run -2 --separate-stderr "${process[@]}" --resume q.llm --iterations 1 $option
        [[ $stderr == *"expected no --reward, --lag or --redraw"* ]]
    done
}

@test "the example of the format has the members that a line has" {
    cmp <(jq -c 'keys_unsorted' "$ROOT/tests/golden/teacher.jsonl") <(taught 2 | head -n 1 | jq -c 'keys_unsorted')
    jq -e '[.top_logprobs, .tail_logprobs] | transpose | all((.[0] | map(exp) | add) + (.[1] | exp) - 1 | fabs < 1e-6)' "$ROOT/tests/golden/teacher.jsonl"
    grep -qxFf "$ROOT/tests/golden/teacher.jsonl" "$ROOT/formats/teacher.md"
}

@test "lines that no teacher writes: one line each" {
    taught 4 | head -n 3 > t
    bad() {
        run -65 --separate-stderr llm-train "${shape[@]}" --objective distill "${@:2}" -n 1 -b 1 -o x.llm -
        [[ $stderr == *"$1"* && $(grep -c ^llm-train: <<< "$stderr") == 1 && ! -e x.llm ]] || fail "expected '$1', found '$stderr'"
    }
    bad 'line 1: expected "tail_logprobs"' --jsd-beta 1 < <(jq -c 'del(.tail_logprobs)' t)
    bad 'without which JSD' --jsd-beta .5 < <(jq -c 'del(.tail_logprobs)' t)
    bad 'line 1: "top_ids": element 2: expected an id below 257' < <(jq -c '.top_ids[2][1] = 257' t)
    bad '"ids": element 0: expected an id below' < <(jq -c '.ids[0] = -1' t)
    bad 'element 1: expected each id once' < <(jq -c '.top_ids[1][0] = .top_ids[1][1]' t)
    bad 'line 2: "top_ids", "top_logprobs": element 0: expected lists of 4' < <(sed 2d t | jq -c 'if input_line_number == 2 then .top_ids[0] |= .[:3] else . end')
    bad 'whose sum is 1, found' < <(jq -c '.tail_logprobs[1] = -0.1' t)
    bad 'expected a logarithm of a probability' < <(jq -c '.top_logprobs[0][0] = 1' t)
    bad 'expected a logarithm of a probability' < <(jq -c '.top_logprobs[0][0] = "x"' t)
    bad '"top_logprobs": expected ' < <(jq -c '.top_logprobs |= .[1:]' t)
    bad '"vocab_size": expected the model'"'"'s 257, found 300' < <(jq -c '.vocab_size = 300' t)
    bad 'found an error: too long' < <(echo '{"error": "too long"}')
    bad '"ids": expected a list' < <(echo '{"prompt": "a"}')
    bad 'expected lines to learn from, found none' < /dev/null
    bad 'expected at most 9 tokens (--context)' --strict -l 8 < t
    run -2 --separate-stderr llm-train "${shape[@]}" --objective distill --temperature 2 -n 1 -o x.llm - < t
    [[ $stderr == *"--temperature: expected 1 with a teacher's log-probabilities"* ]]
    run -2 --separate-stderr llm-infer -m "$F/teacher.llm" --top 4 a
    [[ $stderr == *"--top goes with --logits"* ]]
}

@test "what cannot be is one line" {
    run -2 --separate-stderr llm-train -q "${shape[@]}" --objective distill -n 1 -o x.llm "$F/data.tok"
    [[ $stderr =~ "--objective distill: expected --teacher MODEL and no --on-policy with the token stream" ]]
    run -2 --separate-stderr llm-train -q "${shape[@]}" --objective distill -b 1 --gradcheck
    [[ $stderr =~ "expected --teacher MODEL, or lines of its log-probabilities" ]]
    run -66 --separate-stderr llm-train -q "${shape[@]}" --objective distill --teacher none.llm -n 1 -o x.llm "$F/data.tok"
    [[ $stderr =~ "--teacher: none.llm: No such file" ]]
    run -65 --separate-stderr "${new[@]}" --set vocab_size=300 -n 1 -o x.llm "$F/data.tok"
    [[ $stderr =~ "expected a vocabulary of 300 tokens, found "[0-9]+ ]]
    run -2 --separate-stderr "${new[@]}" --jsd-beta 2 -n 1 -o x.llm "$F/data.tok"
    run -2 --separate-stderr "${new[@]}" --temperature 0 -n 1 -o x.llm "$F/data.tok"
    [[ $stderr =~ "temperature: expected a number above 0, found 0" ]]
}
