# Ranks that are signalled, killed or stopped: the job ends, nothing is lost but the steps since the last save, and any number of ranks goes on with
# the same bits. Other layouts: tests/slow/train_ranks_faults.bats.
load ../helper
load ../ranks_faults

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

@test "one rank's data shrinks: all stop at the step before, the run is saved, the rank is named" {
    cp "$F/data.tok" mine.tok
    own_data
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

@test "stages of members of a group: a signal at any rank, kill -9, data that shrink at one rank: as without" {
    local steps
    gpt+=(--tensor-parts 2)
    signalled_and_killed pp=2,tp=2 tp=2
    own_data
    shrinks_in 4 pp=2,tp=2
}

@test "ZeRO 3: one rank's validation data shrinks: the others do not wait for it; the run is saved" {
    validation_shrinks 3 zero=3
}

@test "a rank that hangs is named with its machine and the step after --rank-timeout" {
    names_hanging 2
    begin 2 --rank-timeout 4
    kill -STOP "${pids[0]}"
    ends 1 60
    [[ $(head -n 1 job.err) =~ ^"llm-train: rank 0 ("[^\)]*") does not answer: rank 1 ("[^\)]*") has waited "[0-9]+" s for it (step "[0-9]+")"$ ]] || fail "found: $(< job.err)"
}

@test "a rank that runs out of memory, even for messages, ends the job at once in one line" {
    need_plain_memory
    cc -O1 -w -shared -fPIC -o no_memory.so "$ROOT/tests/fault/no_memory.c"
    RANK1=LD_PRELOAD=$PWD/no_memory.so ranks 2 ./rank1 "${gpt[@]}" -n 1000000 -o run.llm --log log --shard zero=3 --rank-timeout 100 2> job.err &
    job=$! pids=()
    first_steps
    touch no_memory
    ends 69 50
    [[ $(< job.err) =~ ^"llm-train: out of memory: "[^$'\n']*$ ]] || fail "$(< job.err)"
}
