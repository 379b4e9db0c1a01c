# An input that shrinks while it is mapped: one line, status 65, no output made of bytes that are not there; a run of training saves its last step.
load ../helper

setup_file() {
    sentences_tokens
    llm-train -q -c nano -T tok.json -n 0 -b 1 -l 64 -o fresh.llm data.tok
    llm-quantize -q -t f32 fresh.llm model.safetensors
}

setup() {
    cp "$F/data.tok" "$F/model.safetensors" .
    mkfifo pipe
    exec 7<> pipe
}

teardown() {
    exec 7<&-
}

# ended PID STATUS: it ends with that status.
ended() {
    local got=0
    wait "$1" || got=$?
    [[ $got == "$2" ]] || fail "expected status $2, found $got: $(cat said)"
}

# shrank FILE: the only line in `said`.
shrank() {
    [[ $(cat said) =~ ^llm-[a-z]+:\ $1:\ byte\ [0-9]+:\ cut\ short\ while\ it\ was\ read:\ expected\ [0-9]+\ bytes,\ found\ 0$ ]] || fail "said: $(cat said)"
}

# goes_on_whole: part.llm, which the run "${run[@]}" saved when its data shrank, goes on with all data to the weights of a run that was not disturbed.
goes_on_whole() {
    local step
    step=$(tail -n 1 log | jq .step)
    llm-train -q --resume part.llm -n $((step + 2)) "$F/data.tok"
    "${run[@]}" -n $((step + 2)) -o whole.llm "$F/data.tok"
    llm-quantize -q -t f32 part.llm part.safetensors
    llm-quantize -q -t f32 whole.llm whole.safetensors
    cmp part.safetensors whole.safetensors
}

@test "llm-train: the last complete step is saved, and the run goes on from there to the same model" {
    local run=(llm-train -q -c nano -T "$F/tok.json" --schedule constant --warmup 2 -b 2 -l 32)
    "${run[@]}" -n 100000 --log log -o part.llm data.tok 2> said &
    comes_true $! has_lines log 3
    : > data.tok
    ended $! 65
    shrank data.tok
    nothing_left
    goes_on_whole
}

@test "llm-train: validation data that shrinks, averaged weights: the state of the step, not of the average" {
    cp data.tok val.tok
    llm-train -q -c nano -T "$F/tok.json" -b 2 -l 32 -n 100000 --ema .9 --eval-ema --eval-every 1 --eval-rows 1 --val val.tok --log log -o part.llm data.tok 2> said &
    comes_true $! has_lines log 3
    : > val.tok
    ended $! 65
    shrank val.tok
    tail -n 1 log | jq -r .hash > before
    llm-train -q --resume part.llm --lr 0 --min-lr 0 --eval-every 0 -n $(($(tail -n 1 log | jq .step) + 1)) --weight-decay 0 --val .1 --log after
    tail -n 1 after | jq -r .hash | cmp - before
}

@test "llm-infer: a model that shrinks before a prompt comes" {
    llm-infer -q --precision f32 -m model.safetensors --jsonl -n 4 -o out < pipe 2> said 7>&- &
    echo '{"prompt": "the red cat"}' >&7
    comes_true $! writes_lines $! . 0
    : > model.safetensors
    echo '{"prompt": "the old dog sees the hen"}' >&7
    exec 7<&-
    ended $! 65
    shrank model.safetensors
    nothing_left
    assert_not_exist out
}

@test "llm-quantize: a model that shrinks while it is written out" {
    run -65 bash -o pipefail -c 'llm-quantize -q -t keep --to safetensors model.safetensors - 2> said |
        { head -c 10 > /dev/null; : > model.safetensors; cat > /dev/null; }'
    shrank model.safetensors
}

@test "n-grams: data that shrinks after it was opened" {
    llm-train -q --objective ngram --order 2 -T "$F/tok.json" -o out.llm data.tok - < pipe 2> said 7>&- &
    local pid=$!
    head -c 200 "$F/data.tok" >&7
    comes_true $pid grep -q "$PWD/data.tok" "/proc/$pid/maps"
    : > data.tok
    tail -c +201 "$F/data.tok" >&7
    exec 7<&-
    ended $pid 65
    shrank data.tok
    nothing_left
    assert_not_exist out.llm
}

# cut_within_page FILE BYTES: cuts that many bytes off its end, so few that the last page stays and no read of it raises a signal.
cut_within_page() {
    local size=$(stat -c %s "$1")
    (((size - 1) % 4096 > $2)) || fail "$1: $size bytes: its last page does not hold $2 of them"
    truncate -s -"$2" "$1"
}

@test "a file that is cut within its last page raises no signal, and its size tells: status 65, no output" {
    llm-infer -q --precision f32 -m model.safetensors --jsonl -n 4 -o out < pipe 2> said 7>&- &
    echo '{"prompt": "the red cat"}' >&7
    comes_true $! writes_lines $! . 0
    cut_within_page model.safetensors 1
    echo '{"prompt": "the old dog sees the hen"}' >&7
    exec 7<&-
    ended $! 65
    [[ $(< said) =~ ^llm-infer:\ model.safetensors:\ byte\ [0-9]+:\ cut\ short\ while\ it\ was\ read:\ expected\ [0-9]+\ bytes,\ found\ [0-9]+$ ]] ||
        fail "said: $(< said)"
    nothing_left
    assert_not_exist out
}

@test "data that is cut within its last page: the step that read it is dropped, the last complete one is saved" {
    local run=(llm-train -q -c nano -T "$F/tok.json" --schedule constant --warmup 2 -b 2 -l 32)
    "${run[@]}" -n 100000 --log log -o part.llm data.tok 2> said &
    comes_true $! has_lines log 3
    cut_within_page data.tok 1
    ended $! 65
    [[ $(< said) =~ ^llm-train:\ data.tok:\ byte\ [0-9]+:\ cut\ short\ while\ it\ was\ read: ]] || fail "said: $(< said)"
    nothing_left
    goes_on_whole
}
