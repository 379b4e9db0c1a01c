# CLIP of 2 million parameters, trained on generated pictures with captions (tests/bench/captions.py): classes it never saw together, zero-shot. A
# LLaVA of 1.8 million parameters on top of it: questions about pictures of these classes.
load ../helper

setup_file() {
    need_tool python3
    cd "$BATS_FILE_TMPDIR" || return 1
    python3 "$ROOT/tests/bench/captions.py" made 6000
    echo '{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}' > processor.json
    for part in train held; do llm-tokenize image --for processor.json --jsonl made/$part.jsonl -o $part.images; done
    llm-tokenize train -q --vocab-size 300 --special '<|endoftext|>' -o tok.json made/captions.txt
    llm-train -q -c clip-nano --objective contrastive -T tok.json -b 64 -n 1500 --lr 1e-3 -o clip.llm train.images
}

setup() { cd "$BATS_FILE_TMPDIR" || return 1; }

# at_least PERCENT: the lines of `found` are those of `want`
at_least() {
    local right
    right=$(paste want found | awk -F'\t' '$1 == $2' | wc -l)
    echo "# $right of $(wc -l < want)" >&3
    [[ $((100 * right)) -ge $(($1 * $(wc -l < want))) ]]
}

@test "zero-shot classes of combinations that were held out: at least 95% right" {
    llm-infer -m clip.llm --classify --image held.images --labels "a {}" --labels "a picture of a {}" made/labels.txt > table
    jq -r .text made/held.jsonl > want
    awk -F'\t' '$1 != last { print $2; last = $1 }' table > found
    at_least 95
}

@test "a LLaVA with this tower, which stays as it is, tells the colour of what was held out: at least 95% right" {
    cat > chat.jinja << 'EOF'
{% for m in messages %}{% if m['role'] == 'assistant' %}{{ 'ASSISTANT: ' + m['content'] + eos_token }}{% else %}{{ 'USER: ' + m['content'] + '\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}
EOF
    jq -r '.messages[].content | if type == "string" then "ASSISTANT: " + . else "USER: " + .[1].text end' made/questions.jsonl > words.txt
    llm-tokenize train -q --vocab-size 330 --special '</s>' --special '<image>' -o words.json words.txt
    llm-train -q -c llava-nano --tower clip.llm --freeze 'vision_tower.*' -T words.json --objective sft --chat-template chat.jinja -l 96 -b 32 -n 600 \
        --lr 1.5e-3 -o llava.llm made/questions.jsonl
    llm-infer -q -m llava.llm --chat --jsonl --temp 0 -n 8 made/held-questions.jsonl > answers
    jq -r '.message.content | ltrimstr(" ")' answers > found
    jq -r .answer made/held-questions.jsonl > want
    at_least 95
    grep -n 'what colour is the circle?' made/held-questions.jsonl | cut -d: -f1 > circles
    for part in found want; do awk 'NR == FNR { wanted[$1] = 1; next } FNR in wanted' circles $part > some && mv some $part; done
    at_least 95
}
