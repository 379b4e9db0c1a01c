#!/usr/bin/env bats
# The pages in formats/ against the goldens, and the goldens against other people's programs.
load ../helper

GOLDEN=$ROOT/tests/golden/formats

@test "the hex example of each page is its golden, byte for byte" {
    local page file n=0
    for page in "$ROOT"/formats/*.md; do
        file=$(sed -n 's/^```hex //p' "$page")
        [[ -n $file ]] || continue
        n=$((n + 1))
        sed -n '/^```hex /,/^```$/p' "$page" | sed '1d;$d' > page.hex
        od -A x -t x1z -v "$GOLDEN/$file" > golden.hex
        cmp page.hex golden.hex || fail "$page: the example is not $file"
    done
    [[ $n == 6 ]]
}

@test "file(1) names every format with formats/magic" {
    need_tool file
    run -0 file -b -m "$ROOT/formats/magic" "$GOLDEN"/{checkpoint.llm,tokens.tok,cache.kv,logits.tensors,q8_0.tensors,native.safetensors,foreign.safetensors}
    assert_line -n 0 "llmutils checkpoint (zstd) version 1"
    assert_line -n 1 "llmutils tensor message: token stream"
    assert_line -n 2 "llmutils tensor message: KV cache"
    assert_line -n 3 "llmutils tensor message: logits"
    assert_line -n 4 "llmutils tensor message: kind weights"
    assert_line -n 5 "llmutils tensor message: checkpoint (plain safetensors)"
    assert_line -n 6 "safetensors"
}

@test "zstd -t verifies a checkpoint, zstd -dc of one without planes is a plain safetensors file" {
    need_tool zstd
    run -0 zstd -q -t "$GOLDEN/checkpoint.llm" "$GOLDEN/native.llm"
    zstd -q -dc "$GOLDEN/native.llm" | cmp - "$GOLDEN/native.safetensors"
    run ! zstd -q -t "$GOLDEN/bad/changed-data.llm"
}

@test "each bad golden is in the list, and each of the list is there" {
    cut -f 1 "$GOLDEN/bad.tsv" | sort > listed
    (cd "$GOLDEN" && printf '%s\n' bad/*) | sort > there
    cmp listed there
}

@test "tokenizer tables alone are a tokenizer: the one of the same vocabulary in JSON" {
    printf ab | llm-tokenize train --model char --special '<e>' -o tok.json
    run -0 llm-tokenize info -T "$GOLDEN/tokenizer.safetensors"
    assert_output "$(llm-tokenize info -T tok.json)"
    assert_line $'id\tff9abae39d93d1f5b3a9e6d5661b789470ea686207a83e72f19f8d41f37014db'
    run -0 bash -c 'printf "ab<e>a" | llm-tokenize encode --special --text -T "$0"' "$GOLDEN/tokenizer.safetensors"
    assert_output "0 1 2 0"
}
