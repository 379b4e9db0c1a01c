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
        jq ".cases[$number].nll[]" "$golden" | paste - <(cut -f3 scores.tsv) | awk '{ d = $1 + $2; if (d < 0) d = -d; if (d > 2e-4) exit 1 } END { exit NR < 4 }'
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
