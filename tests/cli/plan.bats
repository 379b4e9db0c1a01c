# --plan: what a run then takes. Other families: tests/slow/plan.bats.
load ../helper
load ../plan

@test "training: a twentieth above or below what the run takes, both precisions, checkpointing" {
    training_takes tiny mamba2 hyena "tiny --precision f32" "moe --checkpoint-every 1 --optimizer muon"
}

@test "training: a save, whose frames of a large table take more memory than few tokens' activations" {
    run=(llm-train -q -c gpt2 --set n_layer=1 --set n_embd=256 --set n_head=4 --set vocab_size=30000 -T "$ROOT/tests/golden/tiny/tokenizer.json" \
        --precision bf16 -b 1 -l 32 -n 1)
    planned=$("${run[@]}" --plan | awk '$1 == "total_bytes" { print $2 }')
    awk -v planned="$planned" -v taken="$(taken "${run[@]}" -o model.llm "$D/text.tok")" \
        'BEGIN { print planned, taken; off = planned - taken; exit !(off * off <= (.05 * taken) ^ 2) }'
}

@test "inference: a twentieth and 5 MB above or below what a full context takes" {
    inference_takes moe mamba
}

@test "inference: a text's prompt and what follows it do not take their memory together; tables that are looked up are not resident" {
    llm-train -q -c tiny --set vocab_size=16000 --set hidden_size=512 --set intermediate_size=1024 --set num_hidden_layers=4 --set num_attention_heads=8 \
        --set num_key_value_heads=2 --set tie_word_embeddings=false --set max_position_embeddings=1024 -n 0 -o wide.llm
    local type context
    for type in bf16 q4_0; do
        llm-quantize -q -t $type wide.llm wide.gguf
        for context in 256 1024; do # in one pass, and in two; 5 MB: arenas grow by huge pages, and the program's pages come and go
            run=(llm-infer -q -m wide.gguf --ids -c $context --ignore-eos -n -1)
            seq -s ' ' 1 $((context - 9)) > prompt
            llm-infer -q -m wide.gguf --ids -c $context --memory 200M --draft wide.llm -n 1 -f prompt > drafted # another model is not counted twice
            planned=$("${run[@]}" --score --plan < prompt | awk '$1 == "memory_bytes" { print $2 }') # the head is read beside activations
            awk -v planned="$planned" -v taken="$(taken "${run[@]}" --score -f prompt)" 'BEGIN { print planned, taken; exit !(taken <= 1.02 * planned) }'
            planned=$("${run[@]}" --plan < prompt | awk '$1 == "memory_bytes" { print $2 }')
            awk -v planned="$planned" -v taken="$(taken "${run[@]}" -f prompt)" -v what="$type $context" \
                'BEGIN { print what, planned, taken; off = planned - taken; exit !(off * off <= (.05 * taken + 5e6) ^ 2) }'
        done
    done
}

@test "inference: the file of a compressed model is not in memory beside its weights" {
    llm-train -q -c moe --set vocab_size=300 --set num_hidden_layers=2 --set hidden_size=512 --set intermediate_size=768 --set num_local_experts=8 \
        -n 0 -o wide.llm
    run=(llm-infer -q -m wide.llm --ids -c 512 -b 64 -n 8)
    planned=$("${run[@]}" --plan <<< "1 2 3" | awk '$1 == "memory_bytes" { print $2 }')
    awk -v planned="$planned" -v taken="$(taken "${run[@]}" <<< "1 2 3")" -v file="$(stat -c %s wide.llm)" \
        'BEGIN { print planned, taken, file; exit !(file > 4e7 && taken <= 1.02 * planned) }'
}
