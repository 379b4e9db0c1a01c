# What --plan says that a rank takes is what the rank that takes most then takes.
load ../helper
load ../mpi

setup_file() {
    memory_meter
    sentences_tokens
}

setup() {
    need_mpi
    need_plain_memory
}

# planned RANKS LAYOUT OPTION...: the plan of the layout is right to 8 percent (5 are aimed at; what an MPI library takes differs).
planned() {
    local of=(llm-train -q -j 1 -c tiny --set num_hidden_layers=6 --set hidden_size=512 --set intermediate_size=1536 --set num_attention_heads=8
        --set num_key_value_heads=8 --set vocab_size=8192 -T "$F/tok.json" -l 128 -b 2 --accumulate 2 --grad-shards 2 --shard "$2" "${@:3}")
    local said taken
    said=$("${of[@]}" --plan | awk -F'\t' '$1 == "total_bytes" { print $2 }')
    rm -f ./*.kib
    # shellcheck disable=SC2016  # each rank's own number
    ranks "$1" bash -c 'exec "$0" "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}.kib" "$@"' "$BATS_FILE_TMPDIR/peak" "${of[@]}" -n 2 -o run.llm "$F/data.tok"
    taken=$(cat ./*.kib | sort -n | tail -n 1)
    [[ $(cat ./*.kib | wc -l) == "$1" ]]
    near "$said" $((taken * 1024)) .08
}

@test "tensors cut, weights, gradients and moments divided: the memory of the rank that takes most, while it saves" {
    planned 2 tp=2 --tensor-parts 2
    planned 2 dp=2,zero=3
    planned 2 cp=2 --seq-parts 2
    planned 2 cp=2,zero=1 --seq-parts 4
}
