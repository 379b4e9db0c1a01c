# For tests of llm-infer --memory (batch_memory.bats here and among the slow tests).
export LLM_THREADS=1 # models as small as these gain nothing by more, and files run at once

setup_file() {
    memory_meter
    # 32 prompts of ids below 280, of 20 to 220 tokens, some with samples
    awk 'BEGIN {
        srand(5)
        for (k = 0; k < 32; k++) {
            ids = ""
            for (i = 0; i < 20 + k * 37 % 200; i++) ids = ids (i ? "," : "") int(1 + rand() * 270)
            printf "{\"id\":%d,\"ids\":[%s]%s}\n", k, ids, k % 6 == 5 ? ",\"samples\":3" : ""
        }
    }' > prompts.jsonl
    sentences_tokens
    sed -n 's/\([a-z]* [a-z]*\) \(.*\)/{"q": "\1", "a": "\2"}/p' text | head -n 100 > pairs.jsonl
    llm-tokenize encode -T tok.json --pair q,a -o pairs.tok pairs.jsonl
    # a page of the cache has half a megabyte: much more than what the plan of everything else is wrong by
    llm-train -q -T tok.json -n 0 -l 24 -c tiny --set num_hidden_layers=8 --set hidden_size=128 --set num_attention_heads=4 \
        --set num_key_value_heads=4 --set intermediate_size=64 --set vocab_size=300 -o wide.llm data.tok
}

setup() { head -n 16 "$BATS_FILE_TMPDIR/prompts.jsonl" > in.jsonl; }

# least COMMAND...: the fewest bytes that --memory of COMMAND takes, by its own message.
least() {
    local said
    said=$("$@" --memory 1 in.jsonl 2>&1 > /dev/null) && fail "expected a refusal"
    [[ $said =~ "expected at least "([0-9]+)" bytes" ]] || fail "$said"
    echo "${BASH_REMATCH[1]}"
}

# bounded KB COMMAND...: with KB more than the least, COMMAND prints what is in `want`, and has computed caches again.
bounded() {
    local bytes
    bytes=$(($(least "${@:2}") + $1 * 1024))
    "${@:2}" --memory $bytes in.jsonl > got || fail "--memory $bytes: ${*:2}"
    jq -c 'del(.timings)' got | cmp - want || fail "--memory $bytes: ${*:2}"
    jq -se 'map(.timings.recomputed_tokens) | add > 100' got > sum || fail "--memory $bytes: nothing was computed again: ${*:2}"
}

# families: commands that make (train, with some options of a wider model) and run (b) models of several families.
families() {
    train=(llm-train -q -T "$F/tok.json" -n 0 -l 24)
    b=(llm-infer --cache-type f32 -q -c 400 --jsonl --ids -n 60 --temp 1 --ignore-eos --parallel 40)
    wide=(--set num_hidden_layers=8 --set hidden_size=128 --set num_attention_heads=4 --set num_key_value_heads=4)
}

# again KB MODEL OPTION...: MODEL.llm's output with a bound of KB is the one without.
again() {
    "${b[@]}" -m "$2.llm" "${@:3}" --no-timings in.jsonl | jq -c . > want
    bounded "$1" "${b[@]}" -m "$2.llm" "${@:3}"
}
