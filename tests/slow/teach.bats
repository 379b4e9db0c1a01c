# Reinforcement on sums of two-digit numbers and on words to be reversed (tests/demo/teach): a reward command makes a small model right that supervised
# learning left half wrong. A style learned from pairs of replies (tests/demo/style).
load ../helper

setup() {
    need_tool jq
    export FOLDER=$PWD/teach
}

# taught SEED: the held-out questions right before and after, in percent
taught() {
    SEED=$1 run "$ROOT/tests/demo/teach"
    [[ $status == 0 && $output =~ "held-out "(sums|reverse)" right: before "([0-9.]+)"%, after "([0-9.]+)% ]] || fail "$output"
    before=${BASH_REMATCH[2]} after=${BASH_REMATCH[3]}
    echo "# ${OBJECTIVE:-grpo}, seed $1: $before% before, $after% after" >&3
}

@test "GRPO: from 40 to 60% before to at least 90% of the held-out sums, three seeds" {
    for seed in 1 2 3; do
        taught $seed
        awk "BEGIN { exit !($before >= 40 && $before <= 60 && $after >= 90) }"
    done
}

@test "REINFORCE with the mean of the other completions as the baseline, and PPO: at least 90%, three seeds" {
    for seed in 1 2 3; do
        for objective in 'reinforce --baseline rloo' ppo; do
            OBJECTIVE=$objective taught $seed
            awk "BEGIN { exit !($after >= 90) }"
        done
    done
}

@test "with rewards that have nothing to do with the answers nothing is gained" {
    JUDGE="jq -c '.reward = ((.group * 7 + .sample * 11) % 16 / 16)'" ITERATIONS=60 taught 1
    awk "BEGIN { exit !($after <= $before + 5) }"
}

@test "PPO with a value head: from half of the words reversed rightly to at least three quarters" {
    TASK=reverse OBJECTIVE=ppo ITERATIONS=200 taught 1
    awk "BEGIN { exit !($before <= 60 && $after >= 75) }"
}

@test "DPO: replies in the preferred style, by a classifier, from half to more than eight of ten, and as right as before" {
    for seed in 1 2; do
        SEED=$seed FOLDER=$PWD/style run -0 "$ROOT/tests/demo/style"
        [[ $output =~ "formal replies: before "([0-9.]+)"%, after "([0-9.]+)"%; replies that say what they should: before "([0-9.]+)"%, after "([0-9.]+)% ]]
        echo "# seed $seed: ${lines[-1]}" >&3
        awk "BEGIN { exit !(${BASH_REMATCH[1]} < 60 && ${BASH_REMATCH[2]} > 80 && ${BASH_REMATCH[4]} > ${BASH_REMATCH[3]} - 5) }"
    done
}
