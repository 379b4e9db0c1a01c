# GGUF files of mixtures of experts, latent attention, recurrent layers, encoders: written, read back, with blocks and without, split into parts.
load ../helper

setup() {
    need_tool jq
}

# tiny FAMILY [KEY=VALUE]...: a fresh model of a family, tiny.llm
tiny() {
    local T=$ROOT/tests/golden/tiny/tokenizer.json
    printf '{"model_type": "%s", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 300, "max_position_embeddings": 64' "$1" > config.json
    shift
    for set; do printf ', "%s": %s' "${set%%=*}" "${set#*=}"; done >> config.json
    echo '}' >> config.json
    llm-tokenize encode -T "$T" "$ROOT/README.md" | llm-train -q -c config.json -T "$T" --steps 1 -b 2 -l 16 -o tiny.llm -
}

# data FILE: what stands behind a message's header, which names the model's fingerprint
data() {
    tail -c +$((8 + $(od -An -N8 -tu8 "$1" | tr -d ' ') + 1)) "$1"
}

logits() {
    llm-infer -q -m "$1" --precision f32 --logits "Once upon a time there was" > message
    data message
}

score() {
    llm-infer -q -m "$1" --precision f32 --score "Once upon a time there was" | cut -f3
}

# round TYPE: the model in TYPE as GGUF says what it says as .llm, and its blocks come back
round() {
    llm-quantize -q -t "$1" tiny.llm a.llm
    llm-quantize -q -t "$1" tiny.llm a.gguf
    score a.llm > want
    score a.gguf > found
    near_lines found want 1e-5
    logits a.gguf > whole
    logits - < a.gguf | cmp - whole
    llm-quantize -q -t keep a.gguf b.llm
    logits b.llm | cmp - whole
    llm-quantize -q -t keep a.gguf b.gguf
    cmp a.gguf b.gguf
}

# The same products in the same order: the same bits.
same() {
    logits a.llm | cmp - whole
}

MIXTURE=(num_experts_per_tok=2 num_attention_heads=4 intermediate_size=96)
MLA=(first_k_dense_replace=1 kv_lora_rank=32 qk_nope_head_dim=32 qk_rope_head_dim=8 v_head_dim=16 n_routed_experts=6 moe_intermediate_size=32 "${MIXTURE[@]}")

@test "Mixtral: experts are stacked; rotary pairs lie otherwise" {
    tiny mixtral num_local_experts=5 num_key_value_heads=2 "${MIXTURE[@]}"
    round f32
    round q8_0
    llm-quantize -q -t keep tiny.llm m.gguf
    strings -n 8 m.gguf | grep -c -E '^(blk.[01].ffn_(gate|up|down)_exps.weight)' | grep -x 6
    run -1 grep -q 'ffn_gate.weight' m.gguf
}

@test "Qwen 3's mixture" {
    tiny qwen3_moe num_experts=6 num_key_value_heads=2 head_dim=16 moe_intermediate_size=32 norm_topk_prob=true "${MIXTURE[@]}"
    round f32
    same
    round q4_0
    same
}

@test "DeepSeek-V2 and V3: latent attention in halves, whole where it has blocks; shared experts, groups, a router's bias" {
    tiny deepseek_v2 q_lora_rank=null n_shared_experts=2 topk_method='"greedy"' "${MLA[@]}"
    round bf16
    same
    grep -q attn_k_b a.gguf
    run -1 grep -q attn_kv_b a.gguf
    round q8_0
    same
    run -1 grep -q attn_k_b a.gguf
    tiny deepseek_v3 q_lora_rank=32 n_shared_experts=1 n_group=2 topk_group=1 "${MLA[@]}"
    round f32
    same
    grep -q exp_probs_b.bias a.gguf
}

@test "Mamba 2: decays are kept as their exponentials" {
    tiny mamba2 state_size=16 num_heads=4 head_dim=32 n_groups=2 expand=2
    llm-quantize -q -t keep tiny.llm a.gguf
    llm-quantize -q -t keep a.gguf a.llm
    llm-quantize -q -t keep a.llm b.gguf
    cmp a.gguf b.gguf
    score tiny.llm > want
    score a.gguf > found
    near_lines found want 1e-5
}

@test "what GGUF cannot say of a mixture is refused by its key" {
    tiny mixtral num_local_experts=4 num_key_value_heads=2 "${MIXTURE[@]}"
    llm-train -q -c config.json --set moe_intermediate_size=48 -T "$ROOT/tests/golden/tiny" -n 0 -o tiny.llm # a config.json has no such key
    run -69 --separate-stderr llm-quantize -q -t keep tiny.llm m.gguf
    [[ $stderr == "llm-quantize: m.gguf: moe_intermediate_size: GGUF cannot say this of a model of type 'mixtral': expected "*", found 48" ]]
    tiny mixtral num_local_experts=4 num_key_value_heads=2 "${MIXTURE[@]}"
    run -69 --separate-stderr llm-quantize -q -t q8_0 --except '*experts.2.w1*' --except '*.gate.*' tiny.llm m.gguf
    [[ $stderr == *"tensor 'blk.0.ffn_gate_exps.weight': GGUF cannot say this: expected experts of one type, found q8_0 and bf16" ]]
    [[ ! -e m.gguf ]]
}

@test "an encoder as GGUF embeds texts to the same vectors; what has no name there is left out, and said" {
    run -0 --separate-stderr llm-quantize -t keep "$ROOT/tests/golden/tiny-bert" m.gguf
    [[ $stderr == *"2 tensors left out: GGUF has no names for a pooler"* ]]
    llm-infer -q -m "$ROOT/tests/golden/tiny-bert" --precision f32 --embed --jsonl <<< '{"prompt": "the cat"}' > want
    llm-infer -q -m m.gguf --precision f32 --embed --jsonl <<< '{"prompt": "the cat"}' | cmp - want
}
