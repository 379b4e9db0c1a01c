# Damaged tensor messages and checkpoints (tests/golden/formats/bad) to every program that reads them: cut at each boundary, lengths of
# 2^63, offsets that overlap, duplicate names, shapes that overflow, unknown types and the like.
load ../helper

# One line a reader; FILE is the damaged file, `< FILE` at the end gives it as standard input.
readers() {
    cat << 'EOF'
llm-infer -m FILE once
llm-infer -m - once < FILE
llm-infer -m M --kv-in FILE once
llm-quantize -t f16 FILE out
llm-quantize -t f16 - out < FILE
llm-train --init FILE -n 1 -o out t.txt
llm-train --resume FILE
llm-train -c nano -T M/tokenizer.json -n 1 -o out FILE
llm-bench speed -m FILE -o out
llm-bench cost -o out FILE
llm-kvinspect -o out FILE
llm-kvinspect diff -o out c.kv FILE
llm-kvinspect < FILE
llm-tokenize decode -T M/tokenizer.json -o out FILE
llm-tokenize decode -T M/tokenizer.json -o out < FILE
llm-tokenize encode -T FILE -o out t.txt
EOF
}

setup() {
    ln -s "$ROOT/tests/golden/tiny" M
    echo 'the cat sat on the mat' > t.txt
    llm-infer -m M -n 0 --kv-out c.kv once
}

# refuse_all PROGRAM: each line of the table that begins with PROGRAM refuses each damaged file: 65, one line, nothing written.
refuse_all() {
    local file reader tried=0
    for file in "$ROOT"/tests/golden/formats/bad/*; do
        while IFS= read -r reader; do
            # no bytes at all are a stream of no tokens
            [[ $reader == 'llm-tokenize decode'* && ! -s $file ]] && continue
            [[ $reader == *'<'* ]] || reader+=' < /dev/null'
            tried=$((tried + 1))
            status=0
            eval "${reader//FILE/\$file}" > stdout 2> stderr || status=$?
            [[ $status == 65 && ! -s stdout && ! -e out && $(wc -l < stderr) == 1 && $(< stderr) == "$1"* ]] ||
                fail "$reader: ${file##*/}: status $status, $(wc -c < stdout) bytes of output, message: $(< stderr)"
        done < <(readers | grep "^$1")
    done
    ((tried > 50)) || fail "only $tried were tried"
    nothing_left
}

@test "llm-infer refuses damaged files" {
    refuse_all llm-infer
}

@test "llm-quantize refuses damaged files" {
    refuse_all llm-quantize
}

@test "llm-train refuses damaged files" {
    refuse_all llm-train
}

@test "llm-bench refuses damaged files" {
    refuse_all llm-bench
}

@test "llm-kvinspect refuses damaged files" {
    refuse_all llm-kvinspect
}

@test "llm-tokenize refuses damaged files" {
    refuse_all llm-tokenize
}
