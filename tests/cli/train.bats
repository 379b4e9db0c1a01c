# llm-train: what each option does. (train_equal.bats: the same bytes; train_bad.bats: what is refused.)
load ../helper
export LLM_THREADS=1 # models as small as these gain nothing by more, and files run at once

setup_file() {
    sentences_tokens
    llm-tokenize train --model byte -o byte.json text
}

setup() {
    model=(-c nano --set n_layer=2 --set n_embd=32 --set n_head=2 -T "$F/tok.json")
    tiny=(llm-train -q "${model[@]}" -l 24 "$F/data.tok")
    llama=(llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=64 -T "$F/tok.json" -l 24 "$F/data.tok")
}

# floats MODEL: its weights, one a line, in the order of the file
floats() {
    llm-quantize -q -t f32 "$1" floats.safetensors
    local header
    header=$(od -An -N8 -tu8 floats.safetensors | tr -d ' ')
    while read -r from to; do
        tail -c +$((8 + header + from + 1)) floats.safetensors | head -c $((to - from)) | od -An -v -w4 -tf4
    done < <(head -c $((8 + header)) floats.safetensors | tail -c "$header" |
        jq -r 'del(.__metadata__) | map(select(.dtype == "F32").data_offsets) | sort[] | @tsv')
}

# way FILE FILE: the distance between two models as `floats` writes them
way() {
    paste "$1" "$2" | awk '{ s += ($1 - $2) ^ 2 } END { printf "%.9g", sqrt(s) }'
}

hash_of() {
    tail -n 1 "$1" | jq -r .hash
}

@test "the log has every field at every step, as it should be" {
    "${tiny[@]}" -n 40 -b 4 --accumulate 2 --val .1 --eval-every 15 --warmup 9 --lr 1e-2 --min-lr 1e-3 --clip .5 --log log.jsonl -o model.llm
    assert_equal "$(jq -s length log.jsonl)" 40
    assert_equal "$(jq -s -c 'map(.step) == [range(1; 41)]' log.jsonl)" true
    jq -es 'all(.[]; (keys_unsorted - ["val_loss", "val_nats_per_byte", "val_bits_per_byte"]) == ["step", "loss", "nats_per_byte",
        "bits_per_byte", "lr", "grad_norm", "parameters", "tokens", "flops", "tokens_per_second", "peak_share", "seconds", "activation_bytes", "hash"])' log.jsonl
    # an untrained model knows nothing; a trained one something
    near "$(jq -s '.[0].loss' log.jsonl)" "$(awk 'BEGIN { print log(280) }')" .02
    jq -es '.[39].loss < .[0].loss - 1' log.jsonl
    jq -es 'map(select(.val_loss)) | map(.step) == [15, 30, 40]' log.jsonl
    jq -es 'map(select(.val_loss)) | all(.val_bits_per_byte * (2 | log) - .val_nats_per_byte | fabs < 1e-12)' log.jsonl
    jq -es 'all(.[]; (.bits_per_byte * (2 | log) - .nats_per_byte | fabs) < 1e-12)' log.jsonl
    # lr: warm-up, then half a cosine
    jq -es '.[0].lr - 1e-2 / 10 | fabs < 1e-12' log.jsonl
    jq -es '.[9].lr - 1e-2 | fabs < 1e-12' log.jsonl
    jq -es '.[24].lr - (1e-3 + .5 * (1 + (15 / 31 * 3.141592653589793 | cos)) * 9e-3) | fabs < 1e-12' log.jsonl
    # a step counts what is not the first of a document; a norm is of before clipping
    jq -es '.[0].tokens <= 4 * 2 * 24 and .[0].tokens > 4 * 2 * 16 and .[39].tokens > 39 * .[0].tokens / 2' log.jsonl
    jq -es 'any(.[]; .grad_norm > .5)' log.jsonl
    # how fast it was, nobody knows; but the share of the peak and the rate are one measurement
    jq -es 'all(.[]; .seconds > 0 and .peak_share > 0 and .tokens_per_second > 0)' log.jsonl
    jq -es 'map(.peak_share / .tokens_per_second) | max / min - 1 < 1e-9' log.jsonl
    jq -es 'all(.[]; (.tokens_per_second * .seconds - 4 * 2 * 24 | fabs) < 1e-6)' log.jsonl
    jq -es '(map(.hash) | unique | length) == 40 and all(.[]; .hash | test("^[0-9a-f]{16}$"))' log.jsonl
}

@test "bits per byte: with a token for each byte, nats a token over ln 2" {
    llm-tokenize encode -T "$F/byte.json" -o byte.tok "$F/text"
    llm-train -q -c nano --set n_layer=1 -T "$F/byte.json" -l 16 -n 2 --log log.jsonl -o model.llm byte.tok
    jq -es 'all(.[]; (.loss - .nats_per_byte | fabs) < 1e-12)' log.jsonl
    # and without a tokenizer nobody knows
    llm-train -q -c nano --set n_layer=1 -l 16 -n 2 --log log.jsonl -o model.llm byte.tok
    jq -es 'all(.[]; has("bits_per_byte") | not)' log.jsonl
}

@test "the log can be standard output, and goes on where a run does" {
    "${tiny[@]}" -n 3 --log - -o model.llm > log.jsonl
    llm-train -q --resume model.llm -n 5 --log log.jsonl
    assert_equal "$(jq -s -c 'map(.step)' log.jsonl)" "[1,2,3,4,5]"
}

# lines_of LOG: its lines without what depends on the clock.
lines_of() {
    jq -c 'del(.tokens_per_second, .peak_share, .seconds)' "$1"
}

@test "--log of a run that is resumed goes on where the run is: what is beyond is cut off, a log of another run is refused" {
    local run=("${tiny[@]}" --schedule constant --warmup 2)
    "${run[@]}" -n 6 --log whole.jsonl -o whole.llm
    "${run[@]}" -n 3 --log part.jsonl -o model.llm
    "${run[@]}" -n 5 --log log.jsonl -o ahead.llm # as if killed after step 5, with what was saved at step 3
    printf '{"step": 6, "loss": 1' >> log.jsonl
    cp log.jsonl ahead.jsonl
    cp model.llm kept.llm
    llm-train -q --resume model.llm -n 6 --log log.jsonl
    cmp model.llm whole.llm
    assert_equal "$(lines_of log.jsonl)" "$(lines_of whole.jsonl)"
    # a log that begins after the step is continued from its beginning
    tail -n +4 ahead.jsonl > log.jsonl
    llm-train -q --resume kept.llm -n 6 -o model.llm --log log.jsonl
    assert_equal "$(lines_of log.jsonl)" "$(lines_of whole.jsonl | tail -n +4)"
    # another run's, one that ends before the step, one that is no log: refused, and not changed
    "${run[@]}" -n 4 --seed 9 --log other.jsonl -o other.llm
    cp other.jsonl copy
    run -65 --separate-stderr llm-train -q --resume kept.llm -n 6 -o model.llm --log other.jsonl
    [[ $stderr == "llm-train: other.jsonl: line 3: step 3: expected the hash "*" of the run that is resumed, found "* ]]
    cmp other.jsonl copy
    head -n 2 whole.jsonl > short.jsonl
    run -65 --separate-stderr llm-train -q --resume kept.llm -n 6 -o model.llm --log short.jsonl
    assert_equal "$stderr" "llm-train: short.jsonl: expected a log with step 3, where the run is resumed, found none; another --log begins anew"
    [[ $(wc -l < short.jsonl) == 2 ]]
    cp "$F/text" no.jsonl
    run -65 --separate-stderr llm-train -q --resume kept.llm -n 6 -o model.llm --log no.jsonl
    [[ $stderr == "llm-train: no.jsonl: line 1: JSON: "* ]]
    cmp no.jsonl "$F/text"
}

@test "words for people go to stderr, and -q says nothing" {
    run -0 --separate-stderr llm-train "${model[@]}" -l 24 "$F/data.tok" -n 3 --val .1 -o model.llm
    assert_equal "$output" ""
    [[ ${stderr_lines[0]} =~ ^"llm-train: step 3: loss "[0-9.]+", validation "[0-9.]+" ("[0-9.]+" bits per byte)"$ ]]
    run -0 --separate-stderr "${tiny[@]}" -n 3 --val .1 -o model.llm
    assert_equal "$output$stderr" ""
}

@test "a checkpoint to standard output is the one to a file" {
    "${tiny[@]}" -n 2 -o model.llm
    "${tiny[@]}" -n 2 -o - > piped.llm
    cmp model.llm piped.llm
    zstd -tq model.llm
}

@test "documents in one row: alone by default, in sight of each other with --cross-document" {
    printf 'the red cat sees' > a
    printf 'the old hen likes the dog' > b
    local name
    for name in a b; do llm-tokenize encode -T "$F/byte.json" -o $name.tok $name; done
    llm-tokenize encode -T "$F/byte.json" -o ab.tok a b
    cat a b > joined
    llm-tokenize encode -T "$F/byte.json" -o joined.tok joined
    # loss of the first step, over the tokens that count
    loss() {
        local data=$1
        shift
        llm-train -q -c nano --set n_layer=2 --set n_positions=64 -T "$F/byte.json" -n 1 -b 1 --order sequential --precision f32 --seed 2 \
            --log log "$@" -o x.llm "$data"
        jq -r '"\(.loss) \(.tokens)"' log
    }
    read -r a na <<< "$(loss a.tok -l 15)"
    read -r b nb <<< "$(loss b.tok -l 24)"
    read -r ab nab <<< "$(loss ab.tok -l 40)"
    read -r cross ncross <<< "$(loss ab.tok -l 40 --cross-document)"
    read -r joined njoined <<< "$(loss joined.tok -l 40)"
    assert_equal "$na $nb $nab $ncross $njoined" "15 24 39 40 40"
    near "$ab" "$(awk "BEGIN { printf \"%.9f\", ($a * $na + $b * $nb) / $nab }")" 1e-6
    near "$cross" "$joined" 1e-7
    run ! near "$cross" "$ab" 1e-6
}

@test "--keep-best holds the model of the lowest validation loss" {
    # the last lines are not like the others: learning those makes these worse
    { head -n 30 "$F/text"; for i in {1..20}; do echo "hen the fish the dog red"; done; } > mixed
    llm-tokenize encode -T "$F/tok.json" -o mixed.tok mixed
    llm-train -q "${model[@]}" -l 24 -b 4 -n 60 --lr 2e-2 --warmup 0 --schedule constant --val .3 --eval-every 5 --keep-best best.llm --log log \
        -o model.llm mixed.tok
    local best
    best=$(jq -s 'map(select(.val_loss)) | min_by(.val_loss) | .step' log)
    ((best < 60))
    llm-train -q "${model[@]}" -l 24 -b 4 -n "$best" --lr 2e-2 --warmup 0 --schedule constant --val .3 -o then.llm mixed.tok
    llm-quantize -q -t f32 best.llm best.safetensors
    llm-quantize -q -t f32 then.llm then.safetensors
    cmp best.safetensors then.safetensors
    run -65 --separate-stderr llm-train --resume best.llm -n 100
    assert_equal "$stderr" "llm-train: best.llm: expected a training state, found a model alone; --init begins from its weights"
    # an interruption does not forget what was best
    rm best.llm
    llm-train -q --resume model.llm -n 61 --keep-best best.llm --lr 0 --min-lr 0
    [[ ! -e best.llm ]]
}

@test "--save-every leaves a checkpoint that a run that was killed goes on from" {
    local saved
    mkfifo fifo
    "${tiny[@]}" -n 100000 --warmup 6 --schedule constant --save-every 20 --log fifo -o model.llm &
    { head -n 25 > /dev/null; kill -KILL $!; cat > /dev/null; } < fifo
    ends_by 137 $!
    zstd -tq model.llm
    # as if nothing had happened: the same parameters after each step, and the same file
    saved=$(steps_done model.llm)
    ((saved >= 20 && saved % 20 == 0))
    "${tiny[@]}" -n $((saved + 7)) --warmup 6 --schedule constant --log straight.jsonl -o straight.llm
    llm-train -q --resume model.llm -n $((saved + 7)) --log resumed.jsonl
    assert_equal "$(jq -c '[.step, .hash]' resumed.jsonl)" "$(tail -n 7 straight.jsonl | jq -c '[.step, .hash]')"
    cmp model.llm straight.llm
}

@test "validation on a file, or on the last share of the data, on all rows or some" {
    llm-tokenize encode -T "$F/tok.json" --lines -o first.tok <(head -n 300 "$F/text")
    llm-tokenize encode -T "$F/tok.json" --lines -o last.tok <(tail -n 100 "$F/text")
    local n=0 share
    n=$(llm-tokenize encode -T "$F/tok.json" --lines --count "$F/text")
    share=$(awk -v n="$n" -v m="$(llm-tokenize encode -T "$F/tok.json" --lines --count <(tail -n 100 "$F/text"))" 'BEGIN { printf "%.9f", m / n }')
    llm-train -q "${model[@]}" -l 24 -n 3 --val last.tok --log file -o model.llm first.tok
    llm-train -q "${model[@]}" -l 24 -n 3 --val "$share" --log share -o model.llm "$F/data.tok"
    assert_equal "$(jq -c '[.loss, .val_loss, .hash]' file)" "$(jq -c '[.loss, .val_loss, .hash]' share)"
    llm-train -q "${model[@]}" -l 24 -n 3 --val last.tok --eval-rows 2 --log some -o model.llm first.tok
    [[ $(jq -s '.[2].val_loss' file) != "$(jq -s '.[2].val_loss' some)" ]]
}

@test "--order: sequential takes the data from its beginning" {
    head -n 4 "$F/text" | tr -d '\n' > start
    llm-tokenize encode -T "$F/byte.json" -o start.tok start
    cat start "$F/text" > long
    llm-tokenize encode -T "$F/byte.json" -o long.tok long
    for name in start long; do
        llm-train -q -c nano --set n_layer=1 -T "$F/byte.json" -n 1 -b 1 -l 60 --order sequential --log $name -o x.llm $name.tok
    done
    assert_equal "$(jq .loss start)" "$(jq .loss long)"
}

@test "--optimizer: each learns; a first step is what its formula says" {
    local o
    for o in adamw adam sgd adagrad lion muon; do
        "${tiny[@]}" -n 40 -b 8 --optimizer $o --lr "$(case $o in sgd) echo .3 ;; lion) echo .002 ;; *) echo .01 ;; esac)" --log $o.log -o x.llm
        jq -es '.[39].loss < .[0].loss - .5' $o.log || fail $o
    done
    "${tiny[@]}" -n 0 --precision f32 -o x.llm
    floats x.llm > fresh
    step() { # FILE OPTION...: the weights after one step without decay
        "${tiny[@]}" -n 1 -b 2 --weight-decay 0 --warmup 0 --precision f32 "${@:2}" --log log -o x.llm
        floats x.llm > "$1"
    }
    step zero --optimizer sgd --momentum 0 --clip 0 --lr 0 --min-lr 0
    cmp zero fresh
    # SGD: w - rate · gradient, so that twice the rate is twice the way; and the way is as long as the gradient that the log speaks of
    step one --optimizer sgd --momentum 0 --clip 0 --lr .1
    near "$(way fresh one)" "$(jq '.grad_norm * .1' log)" 1e-4
    step two --optimizer sgd --momentum 0 --clip 0 --lr .2
    near_lines <(paste fresh two | awk -v OFMT=%.9g '{ print $2 - $1 }') <(paste fresh one | awk -v OFMT=%.9g '{ print 2 * ($2 - $1) }') 5e-7
    # a gradient that is clipped is as long as --clip
    step short --optimizer sgd --momentum 0 --clip .03 --lr .1
    near "$(way fresh short)" 3e-3 1e-3
    # AdaGrad's --eps is PyTorch's if none is given
    step small --optimizer adagrad --lr .01 --eps 1e-10
    step other --optimizer adagrad --lr .01 --eps 1e-8
    step default --optimizer adagrad --lr .01
    cmp small default
    run ! cmp -s other default
    # the first step of these has the size of the rate, whatever the gradient (0: of positions that no row has)
    for o in adamw adam adagrad lion; do
        step "$o" --optimizer $o --lr .01
        paste fresh "$o" | awk '{ d = $2 - $1; if (d < 0) d = -d; if (d > .010001) bad = 1; moved += d > 0; whole += d > .0099 }
            END { print NR, moved, whole; exit bad || moved < NR / 4 || whole < .95 * moved }' || fail "$o"
    done
}

@test "--optimizer muon: its own rate moves the matrices, AdamW's the rest" {
    weights() { # FILE OPTION...: the weights after one step at the whole rate
        "${tiny[@]}" -n 1 --warmup 0 --precision f32 --optimizer muon "${@:2}" --log log -o x.llm
        floats x.llm > "$1"
    }
    weights still --lr .01 --muon-lr 0 --weight-decay 0
    weights decayed --lr .01 --muon-lr 0 --weight-decay .5
    weights none --lr 0 --min-lr 0
    "${tiny[@]}" -n 0 --precision f32 -o x.llm
    floats x.llm > fresh
    cmp none fresh # the schedule of --lr is that of --muon-lr
    # of AdamW's parameters the embeddings decay by rate · decay · weight, gains do not; Muon's matrices (12 · 32² in each of two layers) stay
    paste fresh still decayed | awk '{ d = $3 - $2 + .01 * .5 * $1; if (d < 0) d = -d; e = $3 - $2; if (e < 0) e = -e
        if (d > 2e-7 && e > 0) bad = 1; decayed += e > 0; if ($1 == $2 && $1 == $3) same++ }
        END { print NR, decayed, same; exit bad || decayed < 280 * 32 * .9 || same < 2 * 12 * 32 * 32 }'
    # a rate that AdamW likes serves with the scale that matches it; moments are one for a matrix, two for the rest
    "${tiny[@]}" -n 40 -b 8 --optimizer muon --muon-scale match-rms-adamw --lr .01 --log log -o x.llm
    jq -es '.[39].loss < .[0].loss - .5' log
    plan=$(llm-train -c nano --set n_layer=3 --set vocab_size=300 -b 2 -l 32 --optimizer muon --plan | awk '$1 == "moment_bytes" { print $2 }')
    assert_equal "$plan" $((8 * (300 * 128 + 32 * 128 + 3 * 2 * 128 + 128) + 4 * 3 * 12 * 128 * 128))
}

@test "--ema: the average is kept, validated, written; the run itself does not change" {
    "${tiny[@]}" -n 30 -b 4 --lr 1e-2 --val .2 --log plain -o plain.llm
    "${tiny[@]}" -n 30 -b 4 --lr 1e-2 --val .2 --ema .8 --log kept --ema-output average.llm -o kept.llm
    assert_equal "$(jq -c '[.loss, .val_loss, .hash]' plain)" "$(jq -c '[.loss, .val_loss, .hash]' kept)"
    "${tiny[@]}" -n 30 -b 4 --lr 1e-2 --val .2 --ema .8 --eval-ema --eval-every 10 --log seen --keep-best best.llm --ema-output again.llm -o x.llm
    assert_equal "$(jq -c '[.loss, .hash]' plain)" "$(jq -c '[.loss, .hash]' seen)"
    [[ $(jq -s '.[29].val_loss' plain) != "$(jq -s '.[29].val_loss' seen)" ]]
    cmp average.llm again.llm
    cmp average.llm best.llm
    # what was validated is what was written
    llm-train -q --init average.llm -l 24 -n 1 --lr 0 --min-lr 0 --val .2 --log init -o x.llm "$F/data.tok"
    near "$(jq .val_loss init)" "$(jq -s '.[29].val_loss' seen)" 1e-12
    # averages can begin later; and what they take is planned
    "${tiny[@]}" -n 3 --precision f32 -o plain.llm
    floats plain.llm > before
    llm-train -q --resume plain.llm -n 4 --ema .5 --ema-output late.llm -o further.llm
    floats further.llm > after
    near_lines <(floats late.llm) <(paste before after | awk -v OFMT=%.9g '{ print .5 * $1 + .5 * $2 }') 1e-6
    # after each step: decay · average + (1 - decay) · weights, from the fresh weights on
    local k
    for k in 0 1 2 3; do
        "${tiny[@]}" -n $k --precision f32 --schedule constant --lr 1e-2 --warmup 0 --ema .8 --ema-output short.llm -o x.llm
        floats x.llm > w$k
    done
    near_lines <(floats short.llm) <(paste w0 w1 w2 w3 | awk -v OFMT=%.9g '{ print .8 * (.8 * (.8 * $1 + .2 * $2) + .2 * $3) + .2 * $4 }') 1e-6
    assert_equal "$(llm-train -c nano --set n_layer=1 --set vocab_size=300 -l 8 --ema .9 --plan | awk '$1 == "average_bytes" { print $2 }')" \
        $((4 * (300 * 128 + 8 * 128 + 12 * 128 * 128 + 3 * 128)))
}

@test "--schedule wsd: full rate, then down over the last steps" {
    "${tiny[@]}" -n 20 -b 1 --warmup 2 --schedule wsd --decay-fraction .25 --lr 1e-3 --min-lr 1e-4 --log log -o x.llm
    near "$(jq -s '.[2].lr' log)" 1e-3 1e-12
    near "$(jq -s '.[15].lr' log)" 1e-3 1e-12
    near "$(jq -s '.[16].lr' log)" "$(awk 'BEGIN { printf "%.12g", 1e-3 - 9e-4 / 5 }')" 1e-9
    near "$(jq -s '.[19].lr' log)" "$(awk 'BEGIN { printf "%.12g", 1e-3 - 9e-4 * 4 / 5 }')" 1e-9
}

@test "--schedule: constant stays, linear is half way in the middle, cosine too" {
    local s
    for s in constant linear cosine; do
        "${tiny[@]}" -n 11 -b 1 --warmup 0 --schedule $s --lr 1e-3 --min-lr 1e-4 --log $s -o x.llm
    done
    near "$(jq -s '.[10].lr' constant)" 1e-3 1e-12
    near "$(jq -s '.[5].lr' linear)" "$(awk 'BEGIN { printf "%.12g", 1e-3 - 9e-4 * 5 / 11 }')" 1e-9
    near "$(jq -s '.[10].lr' linear)" "$(awk 'BEGIN { printf "%.12g", 1e-3 - 9e-4 * 10 / 11 }')" 1e-9
    near "$(jq -s '.[5].lr' cosine)" "$(awk 'BEGIN { printf "%.12g", 1e-4 + .5 * (1 + cos(3.14159265358979 * 5 / 11)) * 9e-4 }')" 1e-9
}

@test "dropout: none is no change, some changes training and not validation" {
    "${tiny[@]}" -n 2 --val .1 --log none -o x.llm
    "${tiny[@]}" -n 2 --val .1 --dropout 0 --log zero -o x.llm
    "${tiny[@]}" -n 2 --val .1 --dropout .3 --log some -o x.llm
    "${tiny[@]}" -n 1 --val .1 --lr 0 --min-lr 0 --dropout .3 --log still -o x.llm
    "${tiny[@]}" -n 1 --val .1 --lr 0 --min-lr 0 --log sober -o x.llm
    assert_equal "$(hash_of none)" "$(hash_of zero)"
    [[ $(hash_of none) != "$(hash_of some)" ]]
    assert_equal "$(jq .val_loss still)" "$(jq .val_loss sober)"
    [[ $(jq .loss still) != "$(jq .loss sober)" ]]
}

@test "each variant of the architecture: its gradients are right, it learns, and it is not another" {
    local v
    variants() { # COMMAND... and lines of --set
        while read -r v; do
            local sets=()
            for word in $v; do sets+=(--set "$word"); done
            "$@" "${sets[@]}" -b 2 -l 16 --gradcheck > table || fail "$v: $(cat table)"
            "$@" "${sets[@]}" -b 4 -n 30 --lr 1e-2 --log log -o x.llm
            jq -es '.[29].loss < .[0].loss - .7' log > /dev/null || fail "$v does not learn"
            hash_of log >> hashes
        done
    }
    variants "${tiny[@]}" << 'END'
n_head=2
n_head=4
norm_place=post
position_embedding=sinusoidal
position_embedding=rope
position_embedding=none
bias=true
activation_function=gelu_new
activation_function=relu
activation_function=silu
activation_function=sigmoid
activation_function=tanh
activation_function=relu2
activation_function=quick_gelu
activation_function=linear
norm=group norm_groups=2
norm=batch
norm=rms
sliding_window=3
tie_word_embeddings=false
n_inner=48
logit_scale=1/sqrt(hidden)
layer_norm_epsilon=0.1
END
    variants "${llama[@]}" << 'END'
num_key_value_heads=2
num_key_value_heads=1
num_key_value_heads=4
head_dim=12
sliding_window=4
rope_theta=100
rope_pairing=interleaved
norm_place=post
attention_bias=true
mlp_bias=true
tie_word_embeddings=false
hidden_act=gelu
hidden_act=relu2
norm=layer
norm=batch
position_embedding=learned
position_embedding=sinusoidal
rms_norm_eps=0.1
END
    assert_equal "$(sort -u hashes | wc -l)" 41
}

@test "BatchNorm: running statistics travel in the model, follow the passes of training, and serve what is not training" {
    batch=("${tiny[@]}" --set norm=batch -b 4 --lr 1e-2)
    "${batch[@]}" -n 60 --val .2 --log log -o model.llm
    near "$(jq -s '.[59].val_loss' log)" "$(jq -s '.[59].loss' log)" .5
    llm-quantize -q -t f32 model.llm model.safetensors
    header=$(head -c 8192 model.safetensors | tr -d '\0')
    [[ $header == *'transformer.h.1.ln_2.running_mean'* && $header == *'transformer.ln_f.running_var'* ]]
    run -0 llm-infer -m model.llm -n 8 --temp 0 "the red"
    assert_regex "$output" '(cat|dog|bird|fish|hen)'
    # kept activations or not, the statistics are noted once
    "${batch[@]}" -n 5 --log keep -o x.llm
    "${batch[@]}" -n 5 --checkpoint-every 1 --log again -o x.llm
    assert_equal "$(hash_of keep)" "$(hash_of again)"
    # a step of rate 0 moves nothing but them, and they do not depend on it
    "${batch[@]}" -n 1 --lr 0 --min-lr 0 --log still -o x.llm
    "${batch[@]}" -n 0 -o y.llm
    [[ $(hash_of still) != "$(llm-train -q --init y.llm -n 1 --lr 0 --min-lr 0 -l 24 -b 4 "$F/data.tok" --log - -o z.llm --seed 1 | jq -r .hash)" ]]
    run -2 --separate-stderr "${tiny[@]}" --set norm=group --set norm_groups=5 -n 1 -o x.llm
    assert_regex "$stderr" "norm_groups: expected a divisor of hidden_size \(32\), found 5"
}

@test "--activations: the first loss is the same, training nearly so, and less memory is planned" {
    for kind in f32 bf16 int8 top=.2 rank=8; do
        "${llama[@]}" -n 30 -b 4 --lr 1e-2 --activations $kind --log $kind -o x.llm
        llm-train -c tiny --set vocab_size=300 --set num_hidden_layers=12 --set hidden_size=64 --set intermediate_size=128 -b 2 -l 64 --activations $kind \
            --plan | awk '$1 == "activation_bytes" { print $2 }' > $kind.bytes
    done
    for kind in bf16 int8 top=.2 rank=8; do
        assert_equal "$(jq -s '.[0].loss' f32)" "$(jq -s '.[0].loss' $kind)"
        [[ $(hash_of f32) != "$(hash_of $kind)" ]]
        near "$(jq -s '.[29].loss' $kind)" "$(jq -s '.[29].loss' f32)" "$([[ $kind == top* ]] && echo .3 || echo .05)"
    done
    # with checkpointing the blocks that run again keep theirs so, too: the same gradients
    for kind in bf16 int8 top=.2 rank=8; do
        "${llama[@]}" -n 3 -b 4 --lr 1e-2 --activations $kind -o kept.llm
        for d in 1 2; do
            "${llama[@]}" -n 3 -b 4 --lr 1e-2 --activations $kind --checkpoint-every $d -o again.llm
            cmp kept.llm again.llm || fail "$kind, $d"
        done
        "${llama[@]}" -n 3 -b 2 --accumulate 2 -j 1 --lr 1e-2 --activations $kind -o again.llm
        cmp kept.llm again.llm || fail "$kind in two passes"
    done
    # rows that are no whole blocks of int8
    "${llama[@]}" --set intermediate_size=72 -n 2 -b 3 --activations int8 -o kept.llm
    "${llama[@]}" --set intermediate_size=72 -n 2 -b 1 --accumulate 3 --activations int8 -o again.llm
    cmp kept.llm again.llm
    awk -v f="$(cat f32.bytes)" -v b="$(cat bf16.bytes)" -v i="$(cat int8.bytes)" 'BEGIN { print f, b, i; exit !(b < .75 * f && i < .55 * f) }'
    awk -v b="$(cat bf16.bytes)" -v t="$(cat top=.2.bytes)" -v r="$(cat rank=8.bytes)" 'BEGIN { print b, t, r; exit !(t < .95 * b && r < .95 * b) }'
    for kind in top rank int8=3 top=0 top=1.1 rank=0 rank=9999 rank=x int4; do
        run -2 --separate-stderr "${llama[@]}" -n 1 --activations $kind -o y.llm
        assert_regex "$stderr" "activations: "
    done
    [[ ! -e y.llm ]]
}

@test "--z-loss: the loss that is shown is without it; logits stay nearer to a sum of 1" {
    "${tiny[@]}" -n 1 --log none -o x.llm
    "${tiny[@]}" -n 1 --z-loss .1 --log some -o x.llm
    assert_equal "$(jq .loss none)" "$(jq .loss some)"
    [[ $(hash_of none) != "$(hash_of some)" ]]
    # log Σ e^logit: squared and weighed, it comes down
    sum_of_logits() {
        "${tiny[@]}" -n 40 -b 4 --lr 1e-2 --z-loss "$1" -o x.llm
        llm-infer -q -m x.llm --precision f32 --logits "the red" > message
        # the logits [4, 280] after the ids of 4 tokens
        tail -c +$((8 + $(od -An -N8 -tu8 message) + 16 + 1)) message | head -c $((4 * 4 * 280)) | tail -c $((4 * 280)) | od -An -v -w4 -tf4 |
            awk '{ s += exp($1) } END { s = log(s); print s * s, NR }'
    }
    awk -v none="$(sum_of_logits 0)" -v some="$(sum_of_logits 1)" 'BEGIN { print none, some; exit !(some + 0 < .1 * none) }'
    "${tiny[@]}" -n 2 --z-loss 0 --log zero -o x.llm
    "${tiny[@]}" -n 2 --log none -o x.llm
    assert_equal "$(hash_of none)" "$(hash_of zero)"
    "${tiny[@]}" --z-loss .1 --gradcheck > /dev/null # which is of the loss alone
}

@test "presets have the parameters that they say" {
    parameters() {
        llm-train -c "$1" -b 1 -l 8 "${@:2}" --plan | awk '$1 == "parameters" { print $2 }'
    }
    assert_equal "$(parameters tiny)" 4983552
    assert_equal "$(parameters nano --set vocab_size=65 -l 64)" 804096
}

@test "--plan: lines that add up, and one JSON object; no data is needed" {
    run -0 --separate-stderr llm-train -c nano --set n_layer=3 --set vocab_size=300 -b 2 -l 32 --steps 500 --accumulate 3 --plan
    assert_equal "$stderr" ""
    awk -F'\t' '/_bytes/ && !/total/ { sum += $2 } /total_bytes/ { total = $2 } END { exit !(sum == total && sum > 0) }' <<< "$output"
    awk -F'\t' '$1 == "tokens_per_step" { exit $2 != 2 * 32 * 3 }' <<< "$output"
    llm-train -c nano --set n_layer=3 --set vocab_size=300 -b 2 -l 32 --steps 500 --plan --json |
        jq -e '.seconds > 0 and (.seconds / .step_seconds / 500 - 1 | fabs) < 0.02 and .peak_flops_per_second > 0 and .flops_per_step > 0'
    # what it says of memory is what a run then takes, moments and all
    plan=$(llm-train -c nano --set n_layer=3 --set vocab_size=300 -b 2 -l 32 --plan | awk '$1 == "moment_bytes" { print $2 }')
    assert_equal "$plan" $((8 * (300 * 128 + 32 * 128 + 3 * (12 * 128 * 128 + 2 * 128) + 128)))
    # activations of six layers, planned from one and two, and as the log measures them
    for keep in "" "--checkpoint-every 2" "--activations bf16"; do
        deep=(llm-train -q -c nano --set n_layer=6 -T "$F/tok.json" -b 2 -l 32 $keep)
        plan=$("${deep[@]}" --plan | awk '$1 == "activation_bytes" { print $2 }')
        "${deep[@]}" -n 2 --log log.jsonl -o model.llm "$F/data.tok"
        jq -se "last.activation_bytes / $plan | . > 0.98 and . < 1.02" log.jsonl > /dev/null || fail "$keep: planned $plan, $(tail -n 1 log.jsonl)"
    done
}

@test "--precision bf16: files have the roundings of the FP32 weights, in their order of rows and columns" {
    echo '{"model_type": "gpt_neox", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 32}' > neox.json
    for config in nano tiny mamba neox.json; do
        for precision in f32 bf16; do
            llm-train -q -c $config --set vocab_size=300 -n 0 --precision $precision -o model.llm
            llm-quantize -q -t bf16 model.llm $precision.llm
        done
        cmp f32.llm bf16.llm
    done
}

@test "--plan: the memory that a run then takes in all" {
    need_plain_memory
    local config=(-c tiny --set num_hidden_layers=6 -b 4 --context 128)
    for more in "" "--accumulate 2" "--precision f32"; do
        taken=$(llm-bench train "${config[@]}" $more -r 1 --json | jq '.. | .peak_rss_bytes? // empty')
        llm-train "${config[@]}" $more --plan | awk -v taken="$taken" '$1 == "total_bytes" { print $2, taken; exit !($2 > .93 * taken && $2 < 1.07 * taken) }'
    done
}

@test "--gradcheck: a line for each tensor; with data and without" {
    run -0 "${tiny[@]}" --gradcheck
    assert_equal "${lines[0]}" $'tensor\tanalytic\tnumeric\tdifference\tuncertainty'
    assert_equal "${#lines[@]}" 16
    awk -F'\t' 'NR > 1 && !($4 < 1e-3 && $2 != 0) { bad = 1; print } END { exit bad }' <<< "$output"
    run -0 llm-train -c nano --set n_layer=1 --set n_embd=16 --set vocab_size=50 -l 8 -b 2 --gradcheck
    assert_equal "${#lines[@]}" 10
    # The norm of an almost empty state is nearly a step function: its slope is found by shorter steps.
    for more in "rwkv5 --set initializer_range=0.005" "rwkv6 --set initializer_range=0.005" rwkv7; do
        # shellcheck disable=SC2086
        llm-train -c $more --set num_hidden_layers=2 --set vocab_size=512 -l 16 -b 2 --gradcheck > checked
    done
}

@test "--overfit-one learns a batch by heart, or fails" {
    without_sanitizer "${tiny[@]}" --overfit-one -b 2 -n 150 --lr 1e-2 --cross-document
    run -1 --separate-stderr "${tiny[@]}" --overfit-one -b 2 -n 3
    assert_regex "$stderr" '^llm-train: --overfit-one: expected a loss below 0.1 after 3 steps on one batch, found [0-9.]+$'
}

@test "bf16 and f32 are close, and not the same" {
    "${tiny[@]}" -n 10 --precision f32 --log f32 -o x.llm
    "${tiny[@]}" -n 10 --precision bf16 --log bf16 -o x.llm
    near "$(jq -s '.[9].loss' f32)" "$(jq -s '.[9].loss' bf16)" .01
    [[ $(hash_of f32) != "$(hash_of bf16)" ]]
}

@test "what was trained can be sampled, scored and quantised" {
    without_sanitizer "${tiny[@]}" -n 150 -b 8 --lr 1e-2 -o model.llm
    run -0 llm-infer -m model.llm -n 12 --temp 0 "the red"
    assert_regex "$output" '(cat|dog|bird|fish|hen)'
    llm-quantize -q -t q8_0 model.llm small.llm
    run -0 llm-infer -m small.llm -n 12 --temp 0 "the red"
    assert_regex "$output" '(cat|dog|bird|fish|hen)'
}

@test "the commands of the manual's EXAMPLES run" {
    cp "$F/text" corpus.txt
    head -c $((80 * 28 * 28)) /dev/zero | idx train-images.idx 80 28 28
    for _ in {1..40}; do printf '\0\x01'; done | idx train-labels.idx 80
    manual_examples llm-train 9
    assert_equal "$(jq -s length log.jsonl)" 20
}
