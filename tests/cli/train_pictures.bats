# Training vision transformers: pictures with classes, beside PyTorch (tests/oracle/vit.py), changed at random, on any threads, passes and ranks.
load ../helper
load ../mpi

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    pictures 200 8 > bright
    classes 200 | idx labels 200
    idx pictures 200 8 8 < bright
    llm-tokenize image --labels labels pictures -o bright.images
}

setup() {
    cp "$BATS_FILE_TMPDIR"/*.images .
    small=(-q -c vit-nano --set image_size=8 --set hidden_size=32 --set intermediate_size=64 --set num_attention_heads=2 --set num_hidden_layers=2
        --objective classify --schedule constant --warmup 0)
}

# pictures N SIDE: squares of bytes, of which the upper half is bright in every other one, the lower half in the others.
pictures() {
    awk -v n="$1" -v side="$2" 'BEGIN {
        srand(7)
        for (i = 0; i < n; i++) for (y = 0; y < side; y++) for (x = 0; x < side; x++) {
            bright = (y < side / 2) == (i % 2)
            printf "%c", int(rand() * 90) + (bright ? 30 : 1)
        }
    }'
}

# classes N: their classes.
classes() { for ((i = 0; i < $1; i++)); do printf '%b' "\\x0$((i % 2))"; done; }

# answers MODEL: what it says of the pictures.
answers() { llm-infer -m "$1" --classify --image bright.images; }

@test "losses of steps of AdamW are those of PyTorch" {
    head -c $((10 * 22 * 22)) "$ROOT/tests/golden/image/make.py" | idx ten 10 22 22
    for i in 0 1 2 3 4 5 6 7 8 9; do printf '%b' "\\x0$((i * 3 % 7))"; done | idx ten-labels 10
    llm-tokenize image --for "$ROOT/tests/golden/vit" --labels ten-labels ten -o ten.images
    llm-train -q --objective classify --init "$ROOT/tests/golden/vit" --precision f32 -b 5 -n 6 --lr 1e-3 --schedule constant --warmup 0 --clip 0 \
        --weight-decay 0 --beta2 .95 --order sequential --log log -o out.llm ten.images
    # FP32 beside double
    near_lines <(jq .loss log) <(jq '.losses[]' "$ROOT/tests/golden/vit/expected.json") 1e-5
}

@test "gradients of a picture's loss are those of differences" {
    llm-train "${small[@]}" --set num_labels=3 --set initializer_range=0.2 --gradcheck -b 2 > check # which fails where they differ
    grep -q '^vit.embeddings.cls_token' check
    grep -q '^vit.embeddings.patch_embeddings.projection.bias' check
    llm-train "${small[@]}" --set initializer_range=0.2 --mixup .4 --crop 1 --gradcheck -b 4 bright.images > check
    grep -q '^classifier.bias' check
}

@test "a model learns which half is bright, also from pictures that are moved, turned and mixed; safetensors are transformers' shapes" {
    without_sanitizer llm-train "${small[@]}" -b 16 -n 150 --lr 3e-3 --val .2 --eval-every 150 --log log -o out.llm bright.images
    run -0 jq -e 'select(.val_accuracy) | .val_accuracy > .95' log
    without_sanitizer llm-train "${small[@]}" -b 16 -n 150 --lr 3e-3 --val bright.images --eval-every 150 --crop 1 --flip .5 --mixup .3 --log log -o moved.llm bright.images
    run -0 jq -e 'select(.val_accuracy) | .val_accuracy > .95' log
    answers out.llm > table
    assert_equal "$(awk '$1 != last { right += $2 == "LABEL_" (NR > 1 && last % 2); last = $1 } END { print (right > 190) }' table)" 1
    llm-quantize -q -t f32 --to safetensors out.llm out.safetensors
    run -0 bash -c "head -c 8000 out.safetensors | tr '{' '\n' | grep -a -o -E '(cls_token|position_embeddings|projection.weight)|shape\":\[(1,1,32|1,5,32|32,1,4,4)\]'"
    for shape in 1,1,32 1,5,32 32,1,4,4; do assert_output --partial "shape\":[$shape]"; done
    answers out.safetensors | cmp - table
}

@test "the same bytes: threads, passes, checkpointing, a pipe, an interruption, ranks" {
    local of=(-b 8 -n 6 --crop 1 --flip .5 --mixup .4 --val .1 --grad-shards 4 --seed 3)
    llm-train "${small[@]}" "${of[@]}" -j 1 -o one.llm bright.images
    answers one.llm > expected
    llm-train "${small[@]}" "${of[@]}" -j 2 -o two.llm bright.images
    cmp one.llm two.llm
    llm-train "${small[@]}" "${of[@]}" -b 2 --accumulate 4 -o passes.llm bright.images
    answers passes.llm | cmp - expected
    llm-train "${small[@]}" "${of[@]}" --checkpoint-every 1 -o kept.llm bright.images
    answers kept.llm | cmp - expected
    llm-train "${small[@]}" "${of[@]}" -o piped.llm - < bright.images
    answers piped.llm | cmp - expected
    llm-train "${small[@]}" "${of[@]}" -n 2 -o begun.llm bright.images
    llm-train -q --resume begun.llm -n 6
    cmp one.llm begun.llm
}

@test "the same bytes on two ranks" {
    need_mpi
    local of=(-b 8 -n 4 --crop 1 --mixup .4 --grad-shards 4 -j 1)
    llm-train "${small[@]}" "${of[@]}" -o one.llm bright.images
    ranks 2 llm-train "${small[@]}" "${of[@]}" -o two.llm bright.images
    cmp one.llm two.llm
}

@test "pictures that do not serve end with one line" {
    refused 2 "--context: expected 5, the tokens of a picture, found 9" llm-train "${small[@]}" -l 9 -o x.llm bright.images
    refused 2 "vit-nano: expected no tokenizer (-T) for a model of pictures" llm-train "${small[@]}" -T "$ROOT/tests/golden/tiny/tokenizer.json" -o x.llm \
        bright.images
    refused 2 "--stream: expected data of tokens, found a model of pictures" llm-train "${small[@]}" --stream -o x.llm bright.images
    refused 2 "--crop: expected fewer pixels than the picture's 8, found 8" llm-train "${small[@]}" --crop 8 -o x.llm bright.images
    refused 2 "--mixup: expected a model of pictures, found one of texts" llm-train -q -c bert-mini --set num_labels=2 --objective classify --mixup .2 \
        --plan
    refused 65 "expected pictures of 1 channels, 28 x 28 pixels (the model's), found 1, 8 x 8" llm-train -q -c vit-nano --objective classify -o x.llm \
        bright.images
    llm-tokenize image "$BATS_FILE_TMPDIR/pictures" -o plain.images
    refused 65 "expected a class of each picture (llm-tokenize image --labels), found none" llm-train "${small[@]}" -o x.llm plain.images
    refused 65 "plain.images: expected labels in all messages, or in none" llm-train "${small[@]}" -o x.llm bright.images plain.images
    head -c 3000 bright.images > cut.images
    refused 65 "cut.images: byte 256: cut short" llm-train "${small[@]}" -o x.llm cut.images
    refused 65 "expected a tensor message, found an empty file" llm-train "${small[@]}" -o x.llm /dev/null
    refused 69 "expected a model of texts, found one of pictures (vit)" llm-train -q --objective contrastive --init "$ROOT/tests/golden/vit" --gradcheck -b 2
    llm-train "${small[@]}" -n 1 -o two.llm bright.images
    awk 'BEGIN { for (i = 0; i < 200; i++) printf "%c", i % 3 + 1 }' | idx more 200
    llm-tokenize image --labels more "$BATS_FILE_TMPDIR/pictures" -o more.images
    refused 65 "expected a class below 2 (the model's), found 2" llm-train -q --objective classify --init two.llm -o x.llm more.images
}
