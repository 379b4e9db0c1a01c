# Ranks of one machine have one copy of the weights with zero=1 and 2: the bits of one process, and fewer bytes sent.
load ../helper
load ../mpi

setup_file() { sentences_tokens; }

setup() {
    need_mpi
    export LLM_NODE_MEMORY=yes
    of=(-q -j 1 -l 24 -T "$F/tok.json" "$F/data.tok")
    gpt=(llm-train -c nano --set n_layer=3 --set n_embd=32 --set n_head=2 "${of[@]}")
}

@test "the bits of one process: validation, Muon, counts of routers, statistics of batches, BF16 and FP32" {
    same_for "2 3" "1 2" "${gpt[@]}" -n 4 -b 6 --grad-shards 6 --precision bf16 --val .2 --eval-every 2 --optimizer muon
    same_for "2" "1 2" "${gpt[@]}" -n 4 -b 4 --grad-shards 2 --precision f32 --clip .1 --checkpoint-every 2
    same_for "3" "1" llm-train -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=5 \
        --set router_bias=true "${of[@]}" -n 3 -b 6 --grad-shards 6
    same_for "2" "1" "${gpt[@]}" --set norm=batch -n 3 -b 2 --accumulate 4 --grad-shards 4
}

@test "weights are not sent; a run goes on with other ranks; no memory is left behind" {
    local with without memory pid
    "${gpt[@]}" -n 4 -b 4 --grad-shards 4 --schedule constant -o alone.llm
    ranks 2 "${gpt[@]}" -n 2 -b 4 --grad-shards 4 --schedule constant -o part.llm --shard zero=1 --log with.log
    LLM_NODE_MEMORY=no ranks 2 "${gpt[@]}" -n 2 -b 4 --grad-shards 4 --schedule constant -o other.llm --shard zero=1 --log without.log
    cmp part.llm other.llm
    with=$(tail -n 1 with.log | jq .comm_bytes)
    without=$(tail -n 1 without.log | jq .comm_bytes)
    ((with * 5 < without * 4)) || fail "$with and $without bytes"
    ranks 3 llm-train -q -j 1 --resume part.llm -n 4 -o ranks.llm --shard zero=2
    cmp alone.llm ranks.llm
    for memory in /dev/shm/llmutils-*; do # of others that begin at this moment
        pid=${memory#*llmutils-}
        [[ ! -e $memory ]] || kill -0 "${pid%%-*}"
    done
}

@test "two machines: the first rank of each receives what the other owns" {
    unshare --uts true 2> /dev/null || skip "names of machines need the rights of root"
    cat > on_two << 'END'
#!/bin/bash
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
exec unshare --uts sh -c 'hostname "$0" && exec "$@"' "machine$((rank % 2))" "$@"
END
    chmod +x on_two
    local r
    "${gpt[@]}" -n 4 -b 5 --grad-shards 5 --precision bf16 -o alone.llm
    for r in 3 4 5; do
        ranks "$r" ./on_two "${gpt[@]}" -n 4 -b 5 --grad-shards 5 --precision bf16 -o ranks.llm --shard "zero=$((r % 2 + 1))" --log ranks.log --hash-every 3
        cmp alone.llm ranks.llm
    done
}

@test "without room for shared memory each rank has its own" {
    need_plain_memory
    cat > full.c << 'END'
#include <errno.h>
int shm_open(const char *name, int flags, unsigned mode) { (void)name, (void)flags, (void)mode; errno = ENOSPC; return -1; }
END
    cc -shared -fPIC -o full.so full.c
    "${gpt[@]}" -n 2 -b 2 --grad-shards 2 -o alone.llm
    ranks 2 env LD_PRELOAD="$PWD/full.so" "${gpt[@]}" -n 2 -b 2 --grad-shards 2 -o ranks.llm --shard zero=1 --log full.log
    cmp alone.llm ranks.llm
    LLM_NODE_MEMORY=no ranks 2 "${gpt[@]}" -n 2 -b 2 --grad-shards 2 -o ranks.llm --shard zero=1 --log apart.log
    assert_equal "$(tail -n 1 full.log | jq .comm_bytes)" "$(tail -n 1 apart.log | jq .comm_bytes)"
}

@test "a rank that has other weights, or no data, is named" {
    write_rank1
    "${gpt[@]}" -n 1 -b 1 -o base.llm
    "${gpt[@]}" -n 1 -b 1 --seed 3 -o other.llm
    local of=(llm-train -q -j 1 -l 24 "$F/data.tok" -b 2 -n 2 --grad-shards 2 --precision f32 --shard zero=1 -o x.llm --init base.llm)
    run -1 --separate-stderr env RANK1="s|^base.llm|other.llm|" bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${of[@]}"
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): weights: expected that of rank 0" ]] || fail "$stderr"
    run -66 --separate-stderr env RANK1="s|.*data.tok|none.tok|" bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${of[@]}"
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): none.tok: No such file or directory"$ ]] || fail "$stderr"
    "${gpt[@]}" -n 2 -b 2 --grad-shards 2 --schedule constant -o mine.llm
    "${gpt[@]}" -n 2 -b 2 --grad-shards 2 --schedule constant --seed 3 -o their.llm
    of=(llm-train -q -j 1 -n 4 --shard zero=2 -o x.llm --resume mine.llm)
    run -1 --separate-stderr env RANK1="s|^mine.llm|their.llm|" bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${of[@]}"
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): " ]] || fail "$stderr"
    [[ ! -e x.llm ]]
}
