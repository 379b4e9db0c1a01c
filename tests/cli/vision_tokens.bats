# Vision transformers with more tokens than the class token and patches, and with rotary positions of two dimensions: DeiT, DINOv2 and DINOv3 beside
# transformers in double (tests/oracle/vit_tokens.py).
load ../helper

setup() {
    V=$ROOT/tests/golden/vit_tokens
    I=$ROOT/tests/golden/image
    all=(deit deit_distilled dinov2 dinov2_with_registers dinov3 dinov3_gated)
    classes=("${all[@]:0:4}")
}

# vector MODEL PICTURE POOLING: the numbers of its vector, one a line
vector() {
    llm-infer -m "$1" --precision f32 --embed --pooling "$3" --image "$I/$2" -o out
    elements out embeddings
}

@test "states of class tokens and patches, and classes of pictures, are those of transformers" {
    local m picture pooling
    for m in "${all[@]}"; do
        for picture in rgb.png turned6.jpg; do
            for pooling in cls last mean; do
                vector "$V/$m" $picture $pooling > got
                jq --arg p $picture --arg v $pooling '.[$p][$v][]' "$V/$m/expected.json" > want
                near_range got want 5e-6
            done
        done
    done
    for m in "${classes[@]}"; do
        for picture in rgb.png turned6.jpg; do
            llm-infer -m "$V/$m" --precision f32 --classify --image "$I/$picture" > table
            cut -f2 table | cmp - <(jq -r --arg p $picture '.[$p].probabilities | to_entries | sort_by(-.value)[] | "class \(.key)"' "$V/$m/expected.json")
            # six digits are printed
            near_lines <(cut -f3 table) <(jq --arg p $picture '.[$p].probabilities | sort | reverse[]' "$V/$m/expected.json") 1.1e-6
        done
    done
}

@test "losses of steps of AdamW are those of PyTorch, of one head, of two, and of the class token beside the mean" {
    local m i
    head -c $((10 * 22 * 22)) "$I/make.py" | idx ten 10 22 22
    for i in 0 1 2 3 4 5 6 7 8 9; do printf '%b' "\\x0$((i * 3 % 7))"; done | idx ten-labels 10
    llm-tokenize image --for "$V/deit" --labels ten-labels ten -o ten.images
    for m in "${classes[@]}"; do
        llm-train -q --objective classify --init "$V/$m" --precision f32 -b 5 -n 6 --lr 1e-3 --schedule constant --warmup 0 --clip 0 \
            --weight-decay 0 --beta2 .95 --order sequential --log log -o out.llm ten.images
        # FP32 beside double
        near_lines <(jq .loss log) <(jq '.losses[]' "$V/$m/expected.json") 1e-5
        # the same bytes of any threads and division into passes
        llm-train -q -j 1 --objective classify --init "$V/$m" --precision f32 -b 1 --accumulate 5 -n 6 --lr 1e-3 --schedule constant --warmup 0 \
            --clip 0 --weight-decay 0 --beta2 .95 --order sequential -o again.llm ten.images
        cmp <(llm-infer -m out.llm --classify --image ten.images) <(llm-infer -m again.llm --classify --image ten.images)
        llm-train -q --objective classify --init "$V/$m" -b 6 -n 2 --mixup .4 --flip .5 --crop 1 -o mixed.llm ten.images
        llm-train -q --objective classify --init "$V/$m" -b 2 --accumulate 3 -n 2 --mixup .4 --flip .5 --crop 1 -o again.llm ten.images
        cmp mixed.llm again.llm
    done
}

@test "gradients are those of differences; new models of all four families learn" {
    local m of i
    of=(-q --objective classify --set image_size=8 --set patch_size=2 --set num_channels=1 --set hidden_size=16 --set num_attention_heads=2
        --set num_hidden_layers=1 --set num_labels=3 --set initializer_range=0.2)
    for m in deit dinov2 dinov2_with_registers dinov3_vit; do
        echo '{"mlp_ratio": 2, "intermediate_size": 64, "num_register_tokens": 2}' | jq --arg m $m '.model_type = $m |
            if $m == "deit" or $m == "dinov3_vit" then del(.mlp_ratio) else del(.intermediate_size) end |
            if $m == "deit" or $m == "dinov2" then del(.num_register_tokens) else . end' > $m.json
        llm-train -c $m.json "${of[@]}" --gradcheck -b 2 > check # which fails where they differ
        [[ $m == dinov2 || $m == deit ]] || grep -q 'register_tokens' check
        [[ $m == deit ]] || grep -q 'layer_scale2.lambda1' check
    done
    llm-train -c deit.json "${of[@]}" --set class_vector=two_tokens --gradcheck -b 2 > check
    grep -q 'deit.embeddings.distillation_token' check
    grep -q '^distillation_classifier.bias' check
    llm-train -c dinov3_vit.json "${of[@]}" --set num_register_tokens=3 --set use_gated_mlp=true --set mlp_bias=false --gradcheck -b 2 > check
    grep -q 'layer.0.mlp.gate_proj.weight' check
    # which half of a picture is bright
    for ((i = 0; i < 40; i++)); do printf "$(printf '\\x%02x' $((i % 2 * 255)))%.0s" {1..32}; printf "$(printf '\\x%02x' $(((i + 1) % 2 * 255)))%.0s" {1..32}; done | idx bright 40 8 8
    for ((i = 0; i < 40; i++)); do printf '%b' "\\x0$((i % 2))"; done | idx bright-labels 40
    llm-tokenize image --labels bright-labels bright -o bright.images
    for m in deit dinov2 dinov2_with_registers dinov3_vit; do
        llm-train -c $m.json "${of[@]}" --set num_labels=2 --set initializer_range=0.02 -b 8 -n 120 --lr 3e-3 --log log --val bright.images --eval-every 120 \
            -o $m.llm bright.images
        run -0 jq -e 'select(.val_accuracy) | .val_accuracy == 1' log
    done
}

@test "DINOv2 with pictures of other sizes than it was made for, as its preprocessor makes them: positions are resampled as transformers does" {
    local m side pooling
    for m in dinov2 dinov2_with_registers; do
        cp -r "$V/$m" folder
        for side in 12 17 24 33; do
            jq --argjson n $side '.size = {height: $n, width: $n}' "$V/$m/preprocessor_config.json" > folder/preprocessor_config.json
            for pooling in cls mean; do
                vector folder rgb.png $pooling > got
                jq --arg n $side --arg v $pooling '.sizes[$n][$v][]' "$V/$m/expected.json" > want
                near_range got want 5e-6
            done
            llm-quantize -q -t f32 folder model.llm
            vector model.llm rgb.png mean | cmp - got
        done
        jq '.size = {height: 4, width: 4}' "$V/$m/preprocessor_config.json" > folder/preprocessor_config.json
        refused 65 "preprocessor_config.json: expected pictures of 5 to 16384 pixels a side, found 4" llm-infer -m folder --embed --image "$I/rgb.png"
        rm -r folder
    done
}

@test "DINOv3 with its own processor: a picture given to llm-infer is the one that llm-tokenize image prepares" {
    cp -r "$V/dinov3" folder
    jq '.image_processor_type = "DINOv3ViTImageProcessorFast"' "$V/dinov3/preprocessor_config.json" > folder/preprocessor_config.json
    vector folder rgb.png mean > got
    llm-tokenize image --for folder "$I/rgb.png" -o rgb.images
    llm-infer -m folder --precision f32 --embed --pooling mean --image rgb.images -o out
    elements out embeddings | cmp - got
    run -1 cmp -s <(vector "$V/dinov3" rgb.png mean) got
    llm-quantize -q -t f32 folder model.llm
    vector model.llm rgb.png mean | cmp - got
}

@test "a checkpoint and its safetensors: the same bytes, names, shapes and class" {
    local m
    shapes() { jq -S 'del(.__metadata__) | map_values(.shape) | with_entries(select(.key | test("^llm\\.|mask_token") | not) | select(.value != [1, 0, 36]))' \
        <(tail -c +9 "$1" | head -c "$(od -An -tu8 -N8 "$1")"); }
    for m in "${all[@]}"; do
        vector "$V/$m" rgb.png mean > want
        llm-quantize -q -t f32 "$V/$m" model.llm
        llm-quantize -q -t f32 --to safetensors model.llm again.safetensors
        for f in model.llm again.safetensors; do vector $f rgb.png mean | cmp - want; done
        cmp <(shapes "$V/$m/model.safetensors") <(shapes again.safetensors)
        llm-infer -m "$V/$m" --precision f32 --embed --pooling mean -j 1 -b 20 --image "$I/rgb.png" -o out
        elements out embeddings | cmp - want
    done
    for m in "${classes[@]}"; do
        llm-quantize -q -t f32 "$V/$m" model.llm
        llm-infer -m "$V/$m" --classify --image "$I/rgb.png" | cmp - <(llm-infer -m model.llm --classify --image "$I/rgb.png")
        llm-quantize -q -t f32 --to safetensors model.llm again.safetensors
        llm-infer -m again.safetensors --classify --image "$I/rgb.png" | cmp - <(llm-infer -m model.llm --classify --image "$I/rgb.png")
        assert_equal "$(tail -c +9 again.safetensors | head -c "$(od -An -tu8 -N8 again.safetensors)" | jq -r '.__metadata__["llm.config"] | fromjson.architectures[0]')" \
            "$(jq -r '.architectures[0]' "$V/$m/config.json")"
    done
}

@test "attention over patches leaves registers out; keys of other variants, and values that do not fit, end with one line" {
    need_tool python3
    llm-infer -m "$V/dinov3" --precision f32 --image "$I/rgb.png" --kv-out a.kv --trace-queries 100
    assert_equal "$(llm-kvinspect a.kv | awk '$1 == "tokens" { print $2 }')" 19
    llm-kvinspect attention --image "$I/rgb.png" --for "$V/dinov3" --query 0 --html a.html a.kv > /dev/null
    grep -q 'const rows=4,cols=4,' a.html
    # registers and the class token are not rotated: their keys of the first layer do not depend on positions
    llm-kvinspect export --tensor layers.0.k -o k.npy a.kv
    cp -r "$V/dinov3" other
    jq '.rope_theta = 7' "$V/dinov3/config.json" > other/config.json
    llm-infer -m other --precision f32 --image "$I/rgb.png" --kv-out b.kv
    llm-kvinspect export --tensor layers.0.k -o l.npy b.kv
    cmp <(tail -c +129 k.npy | head -c $((3 * 36 * 4))) <(tail -c +129 l.npy | head -c $((3 * 36 * 4)))
    refute cmp -s k.npy l.npy
    one() { jq "$2" "$V/$1/config.json" > other/config.json; }
    one dinov3 '.key_bias = true'
    refused 65 "key_bias" llm-infer -m other --embed --image "$I/rgb.png"
    one dinov3 '.value_bias = false'
    refused 65 "value_bias: expected true (query_bias), found false" llm-infer -m other --embed --image "$I/rgb.png"
    one dinov3 '.num_attention_heads = 6'
    refused 65 "hidden_size / num_attention_heads: expected a multiple of 4" llm-infer -m other --embed --image "$I/rgb.png"
    one dinov3 '.num_register_tokens = 5'
    refused 65 "embeddings.register_tokens" llm-infer -m other --embed --image "$I/rgb.png"
    one dinov2 '.use_swiglu_ffn = true'
    refused 65 "use_swiglu_ffn" llm-infer -m other --embed --image "$I/rgb.png"
    one deit '.class_vector = "token_and_mean"'
    refused 65 "class_vector: expected token or two_tokens, found token_and_mean" llm-infer -m other --embed --image "$I/rgb.png"
}
