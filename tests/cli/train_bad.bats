# llm-train refuses: one line, the right status, nothing half written, what was there before left whole.
load ../helper
export LLM_THREADS=1 # models as small as these gain nothing by more, and files run at once

setup_file() {
    sentences_tokens
    llm-tokenize train --model byte -o byte.json text
    llm-tokenize encode -T byte.json --lines -o byte.tok text
    llm-train -q -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 -T tok.json -l 24 -n 2 -o model.llm data.tok
    llm-quantize -q -t f32 model.llm model.safetensors
}

setup() {
    new=(llm-train -q -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 -l 24 -n 3 -o out.llm)
    tiny=("${new[@]}" -T "$F/tok.json")
}

# refused STATUS TEXT COMMAND...: one line of that text (a pattern), nothing on stdout, no output file
refused() {
    local status=$1 text=$2
    shift 2
    run -"$status" --separate-stderr "$@"
    assert_equal "$output" ""
    one_line "$stderr"
    # shellcheck disable=SC2053
    [[ $stderr == "llm-train: "$text ]] || fail "expected '$text', found: $stderr"
    [[ ! -e out.llm ]] || fail "out.llm was written"
    nothing_left
}

# misused TEXT COMMAND...: as above, and where help is
misused() {
    run -2 --separate-stderr "${@:2}"
    assert_equal "$output" ""
    # shellcheck disable=SC2053
    [[ ${stderr_lines[0]} == "llm-train: "$1 ]] || fail "expected '$1', found: $stderr"
    [[ ! -e out.llm ]] || fail "out.llm was written"
}

@test "what is no token stream is named" {
    refused 65 "$F/text: expected a token stream (llm-tokenize encode makes one), found text" "${tiny[@]}" "$F/text"
    refused 65 "$F/model.llm: expected a token stream (llm-tokenize encode makes one), found a checkpoint (.llm)" "${tiny[@]}" "$F/model.llm"
    refused 65 "$F/tok.json: expected a token stream (llm-tokenize encode makes one), found JSON" "${tiny[@]}" "$F/tok.json"
    refused 65 "$F/model.safetensors: expected tokens, found *" "${tiny[@]}" "$F/model.safetensors"
    : > empty
    refused 65 "empty: expected a token stream (llm-tokenize encode makes one), found an empty file" "${tiny[@]}" empty
    refused 65 "standard input: expected a token stream (llm-tokenize encode makes one), found text" "${tiny[@]}" - < "$F/text"
    refused 66 "*No such file*" "${tiny[@]}" nowhere.tok
    refused 66 "*" "${tiny[@]}" .
    refused 65 "$F/text: expected a token stream*" "${tiny[@]}" --val "$F/text" "$F/data.tok"
}

@test "data: cut short, of another tokenizer, with ids beyond the vocabulary, too short" {
    head -c -1 "$F/data.tok" > cut.tok
    refused 65 "cut.tok: *" "${tiny[@]}" cut.tok
    head -c 100 "$F/data.tok" > cut.tok
    refused 65 "cut.tok: *" "${tiny[@]}" cut.tok
    refused 65 "$F/byte.tok: made with another tokenizer: expected *, found *" "${tiny[@]}" "$F/byte.tok"
    refused 65 "$F/byte.tok: made with another tokenizer: expected *, found *" "${tiny[@]}" "$F/data.tok" "$F/byte.tok"
    refused 65 "$F/byte.tok: made with another tokenizer: expected *, found *" "${tiny[@]}" --val "$F/byte.tok" "$F/data.tok"
    refused 65 "$F/byte.tok: made with another tokenizer: expected *, found *" llm-train -q --init "$F/model.llm" -n 2 -o out.llm "$F/byte.tok"
    refused 65 "nano: vocab_size: expected at least the tokenizer's 280, found 100" "${tiny[@]}" --set vocab_size=100 "$F/data.tok"
    llm-tokenize train --vocab-size 290 -o larger.json "$F/text"
    refused 65 "larger.json: expected a tokenizer of at most the model's 280 tokens, found 290" \
        llm-train -q --init "$F/model.llm" -T larger.json -n 2 -o out.llm "$F/data.tok"
    head -n 1 "$F/text" | llm-tokenize encode -T "$F/tok.json" -o short.tok
    refused 65 "training data: expected more than one context of 24 tokens (--context), found *" "${tiny[@]}" short.tok
    refused 65 "validation data: expected at least 2 tokens, found *" "${tiny[@]}" --val 0.00001 "$F/data.tok"
}

@test "a batch without a token to learn from" {
    awk 'BEGIN { for (i = 0; i < 200; i++) print "x" }' | tr -d '\n' > x
    sed 's/./& /g' x | llm-tokenize encode -T "$F/byte.json" --separator ' ' -o alone.tok # each token a document
    refused 65 "step 1: expected some tokens to learn from, found all 192 targets masked" "${new[@]}" -T "$F/byte.json" alone.tok
    refused 65 "validation data: expected tokens to predict, found all masked" "${new[@]}" -T "$F/byte.json" --val alone.tok "$F/byte.tok"
    "${new[@]}" -T "$F/byte.json" --cross-document alone.tok
}

@test "a loss that is not finite: the first bad tensor, and nothing is saved" {
    # the last F32 tensor of the file is the embedding; its last value becomes infinite
    local at
    cp "$F/model.safetensors" bad.safetensors
    at=$(head -c 100000 bad.safetensors | tail -c +9 | head -c "$(od -An -tu8 -N8 bad.safetensors)" |
        jq '.["transformer.h.1.ln_2.weight"].data_offsets[0]')
    at=$((at + 8 + $(od -An -tu8 -N8 bad.safetensors)))
    printf '\0\0\300\177' | dd of=bad.safetensors bs=1 seek=$at conv=notrunc status=none
    refused 1 "step 1: the loss is not a number: first bad tensor: weight 'transformer.h.1.ln_2.weight'" \
        llm-train -q --init bad.safetensors -l 24 -n 2 -o out.llm "$F/data.tok"
    refused 1 "step [0-9]*: the * is *: first bad tensor: *" "${tiny[@]}" --lr 1e6 --clip 0 --optimizer sgd -n 30 "$F/data.tok"
    # with a checkpoint of before, that one stays
    cp "$F/model.llm" model.llm
    cp "$F/data.tok" .
    run -1 llm-train -q --resume model.llm --lr 1e6 --clip 0 --optimizer adamw --schedule constant --warmup 0 -n 500 --weight-decay 1e6
    cmp model.llm "$F/model.llm"
}

@test "--resume: changed data, missing data, a model alone, another optimizer" {
    cp "$F/model.llm" out.model
    cp "$F/text" text
    sed '7s/the/The/' "$F/text" | llm-tokenize encode -T "$F/tok.json" --lines -o changed.tok
    refused 65 "out.model: changed.tok: expected the data that the run began with (fingerprint *), found *" \
        llm-train --resume out.model -n 5 changed.tok
    refused 66 "*data.tok: No such file*" llm-train --resume out.model -n 5
    cp "$F/data.tok" data.tok
    llm-quantize -q -t bf16 out.model alone.llm
    refused 65 "alone.llm: expected a training state, found a model alone; --init begins from its weights" llm-train --resume alone.llm -n 5
    refused 65 "out.model: tensor 'training.*': expected to go on with adagrad, found none" \
        bash -c 'cp out.model sgd.model; llm-train -q --init out.model --optimizer sgd -n 1 -o sgd.model data.tok;
            llm-train --resume sgd.model -n 5 --optimizer adagrad 2>&1 >&2 | sed "s/sgd.model/out.model/" >&2; exit "${PIPESTATUS[0]}"'
    refused 66 "*No such file*" llm-train --resume nowhere.llm
    refused 65 "*" llm-train --resume "$F/text"
    llm-train -q --resume out.model -n 5
}

@test "a checkpoint that is cut or changed is refused" {
    local size at
    size=$(stat -c %s "$F/model.llm")
    cp "$F/data.tok" .
    for at in 10 1000 $((size / 2)) $((size - 1)); do
        head -c $at "$F/model.llm" > cut.llm
        refused 65 "cut.llm: *" llm-train --resume cut.llm -n 5
    done
    for at in 3 200 $((size / 2)) $((size - 40)); do
        cp "$F/model.llm" flipped.llm
        printf '\252' | dd of=flipped.llm bs=1 seek=$at conv=notrunc status=none
        cmp -s flipped.llm "$F/model.llm" || refused 65 "flipped.llm: *" llm-train --resume flipped.llm -n 5
    done
}

@test "options that make no sense" {
    misused "expected one of -c CONFIG, --init MODEL, --resume FILE; found 0" llm-train -o out.llm "$F/data.tok"
    misused "expected one of -c CONFIG, --init MODEL, --resume FILE; found 2" "${tiny[@]}" --init "$F/model.llm" "$F/data.tok"
    misused "--set changes a new configuration*" llm-train --init "$F/model.llm" --set n_layer=3 -o out.llm "$F/data.tok"
    misused "expected data*" "${tiny[@]}"
    misused "expected -o OUT.llm*" llm-train -c nano -T "$F/tok.json" "$F/data.tok"
    misused "-o - and --log - cannot both have stdout" llm-train -c nano -o - --log - "$F/data.tok"
    misused "--save-every needs a file*" llm-train -c nano -o - --save-every 2 "$F/data.tok"
    local o
    for o in "-j 0" "-n -1" "-n x" "-b 0" "-l 0" "--accumulate 0" "--lr nan" "--lr -1" "--lr inf" "--beta1 1" "--beta2 2" "--eps -1" \
        "--clip -1" "--dropout 1" "--optimizer lamb" "--muon-scale x" "--nesterov maybe" "--muon-lr -1" "--ema 1" "--z-loss -1"\
        "--decay-fraction 2" "--decay-style x" "--schedule step" "--order backwards" "--precision f64" "--objective x" "--seed x" "--nonsense"; do
        run -2 --separate-stderr "${tiny[@]}" $o "$F/data.tok"
        [[ ! -e out.llm ]]
    done
    refused 2 "nano with --set: *" "${tiny[@]}" --set n_layer=0 "$F/data.tok"
    refused 2 "nano with --set: n_embd: *" "${tiny[@]}" --set n_embd=33 "$F/data.tok"
    refused 2 "--set: unknown key 'nonsense'; gpt2 has: vocab_size *" "${tiny[@]}" --set nonsense=3 "$F/data.tok"
    refused 2 "--set: expected KEY=VALUE, found 'n_layer'" "${tiny[@]}" --set n_layer "$F/data.tok"
    refused 2 "--val: expected a file or a share between 0 and 1, found '1.5'" "${tiny[@]}" --val 1.5 "$F/data.tok"
    refused 2 "--context: expected at most 24 (the model's positions), found 25" llm-train --init "$F/model.llm" -l 25 -o out.llm "$F/data.tok"
    refused 2 "batch * accumulate * context: expected below 2^31 tokens" "${tiny[@]}" -b 1048576 --accumulate 1048576 "$F/data.tok"
    refused 66 "neither a file nor one of nano, tiny, *, smollm: *" llm-train -c giant -o out.llm "$F/data.tok"
    refused 2 "expected one input from standard input (-) at most, found 2" "${tiny[@]}" --val - -
    echo '{"model_type": "word2vec"}' > config.json
    refused 65 "config.json: model_type: expected one of *" llm-train -c config.json -o out.llm "$F/data.tok"
    echo '{"model_type": ' > config.json
    refused 65 "config.json: *" llm-train -c config.json -o out.llm "$F/data.tok"
}

@test "outputs that cannot be made are known before the work begins" {
    refused 73 "nowhere/out.llm: *" "${tiny[@]}" -o nowhere/out.llm "$F/data.tok"
    mkdir folder
    refused 73 "folder: *" "${tiny[@]}" -o folder "$F/data.tok"
    refused 73 "nowhere/best.llm: *" "${tiny[@]}" --val .1 --keep-best nowhere/best.llm "$F/data.tok"
    refused 73 "nowhere/log: *" "${tiny[@]}" --log nowhere/log "$F/data.tok"
}

@test "a pipe that cannot be copied is an error, and --stream does without the copy" {
    TMPDIR=/nowhere refused 73 "standard input: /nowhere: cannot create a temporary file: No such file or directory" "${tiny[@]}" - < <(cat "$F/data.tok")
    TMPDIR=/nowhere "${tiny[@]}" --stream - < <(cat "$F/data.tok")
}

@test "a full disk and a closed pipe: 74, and what was learned is saved where it can be" {
    refused 74 "/dev/full: *" "${tiny[@]}" -o /dev/full "$F/data.tok"
    run -74 --separate-stderr "${tiny[@]}" --log /dev/full "$F/data.tok"
    assert_equal "$stderr" "llm-train: /dev/full: No space left on device"
    zstd -tq out.llm
    llm-train -q --resume out.llm -n 3
    cp out.llm whole.llm
    rm out.llm
    "${tiny[@]}" "$F/data.tok"
    cmp out.llm whole.llm
    run -74 bash -c '"$@" | head -n 1 > /dev/null; exit ${PIPESTATUS[0]}' - "${tiny[@]}" -n 20000 --log - "$F/data.tok"
    zstd -tq out.llm
}

@test "standard output closed or full: 74, unless nothing goes there" {
    local to
    for to in '> /dev/full' '>&-'; do
        for what in "-o -" "--log -" "--plan" "--gradcheck" "--help"; do
            run -74 bash -c "\"\$@\" $what $to" - "${tiny[@]}" "$F/data.tok"
            one_line "$output"
            assert_regex "$output" "^llm-train: standard output: "
        done
    done
    bash -c '"$@" >&- <&- 2>&-' - "${tiny[@]}" "$F/data.tok"
    run -74 bash -c '"$@" <&-' - "${tiny[@]}" -
    one_line "$output"
}

@test "a save that fails half way leaves the checkpoint before it whole" {
    need_plain_memory
    local size
    "${tiny[@]}" "$F/data.tok"
    cp out.llm before.llm
    size=$(stat -c %s out.llm)
    for kb in 0 1 $((size / 2048)) $((size * 15 / 16 / 1024)); do
        run -74 bash -c "(ulimit -f $kb; exec llm-train -q --resume out.llm -n 5) 2>&1 | cat; exit \${PIPESTATUS[0]}"
        one_line "$output"
        cmp out.llm before.llm
        nothing_left
    done
    llm-train -q --resume out.llm -n 5
}

@test "kill -9 at any moment of a run that saves after every step leaves a checkpoint to go on from" {
    local i saved
    new=(llm-train -q -c nano --set n_embd=64 --set n_layer=2 -T "$F/tok.json" -l 24 -b 1 --warmup 2 --schedule constant "$F/data.tok")
    "${new[@]}" -n 1 -o out.llm
    for i in {1..12}; do
        saved=$(stat -c %i.%y out.llm)
        llm-train -q --resume out.llm -n 1000000 --save-every 1 &
        running $!
        # every third run is killed at once, the others after they have saved
        until ((i % 3 == 0)) || [[ $(stat -c %i.%y out.llm) != "$saved" ]]; do
            kill -0 $! || fail "it ended"
            sleep .02
        done
        sleep "0.0$((i * 7 % 10))$i"
        kill -KILL $!
        ends_by 137 $! 2> /dev/null
        zstd -tq out.llm
    done
    # two steps later: the same file as without any interruption
    saved=$(steps_done out.llm)
    ((saved > 1))
    "${new[@]}" -n $((saved + 2)) -o straight.llm
    llm-train -q --resume out.llm -n $((saved + 2))
    cmp out.llm straight.llm
    rm -f out.llm.llm-tmp-*
}
