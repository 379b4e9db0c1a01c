# The pipelines that must always work, at small size: between programs nothing but pipes.
load ../helper

setup_file() {
    cc -O1 -o stories "$ROOT/tests/demo/stories.c"
    ./stories 60000 > corpus.txt
    ./stories 3000 2 > held-out.txt
    head -c 300 held-out.txt > prompt.txt
    llm-tokenize train --vocab-size 400 corpus.txt > tok.json
    llm-tokenize encode -T tok.json corpus.txt | llm-train -q -c nano -T tok.json --steps 6 --batch 2 --context 256 -o model.llm -
}

setup() {
    D=$BATS_FILE_TMPDIR M=$BATS_FILE_TMPDIR/model.llm
}

@test "text to tokenizer to tokens to model: through a pipe or through files, the same bytes" {
    llm-tokenize train --vocab-size 400 < "$D/corpus.txt" > tok.json
    cmp tok.json "$D/tok.json"
    llm-tokenize encode -T tok.json "$D/corpus.txt" > corpus.tok
    llm-train -q -c nano -T tok.json --steps 6 --batch 2 --context 256 -o file.llm corpus.tok
    # what the data was is part of the file: weights are compared
    llm-quantize -q -t f32 --to safetensors file.llm - | tail -c +10000 > file.bytes
    llm-quantize -q -t f32 --to safetensors "$M" - | tail -c +10000 > pipe.bytes
    cmp file.bytes pipe.bytes
    llm-infer -m file.llm -n 8 "Once upon a time" > file.out
    llm-infer -m "$M" -n 8 "Once upon a time" | cmp - file.out
}

@test "a model to fewer bits to a score to a number, nothing stored" {
    run -0 --separate-stderr bash -o pipefail -c 'llm-quantize -q -t q8_0 "$0/model.llm" - |
        llm-infer -m - --score -f "$0/held-out.txt" | awk "{s+=\$NF} END {print exp(-s/NR)}"' "$D"
    local piped=$output plain
    plain=$(llm-infer -m "$M" --score -f "$D/held-out.txt" | awk '{s+=$NF} END {print exp(-s/NR)}')
    awk -v a="$piped" -v b="$plain" 'BEGIN { exit !(a > 1 && b > 1 && a / b < 1.05 && b / a < 1.05) }' || fail "$piped and $plain"
}

@test "a prompt to a cache to its heads: a row a head, by pipe as by file" {
    llm-infer -m "$M" --kv-out - < "$D/prompt.txt" | llm-kvinspect heads - > heads.tsv
    [[ $(wc -l < heads.tsv) == 17 ]] # four layers of four heads, and the heading
    llm-infer -m "$M" --kv-out prompt.kv -n 0 -f "$D/prompt.txt"
    llm-kvinspect heads prompt.kv | cmp - heads.tsv
}

@test "everything in one line, from text to a picture of its cache" {
    run -0 bash -e -o pipefail -c '
        llm-tokenize encode -T "$0/tok.json" < "$0/corpus.txt" |
        llm-train -q -c nano -T "$0/tok.json" --steps 2 --batch 2 --context 256 -o - - |
        llm-quantize -q -t q8_0 - - |
        llm-infer -m - --kv-out - -f "$0/prompt.txt" |
        llm-kvinspect heads --png heads.png -' "$D"
    [[ $(wc -l <<< "$output") == 17 ]]
    [[ $(head -c 8 heads.png | od -A n -t x1 | tr -d ' ') == 89504e470d0a1a0a ]]
}

@test "streams joined by cat are one stream" {
    llm-tokenize encode -T "$D/tok.json" "$D/corpus.txt" > a.tok
    llm-tokenize encode -T "$D/tok.json" "$D/held-out.txt" > b.tok
    cat a.tok b.tok | llm-tokenize decode -T "$D/tok.json" | cmp - <(cat "$D/corpus.txt" "$D/held-out.txt")
    cat a.tok b.tok | llm-train -q -c nano -T "$D/tok.json" --steps 1 --batch 2 --context 16 -o one.llm -
    llm-train -q -c nano -T "$D/tok.json" --steps 1 --batch 2 --context 16 -o two.llm a.tok b.tok
    cmp <(llm-infer -m one.llm --score -f "$D/prompt.txt") <(llm-infer -m two.llm --score -f "$D/prompt.txt")
}

@test "a producer that dies is noticed by whoever reads it, and nothing is left" {
    llm-tokenize encode -T "$D/tok.json" "$D/corpus.txt" > whole.tok
    run -65 --separate-stderr bash -c 'head -c -100 whole.tok | llm-train -q -c nano -T "$0/tok.json" --steps 1 --context 16 -o cut.llm -' "$D"
    one_line "$stderr"
    [[ ! -e cut.llm ]]
    run -65 --separate-stderr bash -c 'head -c 200000 "$0" | llm-infer -m - -n 1 x' "$M"
    one_line "$stderr"
    run -65 --separate-stderr bash -c 'head -c 200000 "$0" | llm-quantize -q -t q8_0 - cut.llm' "$M"
    one_line "$stderr"
    [[ ! -e cut.llm ]]
    llm-infer -m "$M" --kv-out whole.kv -n 0 -f "$D/prompt.txt"
    run -65 --separate-stderr bash -c 'head -c -50 whole.kv | llm-kvinspect heads -'
    one_line "$stderr"
    run -65 --separate-stderr bash -c 'false | llm-kvinspect heads -'
    nothing_left
}

@test "a reader that has enough ends its writer in silence" {
    run -0 --separate-stderr bash -c 'llm-infer -q -m "$0/model.llm" --score -f "$0/held-out.txt" | head -n 1; echo "${PIPESTATUS[0]}" >&2' "$D"
    [[ $(wc -l <<< "$output") == 1 && ($stderr == 141 || $stderr == 0) ]]
    run -0 --separate-stderr bash -c 'yes "Once upon a time." | llm-tokenize encode -T "$0/tok.json" --text --lines | head -n 1; echo "${PIPESTATUS[1]}" >&2' "$D"
    [[ $stderr == 141 ]]
}

@test "many prompts through pipes come back in order, each with its id" {
    seq 1 20 | sed 's/.*/{"id": &, "prompt": "Number & said", "max_tokens": 3}/' | llm-infer -m "$M" --jsonl --no-timings > out.jsonl
    [[ $(grep -o '"id":[0-9]*' out.jsonl | cut -d : -f 2 | tr '\n' ' ') == "$(seq -s ' ' 1 20) " ]]
    # split over processes, as GNU parallel or a Slurm array would
    seq 1 20 | sed 's/.*/{"id": &, "prompt": "Number & said", "max_tokens": 3}/' > in.jsonl
    { head -n 7 in.jsonl | llm-infer -m "$M" --jsonl --no-timings; tail -n +8 in.jsonl | llm-infer -m "$M" --jsonl --no-timings; } | cmp - out.jsonl
}

@test "a checkpoint goes through zstd and a socket of other programs unharmed" {
    need_tool zstd
    zstd -q -t "$M"
    llm-quantize -q -t f32 --planes off "$M" - | zstd -q -dc > plain.safetensors
    llm-infer -m plain.safetensors --score -f "$D/prompt.txt" > plain
    llm-infer -m <(cat "$M") --score -f "$D/prompt.txt" | cmp - plain
}

@test "a config.json that names no end token takes the tokenizer's" {
    cat > config.json << 'END'
{"model_type": "llama", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
 "max_position_embeddings": 64, "tie_word_embeddings": true}
END
    llm-tokenize train --vocab-size 300 --special '<|a|>' --special '<|endoftext|>' -o tok.json "$D/corpus.txt"
    llm-tokenize encode -T tok.json -o corpus.tok "$D/held-out.txt"
    llm-train -q -c config.json -T tok.json --steps 0 -o new.llm corpus.tok
    run -0 bash -c 'zstd -q -dc new.llm | head -c 2000 | tr -d "\\\\" | grep -a -o "\"[a-z]*_[a-z_]*\":[0-9n][a-z0-9]*"'
    assert_line '"eos_token_id":1'
    llm-train -q -c config.json --set eos_token_id=7 -T tok.json --steps 0 -o set.llm corpus.tok
    run -0 bash -c 'zstd -q -dc set.llm | head -c 2000 | tr -d "\\\\" | grep -a -o "\"[a-z]*_[a-z_]*\":[0-9n][a-z0-9]*"'
    assert_line '"eos_token_id":7'
}
