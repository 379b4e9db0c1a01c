# Models of rwkv.cpp: run, converted, and refused.
load ../helper
export LLM_THREADS=1

setup() {
    need_shared models/rwkv-tiny
    tiny=$SHARED/data/models/rwkv-tiny/tiny-rwkv-4v0-660K
    llm-tokenize train --model byte -o bytes.json < /dev/null
}

@test "a model of rwkv.cpp continues a text, from a pipe and as .llm the same" {
    run=(llm-infer -T bytes.json -n 20 --temp 0 --no-timings)
    "${run[@]}" -m "$tiny-FP32.bin" '"in' > text
    "${run[@]}" -m - '"in' < "$tiny-FP32.bin" | cmp - text
    llm-quantize -q -t keep "$tiny-FP32.bin" model.llm
    "${run[@]}" -m model.llm '"in' | cmp - text
    llm-infer -T bytes.json -m "$tiny-Q5_1.bin" -n 4 --temp 0 --no-timings '"in' > /dev/null
}

@test "models of RWKV 5.2, 6 and 7 continue a text, from .llm the same" {
    for name in 5v2-730K-FP32 6v0-3m-Q5_1 7v0-834K-FP16; do
        run=(llm-infer -T bytes.json -n 20 --temp 0 --no-timings)
        "${run[@]}" -m "${tiny%4v0*}$name.bin" '"in' > text
        llm-quantize -q -t keep "${tiny%4v0*}$name.bin" model.llm
        "${run[@]}" -m model.llm -b 1 '"in' | cmp - text
        llm-infer -T bytes.json -m model.llm -n 20 --temp 0 --jsonl <<< '{"prompt": "\"in"}
{"prompt": "another"}' > answers
        assert_equal "$(head -n 1 answers | jq -j .text)" "$(< text)"
    done
}

@test "a folder with RWKV's vocabulary needs no other tokenizer" {
    mkdir folder
    llm-quantize -q -t keep "${tiny%4v0*}7v0-834K-FP32.bin" folder/model.safetensors
    head -c 100000 folder/model.safetensors | tail -c +9 | jq -n 'input' | jq -r '.__metadata__["llm.config"]' > folder/config.json
    for ((i = 1; i < 256; i++)); do printf "%d b'\\x%02x' 1\n" $i $i; done > folder/rwkv_vocab_v20230424.txt
    assert_equal "$(printf '"in' | llm-tokenize encode -T folder --text)" "34 105 110"
    llm-infer -m folder -n 20 --temp 0 --no-timings '"in' > text
    llm-infer -m "${tiny%4v0*}7v0-834K-FP32.bin" -T folder -n 20 --temp 0 --no-timings '"in' | cmp - text
    rm folder/rwkv_vocab_v20230424.txt
    run -66 --separate-stderr llm-tokenize encode -T folder --text /dev/null
    [[ $stderr == *"expected a tokenizer.json, "*", or rwkv_vocab_v20230424.txt, in this folder" ]]
}

@test "one that is cut, and one of a version that is not known, are refused" {
    head -c 100000 "$tiny-FP32.bin" > cut.bin
    run -65 --separate-stderr llm-infer -T bytes.json -m cut.bin -n 1 a
    [[ $stderr == "llm-infer: cut.bin: byte "*": a tensor's data: cut short" ]]
    # version 5.1 has no gate
    LC_ALL=C sed 's/att\.gate\.weight/att.gone.weight/' "${tiny%4v0*}5v2-730K-FP32.bin" > old.bin
    run -69 --separate-stderr llm-infer -T bytes.json -m old.bin -n 1 a
    [[ $stderr == *"expected a model of RWKV 4, 5.2, 6 or 7, found one with 'blocks.0.att.ln_x.weight'" ]]
}
