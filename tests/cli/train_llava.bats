# Training LLaVA on conversations with pictures: gradients, parts that stay, the same bytes on any threads and after an interruption, bad data.
load ../helper

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    local words=(apple river candle forest) i=0
    for name in rgb.png turned6.jpg alpha.png palette.png; do
        cp "$ROOT/tests/golden/image/$name" .
        jq -nc --arg p "$name" --arg a "${words[i++]}" '{messages: [{role: "user", content: [{type: "image", path: $p}, {type: "text", text: "what is it?"}]},
            {role: "assistant", content: $a}]}'
    done > lines.jsonl
    jq -nc '{messages: [{role: "user", content: "who are you?"}, {role: "assistant", content: "nobody"}]}' >> lines.jsonl
    jq -nc '{image: "rgb.png", messages: [{role: "user", content: [{type: "image"}, {type: "text", text: "and"}, {type: "image", path: "alpha.png"}]},
        {role: "assistant", content: "both"}]}' >> lines.jsonl
    printf '{%% for m in messages %%}{{ m.role.upper() + ": " + m.content }}{{ eos_token if m.role == "assistant" else "\\n" }}{%% endfor %%}' > chat.jinja
    printf '{%% if add_generation_prompt %%}ASSISTANT: {%% endif %%}' >> chat.jinja
    { grep -o '"[a-z ?]*"' lines.jsonl; echo "USER: ASSISTANT: "; } | llm-tokenize train -q --vocab-size 270 --special '</s>' --special '<image>' -o tok.json
}

setup() {
    cp "$BATS_FILE_TMPDIR"/* .
    sizes=(--set vision_config.hidden_size=20 --set vision_config.intermediate_size=32 --set vision_config.num_attention_heads=2
        --set vision_config.num_hidden_layers=2 --set vision_config.image_size=8)
    small=(-q -c llava-nano -T tok.json --objective sft --chat-template chat.jinja "${sizes[@]}" --set text_config.hidden_size=24
        --set text_config.intermediate_size=32 --set text_config.num_attention_heads=2 --set text_config.num_hidden_layers=2
        --set text_config.initializer_range=0.2 --schedule constant --warmup 0 -l 64)
}

# weights MODEL: names of tensors, and hashes of their values
weights() {
    local n name from to
    llm-quantize -q -t f32 --to safetensors "$1" flat
    n=$(od -An -tu8 -N8 flat)
    tail -c +9 flat | head -c "$n" | jq -r 'to_entries[] | select(.key | startswith("__") or startswith("llm.") | not) | "\(.key) \(.value.data_offsets[0]) \(.value.data_offsets[1])"' |
        while read -r name from to; do echo "$name $(tail -c +$((n + 9 + from)) flat | head -c $((to - from)) | sha256sum)"; done | sort
}

@test "gradients of the language model, the projector and the layers of the tower that run are those of differences" {
    llm-train "${small[@]}" --set text_config.hidden_size=16 --set text_config.initializer_range=0.3 -l 24 --gradcheck -b 3 > check # which fails where they differ
    for name in embeddings.class_embedding embeddings.patch_embedding.weight encoder.layers.0.mlp.fc2.weight; do
        run -0 awk -F'\t' -v n="vision_tower.vision_model.$name" '$1 == n && $2 > .01 { found = 1 } END { exit !found }' check
    done
    run -0 awk -F'\t' '$1 == "multi_modal_projector.linear_1.weight" && $2 > .01 { found = 1 } END { exit !found }' check
    run -0 awk -F'\t' '/encoder.layers.1/ && $2 != 0 { wrong = 1 } END { exit wrong }' check # no state of the last layer is read
}

@test "a model learns what its pictures show, answers with them, and keeps its template and how pictures are prepared" {
    without_sanitizer llm-train "${small[@]}" -b 6 -n 150 --lr 3e-3 -o out.llm lines.jsonl
    jq -c '{messages: .messages[:1]} + del(.messages)' lines.jsonl | llm-infer -m out.llm --chat --jsonl --temp 0 -n 8 > answers
    llm-train -q --init out.llm --objective sft -l 64 --packing no --order sequential --show 1 lines.jsonl > shown
    assert_equal "$(head -n 2 shown | tr '\n' '|')" '[USER: <image>|what is it?|'
    cmp <(jq -r .message.content answers) <(jq -r '.messages[1].content' lines.jsonl)
    assert_equal "$(llm-infer -m out.llm --chat --temp 0 -n 8 --image palette.png "what is it?")" forest
}

@test "the projector alone: the language model and the tower keep their bits" {
    llm-train "${small[@]}" -b 2 -n 3 -o base.llm lines.jsonl
    llm-train -q --init base.llm --objective sft --train 'multi_modal_projector.*' -b 2 -n 5 --lr 1e-2 -l 64 -o after.llm lines.jsonl
    weights base.llm > before
    weights after.llm > after
    assert_equal "$(wc -l < before)" "$(wc -l < after)"
    assert_equal "$(diff before after | grep '^<' | cut -d' ' -f2 | tr '\n' ' ')" \
        "multi_modal_projector.linear_1.bias multi_modal_projector.linear_1.weight multi_modal_projector.linear_2.bias multi_modal_projector.linear_2.weight "
    # an adapter of the tower alone is trained
    llm-train -q --init base.llm --objective sft --adapter lora --targets 'vision_tower*fc1*' -b 2 -n 5 --lr 1e-2 -l 64 -o adapter.llm lines.jsonl
    llm-infer -m base.llm --chat --temp 0 -n 8 --image palette.png --adapter adapter.llm:0 "what is it?" > without
    llm-infer -m base.llm --chat --temp 0 -n 8 --image palette.png --adapter adapter.llm:50 "what is it?" > with
    refute cmp -s with without
    llm-train -q --init base.llm --objective sft --freeze 'vision_tower.*' -b 2 -n 2 --lr 1e-2 -l 64 -o after.llm lines.jsonl
    assert_equal "$(diff before <(weights after.llm) | grep -c 'vision_tower')" 0
}

@test "the same bytes: threads, passes, an interruption; nearly the same with recomputation and packing in other rows" {
    local of=(-b 6 -n 5 --seed 3 --packing no)
    llm-train "${small[@]}" "${of[@]}" -j 1 -o one.llm lines.jsonl
    llm-train "${small[@]}" "${of[@]}" -j 2 -o two.llm lines.jsonl
    cmp one.llm two.llm
    weights one.llm > want
    llm-train "${small[@]}" "${of[@]}" -b 2 --accumulate 3 -o three.llm lines.jsonl
    weights three.llm | cmp - want
    llm-train "${small[@]}" "${of[@]}" --checkpoint-every 1 -o kept.llm lines.jsonl
    weights kept.llm | cmp - want
    llm-train "${small[@]}" "${of[@]}" -n 2 -o begun.llm lines.jsonl
    llm-train -q --resume begun.llm -n 5
    weights begun.llm | cmp - want
    llm-train "${small[@]}" "${of[@]}" --freeze 'vision_tower.*' -j 1 -o one.llm lines.jsonl
    llm-train "${small[@]}" "${of[@]}" --freeze 'vision_tower.*' -j 2 -o two.llm lines.jsonl
    cmp one.llm two.llm
}

@test "--tower: a new model has the tower of a CLIP of the same sizes; another is refused" {
    jq -c '{image: .messages[0].content[0].path, text: .messages[1].content}' <(head -n 4 lines.jsonl) > pairs.jsonl
    echo '{"size": {"height": 8, "width": 8}, "image_processor_type": "ViTImageProcessor"}' > processor.json
    llm-tokenize image --for processor.json --jsonl pairs.jsonl -o pairs.images
    llm-train -q -c clip-nano -T tok.json --objective contrastive "${sizes[@]}" --set text_config.num_hidden_layers=1 -b 2 -n 2 -o clip.llm pairs.images
    llm-train "${small[@]}" --tower clip.llm --freeze 'vision_tower.*' -b 2 -n 2 -o out.llm lines.jsonl
    weights clip.llm | grep '^vision_model' > want
    weights out.llm | grep '^vision_tower' | sed 's/^vision_tower\.//' | cmp - want
    run -65 --separate-stderr llm-train "${small[@]}" --tower clip.llm --set vision_config.hidden_act=gelu -n 1 -o out.llm lines.jsonl
    assert_equal "$stderr" "llm-train: --tower clip.llm: expected a vision tower with the vision_config of the new model, found another (clip)"
    run -2 --separate-stderr llm-train -q -c nano -T tok.json --objective sft --chat-template chat.jinja --tower clip.llm -n 1 -o out.llm lines.jsonl
    assert_regex "$stderr" "expected a new model that reads pictures in texts \(llava, idefics3\), found gpt2"
}

@test "conversations that cannot be learned from: status, file and line" {
    local said='{"role": "assistant", "content": "both"}'
    bad() {
        echo "$2" > bad.jsonl
        run -"$1" --separate-stderr llm-train "${small[@]}" -b 2 -n 1 -o out.llm bad.jsonl
        assert_equal "${#stderr_lines[@]}" 1
        assert_regex "$stderr" "$3"
    }
    bad 66 '{"messages": [{"role": "user", "content": [{"type": "image", "path": "none.png"}]}, '"$said"']}' "bad.jsonl: line 1: none.png: No such file"
    bad 65 '{"messages": [{"role": "user", "content": [{"type": "image"}]}, '"$said"']}' "bad.jsonl: line 1: .*expected the path of a picture, found none"
    bad 65 '{"messages": [{"role": "user", "content": "<image>"}, '"$said"']}' "line 1: expected as many placeholders of pictures \(token 1\), none of the assistant, as there are pictures, 0, found 1"
    bad 65 '{"image": "rgb.png", "messages": [{"role": "user", "content": "a"}, '"$said"']}' "line 1: expected as many parts of type \"image\" without a path as there are other pictures, 1, found 0"
    echo 'no picture' > text.png
    bad 65 '{"messages": [{"role": "user", "content": [{"type": "image", "path": "text.png"}]}, '"$said"']}' "text.png: "
    llm-train "${small[@]}" -b 2 -n 1 -o run.llm lines.jsonl
    cp turned6.jpg rgb.png
    run -65 --separate-stderr llm-train -q --resume run.llm -n 2
    assert_regex "$stderr" "fingerprint"
    llm-tokenize train -q --vocab-size 262 --special '</s>' -o none.json lines.jsonl
    run -65 --separate-stderr llm-train "${small[@]}" -T none.json -n 1 -o out.llm lines.jsonl
    assert_regex "$stderr" "expected a tokenizer with a token [0-9]+ \(image_token_index\)"
}
