load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    P='Once upon a time there was a red cat. She liked the garden.'
}

@test "log-probabilities and greedy tokens are those of transformers in double precision" {
    need_tool jq
    llm-infer -m "$M" --precision f32 --score "$(jq -r .prompt "$M/expected.json")" > scores.tsv
    cut -f1 scores.tsv > ids
    jq '.ids[1:][]' "$M/expected.json" > wanted
    cmp ids wanted
    near_lines <(cut -f3 scores.tsv) <(jq '.log_probs[]' "$M/expected.json") 1e-5
    run -0 llm-infer -m "$M" --precision f32 --temp 0 -n 24 --ids "$(jq -r '.ids | join(" ")' "$M/expected.json")"
    assert_output "$(jq -r '.greedy | join(" ")' "$M/expected.json")"
}

@test "last logits of the stream are those of transformers" {
    need_tool jq
    llm-infer -m "$M" --precision f32 --logits -b 20 --ids "$(jq -r '.ids | join(" ")' "$M/expected.json")" > logits.llmt
    n=$(jq '.ids | length' "$M/expected.json")
    # one message: ids, logits [n, 300], positions
    header=$(od -An -N8 -tu8 logits.llmt | tr -d ' ')
    tail -c +$((8 + header + 4 * n + (n - 1) * 1200 + 1)) logits.llmt | head -c 1200 | od -An -v -w4 -tf4 > found
    assert_equal "$(wc -l < found)" 300
    near_lines found <(jq '.last_logits[]' "$M/expected.json") 2e-5
}

@test "a GPT-2 that transformers saved in several files: its log-probabilities and greedy tokens" {
    need_tool jq
    G=$ROOT/tests/golden/gpt2-shards
    ids=$(jq -r '.ids | join(" ")' "$G/expected.json")
    llm-infer -m "$G" --precision f32 --score --ids "$ids" | cut -f3 > found
    [[ $(wc -l < found) == 69 ]]
    near_lines found <(jq '.log_probs[]' "$G/expected.json") 2e-5
    run -0 llm-infer -m "$G" --precision f32 --temp 0 -n 20 --ids "$ids"
    assert_output "$(jq -r '.greedy | join(" ")' "$G/expected.json")"
}

@test "safetensors find their configuration and tokenizer beside them" {
    llm-infer -m "$M" -n 9 "$P" > folder
    llm-infer -m "$M/model.safetensors" -n 9 "$P" | cmp - folder
    cp "$M/model.safetensors" "$M/config.json" "$M/tokenizer.json" .
    llm-infer -m model.safetensors -n 9 "$P" | cmp - folder
}

@test "stories260K: log-probabilities, last logits and greedy tokens of the reference" {
    need_shared models/stories260K/hf
    need_tool jq
    G=$SHARED/data/golden/model/stories260K-logits.json
    S=$SHARED/data/models/stories260K/hf
    for number in 0 1 2 3 4; do
        ids=$(jq -r ".cases[$number].ids | join(\" \")" "$G")
        llm-infer -m "$S" --precision f32 --score --ids "$ids" | cut -f3 > found
        near_lines found <(jq ".cases[$number].nll[] | -." "$G") 2e-5
        # greedy: all gaps of these five exceed .007
        n=$(jq ".cases[$number] | (.greedy_ids | length) - (.ids | length)" "$G")
        run -0 llm-infer -m "$S" --precision f32 --temp 0 -n "$n" --ids "$ids"
        assert_output "$(jq -r ".cases[$number] | .greedy_ids[(.ids | length):] | join(\" \")" "$G")"
    done
}

@test "a prompt comes from the operand, from -f and from standard input" {
    llm-infer -m "$M" -n 20 "$P" > a
    printf %s "$P" > prompt
    llm-infer -m "$M" -n 20 -f prompt > b
    llm-infer -m "$M" -n 20 < prompt > c
    llm-infer -m "$M" -n 20 -f - < prompt > d
    for one in b c d; do cmp a $one; done
    [[ -s a ]]
}

@test "a model comes through a pipe" {
    llm-quantize -q -t q8_0 "$M" q8.llm
    llm-infer -m q8.llm -n 20 --score "$P" > a
    llm-quantize -q -t q8_0 "$M" - | llm-infer -m - -n 20 --score "$P" > b
    cmp a b
}

@test "--echo prints the prompt, and the text ends with one newline" {
    llm-infer -m "$M" -n 5 --echo "$P" > a
    llm-infer -m "$M" -n 5 "$P" > b
    { printf %s "$P"; cat b; } | cmp - a
    [[ $(tail -c1 a | od -An -tx1) == " 0a" ]]
}

@test "samples differ, a sample depends on seed and number alone" {
    llm-infer -m "$M" --ids -n 12 --samples 3 --seed 5 "1 2 3" | grep . > three
    llm-infer -m "$M" --ids -n 12 --samples 3 --parallel 1 --seed 5 "1 2 3" | grep . > three_in_turn
    llm-infer -m "$M" --ids -n 12 --seed 5 "1 2 3" > one
    llm-infer -m "$M" --ids -n 12 --seed 6 "1 2 3" > other
    cmp three three_in_turn
    cmp <(head -1 three) one
    run -1 cmp -s one other
    [[ $(sort -u three | wc -l) == 3 ]]
}

@test "-n bounds, the context bounds, -n 0 generates nothing" {
    run -0 llm-infer -m "$M" --ids --ignore-eos -n 7 "1 2 3"
    [[ $(wc -w <<< "$output") == 7 ]]
    run -0 --separate-stderr llm-infer -m "$M" --ids --ignore-eos -n -1 -c 50 "1 2 3"
    [[ $(wc -w <<< "$output") == 47 ]]
    [[ $stderr == *"context of 50 tokens is full"* ]]
    run -0 llm-infer -m "$M" -n 0 "$P"
    assert_output ''
}

@test "a prompt as long as the context is continued by nothing, and its cache can be saved" {
    ids=$(seq -s ' ' 1 50)
    run -0 --separate-stderr llm-infer -m "$M" --ids --ignore-eos -c 50 --kv-out c.kv "$ids"
    [[ -z $output && $stderr == *'context of 50 tokens is full'* ]]
    run -0 llm-kvinspect export --tensor ids -o ids.npy c.kv
    [[ $(llm-kvinspect c.kv | awk '$1 == "tokens" {print $2}') == 50 ]]
    run -0 --separate-stderr llm-infer -m "$M" --ids --ignore-eos -c 51 --kv-out c.kv "$ids"
    [[ $(wc -w <<< "$output") == 1 && $(llm-kvinspect c.kv | awk '$1 == "tokens" {print $2}') == 51 ]]
    run -0 llm-infer -m "$M" -q -c 50 --jsonl --no-timings <<< "{\"ids\": [${ids// /, }]}"
    assert_output '{"id":1,"text":"","finish_reason":"context","prompt_tokens":50,"completion_tokens":0}'
}

@test "text and ids come as they are made, not at the end" {
    for options in --ids --echo; do
        mkfifo out$options
        llm-infer -q -m "$M" $options -n -1 -c 1000000 --ignore-eos '1 2 3' > out$options 3>&- &
        pid=$!
        head -c 200 out$options > begin
        ends_by 141 $pid # SIGPIPE
        [[ $(stat -c %s begin) == 200 ]]
    done
}

@test "windows: what begins in the second sees half a context, exactly" {
    llm-infer -q -m "$M" -c 64 --score --ids "$(seq -s ' ' 1 150)" > all
    llm-infer -m "$M" -c 64 --score --ids "$(seq -s ' ' 33 96)" | tail -32 > second
    sed -n '64,95p' all | cmp - second
    llm-infer -m "$M" -c 64 --score --ids "$(seq -s ' ' 1 64)" | cmp - <(head -63 all)
    [[ $(cut -f1 all | tr '\n' ' ') == "$(seq -s ' ' 2 150) " ]]
}

@test "--stop ends before the text, wherever tokens cut it" {
    text=$(llm-infer -m "$M" -n 40 --seed 3 "$P" | tr -d '\0')
    for stop in "${text:7:1}" "${text:5:3}" "${text:9:5}"; do
        LC_ALL=C
        run -0 llm-infer -m "$M" -n 40 --seed 3 --stop "$stop" --stop 'not there' "$P"
        LC_ALL=C.UTF-8
        assert_output "${text%%"$stop"*}"
    done
}

@test "the end token ends, --ignore-eos goes on, a bias forces and bans" {
    run -0 llm-infer -m "$M" --ids -n 5 --temp 0 --logit-bias 0+1000 "1 2 3"
    assert_output ''
    run -0 llm-infer -m "$M" --ids -n 5 --temp 0 --ignore-eos --logit-bias 0+1000 "1 2 3"
    [[ $(wc -w <<< "$output") == 5 ]]
    run -0 llm-infer -m "$M" --ids -n 5 --temp 0 --logit-bias 42+1000 "1 2 3"
    assert_output '42 42 42 42 42'
    first=$(llm-infer -m "$M" --ids -n 1 --temp 0 "1 2 3")
    run -0 llm-infer -m "$M" --ids -n 1 --temp 0 --logit-bias "$first-inf" "1 2 3"
    [[ $output != "$first" && -n $output ]]
}

@test "penalties and filters change what is chosen; top-k 1 is greedy" {
    greedy=$(llm-infer -m "$M" --ids -n 30 --temp 0 "5 6 7 5 6 7")
    run -0 llm-infer -m "$M" --ids -n 30 --top-k 1 "5 6 7 5 6 7"
    assert_output "$greedy"
    run -0 llm-infer -m "$M" --ids -n 30 --top-p 0 "5 6 7 5 6 7"
    assert_output "$greedy"
    run -0 llm-infer -m "$M" --ids -n 30 --min-p 1 "5 6 7 5 6 7"
    assert_output "$greedy"
    for penalty in '--repeat-penalty 3' '--presence-penalty 9' '--frequency-penalty 9'; do
        run -0 llm-infer -m "$M" --ids -n 30 --temp 0 $penalty "5 6 7 5 6 7"
        [[ $output != "$greedy" ]]
    done
    # nothing repeats where a token seen once is never chosen again
    run -0 llm-infer -m "$M" --ids -n 30 --temp 0 --presence-penalty 1000 --repeat-last-n -1 "5 6 7"
    [[ $(tr ' ' '\n' <<< "$output" | sort | uniq -d) == '' ]]
}

@test "--score keeps one line a token, whatever the text" {
    printf 'a\tb\nc\\d\r\x01 \xc3\xa9 \xff\0z' > odd
    llm-infer -m "$M" --score -f odd > scores
    awk -F'\t' 'NF != 3 || $3 > 0 {exit 1}' scores
    cut -f2 scores | tr -d '\n' > text
    printf '\\tb\\nc\\\\d\\r\\x01 ' > wanted
    cmp -n "$(stat -c %s wanted)" text wanted
    grep -q '\\xff' text
    grep -q '\\x00' text
}

@test "--score in every form: a table on a terminal, lines without a heading in a pipe" {
    need_tool jq
    llm-infer -q -m "$M" --precision f32 --score "$P" > tsv
    llm-infer -q -m "$M" --precision f32 --score --format tsv "$P" | cmp - tsv
    llm-infer -q -m "$M" --precision f32 --score --format csv "$P" | tr -d '\r' > csv
    assert_equal "$(head -n 1 csv)" id,text,log_prob
    assert_equal "$(wc -l < csv)" $(($(wc -l < tsv) + 1))
    llm-infer -q -m "$M" --precision f32 --score --format json "$P" | jq -r '.id' | cmp - <(cut -f 1 tsv)
    llm-infer -q -m "$M" --precision f32 --score --format md "$P" | head -n 1 | grep -qF '| id | text | log_prob |'
    llm-infer -q -m "$M" --precision f32 --score --format aligned "$P" > aligned
    head -n 1 aligned | grep -qE '^ *id  text +log_prob$'
    script -qec "llm-infer -q -m '$M' --precision f32 --score '$P'" /dev/null < /dev/null | tr -d '\r' | cmp - aligned
    refused 2 'goes with --score' llm-infer -m "$M" --format csv "$P"
    refused 2 'not with --jsonl' llm-infer -m "$M" --score --jsonl --format csv "$P"
}

@test "perplexity by awk, of a text longer than the context too" {
    run -0 --separate-stderr bash -c "for i in {1..80}; do printf '%s ' '$P'; done | llm-infer -m '$M' --score | awk '{s += \$NF} END {print NR, exp(-s / NR)}'"
    [[ ${output% *} -gt 256 ]]
    [[ $stderr == *'scored in windows'* ]]
    # every token once: as many lines as tokens but the first
    tokens=$(for i in {1..80}; do printf '%s ' "$P"; done | llm-tokenize encode -T "$M/tokenizer.json" --text | wc -w)
    [[ ${output% *} == $((tokens - 1)) ]]
}

@test "--embed: one vector, the mean, the first or the last" {
    for pool in mean cls last; do
        llm-infer -m "$M" --embed --pooling $pool "$P" > $pool.llmt
        grep -aq '"llm.kind":"embeddings"' $pool.llmt
    done
    run -1 cmp -s mean.llmt last.llmt
    run -1 cmp -s cls.llmt last.llmt
    llm-infer -m "$M" --embed -b 3 "$P" | cmp - mean.llmt
}

@test "an empty prompt begins with the end-of-text token" {
    llm-infer -m "$M" --ids -n 8 0 > a
    llm-infer -m "$M" --ids -n 8 '' > b
    cmp a b
}

@test "--plan says what is needed, to within 5% of the file" {
    llm-infer -m "$M" --plan > plan
    [[ $(awk '$1 == "parameters" {print $2}' plan) == 34336 ]]
    [[ $(awk '$1 == "weight_bytes" {print $2}' plan) == 68672 ]]
    [[ $(awk '$1 == "cache_bytes_per_token" {print $2}' plan) == 256 ]]
    [[ $(awk '$1 == "memory_bytes" {print $2}' plan) -gt 68672 ]]
}

@test "SIGINT: what is finished stays, the shell sees a death by signal" {
    # a background job of a shell ignores SIGINT unless told otherwise
    env --default-signal=INT llm-infer -m "$M" -n -1 -c 1000000 --ignore-eos --ids 1 > out 2> err &
    filled out $!
    kill -INT $!
    ends_by 130 $!
}

@test "SIGPIPE is silent" {
    run -0 --separate-stderr bash -c 'llm-infer -m "$0" -n 200 --ignore-eos "$1" | head -c 1 > /dev/null' "$M" "$P"
    [[ -z $stderr ]]
}

@test "the commands of the manual's EXAMPLES run" {
    llm-quantize -q -t bf16 "$M" model.llm
    printf 'Once upon a time there was a cat.' | tee held-out.txt > prompt.txt
    manual_examples llm-infer 12
}
