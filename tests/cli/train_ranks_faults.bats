# Ranks that are signalled, killed or stopped: the job ends, nothing is lost but the steps since the last save, and any number of ranks goes on with
# the same bits.
load ../helper
load ../mpi

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

# ends STATUS SECONDS: the job ends so, within so many seconds.
ends() {
    local status=0 began=$SECONDS wanted=$1
    wait "$job" || status=$?
    [[ $LAUNCHER != mpiexec.hydra ]] || ((wanted < 128)) || wanted=$((wanted - 128)) # MPICH's launcher has the signal's number as its status
    assert_equal "$status" "$wanted"
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

@test "SIGUSR1, SIGTERM and SIGINT at any rank: all save after the step and die by it; other numbers of ranks go on" {
    local rank=2 signal steps
    for signal in USR1 TERM INT; do
        begin 3 --shard "zero=$((rank + 1))"
        kill "-$signal" "${pids[rank]}"
        ends $((128 + $(kill -l "$signal"))) 60
        steps=$(($(tail -n 1 log | jq .step) + 2))
        goes_on $((rank + 1))
        rank=$((rank - 1))
    done
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

@test "ranks that divide rows: a signal at any rank, kill -9: as without" {
    local steps
    gpt+=(--seq-parts 2)
    signalled_and_killed dp=2,cp=2 cp=2
}

# shrinks_in RANKS LAYOUT: data.tok of rank 1 loses its end; the run goes on from what was saved.
shrinks_in() {
    cp data.tok mine.tok
    rm -f run.llm log
    RANK1='s|^data.tok|mine.tok|' ranks "$1" ./rank1 "${gpt[@]}" -n 1000000 -o run.llm --log log --shard "$2" 2> job.err &
    data_shrink
    goes_on 2
}

@test "members of a group: a signal at any rank, kill -9, data that shrink at one rank: as without members" {
    local steps
    gpt+=(--tensor-parts 2)
    signalled_and_killed dp=2,tp=2 tp=2
    gpt=("${gpt[@]/"$F/data.tok"/data.tok}")
    cp "$F/data.tok" data.tok
    shrinks_in 2 tp=2
    shrinks_in 4 pp=2,tp=2
}

@test "ranks that divide experts: a signal at any rank, kill -9, data and validation data that shrink at one rank, one that hangs" {
    local steps
    gpt=(llm-train -q -j 1 -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24 --optimizer sgd --schedule constant --warmup 0
        -l 24 -b 8 --grad-shards 4 -T "$F/tok.json" data.tok)
    cp "$F/data.tok" data.tok
    signalled_and_killed dp=4,ep=2 ep=2
    begin 2 --rank-timeout 4 --shard ep=2
    kill -STOP "${pids[1]}"
    ends 1 60
    [[ $(head -n 1 job.err) =~ ^"llm-train: rank 1 ("[^\)]*") does not answer: rank 0 ("[^\)]*") has waited 4 s for it (step "[0-9]+")"$ ]] || fail "found: $(< job.err)"
    shrinks_in 2 ep=2
    shrinks_in 4 ep=2,pp=2
    cp data.tok mine.tok
    rm -f run.llm log
    cp data.tok val.tok
    gpt+=(--tensor-parts 2 --val val.tok --eval-every 1)
    RANK1='s|^val.tok|mine.tok|' ranks 4 ./rank1 "${gpt[@]}" -n 1000000 -o run.llm --log log --shard ep=2,tp=2 2> job.err &
    data_shrink
    goes_on 1
}

@test "stages: a signal at any rank, kill -9, data that shrink at one rank: as without stages" {
    local steps
    gpt+=(--accumulate 2)
    signalled_and_killed dp=2,pp=2 pp=2
    gpt=("${gpt[@]/"$F/data.tok"/data.tok}")
    cp "$F/data.tok" data.tok
    shrinks_in 2 pp=2
}

@test "kill -9 of any rank ends the job within seconds; what was saved goes on" {
    local rank steps
    for rank in 0 1; do
        begin 2 --save-every 2 --shard zero=1
        kill -9 "${pids[rank]}"
        ends 137 60
        steps=$(($(tail -n 1 log | jq .step) + 2))
        rm log
        goes_on $((2 - rank))
    done
}

# The first line counts: until the launcher has ended it, a rank that goes on misses those that have ended.
@test "a rank that hangs is named with its machine and the step after --rank-timeout" {
    begin 2 --rank-timeout 4
    kill -STOP "${pids[1]}"
    ends 1 60
    [[ $(head -n 1 job.err) =~ ^"llm-train: rank 1 ("[^\)]*") does not answer: rank 0 ("[^\)]*") has waited 4 s for it (step "[0-9]+")"$ ]] || fail "found: $(< job.err)"
    begin 3 --rank-timeout 4
    kill -STOP "${pids[1]}"
    ends 1 60 # the third may wait for the second where the first waits for the third
    [[ $(head -n 1 job.err) =~ ^"llm-train: rank "[12]" ("[^\)]*") does not answer: rank 0 ("[^\)]*") has waited 4 s for it (step "[0-9]+")"$ ]] \
        || fail "found: $(< job.err)"
    begin 2 --rank-timeout 4 --shard pp=2
    kill -STOP "${pids[1]}"
    ends 1 60
    [[ $(head -n 1 job.err) =~ ^"llm-train: rank 1 ("[^\)]*") does not answer: rank 0 ("[^\)]*") has waited 4 s for it (step "[0-9]+")"$ ]] || fail "found: $(< job.err)"
    begin 2 --rank-timeout 4 --tensor-parts 2 --shard tp=2
    kill -STOP "${pids[1]}"
    ends 1 60
    [[ $(head -n 1 job.err) =~ ^"llm-train: rank 1 ("[^\)]*") does not answer: rank 0 ("[^\)]*") has waited 4 s for it (step "[0-9]+")"$ ]] || fail "found: $(< job.err)"
    begin 2 --rank-timeout 4 --seq-parts 2 --shard cp=2
    kill -STOP "${pids[1]}"
    ends 1 60
    [[ $(head -n 1 job.err) =~ ^"llm-train: rank 1 ("[^\)]*") does not answer: rank 0 ("[^\)]*") has waited 4 s for it (step "[0-9]+")"$ ]] || fail "found: $(< job.err)"
    begin 2 --rank-timeout 4
    kill -STOP "${pids[0]}"
    ends 1 60
    [[ $(head -n 1 job.err) =~ ^"llm-train: rank 0 ("[^\)]*") does not answer: rank 1 ("[^\)]*") has waited "[0-9]+" s for it (step "[0-9]+")"$ ]] || fail "found: $(< job.err)"
}

@test "one rank's data shrinks: all stop at the step before, the run is saved, the rank is named" {
    cp "$F/data.tok" mine.tok
    gpt=("${gpt[@]/"$F/data.tok"/data.tok}")
    cp "$F/data.tok" data.tok
    RANK1='s|^data.tok|mine.tok|' ranks 2 ./rank1 "${gpt[@]}" -n 1000000 -o run.llm --log log 2> job.err &
    data_shrink
    goes_on 3
    cp data.tok mine.tok
    rm run.llm log
    gpt+=(--val data.tok --eval-every 1000) # the same file twice
    RANK1='s|^data.tok|mine.tok|' ranks 2 ./rank1 "${gpt[@]}" -n 1000000 -o run.llm --log log 2> job.err &
    data_shrink
    goes_on 2
}

@test "ZeRO 3, stages and members: one rank's validation data shrinks: the others do not wait for it; the run is saved" {
    local layout
    sentences 1500 > val # of which an evaluation takes longer than a step
    llm-tokenize encode -q -T "$F/tok.json" -o val.tok val
    gpt+=(--set n_layer=4) # more than memory is there for, so that every pass needs messages
    local n
    for layout in zero=3 pp=3 tp=3 pp=2,tp=3; do
        n=3
        [[ $layout != *tp=3 ]] || gpt+=(--set n_embd=48 --set n_head=3 --tensor-parts 3)
        [[ $layout != pp=2,* ]] || n=6
        cp val.tok mine.tok
        rm -f run.llm log
        RANK1='s|^val.tok|mine.tok|' ranks $n ./rank1 "${gpt[@]}" -n 1000000 -o run.llm --log log --val val.tok --eval-every 1 --shard $layout 2> job.err &
        data_shrink
        ranks 2 llm-train -q -j 1 --resume run.llm -n "$steps"
        "${gpt[@]}" -n "$steps" -o straight.llm --val val.tok --eval-every 1
        cmp straight.llm run.llm
    done
}
