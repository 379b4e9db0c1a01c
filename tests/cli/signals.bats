# A signal while a program waits, loads, reads a prompt or makes tokens: it dies of it at once, and leaves nothing behind.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    mkfifo silent
    exec 7<> silent
}

teardown() {
    exec 7<&-
}

# dies SIGNAL STATUS COMMAND...: COMMAND, a second old, dies of SIGNAL; standard input is a pipe on which nothing comes.
dies() {
    local signal=$1 want=$2
    shift 2
    run -"$want" timeout --preserve-status -k 600 -s "$signal" 1 "$@" < silent
    nothing_left
}

@test "llm-train: a signal while nothing comes on the pipe that it reads, spooled or with --stream" {
    dies INT 130 llm-train -q -c nano -T "$M/tokenizer.json" --stream -n 5 -o out.llm -
    dies TERM 143 llm-train -q -c nano -T "$M/tokenizer.json" --stream -n 5 -o out.llm -
    dies INT 130 llm-train -q -c nano -T "$M/tokenizer.json" -n 5 -o out.llm -
    assert_not_exist out.llm
}

@test "llm-train --stream: a signal between two parts of the data" {
    llm-tokenize encode -q -T "$M/tokenizer.json" "$ROOT/README.md" > data.tok
    head -c 5000 data.tok >&7
    dies INT 130 llm-train -q -c nano -T "$M/tokenizer.json" --stream -n 5 -o out.llm -
    assert_not_exist out.llm
}

@test "llm-infer: a signal while it waits for a model, a prompt, lines or turns" {
    dies INT 130 llm-infer -m - hello
    dies INT 130 llm-infer -m "$M"
    dies TERM 143 llm-infer -m "$M" --score
    dies INT 130 llm-infer -m "$M" --jsonl
    dies HUP 129 llm-infer -m "$M" --chat --chat-template chatml
}

@test "llm-tokenize and llm-quantize: a signal while nothing comes" {
    dies INT 130 llm-tokenize encode -T "$M/tokenizer.json" -o out.tok
    dies INT 130 llm-tokenize train -o tok.json -
    dies INT 130 llm-quantize -t q8_0 - out.llm
    assert_not_exist out.tok
    assert_not_exist tok.json
    assert_not_exist out.llm
}

@test "llm-kvinspect: a signal while nothing comes; llm-quantize: while nobody takes what it writes" {
    llm-train -q -c nano -T "$M/tokenizer.json" -n 0 -o fresh.llm
    dies INT 130 llm-kvinspect -
    mkfifo full
    exec 8<> full
    run -130 bash -c 'timeout --preserve-status -k 600 -s INT 1 llm-quantize -q -t f32 fresh.llm - > full'
    exec 8<&-
    nothing_left
}

@test "llm-infer: a signal while it reads a prompt, and while it makes tokens" {
    printf 'word %.0s' {1..200000} > long.txt
    dies INT 130 llm-infer -m "$M" -j 2 -c 1M -n 0 --kv-out cache.kv -f long.txt
    dies INT 130 llm-infer -m "$M" -j 2 -c 1M --score -f long.txt -o scores.tsv
    dies INT 130 llm-infer -m "$M" -j 2 -c 1M -n -1 --ignore-eos -o out.txt hello
    dies INT 130 llm-infer -m "$M" -j 2 -c 1M -n -1 --ignore-eos --samples 20 hello
    assert_not_exist cache.kv
    assert_not_exist scores.tsv
    assert_not_exist out.txt
}
