# llm-infer --jsonl: batches that are killed and resumed, parts of a batch, lines that fail.
load ../helper
export LLM_THREADS=1

setup() {
    M=$ROOT/tests/golden/tiny
    B=(llm-infer -m "$M" -q --jsonl --no-timings -n 12 --temp 1 --parallel 5)
}

# prompts N: lines with an id, with none, with several samples, with options of their own, and some that cannot be used.
prompts() {
    seq "$1" | jq -c '
        if . % 11 == 0 then {id: ., prompt: 3}
        elif . % 7 == 0 then {id: "s\(.)", prompt: "Once \(.)", samples: 3}
        elif . % 3 == 0 then {prompt: "upon a \(.)", temp: 1.2, note: .}
        else {id: "p\(.)", prompt: "Once upon a time \(.)", max_tokens: (. % 13)} end'
}

batch() {
    "${B[@]}" "$@"
}

@test "--resume: killed twenty times = uninterrupted; a torn line is cut; nothing is answered twice" {
    prompts 300 > in.jsonl
    run -65 batch --resume -o want.jsonl in.jsonl
    # every line of input has its answer, and without "key" and "samples" the answers are those of a plain run
    run -65 --separate-stderr batch in.jsonl
    jq -c 'del(.key, .samples)' want.jsonl | cmp - <(jq -c . <<< "$output")
    local k last
    mkfifo lines
    exec 8<> lines
    touch got.jsonl
    for ((k = 1; k <= 20; k++)); do
        last=$(wc -l < got.jsonl)
        "${B[@]}" --resume -o got.jsonl - < lines &
        head -n $((14 * k)) in.jsonl >&8
        comes_true $! has_lines got.jsonl $((last + k % 9 + 1))
        kill -KILL $!
        ends_by 137 $!
        run dd if=lines of=/dev/null iflag=nonblock # what the killed program has not read
        if ((k % 3 == 0)); then truncate -s -7 got.jsonl; fi
    done
    exec 8<&-
    (($(wc -l < got.jsonl) < $(wc -l < want.jsonl)))
    run -65 --separate-stderr batch --resume -o got.jsonl in.jsonl
    [[ $stderr == "llm-infer: in.jsonl: 27 of 300 lines cannot be used, the first: line 11: "* ]]
    cmp <(sort got.jsonl) <(sort want.jsonl)
    cmp got.jsonl want.jsonl
    # and once more: nothing is left to do
    run -65 batch --resume -o got.jsonl in.jsonl
    cmp got.jsonl want.jsonl
}

@test "--resume: a signal keeps what is answered; a full answer after it; two at once are refused" {
    prompts 60 | grep -v '"prompt":3' > in.jsonl
    batch --resume -o want.jsonl in.jsonl
    mkfifo lines
    exec 8<> lines
    env --default-signal=INT llm-infer -m "$M" -j 1 -q --jsonl --no-timings -n 12 --temp 1 --parallel 5 --resume -o got.jsonl - < lines &
    head -n 9 in.jsonl >&8
    comes_true $! has_lines got.jsonl 9
    refused 73 "got.jsonl: another process appends to it" llm-infer -m "$M" --jsonl --resume -o got.jsonl in.jsonl
    kill -INT $!
    ends_by 130 $!
    exec 8<&-
    batch --resume -o got.jsonl in.jsonl
    cmp got.jsonl want.jsonl
}

@test "--resume: a changed prompt, option or model is an error; what changes no result is none" {
    prompts 6 > in.jsonl
    batch --resume -o out.jsonl --limit 3 in.jsonl
    cp out.jsonl kept
    sed 's/time 2/time two/' in.jsonl > other.jsonl
    refused 65 'other.jsonl: line 2: id "p2": out.jsonl has an answer to another prompt, of other options or of another instruction set' "${B[@]}" --resume -o out.jsonl other.jsonl
    refused 65 'in.jsonl: line 1: id "p1": out.jsonl has an answer to another' "${B[@]}" --resume -o out.jsonl --top-k 3 in.jsonl
    cp -r "$M" changed
    jq -c '.rope_theta = 500' "$M/config.json" > changed/config.json
    refused 65 'has an answer to another' llm-infer -m changed -q --jsonl --no-timings -n 12 --temp 1 --resume -o out.jsonl in.jsonl
    LLM_ISA=scalar refused 65 'in.jsonl: line 1: id "p1": out.jsonl has an answer to another' "${B[@]}" --resume -o out.jsonl in.jsonl
    cmp out.jsonl kept
    jq -c 'to_entries | reverse | from_entries' in.jsonl | llm-infer -m "$M" -q --jsonl --no-timings -n 12 --temp 1 --parallel 2 -b 7 --resume -o out.jsonl
    batch --resume -o want.jsonl in.jsonl
    cmp out.jsonl want.jsonl
}

@test "--resume: where a sample is missing, it is made again, and no other twice" {
    printf '{"id": "a", "prompt": "Once", "samples": 3}\n{"id": "b", "prompt": "Once"}\n{"id": "a", "prompt": "Once", "samples": 3}\n' > in.jsonl
    batch --resume -o want.jsonl in.jsonl
    sed 2d want.jsonl > got.jsonl
    batch --resume -o got.jsonl in.jsonl
    cmp <(sort got.jsonl) <(sort want.jsonl)
    # what failed and is tried again leaves a gap, too
    jq -c 'if .sample == 1 then del(.text) + {error: "no memory"} else . end' want.jsonl > got.jsonl
    batch --resume --retries 1 -o got.jsonl in.jsonl
    cmp <(jq -c . got.jsonl | sort) <(jq -c . want.jsonl | sort)
}

@test "--resume: what is no file of answers is refused and stays as it is" {
    prompts 2 > in.jsonl
    printf 'my notes' > notes
    refused 65 'notes: line 1: expected an answer with "id" and "key", as --resume writes them' "${B[@]}" --resume -o notes in.jsonl
    assert_equal "$(cat notes)" 'my notes'
    batch -o plain.jsonl in.jsonl
    refused 65 'plain.jsonl: line 1: expected an answer with "id" and "key"' "${B[@]}" --resume -o plain.jsonl in.jsonl
    refused 73 "expected a regular file to append to" "${B[@]}" --resume -o /dev/null in.jsonl
    refused 2 "--resume goes with -o FILE" "${B[@]}" --resume in.jsonl
    refused 2 "--resume goes with -o FILE" llm-infer -m "$M" --jsonl --resume -o x --score in.jsonl
    refused 2 "go with --jsonl" llm-infer -m "$M" --limit 3 x
    refused 2 "--retries goes with --resume" "${B[@]}" --retries 1 in.jsonl
    refused 2 "--part: expected I/N with 1 <= I <= N, found '3/2'" "${B[@]}" --part 3/2 in.jsonl
    refused 2 "--part: expected I/N" "${B[@]}" --part 0/2 in.jsonl
    refused 2 "it does not go with --part" "${B[@]}" --part 1/2 --rollout in.jsonl
    truncate -s 9 zeros # what a crash of the machine may leave
    batch --resume -o zeros in.jsonl
    batch --resume -o want.jsonl in.jsonl
    cmp zeros want.jsonl
}

@test "--resume: lines that are JSON, but no objects, are answered as without it" {
    printf '%s\n' '"x"' '{"id": "a", "prompt": "Once"}' 3 null true '[1, 2]' '' 'no json' '{"prompt": "Once"}' > in.jsonl
    run -65 batch --resume -o want.jsonl in.jsonl
    run -65 --separate-stderr batch in.jsonl
    jq -c 'del(.key)' want.jsonl | cmp - <(jq -c . <<< "$output")
    head -n 3 want.jsonl > got.jsonl
    head -c 20 <(sed -n 4p want.jsonl) >> got.jsonl
    run -65 batch --resume -o got.jsonl in.jsonl
    cmp got.jsonl want.jsonl
}

@test "--part and --limit: the parts together are the whole, with their random numbers" {
    prompts 40 > in.jsonl
    run -65 batch -o whole.jsonl --resume in.jsonl
    local k
    for k in 1 2 3; do run -65 batch --part $k/3 -o part$k.jsonl --resume in.jsonl; done
    cmp <(sort part?.jsonl) <(sort whole.jsonl)
    batch --limit 5 in.jsonl | jq -c . | cmp - <(head -n 5 whole.jsonl | jq -c 'del(.key, .samples)')
    batch --part 2/3 --limit 2 in.jsonl | jq -c . | cmp - <(head -n 2 part2.jsonl | jq -c 'del(.key, .samples)')
    grep -v '"prompt":3' in.jsonl > good.jsonl
    llm-infer -m "$M" -q --score --jsonl good.jsonl > scores
    for k in 1 2; do llm-infer -m "$M" -q --score --jsonl --part $k/2 good.jsonl > scores$k; done
    cmp <(sort scores1 scores2) <(sort scores)
}

# nan_model FOLDER: a copy of a model in which the token at position 8 makes all logits NaN.
nan_model() {
    cp -r "$ROOT/tests/golden/gpt2-shards" "$1"
    chmod -R u+w "$1"
    local f=$1/model-00001-of-00004.safetensors length at
    length=$(od -An -tu8 -N8 "$f" | tr -d ' ')
    at=$(tail -c +9 "$f" | head -c "$length" | jq '.["transformer.wpe.weight"].data_offsets[0]')
    printf '%64s' '' | tr ' ' '\377' | dd of="$f" bs=1 seek=$((8 + length + at + 8 * 64)) conv=notrunc status=none
}

@test "--score of logits that are not finite: status 1, not an answer; a line fails alone" {
    nan_model bad
    run -1 --separate-stderr llm-infer -m bad -q --score --ids "5 6 7 8 9 10 11 12 13 14"
    [[ $stderr =~ ^'llm-infer: logits are not finite: token '[0-9]+' has no probability'$ ]]
    printf '{"id": "a", "ids": [5, 6]}\n{"id": "b", "ids": [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]}\n{"id": "c", "ids": [5, 7]}\n' > in.jsonl
    run -1 --separate-stderr llm-infer -m bad -q --score --jsonl in.jsonl
    assert_equal "$(jq -c '[.id, (.error | if . then split(":")[0] else . end)]' <<< "$output" | tr '\n' ' ')" \
        '["a",null] ["b","logits are not finite"] ["c",null] '
}

@test "--embed of a vector that is not finite: the line fails alone, and what is written is JSON" {
    nan_model bad
    printf '{"id": "a", "ids": [5, 6]}\n{"id": "b", "ids": [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]}\n{"id": "c", "ids": [5, 7]}\n' > in.jsonl
    run -1 --separate-stderr llm-infer -m bad -q --embed --jsonl in.jsonl
    assert_equal "$(jq -c '[.id, .error, (.embedding | length > 0)]' <<< "$output" | tr '\n' ' ')" \
        '["a",null,true] ["b","the text'"'"'s vector is not finite",false] ["c",null,true] '
    [[ $stderr =~ "line 2: the text's vector is not finite" ]] || fail "$stderr"
}

@test "a line whose logits are not finite fails alone; --retries tries it again" {
    nan_model bad
    local b=(llm-infer -m bad -q --jsonl --no-timings -n 4 --ids)
    printf '{"id": "a", "ids": [5, 6]}\n{"id": "b", "ids": [5, 6, 7, 8, 9], "samples": 2, "ignore_eos": true}\n{"id": "c", "ids": [5, 7]}\n' > in.jsonl
    printf '{"id": "d", "prompt": 4}\n' >> in.jsonl
    run -1 --separate-stderr "${b[@]}" -n 6 in.jsonl
    assert_equal "$stderr" 'llm-infer: 2 completions failed, the first: id b: logits are not finite: no token can be chosen'
    assert_equal "$(jq -c '[.id, .sample, .error != null]' <<< "$output" | tr '\n' ' ')" \
        '["a",null,false] ["b",0,true] ["b",1,true] ["c",null,false] ["d",null,true] '
    grep -v '"b"' in.jsonl > three.jsonl
    run -65 "${b[@]}" --resume -o out.jsonl three.jsonl
    cp out.jsonl first
    run -65 "${b[@]}" --resume -o out.jsonl three.jsonl
    cmp out.jsonl first
    local k
    for k in 2 3 3; do
        run -65 "${b[@]}" --resume --retries 2 -o out.jsonl three.jsonl
        assert_equal "$(jq -c '[.id, .attempts]' out.jsonl | tr '\n' ' ')" '["a",null] ["c",null] ["d",'$k'] '
    done
}
