# Training CLIP on pictures with texts: gradients, both losses, the same bytes on any threads and after an interruption, bad data.
load ../helper

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    local i=0
    for name in rgb.png turned6.jpg tall.png alpha.png palette.png grey.png cmyk.jpg bits.png; do
        printf '{"image": "%s", "text": "%s"}\n' "$ROOT/tests/golden/image/$name" "picture number $((i++)) of ${name%.*}"
    done > pairs.jsonl
    echo '{"size": {"height": 8, "width": 8}, "image_processor_type": "ViTImageProcessor"}' > processor.json
    llm-tokenize image --for processor.json --jsonl pairs.jsonl -o pairs.images
    jq -r .text pairs.jsonl | llm-tokenize train --vocab-size 280 --special '<|endoftext|>' -o tok.json
}

setup() {
    cp "$BATS_FILE_TMPDIR"/{pairs.images,pairs.jsonl,tok.json} .
    small=(-q -c clip-nano -T tok.json --objective contrastive --set projection_dim=12 --set text_config.hidden_size=16
        --set text_config.intermediate_size=32 --set text_config.num_attention_heads=2 --set text_config.num_hidden_layers=2
        --set vision_config.hidden_size=20 --set vision_config.intermediate_size=32 --set vision_config.num_attention_heads=2
        --set vision_config.num_hidden_layers=1 --set vision_config.image_size=8 --set text_config.initializer_range=0.2 --schedule constant --warmup 0)
}

vectors() { llm-infer -m "$1" --embed --image pairs.images; }

@test "gradients of both losses are those of differences" {
    for loss in "" --sigmoid-loss; do
        llm-train "${small[@]}" $loss -l 24 --gradcheck -b 3 > check # which fails where they differ
        for name in vision_model.embeddings.class_embedding vision_model.pre_layrnorm.bias visual_projection.weight text_projection.weight \
            text_model.embeddings.token_embedding.weight logit_scale; do
            grep -q "^$name	" check || fail "$name"
        done
    done
    grep -q "^logit_bias	" check
}

@test "a model learns which text belongs to which picture, by either loss; texts and pictures find each other" {
    for loss in "" --sigmoid-loss; do
        without_sanitizer llm-train "${small[@]}" $loss -b 8 -n 100 --lr 3e-3 --val pairs.images --eval-every 100 --log log -o out.llm pairs.images
        run -0 jq -e 'select(.val_recall_at_1) | .val_recall_at_1 == 1' log
        jq -r .text pairs.jsonl > texts
        llm-infer -m out.llm --classify --image pairs.images --labels "{}" texts > table
        assert_equal "$(awk -F'\t' '$1 != last { print $2; last = $1 }' table)" "$(< texts)"
    done
}

@test "the same bytes: threads, a pipe, an interruption, checkpointing" {
    local of=(-b 4 -n 6 --seed 3 --dropout .1)
    llm-train "${small[@]}" "${of[@]}" -j 1 -o one.llm pairs.images
    vectors one.llm > want
    llm-train "${small[@]}" "${of[@]}" -j 2 -o two.llm pairs.images
    cmp one.llm two.llm
    llm-train "${small[@]}" "${of[@]}" --checkpoint-every 1 -o kept.llm pairs.images
    vectors kept.llm | cmp - want
    llm-train "${small[@]}" "${of[@]}" -o piped.llm - < pairs.images
    vectors piped.llm | cmp - want
    llm-train "${small[@]}" "${of[@]}" -n 2 -o begun.llm pairs.images
    llm-train -q --resume begun.llm -n 6
    vectors begun.llm | cmp - want
    llm-train "${small[@]}" "${of[@]}" --activations bf16 -o few.llm pairs.images # of the two towers' widths the second is the larger one
    llm-train "${small[@]}" "${of[@]}" --activations bf16 --checkpoint-every 1 -o kept.llm pairs.images
    cmp few.llm kept.llm
}

@test "safetensors of it do the same; --init goes on from them" {
    llm-train "${small[@]}" -b 4 -n 2 -o out.llm pairs.images
    llm-quantize -q -t f32 --to safetensors out.llm out.safetensors
    echo "number 3" > labels
    echo "picture" >> labels
    for model in out.llm out.safetensors; do llm-infer -m $model --classify --image pairs.images --labels "{}" labels > $model.table; done
    cmp out.llm.table out.safetensors.table
    llm-train -q --objective contrastive --init out.safetensors -T tok.json -b 4 -n 1 -o more.llm pairs.images
    refused 65 "expected pictures of 3 channels, 32 x 32 pixels (the model's), found 3, 8 x 8" llm-train -q -c clip-nano -T tok.json \
        --objective contrastive -o x.llm pairs.images
}

@test "pairs that do not serve end with one line" {
    llm-tokenize image --for "$BATS_FILE_TMPDIR/processor.json" "$ROOT/tests/golden/image/rgb.png" -o plain.images
    refused 65 "training data: picture 9: expected a text (llm-tokenize image --jsonl), found none" llm-train "${small[@]}" -o x.llm pairs.images plain.images
    refused 65 "expected at most 4 tokens (--context), found" llm-train "${small[@]}" -l 4 -b 2 -n 1 -o x.llm pairs.images
    refused 2 "expected a tokenizer (-T) for the pictures' texts" llm-train -q -c clip-nano --objective contrastive -o x.llm pairs.images
    refused 69 "--objective classify: expected a model of texts, found one of pictures and texts (clip)" llm-train -q -c clip-nano -T tok.json \
        --objective classify --set num_labels=2 --gradcheck -b 2
    refused 2 "--stream: expected data of tokens, found a model of pictures" llm-train "${small[@]}" --stream -o x.llm pairs.images
    llm-tokenize train --vocab-size 270 -o none.json < pairs.jsonl
    refused 69 "expected a tokenizer with an end token" llm-train "${small[@]}" -T none.json -o x.llm pairs.images
    head -c 3000 pairs.images > cut.images
    refused 65 "cut short" llm-train "${small[@]}" -o x.llm cut.images
}
