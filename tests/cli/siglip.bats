# SigLIP: vectors of texts and pictures, zero-shot classes, beside transformers in double (tests/oracle/siglip.py); training.
load ../helper

setup() {
    V=$ROOT/tests/golden/siglip
    I=$ROOT/tests/golden/image
}

# vector FILE: the numbers of the first message of a stream of embeddings, one a line
vector() {
    local n
    n=$(od -An -tu8 -N8 "$1")
    tail -c +$((n + 9)) "$1" | head -c $((36 * 4)) | od -An -v -tf4 -w4
}

# zero MODEL: probabilities of the golden's first two texts for rgb.png
zero() {
    printf '%s\n' "5 17 33 2" 8 > labels
    llm-infer -m "$1" --precision f32 --classify --ids --labels "{} 1" --image "$I/rgb.png" labels > table
    while read -r label; do awk -F'\t' -v l="$label" '$2 == l { print $3 }' table; done < labels
}

@test "vectors of pictures and texts are those of transformers; texts are filled with padding" {
    local name
    for name in rgb.png turned6.jpg; do
        llm-infer -m "$V" --precision f32 --embed --embd-normalize -1 --image "$I/$name" > out
        near_lines <(vector out) <(jq --arg p $name '.pictures[$p][]' "$V/expected.json") 5e-6
    done
    llm-infer -m "$V" --precision f32 --embed --embd-normalize -1 --image "$I/rgb.png" --image "$I/turned6.jpg" -j 1 > both
    llm-infer -m "$V" --precision f32 --embed --embd-normalize -1 --image "$I/rgb.png" > out
    diff <(vector both) <(vector out)
    jq -c '.ids[] | {ids: .}' "$V/expected.json" > full
    jq -c '{ids: (.ids | until(length < 2 or .[-1] != 1 or .[-2] != 1; .[:-1]))}' full > short
    for lines in full short; do
        llm-infer -m "$V" --precision f32 --embed --embd-normalize -1 --jsonl $lines > vectors
        near_lines <(jq '.embedding[]' vectors) <(jq '.texts[][]' "$V/expected.json") 5e-6
    done
}

@test "zero-shot classes are sigmoids of their own; a checkpoint and safetensors with transformers' shapes have them too" {
    jq '.probabilities["rgb.png"][:2][]' "$V/expected.json" > want
    near_lines <(zero "$V") want 1.1e-6 # six digits are printed
    llm-quantize -q -t f32 "$V" model.llm
    llm-quantize -q -t f32 --to safetensors model.llm again.safetensors
    for model in model.llm again.safetensors; do near_lines <(zero $model) want 1.1e-6; done
    shapes() { jq -S 'del(.__metadata__) | map_values(.shape)' <(tail -c +9 "$1" | head -c "$(od -An -tu8 -N8 "$1")"); }
    cmp <(shapes "$V/model.safetensors") <(shapes again.safetensors | jq -S 'with_entries(select(.key | startswith("llm.") | not))')
    llm-quantize -q -t q8_0 "$V" small.llm
    assert_equal "$(zero small.llm | wc -l)" 2
}

# pairs: pictures with texts, a tokenizer, a small configuration
pairs() {
    local i=0 name
    for name in rgb.png turned6.jpg tall.png alpha.png palette.png grey.png cmyk.jpg bits.png; do
        printf '{"image": "%s", "text": "picture number %s of %s"}\n' "$I/$name" $((i++)) "${name%.*}"
    done > pairs.jsonl
    echo '{"size": {"height": 8, "width": 8}, "image_processor_type": "SiglipImageProcessor"}' > processor.json
    llm-tokenize image --for processor.json --jsonl pairs.jsonl -o pairs.images
    jq -r .text pairs.jsonl > texts
    llm-tokenize train -q --vocab-size 280 --special '<|endoftext|>' -o tok.json texts
    jq -n '{model_type: "siglip", initializer_range: 0.2, text_config: {vocab_size: 280, hidden_size: 16, intermediate_size: 32, pad_token_id: 0,
        num_attention_heads: 2, num_hidden_layers: 2, max_position_embeddings: 24, projection_size: 20}, vision_config: {hidden_size: 20,
        intermediate_size: 32, num_attention_heads: 2, num_hidden_layers: 1, image_size: 8, patch_size: 4}}' > small.json
    train=(llm-train -q -c small.json -T tok.json --objective contrastive --schedule constant --warmup 0)
}

@test "it trains: gradients are those of differences, texts and pictures find each other, the same bytes on any threads" {
    pairs
    "${train[@]}" --gradcheck -b 3 > check # which fails where they differ
    for name in vision_model.head.probe vision_model.head.attention.in_proj_weight vision_model.head.mlp.fc2.bias text_model.head.bias \
        vision_model.embeddings.position_embedding.weight logit_scale logit_bias; do
        grep -q "^$name	" check || fail "$name"
    done
    without_sanitizer "${train[@]}" -b 8 -n 100 --lr 3e-3 --val pairs.images --eval-every 100 --log log -o out.llm pairs.images
    run -0 jq -e 'select(.val_recall_at_1) | .val_recall_at_1 == 1' log
    llm-infer -q -m out.llm --classify --image pairs.images --labels "{}" texts > table
    assert_equal "$(awk -F'\t' '$1 != last { print $2; last = $1 }' table)" "$(< texts)"
    for threads in 1 2; do "${train[@]}" -b 4 -n 3 -j $threads -o $threads.llm pairs.images; done
    cmp 1.llm 2.llm
}

@test "texts are filled up to the positions when they are learned, as when they are read: --context is these" {
    pairs
    "${train[@]}" -l 24 -b 4 -n 1 -o 24.llm pairs.images
    "${train[@]}" -b 4 -n 1 -o out.llm pairs.images
    cmp 24.llm out.llm
    for n in 22 30; do
        refused 2 "--context: expected 24 (max_position_embeddings), up to which texts are filled, found $n" "${train[@]}" -l $n -b 4 -n 1 -o x.llm pairs.images
    done
}

@test "a folder with spiece.model alone: ids are those of transformers' SiglipTokenizer, of a checkpoint and a tokenizer.json too" {
    local t=$ROOT/tests/golden/siglip_tokenizer of
    mkdir lower cased
    for of in lower cased; do cp "$t/spiece.model" $of; done
    cp "$t/tokenizer_config.json" lower
    jq '.do_lower_case = false' "$t/tokenizer_config.json" > cased/tokenizer_config.json
    jq -c '{text}' "$t/expected.jsonl" > lines
    encoded() { llm-tokenize encode -T "$1" --jsonl --text --special --add-special lines; }
    encoded lower | diff - <(jq -r '.ids | map(tostring) | join(" ")' "$t/expected.jsonl")
    encoded cased | diff - <(jq -r '.cased | map(tostring) | join(" ")' "$t/expected.jsonl")
    encoded lower -j 1 | diff - <(encoded lower)
    llm-tokenize info -T lower --export > own.json
    encoded own.json | diff - <(encoded lower)
    refute cmp -s <(llm-tokenize info -T lower) <(llm-tokenize info -T cased)
    # a published folder: the text's vector is that of its ids
    mkdir folder
    cp lower/* folder
    jq -n '{model_type: "siglip", initializer_range: 0.2, text_config: {vocab_size: 190, hidden_size: 16, intermediate_size: 32, pad_token_id: 1,
        num_attention_heads: 2, num_hidden_layers: 2, max_position_embeddings: 24, projection_size: 20}, vision_config: {hidden_size: 20,
        intermediate_size: 32, num_attention_heads: 2, num_hidden_layers: 1, image_size: 8, patch_size: 4}}' > folder/config.json
    llm-train -q -c folder/config.json -T lower --objective contrastive -n 0 -o new.llm
    llm-quantize -q -t f32 --to safetensors new.llm folder/model.safetensors
    encoded new.llm | diff - <(encoded lower)
    llm-infer -m folder --embed "A Photo, of a CAT!" | cmp - <(llm-infer -m folder --embed --ids "36 14 30 36 19 1")
    echo '{"tokenizer_class": "SiglipTokenizer", "do_lower_case": 2}' > lower/tokenizer_config.json
    refused 65 "do_lower_case" llm-tokenize info -T lower
    head -c 3000 "$t/spiece.model" > lower/spiece.model
    refused 65 "spiece.model" llm-tokenize info -T lower
}

@test "what does not fit ends with one line" {
    cp "$V/model.safetensors" .
    jq '.text_config.projection_size = 24' "$V/config.json" > config.json
    refused 65 "text_config.projection_size: expected 36 (vision_config.hidden_size), found 24" llm-infer -m . --embed --ids 1
    jq '.text_config.pad_token_id = 61' "$V/config.json" > config.json
    refused 65 "text_config.pad_token_id: expected below 61 (vocab_size), found 61" llm-infer -m . --embed --ids 1
    jq '.vision_config.vision_use_head = false' "$V/config.json" > config.json
    refused 65 "vision_use_head" llm-infer -m . --embed --ids 1
    jq '.vision_config.patch_size = 4' "$V/config.json" > config.json
    refused 65 "tensor 'vision_model.embeddings.patch_embedding.weight': expected ?36, 3, 4, 4?" llm-infer -m . --embed --ids 1
    refused 65 "expected at most 10 tokens (the context), found 11" llm-infer -m "$V" --embed --ids "1 1 1 1 1 1 1 1 1 1 1"
    refused 69 "found an encoder (siglip): it embeds texts (llm-infer --embed)" llm-infer -m "$V" --ids 5
}
