# llm-infer --jsonl: prompts that begin alike are computed once; the output is the same with and without, in any order of work.
load ../helper

# shared_prompts: 40 prompts of ids below 300 with a tree of common beginnings: of all, of groups, whole prompts twice, none.
shared_prompts() {
    awk 'BEGIN {
        srand(5)
        for (i = 0; i < 90; i++) all = all sprintf("%d,", 1 + rand() * 290)
        for (g = 0; g < 3; g++) for (i = 0; i < 50 + 7 * g; i++) of[g] = of[g] sprintf("%d,", 1 + rand() * 290)
        for (k = 0; k < 40; k++) {
            own = ""
            for (i = 0; i < 1 + k % 5; i++) own = own sprintf("%d,", 1 + rand() * 290)
            ids = (k % 8 == 7 ? "" : all) (k % 4 < 3 ? of[k % 4] : "") (k % 10 == 9 ? "" : own)
            if (ids == "") ids = own
            sub(/,$/, "", ids)
            printf "{\"id\":%d,\"ids\":[%s]%s}\n", k, ids, k % 6 == 5 ? ",\"samples\":2" : ""
        }
    }'
}

@test "shared or not: the same bytes, at batches of 1, 7 and 64 completions, any threads, any pass, any cache" {
    shared_prompts > in.jsonl
    local m=$ROOT/tests/golden/tiny how
    local b=(llm-infer -m "$m" -q --jsonl --no-timings --ids -n 9 --temp 1 --ignore-eos)
    LLM_THREADS=1 "${b[@]}" --no-sharing --parallel 1 in.jsonl > want
    for how in '--parallel 1' '--parallel 7 -j 1' '--parallel 7 -j 2 -b 33' '--parallel 64 -j 3' '--parallel 64 -j 4 -b 5' '--no-sharing --parallel 64 -j 4'; do
        # shellcheck disable=SC2086
        "${b[@]}" $how in.jsonl | cmp - want || fail "$how"
    done
    # in another order: the same lines
    tac in.jsonl | "${b[@]}" --parallel 7 | sort | cmp - <(sort want)
    for how in '--cache-type q8_0' '--cache-type f32 --precision f32'; do
        # shellcheck disable=SC2086
        "${b[@]}" $how --no-sharing in.jsonl > other
        # shellcheck disable=SC2086
        "${b[@]}" $how --parallel 9 in.jsonl | cmp - other || fail "$how"
    done
}

@test "shared or not: families with windows, latent attention, states and prefixes; a cache to begin with" {
    sentences_tokens
    local m train=(llm-train -q -T "$F/tok.json" -n 0 -l 24 --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48)
    "${train[@]}" -c tiny --set use_sliding_window=true --set sliding_window=8 -o window.llm "$F/data.tok"
    "${train[@]}" -c mla --set kv_lora_rank=16 --set qk_nope_head_dim=8 --set qk_rope_head_dim=8 --set v_head_dim=8 -o mla.llm "$F/data.tok"
    "${train[@]}" -c tiny --set num_nextn_predict_layers=1 -o next.llm "$F/data.tok"
    for m in 'the old dog sees the small cat and the' 'the old dog sees the small cat and a red' 'the old dog sees the small cat and the' 'a'; do
        jq -nc --arg p "$m $m $m $m $m" '{prompt: $p}'
    done > in.jsonl
    for m in window.llm mla.llm next.llm; do
        llm-infer -m "$m" -q -c 400 --jsonl --no-timings -n 20 --ignore-eos --no-sharing in.jsonl > want
        llm-infer -m "$m" -q -c 400 --jsonl --no-timings -n 20 --ignore-eos in.jsonl | cmp - want
    done
    llm-infer -m next.llm -q -c 400 --jsonl --no-timings -n 20 --ignore-eos --draft-max 2 in.jsonl | cmp - want
    llm-infer -m next.llm -q --kv-out begin.kv -n 0 'the old dog'
    llm-infer -m next.llm -q -c 400 --jsonl --no-timings --kv-in begin.kv --no-sharing in.jsonl > want
    llm-infer -m next.llm -q -c 400 --jsonl --no-timings --kv-in begin.kv in.jsonl | cmp - want
}

@test "a common beginning is computed once: timings say how much was shared" {
    shared_prompts | head -n 30 > in.jsonl
    llm-infer -m "$ROOT/tests/golden/tiny" -q --jsonl --ids -n 2 --parallel 30 in.jsonl > out
    # of the lines that begin with the 90 tokens of all, all but one share them
    assert_equal "$(jq -s 'map(select(.prompt_tokens > 90 and .id % 8 != 7)) | [length, (map(select(.timings.shared_tokens < 90)) | length)] | .[1]' out)" 1
    jq -se 'map(select(.id % 8 != 7 and .id % 4 == 0 and .timings.shared_tokens >= 140)) | length >= 5' out
    llm-infer -m "$ROOT/tests/golden/tiny" -q --jsonl --ids -n 2 --no-sharing in.jsonl | jq -se 'all(.timings.shared_tokens == 0)'
}

@test "--unordered: the same answers, as they are ready; killed and resumed = uninterrupted after sorting" {
    shared_prompts > in.jsonl
    jq -c 'if .id % 9 == 4 then .prompt = 3 | del(.ids) elif .id % 7 == 0 then .tokens = 60 else . end' in.jsonl > mixed.jsonl
    local b=(llm-infer -m "$ROOT/tests/golden/tiny" -q --jsonl --no-timings --ids -n 5 --temp 1 --ignore-eos --parallel 6)
    run -65 --separate-stderr "${b[@]}" mixed.jsonl
    sort <<< "$output" > want
    assert_equal "$(jq -c .id <<< "$output")" "$(jq -c 'if .samples then .id, .id else .id end' mixed.jsonl)"
    run -65 --separate-stderr "${b[@]}" --unordered mixed.jsonl
    sort <<< "$output" | cmp - want
    [[ $(jq -c .id <<< "$output") != "$(jq -c .id mixed.jsonl)" ]]
    run -65 "${b[@]}" --unordered --resume -o out.jsonl mixed.jsonl
    shuf --random-source=in.jsonl out.jsonl | head -n 20 | sort -t: -k2 > part.jsonl
    run -65 "${b[@]}" --unordered --resume -o part.jsonl mixed.jsonl
    cmp <(jq -cS 'del(.key, .samples)' part.jsonl | sort) <(jq -cS . want | sort)
}

@test "--prefix-cache: another run takes beginnings from files; same bytes; damage, other models, and a bound of bytes" {
    shared_prompts > in.jsonl
    local m=$ROOT/tests/golden/tiny
    local b=(llm-infer -m "$m" -q --jsonl --ids -n 9 --temp 1 --parallel 8)
    "${b[@]}" --no-timings --no-sharing in.jsonl > want
    "${b[@]}" --no-timings --prefix-cache caches in.jsonl | cmp - want
    # the beginning of all, of 90 tokens, and those of groups
    (($(find caches -name '*-90-*.kv' | wc -l) == 1 && $(find caches -name '*.kv' | wc -l) >= 3))
    "${b[@]}" --prefix-cache caches in.jsonl > out
    jq -se '(.[0].timings.shared_tokens >= 90)' out
    jq -c 'del(.timings)' out | cmp - <(jq -c . want)
    llm-kvinspect summary "$(find caches -name '*-90-*.kv')" > summary
    # another type of cache has files of its own
    "${b[@]}" --cache-type q8_0 --prefix-cache caches in.jsonl > quantised
    jq -se '.[0].timings.shared_tokens == 0' quantised
    # a damaged file costs a warning
    local f
    for f in caches/*; do truncate -s -9 "$f"; done
    run -0 --separate-stderr llm-infer -m "$m" --jsonl --ids -n 9 --temp 1 --parallel 8 --no-timings --prefix-cache caches in.jsonl
    cmp want <(printf '%s\n' "$output")
    [[ $stderr == *".kv: not used: "* ]]
    # a bound
    rm -r caches
    "${b[@]}" --prefix-cache caches --prefix-cache-size 40K in.jsonl > out
    (($(find caches -name '*.kv' -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }') <= 40960))
    echo kept > caches/notes
    "${b[@]}" --prefix-cache caches --prefix-cache-size 1 in.jsonl > out
    assert_equal "$(ls caches)" notes
    refused 2 "--prefix-cache goes with --jsonl" "${b[@]}" --no-sharing --prefix-cache caches in.jsonl
    refused 73 "in.jsonl: " "${b[@]}" --prefix-cache in.jsonl in.jsonl
}
