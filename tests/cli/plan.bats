# --plan: what a run then takes. Other families: tests/slow/plan.bats.
load ../helper
load ../plan

@test "training: a twentieth above or below what the run takes, both precisions, checkpointing" {
    training_takes tiny mamba2 hyena "tiny --precision f32" "moe --checkpoint-every 1 --optimizer muon"
}

@test "inference: a twentieth and 5 MB above or below what a full context takes" {
    inference_takes moe mamba
}

@test "inference: the file of a compressed model is not in memory beside its weights" {
    llm-train -q -c moe --set vocab_size=300 --set num_hidden_layers=2 --set hidden_size=512 --set intermediate_size=768 --set num_local_experts=8 \
        -n 0 -o wide.llm
    run=(llm-infer -q -m wide.llm --ids -c 512 -b 64 -n 8)
    planned=$("${run[@]}" --plan <<< "1 2 3" | awk '$1 == "memory_bytes" { print $2 }')
    awk -v planned="$planned" -v taken="$(taken "${run[@]}" <<< "1 2 3")" -v file="$(stat -c %s wide.llm)" \
        'BEGIN { print planned, taken, file; exit !(file > 4e7 && taken <= planned) }'
}
