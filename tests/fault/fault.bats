# Outputs appear whole or not at all: each call that writing a file depends on is made to fail, one after another (fail.c).
load ../helper

setup_file() {
    [[ -z ${SANITIZER-} ]] || return 0
    "${CC:-cc}" -shared -fPIC -O1 -w -o "$BATS_FILE_TMPDIR/fail.so" "$ROOT/tests/fault/fail.c" -ldl
    printf 'the cat sat on the mat, the rat sat on the cat\n' > text
    llm-tokenize train -q --vocab-size 270 -o tok.json text
}

setup() {
    need_plain_memory # a sanitizer's library wants to be the first that is loaded
    seq -f 'the cat %.0f sat on the mat' 3000 > text
    mkdir here
}

# broken CALL AT [ERRNO]: runs "${command[@]}" with that call failing; 1 when there was no such call.
broken() {
    rm -f failed
    run --separate-stderr env LD_PRELOAD="$BATS_FILE_TMPDIR/fail.so" FAIL_CALL="$1" FAIL_AT="$2" FAIL_ERRNO="${3-${failure-28}}" FAIL_UNDER="$PWD/here" \
        FAIL_FILE="$PWD/failed" "${command[@]}"
    [[ -e failed ]]
}

# as_before old|new: the folder is as it was.
as_before() {
    if [[ $1 == old ]]; then [[ $(ls -A here) == out && $(cat here/out) == old ]]; else [[ -z $(ls -A here) ]]; fi
}

# all_failures old|new: "${command[@]}" writes here/out, which is there or not. Whichever call fails: 73 or 74, one line, and the folder as it was.
# Two failures come too late for that, and then the file must be whole: the folder's fsync, and closing what is not used (status 0).
all_failures() {
    local call at n=0 before=$1
    rm -f here/out
    "${command[@]}"
    mv here/out whole
    for call in open write write-short fsync fchmod close rename; do
        for ((at = 1; at < 100; at++)); do
            if [[ $before == old ]]; then echo old > here/out; else rm -f here/out; fi
            broken "$call" "$at" || break
            n=$((n + 1))
            if [[ ($call == fsync && $status == 74 || $call == close && $status == 0) && $(ls -A here) == out ]] && cmp -s here/out whole; then
                continue
            fi
            [[ $status == 73 || $status == 74 ]] || fail "$call $at: status $status: $stderr"
            [[ $call != write* || $status == 74 ]] || fail "$call $at: status $status, expected 74"
            [[ $call != open || $status == 73 ]] || fail "$call $at: status $status, expected 73"
            one_line "$stderr"
            [[ -z $output ]]
            as_before "$before" || fail "$call $at: left $(ls -A here)"
        done
        ((at > 1)) || fail "no $call was ever called: the shim is blind"
        [[ $status == 0 ]] || fail "without a failure: status $status: $stderr"
    done
    ((n >= 7))
}

@test "tokens" {
    command=(llm-tokenize encode -j 1 -T "$BATS_FILE_TMPDIR/tok.json" -o here/out text)
    all_failures new
    all_failures old
}

# read_fails FILE COMMAND...: each read of here/FILE fails with EIO, one after another: 74, a line that names the file, no output.
read_fails() {
    local file=$1 at
    shift
    command=("$@")
    for ((at = 1; at < 100; at++)); do
        rm -f out
        broken read "$at" 5 || break
        [[ $status == 74 && -z $output && $stderr == *"here/$file: "*"Input/output error" ]] || fail "read $at: status $status: $stderr"
        one_line "$stderr"
        [[ ! -e out ]] || fail "read $at: an output is there"
        nothing_left
    done
    ((at > 1)) || fail "no read was ever called: the shim is blind"
    [[ $status == 0 ]] || fail "without a failure: status $status: $stderr"
}

@test "a disk that fails (EIO) while an input is read: 74, and no output" {
    local model=$ROOT/tests/golden/tiny
    cp text here/text
    llm-tokenize encode -T "$model/tokenizer.json" -o here/t.tok text
    llm-quantize -q -t f32 "$model" here/m.safetensors
    llm-quantize -q -t f32 "$model" here/m.llm
    llm-infer -q -m "$model" -n 0 --kv-out here/c.kv "Once upon a time"
    printf 'Once upon a time' > here/prompt
    read_fails text llm-tokenize encode -j 1 -T "$model/tokenizer.json" -o out here/text
    read_fails text llm-tokenize train -q -j 1 --vocab-size 270 -o out here/text
    read_fails t.tok llm-tokenize decode -T "$model/tokenizer.json" -o out here/t.tok
    read_fails m.safetensors llm-quantize -q -t q8_0 here/m.safetensors out
    read_fails m.llm llm-quantize -q -t q8_0 here/m.llm out
    read_fails prompt llm-infer -q -m "$model" -n 1 -o out -f here/prompt
    read_fails c.kv llm-kvinspect export --tensor ids -o out here/c.kv
}

@test "a disk that fails (EIO) while an output is written: 74 or 73, the target as it was" {
    command=(llm-tokenize encode -j 1 -T "$BATS_FILE_TMPDIR/tok.json" -o here/out text)
    failure=5
    all_failures old
}

@test "a tokenizer" {
    command=(llm-tokenize train -q -j 1 --vocab-size 270 -o here/out text)
    all_failures new
}

@test "a checkpoint, packed and plain" {
    command=(llm-quantize -q -j 1 -t q8_0 --to llm "$ROOT/tests/golden/tiny" here/out)
    all_failures new
    all_failures old
    command=(llm-quantize -q -j 1 -t f32 --to safetensors "$ROOT/tests/golden/tiny" here/out)
    all_failures old
}

@test "a checkpoint of training" {
    llm-tokenize encode -T "$ROOT/tests/golden/tiny/tokenizer.json" -o text.tok text
    command=(llm-train -q -j 1 -c "$ROOT/tests/golden/tiny/config.json" -T "$ROOT/tests/golden/tiny/tokenizer.json" --steps 1 --batch 1 --context 8
        -o here/out text.tok)
    all_failures new
}

@test "a cache" {
    command=(llm-infer -q -j 1 -m "$ROOT/tests/golden/tiny" -n 0 --kv-out here/out "Once upon a time")
    all_failures new
    all_failures old
}

@test "an output that is no regular file is written straight, and its failures are told" {
    command=(llm-tokenize encode -j 1 -T "$BATS_FILE_TMPDIR/tok.json" -o here/out text)
    mkfifo here/out
    cat here/out > copy &
    "${command[@]}"
    wait
    llm-tokenize encode -T "$BATS_FILE_TMPDIR/tok.json" text | cmp - copy
    cat here/out > copy &
    broken write 1
    wait
    [[ $status == 74 ]]
    one_line "$stderr"
    [[ $(ls -A here) == out && -p here/out ]]
    run -0 llm-tokenize encode -T "$BATS_FILE_TMPDIR/tok.json" -o /dev/null text
    [[ -c /dev/null ]]
}

# killed SIGNAL STATUS: the program has written megabytes and waits for more when the signal comes.
killed() {
    local pid got=0
    echo old > here/out
    mkfifo more
    env --default-signal=TERM,HUP llm-tokenize encode -j 2 --text -T "$BATS_FILE_TMPDIR/tok.json" -o here/out more & # nohup ignores SIGHUP
    pid=$!
    exec 9> more
    for _ in {1..60}; do cat text; done >&9
    kill "-$1" "$pid"
    wait "$pid" || got=$?
    exec 9>&-
    rm more
    [[ $got == "$2" ]] || fail "SIG$1: status $got"
    [[ $(cat here/out) == old ]]
}

@test "SIGTERM and SIGHUP: death by signal, the target as it was, nothing beside it" {
    killed TERM 143
    killed HUP 129
    [[ $(ls -A here) == out ]]
}

@test "kill -9: the target as it was; what was left is removed by the next run on that output, but nothing of a run that lives" {
    local pid left
    killed KILL 137
    killed KILL 137
    left=$(cd here && echo out.llm-tmp-*)
    [[ $left == out.llm-tmp-?????? ]] || fail "expected one file of the last run, found $left"
    mkfifo more
    llm-tokenize encode -j 1 --text -T "$BATS_FILE_TMPDIR/tok.json" -o here/out more 9>&- &
    pid=$!
    exec 9> more
    cat text >&9
    [[ $(echo here/out.llm-tmp-*) != *"$left"* && -e $(echo here/out.llm-tmp-*) ]]
    touch here/other.llm-tmp-abcdef here/out.llm-tmp-abcdefg here/out.llm-tmp-abcde
    llm-tokenize encode --text -T "$BATS_FILE_TMPDIR/tok.json" -o here/out text
    [[ -e $(echo here/out.llm-tmp-??????) ]]
    exec 9>&-
    wait "$pid"
    assert_equal "$(cd here && echo *)" "other.llm-tmp-abcdef out out.llm-tmp-abcde out.llm-tmp-abcdefg"
    llm-tokenize encode --text -T "$BATS_FILE_TMPDIR/tok.json" text | cmp - here/out
}

@test "a limit of file size: 74, the target as it was" {
    echo old > here/out
    run --separate-stderr bash -c 'ulimit -f 8; exec "$@"' _ llm-tokenize encode -T "$BATS_FILE_TMPDIR/tok.json" -o here/out text
    [[ $status == 74 && $(cat here/out) == old && $(ls -A here) == out ]]
    one_line "$stderr"
    run --separate-stderr bash -c 'ulimit -f 8; exec "$@"' _ llm-quantize -q -t f32 "$ROOT/tests/golden/tiny" here/new.llm
    [[ $status == 74 && $(ls -A here) == out ]]
    one_line "$stderr"
    run --separate-stderr bash -c 'ulimit -f 2; exec "$@"' _ llm-infer -q -m "$ROOT/tests/golden/tiny" -n 0 --kv-out here/new.kv "Once upon a time"
    [[ $status == 74 && $(ls -A here) == out ]]
    one_line "$stderr"
}

@test "a full file system: 74, the target as it was" {
    mount -t tmpfs -o size=32k tmpfs here 2> /dev/null || skip "a small tmpfs cannot be mounted"
    echo old > here/out
    run --separate-stderr llm-tokenize encode -T "$BATS_FILE_TMPDIR/tok.json" -o here/out text
    got="$status $(cat here/out) $(ls -A here)"
    run --separate-stderr llm-quantize -q -t f32 "$ROOT/tests/golden/tiny" here/new.llm
    got+=" $status $(ls -A here)"
    umount here
    assert_equal "$got" "74 old out 74 out"
    one_line "$stderr"
}

# training_failures CALL ERRNO ARGUMENT...: a run of 3 steps that saves after each, logs and keeps the best to files in `here`. Each CALL under `here`
# fails with ERRNO, one after another: one line, status 73 or 74, no temporary file, and what is saved is a step of the run: going on from it makes the
# file of a run without failures. Without a checkpoint nothing was saved before the failure.
training_failures() {
    local call=$1 number=$2 at n=0
    shift 2
    local run=(llm-train -q -j 1 -c nano --set n_embd=16 --set n_layer=1 -T "$BATS_FILE_TMPDIR/tok.json" -b 1 -l 16 --warmup 2 --schedule constant --val .1
        --eval-every 1 --eval-rows 1 "$@" "$PWD/text.tok")
    command=("${run[@]}" -n 3 --save-every 1 --log here/log --keep-best here/best -o here/out)
    rm -rf here/*
    "${command[@]}"
    mkdir whole
    mv here/out here/best here/log whole
    for ((at = 1; at < 200; at++)); do
        rm -rf here/*
        broken "$call" "$at" "$number" || break
        n=$((n + 1))
        if [[ $status == 0 ]]; then # a close of what is not used
            cmp here/out whole/out || fail "$call $at: status 0, and another file"
            continue
        fi
        [[ $status == 73 || $status == 74 ]] || fail "$call $at: status $status: $stderr"
        one_line "$stderr"
        nothing_left here
        [[ -e here/out ]] || continue
        llm-train -q -j 1 --resume here/out -n 3 --save-every 0
        cmp here/out whole/out || fail "$call $at: going on makes another file"
    done
    rm -r whole
    [[ $n -gt 5 && $status == 0 ]] || fail "$n calls failed; at last: status $status: $stderr"
}

@test "a disk that fails (EIO) or is full (ENOSPC) during training: one line, 73 or 74, the last saved step goes on" {
    llm-tokenize encode -T "$BATS_FILE_TMPDIR/tok.json" -o text.tok text
    training_failures write 5
    training_failures write 28
    training_failures fsync 5
    training_failures rename 5
    training_failures open 28
}

@test "a file system that fills up during training: one line, 74, the last saved step goes on" {
    local k files
    llm-tokenize encode -T "$BATS_FILE_TMPDIR/tok.json" -o text.tok text
    local run=(llm-train -q -j 1 -c nano --set n_embd=16 --set n_layer=1 -T "$BATS_FILE_TMPDIR/tok.json" -b 1 -l 16 --warmup 2 --schedule constant)
    "${run[@]}" -n 6 -o whole.llm text.tok
    mount -t tmpfs -o size=1m tmpfs here 2> /dev/null || skip "a small tmpfs cannot be mounted"
    "${run[@]}" -n 2 -o here/out text.tok
    k=$(($(df --output=avail -k here | tail -n 1) - $(stat -c %s here/out) / 2048)) # room for half of the next checkpoint
    head -c "${k}K" /dev/zero > here/filler
    run --separate-stderr llm-train -q -j 1 --resume here/out -n 6 --save-every 1
    cp here/out kept.llm
    files=$(ls -A here)
    umount here
    [[ $status == 74 ]] || fail "status $status: $stderr"
    one_line "$stderr"
    assert_equal "$files" $'filler\nout'
    assert_equal "$(steps_done kept.llm)" 2
    llm-train -q -j 1 --resume kept.llm -n 6
    cmp kept.llm whole.llm
}
