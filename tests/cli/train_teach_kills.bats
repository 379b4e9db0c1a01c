# Reinforcement, in one process and as a pipe an iteration, is killed where it saves (../fault/fail.c), samples, judges and learns, and goes on to the
# bits of a run that was not. SEED chooses the moments.
load ../helper
export LLM_THREADS=1
KILLS=20

setup_file() {
    [[ -z ${SANITIZER-} ]] || return 0
    "${CC:-cc}" -shared -fPIC -O1 -w -o "$BATS_FILE_TMPDIR/fail.so" "$ROOT/tests/fault/fail.c" -ldl
    policy_model
    printf '%s\n' '{"prompt": "the ", "answer": 7}' '{"id": "b", "prompt": "a"}' '{"prompt": "red"}' '{"ids": [99, 97, 116]}' > prompts
    export REWARD='jq -c ".reward = ((.text | [scan(\"e\")] | length) / 12)"'
}

setup() {
    need_plain_memory # a sanitizer's library wants to be the first that is loaded
    need_tool jq
    mkdir save
    RANDOM=${SEED:-16}
    learn=(-q --objective ppo --epochs 2 -b 16 --accumulate 2 --lr 1e-2)
}

# aim: a signal, and a call on a file below save/ before which it comes. The calls of a save are few; "write-short" is the middle of the bytes.
aim() {
    local calls=(open write write write-short write-short fsync fsync fchmod rename rename close)
    call=${calls[RANDOM % ${#calls[@]}]} at=$((RANDOM % 4 + 1)) signal=$((RANDOM % 4 ? 9 : 15))
    rm -f "$PWD/hit"
    shot=(env LD_PRELOAD="$BATS_FILE_TMPDIR/fail.so" FAIL_CALL=$call FAIL_AT=$at FAIL_SIGNAL=$signal FAIL_UNDER="$PWD/save" FAIL_FILE="$PWD/hit")
}

@test "one process, killed while it saves: the model is always a whole one, and the run ends with the same bytes" {
    teach=(llm-train "${learn[@]}" --prompts "$F/prompts" --reward "$REWARD" --tokens 12 --samples 8 --save-every 1)
    for n in 1 2 3; do
        cp "$F/policy.llm" whole.$n
        "${teach[@]}" --resume whole.$n --rollout-log log.$n --iterations $n
    done
    local killed=0 tries=0 runs=0
    while ((killed < KILLS || runs < 2)); do
        ((++tries < 200))
        if [[ ! -e save/p.llm ]]; then
            cp "$F/policy.llm" save/p.llm
            rm -f log
        fi
        aim
        status=0
        "${shot[@]}" "${teach[@]}" --resume save/p.llm --rollout-log log --iterations 3 2> said || status=$?
        if [[ -e hit ]]; then
            killed=$((killed + 1))
            [[ $status == $((128 + signal)) ]] || fail "$call $at: expected a death by signal $signal, found status $status: $(cat said)"
            llm-infer -q -m save/p.llm --temp 0 -n 1 a > out
            continue
        fi
        [[ $status == 0 ]] || fail "status $status: $(cat said)"
        cmp save/p.llm whole.3
        cmp <(jq -c . log | sort) <(jq -c . log.3 | sort)
        [[ $(ls -A save) == p.llm ]]
        rm save/p.llm
        runs=$((runs + 1))
    done
    echo "# $killed killed while they saved, $runs runs" >&3
}

@test "a pipe an iteration, killed where it samples, judges, learns and saves: each iteration is whole or not there" {
    cp "$F/policy.llm" whole.0
    for k in 0 1 2; do
        llm-infer -q -m whole.$k --jsonl --rollout -n 12 --samples 8 -c 32 "$F/prompts" | bash -c "$REWARD" |
            llm-train "${learn[@]}" --resume whole.$k -o whole.$((k + 1)) -
    done
    local saving=0 other=0 k=0 tries=0 runs=0
    cp "$F/policy.llm" save/0
    while ((saving < KILLS || other < KILLS || runs < 2)); do
        ((++tries < 400))
        aim
        where=$((RANDOM % 4)) lines=$((RANDOM % 33)) after=0.0$((RANDOM % 90 + 10))
        status=0
        case $where in
        0) timeout --foreground -s KILL $after llm-infer -q -m save/$k --jsonl --rollout -n 12 --samples 8 -c 32 "$F/prompts" | bash -c "$REWARD" |
            llm-train "${learn[@]}" --resume save/$k -o save/$((k + 1)) - 2> said || status=$? ;;
        1) llm-infer -q -m save/$k --jsonl --rollout -n 12 --samples 8 -c 32 "$F/prompts" | bash -c "head -n $lines | $REWARD; kill -9 \$\$" |
            llm-train "${learn[@]}" --resume save/$k -o save/$((k + 1)) - 2> said || status=$? ;;
        2) llm-infer -q -m save/$k --jsonl --rollout -n 12 --samples 8 -c 32 "$F/prompts" | bash -c "$REWARD" |
            timeout --foreground -s KILL $after llm-train "${learn[@]}" --resume save/$k -o save/$((k + 1)) - 2> said || status=$? ;;
        3) llm-infer -q -m save/$k --jsonl --rollout -n 12 --samples 8 -c 32 "$F/prompts" | bash -c "$REWARD" |
            "${shot[@]}" llm-train "${learn[@]}" --resume save/$k -o save/$((k + 1)) - 2> said || status=$? ;;
        esac 2> /dev/null
        if [[ -e hit ]]; then
            saving=$((saving + 1))
            [[ $status == $((128 + signal)) ]] || fail "$call $at: expected a death by signal $signal, found status $status: $(cat said)"
        elif ((status)); then other=$((other + 1)); fi
        if [[ ! -e save/$((k + 1)) ]]; then
            ((status)) || fail "status 0, and no iteration: $(cat said)"
            continue
        fi
        k=$((k + 1))
        cmp save/$k whole.$k
        ((k == 3)) || continue
        rm save/1 save/2 save/3
        k=0 runs=$((runs + 1))
    done
    echo "# $saving killed while they saved, $other elsewhere, $runs runs" >&3
    rm -f save/[1-3]
    for n in 1 2 3; do
        llm-infer -q -m save/$((n - 1)) --jsonl --rollout -n 12 --samples 8 -c 32 "$F/prompts" | bash -c "$REWARD" |
            llm-train "${learn[@]}" --resume save/$((n - 1)) -o save/$n -
        cmp save/$n whole.$n
    done
    [[ $(ls -A save | tr '\n' ' ') == '0 1 2 3 ' ]] || fail "left: $(ls -A save)" # what a killed save left went with the next whole one
}
