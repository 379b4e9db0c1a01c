# llm-tokenize image: pictures to numbers, those of transformers' processors over Pillow (tests/golden/image/make.py).
load ../helper

setup() { G=$ROOT/tests/golden/image; }

# numbers FILE: of the first message of a stream of pictures, its FP32 data. FILE.header and FILE.shape have what was read of its header.
numbers() {
    local length shape begin end
    length=$(od -An -tu8 -N8 "$1")
    tail -c +9 "$1" | head -c "$length" > "$1.header"
    read -r shape begin end < <(jq -r '.pixel_values | "\(.shape | join(",")) \(.data_offsets[0]) \(.data_offsets[1])"' "$1.header")
    echo "$shape" > "$1.shape"
    tail -c +$((length + 9 + begin)) "$1" | head -c $((end - begin))
}

@test "pictures of every kind, configurations of every processor: the numbers of transformers over Pillow (DINOv3: torchvision), to the bit" {
    local picture config shape sum n=0
    while IFS=$'\t' read -r picture config shape sum; do
        rm -f out
        if [[ $config == - ]]; then llm-tokenize image "$G/$picture" -o out; else llm-tokenize image --for "$G/$config.json" -o out "$G/$picture"; fi
        [[ $(numbers out | sha256sum) == "$sum  -" && $(< out.shape) == "1,$shape" ]] || fail "$picture $config: $(< out.shape), expected $shape"
        n=$((n + 1))
    done < <(cat "$G/expected.tsv" "$G/dinov3.tsv")
    ((n > 150))
}

@test "a folder names its preprocessor_config.json; a pipe is a picture too; messages follow one another" {
    mkdir model
    cp "$G/clip.json" model/preprocessor_config.json
    llm-tokenize image --for model "$G/rgb.png" -o a
    llm-tokenize image --for "$G/clip.json" < "$G/rgb.png" > b
    cmp <(numbers a) <(numbers b)
    llm-tokenize image --for model "$G/rgb.png" "$G/grey.jpg" -o two
    run -0 grep -a -o 'llm.image.source":"[^"]*' two
    assert_output "llm.image.source\":\"$G/rgb.png"$'\n'"llm.image.source\":\"$G/grey.jpg"
    llm-tokenize image --for "$G/next.json" "$G/rgb.png" -o c
    numbers c > /dev/null
    run -0 jq -r '.__metadata__["llm.image.grid"]' c.header
    assert_output "2 2"
}

@test "a folder's processor_config.json goes first; config.json says the processor where none is named" {
    mkdir model
    cp "$G/clip.json" model/preprocessor_config.json
    jq '{processor_class: "LlavaProcessor", image_processor: .}' "$G/siglip.json" > model/processor_config.json
    llm-tokenize image --for model "$G/rgb.png" -o a
    llm-tokenize image --for "$G/siglip.json" "$G/rgb.png" -o b
    cmp a b
    echo '{"processor_class": "LlavaProcessor"}' > model/processor_config.json
    llm-tokenize image --for model "$G/rgb.png" -o a
    llm-tokenize image --for "$G/clip.json" "$G/rgb.png" -o b
    cmp a b
    local row
    for row in vit:vit0 deit:deit clip:clip dinov2:clip siglip:siglip llava:llava llava_next:next idefics3:idefics smolvlm:idefics dinov3_vit:dinov3-low; do
        jq 'del(.image_processor_type)' "$G/${row#*:}.json" > model/preprocessor_config.json
        echo '{"model_type": "'"${row%:*}"'"}' > model/config.json
        llm-tokenize image --for model "$G/rgb.png" -o a
        llm-tokenize image --for "$G/${row#*:}.json" "$G/rgb.png" -o b
        cmp a b
    done
    echo '{"model_type": "gpt2"}' > model/config.json
    refused 65 "model/preprocessor_config.json: expected image_processor_type" llm-tokenize image --for model "$G/rgb.png" -o x
    echo '{"image_processor": 3}' > model/processor_config.json
    refused 65 "model/processor_config.json: expected an object" llm-tokenize image --for model "$G/rgb.png" -o x
    rm model/*
    refused 66 "model/preprocessor_config.json" llm-tokenize image --for model "$G/rgb.png" -o x
}

# chunk TYPE: a chunk of PNG with the data from standard input.
chunk() {
    local data sum
    data=$(mktemp -p .)
    { printf %s "$1"; cat; } > "$data"
    # gzip ends with the same sum, the other way round, and the length
    sum=$(gzip -c "$data" | tail -c 8 | head -c 4 | od -An -tx1 | awk '{print "\\x" $4 "\\x" $3 "\\x" $2 "\\x" $1}')
    printf '%b' "$(printf '%08x' $(($(wc -c < "$data") - 4)) | sed 's/../\\x&/g')"
    cat "$data"
    printf '%b' "$sum"
}

# jpeg APP1: rgb.jpg with the file as its segment of metadata.
jpeg() {
    head -c 2 "$G/rgb.jpg"
    printf '\xff\xe1%b' "$(printf '%04x' $(($(wc -c < "$1") + 2)) | sed 's/../\\x&/g')"
    cat "$1"
    tail -c +3 "$G/rgb.jpg"
}

# png: rgb.png with the chunk from standard input.
png() { head -c -12 "$G/rgb.png"; cat; tail -c 12 "$G/rgb.png"; }

@test "the orientation is found wherever Pillow finds it: EXIF of any integer type, after its name, as ImageMagick's profile, and in XMP" {
    local tiff='MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0' xmp name
    xmp='<rdf:Description xmlns:tiff="t" tiff:Orientation="6"/>'
    { printf 'Exif\0\0'; printf "$tiff"; } > exif
    jpeg exif > right.jpg
    printf "$tiff" | chunk eXIf | png > right.png
    for name in jpg png; do # each as it should be: turned, other than the plain picture
        llm-tokenize image right.$name -o right.$name.out
        numbers right.$name.out > right.$name.numbers
        llm-tokenize image "$G/rgb.$name" -o plain.out
        run -1 cmp -s <(numbers plain.out) right.$name.numbers
    done
    sed 's/\x12\x00\x03/\x12\x00\x08/' exif > segment; jpeg segment > short.jpg
    { printf 'http://ns.adobe.com/xap/1.0/\0'; echo "$xmp"; } > segment; jpeg segment > xmp.jpg
    { printf 'http://ns.adobe.com/xap/1.0/\0'; echo '<tiff:Orientation>6</tiff:Orientation>'; } > segment; jpeg segment > element.jpg
    chunk eXIf < exif | png > named.png
    { printf 'XML:com.adobe.xmp\0\0\0\0\0'; echo "$xmp"; } | chunk iTXt | png > xmp.png
    { printf 'Raw profile type exif\0\nexif\n      32\n'; od -An -v -tx1 exif | tr -d ' '; } | chunk tEXt | png > profile.png
    for name in short.jpg xmp.jpg element.jpg named.png xmp.png profile.png; do
        llm-tokenize image $name -o out
        cmp <(numbers out) "right.${name#*.}.numbers" || fail "$name"
    done
    # EXIF goes before XMP; a value without a place, or none, is no orientation
    { printf 'Exif\0\0'; printf '%b' "${tiff/x06/x01}"; } > segment; jpeg segment > one.jpg
    { printf 'http://ns.adobe.com/xap/1.0/\0'; echo "$xmp"; } > segment
    { head -c 2 one.jpg; jpeg segment | tail -c +3 | head -c $(($(wc -c < segment) + 4)); tail -c +3 one.jpg; } > both.jpg
    sed 's/\x03\x00\x00\x00\x01\x00\x06/\x03\x00\x00\x00\x00\x00\x06/' exif > segment; jpeg segment > none.jpg
    llm-tokenize image "$G/rgb.jpg" -o plain.out
    for name in both.jpg none.jpg; do
        llm-tokenize image $name -o out
        cmp <(numbers out) <(numbers plain.out) || fail "$name"
    done
}

@test "a version of Pillow before 13 takes columns first, which shows where a picture gets much lower" {
    llm-tokenize image --for "$G/vit2.json" "$G/tall.png" -o new
    llm-tokenize image --for "$G/vit2.json" --pillow 12 "$G/tall.png" -o old
    run -1 cmp new old
    # Pillow 9.4's result of the same call
    run -0 bash -c "$(declare -f numbers); numbers old | sha256sum"
    assert_output "92eacab20ffddaa99eb192862f87a1ef00f6ce26276084125d909125c56287cd  -"
}

@test "lines of JSON: path, text, label" {
    printf '%s\n' '{"image": "'"$G"'/rgb.png", "text": "a cat", "label": 3}' '' '{"image": "'"$G"'/grey.png"}' > list.jsonl
    llm-tokenize image --jsonl --for "$G/siglip.json" list.jsonl -o out
    numbers out > /dev/null
    run -0 jq -r '.__metadata__["llm.text"], .labels.shape[0], .labels.dtype' out.header
    assert_output $'a cat\n1\nI64'
    printf '{"path": "%s"}' "$G/rgb.png" | llm-tokenize image --jsonl --field path --for "$G/siglip.json" -o other
    cmp <(numbers out) <(numbers other)
}

@test "IDX files: grey pictures and their classes" {
    head -c $((70 * 6)) "$G/make.py" | idx pictures 70 2 3
    head -c 70 "$G/make.py" | idx classes 70
    llm-tokenize image --labels classes pictures -o out
    numbers out > data
    assert_equal "$(< out.shape)" 64,1,1,2,3
    run -0 od -An -tf4 -N4 data
    assert_output --regexp '0\.1372'
    run -0 jq -c '.labels.shape' out.header
    assert_output '[64]'
    llm-tokenize image --for "$G/siglip.json" pictures -o three
    numbers three > /dev/null
    assert_equal "$(< three.shape)" 64,1,3,16,16
    head -c 69 "$G/make.py" | idx few 69
    refused 65 "few: expected 70 labels, as there are pictures in pictures, found 69" llm-tokenize image --labels few pictures -o x
    head -c 100 pictures > cut
    refused 65 "cut: byte 16: cut short" llm-tokenize image cut -o x
    { cat pictures; echo; } > long
    refused 65 "bytes after the last element" llm-tokenize image long -o x
    refused 65 "expected an IDX file of 1 dimensions, found 3" llm-tokenize image --labels pictures pictures -o x
    refused 65 "expected an IDX file of pictures" llm-tokenize image --labels classes "$G/rgb.png" -o x
}

@test "a PNG of a few bytes that claims 60,000 x 60,000 pixels is refused before there is memory for it" {
    need_plain_memory
    { head -c 16 "$G/rgb.png"; printf '\0\0\xea\x60\0\0\xea\x60\x08\x02\0\0\0\x0f\xb0\xe2\x15'; tail -c +34 "$G/rgb.png"; } > bomb.png
    (ulimit -v 500000; refused 65 "bomb.png: PNG: 60000 x 60000 pixels cannot be in a file" llm-tokenize image bomb.png -o x)
}

@test "bad pictures and configurations end with one line" {
    head -c 300 "$G/rgb.png" > cut.png
    refused 65 "cut.png: PNG: cut short" llm-tokenize image cut.png -o x
    head -c 500 "$G/rgb.jpg" > cut.jpg
    refused 65 "cut.jpg: JPEG: " llm-tokenize image cut.jpg -o x
    refused 65 "expected a picture, found an empty file" llm-tokenize image /dev/null -o x
    echo text > text
    refused 65 "text: expected a picture (PNG, JPEG)" llm-tokenize image text -o x
    refused 66 "absent.png" llm-tokenize image absent.png -o x
    echo '{"image": "text"}' > list
    refused 65 "list: line 1: text: expected a picture" llm-tokenize image --jsonl list -o x
    echo '{"picture": "text"}' > list
    refused 65 'list: line 1: expected "image"' llm-tokenize image --jsonl list -o x
    local wrong
    for wrong in '{"size": 3}|expected image_processor_type' '{"image_processor_type": "Nobody"}|image_processor_type: unknown '"'Nobody' (known: ViT" \
        '{"image_processor_type": "ViTImageProcessor", "size": {"depth": 3}}|size: expected height and width' \
        '{"image_processor_type": "ViTImageProcessor", "resample": 9}|'"'resample': expected 0 to 5" \
        '{"image_processor_type": "CLIPImageProcessor", "image_mean": [1, 2]}|image_mean: expected 3 numbers' \
        '{"image_processor_type": "CLIPImageProcessor", "crop_size": -1}|'"'crop_size': expected 1" \
        '{"image_processor_type": "LlavaNextImageProcessor", "image_grid_pinpoints": [[1]]}|image_grid_pinpoints: 0' \
        '{"image_processor_type": "DINOv3ViTImageProcessor", "resample": 3}|resample: expected 2 (bilinear), found 3' \
        '{"image_processor_type": "DINOv3ViTImageProcessor", "do_rescale": false}|do_rescale: expected true'; do
        echo "${wrong%%|*}" > wrong.json
        refused 65 "wrong.json: ${wrong#*|}" llm-tokenize image --for wrong.json "$G/rgb.png" -o x
    done
    [[ ! -e x ]]
    run -2 llm-tokenize image --field path "$G/rgb.png" -o x
    run -2 llm-tokenize image --labels a b c -o x
}
