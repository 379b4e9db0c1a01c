# llm-train --objective ppo, values, baselines that go on, a KL in the reward, entropy bonus, tokens that a tool wrote.
# The numbers of advantages and values are compared in tests/unit/train/test_credit.c.
load ../helper
export LLM_THREADS=1

setup_file() {
    sentences 300 > text
    llm-tokenize train --model byte -o tok.json text
    llm-tokenize encode -T tok.json --lines -o data.tok text
    llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -T tok.json -n 60 \
        -b 8 -l 32 --lr 3e-3 -o policy.llm data.tok
    printf '%s\n' '{"prompt": "the "}' '{"prompt": "a"}' '{"prompt": "red"}' '{"prompt": "cat is"}' > prompts
    export F=$PWD
    export REWARD='jq -c ".reward = ((.text | [scan(\"e\")] | length) / 12)"'
}

setup() {
    need_tool jq
    need_tool zstd
    cp "$F/policy.llm" p.llm
}

rollouts() { llm-infer -q -m "$1" --jsonl --rollout -n 12 --samples 8 -c 32 "${@:2}" "$F/prompts" | bash -c "$REWARD"; }
# tensors FILE: their names in an .llm
tensors() {
    zstd -qdc "$1" | head -c $((8 + $(zstd -qdc "$1" | head -c 8 | od -An -tu8))) | tail -c +9 | jq -r 'del(.__metadata__) | keys[]'
}
# learn OPTION...: from 32 rollouts on standard input
learn() { llm-train -q -b 16 --accumulate 2 --lr 1e-2 "$@" -; }
# teach OBJECTIVE OPTION...: six iterations of 32 completions from p.llm
teach() { llm-train -q --objective "$@" -b 16 --accumulate 2 --lr 1e-2 --resume p.llm --prompts "$F/prompts" --reward "$REWARD" --tokens 12 --samples 8; }

@test "gradients of the policy, the value head and the entropy bonus agree with differences" {
    for options in 'ppo --entropy-coef .1 --value-coef .5 --value-clip 0' 'ppo --value-clip .1' 'reinforce --baseline value' 'grpo --entropy-coef .3' \
        'ppo --set logit_scale=2 --entropy-coef .2'; do
        llm-train --gradcheck --off-policy -c tiny --objective $options --set vocab_size=24 --set hidden_size=16 --set intermediate_size=24 \
            --set num_hidden_layers=1 --set num_attention_heads=2 -l 12 -b 2 > out || fail "$options"
        [[ $options != *value* || $(grep -c ^value_head out) == 2 ]]
    done
}

@test "PPO: the reward rises and values learn it; one process = a pipe an iteration, with the value head in the run's file" {
    cp p.llm pipe.llm
    for k in 1 2 3; do
        rollouts pipe.llm | learn --objective ppo --epochs 2 --value-coef .5 --resume pipe.llm --log pipe.log
        cp pipe.llm "after.$k"
    done
    teach ppo --epochs 2 --value-coef .5 --iterations 3 --log log
    cmp p.llm pipe.llm
    jq -c '[.step, .loss, .reward, .value, .value_loss, .hash]' log | cmp - <(jq -c '[.step, .loss, .reward, .value, .value_loss, .hash]' pipe.log)
    jq -se 'length == 6 and .[0].ratio == 1 and .[1].ratio != 1 and .[0].value_clipped == 0 and all(.[]; .value_loss >= 0)' log
    tensors p.llm > names
    [[ $(grep value_head names) == 'training.m.value_head.bias'*'training.master.value_head.weight'* && $(grep -c value_head names) == 6 ]]
    teach ppo --epochs 2 --value-coef .5 --iterations 24 --log log
    jq -se '.[-1].reward > 2 * .[0].reward and .[-1].value_loss < .[0].value_loss' log
    # The head goes on: with another one the third step's loss would be another.
    cp after.2 q.llm
    rollouts q.llm | learn --objective ppo --epochs 2 --value-coef .5 --resume q.llm
    cmp q.llm after.3
}

@test "PPO: the same bytes whatever the threads and the division into passes; an adapter carries its value head" {
    rollouts p.llm > r
    cp p.llm a.llm
    cp p.llm b.llm
    learn --objective ppo --epochs 2 --resume a.llm < r
    sort -r r | llm-train -q -j 2 -b 8 --accumulate 4 --lr 1e-2 --objective ppo --epochs 2 --resume b.llm -
    cmp a.llm b.llm
    llm-train -q --objective ppo -b 16 --accumulate 2 --lr 1e-2 --init p.llm --adapter lora --rank 2 -l 32 -o ad.llm --prompts "$F/prompts" \
        --reward "$REWARD" --tokens 12 --samples 8 --iterations 1
    tensors ad.llm | grep -qx training.master.value_head.weight
    llm-train -q --resume ad.llm --prompts "$F/prompts" --reward "$REWARD" --tokens 12 --samples 8 --iterations 2 --log log
    jq -se '.[0].ratio == 1 and (.[0].value | type) == "number"' log
}

@test "a KL in the reward holds the policy near; its coefficient follows the target" {
    teach ppo --iterations 6 --epochs 4 --lr 2e-2 --log far
    cp "$F/policy.llm" p.llm
    teach ppo --iterations 6 --epochs 4 --lr 2e-2 --log near --reference "$F/policy.llm" --kl-coef .5
    jq -se --slurpfile far far '.[-1].reward < $far[-1].reward and all(.[]; .kl_coef == .5)' near
    cp "$F/policy.llm" p.llm
    teach ppo --iterations 4 --reference "$F/policy.llm" --kl-coef .5 --kl-target 100 --kl-horizon 100 --log log
    # KL far below the target: a fifth less for each 100 completions.
    jq -se '[.[].kl_coef] | .[0] == .5 and ([.[1] - .5 * .936, .[2] - .5 * .936 * .936, .[3] - .5 * .936 * .936 * .936] | all(.[]; . * . < 1e-12))' log
    for objective in 'grpo' 'reinforce --baseline rloo'; do
        cp "$F/policy.llm" p.llm
        teach $objective --iterations 2 --reference "$F/policy.llm" --kl-coef .1 --kl-in reward --log "$objective.log"
        jq -se '.[0].kl_coef == .1 and .[0].ratio == 1 and .[1].ratio == 1' "$objective.log"
    done
    cp "$F/policy.llm" p.llm
    rollouts p.llm > r
    run -2 --separate-stderr learn --objective ppo --kl-target 3 --resume p.llm < r
    [[ $stderr == *'--kl-target: expected a --kl-coef above 0'* ]]
    run -2 --separate-stderr learn --objective ppo --kl-coef 3 --resume p.llm < r
    [[ $stderr == *'--kl-coef: expected a model'* ]]
}

@test "reinforce: a baseline over steps is where the formula puts it, also after --resume; a learned value" {
    teach reinforce --baseline exponential --baseline-decay .75 --iterations 2 --log log
    teach reinforce --baseline exponential --baseline-decay .75 --iterations 3 --log log
    jq -se 'length == 5' log
    jq -r '[.baseline, .reward] | @tsv' log | awk 'NR == 1 { b = $2 } { d = $1 - b; if (d * d > 1e-9) exit 1; if (NR > 1) b = .75 * b + .25 * $2 }'
    cp "$F/policy.llm" p.llm
    teach reinforce --baseline value --iterations 24 --log values
    jq -se '.[-1].reward > 2 * .[0].reward and .[0].ratio == 1' values
}

@test "tokens that a tool wrote are no actions: their log-probabilities do not matter, and no gradient comes from them" {
    rollouts p.llm > r
    jq -c '.mask = (.ids | map(1) | .[3] = 0 | .[4] = 0)' r > whole
    jq -c '.logprobs[3] = null | .logprobs[4] = -77' whole > other
    for objective in ppo grpo; do
        cp p.llm a.llm
        cp p.llm b.llm
        learn --objective $objective --resume a.llm --log a.log < whole
        learn --objective $objective --resume b.llm < other
        cmp a.llm b.llm
        jq -se '.[0].ratio == 1' a.log
    done
    run -65 --separate-stderr learn --objective ppo --resume p.llm < <(jq -c '.mask = [1]' r)
    [[ $stderr == *'"mask": expected 12 numbers'* ]]
    run -65 --separate-stderr learn --objective ppo --resume p.llm < <(jq -c '.mask[3] = 2' whole)
    [[ $stderr == *'"mask": element 3: expected 0 or 1'* ]]
    run -65 --separate-stderr learn --objective ppo --resume p.llm < <(jq -c '.logprobs[3] = null' r)
    [[ $stderr == *'"logprobs": element 3'* ]]
}
