# For tests of --snapshot, after tests/mpi.bash.

# machines N: rank r of ./node COMMAND... has the folder node(r mod N) for its snapshots, as if it ran on that machine.
machines() {
    local i
    printf '#!/bin/bash\nexec "$@" --snapshot "node$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} %% %d))"\n' "$1" > node
    chmod +x node
    for ((i = 0; i < $1; i++)); do mkdir "node$i"; done
}

# Processes of this test's ranks.
ranks_of_test() {
    local pid
    for pid in /proc/[0-9]*; do # without pgrep, which a bare system lacks
        pid=${pid#/proc/}
        [[ $(readlink "/proc/$pid/cwd" 2> /dev/null) == "$PWD" ]] || continue
        [[ $({ tr '\0' ' ' < "/proc/$pid/cmdline"; } 2> /dev/null) != "llm-train "* ]] || echo "$pid"
    done
}

# killed N OPTION...: a run of N ranks without an end, one of which is killed at a random moment after its fifth step; $done is the last step in the log.
killed() {
    local n=$1 job pid pids i status=0
    rm -f log
    ranks "$n" ./node llm-train "${@:2}" -n 1000000 --snapshot-every 3 --log log 2> job.err &
    job=$!
    for ((i = 0; i < 1200; i++)); do
        [[ -s log && $(wc -l < log) -ge $((5 + RANDOM % 5)) ]] && break
        sleep .05
    done
    sleep ".$((RANDOM % 300 + 100))"
    mapfile -t pids < <(ranks_of_test)
    kill -9 "${pids[RANDOM % n]}"
    wait "$job" || status=$?
    ((status != 0)) || fail "the job ended well without one of its ranks"
    for pid in "${pids[@]}"; do while [[ -e /proc/$pid && $(sed 's/.*) //' "/proc/$pid/stat" 2> /dev/null) == [!Z]* ]]; do sleep .05; done; done
    done=$(tail -n 1 log | jq .step)
}
