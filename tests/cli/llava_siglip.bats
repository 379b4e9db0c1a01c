# LLaVA with SigLIP's vision tower and Qwen 2, beside transformers in double (tests/oracle/llava_siglip.py).
load ../helper

setup() {
    V=$ROOT/tests/golden/llava_siglip
    I=$ROOT/tests/golden/image
}

# logits MODEL TEXT: of text number TEXT of the golden, one number a line
logits() {
    local pictures=() p
    for p in $(jq -r --argjson t "$2" '.texts[$t].images[]' "$V/expected.json"); do pictures+=(--image "$I/$p"); done
    llm-infer -m "$1" --precision f32 --ids --logits "${pictures[@]}" -o out "$(jq -r --argjson t "$2" '.texts[$t].ids | map(tostring) | join(" ")' "$V/expected.json")"
    elements out logits
}

@test "logits are those of transformers, with all patches and without the first, after the last layer and before it" {
    local v t
    for v in full default; do
        mkdir $v
        cp "$V"/*.safetensors "$V/preprocessor_config.json" $v
        jq --arg v $v --slurpfile x "$V/expected.json" '. + $x[0].settings[$v]' "$V/config.json" > $v/config.json
        for t in 0 1; do
            logits $v $t > got
            jq --arg v $v --argjson t $t '.variants[$v][$t][][]' "$V/expected.json" > want
            near_range got want 5e-6
        done
    done
}

@test "keys that a file leaves out are those of SigLIP and Qwen 2; a checkpoint and its safetensors give the same bytes" {
    logits "$V" 0 > want
    mkdir m
    cp "$V"/*.safetensors "$V/preprocessor_config.json" m
    jq 'del(.vision_config.hidden_act, .vision_config.layer_norm_eps, .text_config.rms_norm_eps, .text_config.rope_parameters, .text_config.hidden_act)' \
        "$V/config.json" > m/config.json
    logits m 0 | cmp - want
    llm-quantize -q -t f32 "$V" model.llm
    llm-quantize -q -t f32 --to safetensors model.llm again.safetensors
    for m in model.llm again.safetensors; do llm-infer -m $m --precision f32 --ids --logits -o out "1 5 17"; elements out logits > $m.got; done
    cmp model.llm.got again.safetensors.got
    cp "$V/config.json" "$V/preprocessor_config.json" "$ROOT/tests/golden/image/rgb.png" .
    llm-infer -m model.llm --precision f32 --ids --logits --image rgb.png -o out "$(jq -r '.texts[0].ids | map(tostring) | join(" ")' "$V/expected.json")"
    elements out logits | cmp - want
}

@test "training: gradients are those of differences; a tower of another kind is refused" {
    printf 'who are you?' | llm-tokenize train -q --vocab-size 260 --special '</s>' --special '<image>' -o tok.json
    jq -n '{model_type: "llava", image_token_index: 1, vision_feature_layer: -1, vision_feature_select_strategy: "full",
        text_config: {model_type: "qwen2", vocab_size: 260, hidden_size: 16, intermediate_size: 32, num_attention_heads: 2, num_key_value_heads: 2,
            num_hidden_layers: 2, max_position_embeddings: 64, initializer_range: 0.3, eos_token_id: 0, bos_token_id: null},
        vision_config: {model_type: "siglip_vision_model", hidden_size: 20, intermediate_size: 32, num_attention_heads: 2, num_hidden_layers: 2,
            image_size: 8, patch_size: 4}}' > config.json
    llm-train -q -c config.json -T tok.json --objective sft --schedule constant --warmup 0 -l 24 --gradcheck -b 2 > check # which fails where they differ
    for name in vision_tower.vision_model.embeddings.patch_embedding.bias language_model.model.layers.0.self_attn.v_proj.bias; do
        run -0 awk -F'\t' -v n="$name" '$1 == n && $2 > .001 { found = 1 } END { exit !found }' check
    done
    jq '.model_type = "clip" | del(.vision_config.model_type, .text_config.model_type) | .text_config |= {vocab_size, hidden_size, intermediate_size,
        num_attention_heads, num_hidden_layers, eos_token_id, max_position_embeddings} | .vision_config += {hidden_act: "gelu_pytorch_tanh", layer_norm_eps: 1e-6} | {model_type, text_config,
        vision_config, projection_dim: 8}' config.json > clip.json
    echo '{"size": {"height": 8, "width": 8}, "image_processor_type": "ViTImageProcessor"}' > processor.json
    echo "{\"image\": \"$I/rgb.png\", \"text\": \"who\"}" > pairs.jsonl
    echo "{\"image\": \"$I/grey.png\", \"text\": \"you\"}" >> pairs.jsonl
    llm-tokenize image --for processor.json --jsonl pairs.jsonl -o pairs.images
    llm-train -q -c clip.json -T tok.json --objective contrastive -b 2 -n 1 -o clip.llm pairs.images
    printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' > chat.jinja
    echo '{"messages": [{"role": "user", "content": "who"}, {"role": "assistant", "content": "you"}]}' > lines.jsonl
    run -65 --separate-stderr llm-train -q -c config.json -T tok.json --objective sft --chat-template chat.jinja --tower clip.llm -b 1 -n 1 -o out.llm lines.jsonl
    assert_equal "$stderr" "llm-train: --tower clip.llm: expected a vision tower with the vision_config of the new model, found another (clip)"
}
