# LLaVA 1.5: texts with pictures, beside transformers in double (tests/oracle/llava.py).
load ../helper

setup() {
    V=$ROOT/tests/golden/llava
    I=$ROOT/tests/golden/image
}

# model [JQ]: the folder `m` with the golden's weights, a character tokenizer with <image> and LLaVA's chat template
model() {
    mkdir m
    cp "$V/model.safetensors" "$V/preprocessor_config.json" m
    printf 'what is thi\nUSER ANIT:?,. \n<|m_startend>' > text
    llm-tokenize train -q --model char --special '<s>' --special '</s>' --special '<image>' -o m/tokenizer.json text
    jq "${1:-.} | .image_token_index = 31" "$V/config.json" > m/config.json
    cat > m/chat_template.jinja << 'EOF'
{% for m in messages %}{{ m['role'].upper() + ': ' }}{% for c in m['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}{% for c in m['content'] | selectattr('type', 'equalto', 'text') %}{{ c['text'] + ' ' }}{% endfor %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}
EOF
}

ask() { llm-infer -m m --precision f32 --temp 0 -n 8 "$@"; }

# logits MODEL TEXT [OPTION...]: of text number TEXT of the golden, one number a line
logits() {
    local pictures=() p n
    for p in $(jq -r --argjson t "$2" '.texts[$t].images[]' "$V/expected.json"); do pictures+=(--image "$I/$p"); done
    llm-infer -m "$1" --precision f32 --ids --logits "${pictures[@]}" "${@:3}" -o out \
        "$(jq -r --argjson t "$2" '.texts[$t].ids | map(tostring) | join(" ")' "$V/expected.json")"
    n=$(od -An -tu8 -N8 out)
    tail -c +9 out | head -c "$n" | jq '.logits.data_offsets[]' > offsets
    tail -c +$((n + 9 + $(head -n 1 offsets))) out | head -c $(($(tail -n 1 offsets) - $(head -n 1 offsets))) | od -An -v -tf4 -w4
}

# near VARIANT TEXT: the numbers in `got` are those of the golden, within 5e-6 of their range
near() {
    jq --arg v "$1" --argjson t "$2" '.variants[$v][$t][][]' "$V/expected.json" > want
    paste got want | awk '{ d = $1 - $2; d = d < 0 ? -d : d; if (d > worst) worst = d; if (NR == 1 || $2 < low) low = $2; if (NR == 1 || $2 > high) high = $2 }
                          END { if (!(worst <= 5e-6 * (high - low))) { print "worst: " worst " of " high - low; exit 1 } }'
    assert_equal "$(wc -l < got)" "$(wc -l < want)"
}

# rename TO FROM=TO...: the golden's weights with other beginnings of names
rename() {
    local n header
    n=$(od -An -tu8 -N8 "$V/model.safetensors")
    header=$(tail -c +9 "$V/model.safetensors" | head -c "$n" | jq -c 'with_entries(.key |= (sub("^language_model.model."; "model.language_model.") |
        sub("^language_model.lm_head"; "lm_head") | sub("^vision_tower.vision_model."; $tower) | sub("^multi_modal"; "model.multi_modal")))' --arg tower "$2")
    { printf "$(printf '\\x%02x' $((${#header} & 255)) $((${#header} >> 8 & 255)) $((${#header} >> 16 & 255)))\0\0\0\0\0"
        printf %s "$header"
        tail -c +$((n + 9)) "$V/model.safetensors"; } > "$1"
}

@test "logits of texts with no, one and two pictures are those of transformers, whatever layer of the tower and states are chosen" {
    local v t
    for t in 0 1 2; do logits "$V" $t > got; near default $t; done
    for v in first last; do
        mkdir $v
        cp "$V/model.safetensors" "$V/preprocessor_config.json" $v
        jq --arg v $v --slurpfile x "$V/expected.json" '. + $x[0].settings[$v]' "$V/config.json" > $v/config.json
        for t in 0 1; do logits $v $t > got; near $v $t; done
    done
}

@test "names of transformers' versions, a checkpoint and its safetensors, threads and passes: the same bytes" {
    logits "$V" 1 > want
    logits "$V" 1 -j 1 -b 7 | cmp - want
    mkdir new
    cp "$V/config.json" "$V/preprocessor_config.json" new
    for tower in model.vision_tower.vision_model. model.vision_tower. vision_tower.; do
        rename new/model.safetensors $tower
        logits new 1 | cmp - want
    done
    llm-quantize -q -t f32 "$V" model.llm
    llm-quantize -q -t f32 --to safetensors model.llm again.safetensors
    for m in model.llm again.safetensors; do logits $m 1 | cmp - want; done
    shapes() { jq -S 'del(.__metadata__) | map_values(.shape)' <(tail -c +9 "$1" | head -c "$(od -An -tu8 -N8 "$1")"); }
    cmp <(shapes "$V/model.safetensors") <(shapes again.safetensors | jq -S 'with_entries(select(.key | startswith("llm.") | not))')
    llm-quantize -q -t q8_0 "$V" small.llm
    logits small.llm 0 > got
    assert_equal "$(wc -l < got)" $((21 * 43))
}

@test "a picture stands where the prompt says, else before it; prepared pictures and placeholders for each patch do the same" {
    model
    ask --image "$I/rgb.png" "what is this?" > want
    ask --image "$I/rgb.png" $'<image>\nwhat is this?' | cmp - want
    ask --image "$I/rgb.png" "$(printf '<image>%.0s' {1..16})"$'\nwhat is this?' | cmp - want
    printf 'what is this?' | ask --image "$I/rgb.png" -f - | cmp - want
    llm-tokenize image --for m "$I/rgb.png" -o one.images
    ask --image one.images "what is this?" | cmp - want
    refute cmp -s <(ask --image "$I/turned6.jpg" "what is this?") want
    refute cmp -s <(ask --image "$I/rgb.png" "what is this?<image>") want
    ask --image "$I/rgb.png" --image "$I/turned6.jpg" "<image>a<image>what" > want
    llm-tokenize image --for m "$I/rgb.png" "$I/turned6.jpg" -o two.images
    ask --image two.images "<image>a<image>what" | cmp - want
    ask --image two.images --samples 3 --temp 1 --dry-multiplier 1 --repeat-penalty 1.2 "<image>a<image>what" > /dev/null
}

@test "the embeddings of pictures are messages that later runs read instead of the pictures, of the same model alone" {
    model
    ask --image "$I/rgb.png" --image "$I/turned6.jpg" "<image>a<image>what" > want
    llm-infer -m m --precision f32 --embed --image "$I/rgb.png" --image "$I/turned6.jpg" -o two.emb
    ask --image two.emb "<image>a<image>what" | cmp - want
    llm-infer -m m --precision f32 --embed --image "$I/turned6.jpg" -o one.emb
    ask --image "$I/rgb.png" --image - "<image>a<image>what" < one.emb | cmp - want
    llm-infer -m m --embed --image two.emb -o again.emb
    cmp two.emb again.emb
    llm-quantize -q -t bf16 m other.llm
    run -65 --separate-stderr llm-infer -m other.llm --image one.emb "what"
    assert_regex "$stderr" "one.emb: llm.fingerprint: expected embeddings that this model made"
    head -c 300 one.emb > cut.emb
    run -65 --separate-stderr ask --image cut.emb "what"
    assert_equal "${#stderr_lines[@]}" 1
}

@test "another number of placeholders than of pictures: status 65 and one line, before the model runs" {
    model
    run -65 --separate-stderr ask --image "$I/rgb.png" "<image><image>what"
    assert_output ""
    assert_equal "$stderr" "llm-infer: expected as many placeholders of pictures (token 31) as there are pictures, 1, found 2"
    run -65 --separate-stderr ask "what is <image>"
    assert_equal "$stderr" "llm-infer: expected as many placeholders of pictures (token 31) as there are pictures, 0, found 1"
    run -65 --separate-stderr ask --image "$I/rgb.png" "$(printf '<image>%.0s' {1..8})a$(printf '<image>%.0s' {1..8})"
    assert_equal "$stderr" "llm-infer: expected 16 placeholders of a picture after another, found 8"
    run -66 --separate-stderr ask --image none.png "what"
    assert_equal "$stderr" "llm-infer: none.png: No such file or directory"
    head -c 300 "$I/rgb.png" > cut.png
    run -65 --separate-stderr ask --image cut.png "what"
    assert_equal "${#stderr_lines[@]}" 1
    run -2 --separate-stderr ask --image "$I/rgb.png" --score "what"
    assert_regex "$stderr" "--image goes with --embed or --classify, or with text"
    run -69 --separate-stderr llm-infer -m "$V" --classify --labels '{}' --image "$I/rgb.png" lines
    assert_equal "${#stderr_lines[@]}" 1
}

@test "--chat: parts of messages are pictures, for templates that take parts and those that take texts; the cache is kept" {
    model
    ask --image "$I/rgb.png" $'USER: <image>\nwhat is this? ASSISTANT:' > want
    ask --chat --image "$I/rgb.png" "what is this?" | cmp - want
    printf 'what is this?\nthat is what?\n' | ask --chat --lines --image "$I/rgb.png" --chat-log log -v 2> said > out
    head -n 1 out | cmp - want
    assert_equal "$(jq -c '[.messages[0].content[].type]' log)" '["image","text"]'
    assert_regex "$(cat said)" "47 tokens kept"
    # the conversation read again at once
    jq -c 'del(.messages[3])' log > line
    ask --chat --jsonl line | jq -r .message.content | cmp - <(tail -n 1 out)
    printf '{%% for m in messages %%}{{ m.role.upper() + ": " + m.content + " " }}{%% endfor %%}ASSISTANT:' > texts.jinja
    ask --chat --chat-template texts.jinja --image "$I/rgb.png" "what is this?" | cmp - want
}

@test "--jsonl: a line names its pictures; a line that cannot be used is refused alone; the lines of a batch do not change each other" {
    model
    cat > lines << EOF
{"id": "a", "prompt": "what is this?", "image": "$I/rgb.png"}
{"id": "b", "prompt": "<image>a<image>what", "images": ["$I/rgb.png", "$I/turned6.jpg"]}
{"id": "c", "prompt": "what is this?", "image": "$I/turned6.jpg"}
{"id": "d", "prompt": "what"}
{"id": "e", "prompt": "what <image>"}
{"id": "f", "prompt": "what", "image": "none.png"}
EOF
    run -65 --separate-stderr ask --jsonl lines -o out
    assert_equal "$(jq -r 'select(.error) | .id' out | tr -d '\n')" ef
    ask --image "$I/rgb.png" "what is this?" | cmp - <(jq -r 'select(.id == "a").text' out)
    ask --image "$I/rgb.png" --image "$I/turned6.jpg" "<image>a<image>what" | cmp - <(jq -r 'select(.id == "b").text' out)
    ask --image "$I/turned6.jpg" "what is this?" | cmp - <(jq -r 'select(.id == "c").text' out)
    ask "what" | cmp - <(jq -r 'select(.id == "d").text' out)
    echo '{"prompt": "what", "image": "-"}' > lines
    run -65 --separate-stderr ask --jsonl lines -o out
    assert_equal "$(jq -r .error out)" "\"image\": expected the path of a file, found '-'"
    echo '{"prompt": "what", "image": "'"$I"'/rgb.png"}' > lines
    run -65 --separate-stderr llm-infer -m m --score --jsonl lines
    assert_regex "$stderr" "line 1: expected a text without pictures"
    part='[{"role": "user", "content": [{"type": "image", "path": "'$I/rgb.png'"}, {"type": "text", "text": "what is this?"}]}]'
    echo "{\"messages\": $part}" > lines
    echo "{\"messages\": $part, \"images\": [\"$I/rgb.png\"]}" | sed 's/, "path": "[^"]*"//' >> lines
    ask --chat --jsonl lines -o out
    assert_equal "$(jq -r .message.content out | uniq -c | awk '{ print $1 }')" 2
}

@test "what is not LLaVA 1.5 is refused by name" {
    model
    jq '.model_type = "llava_onevision"' "$V/config.json" > m/config.json
    run -65 --separate-stderr ask --image "$I/rgb.png" "what"
    assert_equal "${#stderr_lines[@]}" 1
    assert_regex "$stderr" "found 'llava_onevision'"
    for other in '.vision_config.model_type = "pixtral"' '.text_config.model_type = "phi3"'; do
        jq "$other" "$V/config.json" > m/config.json
        run -69 --separate-stderr ask "what"
        assert_equal "${#stderr_lines[@]}" 1
        assert_regex "$stderr" "_config.model_type: expected"
    done
    for other in '.vision_feature_layer = [-2, 1]' '.vision_feature_layer = -5' '.vision_feature_select_strategy = "cls"' '.image_token_index = 43' \
        '.text_config.rope_parameters.rope_type = "none"' '.vision_config.hidden_size = 37'; do
        jq "$other" "$V/config.json" > m/config.json
        run -65 --separate-stderr ask "what"
        assert_equal "${#stderr_lines[@]}" 1
    done
}
