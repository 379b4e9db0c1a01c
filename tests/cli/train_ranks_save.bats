# A checkpoint that all ranks write together has the bytes of one process, wherever they are, and takes the place of the old one whole or not at all.
load ../helper
load ../mpi

setup_file() {
    sentences_tokens
    [[ -n ${SANITIZER-} ]] || "${CC:-cc}" -shared -fPIC -O1 -w -o fail.so "$ROOT/tests/fault/fail.c" -ldl
}

# Tensors of several cells, which ranks own together.
setup() {
    need_mpi
    write_rank1
    wide=(llm-train -q -j 1 -c nano --set n_layer=2 --set n_embd=256 --set n_head=2 -l 16 -T "$F/tok.json" "$F/data.tok" -n 2 -b 4 --grad-shards 4)
}

@test "frames that several ranks own; averages, the best model and an adapter beside the run" {
    same_for "2 3" "1 3" "${wide[@]}"
    same_for "4" "0 2" "${wide[@]}" --precision f32 --optimizer muon
    "${wide[@]}" --ema .9 --ema-output alone.ema.llm --keep-best alone.best.llm --val .2 -o alone.llm
    ranks 3 "${wide[@]}" --ema .9 --ema-output ema.llm --keep-best best.llm --val .2 --shard zero=1 -o ranks.llm
    cmp alone.llm ranks.llm
    cmp alone.ema.llm ema.llm
    cmp alone.best.llm best.llm
}

@test "a rank that does not see the folder, and a pipe: rank 0 writes what the others have made" {
    local zero
    mkdir elsewhere
    "${wide[@]}" -o alone.llm
    for zero in 0 1 3; do
        RANK1='s|^ranks.llm|elsewhere/ranks.llm|' ranks 3 ./rank1 "${wide[@]/#-q/-v}" --shard "zero=$zero" -o ranks.llm 2> err
        grep -q "^llm-train: rank 1 ([^)]*) does not see the file: rank 0 writes for it" err
        cmp alone.llm ranks.llm
        rm ranks.llm
    done
    [[ -z $(ls elsewhere) ]]
    mkfifo pipe
    cat pipe > piped.llm &
    ranks 2 "${wide[@]}" --shard zero=1 -o pipe
    wait $!
    cmp alone.llm piped.llm
}

@test "a full disk at one rank: status 74, one line that names the rank; the old file stays, and nothing beside it" {
    need_plain_memory # a sanitizer's library wants to be the first that is loaded
    local call at rank
    mkdir here
    "${wide[@]}" -n 1 -o here/run.llm
    cp here/run.llm before.llm
    export FAIL_UNDER="$PWD/here" RANK1="LD_PRELOAD=$F/fail.so"
    for call in "write 1" "write 3" "write-short 2" "fsync 1"; do
        read -r call at <<< "$call"
        run -74 --separate-stderr env FAIL_CALL="$call" FAIL_AT="$at" bash -c '. "$0"; ranks 3 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${wide[@]}" --shard zero=1 \
            -o here/run.llm
        [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): here/run.llm: cannot "(write|sync)": No space left on device"$ ]] || fail "$call: $stderr"
        cmp before.llm here/run.llm
        assert_equal "$(ls -A here)" run.llm
    done
}
