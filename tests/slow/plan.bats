# --plan: what a run then takes, of the families that tests/cli/plan.bats leaves out.
load ../helper
load ../plan

@test "training: a twentieth above or below what the run takes" {
    training_takes moe mla mamba rwkv rwkv6 rwkv7 lstm rnn mlp perceiver
    # whose matrices files have transposed
    training_takes "nano --set n_embd=384 --set n_head=6 --set n_layer=6 --precision f32"
}

@test "inference: a twentieth and 5 MB above or below what a full context takes" {
    inference_takes tiny lstm
}

@test "training: as right where a step takes so long that --plan makes passes of fewer rows" {
    run=(llm-train -q -c tiny --set vocab_size=4096 --set num_hidden_layers=2 --precision f32 -T "$ROOT/tests/golden/tiny/tokenizer.json" \
        -b 4 --context 1024 --accumulate 2 -n 1)
    planned=$("${run[@]}" --plan "$D/text.tok" | awk '$1 == "total_bytes" { print $2 }')
    awk -v planned="$planned" -v taken="$(taken "${run[@]}" -o model.llm "$D/text.tok")" \
        'BEGIN { print planned, taken; off = planned - taken; exit !(off * off <= (.05 * taken) ^ 2) }'
}
