# Vision transformers: vectors and classes of pictures, beside transformers in double (tests/oracle/vit.py).
load ../helper

setup() {
    V=$ROOT/tests/golden/vit
    I=$ROOT/tests/golden/image
}

# vector FILE: the numbers of the first message of a stream of embeddings, one a line
vector() {
    local n
    n=$(od -An -tu8 -N8 "$1")
    tail -c +$((n + 9)) "$1" | head -c $((36 * 4)) | od -An -v -tf4 -w4
}

@test "classes and vectors of pictures are those of transformers" {
    local picture
    for picture in rgb.png turned6.jpg; do
        llm-infer -m "$V" --precision f32 --classify --image "$I/$picture" > table
        cut -f2 table | cmp - <(jq -r --arg p $picture '.[$p].probabilities | to_entries | sort_by(-.value)[] | "class \(.key)"' "$V/expected.json")
        # six digits are printed
        near_lines <(cut -f3 table) <(jq --arg p $picture '.[$p].probabilities | sort | reverse[]' "$V/expected.json") 1.1e-6
        llm-infer -m "$V" --precision f32 --embed --image "$I/$picture" > out
        near_lines <(vector out) <(jq --arg p $picture '.[$p].vector[]' "$V/expected.json") 5e-6
    done
}

@test "a prepared stream, a picture, a checkpoint, any threads and batch: the same bytes" {
    llm-tokenize image --for "$V" "$I/rgb.png" "$I/turned6.jpg" "$I/cmyk.jpg" -o three.images
    llm-infer -m "$V" --classify --image three.images > table
    assert_equal "$(cut -f1 table | sort -u | tr '\n' ' ')" "1 2 3 "
    llm-infer -m "$V" --classify --image "$I/rgb.png" | cmp - <(grep '^1	' table)
    llm-infer -m "$V" --classify --image - < three.images | cmp - table
    llm-infer -m "$V" --classify --image three.images -j 2 -b 20 | cmp - table
    llm-quantize -q -t f32 "$V" model.llm
    llm-infer -m model.llm --classify --image three.images | cmp - table
    llm-quantize -q -t f32 --to safetensors model.llm again.safetensors
    llm-infer -m again.safetensors --classify --image three.images | cmp - table
    llm-infer -m "$V" --embed --normalize --dims 8 --image three.images > vectors
    run -0 grep -a -o '"shape":\[[0-9,]*\]' vectors
    assert_output $'"shape":[1,8]\n"shape":[1,8]\n"shape":[1,8]'
}

@test "a checkpoint keeps how its model wants pictures" {
    llm-infer -m "$V" --classify --image "$I/rgb.png" > table
    llm-quantize -q -t f32 "$V" model.llm
    llm-quantize -q -t f32 --to safetensors model.llm again.safetensors
    for model in model.llm again.safetensors; do
        llm-infer -m $model --classify --image "$I/rgb.png" | cmp - table
        llm-tokenize image --for $model "$I/turned6.jpg" | cmp - <(llm-tokenize image --for "$V" "$I/turned6.jpg")
    done
    llm-train -q --objective classify -c vit-nano --set num_labels=2 -n 0 -o new.llm
    refused 65 "new.llm: expected llm.preprocessor, which says how its model wants pictures; found none" llm-infer -m new.llm --classify \
        --image "$I/rgb.png"
}

@test "grey pictures in one message are embedded one by one" {
    printf '\0\0\x08\x03\0\0\0\x05\0\0\0\x16\0\0\0\x16' > five
    head -c $((5 * 22 * 22)) "$I/make.py" >> five
    llm-tokenize image --for "$V" five -o five.images
    llm-infer -m "$V" --classify --image five.images > table
    assert_equal "$(cut -f1 table | uniq -c | awk '{ print $1, $2 }' | tr '\n' ' ')" "7 1 7 2 7 3 7 4 7 5 "
}

@test "what is no picture, no model of pictures, or pictures of other sizes ends with one line" {
    refused 69 "vit reads pictures: expected --image" llm-infer -m "$V" hello
    refused 69 "vit reads pictures: expected --image" llm-infer -m "$V" --embed hello
    refused 69 "expected a model that reads pictures (vit, dinov2, clip, siglip, llava, idefics3), found llama" llm-infer -m "$ROOT/tests/golden/tiny" --embed --image "$I/rgb.png"
    refused 69 "--plan is of models that read text" llm-infer -m "$V" --plan --embed --image "$I/rgb.png"
    llm-tokenize image "$I/rgb.png" -o plain.images
    refused 65 "expected pictures of 1 crop, 3 channels, 22 x 22 pixels (the model's); found 1, 3, 20 x 18" llm-infer -m "$V" --embed --image plain.images
    llm-tokenize image --for "$I/next.json" "$I/rgb.png" -o crops.images
    refused 65 "found 5, 3, 12 x 12" llm-infer -m "$V" --embed --image crops.images
    head -c 3000 plain.images > cut.images
    refused 65 cut.images llm-infer -m "$V" --embed --image cut.images
    refused 65 "expected messages of kind images" llm-infer -m "$V" --embed --image "$V/model.safetensors"
    refused 66 absent.png llm-infer -m "$V" --embed --image absent.png
    run -69 llm-infer -m "$V" --image "$I/rgb.png"
    run -2 llm-infer -m "$V" --embed --image "$I/rgb.png" hello
    jq '.patch_size = 30' "$V/config.json" > config.json
    cp "$V/model.safetensors" .
    refused 65 "patch_size: expected at most 22 (image_size), found 30" llm-infer -m . --embed --image "$I/rgb.png"
    refused 69 "expected a model of texts, found one of pictures (vit)" llm-train -q -c "$V/config.json" -n 1 -o x.llm "$ROOT/tests/golden/formats/tokens.tok"
}
