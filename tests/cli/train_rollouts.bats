# llm-train --objective reinforce and grpo: learning from rollouts with rewards (formats/rollouts.md).
load ../helper
export LLM_THREADS=1

setup_file() {
    policy_model
    printf '%s\n' '{"prompt": "the "}' '{"prompt": "a"}' '{"prompt": "red"}' '{"prompt": "cat is"}' > prompts
}

setup() {
    need_tool jq
    cp "$F/policy.llm" p.llm
}

# rollouts POLICY OPTION...: with the share of the letter e as the reward
rollouts() {
    llm-infer -q -m "$1" --jsonl --rollout -n 12 "${@:2}" "$F/prompts" | jq -c '.reward = ((.text | [scan("e")] | length) / 12)'
}

# learn OPTION...: from 64 rollouts on standard input
learn() { llm-train -q -b 16 --accumulate 4 --lr 1e-2 "$@" -; }

@test "a pipe an iteration: the reward rises, the ratio is exactly 1 before the first update" {
    for options in '--objective grpo' '--objective reinforce --baseline rloo' '--objective grpo --ratio sequence --grpo-norm constant --precision f32'; do
        cp "$F/policy.llm" p.llm
        rm -f log
        precision=${options#*--precision }
        [[ $precision == f32 ]] || precision=bf16
        for ((k = 0; k < 8; k++)); do rollouts p.llm --samples 16 --precision "$precision" | learn $options --resume p.llm --log log; done
        jq -se 'length == 8 and all(.[]; .ratio == 1 and .kl_k1 == 0 and .kl_k3 == 0 and .clipped == 0 and .length > 0 and .entropy > 0)
                and .[0].step == 61 and .[7].step == 68' log
        jq -se '.[7].reward > 2 * .[0].reward' log
    done
}

@test "several passes over the same rollouts: ratios leave 1, and --reference holds the policy near" {
    rollouts p.llm --samples 16 > r
    learn --objective grpo --epochs 12 --lr 3e-3 --resume p.llm --log log < r
    jq -se 'length == 12 and .[0].ratio == 1 and .[1].ratio != 1 and .[11].kl_k3 > 0' log
    cp "$F/policy.llm" near.llm
    learn --objective grpo --epochs 12 --lr 3e-3 --resume near.llm --reference "$F/policy.llm" --kl-coef 1 --log near < r
    jq -se --slurpfile far log '.[11].kl_k3 < $far[11].kl_k3' near
}

@test "the same bytes whatever the threads, the division into passes and the order of the lines" {
    rollouts p.llm --samples 16 > r
    cp p.llm a.llm
    cp p.llm b.llm
    learn --objective grpo --epochs 2 --resume a.llm < r
    sort -r r | llm-train -q -j 2 -b 8 --accumulate 8 --lr 1e-2 --objective grpo --epochs 2 --resume b.llm -
    cmp a.llm b.llm
    rollouts b.llm --samples 16 | learn --resume b.llm # the objective is the run's from here on
}

@test "rewards of tokens count from where they are given; truncated completions are masked or penalised" {
    rollouts p.llm --samples 16 | jq -c 'del(.reward) | .rewards = [.ids[] | if . == 101 then 1 / 12 else 0 end]' > r
    learn --objective reinforce --resume p.llm --log log < r
    jq -se '.[0].ratio == 1 and .[0].reward > 0 and .[0].truncated > 0' log
    cp "$F/policy.llm" p.llm
    run -65 --separate-stderr learn --objective grpo --truncated mask --resume p.llm < <(jq -c '.reward = 1 | .finish_reason = "length"' r)
    [[ $stderr == *'expected some tokens to learn from'* ]]
    cmp p.llm "$F/policy.llm"
}

@test "what is to come of a completion is in the units of its advantage: rewards a thousand times as large change nothing" {
    rollouts p.llm --samples 16 | jq -c 'del(.reward) | .rewards = [.ids[] | if . == 101 then 1 / 12 else 0 end]' > r
    for factor in 1 1000; do
        cp "$F/policy.llm" p.llm
        jq -c ".rewards |= map(. * $factor)" r | learn --objective grpo --resume p.llm --log $factor.log
    done
    jq -se '(.[0].loss / .[1].loss - 1 | fabs) < .02 and (.[0].grad_norm / .[1].grad_norm - 1 | fabs) < .02' 1.log 1000.log
}

@test "rewards of masked completions count in the means, whatever --kl-in" {
    rollouts p.llm --samples 16 | jq -c '.finish_reason = if .sample % 2 > 0 then "stop" else "length" end' > r
    for objective in reinforce grpo; do
        for kl in loss reward; do
            cp "$F/policy.llm" p.llm
            learn --objective $objective --truncated mask --reference "$F/policy.llm" --kl-coef 1e-12 --kl-in $kl --resume p.llm --log $kl.log < r
        done
        jq -se '.[0].truncated > .1 and (.[0].loss - .[1].loss | fabs) < 1e-6' loss.log reward.log
        jq -se '(.[0].grad_norm / .[1].grad_norm - 1 | fabs) < 1e-5' loss.log reward.log
        rm loss.log reward.log
    done
}

# refused STATUS TEXT OPTION... < rollouts: status, one line of message with TEXT, the policy as it was
refused() {
    cp "$F/policy.llm" p.llm
    run -"$1" --separate-stderr learn --objective grpo --resume p.llm "${@:3}"
    [[ $stderr == *"$2"* ]] || fail "expected '$2', found '$stderr'"
    [[ $(wc -l <<< "$stderr") == 1 ]]
    cmp p.llm "$F/policy.llm"
}

@test "what cannot be learned from is one line, and nothing is lost" {
    rollouts p.llm --samples 16 > r
    refused 65 'group 0: expected 16 samples, found sample 2 missing' < <(sed 3d r)
    refused 65 'found none of group 3' < <(head -48 r)
    refused 65 'found it twice' < <(sed '2{p;d}' r | sed 2p)
    refused 65 'line 5: "reward": expected a finite number' < <(sed '5s/"reward":[^,}]*/"reward":null/' r)
    refused 65 'line 5: "reward": expected a finite number' < <(jq -c 'del(.reward)' r | sed '1,4s/}$/,"reward":1}/')
    refused 65 'line 1: "model": expected' < <(jq -c '.model = "0123456789abcdef"' r)
    refused 65 'line 1: "isa": expected' < <(jq -c '.isa = "abacus"' r)
    refused 65 'line 1: "precision": expected' --precision f32 < r
    refused 65 'expected an id below' < <(jq -c '.ids[3] = 100000' r)
    refused 65 'expected 12 numbers' < <(jq -c '.logprobs = [-1]' r)
    refused 65 'expected a ratio of exactly 1' < <(jq -c '.logprobs[3] -= 1e-3' r)
    refused 65 'expected a completion, found an error' < <(echo '{"id": 1, "error": "too long"}')
    refused 65 'expected at least 2 completions' < <(jq -c 'select(.sample == 0) | .samples = 1' r)
    refused 65 'expected at most' -l 8 < r
    refused 2 'expected lines in a multiple of the 12 rows' -b 3 < r
    refused 2 '--kl-coef: expected a model' --kl-coef 1 < r
    for row in 1 30 64; do # whichever step learns from it, and in whatever order
        refused 65 "completion $((row - 1)), token " -b 8 --accumulate 2 < <(jq -c --argjson row "$row" 'if input_line_number == $row then .logprobs[11] -= 1e-3 else . end' r)
    done
    learn --objective grpo --off-policy --resume p.llm < <(jq -c '.logprobs[3] -= 1e-3 | .isa = "other"' r)
}

@test "a new adapter learns from its base's rollouts: as long as it changes nothing it is the base; then not" {
    rollouts p.llm --samples 16 > r
    for more in '' --dora; do
        learn --objective grpo --init p.llm --adapter lora --rank 2 $more -l 32 -o ad.llm --log log < r
        jq -se '.[0].ratio == 1' log
        rm log
        cp ad.llm before.llm
        run -65 --separate-stderr learn --resume ad.llm < r
        [[ $stderr == *'line 1: "model": expected'* ]]
        cmp ad.llm before.llm
    done
}

@test "--ratio-temp: the ratio of the tempered distribution is exactly 1 too; lines drawn otherwise are refused" {
    for options in '--precision f32' '--precision bf16'; do
        cp "$F/policy.llm" p.llm
        rollouts p.llm --samples 16 --temp .7 $options > r
        learn --objective grpo --ratio-temp .7 $options --epochs 2 --resume p.llm --log log < r
        jq -se '.[0].ratio == 1 and .[1].ratio != 1' log
        rm log
    done
    [[ $(jq -s 'map(.logprobs != .sampled_logprobs) | all' r) == true ]]
    refused 65 'expected completions drawn with this temperature' --ratio-temp .8 --precision bf16 < r
    rollouts "$F/policy.llm" --samples 16 --temp .7 --top-k 5 > cut
    refused 65 'expected completions drawn with this temperature' --ratio-temp .7 < cut
    run -2 --separate-stderr learn --objective grpo --ratio-temp 0 --resume p.llm < /dev/null
    [[ $stderr == *--ratio-temp* ]]
    llm-train --gradcheck --off-policy --ratio-temp .5 --objective grpo --entropy-coef .1 -c tiny --set vocab_size=24 --set hidden_size=16 \
        --set intermediate_size=24 --set num_hidden_layers=1 --set num_attention_heads=2 -l 12 -b 2
}
