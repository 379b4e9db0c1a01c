# Parameters that are not trained: they stay as they are stored, of any type, and gradients pass through them.
load ../helper
export LLM_THREADS=1

setup_file() {
    sentences_tokens
    llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=256 --set intermediate_size=256 --set num_attention_heads=4 -l 24 -T tok.json \
        --lr 1e-2 -n 2 -b 2 -o base.llm data.tok
    llm-quantize -q -t f32 base.llm base.safetensors
    for type in q8_0 q4_0; do
        llm-quantize -q -t $type base.safetensors $type.safetensors
        llm-quantize -q -t f32 $type.safetensors $type-decoded.safetensors
    done
    # the second layer's matrices in four bits, what comes before them in floating point
    llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=256 --set intermediate_size=256 --set num_attention_heads=4 -l 24 -T tok.json \
        -n 0 -o fresh.llm data.tok
    llm-quantize -q -t q4_0 --except '*layers.0.*' --except '*embed*' fresh.llm mixed.safetensors
}

setup() { run_of=(llm-train -q -n 4 -b 2 -l 24 --schedule constant --lr 1e-3); }

# tensor FILE NAME: the bytes of one tensor of a safetensors file
tensor() {
    local length
    length=$(od -An -N8 -tu8 "$1" | tr -d ' ')
    read -r from to < <(tail -c +9 "$1" | head -c "$length" | jq -r --arg name "$2" '.[$name].data_offsets | join(" ")')
    tail -c +$((8 + length + from + 1)) "$1" | head -c $((to - from))
}

# plain MODEL.llm: its tensors as they are, without zstd and planes, in MODEL.safetensors
plain() { llm-quantize -q -t keep "$1.llm" "$1.safetensors"; }

@test "what is frozen is written back as it was, what is trained changes" {
    "${run_of[@]}" --init "$F/base.safetensors" --freeze '*layers.0.*' --freeze '*embed*' -o m.llm "$F/data.tok"
    plain m
    for name in model.embed_tokens.weight model.layers.0.self_attn.q_proj.weight model.layers.0.input_layernorm.weight; do
        cmp <(tensor m.safetensors $name) <(tensor "$F/base.safetensors" $name)
    done
    for name in model.layers.1.self_attn.q_proj.weight model.norm.weight; do
        run -1 cmp -s <(tensor m.safetensors $name) <(tensor "$F/base.safetensors" $name)
    done
}

@test "a frozen quantised base gives in f32 the steps of the decoded base, bit for bit, and keeps its type" {
    for type in q8_0 q4_0; do
        for model in $type $type-decoded; do
            "${run_of[@]}" --precision f32 --init "$F/$model.safetensors" --train '*norm*' --train '*layers.0.mlp.up_proj*' \
                --freeze '*layers.0.mlp.up_proj*' --log $model.jsonl -o $model.llm "$F/data.tok"
        done
        hashes $type.jsonl > wanted
        hashes $type-decoded.jsonl | cmp - wanted
        [[ $(sort -u wanted | wc -l) == 4 ]]
        plain $type
        cmp <(tensor $type.safetensors model.layers.1.mlp.down_proj.weight) <(tensor "$F/$type.safetensors" model.layers.1.mlp.down_proj.weight)
    done
}

@test "in bf16 a frozen quantised base learns, with the same bytes by any threads, passes, and after an interruption" {
    new=(llm-train -q -l 24 --schedule constant --lr 1e-3 --init "$F/q4_0.safetensors" --train '*norm*' "$F/data.tok")
    same_by_threads "${new[@]}" -n 6 -b 4
    same_steps "${new[@]}" -n 6 -b 1 --accumulate 4
    same_steps "${new[@]}" -n 6 -b 4 --checkpoint-every 1
    same_when_resumed 3 "${new[@]}" -b 4
}

@test "layers before frozen quantised ones learn a batch" {
    without_sanitizer llm-train -q --init "$F/mixed.safetensors" --freeze '*layers.1.*proj*' -l 12 -b 1 -n 100 --lr 5e-3 --overfit-one "$F/data.tok"
}

@test "gradients pass the check: through frozen quantised weights, of one expert among frozen ones, with embeddings frozen" {
    llm-train -q --init "$F/mixed.safetensors" --freeze '*layers.1.*proj*' -l 24 -b 2 --gradcheck "$F/data.tok" > checked
    grep -q ^model.layers.0.self_attn.q_proj.weight checked
    run -1 grep layers.1.*proj checked
    small=(llm-train -q --set num_hidden_layers=2 --set hidden_size=32 -T "$F/tok.json" -l 24 -b 2 --gradcheck "$F/data.tok")
    "${small[@]}" -c moe --set num_local_experts=4 --train '*experts.2.*' > checked
    assert_equal "$(cut -f 1 checked | grep -c experts.2)" 6
    assert_equal "$(wc -l < checked)" 7
    "${small[@]}" -c mamba2 --set num_heads=2 --set head_dim=32 --freeze '*in_proj*' --freeze '*embed*' > checked
    "${small[@]}" -c mla --set num_attention_heads=2 --freeze '*kv_b_proj*' --freeze '*q_proj*' > checked
    "${small[@]}" -c mla --set num_attention_heads=2 --train 'model.norm*' > checked
    assert_equal "$(cut -f 1 checked | tail -n 1)" model.norm.weight
}

@test "the plan and the log count what is trained; frozen parameters have no gradients and moments" {
    llm-train -q --init "$F/q4_0.safetensors" -l 24 -b 2 --train '*layers.1.*norm*' --plan --json > plan.json
    jq -e '.trained_parameters == 512 and .gradient_bytes == 4 * 512 and .moment_bytes == 8 * 512 and .weight_bytes < 1.5 * .parameters' plan.json
    llm-train -q -c tiny -T "$F/tok.json" -l 24 -b 2 --plan --json | jq -e '.trained_parameters == .parameters'
    "${run_of[@]}" --init "$F/q4_0.safetensors" --train '*layers.1.*norm*' --log log.jsonl -o m.llm "$F/data.tok"
    jq -es 'all(.trained_parameters == 512)' log.jsonl
    zstd -dcq m.llm | head -c 30000 | grep -ao 'training\.m\.[a-z0-9_.]*' | sort -u > moments
    assert_equal "$(wc -l < moments)" 2
}

@test "a classifier's head learns before a frozen quantised base" {
    awk '{ print $0 "\t" (NR % 2 ? "a" : "b") }' "$F/text" > classes.tsv
    llm-tokenize encode -T "$F/tok.json" --tsv --label 2 -o classes.tok classes.tsv
    "${run_of[@]}" --init "$F/q8_0.safetensors" -T "$F/tok.json" --objective classify --train 'score*' -o m.llm classes.tok
    plain m
    cmp <(tensor m.safetensors model.layers.1.mlp.down_proj.weight) <(tensor "$F/q8_0.safetensors" model.layers.1.mlp.down_proj.weight)
}

@test "a pattern that matches nothing, nothing to train: one line" {
    refused 2 "--freeze: expected a pattern that matches names of parameters" "${run_of[@]}" --init "$F/base.safetensors" --freeze 'nosuch*' -o m.llm "$F/data.tok"
    refused 2 "--train: expected a pattern" "${run_of[@]}" --init "$F/base.safetensors" --train 'nosuch*' -o m.llm "$F/data.tok"
    refused 2 "none are left" "${run_of[@]}" --init "$F/base.safetensors" --freeze '*' -o m.llm "$F/data.tok"
    "${run_of[@]}" --init "$F/base.safetensors" --train '*norm*' -o m.llm "$F/data.tok"
    refused 2 "--train, --freeze: a run that is resumed" llm-train -q --resume m.llm --train '*' -n 9
    refused 2 "nosuch" llm-train -q --init "$F/base.safetensors" --train 'nosuch*' --plan
}
