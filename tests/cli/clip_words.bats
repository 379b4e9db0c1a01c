# Tokenizers whose words end in "</w>", and a CLIP folder as transformers saves it, beside transformers (tests/oracle/clip_words.py, clip_tokenizer.py).
load ../helper

setup() {
    V=$ROOT/tests/golden/clip-words
    jq -c '.texts[] | {text: .}' "$V/expected.json" > lines
    jq -r '.ids[] | map(tostring) | join(" ")' "$V/expected.json" > ids
}

encoded() { llm-tokenize encode -T "$1" --jsonl --text --special --add-special lines; }

# two_files FOLDER CLASS: vocab.json and merges.txt of the golden, and whose they are
two_files() {
    mkdir -p "$1"
    jq .model.vocab "$V/tokenizer.json" > "$1/vocab.json"
    (echo "#version: 0.2" && jq -r '.model.merges[] | join(" ")' "$V/tokenizer.json") > "$1/merges.txt"
    echo "{\"tokenizer_class\": \"$2\"}" > "$1/tokenizer_config.json"
}

@test "a folder of transformers: ids and texts are its own; so are those of vocab.json with merges.txt, of our tokenizer.json and of tables" {
    local t
    two_files files CLIPTokenizerFast
    llm-tokenize info -T files --export > own.json
    llm-quantize -q -t f32 "$V" model.llm
    for t in "$V" files own.json model.llm; do
        encoded "$t" | diff - ids
        diff <(llm-tokenize info -T "$t") <(llm-tokenize info -T "$V")
        llm-tokenize decode -T "$t" --text --separator $'\n' ids | diff -a - <(jq -r '.decoded[]' "$V/expected.json")
    done
    # a text's last word ends without a blank; a word alone, as it stands in a text, with one
    assert_equal "$(printf 'a photo' | llm-tokenize encode -T "$V" --text | llm-tokenize decode -T "$V" --text && echo .)" "a photo."
    llm-tokenize info -T "$V" --vocab | cut -f3 | grep -qxF '"the "'
}

@test "a published CLIP: vectors of texts and zero-shot classes are those of transformers" {
    local label
    # the text of a prompt has no special tokens: the one with "<|endoftext|>" goes as ids
    jq -c '[.texts, .ids] | transpose[] | if .[0] | contains("<|") then {ids: .[1]} else {prompt: .[0]} end' "$V/expected.json" > prompts
    llm-infer -m "$V" --precision f32 --embed --embd-normalize -1 --jsonl prompts > vectors
    near_lines <(jq '.embedding[]' vectors) <(jq '.vectors[][]' "$V/expected.json") 5e-6
    jq -r '.labels[]' "$V/expected.json" > labels
    llm-infer -m "$V" --precision f32 --classify --labels 'a photo of a {}' --image "$ROOT/tests/golden/image/rgb.png" labels > got
    near_lines <(while read -r label; do awk -F'\t' -v l="$label" '$2 == l { print $3 }' got; done < labels) \
        <(jq '.probabilities[]' "$V/expected.json") 3e-6 # six digits are printed
}

@test "--labels imagenet-80 and imagenet-7: the templates that CLIP's authors published" {
    local i article seven=() all=()
    jq -r '.labels[]' "$V/expected.json" > labels
    zero() { llm-infer -m "$V" --precision f32 --classify "$@" --image "$ROOT/tests/golden/image/rgb.png" labels; }
    for i in 'itap of a {}.' 'a bad photo of the {}.' 'a origami {}.' 'a photo of the large {}.' 'a {} in a video game.' 'art of the {}.' \
        'a photo of the small {}.'; do
        seven+=(--labels "$i")
    done
    zero "${seven[@]}" > want
    zero --labels imagenet-7 | cmp - want
    # the same 80 in another order: nearly the same means
    for article in the a; do
        for i in '' bad\  good\  low\ resolution\  cropped\  close-up\  bright\  dark\  black\ and\ white\  pixelated\  blurry\  jpeg\ corrupted\ ; do
            all+=(--labels "a ${i}photo of $article {}.")
        done
        for i in 'a sculpture' 'a rendering' 'a rendition' 'a drawing' 'a painting' 'a sketch' 'a doodle' 'a tattoo' graffiti art itap; do
            all+=(--labels "$i of $article {}.")
        done
        for i in 'hard to see' clean dirty cool nice weird small large; do all+=(--labels "a photo of $article $i {}."); done
        for i in embroidered plastic origami toy cartoon plushie; do all+=(--labels "$article $i {}."); done
        all+=(--labels "$article {} in a video game.")
    done
    for i in many one my; do all+=(--labels "a photo of $i {}."); done
    all+=(--labels 'itap of my {}.')
    assert_equal "${#all[@]}" 160
    zero "${all[@]}" > want
    zero --labels imagenet-80 > got
    diff <(cut -f1,2 got) <(cut -f1,2 want)
    near_lines <(tail -n +2 got | cut -f3) <(tail -n +2 want | cut -f3) 3e-6
    zero --labels imagenet-7 > few
    run -1 cmp -s few got
    # an ensemble counts once for each of its templates
    zero --labels imagenet-7 --labels imagenet-7 | cmp - few
    refused 2 "expected a template with {} in it, imagenet-80 or imagenet-7, found 'imagenet'" \
        llm-infer -m "$V" --classify --labels imagenet --image "$ROOT/tests/golden/image/rgb.png" labels
}

# tok MODEL [PRE [NORMALIZER]]: a tokenizer.json whose decoder is BPEDecoder
tok() {
    printf '{"normalizer": %s, "pre_tokenizer": %s, "decoder": {"type": "BPEDecoder", "suffix": "</w>"}, "model": %s}' "${3-null}" "${2-null}" "$1"
}

letters='{"type": "BPE", "unk_token": "?", "end_of_word_suffix": "</w>", "vocab": {"?": 0, "a": 1, "a</w>": 2, "b": 3, "b</w>": 4, "ab": 5,
    "ab</w>": 6, "é</w>": 7, "aab</w>": 8, "▁": 9, "aa": 10}, "merges": ["a b", "a b</w>", "a ab</w>", "a a"]}'

@test "of characters, as GPT-1 has it: the last character of a word has tokens of its own, long words too" {
    tok "$letters" '{"type": "BertPreTokenizer"}' '{"type": "BertNormalizer", "strip_accents": false}' > tok.json
    ids() { llm-tokenize encode -T "${2-tok.json}" --text <<< "$1"; }
    assert_equal "$(ids 'AB ab! aba b é éa aab a▁ab')" "6 6 0 5 2 4 7 0 2 8 1 9 6"
    assert_equal "$(ids 'ab aba é' | llm-tokenize decode -T tok.json --text && echo .)" "ab aba é."
    word=$(printf 'ab%.0s' {1..200000})
    assert_equal "$(ids "${word}a" | tr ' ' '\n' | uniq -c | tr -s ' ')" $' 200000 5\n 1 2'
    assert_equal "$(ids "${word}" | tr ' ' '\n' | uniq -c | tr -s ' ')" $' 199999 5\n 1 6'
}

@test "of bytes: words of every length end in a token that ends words, and no part of a long one does" {
    local n
    for n in 1 2 15 16 64 65 300 400001; do
        printf '"the%s\n' "$(head -c "$n" /dev/zero | tr '\0' q)" | llm-tokenize encode -T "$V" --text | tr ' ' '\n' > got
        q=$(jq '.model.vocab.q' "$V/tokenizer.json") last=$(jq '.model.vocab["q</w>"]' "$V/tokenizer.json")
        assert_equal "$(awk -v q="$q" '$1 == q' got | wc -l)" "$((n - 1))"
        assert_equal "$(tail -n 1 got)" "$last"
    done
}

@test "bytes that are no UTF-8 become U+FFFD for a normaliser that reads characters" {
    printf 'a \xFF\x80 Photo \xE4\xB8' | llm-tokenize encode -T "$V" --text > got
    printf 'a \uFFFD\uFFFD Photo \uFFFD\uFFFD' | llm-tokenize encode -T "$V" --text | cmp - got
}

@test "what is not supported beside a suffix, and whose files are not known, is said by name" {
    tok '{"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "▁"}' '{"type": "ByteLevel"}' | jq 'del(.decoder)' > tok.json
    refused 69 "end_of_word_suffix '▁': with ByteLevel only printable ASCII is supported" llm-tokenize info -T tok.json
    tok "$(jq -c '.byte_fallback = true' <<< "$letters")" > tok.json
    refused 69 "'byte_fallback' with an end_of_word_suffix is not supported" llm-tokenize info -T tok.json
    tok "$(jq -c '.end_of_word_suffix = 3' <<< "$letters")" > tok.json
    refused 65 "end_of_word_suffix" llm-tokenize info -T tok.json
    tok "$(jq -c '.vocab |= del(.["a</w>"]) | .merges = []' <<< "$letters")" '{"type": "ByteLevel"}' | jq 'del(.decoder)' > tok.json
    run -65 --separate-stderr llm-tokenize encode -T tok.json --text <<< a
    one_line "$stderr"
    [[ $stderr == *"has no token in this vocabulary" ]]
    two_files files RobertaTokenizer
    refused 69 "files: vocab.json and merges.txt of tokenizer_class 'RobertaTokenizer': expected GPT2Tokenizer or CLIPTokenizer" llm-tokenize info -T files
    rm files/tokenizer_config.json
    refused 69 "tokenizer_class ''" llm-tokenize info -T files
    cp "$ROOT"/tests/golden/tiny/{config.json,model.safetensors} .
    tok "$letters" > tokenizer.json
    refused 69 "GGUF cannot say that tokens end words (end_of_word_suffix '</w>')" llm-quantize -q -t keep --to gguf . out.gguf
}
