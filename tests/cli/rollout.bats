# llm-infer --rollout: completions with ids and log-probabilities, as llm-train learns from them (formats/rollouts.md).
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    need_tool jq
    printf '%s\n' '{"id": "a", "prompt": "Once upon a time", "answer": 7}' '{"prompt": "The cat"}' '' '{"id": [3], "prompt": "She liked"}' > prompts
}

@test "a line says all of the completion: group i of n, sample j of k, ids, log-probabilities, the model and how it was computed" {
    llm-infer -m "$M" --jsonl --rollout --samples 3 -n 6 --seed 4 prompts > out
    jq -ce '[.group, .groups, .sample, .samples]' out | cmp - <(for g in 0 1 2; do for k in 0 1 2; do echo "[$g,3,$k,3]"; done; done)
    jq -c .id out | uniq | cmp - <(printf '"a"\n2\n[3]\n')
    jq -se 'all(.[]; (.ids | length) == (.logprobs | length) and (.ids | length) >= 1 and (.prompt_ids | length) >= 1 and (.model | length) == 16
            and .policy_step == 0 and .precision == "bf16" and .cache_type == "bf16" and (.isa | length) > 0 and .sampling.seed == 4
            and .sampling.temp == 1 and .sampling.top_k == 0 and .sampling.top_p == 1 and .sampling.min_p == 0 and .sampling.tokens == 6
            and (has("sampled_logprobs") | not) and has("text") and has("finish_reason"))' out
    jq -se '.[0].answer == 7 and .[8].answer == null' out
}

@test "the example of the format has the members that a line has" {
    printf '%s\n' '{"id": "a", "prompt": "Once upon a time"}' '{"prompt": "The cat"}' > two
    llm-infer -m "$M" --precision f32 --jsonl --rollout --samples 2 -n 3 two | jq -c 'keys - ["reward"]' > found
    jq -c 'keys - ["reward"]' "$ROOT/tests/golden/rollouts.jsonl" | cmp - found
}

@test "log-probabilities are those of --score; with a temperature and filters those of the distribution drawn from stand beside them" {
    llm-infer -m "$M" --jsonl --rollout --samples 4 -n 9 --precision f32 prompts > out
    jq -r '(.prompt_ids | length) as $n | [$n] + .prompt_ids + .ids | map(tostring) | join(" ")' out > texts
    jq -r '.logprobs[]' out > want
    while read -r n ids; do llm-infer -m "$M" --precision f32 --score --ids "$ids" | cut -f3 | tail -n +"$n"; done < texts > found
    [[ $(wc -l < found) == "$(wc -l < want)" ]]
    near_lines found want 2e-6
    llm-infer -m "$M" --jsonl --rollout --samples 4 -n 9 --temp .7 --top-k 5 prompts > cut
    jq -se 'all(.[]; (.sampled_logprobs | length) == (.ids | length))' cut
    # Of five candidates none is less likely among them than among all.
    llm-infer -m "$M" --jsonl --rollout --samples 4 -n 9 --top-k 5 prompts |
        jq -se 'all(.[]; [.logprobs, .sampled_logprobs] | transpose | all(.[]; .[1] >= .[0] - 1e-6))'
    llm-infer -m "$M" --jsonl --rollout -n 3 --temp 0 prompts | jq -se 'all(.[]; .sampled_logprobs | all(.[]; . == 0))'
}

@test "numbers are single precision and round-trip; any threads, batches and company give the same bytes" {
    llm-infer -m "$M" --jsonl --rollout --samples 5 -n 12 prompts > out
    llm-infer -m "$M" --jsonl --rollout --samples 5 -n 12 -j 1 --parallel 2 -b 7 prompts | cmp - out
    grep '"She' prompts | llm-infer -m "$M" --jsonl --rollout --samples 5 -n 12 | jq -c '[.ids, .logprobs]' | cmp - <(tail -5 out | jq -c '[.ids, .logprobs]')
    need_tool python3
    python3 - <<'PY'
import json, struct
n = 0
for line in open("out"):
    for x in json.loads(line)["logprobs"]:
        assert struct.unpack("f", struct.pack("f", x))[0] == x, x
        assert float("%.9g" % x) == x or struct.unpack("f", struct.pack("f", float("%.9g" % x)))[0] == x
        n += 1
assert n > 100
PY
}

@test "the end token is among the ids; the seed and the prompt's id change the completions" {
    eos=$(llm-infer -m "$M" --jsonl --rollout -n 40 --samples 64 <<< '{"prompt": "Once"}' | jq -c 'select(.finish_reason == "stop") | .ids[-1]' | sort -u)
    [[ -z $eos || $(wc -l <<< "$eos") == 1 ]]
    for line in '{"id": 1, "prompt": "Once"}' '{"id": 2, "prompt": "Once"}'; do llm-infer -m "$M" --jsonl --rollout -n 12 <<< "$line" | jq -c .ids; done > ids
    [[ $(sort -u ids | wc -l) == 2 ]]
    llm-infer -m "$M" --jsonl --rollout -n 12 --seed 1 <<< '{"id": 1, "prompt": "Once"}' | jq -c .ids >> ids
    [[ $(sort -u ids | wc -l) == 3 ]]
}

@test "--rollout: a bad line is an error among the answers, status 65; what it does not go with is status 2" {
    printf '%s\n' '{"prompt": "a"}' 'nonsense' > bad
    run -65 --separate-stderr llm-infer -m "$M" --jsonl --rollout -n 2 bad
    jq -se 'length == 2 and .[0].groups == 2 and (.[1] | has("error"))' <<< "$output"
    for options in '--rollout' '--rollout --jsonl --score' '--rollout --jsonl --ids' '--rollout --jsonl --embed'; do
        run -2 --separate-stderr llm-infer -m "$M" $options prompts
        [[ $stderr == *--rollout* ]]
    done
    run -69 --separate-stderr llm-infer -m "$ROOT/tests/golden/tiny-t5" --jsonl --rollout <<< '{"ids": [4, 5]}'
    [[ $stderr == *'--rollout: expected a network that continues texts'* ]]
}
