# GGUF models run as they are: stories260K against a forward pass in double, from a file and from a pipe; what is no model is one line.
load ../helper

setup() {
    S=$ROOT/tests/golden/formats/sample.gguf
}

# A bad model: status 65, one line that says so, nothing on standard output.
refused() {
    local says=$1
    shift
    run -65 --separate-stderr "$@"
    assert_equal "$output" ""
    [[ $(wc -l <<< "$stderr") == 1 ]]
    [[ $stderr == *"$says"* ]] || { echo "expected '$says', found: $stderr"; return 1; }
}

@test "a trained model in GGUF: text, tokens and log-probabilities are those of the golden; a pipe gives the same" {
    need_tool jq
    need_shared models/stories260K/stories260K-f32.gguf
    M=$SHARED/data/models/stories260K/stories260K-f32.gguf
    golden=$SHARED/data/golden/model/stories260K-logits.json
    jq -e '.cases | length >= 3' "$golden"
    for number in 0 1 2; do
        prompt=$(jq -r ".cases[$number].prompt" "$golden")
        n=$(jq ".cases[$number] | (.greedy_ids | length) - (.ids | length)" "$golden")
        run -0 --separate-stderr llm-infer -m "$M" --precision f32 --temp 0 -n "$n" --ids "$(jq -r ".cases[$number].ids | join(\" \")" "$golden")"
        assert_output "$(jq -r ".cases[$number] | .greedy_ids[(.ids | length):] | join(\" \")" "$golden")"
        llm-infer -m "$M" --precision f32 --score "$prompt" > scores.tsv
        near_lines <(cut -f3 scores.tsv) <(jq ".cases[$number].nll[] | -." "$golden") 2e-4
    done
    cat "$M" | llm-infer -m - --precision f32 --score "$prompt" > piped.tsv
    cmp scores.tsv piped.tsv
}

@test "a GGUF model becomes an .llm that says the same" {
    need_shared models/stories260K/stories260K-f32.gguf
    M=$SHARED/data/models/stories260K/stories260K-f32.gguf
    llm-quantize -q -t f32 "$M" model.llm
    llm-infer -m "$M" --precision f32 --temp 0 -n 40 "Once upon a time" > straight
    llm-infer -m model.llm --precision f32 --temp 0 -n 40 "Once upon a time" > converted
    [[ -s straight ]]
    cmp straight converted
}

@test "what is no model is refused" {
    refused "sample.gguf: tensor 'token_embd.weight': expected" llm-infer -m "$S" x
    printf 'GGUF\3\0\0\0' > short.gguf
    refused "short.gguf: byte 8: number of tensors: cut short: expected 8 bytes, found 0" llm-infer -m short.gguf x
    head -c 500 "$S" > cut.gguf
    refused "cut.gguf: byte" llm-infer -m cut.gguf x
    { printf 'GGUF\1\0\0\0'; tail -c +9 "$S"; } > old.gguf
    refused "old.gguf: byte 4: expected GGUF version 2 or 3, found 1" llm-infer -m old.gguf x
    sed 's/general.architecture/general.architectura/' "$S" > nameless.gguf
    refused "general.architecture: expected one of gpt2, llama, qwen2" llm-infer -m nameless.gguf x
}

@test "damaged GGUF models are refused in one line: cut anywhere, without merges, with a vocabulary that does not fit" {
    llm-quantize -q -t keep "$ROOT/tests/golden/tiny" m.gguf
    size=$(stat -c %s m.gguf)
    for cut in 4 8 16 24 32 100 1000 5000 $((size / 2)) $((size - 4096)) $((size - 64)) $((size - 1)); do
        head -c "$cut" m.gguf > cut.gguf
        refused "cut.gguf" llm-infer -m cut.gguf x
        refused "standard input" llm-infer -m - x < cut.gguf
    done
    sed 's/tokenizer.ggml.merges/tokenizer.ggml.mergez/' m.gguf > bad.gguf
    refused "tokenizer.ggml.merges" llm-infer -m bad.gguf x
    sed 's/tokenizer.ggml.token_type/tokenizer.ggml.tokens\x00\x00\x00\x00\x00/' m.gguf > bad.gguf
    refused "bad.gguf" llm-infer -m bad.gguf x
    sed 's/llama.embedding_length/llama.embedding_lengtX/' m.gguf > bad.gguf
    refused "bad.gguf" llm-infer -m bad.gguf x
    # counts of 2^63
    { head -c 8 m.gguf; printf '\0\0\0\0\0\0\0\200'; tail -c +17 m.gguf; } > bad.gguf
    refused "number of tensors: expected at most" llm-infer -m bad.gguf x
    { head -c 16 m.gguf; printf '\0\0\0\0\0\0\0\200'; tail -c +25 m.gguf; } > bad.gguf
    refused "number of metadata values: expected at most" llm-infer -m bad.gguf x
}

@test "a split file without its other parts is refused by their name" {
    llm-quantize -q -t keep --split-max-tensors 12 --to gguf "$ROOT/tests/golden/tiny" m.gguf
    [[ -e m-00001-of-00002.gguf ]]
    rm m-00002-of-00002.gguf
    run -66 --separate-stderr llm-infer -m m-00001-of-00002.gguf x
    [[ $stderr == *"m-00002-of-00002.gguf"*"No such file"* && $(wc -l <<< "$stderr") == 1 ]] || { echo "$stderr"; return 1; }
}
