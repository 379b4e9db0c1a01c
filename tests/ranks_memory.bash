# For tests of what --plan says that a rank takes (train_ranks_memory.bats here and among the slow tests), after tests/mpi.bash.

setup_file() {
    memory_meter
    sentences_tokens
}

setup() {
    need_mpi
    need_plain_memory
}

# planned RANKS NEAR LLM-TRAIN'S OPTIONS...: what the plan says is what the rank that takes most then takes, to NEAR of it.
planned() {
    local of=(llm-train -q -j 1 -T "$F/tok.json" -l 128 -b 2 --accumulate 2 "${@:3}") said taken
    said=$("${of[@]}" --plan | awk -F'\t' '$1 == "total_bytes" { print $2 }')
    rm -f ./*.kib
    # shellcheck disable=SC2016  # each rank's own number
    ranks "$1" bash -c 'exec "$0" "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}.kib" "$@"' "$BATS_FILE_TMPDIR/peak" "${of[@]}" -n 2 -o run.llm "$F/data.tok"
    taken=$(cat ./*.kib | sort -n | tail -n 1)
    [[ $(cat ./*.kib | wc -l) == "$1" ]]
    near "$said" $((taken * 1024)) "$2"
}

# wide RANKS LAYOUT OPTION...: of a Llama whose matrices take most, to 8 percent (5 are aimed at; what an MPI library takes differs).
wide() {
    planned "$1" .08 -c tiny --set num_hidden_layers=6 --set hidden_size=512 --set intermediate_size=1536 --set num_attention_heads=8 \
        --set num_key_value_heads=8 --set vocab_size=8192 --grad-shards 2 --shard "${@:2}"
}
