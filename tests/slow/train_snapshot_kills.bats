# A run whose ranks are killed 200 times (KILLS), at random moments, and that goes on each time with another number of ranks and another ZeRO, now and
# then without the snapshots of one of its two machines, loses at most the steps of one snapshot, and ends with the bytes of the run that nothing
# interrupted.
load ../helper
load ../mpi
load ../snapshots

setup_file() { sentences_tokens; }

@test "kill -9 of random ranks, 200 times: cmp equal at the end, at most --snapshot-every steps lost each time" {
    need_mpi
    local kills=${KILLS:-200} i n before=0 gone least=1
    local of=(-q -j 1 -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 --schedule constant --warmup 0 -l 24 -b 6 --grad-shards 6 -T "$F/tok.json"
        "$F/data.tok")
    machines 2
    RANDOM=20261124
    llm-train "${of[@]}" -n 0 -o run.llm
    for ((i = 0; i < kills; i++)); do
        n=$((RANDOM % 4 + 1))
        ((n >= least)) || n=$least # one rank reads the first machine's snapshots alone
        least=1
        killed "$n" -q -j 1 --resume run.llm --shard "zero=$((RANDOM % 4))"
        (($(head -n 1 log | jq .step) > before - 3)) || fail "kill $i: of $before steps it went on with step $(head -n 1 log | jq .step)"
        before=$done
        ((n == 1 || RANDOM % 4 > 0)) && continue # one rank has no other machine for a copy
        gone=$((RANDOM % 2)) least=$((2 - gone))
        rm -f node$gone/*
    done
    ranks 2 ./node llm-train -q -j 1 --resume run.llm -n $((before + 2))
    llm-train "${of[@]}" -n $((before + 2)) -o straight.llm
    cmp straight.llm run.llm
}
