# llm-train under mpirun: any number of ranks up to --grad-shards gives the bits of one process, at every step and in the checkpoint.
load ../helper
load ../mpi

setup_file() { sentences_tokens; }

setup() {
    need_mpi
    write_rank1
    of=(-q -j 1 -l 24 -T "$F/tok.json" "$F/data.tok")
    gpt=(llm-train -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 "${of[@]}")
}

@test "GPT-2: 2, 3, 4 and 6 ranks, ZeRO 0 to 3, dropout, validation, averages: the bits of one process" {
    same_for "2 4" "1" "${gpt[@]}" --dropout .1 -n 3 -b 4 --accumulate 3 --grad-shards 12 --val .2 --eval-every 2 --ema .9 # all: tests/slow/train_ranks_grid.bats
    same_for "3 6" "0 2" "${gpt[@]}" --dropout .1 -n 3 -b 4 --accumulate 3 --grad-shards 12 --val .2 --eval-every 2 --ema .9
    jq -es 'all(.ranks == 6 and .comm_seconds >= 0 and .comm_bytes > 0 and .comm_hidden >= 0 and .comm_hidden <= 1)' ranks.log
    # without --shard: all ranks, zero=0
    ranks 2 "${gpt[@]}" --dropout .1 -n 3 -b 4 --accumulate 3 --grad-shards 12 --val .2 --eval-every 2 --ema .9 -o ranks.llm
    cmp alone.llm ranks.llm
}

@test "shards that no number of ranks divides; FP32; rows that do not divide" {
    same_for "2 4" "0 3" "${gpt[@]}" --precision f32 -n 2 -b 7 --grad-shards 7
    same_for "3 6" "1 2" "${gpt[@]}" --precision f32 -n 2 -b 7 --grad-shards 7
    same_for "3" "1" "${gpt[@]}" -n 2 -b 1 --accumulate 7 --grad-shards 6
}

@test "32 ranks, each of which exchanges with one partner after the other" { # more of it: tests/slow/smpi.bats
    local wide=(llm-train -c nano --set n_layer=2 --set n_embd=16 --set n_head=2 "${of[@]}" -n 2 -b 32)
    same_for "32" "0 3" "${wide[@]}" --grad-shards 32 --precision bf16
    same_for "32" "1" "${wide[@]}" --accumulate 2 --grad-shards 64 --precision f32 --optimizer muon
}

@test "Llama with layers that predict further, a mixture, MLA, Mamba, RWKV 7, whose layers all read the first one's values" {
    same_for "2 3" "1 3" llm-train -c tiny --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 --set num_nextn_predict_layers=2 \
        "${of[@]}" -n 2 -b 6 --grad-shards 6
    same_for "3" "0 1 2 3" llm-train -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=5 \
        --set router_bias=true "${of[@]}" -n 2 -b 6 --grad-shards 6
    same_for "2" "0 2 3" llm-train -c mla --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 --precision f32 "${of[@]}" -n 2 -b 6 \
        --grad-shards 4
    same_for "3" "0 2 3" llm-train -c mamba --set num_hidden_layers=2 --set hidden_size=32 "${of[@]}" -n 2 -b 6 --grad-shards 6
    same_for "2" "1 3" llm-train -c rwkv7 --set num_hidden_layers=3 --set hidden_size=32 --set head_dim=16 "${of[@]}" -n 2 -b 4 --grad-shards 2
}

@test "states that are carried, BatchNorm by pass, matrices that Muon moves whole, an adapter, masked words" {
    same_for "2" "1 2 3" llm-train -c lstm --set hidden_size=32 "${of[@]}" --carry-state --optimizer muon -n 3 -b 6 --grad-shards 4
    same_for "2" "0 3" "${gpt[@]}" --set norm=batch -n 2 -b 2 --accumulate 4 --grad-shards 4
    "${gpt[@]}" -n 1 -b 4 -o base.llm
    same_for "3" "1 3" llm-train --init base.llm --adapter lora -q -j 1 -l 24 "$F/data.tok" -n 2 -b 6 --grad-shards 6
    same_for "2" "1 3" llm-train -c bert-mini --objective mlm --set hidden_size=32 --set intermediate_size=48 --set num_hidden_layers=1 "${of[@]}" -n 2 -b 6 \
        --grad-shards 2
}

@test "ZeRO 2 and 3: recomputed layers, stored activations, frozen and matrix-wise layers, validation" {
    local deep=(llm-train -c nano --set n_layer=5 --set n_embd=32 --set n_head=2 "${of[@]}" -n 2 -b 4 --grad-shards 4)
    same_for "2 4" "1 2 3" "${deep[@]}" --checkpoint-every 2 --val .2 --eval-every 1
    same_for "2" "2 3" "${deep[@]}" --checkpoint-every 1 --activations bf16 --optimizer muon
    same_for "4" "1 3" "${deep[@]}" --freeze 'transformer.h.[0-2].*' --optimizer sgd
    same_for "2" "3" "${deep[@]}" --keep-best best.llm --val .2 --eval-every 1 --keep-zeros
    llm-infer -q -m best.llm -n 1 a
}

@test "ZeRO 2 and 3: shards of several passes, averages and objectives that run the model twice are refused by name" {
    run -2 --separate-stderr ranks 2 "${gpt[@]}" -n 1 -b 2 --accumulate 3 --grad-shards 2 --shard zero=2 -o x.llm
    assert_equal "$stderr" "llm-train: --shard: zero=2: expected shards of one pass, of at most 2 rows (--batch), found 3 (--grad-shards)"
    run -2 --separate-stderr ranks 2 "${gpt[@]}" -n 1 -b 2 --grad-shards 2 --ema .9 --shard zero=3 -o x.llm
    assert_equal "$stderr" "llm-train: --shard: zero=3: expected no average of the weights (--ema)"
    run -2 --separate-stderr "${gpt[@]}" -n 1 --shard zero=4 -o x.llm
    assert_equal "$stderr" "llm-train: --shard: expected zero=0, 1, 2 or 3, found zero=4"
    [[ ! -e x.llm ]]
}

@test "a run goes on with another number of ranks" {
    local of=(-b 12 --grad-shards 6 --schedule constant --warmup 2)
    "${gpt[@]}" "${of[@]}" -n 6 -o straight.llm
    ranks 3 "${gpt[@]}" "${of[@]}" -n 2 --shard zero=1 -o part.llm
    ranks 2 llm-train -q -j 1 --resume part.llm -n 4
    ranks 4 llm-train -q -j 1 --resume part.llm -n 5 --shard dp=4,zero=1
    ranks 3 llm-train -q -j 1 --resume part.llm -n 6 --shard zero=3 --save-every 1
    cmp straight.llm part.llm
}

@test "--hash-every: hashed lines are those of all; between them weights travel in the next step, as many bytes; a run goes on after a line without" {
    local run=("${gpt[@]}" -b 4 --grad-shards 4 -n 5 --schedule constant --warmup 2) z
    "${run[@]}" -o alone.llm --log alone.log
    for z in 1 2; do
        ranks 2 "${run[@]}" --shard zero=$z -o ranks.llm --log each.log
        ranks 2 "${run[@]}" --shard zero=$z -o ranks.llm --log third.log --hash-every 3
        cmp alone.llm ranks.llm
        assert_equal "$(jq -c 'select(.hash) | [.step, .hash]' third.log)" "$(jq -c 'select(.step == 3 or .step == 5) | [.step, .hash]' alone.log)"
        assert_equal "$(jq -s 'map(.comm_bytes) | add' third.log)" "$(jq -s 'map(.comm_bytes) | add' each.log)"
        assert_equal "$(jq -c .comm_bytes each.log | tail -n 4 | sort -u | wc -l)" 1
        jq -es '.[0].comm_bytes < .[1].comm_bytes and .[1].comm_bytes < .[2].comm_bytes' third.log
    done
    "${run[@]}" -o saved.llm --log - --hash-every 10 --save-every 2 | jq -es 'map(has("hash")) == [false, true, false, true, true]'
    ranks 2 "${run[@]}" -n 3 --shard zero=1 -o part.llm --log part.log
    jq -c 'del(.hash)' part.log > half.log
    ranks 2 llm-train -q -j 1 --resume part.llm -n 5 --log half.log --hash-every 2
    cmp <(jq -c '[.step, .loss, .hash]' half.log) <(jq -c '[.step, .loss, if .step > 3 then .hash else null end]' alone.log)
    run -2 --separate-stderr "${run[@]}" --hash-every 0 -o x.llm
    [[ ${stderr_lines[0]} == "llm-train: --hash-every: expected "* ]]
}

@test "with --precision bf16 the weights of matrices come in BF16: 3/4 of the bytes, and rank 0 hashes and saves exact ones" {
    local run=("${gpt[@]}" --set n_layer=5 --set n_embd=64 -b 4 --grad-shards 2 -n 3) p z
    for p in f32 bf16; do
        "${run[@]}" --precision $p -o alone.llm --log alone.log
        for z in 1 3; do
            ranks 2 "${run[@]}" --precision $p --shard zero=$z -o ranks.llm --log $p$z.log
            cmp alone.llm ranks.llm
            assert_equal "$(jq -c '[.loss, .hash]' $p$z.log)" "$(jq -c '[.loss, .hash]' alone.log)"
        done
    done
    for z in 1 3; do
        jq -es '.[0].comm_bytes / .[1].comm_bytes | debug | . > .6 and . < .8' <(tail -n 1 bf16$z.log) <(tail -n 1 f32$z.log) 2>&1
    done
}

@test "more ranks than shards, another number than --shard says, and what is no layout: status 2, one line" {
    run -2 --separate-stderr ranks 3 "${gpt[@]}" -n 1 --grad-shards 2 -o x.llm
    assert_equal "$stderr" "llm-train: --grad-shards: expected at least one shard for each of 3 ranks, found 2"
    run -2 --separate-stderr ranks 3 "${gpt[@]}" -n 1 --grad-shards 3 --shard dp=2 -o x.llm
    assert_equal "$stderr" "llm-train: --shard: expected a launcher that starts 2 ranks (mpirun -n 2), found 3 ranks"
    run -2 --separate-stderr "${gpt[@]}" -n 1 --shard dp=2 -o x.llm
    assert_equal "$stderr" "llm-train: --shard: expected a launcher that starts 2 ranks (mpirun -n 2), found 1 rank"
    for layout in dp dp=0 dp=x 2 dp=1,, zero=-1 xp=1 pp=0 tp=0 cp=0 ep=0; do
        run -2 --separate-stderr "${gpt[@]}" -n 1 --shard "$layout" -o x.llm
        [[ $stderr == "llm-train: --shard: expected dp=RANKS,zero="* ]]
    done
    run -2 --separate-stderr ranks 2 "${gpt[@]}" -n 1 -b 8 --grad-shards 2 -o x.llm --reward x
    assert_equal "$stderr" "llm-train: --reward, --rollout-log and --iterations go with --prompts" # once
    [[ ! -e x.llm ]]
}

@test "--plan: what a rank sends is what the log says; moments are divided; more ranks than shards are refused" {
    local gpt=(llm-train -q -j 1 -c nano --set vocab_size=300 --set n_layer=3 -b 12 -l 24) r s sent logged
    for r in 2 3; do
        for s in 6 12; do
            sent=$("${gpt[@]}" --grad-shards $s --shard "dp=$r,zero=1" --plan | awk '$1 == "rank_sent_bytes" { print $2 }')
            ranks $r "${gpt[@]}" -n 2 --grad-shards $s --shard zero=1 -o x.llm --log log "$F/data.tok"
            logged=$(tail -n 1 log | jq .comm_bytes)
            awk -v planned="$sent" -v logged="$logged" 'BEGIN { print planned, logged; off = planned - logged; exit !(off * off < (.05 * logged + 65536) ^ 2) }'
        done
    done
    assert_equal "$("${gpt[@]}" --grad-shards 4 --shard dp=4,zero=1 --plan | awk '$1 == "rank_nodes" { print $2 }')" 1
    local whole part
    whole=$("${gpt[@]}" --plan | awk '$1 == "moment_bytes" { print $2 }')
    part=$("${gpt[@]}" --grad-shards 4 --shard dp=4,zero=1 --plan | awk '$1 == "moment_bytes" { print $2 }')
    assert_equal "$((part * 4))" "$whole"
    local gradients weights most=() row z
    for z in 0 1 2 3; do
        row=$("${gpt[@]}" --set n_layer=12 --grad-shards 4 --shard "dp=4,zero=$z" --plan)
        gradients=$(awk '$1 == "gradient_bytes" { print $2 }' <<< "$row")
        weights=$(awk '$1 == "weight_bytes" { print $2 }' <<< "$row")
        most+=($((gradients + weights)))
    done
    ((most[0] == most[1] && most[2] < most[1] && most[3] < most[2])) || fail "found: ${most[*]}"
    run -2 --separate-stderr "${gpt[@]}" --grad-shards 4 --shard dp=5 --plan
    assert_equal "$stderr" "llm-train: --grad-shards: expected at least one shard for each of 5 ranks, found 4"
    run -2 --separate-stderr "${gpt[@]}" --grad-shards 4 --shard zero=1 --plan
    assert_equal "${stderr_lines[0]}" "llm-train: --plan --shard: expected dp=RANKS beside zero=1"
}

@test "--plan: the bytes of uneven shards and parts: slices with zero=1, 2 and 3, weights that lie there already, a tied table of stages" {
    local gpt=(llm-train -q -j 1 -c nano --set vocab_size=300 --set n_layer=6 -l 8 -b 2) line words planned logged
    for line in "4 dp=2,tp=2,zero=1 --accumulate 6 --grad-shards 6 --tensor-parts 2" "4 dp=2,tp=2,zero=2 --accumulate 6 --grad-shards 6 --tensor-parts 2" \
        "4 dp=2,tp=2,zero=3 --grad-shards 2 --tensor-parts 4" "2 dp=2,zero=3 --accumulate 6 --grad-shards 6 --set n_embd=160 --set n_layer=5" \
        "4 dp=2,pp=2 --accumulate 6 --grad-shards 6"; do
        read -ra words <<< "$line" # the first rank, which logs, sends most, or hardly less
        planned=$("${gpt[@]}" "${words[@]:2}" --shard "${words[1]}" --plan | awk '$1 == "rank_sent_bytes" { print $2 }')
        ranks "${words[0]}" "${gpt[@]}" "${words[@]:2}" --shard "${words[1]}" -n 2 -o x.llm --log log "$F/data.tok"
        logged=$(tail -n 1 log | jq .comm_bytes)
        awk -v planned="$planned" -v logged="$logged" 'BEGIN { print planned, logged; off = planned - logged; exit !(off * off < (.02 * logged) ^ 2) }'
    done
}

@test "what one process does alone is refused under a launcher: --plan, --show, standard input" {
    run -2 --separate-stderr ranks 2 llm-train -c nano -b 2 -l 16 --grad-shards 2 --plan
    [[ ${stderr_lines[0]} == "llm-train: --plan: expected one process, found a launcher of 2" ]]
    run -2 --separate-stderr ranks 2 llm-train -c nano -T "$F/tok.json" -o x.llm --grad-shards 2 -
    [[ ${stderr_lines[0]} == "llm-train: expected files that each of 2 ranks can read, found standard input" ]]
}

@test "ranks that differ are named: data, instruction set; one rank's file that is missing" {
    head -n 300 "$F/text" > other
    llm-tokenize encode -T "$F/tok.json" --lines -o other.tok other
    run -1 --separate-stderr env RANK1="s|.*data.tok|other.tok|" bash -c '. "$0"; ranks 3 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${gpt[@]}" -n 1 -b 3 \
        --grad-shards 3 -o x.llm
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): training data: expected that of rank 0 ("[^\)]*"), "[0-9a-f]{16}", found "[0-9a-f]{16}$ ]]
    run -1 --separate-stderr env RANK1=LLM_ISA=scalar bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${gpt[@]}" -n 1 -b 3 \
        --grad-shards 3 -o x.llm
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): instruction set: expected that of rank 0 ("[^\)]*"), "[a-z0-9]+", found scalar"$ ]]
    run -66 --separate-stderr env RANK1="s|.*data.tok|none.tok|" bash -c '. "$0"; ranks 3 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${gpt[@]}" -n 1 -b 3 \
        --grad-shards 3 -o x.llm
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): none.tok: No such file or directory"$ ]]
    [[ ! -e x.llm ]]
}

@test "a rank whose options are others is named with the option before it waits for the others; paths, threads and words for people are its own" {
    local of=("${gpt[@]}" -n 2 -b 2 --grad-shards 2 --save-every=2 --val=.1 --shard=zero=1 --snapshot-every=1 --threads=1 --log=log -o x.llm)
    while IFS='|' read -r from to says; do
        run -1 --separate-stderr env RANK1="s|^$from\$|$to|" bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${of[@]}"
        [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): $says, as at rank 0, found "[^$'\n']*$ ]] || fail "$from, $to: $stderr"
    done << 'END'
--save-every=2|--save-every=1|--save-every: expected 2
--save-every=2|--threads=1|--save-every: expected the option
--val=.1|--threads=1|--val: expected the option
--shard=zero=1|--shard=zero=0|--shard: expected zero=1
--threads=1|--snapshot=.|--snapshot: expected no such option
--log=log|--threads=1|--log: expected the option
--threads=1|--hash-every=2|--hash-every: expected no such option
END
    if [[ $LAUNCHER != mpiexec.hydra ]]; then # which does not end a job because of a process that ended before MPI_Init
        run -2 --separate-stderr env RANK1='s|^--log=log$|--nonsense|' bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${of[@]}"
        [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): unknown option '--nonsense'" ]] || fail "$stderr"
    fi
    [[ ! -e x.llm ]]
    RANK1='s/^x.llm/y.llm/; s/^--log=.*/--log=other/; s/^--threads.*/--threads=2/; s/^-q/-v/' ranks 2 ./rank1 "${of[@]}"
}

@test "a full disk: status 74, one line that names the rank" {
    run -74 --separate-stderr ranks 2 "${gpt[@]}" -n 1 -b 2 --grad-shards 2 -o /dev/full
    [[ $stderr =~ ^"llm-train: rank 0 ("[^\)]*"): /dev/full: "[^$'\n']*"No space left on device"$ ]]
    run -74 --separate-stderr ranks 2 "${gpt[@]}" -n 1 -b 2 --grad-shards 2 -o x.llm --log /dev/full
    [[ $stderr =~ ^"llm-train: rank 0 ("[^\)]*"): /dev/full: No space left on device"$ ]]
}
