# Ranks that are signalled, killed or stopped: the job ends, nothing is lost but the steps since the last save, and any number of ranks goes on with
# the same bits.
load ../helper
load ../ranks_faults

@test "of 32 ranks, which wait for one another, the one that hangs is named" {
    local rank
    gpt=(llm-train -c nano --set n_layer=2 --set n_embd=16 --set n_head=2 -q -j 1 -l 16 -T "$F/tok.json" "$F/data.tok" -b 32 --grad-shards 32)
    for rank in 13 31; do
        begin 32 --shard zero=1 --rank-timeout 4
        kill -STOP "${pids[rank]}"
        ends 1 60
        [[ $(head -n 1 job.err) =~ ^"llm-train: rank $rank ("[^\)]*") does not answer: rank 0 (" ]] || fail "found: $(< job.err)"
    done
}

@test "ranks that divide rows: a signal at any rank, kill -9: as without" {
    local steps
    gpt+=(--seq-parts 2)
    signalled_and_killed dp=2,cp=2 cp=2
}

@test "members of a group: a signal at any rank, kill -9, data that shrink at one rank: as without members" {
    local steps
    gpt+=(--tensor-parts 2)
    signalled_and_killed dp=2,tp=2 tp=2
    own_data
    shrinks_in 2 tp=2
}

@test "stages: a signal at any rank, kill -9, data that shrink at one rank: as without stages" {
    local steps
    gpt+=(--accumulate 2)
    signalled_and_killed dp=2,pp=2 pp=2
    own_data
    shrinks_in 2 pp=2
}

@test "stages with ZeRO 3 and 0: a signal at any rank, kill -9, data and validation data that shrink at one rank: as without" {
    local steps
    signalled_and_killed dp=2,pp=2,zero=3 pp=2,zero=0
    own_data
    shrinks_in 4 dp=2,pp=2,zero=3
    validation_shrinks 4 dp=2,pp=2,zero=3
}

@test "ranks that divide experts: a signal at any rank, kill -9, data and validation data that shrink at one rank, one that hangs" {
    local steps
    gpt=(llm-train -q -j 1 -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24 --optimizer sgd --schedule constant --warmup 0
        -l 24 -b 8 --grad-shards 4 -T "$F/tok.json" data.tok)
    cp "$F/data.tok" data.tok
    signalled_and_killed dp=4,ep=2 ep=2
    names_hanging 2 --shard ep=2
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

@test "a rank of three, of a stage, of a slice or of a part of the rows that hangs is named" {
    names_hanging 3
    names_hanging 2 --shard pp=2
    names_hanging 2 --tensor-parts 2 --shard tp=2
    names_hanging 2 --seq-parts 2 --shard cp=2
}

@test "stages and members: one rank's validation data shrinks: the others do not wait for it; the run is saved" {
    validation_shrinks 3 pp=3
    gpt+=(--set n_embd=48 --set n_head=3 --tensor-parts 3)
    validation_shrinks 3 tp=3
    validation_shrinks 6 pp=2,tp=3
}
