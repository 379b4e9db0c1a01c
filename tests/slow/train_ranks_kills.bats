# A run whose ranks are killed 200 times (KILLS), at random moments, and that goes on each time with another number of ranks and another ZeRO, ends
# with the bytes of the run that nothing interrupted.
load ../helper
load ../mpi

setup_file() { sentences_tokens; }

# The ranks that work in this test's folder: no other process may be killed.
of_this_test() {
    local pid
    for pid in /proc/[0-9]*; do # without pgrep, which a bare system lacks
        pid=${pid#/proc/}
        [[ $(readlink "/proc/$pid/cwd" 2> /dev/null) == "$PWD" ]] || continue
        [[ $({ tr '\0' ' ' < "/proc/$pid/cmdline"; } 2> /dev/null) != "llm-train "*"--resume run.llm"* ]] || echo "$pid"
    done
}

@test "kill -9 of random ranks, 200 times: cmp equal at the end, at most --save-every steps lost each time" {
    need_mpi
    local kills=${KILLS:-200} every=5 done=0 n victim started job steps pid pids saved
    local of=(-q -j 1 -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 --schedule constant --warmup 0 -l 24 -b 6 --grad-shards 6 -T "$F/tok.json")
    RANDOM=20261123
    llm-train "${of[@]}" -n 0 -o run.llm "$F/data.tok"
    while ((done < kills)); do
        n=$((RANDOM % 4 + 1))
        ranks "$n" llm-train -q -j 1 --resume run.llm -n 1000000 --save-every "$every" --log log --shard "zero=$((RANDOM % 4))" "$F/data.tok" &
        job=$!
        pids=()
        while ((${#pids[@]} < n)); do
            kill -0 "$job" # the run has not ended by itself
            sleep .02
            mapfile -t pids < <(of_this_test)
        done
        sleep "$((RANDOM % 2)).$((RANDOM % 900 + 100))"
        victim=$((RANDOM % n))
        kill -9 "${pids[victim]}"
        started=$SECONDS
        wait "$job" || saved=${saved:-0}
        ((SECONDS - started < 30)) || fail "the job took too long to end"
        for pid in "${pids[@]}"; do while [[ -e /proc/$pid ]]; do sleep .05; done; done
        done=$((done + 1))
        [[ -s log ]] || continue
        saved=$(zstd -dcq run.llm | head -c 30000 | grep -ao 'step\\":[0-9]*' | head -n 1 | tr -dc 0-9)
        (($(tail -n 1 log | jq .step) - saved <= every)) || fail "more than $every steps are lost"
    done
    steps=$((saved + 3))
    llm-train -q -j 1 --resume run.llm -n "$steps" "$F/data.tok"
    llm-train "${of[@]}" -n "$steps" -o straight.llm "$F/data.tok"
    cmp straight.llm run.llm
}
