# llm-infer --memory, --latency-target: what runs at once changes, the output does not. Other families: tests/slow/batch_memory.bats.
load ../helper
load ../batch_memory

@test "caches computed again or not: the same bytes, with drafts, samples, shared beginnings, any pass, any threads" {
    local b=(llm-infer -m "$F/wide.llm" --cache-type f32 -q -c 400 --jsonl --ids -n 60 --temp 1 --ignore-eos)
    "${b[@]}" --no-timings --parallel 1 --no-sharing in.jsonl | jq -c . > want
    bounded 6000 "${b[@]}" --parallel 64 -j 1
    bounded 9000 "${b[@]}" --parallel 64 -j 2 -b 40
    bounded 6000 "${b[@]}" --parallel 64 --no-sharing
    bounded 6000 "${b[@]}" --parallel 30 --draft-ngram
    bounded 12000 "${b[@]}" --parallel 30 --draft "$F/wide.llm"
}

@test "caches computed again: penalties and Mirostat remember what was written; a grammar goes on" {
    local b=(llm-infer -m "$F/wide.llm" --cache-type f32 -q -c 400 --jsonl -n 60 --temp 1 --parallel 64)
    local how
    jq -c '{id, prompt: "the old dog \(.id) \(.ids | join(" "))"[:300]}' in.jsonl > text.jsonl
    mv text.jsonl in.jsonl
    for how in "--mirostat 2 --repeat-penalty 1.3 --dry-multiplier 1" "--regex ([a-z]+\ ){40}" "--logprobs 2"; do
        IFS=' ' read -ra with <<< "${how/\\ /@}"
        "${b[@]}" "${with[@]/@/ }" --no-timings --parallel 1 in.jsonl | jq -c . > want
        bounded 6000 "${b[@]}" "${with[@]/@/ }"
    done
}

@test "caches computed again: a schema, a grammar and a guide go on where they were, with drafts of what is forced, too" {
    local b=(llm-infer -m "$F/wide.llm" --cache-type f32 -q -c 400 --jsonl -n 60 --temp 1 --top-k 0 --top-p 1 --min-p 0 --parallel 64)
    jq -c '{id, prompt: "the old dog \(.id) \(.ids | join(" "))"[:300]}' in.jsonl > text.jsonl
    mv text.jsonl in.jsonl
    echo '{"type": "array", "minItems": 40, "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}' > long.json
    printf '%s\n' 'start: pair~30..99' 'pair: "(" (pair | WORD)* ")"' '%import common.WORD' '%ignore " "' > nested.lark
    "${b[@]}" --json-schema long.json --no-timings --parallel 1 --draft-max 0 in.jsonl | jq -c . > want
    bounded 6000 "${b[@]}" --json-schema long.json
    bounded 6000 "${b[@]}" --json-schema long.json --draft-max 0
    "${b[@]}" --grammar nested.lark --no-timings --parallel 1 in.jsonl | jq -c . > want
    bounded 6000 "${b[@]}" --grammar nested.lark --draft-ngram
    "${b[@]}" --cfg-scale 1.5 --negative-prompt "the small cat sees" --no-timings --parallel 1 in.jsonl | jq -c . > want
    bounded 9000 "${b[@]}" --cfg-scale 1.5 --negative-prompt "the small cat sees"
    bounded 9000 "${b[@]}" --cfg-scale 1.5 --negative-prompt "the small cat sees" --draft-ngram
}

@test "caches computed again: windows, states" {
    families
    "${train[@]}" -c tiny "${wide[@]}" --set use_sliding_window=true --set sliding_window=8 -o window.llm "$F/data.tok"
    again 3500 window # pages of windows are released early
    # the state of a recurrent model does not grow: fewer begin. Some 250 kB of what the program takes beside it differ from run to run
    "${train[@]}" -c mamba --set hidden_size=128 --set num_hidden_layers=8 --set state_size=32 -o mamba.llm "$F/data.tok"
    "${b[@]}" -m mamba.llm --no-timings --parallel 1 in.jsonl > want
    "${b[@]}" -m mamba.llm --no-timings --memory $(($(least "${b[@]}" -m mamba.llm) + 1200000)) in.jsonl | cmp - want
}

@test "memory: what is resident stays below the bound, by a twentieth and 5 MB; without it the run takes more" {
    need_plain_memory
    cp "$BATS_FILE_TMPDIR/prompts.jsonl" in.jsonl
    local b=(llm-infer -m "$F/wide.llm" --cache-type f32 -q -c 400 --jsonl --ids -n 150 --temp 1 --ignore-eos --parallel 64)
    "$BATS_FILE_TMPDIR/peak" free.kib "${b[@]}" in.jsonl > /dev/null
    (($(< free.kib) > 60000)) || fail "$(< free.kib) KB"
    within 36 "${b[@]}" --memory 30M in.jsonl > got
    jq -se 'length == 42 and all(.finish_reason == "length")' got
}

@test "memory: what sliding windows have passed is released, unless the cache is saved: the same text" {
    need_plain_memory
    llm-train -q -T "$F/tok.json" -n 0 -l 24 -c tiny --set num_hidden_layers=8 --set hidden_size=128 --set num_attention_heads=4 \
        --set num_key_value_heads=4 --set intermediate_size=64 --set use_sliding_window=true --set sliding_window=70 --set max_window_layers=2 \
        -o window.llm "$F/data.tok"
    local b=(llm-infer -m window.llm --cache-type f32 -q -c 2100 --temp 1 --ignore-eos -n 1700) long
    long=$(yes 'the old dog sees the red cat.' | head -n 40)
    "$BATS_FILE_TMPDIR/peak" all.kib "${b[@]}" --kv-out all.kv "$long" > want
    "$BATS_FILE_TMPDIR/peak" less.kib "${b[@]}" "$long" > got
    cmp got want
    # 8 KB a token, of which 6 KB are of layers with windows
    (($(< less.kib) + 9000 < $(< all.kib))) || fail "$(< less.kib) KB beside $(< all.kib)"
    "${b[@]}" --draft-ngram -j 2 -b 70 "$long" | cmp - want
    "${b[@]}" --jsonl --samples 2 --seed 3 <<< '{"prompt": "the old dog"}' | jq -r .text > got
    "${b[@]}" --jsonl --samples 2 --seed 3 --no-sharing --parallel 1 -b 9 --draft-ngram <<< '{"prompt": "the old dog"}' | jq -r .text | cmp - got
}

@test "memory: a text that fits only because windows pass is taken, and stays below the bound; what is shared or saved is counted whole" {
    need_plain_memory
    llm-train -q -T "$F/tok.json" -n 0 -l 24 -c tiny --set num_hidden_layers=8 --set hidden_size=128 --set num_attention_heads=4 \
        --set num_key_value_heads=4 --set intermediate_size=64 --set use_sliding_window=true --set sliding_window=70 --set max_window_layers=2 \
        -o window.llm "$F/data.tok"
    local b=(llm-infer -m window.llm --cache-type f32 -q -c 4100 -b 64 --temp 1 --ignore-eos -n 3700) long bound
    long=$(yes 'the old dog sees the red cat.' | head -n 40)
    "${b[@]}" "$long" > want
    # 8 KB a token, of which 6 KB are of layers with windows: 32 MB whole, some 11 MB at a time
    bound=$(($(least "${b[@]}") + 14000000))
    within $(((bound + bound / 20) / 1000000 + 5)) "${b[@]}" --memory $bound "$long" > got
    cmp got want
    [[ $("${b[@]}" --memory $bound --plan | awk '$1 == "cache_limit_contexts" { print $2 }') == 1 ]]
    refused 69 "--memory: expected a prompt and completion of at most " "${b[@]}" --memory $bound --kv-out whole.kv "$long"
    jq -nc --arg p "$long$long$long$long$long" '{prompt: $p, tokens: 9}' > one.jsonl
    "${b[@]}" --jsonl --memory $bound --no-sharing one.jsonl | jq -e '.finish_reason == "length"'
    run -65 --separate-stderr "${b[@]}" --jsonl --memory $bound one.jsonl
    [[ $output == *'"error":"--memory: expected a prompt and completion of at most '* ]]
}

@test "memory: --plan says what fits; what does not fit at all is refused, with status 69, or as its line's error" {
    local b=(llm-infer -m "$F/wide.llm" --cache-type f32 -c 400)
    run -0 "${b[@]}" --plan --memory 30M
    [[ $output == *$'
memory_limit_bytes\t31457280\n'* || $output == *$'memory_limit_bytes	31457280'* ]]
    [[ $(awk '$1 == "cache_limit_contexts" { print $2 }' <<< "$output") -ge 2 ]]
    (($(awk '$1 == "cache_limit_tokens" { print $2 }' <<< "$output") * 8192 <= $(awk '$1 == "cache_limit_bytes" { print $2 }' <<< "$output")))
    refused 69 "--memory: expected at least " "${b[@]}" --memory 1M hello
    local bytes=$(($(least "${b[@]}" --jsonl) + 600000))
    refused 69 "--memory: expected a prompt and completion of at most " "${b[@]}" -n 300 --memory $bytes hello
    jq -c 'select(.id < 3) | .tokens = (if .id == 1 then 300 else 4 end) | .ids |= .[:20]' in.jsonl > three.jsonl
    run -65 --separate-stderr "${b[@]}" --jsonl --ids --memory $bytes three.jsonl
    assert_equal "$(jq -c '[.id, has("error")]' <<< "$output" | tr '\n' ' ')" "[0,false] [1,true] [2,false] "
    refused 2 "--memory and --latency-target are of generated text" "${b[@]}" --score --memory 1G hello
}

@test "--latency-target: prompts are read in smaller parts; the output is the same" {
    local b=(llm-infer -m "$F/wide.llm" -q -c 400 --jsonl --ids -n 40 --temp 1 --ignore-eos --parallel 8)
    "${b[@]}" --no-timings in.jsonl > want
    "${b[@]}" --no-timings --latency-target .5 in.jsonl | cmp - want
    "${b[@]}" --latency-target 5 in.jsonl | jq -se 'all(.timings.slowest_ms > 0)'
}
