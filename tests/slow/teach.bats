# Reinforcement on sums of two-digit numbers (tests/demo/teach): a reward command makes a small model right that supervised learning left half wrong.
load ../helper

setup() {
    need_tool jq
    export FOLDER=$PWD/teach
}

# taught SEED: the held-out sums right before and after, in percent
taught() {
    SEED=$1 run "$ROOT/tests/demo/teach"
    [[ $status == 0 && $output =~ "held-out sums right: before "([0-9.]+)"%, after "([0-9.]+)% ]] || fail "$output"
    before=${BASH_REMATCH[1]} after=${BASH_REMATCH[2]}
    echo "# ${OBJECTIVE:-grpo}, seed $1: $before% before, $after% after" >&3
}

@test "GRPO: from 40 to 60% before to at least 90% of the held-out sums, three seeds" {
    for seed in 1 2 3; do
        taught $seed
        awk "BEGIN { exit !($before >= 40 && $before <= 60 && $after >= 90) }"
    done
}

@test "REINFORCE with the mean of the other completions as the baseline, and PPO: at least 90%" {
    OBJECTIVE='reinforce --baseline rloo' taught 1
    awk "BEGIN { exit !($after >= 90) }"
    OBJECTIVE=ppo taught 1
    awk "BEGIN { exit !($after >= 90) }"
}

@test "with rewards that have nothing to do with the answers nothing is gained" {
    JUDGE="jq -c '.reward = ((.group * 7 + .sample * 11) % 16 / 16)'" ITERATIONS=60 taught 1
    awk "BEGIN { exit !($after <= $before + 5) }"
}
