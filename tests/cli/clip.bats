# CLIP: vectors of texts and pictures, zero-shot classes, beside transformers in double (tests/oracle/clip.py).
load ../helper

setup() {
    V=$ROOT/tests/golden/clip
    I=$ROOT/tests/golden/image
    texts=$(jq '.ids | length' "$V/expected.json")
    printf '%s\n' "5 17 33 2" "8" "41 12 12 50 7 3 28 19 22 14" > labels
}

# vector FILE [N]: the numbers of the first message of a stream of embeddings, one a line
vector() {
    local n
    n=$(od -An -tu8 -N8 "$1")
    tail -c +$((n + 9)) "$1" | head -c $((${2:-20} * 4)) | od -An -v -tf4 -w4
}

# zero LABELS PICTURE TEMPLATE...: labels and probabilities in the order of the labels
zero() {
    local templates=()
    for t in "${@:3}"; do templates+=(--labels "$t"); done
    llm-infer -m "${M:-$V}" --precision f32 --classify --ids "${templates[@]}" --image "$I/$2" "$1" | cut -f2,3
}

@test "vectors of pictures and texts are those of transformers; so are those of an end token as older files name it" {
    local i name
    jq '.text_config.eos_token_id = 2 | .text_config_dict = {"eos_token_id": 2} | .vision_config_dict = null' "$V/config.json" > config.json
    cp "$V/model.safetensors" .
    for name in rgb.png turned6.jpg; do
        llm-infer -m "$V" --precision f32 --embed --embd-normalize -1 --image "$I/$name" > out
        near_lines <(vector out) <(jq --arg p $name '.pictures[$p][]' "$V/expected.json") 5e-6
    done
    for ((i = 0; i < texts; i++)); do
        jq -r --argjson i $i '.ids[$i] | map(tostring) | join(" ")' "$V/expected.json" > ids
        llm-infer -m "$V" --precision f32 --embed --embd-normalize -1 --ids -f ids > out
        near_lines <(vector out) <(jq --argjson i $i '.texts[$i][]' "$V/expected.json") 5e-6
        llm-infer -m . --precision f32 --embed --embd-normalize -1 --ids -f ids > out
        near_lines <(vector out) <(jq --argjson i $i '.legacy[$i][]' "$V/expected.json") 5e-6
        printf '{"ids": [%s]}\n' "$(tr ' ' , < ids)" >> lines
    done
    llm-infer -m "$V" --precision f32 --embed --embd-normalize -1 --jsonl lines > vectors
    near_lines <(jq '.embedding[]' vectors) <(jq '.texts[][]' "$V/expected.json") 5e-6
    llm-infer -m "$V" --embed --ids -f ids | tail -c +1 > out # vectors are of length 1 unless told otherwise
    near_lines <(vector out | awk '{ s += $1 * $1 } END { print s }') <(echo 1) 1e-5
}

@test "zero-shot classes: the softmax of transformers' logits; several templates are averaged" {
    jq '.logits["rgb.png"] | [.[0], .[1], .[3]] | map(exp) | (add as $sum | map(. / $sum))[]' "$V/expected.json" > want
    zero labels rgb.png "59 {} 60" > got
    near_lines <(while read -r label; do awk -F'\t' -v l="$label" '$1 == l { print $2 }' got; done < labels) want 1.1e-6 # six digits are printed
    assert_equal "$(sort -t$'\t' -k2,2gr got | head -n 1)" "$(head -n 1 got)"
    zero labels rgb.png "59 {} 60" "59 {} 60" | cmp - got # the mean of equal vectors
    printf '%s\n' "5 17 33 2" "8" "41 12" > labels
    zero labels rgb.png "59 {} 60" > one
    zero labels rgb.png "59 {} 60" "59 7 {} 60" > two
    refute cmp -s two one
    # the same by hand: normalised, averaged, normalised again, times e^3.3
    for t in "" "7 "; do while read -r label; do echo "{\"ids\": [$(tr ' ' , <<< "59 $t$label 60")]}"; done < labels; done > lines
    llm-infer -m "$V" --precision f32 --embed --jsonl lines > vectors
    llm-infer -m "$V" --precision f32 --embed --image "$I/rgb.png" > out
    vector out | jq -s . > picture
    jq -s --slurpfile p picture 'map(.embedding) as $v | [range(3) | [$v[.], $v[. + 3]] | transpose | map(add / 2) |
        (map(. * .) | add | sqrt) as $l | [map(. / $l), $p[0]] | transpose | map(.[0] * .[1]) | add * (3.3 | exp)] |
        map(exp) | (add as $s | map(. / $s))[]' vectors > want
    near_lines <(while read -r label; do awk -F'\t' -v l="$label" '$1 == l { print $2 }' two; done < labels) want 1e-5
}

@test "a checkpoint, safetensors with transformers' shapes, any threads and passes: the same bytes" {
    zero labels turned6.jpg "59 {} 60" > want
    llm-quantize -q -t f32 "$V" model.llm
    llm-quantize -q -t f32 --to safetensors model.llm again.safetensors
    for M in model.llm again.safetensors; do zero labels turned6.jpg "59 {} 60" | cmp - want; done
    shapes() { jq -S 'del(.__metadata__) | map_values(.shape)' <(tail -c +9 "$1" | head -c "$(od -An -tu8 -N8 "$1")"); }
    cmp <(shapes "$V/model.safetensors") <(shapes again.safetensors | jq -S 'with_entries(select(.key | startswith("llm.") | not))')
    llm-tokenize image --for "$V" "$I/rgb.png" "$I/turned6.jpg" -o two.images
    llm-infer -m "$V" --precision f32 --classify --ids --labels "59 {} 60" --image two.images -j 1 -b 7 labels > both
    grep '^2' both | cut -f2,3 | cmp - want
    llm-quantize -q -t q8_0 "$V" small.llm
    M=small.llm zero labels turned6.jpg "59 {} 60" > got
    assert_equal "$(wc -l < got)" 3
}

@test "what does not fit ends with one line" {
    refused 69 "expected a model that predicts the next token, found one that compares texts (clip): llm-infer --embed" llm-infer -m "$V" hello
    refused 65 "text: expected an end token (60), found none" llm-infer -m "$V" --embed --ids "59 3"
    refused 65 "expected at most 12 tokens (the context), found 13" llm-infer -m "$V" --embed --ids "59 3 3 3 3 3 3 3 3 3 3 3 60"
    refused 65 "labels: line 1: prompt: expected at most 12 tokens (the context), found 13" llm-infer -m "$V" --classify --ids \
        --labels "59 {} 3 3 3 3 3 3 3 60" --image "$I/rgb.png" labels
    echo "8" >> labels
    refused 65 "labels: line 4: expected each label once, found '8' again" llm-infer -m "$V" --classify --ids --labels "59 {} 60" --image "$I/rgb.png" labels
    refused 66 absent llm-infer -m "$V" --classify --ids --labels "59 {} 60" --image "$I/rgb.png" absent
    refused 65 "/dev/null: expected labels, one a line, found none" llm-infer -m "$V" --classify --ids --labels "{}" --image "$I/rgb.png" /dev/null
    refused 2 "--labels: expected a template with {} in it, imagenet-80 or imagenet-7, found 'a photo'" llm-infer -m "$V" --classify --labels "a photo" --image "$I/rgb.png" labels
    refused 2 "--labels goes with --classify and --image" llm-infer -m "$V" --labels "{}" labels
    refused 2 "--labels: expected a file of labels, one a line" llm-infer -m "$V" --classify --labels "{}" --image "$I/rgb.png"
    refused 69 "--labels: expected a model that compares pictures with texts (clip, siglip), found another (vit)" llm-infer -m "$ROOT/tests/golden/vit" \
        --classify --ids --labels "{}" --image "$I/rgb.png" labels
    refused 69 "expected a model that tells classes apart" llm-infer -m "$V" --classify --image "$I/rgb.png"
    llm-tokenize image "$I/rgb.png" -o plain.images
    refused 65 "expected pictures of 1 crop, 3 channels, 22 x 22 pixels (the model's); found 1, 3, 20 x 18" llm-infer -m "$V" --embed --image plain.images
    cp "$V/model.safetensors" .
    jq '.vision_config.patch_size = 30' "$V/config.json" > config.json
    refused 65 "vision_config.patch_size: expected at most 22 (image_size), found 30" llm-infer -m . --embed --ids 60
    jq '.vision_config.num_attention_heads = 5' "$V/config.json" > config.json
    refused 65 "vision_config.hidden_size: expected a multiple of num_attention_heads (5), found 36" llm-infer -m . --embed --ids 60
    jq '.projection_dim = 21' "$V/config.json" > config.json
    refused 65 "tensor 'visual_projection.weight': expected " llm-infer -m . --embed --ids 60
    jq '.text_config.sliding_window = 4' "$V/config.json" > config.json
    refused 65 "text_config.sliding_window: expected a key that clip models have here" llm-infer -m . --embed --ids 60
    jq '.vision_config = 4' "$V/config.json" > config.json
    refused 65 "vision_config: expected an object" llm-infer -m . --embed --ids 60
}
