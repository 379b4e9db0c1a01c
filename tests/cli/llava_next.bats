# LLaVA-NeXT: pictures as a whole and tiles, beside transformers in double (tests/oracle/llava_next.py).
load ../helper

setup() {
    V=$ROOT/tests/golden/llava_next
    I=$ROOT/tests/golden/image
}

# picture NAME: the path of a picture of the golden
picture() { if [ -e "$V/$1" ]; then echo "$V/$1"; else echo "$I/$1"; fi; }

# logits MODEL TEXT [OPTION...]: of text number TEXT of the golden, one number a line
logits() {
    local pictures=() p
    for p in $(jq -r --argjson t "$2" '.texts[$t].images[]' "$V/expected.json"); do pictures+=(--image "$(picture "$p")"); done
    llm-infer -m "$1" --precision f32 --ids --logits "${pictures[@]}" "${@:3}" -o out \
        "$(jq -r --argjson t "$2" '.texts[$t].ids | map(tostring) | join(" ")' "$V/expected.json")"
    elements out logits
}

@test "logits of texts with pictures of many proportions are those of transformers, of a Llama and of a Mistral with a window" {
    local v t
    for v in llama mistral; do
        for t in 0 1 2 3; do
            logits "$V/$v" $t > got
            jq --arg v $v --argjson t $t '.variants[$v][$t][][]' "$V/expected.json" > want
            near_range got want 5e-6
        done
    done
}

# model: the folder `m` with the golden's Llama, a character tokenizer with <image> and a chat template
model() {
    mkdir m
    cp "$V/llama/model.safetensors" "$V/llama/preprocessor_config.json" m
    printf 'what is thi\nUSER ANIT:?,. \n<|m_startend>' > text
    llm-tokenize train -q --model char --special '<s>' --special '</s>' --special '<image>' -o m/tokenizer.json text
    jq '.image_token_index = 31' "$V/llama/config.json" > m/config.json
    printf '{%% for m in messages %%}{{ m.role.upper() + ": " + m.content + " " }}{%% endfor %%}ASSISTANT:' > m/chat_template.jinja
}

ask() { llm-infer -m m --precision f32 --temp 0 -n 8 "$@"; }

@test "prepared pictures, embeddings that were kept, placeholders of each, --chat and --jsonl, a checkpoint: the same as the pictures" {
    model
    local two=(--image "$V/wide.png" --image "$V/odd.png")
    ask "${two[@]}" "<image>a<image>what" > want
    llm-tokenize image --for m "$V/wide.png" "$V/odd.png" -o two.images
    ask --image two.images "<image>a<image>what" | cmp - want
    llm-infer -m m --precision f32 --embed "${two[@]}" -o two.emb
    ask --image two.emb "<image>a<image>what" | cmp - want
    ask "${two[@]}" "$(printf '<image>%.0s' {1..16})a$(printf '<image>%.0s' {1..72})what" | cmp - want
    echo "{\"prompt\": \"<image>a<image>what\", \"images\": [\"$V/wide.png\", \"$V/odd.png\"]}" | ask --jsonl - | jq -r .text | cmp - want
    llm-quantize -q -t f32 m model.llm
    llm-infer -m model.llm --precision f32 --temp 0 -n 8 "${two[@]}" "<image>a<image>what" | cmp - want
    ask --image "$V/odd.png" $'USER: <image>\nwhat is this? ASSISTANT:' > want
    ask --chat --image "$V/odd.png" "what is this?" | cmp - want
    refute cmp -s <(ask --chat --image "$V/tall.png" "what is this?") want
}

@test "what does not fit is refused before the model runs: placeholders, crops of another grid, keys" {
    model
    run -65 --separate-stderr ask --image "$V/odd.png" "$(printf '<image>%.0s' {1..71})"
    assert_equal "$stderr" "llm-infer: expected as many placeholders of pictures (token 31) as there are pictures, 1, found 71"
    run -65 --separate-stderr ask --image "$V/odd.png" "$(printf '<image>%.0s' {1..70})a<image><image>"
    assert_equal "$stderr" "llm-infer: expected 72 placeholders of a picture after another, found 70"
    jq '.image_grid_pinpoints = [[22, 88]]' m/preprocessor_config.json > other.json
    llm-tokenize image --for other.json "$V/odd.png" -o other.images
    run -65 --separate-stderr ask --image other.images "what"
    assert_equal "$stderr" "llm-infer: other.images: expected the whole picture and tiles of one of image_grid_pinpoints, found 5 crops, 1 x 4 of them tiles"
    for other in '.image_grid_pinpoints = [[22, 23]]' '.image_grid_pinpoints = []' '.image_grid_pinpoints = [[22]]' '.image_grid_pinpoints = "a"' \
        '.vision_feature_select_strategy = "full"' '.text_config.sliding_window = 3' '.use_image_newline_parameter = false'; do
        jq "$other" "$V/llama/config.json" > m/config.json
        run -65 --separate-stderr ask "what"
        assert_equal "${#stderr_lines[@]}" 1
    done
    jq '.text_config.model_type = "phi3"' "$V/llama/config.json" > m/config.json
    run -69 --separate-stderr ask "what"
    assert_regex "$stderr" "text_config.model_type: expected llama, found phi3"
}

# lines.jsonl, tok.json and the options of a small model to train
training() {
    local name i=0 words=(apple river candle forest)
    for name in "$I/rgb.png" "$V/tall.png" "$V/odd.png" "$V/wide.png"; do
        jq -nc --arg p "$name" --arg a "${words[i++]}" '{messages: [{role: "user", content: [{type: "image", path: $p}, {type: "text", text: "what is it?"}]},
            {role: "assistant", content: $a}]}'
    done > lines.jsonl
    jq -nc --arg a "$I/rgb.png" --arg b "$V/odd.png" '{messages: [{role: "user", content: [{type: "image", path: $a}, {type: "text", text: "and"},
        {type: "image", path: $b}]}, {role: "assistant", content: "both"}]}' >> lines.jsonl
    printf '{%% for m in messages %%}{{ m.role.upper() + ": " + m.content }}{{ eos_token if m.role == "assistant" else "\\n" }}{%% endfor %%}' > chat.jinja
    printf '{%% if add_generation_prompt %%}ASSISTANT: {%% endif %%}' >> chat.jinja
    { grep -o '"[a-z ?]*"' lines.jsonl; echo "USER: ASSISTANT: "; } | llm-tokenize train -q --vocab-size 270 --special '</s>' --special '<image>' -o tok.json
    jq -n '{model_type: "llava_next", image_token_index: 1, image_grid_pinpoints: [[8, 16], [16, 8], [16, 16], [24, 8], [8, 24]],
        text_config: {vocab_size: 270, hidden_size: 24, intermediate_size: 32, num_attention_heads: 2, num_key_value_heads: 2, num_hidden_layers: 2,
            max_position_embeddings: 256, initializer_range: 0.2, eos_token_id: 0, bos_token_id: null},
        vision_config: {hidden_size: 20, intermediate_size: 32, num_attention_heads: 2, num_hidden_layers: 2, image_size: 8, patch_size: 4}}' > next.json
    small=(-q -c next.json -T tok.json --objective sft --chat-template chat.jinja --schedule constant --warmup 0 -l 80 --packing no)
}

@test "training: gradients are those of differences; the model learns pictures of several crops; parts stay; the same bytes for any division" {
    training
    llm-train "${small[@]}" -l 24 --gradcheck -b 2 > check # which fails where they differ
    for name in image_newline vision_tower.vision_model.encoder.layers.0.mlp.fc2.weight; do
        run -0 awk -F'\t' -v n="$name" '$1 == n && $2 > .01 { found = 1 } END { exit !found }' check
    done
    without_sanitizer llm-train "${small[@]}" -b 5 -n 120 --lr 3e-3 -o out.llm lines.jsonl
    jq -c '{messages: .messages[:1]}' lines.jsonl | llm-infer -m out.llm --chat --jsonl --temp 0 -n 8 > answers
    cmp <(jq -r .message.content answers) <(jq -r '.messages[1].content' lines.jsonl)
    llm-train -q --init out.llm --objective sft -l 80 --packing no --order sequential --show 1 lines.jsonl > shown
    assert_equal "$(head -n 2 shown | tr '\n' '|')" '[USER: <image>|what is it?|'
    llm-train "${small[@]}" -b 5 -n 3 -j 1 -o one.llm lines.jsonl
    llm-train "${small[@]}" -b 5 -n 3 -j 2 -o two.llm lines.jsonl
    cmp one.llm two.llm
    for m in one two; do llm-quantize -q -t f32 --to safetensors $m.llm $m.flat; done
    llm-train "${small[@]}" -b 1 --accumulate 5 -n 3 -o two.llm lines.jsonl
    llm-quantize -q -t f32 --to safetensors two.llm two.flat
    weights() { tail -c +$((9 + $(od -An -tu8 -N8 "$1"))) "$1" | sha256sum; }
    llm-train -q --init one.llm --objective sft --train image_newline -b 5 -n 2 --lr 1e-2 -l 80 -o after.llm lines.jsonl
    llm-quantize -q -t f32 --to safetensors after.llm after.flat
    assert_equal "$(weights one.flat)" "$(weights two.flat)"
    refute [ "$(weights one.flat)" = "$(weights after.flat)" ]
}
