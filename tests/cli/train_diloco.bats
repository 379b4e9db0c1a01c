# llm-train --outer diloco: replicas that are trained apart. Their number belongs to the run; any number of ranks up to it gives the bits of one process.
load ../helper
load ../mpi

setup_file() { sentences_tokens; }

setup() {
    gpt=(llm-train -q -j 1 -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 -l 24 -T "$F/tok.json" "$F/data.tok" -b 4 --accumulate 3)
    diloco=(--outer diloco --replicas 4 --inner-steps 3)
}

numbers() { jq -c '[.step, .loss, .val_loss, .grad_norm, .hash]' "$1"; }

@test "one replica, one inner step, rate 1, no momentum: what a run without replicas learns" {
    "${gpt[@]}" -n 3 --precision f32 -o plain.llm --log plain.log
    "${gpt[@]}" -n 3 --precision f32 -o one.llm --log one.log --outer diloco --replicas 1 --inner-steps 1 --outer-lr 1 --outer-momentum 0
    # w - (w - v) is v but for rounding
    jq -es 'length == 6 and (.[:3] as $a | .[3:] as $b | [range(3)] | all($a[.].loss - $b[.].loss | fabs < 1e-5))' plain.log one.log
    [[ $(jq -r .hash plain.log | tail -n 1) != "$(jq -r .hash one.log | tail -n 1)" ]]
}

# With plain SGD two replicas that take one step go as far as the mean of their gradients, which is the gradient of all rows: the outer step at rate .25
# and momentum .5 is then a step of SGD with Nesterov momentum .5 at a quarter of the replicas' rate.
@test "the outer step is SGD with Nesterov momentum on the mean of the replicas' distances" {
    local of=("${gpt[@]}" -n 6 --cross-document --precision f32 --optimizer sgd --weight-decay 0 --clip 0 --schedule constant --warmup 0)
    "${of[@]}" -o apart.llm --log apart.log --momentum 0 --lr .5 --outer diloco --replicas 2 --inner-steps 1 --outer-lr .25 --outer-momentum .5
    "${of[@]}" -o together.llm --log together.log --lr .125 --momentum .5 --nesterov yes
    jq -es 'length == 12 and (.[:6] as $a | .[6:] as $b | [range(6)] | all($a[.].loss - $b[.].loss | fabs < 1e-5))' apart.log together.log
    "${of[@]}" -o other.llm --log other.log --lr .125 --momentum .5 --nesterov no
    jq -es '.[5].loss - .[11].loss | fabs > 1e-3' apart.log other.log
}

@test "one process, and 2, 3 and 4 ranks: the same hash at every step and the same checkpoint, between outer steps too" {
    need_mpi
    local of=("${gpt[@]}" "${diloco[@]}" --dropout .1 --val .2 --eval-every 3 --grad-shards 3 -n 6) r
    "${of[@]}" -o alone.llm --log alone.log
    for r in 2 3 4; do
        ranks "$r" "${of[@]}" -o ranks.llm --log ranks.log
        cmp alone.llm ranks.llm
        diff <(numbers alone.log) <(numbers ranks.log)
    done
    # what travels between outer steps is less than a hundredth of what an outer step sends
    jq -es 'map(.comm_bytes) | .[1] * 100 < .[2] and .[3] * 100 < .[5]' ranks.log
    same_by_threads "${gpt[@]}" "${diloco[@]}" -n 3
}

@test "a mixture, Muon, an adapter, BatchNorm by pass: the bits of one process" {
    need_mpi
    local of=(-q -j 1 -l 24 -T "$F/tok.json" "$F/data.tok" -n 3 "${diloco[@]}")
    one_is_many() {
        "$@" -o alone.llm
        ranks 3 "$@" -o ranks.llm
        cmp alone.llm ranks.llm
    }
    one_is_many llm-train -c moe --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=5 \
        --set router_bias=true -b 4 "${of[@]}"
    one_is_many llm-train -c nano --set n_layer=1 --set n_embd=32 --set n_head=2 --set norm=batch --optimizer muon -b 2 --accumulate 4 "${of[@]}"
    "${gpt[@]}" -n 1 -o base.llm
    one_is_many llm-train --init base.llm --adapter lora --dora -q -j 1 -l 24 "$F/data.tok" -n 3 -b 4 "${diloco[@]}"
}

@test "a run goes on with another number of ranks, from a save between outer steps" {
    need_mpi
    local of=("${gpt[@]}" "${diloco[@]}" --schedule constant --warmup 2) pid
    "${of[@]}" -n 9 -o straight.llm
    ranks 3 "${of[@]}" -n 3 -o part.llm
    ranks 2 llm-train -q -j 1 --resume part.llm -n 6
    llm-train -q --resume part.llm -n 9
    cmp straight.llm part.llm
    "${of[@]}" --optimizer sgd -n 999999 --save-every 1 -o between.llm --log between.log &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        [[ -s between.log && $(wc -l < between.log) -ge 4 ]] && break
        sleep .05
    done
    kill -9 "$pid"
    wait "$pid" || assert_equal $? 137
    local steps
    steps=$(($(tail -n 1 between.log | jq .step) / 3 * 3 + 6))
    ranks 4 llm-train -q -j 1 --resume between.llm -n "$steps"
    "${of[@]}" --optimizer sgd -n "$steps" -o straight.llm
    cmp straight.llm between.llm
    run -2 --separate-stderr llm-train -q --resume part.llm -n 12 --replicas 3
    assert_equal "$stderr" "llm-train: part.llm: --outer, --replicas, --inner-steps: expected those of the run that goes on (diloco, 4, 3)"
}

@test "a signal: the step of all replicas is finished, saved, and goes on" {
    local of=("${gpt[@]}" "${diloco[@]}" --schedule constant --warmup 2 --optimizer sgd) pid status=0 steps
    "${of[@]}" -n 999999 -o run.llm --log run.log &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        [[ -s run.log && $(wc -l < run.log) -ge 4 ]] && break
        sleep .05
    done
    kill -TERM "$pid"
    wait "$pid" || status=$?
    assert_equal "$status" 143
    steps=$(($(tail -n 1 run.log | jq .step) / 3 * 3 + 3))
    llm-train -q --resume run.llm -n "$steps"
    "${of[@]}" -n "$steps" -o straight.llm
    cmp straight.llm run.llm
}

@test "what does not go with replicas is refused by name: status 2, one line" {
    check() {
        run -2 --separate-stderr "${gpt[@]}" -n 3 -o x.llm "${@:2}"
        assert_equal "$stderr" "llm-train: $1"
    }
    check "--replicas, --inner-steps, --outer-lr and --outer-momentum go with --outer diloco" --replicas 2
    check "--replicas: expected a divisor of the 12 rows of a step, found 5" "${diloco[@]}" --replicas 5
    check "--steps: expected a multiple of 2 (--inner-steps), found 3" "${diloco[@]}" --inner-steps 2
    check "--grad-shards: expected at most 3 (rows of a replica), found 4" "${diloco[@]}" --grad-shards 4
    check "--outer diloco: expected no --ema" "${diloco[@]}" --ema .9
    need_mpi
    run -2 --separate-stderr ranks 5 "${gpt[@]}" -n 3 -o x.llm "${diloco[@]}"
    assert_equal "$stderr" "llm-train: --replicas: expected at least one replica for each of 5 ranks, found 4"
    run -2 --separate-stderr ranks 2 "${gpt[@]}" -n 3 -o x.llm "${diloco[@]}" --shard zero=1
    assert_equal "$stderr" "llm-train: --shard: expected zero=0 with --outer diloco, found zero=1"
    [[ ! -e x.llm ]]
}

@test "--plan: replicas have weights and moments of their own; traffic is divided by the inner steps" {
    local plain apart
    value() { awk -v key="$1" '$1 == key { print $2 }' <<< "$2"; }
    plain=$(llm-train -q -j 1 -c nano -b 12 -l 24 --grad-shards 4 --shard dp=4 --plan)
    apart=$(llm-train -q -j 1 -c nano -b 12 -l 24 "${diloco[@]}" --shard dp=4 --plan)
    assert_equal "$((($(value rank_sent_bytes "$apart") * 3 + 1) / 3))" "$((($(value rank_sent_bytes "$plain") + 1) / 3))" # to the nearest byte
    assert_equal "$(value moment_bytes "$apart")" "$((2 * $(value moment_bytes "$plain")))" # m and v, the replica's weights, the momentum
}
