# For tests of --plan (plan.bats here and among the slow tests): the most memory that was resident, by getrusage, beside what was said before.

setup_file() {
    memory_meter
    awk 'BEGIN { for (i = 0; i < 4000; i++) printf "line %d of %d words, %d of them new\n", i, i * 7 % 13, i * i % 11 }' > text
    llm-tokenize encode -T "$ROOT/tests/golden/tiny/tokenizer.json" text > text.tok
}

setup() {
    D=$BATS_FILE_TMPDIR
    need_plain_memory
}

# taken COMMAND...: bytes resident at most
taken() {
    "$D/peak" peak.kib "$@" > /dev/null 2> err || fail "$(cat err)"
    echo $(($(< peak.kib) * 1024))
}

# training_takes WHAT...: a run of each preset, with its options, takes what was planned, to a twentieth, and 2 MB: arenas grow by huge pages.
training_takes() {
    local what run planned
    for what in "$@"; do
        # shellcheck disable=SC2206  # a preset and options, words each
        run=(llm-train -q -c $what --set vocab_size=300 -T "$ROOT/tests/golden/tiny/tokenizer.json" -b 2 --context 256 -n 1)
        planned=$("${run[@]}" --plan "$D/text.tok" | awk '$1 == "total_bytes" { print $2 }')
        awk -v planned="$planned" -v taken="$(taken "${run[@]}" -o model.llm "$D/text.tok")" -v what="$what" \
            'BEGIN { print what, planned, taken; off = planned - taken; exit !(off * off <= (.05 * taken + 2e6) ^ 2) }'
    done
}

# inference_takes PRESET...: a full context of each preset's model, in BF16 and Q4_0 where GGUF has the family, takes what was planned, to a twentieth
# and 5 MB: arenas and caches grow by huge pages, and the C library takes some. Of a mixture only the experts that the tokens choose are read: the plan
# is the most that it can take.
inference_takes() {
    local c type run planned
    head -c 500 "$D/text" > prompt
    for c in "$@"; do
        llm-train -q -c $c --set vocab_size=300 -T "$ROOT/tests/golden/tiny/tokenizer.json" -b 1 --context 64 -n 1 -o model.llm "$D/text.tok"
        for type in bf16 q4_0; do
            rm -f model.gguf
            llm-quantize -q -t $type model.llm model.gguf || continue # no family of GGUF
            run=(llm-infer -q -m model.gguf -c 512 -b 256 --ignore-eos -n -1 -f prompt)
            planned=$("${run[@]}" --plan | awk '$1 == "memory_bytes" { print $2 }')
            awk -v planned="$planned" -v taken="$(taken "${run[@]}")" -v what="$c $type" \
                'BEGIN { print what, planned, taken; most = .05 * taken + 5e6; exit !(taken - planned <= most && (what ~ /moe/ || planned - taken <= most)) }'
        done
    done
}
