# llm-infer --jsonl: scores of many texts, progress and the line at the end, a batch that a signal ends.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
}

# natural SUMS: the last fields of --score added up, as JSON numbers are compared
total() {
    awk '{ s += $NF; n++ } END { printf "%.5f %d\n", s, n }'
}

@test "--score --jsonl: sum, mean and tokens of each line are those of --score, with the end token too" {
    printf '%s\n' 'Once upon a time' 'time' 'é a' '' > texts
    jq -Rc '{id: ("t" + (input_line_number | tostring)), prompt: ., note: [1]}' texts > texts.jsonl
    local options text k
    for options in '' '--add-eos'; do
        # shellcheck disable=SC2086
        llm-infer -q -m "$M" --precision f32 --score --jsonl $options texts.jsonl > scores.jsonl
        k=0
        while IFS= read -r text; do
            k=$((k + 1))
            # shellcheck disable=SC2086
            llm-infer -q -m "$M" --precision f32 --score $options -- "$text" > one.tsv
            assert_equal "$(sed -n ${k}p scores.jsonl | jq -r '[.sum, .tokens] | @tsv' | awk '{ printf "%.5f %d\n", $1, $2 }')" "$(total < one.tsv)"
        done < texts
        jq -se 'all(.note == [1] and (.tokens == 0 and .mean == null or ((.mean * .tokens - .sum) | fabs) < 1e-9))' scores.jsonl
        assert_equal "$(jq -r .id scores.jsonl | tr '\n' ' ')" 't1 t2 t3 t4 '
    done
    llm-infer -q -m "$M" --score --jsonl --add-eos --per-token texts.jsonl > tokens.jsonl
    jq -se 'all(.tokens == (.per_token | length) and ((([.per_token[].log_prob] | add) - .sum) | fabs) < 1e-9)' tokens.jsonl
    jq -se 'all(.per_token[-1].text == "<|endoftext|>")' tokens.jsonl
    # ids, threads and passes change nothing
    jq -c '{id, prompt}' texts.jsonl | llm-infer -q -m "$M" -j 1 -b 3 --score --jsonl > a
    jq -c '{id, prompt}' texts.jsonl | llm-infer -q -m "$M" -j 2 --score --jsonl | cmp - a
}

@test "--score --jsonl: sums of n-grams with </s> are KenLM's" {
    need_shared ngram
    need_shared golden/ngram
    local name
    for name in toy0.arpa toy1.arpa test.arpa test_nounk.arpa; do
        jq -c 'select(.tokens | length > 0) | {id, prompt: .text, total, count: (.tokens | length), impossible: ([.tokens[].lp] | min < -90)}' \
            "$SHARED/data/golden/ngram/$name.jsonl" | head -n 40 > texts.jsonl
        llm-infer -q -m "$SHARED/data/ngram/$name" --score --jsonl --add-eos texts.jsonl > scores.jsonl
        jq -se 'length > 5 and all(.tokens == .count and ((.sum / (10 | log) - .total) | fabs) < 1e-3)' scores.jsonl
    done
}

@test "an empty prompt where the model has no token to begin with: operand, standard input and --jsonl say the same" {
    local said="the prompt is empty, and the model has no token to begin a text with"
    sentences 40 > text
    llm-tokenize train -q --vocab-size 260 -o tok.json text
    llm-tokenize encode -q -T tok.json -o data.tok text
    llm-train -q -c tiny -T tok.json -n 0 -o m.llm data.tok
    refused 65 "$said" llm-infer -m m.llm ''
    refused 65 "$said" llm-infer -m m.llm -f /dev/null
    run -65 --separate-stderr llm-infer -m m.llm -n 1 --jsonl --no-timings <<< '{"prompt": ""}'
    [[ $output == "{\"id\":1,\"error\":\"$said\"}" && $stderr == *"line 1: $said" ]]
    # a model that has one begins with it, either way; JSON has U+FFFD for what is no UTF-8
    assert_equal "$(llm-infer -q -m "$M" -n 5 --temp 0 --jsonl <<< '{"prompt": ""}' | command jq -r .text)" "$(llm-infer -q -m "$M" -n 5 --temp 0 '' | command jq -Rr .)"
}

@test "--score --jsonl: a bad line is answered with its error; options that do not go together" {
    run -65 --separate-stderr llm-infer -q -m "$M" --score --jsonl <<< $'{"prompt": "Once upon"}\n{"id": "b"}\n[]\n{"ids": [1, 70000]}\n{"ids": [1, 2]}'
    assert_equal "$stderr" 'llm-infer: standard input: 3 of 5 lines cannot be used, the first: line 2: expected "prompt" (a string) or "ids" (a list)'
    assert_equal "$(jq -c .id <<< "$output")" $'1\n"b"\n3\n4\n5'
    [[ ${lines[1]} == '{"id":"b","error":"expected \"prompt\" (a string) or \"ids\" (a list)"}' && ${lines[4]} == *'"tokens":1}' ]]
    refused 2 "--per-token goes with --score, --add-eos with --score and --top" llm-infer -m "$M" --add-eos x
    refused 2 "--per-token goes with --jsonl" llm-infer -m "$M" --score --per-token x
    refused 2 "expected no -n" llm-infer -m "$M" --score --jsonl -n 3 x
    refused 2 "expected no -n" llm-infer -m "$M" --score --add-eos -n 3 x
    refused 2 "do not go with --chat or --kv-in" llm-infer -m "$M" --score --jsonl --chat x
}

@test "a batch says at its end how much it did, not with -q; a terminal sees progress, on no line of a result" {
    need_tool script
    printf '{"prompt": "Once"}\n\n{"prompt": 1}\n{"prompt": "upon"}\n' > three.jsonl
    run -65 --separate-stderr llm-infer -m "$M" --jsonl -n 5 --ignore-eos three.jsonl
    [[ ${stderr_lines[0]} =~ ^"llm-infer: 3 items, "[0-9]+" tokens read, 10 generated in "[0-9.]+" s ("[0-9.]+" items/s, "[0-9]+" tokens/s), 1 failed"$ ]]
    [[ ${#stderr_lines[@]} == 2 ]]
    run -65 --separate-stderr llm-infer -q -m "$M" --jsonl -n 5 three.jsonl
    [[ ${#stderr_lines[@]} == 1 ]]
    local what
    for what in --score --embed; do
        run -65 --separate-stderr llm-infer -m "$M" $what --jsonl three.jsonl
        [[ $stderr =~ "llm-infer: 3 items, "[0-9]+" tokens read in "[0-9.]+" s ("[0-9.]+" items/s, "[0-9]+" tokens/s), 1 failed" ]]
    done
    for ((k = 0; k < 40; k++)); do echo '{"prompt": "Once upon"}'; done > many.jsonl
    script -qec "llm-infer -m '$M' -j 1 --jsonl -n 20 --no-timings many.jsonl" /dev/null < /dev/null > shown
    run -0 grep -c $'\rbatch \\[.* left, .* tokens/s' shown
    # results stand on lines of their own: only the code that erases may come before
    run -0 awk '/"finish_reason"/ { n++; sub(/.*\033\[K/, ""); if (substr($0, 1, 1) != "{") { print; bad = 1 } } END { exit bad || n != 40 }' shown
    script -qec "llm-infer -q -m '$M' -j 1 --jsonl -n 2 -o out many.jsonl" /dev/null < /dev/null > shown
    [[ ! -s shown ]]
}

@test "a signal keeps the lines of -o that are answered; one before the first answer makes no file" {
    local how
    for how in '-n 3' --score --embed; do
        rm -f out.jsonl lines
        mkfifo lines
        exec 8<> lines
        # shellcheck disable=SC2086
        env --default-signal=INT llm-infer -m "$M" -j 1 $how --jsonl -o out.jsonl - < lines 2> said &
        printf '{"prompt": "Once"}\n{"prompt": "upon"}\n' >&8
        comes_true $! writes_lines $! . 2
        kill -INT $!
        ends_by 130 $!
        exec 8<&-
        assert_equal "$(jq -c .id out.jsonl)" $'1\n2'
        run -0 grep -c '^llm-infer: interrupted: 2 items, .*; kept in out.jsonl$' said
        nothing_left
    done
    rm out.jsonl
    mkfifo none
    exec 8<> none
    env --default-signal=INT llm-infer -m "$M" -j 1 --jsonl -o out.jsonl - < none 2> said &
    comes_true $! writes_lines $! . 0 # it waits for lines
    kill -INT $!
    ends_by 130 $!
    exec 8<&-
    assert_not_exist out.jsonl
    nothing_left
}

@test "--jsonl: lines that end as on Windows, after a byte order mark" {
    printf '%s\n' '{"prompt": "Once upon"}' '{"prompt": "time"}' > lines
    { printf '\xef\xbb\xbf'; sed 's/$/\r/' lines; } > windows
    cmp <(llm-infer -q -m "$M" --jsonl --no-timings -n 4 lines) <(llm-infer -q -m "$M" --jsonl --no-timings -n 4 windows)
}

@test "--jsonl: a member that is null counts as absent" {
    local members='"ids": null, "stop": null, "logit_bias": null, "temperature": null, "seed": null, "negative_prompt": null'
    echo '{"prompt": "Once upon"}' | llm-infer -q -m "$M" --jsonl --no-timings -n 4 > plain
    echo '{"prompt": "Once upon", '"$members"'}' | llm-infer -q -m "$M" --jsonl --no-timings -n 4 | cmp - plain
    echo '{"prompt": "Once upon", "adapter": null, "steer": null, "images": null, "tools": null}' |
        llm-infer -q -m "$M" --jsonl --no-timings -n 4 > got
    assert_equal "$(jq -c '.text' got)" "$(jq -c '.text' plain)"
    echo '{"prompt": "Once upon", "adapter": null}' | llm-infer -q -m "$M" --jsonl --embed > got
    echo '{"prompt": "Once upon"}' | llm-infer -q -m "$M" --jsonl --embed > plain
    assert_equal "$(jq -c '.embedding' got)" "$(jq -c '.embedding' plain)"
}
