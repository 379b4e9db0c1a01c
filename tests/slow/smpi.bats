# llm-train on 64 simulated machines, by SimGrid's SMPI: the real code, whose ranks take turns in one process. RESULTS has 1,024 of them.
load ../helper

setup_file() {
    need_tool smpicc smpirun
    make -C "$ROOT" --no-print-directory smpi > make.log 2>&1 || fail "$(tail -n 20 make.log)"
    sentences_tokens
}

setup() {
    of=(-q -j 1 -l 32 -T "$F/tok.json" "$F/data.tok" -n 3 --grad-shards 64)
    gpt=(-c nano --set n_layer=2 --set n_embd=64 --set n_head=2 "${of[@]}") # 118,592 parameters
}

# same_simulated RANKS LAYOUT OPTIONS...: the hashes and losses of each step, and the checkpoint, of one process
same_simulated() {
    llm-train "${@:3}" -o alone.llm --log alone.log
    "$ROOT/tests/smpi/run" "$1" "${@:3}" -o ranks.llm --log ranks.log --shard "$2"
    cmp alone.llm ranks.llm
    diff <(jq -c '[.step, .loss, .grad_norm, .hash]' alone.log) <(jq -c '[.step, .loss, .grad_norm, .hash]' ranks.log)
    assert_equal "$(jq -s "all(.ranks == $1)" ranks.log)" true
}

@test "64 ranks have the bits of one process; groups that divide matrices, and stages, too" {
    same_simulated 64 zero=1 "${gpt[@]}" -b 64
    same_simulated 64 dp=32,tp=2 "${gpt[@]}" -b 64 --tensor-parts 2
    same_simulated 8 dp=4,pp=2,zero=1 "${gpt[@]}" -b 16 --accumulate 4
    same_simulated 64 dp=32,pp=2,zero=1 "${gpt[@]}" -b 64 --precision bf16 --clip .1
}

@test "32 ranks exchange with one partner after the other, with each ZeRO; shards of which a rank has several nodes" {
    local zero
    for zero in 0 1 2 3; do same_simulated 32 zero=$zero "${gpt[@]}" --grad-shards 32 -b 32 --precision bf16; done
    same_simulated 32 zero=1 "${gpt[@]}" --grad-shards 48 -b 48 --optimizer muon
    same_simulated 32 zero=0 "${gpt[@]}" --grad-shards 1 -b 64 -n 4 --outer diloco --replicas 32 --inner-steps 2
}

@test "a failure of one rank ends all, in one line" {
    run -66 --separate-stderr "$ROOT/tests/smpi/run" 4 -c nano "${of[@]}" -b 64 -o ranks.llm --shard zero=1 none.tok
    assert_regex "$stderr" "none.tok"
}

@test "simulated time is the same every time, and longer on a slower network" {
    local log seconds=()
    for log in 10Gbps 10Gbps.again 1Gbps; do
        "$ROOT/tests/smpi/run" -b "${log%.again}" 4 "${gpt[@]}" -b 64 -o ranks.llm --log "$log" --shard zero=1
        seconds+=("$(jq -s 'map(.comm_seconds) | add' "$log")")
    done
    assert_equal "${seconds[1]}" "${seconds[0]}"
    jq -en "${seconds[2]} > ${seconds[0]}"
}
