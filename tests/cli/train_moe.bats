# Mixtures of experts, from configuration to text.
load ../helper
export LLM_THREADS=1

setup_file() { sentences_tokens; }

setup() {
    plain=(llm-train -q -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=5 -l 24
        -T "$F/tok.json" "$F/data.tok")
    deep=("${plain[@]}" --set n_shared_experts=1 --set first_k_dense_replace=1 --set scoring_func=sigmoid --set router_bias=true
        --set routed_scaling_factor=2.5 --set router_z_loss_coef=0.001)
}

@test "gradients of mixtures pass the check, with every kind of router" {
    "${plain[@]}" -n 1 -b 2 --precision f32 --gradcheck > checked
    grep -q 'block_sparse_moe.gate.weight' checked
    "${deep[@]}" -n 1 -b 2 --precision f32 --gradcheck > checked
    grep -q 'shared_experts.up_proj.weight' checked
    "${plain[@]}" -n 1 -b 2 --precision f32 --gradcheck --set routing=gumbel > /dev/null
    "${plain[@]}" -n 1 -b 2 --precision f32 --gradcheck --set expert_capacity_factor=0.7 > /dev/null
}

@test "a mixture learns one batch by heart" {
    without_sanitizer "${plain[@]}" -n 300 -b 1 --overfit-one --lr 3e-3 -o model.llm
}

@test "the same bytes by any threads, any passes of a step, and after an interruption" {
    for kind in plain deep; do
        declare -n command=$kind
        same_by_threads "${command[@]}" -n 6 -b 4
        same_steps "${command[@]}" -n 6 -b 4 --checkpoint-every 1
        same_steps "${command[@]}" -n 6 -b 1 --accumulate 4
        same_when_resumed 3 "${command[@]}" -b 4
    done
}

@test "the router's bias moves by its rate towards an even load; the log tells of the load" {
    "${deep[@]}" -n 4 -b 2 --log log.jsonl -o model.llm
    jq -e '.router_balance > 0 and .router_peak_load >= 1 and .router_z >= 0 and .router_dropped == 0' log.jsonl
    llm-quantize -q -t f32 model.llm model.safetensors
    local length=$(($(od -An -tu8 -N8 model.safetensors))) from
    from=$(tail -c +9 model.safetensors | head -c $length | jq '."model.layers.1.block_sparse_moe.gate.e_score_correction_bias".data_offsets[0]')
    # four steps of .001 up or down (or none, at the mean)
    od -An -v -tf4 -w4 -j $((8 + length + from)) -N 20 model.safetensors > biases
    assert_equal "$(wc -l < biases)" 5
    awk '{ v = $1 * 1000; if (v > 4.01 || v < -4.01 || (v - int(v + (v > 0 ? .5 : -.5))) ^ 2 > 1e-6) bad = 1; n += v != 0 } END { exit bad || n == 0 }' biases
}

@test "a frozen bias of the router (router_bias_update_rate=0) stays as it is, and its load is no gradient" {
    "${deep[@]}" -n 1 -b 2 --log moved.jsonl -o moved.llm
    "${deep[@]}" -n 3 -b 2 --set router_bias_update_rate=0 --log frozen.jsonl -o frozen.llm
    # the first gradient does not depend on the rate
    assert_equal "$(jq .grad_norm frozen.jsonl | head -1)" "$(jq .grad_norm moved.jsonl)"
    llm-quantize -q -t f32 frozen.llm frozen.safetensors
    local length=$(($(od -An -tu8 -N8 frozen.safetensors))) from
    from=$(tail -c +9 frozen.safetensors | head -c $length | jq '."model.layers.1.block_sparse_moe.gate.e_score_correction_bias".data_offsets[0]')
    cmp -n 20 -i $((8 + length + from)):0 frozen.safetensors /dev/zero
}

@test "text of a mixture is the same however the prompt is cut and whoever is beside it" {
    "${deep[@]}" -n 30 -b 2 -o model.llm
    llm-infer -m model.llm --logits "the red cat sees the old dog" > whole
    for b in 1 3 64; do
        llm-infer -m model.llm --logits -b $b "the red cat sees the old dog" | cmp - whole
    done
    llm-infer -m model.llm --logits -j 2 "the red cat sees the old dog" | cmp - whole
    llm-infer -m model.llm --temp 0 -n 20 "the red" > one
    printf '{"prompt": "the red"}\n{"prompt": "the old bird"}\n' | llm-infer -m model.llm --jsonl --temp 0 -n 20 > both
    assert_equal "$(cat one)" "$(jq -r 'select(.id == 1 or .id == "1" or .index == 0) | .text' both)"
}

@test "the routers' own losses are means: of the two texts of a pair, as of a row" {
    # pairs of equal texts, and a student that is its own teacher, have no other gradient
    echo 'the red cat sees the old dog' > text
    llm-tokenize train -q --model byte --special '</s>' -o tok.json text
    llm-train -q -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=5 -T tok.json \
        --set router_aux_loss_coef=10 --set router_z_loss_coef=1 --set initializer_range=0.2 -l 30 -n 0 -o base.llm
    llm-tokenize encode -T tok.json --lines --append-eos -o data.tok text text
    printf '%s\n' '{"prompt": "the red cat ", "chosen": "sees the old dog\n", "rejected": "sees the old dog\n"}' > pair.jsonl
    local of=(-q --init base.llm -b 1 -n 1 -l 30 --order sequential --precision f32 -o x.llm)
    llm-train "${of[@]}" --objective distill --teacher base.llm --log distill data.tok
    for objective in dpo reward; do llm-train "${of[@]}" --objective $objective --log $objective pair.jsonl; done
    jq -se 'length == 3 and .[0].grad_norm > .1 and all(.[]; .router_z > 0) and (.[1].grad_norm / .[0].grad_norm - 1 | fabs) < 1e-3
            and (.[2].grad_norm / .[0].grad_norm - 1 | fabs) < 1e-3' distill dpo reward
}

@test "mixtures that cannot be are refused by the key's name" {
    run -2 "${plain[@]}" --set num_experts_per_tok=6 -n 0 -o x.llm
    [[ $stderr$output == *num_experts_per_tok* ]]
    run -2 "${plain[@]}" --set n_group=2 -n 0 -o x.llm
    [[ $stderr$output == *n_group* ]]
}
