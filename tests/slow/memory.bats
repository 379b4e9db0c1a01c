# Memory over long inputs: constant for streams of text and of prompts, at most twice the bytes and 32 MB for what cannot be cut.
load ../helper

setup_file() {
    need_plain_memory
    memory_meter
    sentences_tokens
}

setup() {
    need_plain_memory
    M=$ROOT/tests/golden/tiny
}

# many N: the sentences N times, about 1 MB each.
many() {
    sentences 40000 > part
    for ((i = 0; i < $1; i++)); do cat part; done
}

@test "2 GB of text on standard input through llm-tokenize, in the memory of 20 MB" {
    set -o pipefail
    many 20 | within 64 llm-tokenize encode -q -T "$F/tok.json" -j 2 > few.tok
    local few=$(($(< "$BATS_TEST_TMPDIR/peak.kib") * 1024 / 1000000))
    many 2000 | within $((few + 8)) llm-tokenize encode -q -T "$F/tok.json" -j 2 | llm-tokenize decode -T "$F/tok.json" | cmp - <(many 2000)
}

@test "100,000 prompts through one llm-infer, in the memory of 1,000" {
    seq 100000 | sed 's/.*/{"id": &, "prompt": "the & cat", "max_tokens": 4}/' > prompts
    head -1000 prompts | within 100 llm-infer -q -m "$M" --jsonl --no-timings -j 2 > few
    local few=$(($(< "$BATS_TEST_TMPDIR/peak.kib") * 1024 / 1000000))
    within $((few + 4)) llm-infer -q -m "$M" --jsonl --no-timings -j 2 prompts > answers
    head -1000 answers | cmp - few
    jq -r .id answers | cmp - <(seq 100000)
}

@test "100,000 lines that cannot be used, in the memory of 1,000" {
    seq 100000 | sed 's/.*/{"id": &, "promt": "the & cat"}/' > prompts
    run -65 within 16 llm-infer -q -m "$M" --jsonl -o answers prompts
    jq -r 'select(.error).id' answers | cmp - <(seq 100000)
}

@test "a line of JSON of 50 MB and a word of 15.6 MB" {
    { printf '{"text": "'; many 50 | tr '\n' ' ' | head -c 50000000; printf '"}\n'; } > line
    within 132 llm-tokenize encode -q -T "$F/tok.json" -j 2 --jsonl -o line.tok line
    { printf '{"messages": [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": "'; many 51 | tr '\n' ' ' | head -c 50999000; printf '"}]}\n'; } > chat
    within 134 llm-tokenize encode -q -T "$F/tok.json" -j 2 --chat --chat-template chatml -o chat.tok chat
    mkdir folder
    jq '.added_tokens = [{id: (.model.vocab | length), content: "<s>", special: true}]' "$F/tok.json" > folder/tokenizer.json
    echo '{"bos_token": "<s>", "eos_token": "<s>"}' > folder/tokenizer_config.json
    for template in "$SHARED"/data/chat-templates/*.jinja; do
        # Those that demand tools are refused, within the same memory.
        run within 134 llm-tokenize encode -q -T folder -j 2 --chat --chat-template "$template" -o chat.tok chat
        [[ $status == 0 || $output == *"'NoneType' object is not iterable" || $output == *"'functions' is undefined" ]] || fail "$template: $output"
    done
    seq 3000000 | tr '0-9\n' 'a-k' | head -c 15600000 > word
    within 63 llm-tokenize encode -q -T "$F/tok.json" -j 2 -o word.tok word
    llm-tokenize decode -T "$F/tok.json" word.tok | cmp - word
}
