# What --plan says that a rank takes where ranks divide experts, as tests/cli/train_ranks_memory.bats checks for other layouts.
load ../helper
load ../mpi

setup_file() {
    memory_meter
    sentences_tokens
}

@test "experts, weights, gradients and moments divided: the memory of the rank that takes most, while it saves" {
    need_mpi
    need_plain_memory
    local zero of said taken
    for zero in 2 3; do
        of=(llm-train -q -j 1 -c moe --set num_hidden_layers=6 --set hidden_size=256 --set intermediate_size=256 --set num_local_experts=8
            --set vocab_size=2048 --precision f32 -T "$F/tok.json" -l 128 -b 2 --accumulate 2 --grad-shards 4 --shard "dp=4,ep=2,zero=$zero")
        said=$("${of[@]}" --plan | awk -F'\t' '$1 == "total_bytes" { print $2 }')
        rm -f ./*.kib
        # shellcheck disable=SC2016  # each rank's own number
        ranks 4 bash -c 'exec "$0" "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}.kib" "$@"' "$BATS_FILE_TMPDIR/peak" "${of[@]}" -n 2 -o run.llm "$F/data.tok"
        taken=$(cat ./*.kib | sort -n | tail -n 1)
        near "$said" $((taken * 1024)) .06
    done
}
