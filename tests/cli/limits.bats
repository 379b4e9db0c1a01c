# Programs under limits: address space (ulimit -v), and memory that grows with the input.
load ../helper

setup_file() {
    sentences_tokens
}

# limited KIB COMMAND...: runs COMMAND with that much address space.
limited() {
    (ulimit -v "$1" && shift && "$@")
}

@test "address space is limited: every program works as without the limit, to the same bytes" {
    need_plain_memory
    llm-train -q -c "$ROOT/tests/golden/tiny/config.json" -T "$F/tok.json" --set vocab_size=512 -n 2 -b 4 --context 32 -j 2 -o whole.llm "$F/data.tok"
    llm-infer -m whole.llm -n 20 --temp 1 -j 2 "the red cat" > whole.text
    llm-infer -m whole.llm -n 3 --kv-out whole.kv "the red cat" > /dev/null
    llm-quantize -q -t q8_0 whole.llm whole.q8
    for kib in 400000 4000000 67000000; do
        limited $kib llm-train -q -c "$ROOT/tests/golden/tiny/config.json" -T "$F/tok.json" --set vocab_size=512 -n 2 -b 4 --context 32 -j 2 \
            -o small.llm "$F/data.tok"
        cmp whole.llm small.llm
        limited $kib llm-train -q --resume small.llm -n 3 -j 2 -o more.llm "$F/data.tok"
        limited $kib llm-infer -m whole.llm -n 20 --temp 1 -j 2 "the red cat" | cmp - whole.text
        limited $kib llm-infer -m whole.llm -n 3 --kv-out small.kv "the red cat" > /dev/null
        cmp whole.kv small.kv
        limited $kib llm-kvinspect whole.kv > /dev/null
        limited $kib llm-quantize -q -t q8_0 whole.llm small.q8
        cmp whole.q8 small.q8
        limited $kib llm-bench speed -q -m whole.llm -p 16 -n 4 -r 1 > /dev/null
        limited $kib llm-tokenize train -q --vocab-size 280 -o small.json "$F/text"
        cmp "$F/tok.json" small.json
        limited $kib llm-tokenize encode -T small.json --lines "$F/text" | cmp - "$F/data.tok"
    done
}

@test "address space that does not suffice is one line and status 69" {
    need_plain_memory
    run -69 --separate-stderr bash -c 'ulimit -v 150000; llm-train -q -c "$0" -T "$1" --set vocab_size=512 -n 1 -b 2048 --context 256 -j 1 -o small.llm "$2"' \
        "$ROOT/tests/golden/tiny/config.json" "$F/tok.json" "$F/data.tok"
    one_line "$stderr"
    nothing_left
}

@test "a system that maps no large ranges and none at an address of choice: every program works, to the same bytes" {
    need_plain_memory
    "${CC:-cc}" -shared -fPIC -O1 -w -o small_maps.so "$ROOT/tests/fault/small_maps.c"
    local new=(llm-train -q -c "$ROOT/tests/golden/tiny/config.json" -T "$F/tok.json" --set vocab_size=512 -n 2 -b 4 --context 32 "$F/data.tok")
    "${new[@]}" -o whole.llm
    llm-infer -m whole.llm -n 20 --temp 1 "the red cat" > whole.text
    export LD_PRELOAD=$PWD/small_maps.so
    "${new[@]}" -o small.llm
    llm-infer -m whole.llm -n 20 --temp 1 "the red cat" > small.text
    llm-bench speed -q -m whole.llm -p 16 -n 4 -r 1 > /dev/null
    unset LD_PRELOAD
    cmp whole.llm small.llm
    cmp whole.text small.text
}
