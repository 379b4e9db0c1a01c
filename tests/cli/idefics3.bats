# Idefics 3 and SmolVLM: pictures as tiles that tokens of the text name, beside transformers in double (tests/oracle/idefics3.py).
load ../helper

setup() {
    V=$ROOT/tests/golden/idefics3
    I=$ROOT/tests/golden/image
    N=$ROOT/tests/golden/llava_next
}

# picture NAME: its path
picture() { if [ -e "$N/$1" ]; then echo "$N/$1"; else echo "$I/$1"; fi; }

# logits MODEL TEXT [OPTION...]: of text number TEXT of the golden, one number a line
logits() {
    local pictures=() p
    for p in $(jq -r --argjson t "$2" '.texts[$t].images[]' "$V/expected.json"); do pictures+=(--image "$(picture "$p")"); done
    llm-infer -m "$1" --precision f32 --logits "${pictures[@]}" "${@:3}" -o out -- "$(jq -r --argjson t "$2" '.texts[$t].text' "$V/expected.json")"
    elements out logits
}

# as_golden VARIANT TEXT: the elements in `got` are those of the golden, within 5e-6 of their range
as_golden() {
    jq --arg v "$1" --argjson t "$2" '.variants[$v][$t][][]' "$V/expected.json" > want
    near_range got want 5e-6
}

# ask ARGUMENT...: eight letters, as most of the golden's vocabulary is special tokens
ask() { llm-infer -m m --precision f32 --temp 0 -n 12 --regex '[what isb]{8}' "$@"; }

# model: the folder `m` with the golden's SmolVLM and a chat template
model() {
    cp -r "$V/smolvlm" m
    printf '{%% for m in messages %%}{%% for c in m.content %%}{%% if c.type == "image" %%}<image>{%% else %%}{{ c.text }}{%% endif %%}{%% endfor %%}{%% endfor %%}' > m/chat_template.jinja
}

@test "tokens and logits of texts with pictures are those of transformers, with a head of its own and with the embeddings" {
    local v t
    for v in idefics3 smolvlm; do
        for t in 0 1 2 3; do
            logits "$V/$v" $t > got
            as_golden $v $t
        done
    done
    # the tokens that the processor wrote, instead of its text
    jq -r '.texts[1].ids | map(tostring) | join(" ")' "$V/expected.json" > ids
    llm-infer -m "$V/idefics3" --precision f32 --logits --ids --image "$(picture tall.png)" --image "$(picture turned6.jpg)" -o out -f ids
    logits "$V/idefics3" 1 | cmp - <(elements out logits)
}

@test "a checkpoint and its safetensors, threads and passes, prepared pictures and embeddings that were kept: the same bytes" {
    for v in idefics3 smolvlm; do
        logits "$V/$v" 1 > want
        logits "$V/$v" 1 -j 1 -b 7 | cmp - want
        llm-quantize -q -t f32 "$V/$v" model.llm
        llm-quantize -q -t f32 --to safetensors model.llm again.safetensors
        for m in model.llm again.safetensors; do logits $m 1 | cmp - want; done
    done
    model
    local two=(--image "$N/odd.png" --image "$I/rgb.png")
    ask "${two[@]}" "<image>a<image>what" > want
    llm-tokenize image --for m "$N/odd.png" "$I/rgb.png" -o two.images
    ask --image two.images "<image>a<image>what" | cmp - want
    llm-infer -m m --precision f32 --embed "${two[@]}" -o two.emb
    ask --image two.emb "<image>a<image>what" | cmp - want
    ask --chat --image "$N/odd.png" "what" > want
    ask --image "$N/odd.png" "<image>what" | cmp - want
    echo "{\"prompt\": \"<image>what\", \"image\": \"$N/odd.png\"}" | ask --jsonl - | jq -r .text | cmp - want
}

@test "a picture that is not cut into tiles: its one crop is the whole" {
    model
    jq '.do_image_splitting = false' "$V/smolvlm/preprocessor_config.json" > m/preprocessor_config.json
    llm-infer -m m --embed --image "$I/rgb.png" -o one.emb
    assert_equal "$(elements one.emb embeddings | wc -l)" $((4 * 24))
    llm-infer -m m --logits --image "$I/rgb.png" -o text.logits "<image>what"
    llm-infer -m m --logits --image "$I/rgb.png" -o ids.logits --ids "14 15 13 13 13 13 14 10 1 6"
    cmp text.logits ids.logits
}

@test "what does not fit is refused before the model runs, and other keys by name" {
    model
    run -65 --separate-stderr ask --image "$I/rgb.png" "<image><image>what"
    assert_equal "$stderr" "llm-infer: expected as many placeholders of pictures (token 13) as there are pictures, 1, found 2"
    jq '.do_image_splitting = false' "$V/smolvlm/preprocessor_config.json" > m/preprocessor_config.json
    run -65 --separate-stderr ask --ids --image "$I/rgb.png" "14 15 13 13 1 13 13 14"
    assert_equal "$stderr" "llm-infer: expected 4 placeholders of a picture after another, found 2"
    for other in '.scale_factor = 4' '.image_token_id = 43' '.vision_config.image_size = 3' '.text_config.use_resampler = true'; do
        jq "$other" "$V/smolvlm/config.json" > m/config.json
        run -65 --separate-stderr ask "what"
        assert_equal "${#stderr_lines[@]}" 1
    done
    for other in '.vision_config.model_type = "clip_vision_model"' '.text_config.model_type = "mistral"'; do
        jq "$other" "$V/smolvlm/config.json" > m/config.json
        run -69 --separate-stderr ask "what"
        assert_regex "$stderr" "_config.model_type: expected"
    done
    cp "$V/smolvlm/config.json" m
    jq 'del(.added_tokens[] | select(.content == "<image>"))' "$V/smolvlm/tokenizer.json" > m/tokenizer.json
    run -65 --separate-stderr ask --image "$I/rgb.png" "what"
    assert_equal "${#stderr_lines[@]}" 1
}

@test "training: gradients are those of differences; a model learns its pictures; the projector alone; the same bytes for any division" {
    local name i=0 words=(apple river candle forest) small
    for name in "$I/rgb.png" "$N/tall.png" "$N/odd.png" "$N/wide.png"; do
        jq -nc --arg p "$name" --arg a "${words[i++]}" '{messages: [{role: "user", content: [{type: "image", path: $p}, {type: "text", text: "what is it?"}]},
            {role: "assistant", content: $a}]}'
    done > lines.jsonl
    printf '{%% for m in messages %%}{{ m.role.upper() + ": " + m.content }}{{ eos_token if m.role == "assistant" else "\\n" }}{%% endfor %%}' > chat.jinja
    printf '{%% if add_generation_prompt %%}ASSISTANT: {%% endif %%}' >> chat.jinja
    { grep -o '"[a-z ?]*"' lines.jsonl; echo "USER: ASSISTANT: "; } | llm-tokenize train -q --vocab-size 270 --special '</s>' --special '<image>' \
        --special '<fake_token_around_image>' --special '<global-img>' -o tok.json
    jq -n '{model_type: "idefics3", image_token_id: 1, scale_factor: 2, tie_word_embeddings: false,
        text_config: {vocab_size: 270, hidden_size: 24, intermediate_size: 32, num_attention_heads: 2, num_key_value_heads: 2, num_hidden_layers: 2,
            max_position_embeddings: 512, initializer_range: 0.2, eos_token_id: 0, bos_token_id: null},
        vision_config: {hidden_size: 20, intermediate_size: 32, num_attention_heads: 2, num_hidden_layers: 2, image_size: 8, patch_size: 2}}' > config.json
    small=(-q -c config.json -T tok.json --objective sft --chat-template chat.jinja --schedule constant --warmup 0 -l 400 --packing no)
    llm-train "${small[@]}" -l 24 --gradcheck -b 2 > check # which fails where they differ
    for name in connector.modality_projection.proj.weight vision_model.embeddings.patch_embedding.bias vision_model.encoder.layers.1.mlp.fc2.weight \
        vision_model.post_layernorm.weight; do
        run -0 awk -F'\t' -v n="model.$name" '$1 == n && $2 > .001 { found = 1 } END { exit !found }' check
    done
    without_sanitizer llm-train "${small[@]}" -b 4 -n 100 --lr 3e-3 -o out.llm lines.jsonl
    jq -c '{messages: .messages[:1]}' lines.jsonl | llm-infer -m out.llm --chat --jsonl --temp 0 -n 8 > answers
    cmp <(jq -r .message.content answers) <(jq -r '.messages[1].content' lines.jsonl)
    flat() { llm-quantize -q -t f32 --to safetensors "$1" "$2" && tail -c +$((9 + $(od -An -tu8 -N8 "$2"))) "$2" | sha256sum; }
    llm-train "${small[@]}" -b 4 -n 2 -j 1 -o one.llm lines.jsonl
    llm-train "${small[@]}" -b 4 -n 2 -j 2 -o two.llm lines.jsonl
    cmp one.llm two.llm
    llm-train "${small[@]}" -b 1 --accumulate 4 -n 2 -o two.llm lines.jsonl
    assert_equal "$(flat one.llm one.flat)" "$(flat two.llm two.flat)"
    llm-train -q --init one.llm --objective sft --freeze 'model.vision_model.*' --freeze 'model.text_model.*' --freeze lm_head.weight -b 4 -n 2 --lr 1e-2 \
        -l 400 -o two.llm lines.jsonl
    llm-infer -m one.llm --logits -n 0 "what" -o one.logits
    llm-infer -m two.llm --logits -n 0 "what" -o two.logits
    cmp <(elements one.logits logits) <(elements two.logits logits)
    refute [ "$(flat one.llm one.flat)" = "$(flat two.llm two.flat)" ]
}
