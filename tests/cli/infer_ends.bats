# How runs end that do not end by themselves: readers that go away, signals, full disks.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
}

# ended STATUS COMMAND...: COMMAND writes to `progress` until the signal that makes this status of it
ended() {
    local wanted=$1 pid status=0
    shift
    : > progress
    env --default-signal=INT,HUP "$@" 2> err 3>&- &
    pid=$!
    filled progress $pid
    kill -$((wanted - 128)) $pid
    wait $pid || status=$?
    [[ $status == "$wanted" ]] || fail "expected $wanted, found $status: $(< err)"
}

@test "a reader that goes away: silence, and death by SIGPIPE, in every way of working" {
    for i in {1..300}; do printf 'Once upon a time there was a red cat. '; done > long.txt
    echo 'Once' > short.txt
    for i in {1..2000}; do echo '{"prompt": "Once"}'; done > prompts
    for options in '-n 20000 -c 50000 --ignore-eos -f short.txt' '--jsonl prompts' '--score -f long.txt' '--logits -c 300000 -f long.txt'; do
        run --separate-stderr bash -c 'llm-infer -q -m "$0" "$@" | head -1 > /dev/null; exit "${PIPESTATUS[0]}"' "$M" $options
        [[ $status == 141 ]] || fail "$options: expected 141, found $status"
        [[ -z $stderr ]] || fail "$options: $stderr"
    done
    llm-infer -m "$M" -q -c 5000 --kv-out c.kv --ids -n 0 "$(seq -s ' ' 1 200 | sed 's/.*/& & & & &/')"
    run --separate-stderr bash -c 'llm-kvinspect export --tensor layers.0.k c.kv | head -c 1 > /dev/null; exit "${PIPESTATUS[0]}"'
    [[ $status == 141 && -z $stderr ]]
    run --separate-stderr bash -c 'llm-quantize -q -t f32 "$0" - | head -c 1 > /dev/null; exit "${PIPESTATUS[0]}"' "$M"
    [[ $status == 141 && -z $stderr ]]
}

@test "with SIGPIPE ignored it is a write error" {
    for i in {1..2000}; do echo '{"prompt": "Once"}'; done > prompts
    run --separate-stderr bash -c 'trap "" PIPE; llm-infer -q -m "$0" --jsonl prompts | head -1 > /dev/null; exit "${PIPESTATUS[0]}"' "$M"
    [[ $status == 74 ]]
    one_line "$stderr"
    [[ $stderr == *'standard output'*'Broken pipe' ]]
}

@test "SIGINT, SIGTERM and SIGHUP: whole lines stay on standard output, no file is made" {
    for number in 130 143 129; do
        ended $number bash -c 'exec llm-infer -q -m "$0" --jsonl -n 20 <(yes "{\"prompt\": \"The cat\"}") > progress' "$M"
        [[ ! -s err ]]
        jq -es 'length > 0 and all(.[]; .finish_reason == "length" or .finish_reason == "stop")' progress > /dev/null
        ended $number bash -c 'exec llm-infer -q -m "$0" -n -1 -c 1000000 --ignore-eos --kv-out c.kv "The cat" > progress' "$M"
        [[ ! -s err && ! -e c.kv ]]
        ended $number bash -c '(sleep .3; echo going > progress) & exec llm-infer -q -m "$0" -n -1 -c 1000000 --ignore-eos -o out "The cat"' "$M"
        [[ ! -s err && ! -e out ]]
        nothing_left
    done
}

@test "a signal while the input is awaited: the target stays as it was" {
    echo kept > m.llm
    llm-quantize -q -t f32 "$M" model.safetensors
    mkfifo slow
    for number in 130 143; do
        exec 9<> slow
        head -c 3000 model.safetensors >&9
        env --default-signal=INT llm-quantize -q -t f16 - m.llm < slow 3>&- &
        running $!
        sleep .3
        kill -$((number - 128)) $!
        ends_by "$number" $!
        exec 9<&-
        [[ $(< m.llm) == kept ]]
        nothing_left
        wait
    done
}

@test "a disk that fills up: status 74, one line, no half file" {
    for i in {1..60}; do printf 'Once upon a time there was a red cat. '; done > long.txt
    for options in '-o big --score -f long.txt' '-o big --logits -c 5000 -f long.txt' '-n 0 -c 5000 --kv-out big -f long.txt' \
        '-o big -n 2000 -c 20000 --ignore-eos --ids 1'; do
        run -74 --separate-stderr bash -c 'ulimit -f 4; llm-infer -q -m "$0" "$@"' "$M" $options
        [[ -z $output ]]
        one_line "$stderr"
        [[ $stderr == 'llm-infer: big: '* && ! -e big ]]
        nothing_left
    done
    llm-infer -q -m "$M" -n 0 -c 5000 --kv-out c.kv -f long.txt
    run -74 --separate-stderr bash -c 'ulimit -f 4; llm-kvinspect export --tensor layers.0.k -o big c.kv'
    one_line "$stderr"
    run -74 --separate-stderr bash -c 'ulimit -f 1; llm-kvinspect heads -o table --png big c.kv'
    one_line "$stderr"
    run -74 --separate-stderr bash -c 'ulimit -f 1; llm-quantize -q -t q8_0 --report big "$0" m.llm' "$M"
    one_line "$stderr"
    [[ ! -e big && ! -e m.llm ]]
    nothing_left
}

@test "SIGINT and SIGTERM while the prompt is awaited" {
    mkfifo slow
    for number in 130 143; do
        for options in '' --jsonl '--score' '--kv-in slow'; do
            exec 9<> slow # holds it open and writes nothing
            env --default-signal=INT llm-infer -m "$M" $options < slow > out 2> err 3>&- &
            pid=$!
            running $pid
            sleep .2
            kill -$((number - 128)) $pid
            status=0
            wait $pid || status=$?
            exec 9<&-
            [[ $status == "$number" && ! -s out && ! -s err ]] || fail "'$options': expected $number, found $status: $(< err)"
        done
    done
}

@test "--jsonl answers a prompt before the next one is there" {
    coproc llm-infer -m "$M" --jsonl --no-timings -n 3 --samples 2
    for id in 1 2 3; do
        echo "{\"prompt\": \"Once $id\"}" >&"${COPROC[1]}"
        for sample in 0 1; do
            read -r -u "${COPROC[0]}" line
            [[ $line == "{\"id\":$id,\"sample\":$sample,"* ]] || fail "$line"
        done
    done
    exec {COPROC[1]}>&-
    wait $COPROC_PID
}

# A copy of the tiny model in m/, and $cut: what it says up to its third token that did not come before.
folder_with_end() {
    need_tool jq
    cp -r "$ROOT/tests/golden/tiny" m
    chmod -R u+w m
    rm -f m/generation_config.json
    read -r -a all < <(llm-infer -q -m m --precision f32 --temp 0 --ids -n 12 "1 2 3 4 5")
    end=${all[4]}
    cut=
    for id in "${all[@]}"; do
        [[ $id != "$end" ]] || break
        cut+="${cut:+ }$id"
    done
    [[ -n $cut ]]
    ask=(llm-infer -q --precision f32 --temp 0 --ids -n 12 "1 2 3 4 5")
    [[ $("${ask[@]}" -m m) == "${all[*]}" ]]
}

@test "every end token of generation_config.json and of a list in config.json counts, and goes along into .llm and GGUF" {
    folder_with_end
    printf '{"eos_token_id": [0, 1, %d]}' "$end" > m/generation_config.json
    [[ $("${ask[@]}" -m m) == "$cut" ]]
    [[ $("${ask[@]}" -m m --ignore-eos | tr ' ' '\n' | grep -cx "$end") == 0 ]]
    llm-quantize -q -t keep m m.llm
    [[ $("${ask[@]}" -m m.llm) == "$cut" ]]
    llm-quantize -q -t keep m.llm m.gguf
    [[ $("${ask[@]}" -m m.gguf) == "$cut" ]]
    rm m/generation_config.json
    jq ".eos_token_id = [0, $end]" m/config.json > c
    mv c m/config.json
    [[ $("${ask[@]}" -m m) == "$cut" ]]
    for bad in '"x"' '[0, "x"]' '[-7]' '1e30'; do
        printf '{"eos_token_id": %s}' "$bad" > m/generation_config.json
        run -65 --separate-stderr "${ask[@]}" -m m
        [[ $stderr == *"m/generation_config.json: eos_token_id: expected token ids" && $(wc -l <<< "$stderr") == 1 ]]
    done
    printf '{' > m/generation_config.json
    run -65 --separate-stderr "${ask[@]}" -m m
    [[ $stderr == *"m/generation_config.json"* && $(wc -l <<< "$stderr") == 1 ]]
}

@test "rules of generation_config.json that are not applied are warned of by name; those that do nothing are not" {
    folder_with_end
    printf '{"temperature": 0.6, "no_repeat_ngram_size": 0, "bad_words_ids": [], "forced_bos_token_id": null}' > m/generation_config.json
    run -0 --separate-stderr llm-infer --precision f32 --temp 0 --ids -n 2 -m m "1 2 3"
    [[ $stderr != *generation_config* ]]
    printf '{"forced_bos_token_id": 0, "suppress_tokens": [3], "no_repeat_ngram_size": 3}' > m/generation_config.json
    run -0 --separate-stderr llm-infer --precision f32 --temp 0 --ids -n 2 -m m "1 2 3"
    [[ $stderr == *"warning: m/generation_config.json: not applied to texts: forced_bos_token_id, suppress_tokens, no_repeat_ngram_size"* ]]
    run -0 --separate-stderr "${ask[@]}" -m m
    assert_equal "$stderr" ""
}

@test "a special token that models are known to end turns with ends the text; the same text as no special token does not" {
    folder_with_end
    # the end token's text becomes <|im_end|>, the merges that it is part of go
    jq --argjson id "$end" '.model.vocab |= with_entries(if .value == $id then .key = "<|im_end|>" else . end) | .model.merges = []' \
        m/tokenizer.json > plain.json
    cp plain.json m/tokenizer.json
    [[ $("${ask[@]}" -m m) == "${all[*]}" ]]
    jq --argjson id "$end" '.added_tokens += [{"id": $id, "content": "<|im_end|>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true}]' plain.json > m/tokenizer.json
    [[ $("${ask[@]}" -m m) == "$cut" ]]
    # eos_token of tokenizer_config.json, as text and as an object
    sed 's/<|im_end|>/<|otherwise|>/' m/tokenizer.json > t
    mv t m/tokenizer.json
    [[ $("${ask[@]}" -m m) == "${all[*]}" ]]
    # (beside transformers' number for no limit, which has more than 64 bits)
    echo '{"eos_token": {"content": "<|otherwise|>"}, "model_max_length": 1000000000000000019884624838656}' > m/tokenizer_config.json
    [[ $("${ask[@]}" -m m) == "$cut" ]]
    rm m/tokenizer_config.json
    echo '{"eos_token": "<|otherwise|>"}' > m/special_tokens_map.json
    [[ $("${ask[@]}" -m m) == "$cut" ]]
}
