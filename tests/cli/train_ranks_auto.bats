# llm-train --shard auto: the layout that the model of time and memory prefers, of those that a run allows. It has the bits of one process.
load ../helper
load ../mpi

setup_file() { sentences_tokens; }

setup() {
    of=(-j 1 -l 24 -T "$F/tok.json" "$F/data.tok")
    gpt=(llm-train -c nano --set n_layer=2 --set n_embd=32 --set n_head=4 "${of[@]}")
    moe=(llm-train -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=256 --set num_local_experts=8 "${of[@]}")
}

# chosen COMMAND...: the layout that a plan says it chose, in the file why the reason that dp with zero=0 is invalid; the plan is in the file plan
chosen() {
    run -0 --separate-stderr "$@" --plan
    printf '%s\n' "${lines[@]}" > plan
    local many=" possible for [0-9]+ ranks, by estimate " number="[0-9.e+-]+" not="; dp=[0-9]+,zero=0 is not: " first="llm-train: --shard "
    [[ $stderr =~ ^$first([a-z0-9=,]+)": the fastest of "[0-9]+$many$number" s a step and "$number" MB a rank"($not(.+))?$ ]] || fail "$stderr"
    printf '%s' "${BASH_REMATCH[3]}" > why
    printf '%s' "${BASH_REMATCH[1]}"
}

total() { awk '$1 == "total_bytes" { print $2 }' plan; }

@test "--plan without a launcher: the choice, twice the same, and the plan of the layout named by hand" {
    local command layout
    for command in "${gpt[*]} -b 4 --grad-shards 4 --shard auto,ranks=4,flops=1e8" "${gpt[*]} -b 4 --tensor-parts 4 --shard auto,ranks=4" \
        "${gpt[*]} -b 2 --accumulate 4 --shard auto,ranks=2" "${moe[*]} -b 4 --grad-shards 2 --shard auto,ranks=2"; do
        layout=$(chosen $command)
        assert_equal "$(chosen $command)" "$layout"
        $command --plan 2> /dev/null | grep -v 'second' > automatic
        ${command% --shard *} --shard "$layout" --plan | grep -v 'second' > by-hand
        diff automatic by-hand
    done
    assert_equal "$(chosen "${gpt[@]}" -b 4 --grad-shards 4 --shard auto,ranks=1)" dp=1,zero=0
    [[ ! -s why ]]
    assert_equal "$(chosen "${gpt[@]}" -b 4 --grad-shards 4 --shard auto,ranks=4,flops=1e8)" dp=4,zero=1
    assert_equal "$(chosen "${gpt[@]}" -b 2 --accumulate 4 --shard auto,ranks=2)" dp=1,zero=1,pp=2
    [[ $(< why) == "--grad-shards: expected at least one shard for each of 2 ranks, found 1" ]]
    assert_equal "$(chosen "${gpt[@]}" -b 4 --tensor-parts 4 --shard auto,ranks=4,flops=1e8)" dp=1,zero=0,tp=4
}

@test "less memory: a layout that takes less, as long as there is one" {
    local layout limit=4G of=("${gpt[@]}" --set n_embd=128 --set n_layer=6 -b 4 --grad-shards 4) known=() i
    for ((i = 0; i < 12; i++)); do
        run --separate-stderr "${of[@]}" --shard "auto,ranks=4,flops=1e8,memory=$limit" --plan
        [[ $status == 0 ]] || break
        layout=$(chosen "${of[@]}" --shard "auto,ranks=4,flops=1e8,memory=$limit")
        chosen "${of[@]}" --shard "auto,ranks=4,flops=1e8,memory=$limit" > /dev/null
        [[ $limit == 4G ]] || (($(total) <= limit)) || fail "$layout takes $(total), more than $limit"
        known+=("$layout")
        limit=$(($(total) - 1))
    done
    printf '%s\n' "${known[@]}"
    [[ ${known[0]} == dp=4,zero=1 && ${#known[@]} -ge 2 && $i -lt 12 ]]
    assert_equal "$status" 2
    local of_4="expected a layout of 4 ranks that takes at most " smallest="found that ${known[-1]}, the smallest, takes "
    [[ $stderr =~ ^"llm-train: --shard auto: $of_4"[0-9.]+" MB a rank (memory), $smallest"[0-9.]+" MB"$ ]] || fail "$stderr"
}

@test "all ways to divide are considered together; of equal times the least zero counts before the least ep" {
    local of=("${moe[@]}" --set num_hidden_layers=4 --set intermediate_size=64 --set vocab_size=600 -b 2)
    # fits LAYOUT OPTION...: the choice where messages cost nothing and a rank has as much memory as the layout takes
    fits() {
        "${of[@]}" "${@:2}" --shard "$1" --plan > plan
        chosen "${of[@]}" "${@:2}" --shard "auto,ranks=4,bandwidth=1e30,latency=0,memory=$(total)"
    }
    assert_equal "$(fits dp=4,zero=3 --accumulate 2 --grad-shards 4)" dp=4,zero=0,ep=4
    assert_equal "$(fits dp=2,pp=2,vp=2,ep=2 --accumulate 4 --grad-shards 2)" dp=2,zero=1,ep=2,pp=2,vp=2
}

@test "the rates that are given decide: slow messages, high latency" {
    local of=("${gpt[@]}" -b 1 --accumulate 8 --grad-shards 2 --tensor-parts 2)
    [[ $(chosen "${of[@]}" --shard auto,ranks=2,bandwidth=1e12,latency=0,flops=1e9) == dp=2,zero=1 ]]
    # In a step a gradient is 150 kB for each rank, the hidden states between two stages 25 kB, in 16 messages.
    # With zero=1 the table that both stages have travels as weights, in BF16, in place of its gradient.
    [[ $(chosen "${of[@]}" --shard auto,ranks=2,bandwidth=1e4,latency=0) == dp=1,zero=1,pp=2 ]]
    [[ $(chosen "${of[@]}" --shard auto,ranks=2,bandwidth=1e12,latency=10) == dp=2,zero=1 ]]
}

@test "what a run refuses is never chosen, however little memory there is" {
    local line layout options refused
    "${gpt[@]}" -q -n 1 -b 4 -o base.llm
    jq -n -c '{prompt: "a", chosen: "b", rejected: "c"}' > pairs.jsonl
    for line in "--outer diloco --replicas 4 --inner-steps 2" "--gradients int8 --grad-shards 4" "--ema .9 --grad-shards 4" \
        "--grad-shards 4 --objective dpo" "--grad-shards 4 --batch-tokens 96 --objective sft" "--grad-shards 3 --accumulate 2" \
        "--grad-shards 4 --optimizer muon" "--grad-shards 2 --tensor-parts 2" "--grad-shards 4 --set num_nextn_predict_layers=1"; do
        read -ra options <<< "$line"
        for limit in 4G 1; do
            run --separate-stderr "${moe[@]}" -b 4 "${options[@]}" --shard "auto,ranks=4,flops=1e8,memory=$limit" --plan
            if [[ $status == 0 ]]; then
                layout=$(sed 's/^llm-train: --shard \([^:]*\):.*/\1/' <<< "$stderr")
            else
                assert_equal "$status" 2
                [[ $stderr != *"no layout of 4 ranks suits the run"* ]] || continue
                [[ $stderr =~ "found that "([a-z0-9=,]+)", the smallest" ]] || fail "$line: $stderr"
                layout=${BASH_REMATCH[1]}
            fi
            echo "$line: $layout"
            "${moe[@]}" -b 4 "${options[@]}" --shard "$layout" --plan > /dev/null
            case $line in
            *dpo* | *sft*) [[ $layout != *zero=[23]* ]] ;;
            *outer*) [[ $layout == dp=4,zero=0 ]] ;;
            esac
        done
    done
    # What no layout would help is refused by plans as by runs.
    while read -ra options; do
        "${moe[@]}" -b 4 "${options[@]}" --plan 2> plan.err && fail "${options[*]}"
        "${moe[@]}" -b 4 "${options[@]}" -o x.llm 2> run.err && fail "${options[*]}"
        diff plan.err run.err
        run -2 --separate-stderr "${moe[@]}" -b 4 "${options[@]}" --plan --shard auto,ranks=2
        assert_equal "$stderr" "llm-train: --shard auto: no layout of 2 ranks suits the run, the simplest because of: $(cut -c 12- run.err)"
    done << 'END'
--outer diloco --replicas 2 --inner-steps 1 --tensor-parts 2
--outer diloco --replicas 2 --inner-steps 1 --ema .9
--outer diloco --replicas 3 --inner-steps 1
--tensor-parts 2 --ema .9
--tensor-parts 2 --optimizer muon
END
    refused=$(llm-train --init base.llm --adapter lora "${of[@]}" -b 4 --tensor-parts 2 --plan 2>&1) && fail "$refused"
    assert_equal "$refused" "llm-train: --tensor-parts: expected a model without an adapter"
}

@test "a run: the hashes of one process and of the layout named by hand; a line says which it is" {
    need_mpi
    local words layout
    same() { # RANKS WORDS LAYOUT COMMAND...
        "${@:4}" -q -n 2 -o alone.llm --log alone.log
        run -0 --separate-stderr ranks "$1" "${@:4}" -n 2 -o ranks.llm --log ranks.log --shard "auto$2"
        [[ $(grep -c "^llm-train: --shard $3: the fastest of " <<< "$stderr") == 1 ]] || fail "$stderr"
        cmp alone.llm ranks.llm
        diff <(jq -c '[.step, .loss, .hash]' alone.log) <(jq -c '[.step, .loss, .hash]' ranks.log)
        jq -es --argjson n "$1" 'all(.ranks == $n)' ranks.log
    }
    same 2 ",flops=1e8" dp=2,zero=1 "${gpt[@]}" -b 4 --grad-shards 2
    same 2 "" dp=1,zero=1,pp=2 "${gpt[@]}" -b 2 --accumulate 4
    same 2 ",ranks=2,flops=1e8" dp=1,zero=0,tp=2 "${gpt[@]}" -b 4 --tensor-parts 2
    words=$(chosen "${moe[@]}" -b 4 --grad-shards 2 --shard auto,ranks=2)
    chosen "${moe[@]}" -b 4 --grad-shards 2 --shard auto,ranks=2 > /dev/null
    layout=$(chosen "${moe[@]}" -b 4 --grad-shards 2 --shard "auto,ranks=2,memory=$(($(total) - 1))")
    [[ $layout != "$words" ]]
    same 2 ",memory=$(($(total) + 10000))" "$layout" "${moe[@]}" -b 4 --grad-shards 2
    ranks 2 llm-train -q -j 1 --resume ranks.llm -n 3 --shard auto
    llm-train -q -j 1 --resume alone.llm -n 3
    cmp alone.llm ranks.llm
    "${gpt[@]}" -q -n 1 -b 4 --grad-shards 2 --shard auto -o x.llm # one process: nothing is divided
}

@test "objectives whose rows need a tokenizer or a policy are planned without: infilling, masked tokens, reinforcement" {
    local special=() name what
    for name in '</s>' '[MASK]' '<|fim_prefix|>' '<|fim_suffix|>' '<|fim_middle|>'; do special+=(--special "$name"); done
    llm-tokenize train --model byte "${special[@]}" -o tok.json /dev/null
    for what in "tiny --objective fim" "bert-mini --objective mlm" "tiny --objective grpo" "tiny --objective reinforce" "tiny --objective ppo"; do
        # shellcheck disable=SC2086  # a preset and an option
        chosen llm-train -c $what -T tok.json -l 24 -b 2 --grad-shards 2 --shard auto,ranks=2 > /dev/null
        grep -q '^total_bytes' plan
    done
}

@test "wrong words, too few or too many ranks, no layout: status 2, one line; a rank without data" {
    local word few="the simplest because of: --grad-shards: expected at least one shard for each of"
    local form="auto,ranks=RANKS,memory=BYTES,flops=RATE,bandwidth=RATE,latency=SECONDS"
    refused() { # MESSAGE COMMAND...
        run -2 --separate-stderr "${@:2}"
        assert_equal "${stderr_lines[0]}" "llm-train: $1"
    }
    for word in zero=1 ranks=0 ranks=x memory=0 memory=lots flops=0 bandwidth=-1 latency=-1 latency auto ""; do
        refused "--shard: expected $form, found '$word'" "${gpt[@]}" --shard "auto,$word" --plan
    done
    refused "--plan --shard: expected ranks=RANKS beside auto" "${gpt[@]}" --shard auto --plan
    refused "--shard: expected a launcher that starts 4 ranks (mpirun -n 4), found 1 rank" "${gpt[@]}" -n 1 --shard auto,ranks=4 -o x.llm
    refused "--shard auto: no layout of 5 ranks suits the run, $few 5 ranks, found 1" "${gpt[@]}" --shard auto,ranks=5 --plan
    need_mpi
    refused "--shard auto: no layout of 3 ranks suits the run, $few 3 ranks, found 1" ranks 3 "${gpt[@]}" -n 1 --shard auto -o x.llm
    write_rank1
    run -66 --separate-stderr env RANK1="s|.*data.tok|none.tok|" bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${gpt[@]}" -n 1 -b 4 \
        --grad-shards 2 --shard auto -o x.llm
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): none.tok: No such file or directory"$ ]] || fail "$stderr"
    [[ ! -e x.llm ]]
}
