# For tests of ranks that are signalled, killed or stopped (train_ranks_faults.bats here and among the slow tests).
. "${BASH_SOURCE[0]%/*}/mpi.bash"

setup_file() { sentences_tokens; }

setup() {
    need_mpi
    write_rank1
    gpt=(llm-train -q -j 1 -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 --optimizer sgd --schedule constant --warmup 0 -l 24
        -b 6 --grad-shards 6 -T "$F/tok.json" "$F/data.tok")
}

# Waits until the run has logged three steps.
first_steps() {
    local i
    for ((i = 0; i < 600; i++)); do
        [[ -s log && $(wc -l < log) -ge 3 ]] && break
        sleep .05
    done
}

# begin N OPTION...: starts a long run of N ranks and waits for its first steps; sets $job and $pids, the ranks' processes in the order of ranks.
begin() {
    local pid
    rm -f run.llm log
    ranks "$1" "${gpt[@]}" -n 1000000 -o run.llm --log log "${@:2}" 2> job.err &
    job=$!
    first_steps
    pids=()
    for pid in /proc/[0-9]*; do # without pgrep, which a bare system lacks
        pid=${pid#/proc/}
        [[ $(readlink "/proc/$pid/cwd" 2> /dev/null) == "$PWD" ]] || continue
        [[ $({ tr '\0' ' ' < "/proc/$pid/cmdline"; } 2> /dev/null) == "llm-train "*"-o run.llm "* ]] || continue
        pids[$(tr '\0' '\n' < "/proc/$pid/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=\|^PMI_RANK=//p' | head -n 1)]=$pid
    done
    assert_equal "${#pids[@]}" "$1"
}

# ends STATUS SECONDS: the job ends so, within so many seconds. MPICH's launcher joins the numbers of all signals that ranks died by, and ends others
# itself; UCX, which it sends by, aborts a rank whose peer has died.
ends() {
    local status=0 began=$SECONDS wanted=$1
    wait "$job" || status=$?
    [[ $LAUNCHER == mpiexec.hydra && $wanted -ge 128 && $status -gt 0 ]] || assert_equal "$status" "$wanted"
    ((SECONDS - began <= $2)) || fail "the job took $((SECONDS - began)) s to end"
    for pid in "${pids[@]}"; do # none is left: the launcher may end a moment before the last of them
        while [[ -e /proc/$pid && $(sed 's/.*) //' "/proc/$pid/stat" 2> /dev/null) == [!Z]* ]]; do
            ((SECONDS - began <= $2)) || fail "rank $pid is still there"
            sleep .05
        done
    done
}

# Of the job that was just started rank 1 loses its data, mine.tok: it is named, and the run is saved; `steps` is two steps on.
data_shrink() {
    job=$! pids=()
    first_steps
    truncate -s 4096 mine.tok
    ends 65 60
    [[ $(< job.err) =~ ^"llm-train: rank 1 ("[^\)]*"): mine.tok: " ]] || fail "$(< job.err)"
    steps=$(($(tail -n 1 log | jq .step) + 2))
}

# The run that was saved goes on with R ranks to `steps` steps, and is the run that was never interrupted.
goes_on() {
    ranks "$1" llm-train -q -j 1 --resume run.llm -n "$steps"
    "${gpt[@]}" -n "$steps" -o straight.llm
    cmp straight.llm run.llm
}

# signalled_and_killed LAYOUT LAYOUT: four ranks that a signal at any rank saves and ends, and two, of which kill -9 loses two steps at most.
signalled_and_killed() {
    begin 4 --shard "$1"
    kill -TERM "${pids[3]}"
    ends 143 60
    steps=$(($(tail -n 1 log | jq .step) + 2))
    goes_on 2
    begin 2 --save-every 2 --shard "$2"
    kill -9 "${pids[0]}"
    ends 137 60
    steps=$(($(tail -n 1 log | jq .step) + 2))
    rm log
    goes_on 1
}

# From here on the run reads a copy of its data, data.tok.
own_data() {
    gpt=("${gpt[@]/"$F/data.tok"/data.tok}")
    cp "$F/data.tok" data.tok
}

# shrinks_in RANKS LAYOUT: data.tok of rank 1 loses its end; the run goes on from what was saved.
shrinks_in() {
    cp data.tok mine.tok
    rm -f run.llm log
    RANK1='s|^data.tok|mine.tok|' ranks "$1" ./rank1 "${gpt[@]}" -n 1000000 -o run.llm --log log --shard "$2" 2> job.err &
    data_shrink
    goes_on 2
}

# names_hanging N OPTION...: rank 1 of N stops, and rank 0 names it, its machine and the step. The first line counts: until the launcher has ended it, a
# rank that goes on misses those that have ended.
names_hanging() {
    local found
    begin "$1" --rank-timeout 4 "${@:2}"
    kill -STOP "${pids[1]}"
    ends 1 60
    found=$(head -n 1 job.err) # the first may wait for another one that waits for the second
    [[ $found =~ ^"llm-train: rank 1 ("[^\)]*") does not answer: rank 0 ("[^\)]*") has waited 4 s for "("rank "[0-9]+" ("[^\)]*"), and that for ")?"it (step "[0-9]+")"$ ]] ||
        fail "found: $found"
}

# validation_shrinks N LAYOUT: one rank's validation data lose their end: the others do not wait for it, and the run is saved.
validation_shrinks() {
    local steps
    sentences 1500 > val # of which an evaluation takes longer than a step
    llm-tokenize encode -q -T "$F/tok.json" -o val.tok val
    gpt+=(--set n_layer=4) # more than memory is there for, so that every pass needs messages
    cp val.tok mine.tok
    rm -f run.llm log
    RANK1='s|^val.tok|mine.tok|' ranks "$1" ./rank1 "${gpt[@]}" -n 1000000 -o run.llm --log log --val val.tok --eval-every 1 --shard "$2" 2> job.err &
    data_shrink
    ranks 2 llm-train -q -j 1 --resume run.llm -n "$steps"
    "${gpt[@]}" -n "$steps" -o straight.llm --val val.tok --eval-every 1
    cmp straight.llm run.llm
}
