# The same bytes, whatever the threads, the passes of a step, the interruptions.
load ../helper
export LLM_THREADS=1 # models as small as these gain nothing by more, and files run at once

setup_file() { sentences_tokens; }

# a new model of two layers, with everything that draws random numbers
setup() {
    new=(llm-train -q -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 --dropout .1 -l 24 -T "$F/tok.json")
    tiny=("${new[@]}" "$F/data.tok")
}

@test "K steps straight = interrupted anywhere and resumed, by each signal" {
    "${tiny[@]}" -n 400 -b 2 --val .1 --eval-every 150 -o straight.llm
    run -143 interrupted TERM 7 "${tiny[@]}" -n 400 -b 2 --val .1 --eval-every 150 -o model.llm
    (($(steps_done model.llm) >= 7 && $(steps_done model.llm) < 400))
    nothing_left
    run -130 interrupted INT 60 llm-train -q --resume model.llm
    (($(steps_done model.llm) < 400))
    run -129 interrupted HUP 1 llm-train -q --resume model.llm -j 1
    (($(steps_done model.llm) < 400))
    llm-train -q --resume model.llm
    cmp straight.llm model.llm
}

@test "an interruption between a step and its evaluation loses neither what was best nor a step" {
    local k options=(-b 2 --val .3 --eval-every 2 --keep-best best.llm)
    "${tiny[@]}" -n 60 "${options[@]}" --log straight.jsonl -o straight.llm
    mv best.llm wanted.llm
    "${tiny[@]}" -n 60 "${options[@]}" --log part.jsonl -o part.llm &
    for k in {1..8}; do
        sleep .04
        struck 15 $!
        # before there was anything to save it has begun again
        if [[ -e part.llm ]]; then
            llm-train -q --resume part.llm "${options[@]:4}" --log part.jsonl &
        else
            "${tiny[@]}" -n 60 "${options[@]}" --log part.jsonl -o part.llm &
        fi
    done
    wait $!
    cmp straight.llm part.llm
    cmp wanted.llm best.llm
    # the log is that of the run without interruptions: an evaluation that was due completes the line of its step. activation_bytes is the maximum
    # so far, to which evaluations before the interruption belong
    assert_equal "$(jq -c 'del(.tokens_per_second, .peak_share, .seconds, .activation_bytes)' part.jsonl)" \
        "$(jq -c 'del(.tokens_per_second, .peak_share, .seconds, .activation_bytes)' straight.jsonl)"
}

@test "a run that stops at each of its first steps goes on with the same bytes" {
    local k
    for precision in f32 bf16; do
        "${tiny[@]}" -n 7 -b 2 --schedule constant --warmup 2 --precision $precision -o straight.llm
        for k in 0 1 2 6; do
            "${tiny[@]}" -n $k -b 2 --schedule constant --warmup 2 --precision $precision -o part.llm
            llm-train -q --resume part.llm -n 7 -o whole.llm
            cmp straight.llm whole.llm
        done
    done
}

@test "every optimizer, order and schedule goes on with the same bytes, and differs from the others" {
    local o
    for o in "--optimizer adamw" "--optimizer adam" "--optimizer sgd" "--optimizer adagrad" "--order random" "--order sequential" \
        "--schedule linear" "--schedule constant" "--momentum 0 --optimizer sgd" "--weight-decay .5" "--clip .1" "--clip 0" "--beta1 .8" \
        "--beta2 .9" "--eps .01" "--min-lr 0" "--warmup 5" "--cross-document" "--seed 5" "--lr .01" "--precision f32" \
        "--optimizer lion --lr 1e-4" "--optimizer muon" "--optimizer muon --muon-scale match-rms-adamw" "--optimizer muon --nesterov no" \
        "--optimizer sgd --nesterov yes" "--optimizer muon --muon-lr .01 --momentum .9" "--schedule wsd" "--schedule wsd --decay-fraction .5" \
        "--schedule wsd --decay-style cosine" "--schedule wsd --decay-style minus-sqrt" "--ema .9" \
        "--set norm=batch" "--set norm=group" "--z-loss .01" \
        "--activations bf16" "--activations int8" "--activations top=.3" "--activations rank=4"; do
        # a log of so many lines is more than the pipe holds: no run ends before its signal, however fast
        "${tiny[@]}" -n 80 -b 1 -l 20 --warmup 1 $o -o straight.llm
        run -143 interrupted TERM 3 "${tiny[@]}" -n 80 -b 1 -l 20 --warmup 1 $o -o part.llm
        (($(steps_done part.llm) < 80))
        llm-train -q --resume part.llm
        cmp straight.llm part.llm || fail "$o"
        sha256sum < straight.llm >> sums
    done
    assert_equal "$(sort -u sums | wc -l)" 39
}

@test "-j 1 = -j 2 = -j 4" {
    local precision
    for precision in f32 bf16; do
        "${tiny[@]}" -n 5 -b 6 --precision $precision -j 1 -o one.llm
        "${tiny[@]}" -n 5 -b 6 --precision $precision -j 2 -o two.llm
        "${tiny[@]}" -n 5 -b 6 --precision $precision -j 4 -o four.llm
        cmp one.llm two.llm
        cmp one.llm four.llm
    done
}

@test "accumulation: 8 passes of 1 row = 1 pass of 8 = 4 of 2" {
    local precision first
    for precision in f32 bf16; do
        for b in 8 1 2; do
            "${tiny[@]}" -n 4 -b $b --accumulate $((8 / b)) --precision $precision --log $b.jsonl -o $b.llm
            llm-quantize -q -t f32 $b.llm $b.safetensors
        done
        cmp 8.safetensors 1.safetensors
        cmp 8.safetensors 2.safetensors
        for b in 8 1 2; do jq -c '[.loss, .grad_norm, .hash]' $b.jsonl > $b.log; done
        cmp 8.log 1.log
        cmp 8.log 2.log
    done
}

@test "activation checkpointing changes no bit" {
    "${tiny[@]}" -n 4 --set n_layer=5 -o all.llm
    for d in 1 2 5; do
        "${tiny[@]}" -n 4 --set n_layer=5 --checkpoint-every $d -o some.llm
        cmp all.llm some.llm
    done
}

@test "evaluations, saves and logs change no weight" {
    "${tiny[@]}" -n 9 -b 2 --val .2 --log plain.jsonl -o plain.llm
    "${tiny[@]}" -n 9 -b 2 --val .2 --eval-every 2 --save-every 1 --keep-best best.llm --log busy.jsonl -o busy.llm
    assert_equal "$(jq .hash plain.jsonl)" "$(jq .hash busy.jsonl)"
}

@test "from a pipe as from the file" {
    "${tiny[@]}" -n 5 --val .1 --log file.jsonl -o file.llm
    "${new[@]}" -n 5 --val .1 --log pipe.jsonl \
        -o pipe.llm - < <(cat "$F/data.tok")
    assert_equal "$(jq .hash file.jsonl)" "$(jq .hash pipe.jsonl)"
    # and on: the data must come again
    run -65 --separate-stderr llm-train --resume pipe.llm -n 7 < /dev/null
    one_line "$stderr"
    cat "$F/data.tok" | llm-train -q --resume pipe.llm -n 7 -
    llm-train -q --resume file.llm -n 7
    llm-quantize -q -t f32 pipe.llm pipe.safetensors
    llm-quantize -q -t f32 file.llm file.safetensors
    cmp pipe.safetensors file.safetensors
}

@test "--stream: as sequentially from the file, to the end of the data, and on from where it was" {
    cat "$F/data.tok" | "${new[@]}" -n 30 -b 3 --stream --log stream.jsonl -o stream.llm -
    "${tiny[@]}" -n 30 -b 3 --order sequential --log file.jsonl -o file.llm
    assert_equal "$(jq .hash stream.jsonl)" "$(jq .hash file.jsonl)"
    # interrupted, and given the data again
    for i in {1..10}; do cat "$F/data.tok"; done > long.tok
    "${new[@]}" -n 100 -b 3 --stream --save-every 11 -o long.llm - < long.tok
    run -137 interrupted KILL 12 "${new[@]}" -n 100 -b 3 --stream --save-every 11 -o part.llm - < long.tok
    (($(steps_done part.llm) < 80))
    llm-train -q --resume part.llm --save-every 11 - < long.tok
    cmp part.llm long.llm
    # to the end: no row twice, no part of a step
    local n
    n=$(llm-tokenize encode -T "$F/tok.json" --lines --count "$F/text")
    cat "$F/data.tok" | "${new[@]}" -n 100000 -b 3 --stream --val "$F/data.tok" --log all.jsonl -o all.llm -
    assert_equal "$(jq -s 'map(select(.loss)) | length' all.jsonl)" $(((n - 1) / 72))
    assert_equal "$(jq -s -c 'map(select(.val_loss)) | length' all.jsonl)" 1
    # other data, and a share of what is not known
    tac "$F/text" | llm-tokenize encode -T "$F/tok.json" --lines -o other.tok
    run -65 --separate-stderr llm-train --resume stream.llm -n 40 - < <(cat other.tok)
    assert_regex "$stderr" '^llm-train: stream.llm: -: expected the data that the run began with \(hash [0-9a-f]{16} of 2160 tokens\), found [0-9a-f]{16}$'
    run -2 --separate-stderr "${new[@]}" --stream --val .1 -o x.llm - < <(cat "$F/data.tok")
    assert_equal "$stderr" "llm-train: --val: expected a file with --stream, found the share .1"
    # a producer that died is noticed
    run -65 --separate-stderr "${new[@]}" -n 100000 -b 3 --stream -o x.llm - < <(head -c -1 "$F/data.tok")
    one_line "$stderr"
    [[ ! -e x.llm ]]
}

@test "several files are one after another" {
    llm-tokenize encode -T "$F/tok.json" --lines -o a.tok <(head -n 100 "$F/text")
    llm-tokenize encode -T "$F/tok.json" --lines -o b.tok <(tail -n +101 "$F/text")
    llm-train -q -c nano --set n_layer=1 -n 3 -l 24 -T "$F/tok.json" --log two.jsonl -o two.llm a.tok b.tok
    llm-train -q -c nano --set n_layer=1 -n 3 -l 24 -T "$F/tok.json" --log one.jsonl -o one.llm "$F/data.tok"
    llm-train -q -c nano --set n_layer=1 -n 3 -b 60 -l 24 -T "$F/tok.json" --stream --log streamed.jsonl -o x.llm a.tok b.tok
    llm-train -q -c nano --set n_layer=1 -n 3 -b 60 -l 24 -T "$F/tok.json" --order sequential --log whole.jsonl -o x.llm "$F/data.tok"
    assert_equal "$(jq .hash whole.jsonl)" "$(jq .hash streamed.jsonl)"
    cat a.tok b.tok | llm-train -q -c nano --set n_layer=1 -n 3 -l 24 -T "$F/tok.json" --log cat.jsonl -o cat.llm -
    assert_equal "$(jq .hash one.jsonl)" "$(jq .hash two.jsonl)"
    assert_equal "$(jq .hash one.jsonl)" "$(jq .hash cat.jsonl)"
}

@test "what does not change the result is not in the checkpoint" {
    "${tiny[@]}" -n 3 -o a.llm
    mkdir there
    "${tiny[@]}" -n 3 -o there/b.llm --log there/log -j 1 -v --save-every 1 --keep-best there/best.llm --checkpoint-every 1
    cmp a.llm there/b.llm
}

@test "a checkpoint of 0 steps is the model as it was drawn, and a run from it is a run from the beginning" {
    "${tiny[@]}" -n 0 --seed 3 -o zero.llm
    "${tiny[@]}" -n 0 --seed 4 -o other.llm
    run ! cmp -s zero.llm other.llm
    "${new[@]}" -n 0 --seed 3 -o nodata.llm
    llm-quantize -q -t f32 zero.llm zero.safetensors
    llm-quantize -q -t f32 nodata.llm nodata.safetensors
    cmp zero.safetensors nodata.safetensors
    run -66 --separate-stderr llm-train --resume nodata.llm -n 3
    one_line "$stderr"
    "${tiny[@]}" -n 3 --seed 3 --warmup 1 -o straight.llm
    llm-train -q --resume zero.llm -n 3 --warmup 1
    cmp straight.llm zero.llm
}

@test "--init begins with the weights and the tokenizer of a model, at step 0" {
    "${tiny[@]}" -n 5 -o model.llm
    llm-train -q --init model.llm -n 0 -o again.llm "$F/data.tok"
    llm-quantize -q -t f32 model.llm model.safetensors
    llm-quantize -q -t f32 again.llm again.safetensors
    cmp model.safetensors again.safetensors
    assert_equal "$(steps_done again.llm)" 0
    llm-train -q --init model.safetensors -n 2 --log log -o other.llm "$F/data.tok"
    assert_equal "$(jq -s length log)" 2
}
