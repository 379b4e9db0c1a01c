# llm-train --prompts: reinforcement in one process (train/teach.h, train/judge.h).
load ../helper
export LLM_THREADS=1

setup_file() {
    policy_model
    printf '%s\n' '{"prompt": "the ", "answer": 7}' '{"id": "b", "prompt": "a"}' '{"prompt": "red"}' '{"ids": [99, 97, 116]}' > prompts
    export REWARD='jq -c ".reward = ((.text | [scan(\"e\")] | length) / 12)"'
}

setup() {
    need_tool jq
    cp "$F/policy.llm" p.llm
}

# teach OPTION...: three iterations of 32 completions
teach() {
    ${BEFORE-} llm-train -q --objective grpo -b 16 --accumulate 2 --lr 1e-2 --resume p.llm --prompts "$F/prompts" --reward "$REWARD" --iterations 3 --tokens 12 \
        --samples 8 "$@"
}

@test "one process = a pipe an iteration: the same bytes, whatever the threads, the jobs and how many are sampled together" {
    cp p.llm pipe.llm
    cp p.llm other.llm
    for k in 1 2 3; do
        llm-infer -q -m pipe.llm --jsonl --rollout -n 12 --samples 8 -c 32 "$F/prompts" | tee "lines.$k" | bash -c "$REWARD" |
            llm-train -q --objective grpo -b 16 --accumulate 2 --lr 1e-2 --resume pipe.llm --log pipe.log -
    done
    teach --log log --rollout-log rollouts
    cmp p.llm pipe.llm
    cmp <(jq -c 'del(.iteration, .reward)' rollouts) <(jq -c . lines.1 lines.2 lines.3)
    jq -c '[.step, .loss, .reward, .ratio, .hash]' log | cmp - <(jq -c '[.step, .loss, .reward, .ratio, .hash]' pipe.log)
    jq -se 'length == 3 and all(.[]; .ratio == 1 and .completions == 32 and (.rewards.counts | add) == 32 and .sampled_tokens > 0
            and .sampling_tokens_per_second > 0 and .reward_failures == 0) and [.[].iteration] == [0, 1, 2]' log
    teach -j 2 --resume other.llm --reward-jobs 3 --parallel 5 -b 4 --accumulate 8 --rollout-log other
    cmp other.llm pipe.llm
    cmp <(sort other) <(sort rollouts)
}

@test "a run that stopped anywhere goes on from its log to the same bytes; a judge that has changed its mind is not asked again" {
    cp p.llm begin.llm
    teach --rollout-log whole
    cp p.llm want.llm
    for lines in 0 5 32 40 63 64 95; do # the second and third iteration's weights were not saved
        cp begin.llm p.llm
        head -"$lines" whole > log
        [[ $lines == 0 ]] || printf '{"id":1,"gro' >> log # a line that was cut
        teach --rollout-log log
        cmp p.llm want.llm
        cmp <(sort log) <(sort whole)
    done
    cp begin.llm p.llm
    cp whole log
    teach --rollout-log log --reward 'exit 3'
    cmp p.llm want.llm
    cp begin.llm p.llm # saved after the second iteration
    head -64 whole > log
    teach --rollout-log log --iterations 2
    teach --rollout-log log
    cmp p.llm want.llm
    run --separate-stderr llm-train --objective grpo -b 16 --accumulate 2 --resume p.llm --prompts "$F/prompts" --reward "$REWARD" --iterations 3 \
        --tokens 12 --samples 8 --rollout-log log
    [[ $status == 0 && $stderr == *'all 3 iterations were done'* ]]
    cmp p.llm want.llm
}

@test "killed at random moments and resumed: the bytes of a run that was not" {
    cp p.llm begin.llm
    slow='while read -r line; do sleep .003; printf "%s\n" "$line"; done | '$REWARD
    teach --rollout-log whole --save-every 1
    cp p.llm want.llm
    cp begin.llm p.llm
    for ((k = 0; k < 20; k++)); do
        BEFORE=exec teach --rollout-log log --save-every 1 --reward "$slow" &
        pid=$!
        sleep ".$((RANDOM % 4))$((RANDOM % 10))"
        struck $((k % 3 == 2 ? 15 : 9)) "$pid"
    done 2> /dev/null
    teach --rollout-log log --save-every 1
    cmp p.llm want.llm
    cmp <(jq -c . log | sort) <(jq -c . whole | sort)
}

# refused STATUS TEXT OPTION...: status, one line of message with TEXT, the policy as it was
refused() {
    cp "$F/policy.llm" p.llm
    run -"$1" --separate-stderr teach "${@:3}"
    [[ $stderr == *"$2"* ]] || fail "expected '$2', found '$stderr'"
    [[ $(grep -c ^llm-train: <<< "$stderr") == 1 ]]
    cmp <(llm-infer -m p.llm --score the) <(llm-infer -m "$F/policy.llm" --score the)
}

@test "a command that hangs, dies, is missing or writes nonsense: status, one line, nothing lost" {
    refused 69 'exit status 127: the shell did not find it' --reward 'no-such-command 2> /dev/null'
    refused 65 'reward command: ended (exit status 3) with ' --reward 'exit 3'
    refused 65 'reward command: ended (exit status 0) with ' --reward "head -8 | $REWARD"
    refused 65 'reward command: killed by signal 9' --reward 'kill -9 $$'
    refused 65 'reward command: silent for 0.2 s with 32 replies to judge' --reward "sleep 100.$$" --reward-timeout .2
    refused 65 'reward command: line 1 of its output: ' --reward 'echo nonsense; cat'
    refused 65 'reward command: line 3 of its output: "reward": expected a finite number, found something else' --reward "$REWARD | sed '3s/\"reward\":[^,}]*/\"reward\":null/'"
    refused 65 '"reward": expected a finite number, found no such member' --reward cat
    refused 65 'line 2 of its output: expected an answer to a completion that has none yet' --reward "$REWARD | sed '1{p;p}'"
    [[ $(cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\0' ' ') != *"sleep 100.$$"* ]] # the command was killed
    teach --rollout-log log --reward 'echo broken' 2> /dev/null && return 1
    [[ ! -s log ]]
}

@test "with --reward-fallback a reply that cannot be judged has that reward, and is counted; answers may be numbers, and out of order" {
    each='i=0; while read -r line; do i=$((i + 1)); [ $i = 5 ] && exit 1; printf "%s\n" "$line" | '"$REWARD"'; done'
    teach --iterations 1 --log log --rollout-log rollouts --reward-fallback -1 --reward "$each"
    jq -se '.[0].reward_failures == 6 and .[0].rewards.min == -1' log # each process answers four
    jq -se 'length == 32 and (map(select(.reward_error and .reward == -1)) | length) == 6' rollouts
    cp "$F/policy.llm" p.llm
    cp "$F/policy.llm" q.llm
    teach --iterations 1
    teach --iterations 1 --resume q.llm --reward "$REWARD | sort"
    cmp p.llm q.llm
    cp "$F/policy.llm" q.llm
    teach --iterations 1 --resume q.llm --reward "$REWARD | jq .reward"
    cmp p.llm q.llm
}

@test "what cannot be asked for is one line, and nothing is lost" {
    echo '{"text": 1}' > wrong
    refused 65 'wrong: line 1: expected "prompt" (a string)' --prompts wrong
    echo '{"prompt": "a", "temp": 2}' > wrong
    refused 65 'wrong: line 1: "temp": expected no option' --prompts wrong
    echo '{"ids": [5, 70000]}' > wrong
    refused 65 'wrong: line 1: "ids": element 1: expected a token id below' --prompts wrong
    printf '%s\n' '{"prompt": "a"}' '{"prompt": "a prompt that is far longer than the context"}' > wrong
    refused 65 'wrong: line 2: expected a prompt of fewer tokens than --context 32' --prompts wrong
    : > wrong
    refused 65 'expected prompts, found none' --prompts wrong
    refused 66 'no-such-file' --prompts no-such-file
    refused 65 'expected at least 2 completions' --samples 1 -b 4 --accumulate 1
    refused 2 'in a multiple of the 32 rows of a step' --samples 3
    refused 2 '--take: expected at most the 4 prompts' --take 5
    echo '{"iteration": 7, "policy_step": 60}' > log
    refused 65 'log: line 1: "iteration": expected 0' --rollout-log log
    teach --rollout-log whole
    jq -c '.model = "0123456789abcdef"' whole > log
    refused 65 'the log is of another run' --rollout-log log
    for options in '--reward cat data' '--prompts x' '--prompts x --reward cat' '--prompts x --reward cat --iterations 1 data' \
        '--prompts x --reward cat --iterations 1 --plan'; do
        run -2 --separate-stderr llm-train --objective grpo --resume p.llm $options
    done
    run -2 --separate-stderr llm-train --objective lm --resume p.llm --prompts "$F/prompts" --reward cat --iterations 1
    [[ $stderr == *'expected an objective that learns from completions'* ]]
}

@test "--take draws other prompts for each iteration; --init begins a run" {
    run --separate-stderr llm-train --objective reinforce --baseline rloo -b 16 --init "$F/policy.llm" -o q.llm --prompts "$F/prompts" --take 2 \
        --reward "$REWARD" --iterations 4 --tokens 12 --samples 8 -l 32 --rollout-log log --log steps
    [[ $status == 0 ]] || fail "$stderr"
    jq -se '[.[].step] == [1, 2, 3, 4]' steps
    jq -c 'select(.sample == 0) | [.iteration, .id]' log > asked
    [[ $(wc -l < asked) == 8 && $(jq -c '.[1]' asked | sort -u | wc -l) == 4 ]]
}

@test "--lag 1: samples come from the weights an iteration before and say so; killed anywhere, the run goes on to the same bytes" {
    cp p.llm begin.llm
    teach --iterations 4 --lag 1 --rollout-log whole --log steps --save-every 1
    cp p.llm want.llm
    # Steps 60, 60, 61, 62: the first iteration is on policy, each later one is a step behind.
    jq -c '[.iteration, .policy_step, .lag]' whole | uniq | cmp - <(printf '%s\n' '[0,60,0]' '[1,60,1]' '[2,61,1]' '[3,62,1]')
    jq -se '.[0].ratio == 1 and .[1].ratio != 1 and .[1].lag == 1 and .[0].lag == 0 and length == 4' steps
    cp begin.llm first.llm
    cp begin.llm p.llm
    teach --iterations 1 --rollout-log plain
    for lines in 0 20 32 50 64; do
        cp begin.llm p.llm
        head -"$lines" whole > log
        teach --iterations 4 --lag 1 --rollout-log log
        cmp p.llm want.llm
        cmp <(sort log) <(sort whole)
    done
    for ((k = 0; k < 6; k++)); do
        cp begin.llm k.llm
        rm -f k.log
        for ((strike = 0; strike < 3; strike++)); do
            BEFORE=exec teach --resume k.llm --iterations 4 --lag 1 --rollout-log k.log --save-every 1 --reward "sleep .1; $REWARD" &
            pid=$!
            sleep ".$((RANDOM % 6))$((RANDOM % 10))"
            struck $((k % 2 ? 15 : 9)) "$pid"
        done 2> /dev/null
        teach --resume k.llm --iterations 4 --lag 1 --rollout-log k.log --save-every 1
        cmp k.llm want.llm
        cmp <(jq -c . k.log | sort) <(jq -c . whole | sort)
    done
    cp begin.llm p.llm # what older weights have sampled cannot be sampled again
    head -64 whole > log
    teach --iterations 2 --lag 1 --rollout-log log
    head -40 whole > log
    cp p.llm at.llm
    run -2 --separate-stderr teach --iterations 4 --lag 1
    [[ $stderr == *'--lag: expected --rollout-log'* ]]
    run -2 --separate-stderr teach --iterations 4 --lag 1 --redraw 1 --rollout-log log
    [[ $stderr == *'--lag and --redraw exclude each other'* ]]
    cmp p.llm at.llm
}

@test "--redraw: groups whose rewards are all equal are drawn again; a run that was killed goes on with the same draws" {
    export rare='jq -c ".reward = (if (.text | contains(\"e\")) then 1 else 0 end)"'
    cp p.llm begin.llm
    teach --samples 2 -b 8 --accumulate 1 --reward "$rare" --rollout-log plain
    jq -s 'group_by([.iteration, .group]) | map(select(.[0].reward == .[1].reward)) | length' plain > flat
    [[ $(cat flat) -gt 0 ]]
    cp begin.llm p.llm
    teach --samples 2 -b 8 --accumulate 1 --reward "$rare" --rollout-log whole --redraw 20 --log steps
    cp p.llm want.llm
    # The last draw of each group has a spread; those before it have none.
    jq -se 'group_by([.iteration, .group]) | all(.[]; [.[] | select(.sample == 0).reward] as $a | [.[] | select(.sample == 1).reward] as $b
            | $a[-1] != $b[-1] and $a[:-1] == $b[:-1])' whole
    [[ $(jq -s 'map(.redrawn) | add' steps) == $(($(wc -l < whole) - 24)) ]]
    jq -se 'all(.[]; .ratio == 1 and .completions == 8)' steps
    for lines in 3 9 12 20; do
        cp begin.llm p.llm
        head -"$lines" whole > log
        teach --samples 2 -b 8 --accumulate 1 --reward "$rare" --rollout-log log --redraw 20
        cmp p.llm want.llm
        cmp <(sort log) <(sort whole)
    done
    cp begin.llm p.llm # with --take other prompts come in their place
    teach --take 2 --samples 2 -b 4 --accumulate 1 --reward "$rare" --rollout-log taken --redraw 20
    jq -se 'group_by([.iteration, .group]) | any(.[]; map(.id | tostring) | unique | length > 1)' taken
    cp begin.llm p.llm
    teach --reward "jq -c '.reward = 1'" --redraw 2 --iterations 1 --rollout-log flat.log # never a spread: learned from as they are
    [[ $(wc -l < flat.log) == 96 ]]
}
