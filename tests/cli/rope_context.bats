# Rotary positions that depend on the context (longrope, dynamic): -c decides, never the length of a text.
load ../helper
export LLM_THREADS=1

setup_file() {
    sentences_tokens
    local sizes='"vocab_size": 280, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": null, "eos_token_id": null, "pad_token_id": null,
        "initializer_range": 0.3'
    local factors='"short_factor": [1, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6], "original_max_position_embeddings": 16'
    local long='"long_factor": [1.5, 2, 2.5, 3, 3.5, 4, 5, 6]' short='"long_factor": [1, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]'
    local scaled='{"model_type": "phi3", %s, "rope_scaling": {"type": "longrope", "attention_factor": 1.1, %s, %s}}'
    printf "$scaled" "$sizes" "$factors" "$long" > long.json
    printf "$scaled" "$sizes" "$factors" "$short" > short.json # its long factors are the short ones
    printf '{"model_type": "llama", %s, "rope_scaling": {"rope_type": "dynamic", "factor": 2}}' "${sizes/: 64/: 16}" > dynamic.json
    for name in long short dynamic; do
        llm-train -q -c $name.json -T tok.json -n 0 -o $name.llm
    done
    seq -s ' ' 3 14 > twelve
    seq -s ' ' 3 42 > forty
}

logits() { llm-infer --precision f32 --ids --logits -m "$@"; }
# rows FILE [N]: the first 12 rows of a stream of N [12] logits, which stand after the header and the ids
rows() { tail -c +$((9 + $(od -An -tu8 -N8 "$1") + 4 * ${2-12})) "$1" | head -c $((12 * 280 * 4)); }

@test "longrope: by default the original context and the short factors, for every text" {
    logits "$F/long.llm" -f "$F/twelve" > default
    logits "$F/long.llm" -c 16 -f "$F/twelve" | cmp - default
    logits "$F/short.llm" -c 64 -f "$F/twelve" > short
    cmp <(rows default) <(rows short)
    logits "$F/long.llm" -c 64 -f "$F/twelve" > far
    run -1 cmp -s <(rows default) <(rows far)
    logits "$F/long.llm" -c 17 -f "$F/twelve" > near # the long factors hold for any context beyond
    cmp <(rows near) <(rows far)
}

@test "original_max_position_embeddings outside the object goes before the one in it, and is written there, as transformers has it" {
    for family in phi3 llama; do
        jq --arg family $family '.model_type = $family | .original_max_position_embeddings = 24' "$F/long.json" > both.json
        llm-train -q -c both.json -T "$F/tok.json" -n 0 -o both.llm
        logits both.llm -f "$F/twelve" | grep -qa '"llm.rope_context":"24"'
        llm-infer -m both.llm --ids --score -c 24 -f "$F/twelve" > /dev/null
        llm-quantize -q -t keep both.llm both.safetensors
        [[ $(head -c 4000 both.safetensors) == *'],\"long_factor\":['*']},\"original_max_position_embeddings\":24}'* ]]
    done
}

@test "a token's bits do not depend on what follows it" {
    for name in long dynamic; do
        logits "$F/$name.llm" -c 64 -f "$F/forty" 2> /dev/null > whole
        logits "$F/$name.llm" -c 64 -f "$F/twelve" 2> /dev/null > start
        cmp <(rows whole 40) <(rows start)
    done
}

@test "dynamic: the base follows -c beyond max_position_embeddings" {
    logits "$F/dynamic.llm" -f "$F/twelve" > default
    logits "$F/dynamic.llm" -c 12 -f "$F/twelve" > less
    cmp <(rows default) <(rows less)
    logits "$F/dynamic.llm" -c 40 -f "$F/twelve" 2> /dev/null > more
    run -1 cmp -s <(rows default) <(rows more)
}

@test "a text beyond the context stops and names -c" {
    local text="expected at most 16 tokens (the context: rotary positions are scaled for as many, -c N asks for others), found 40"
    for name in long dynamic; do
        for what in --logits --score --embed -n1; do
            run -65 --separate-stderr llm-infer -m "$F/$name.llm" --ids $what -f "$F/forty"
            assert_equal "${stderr_lines[-1]}" "llm-infer: prompt: $text"
        done
        llm-infer -m "$F/$name.llm" --ids --score -c 40 -f "$F/forty" > scores 2> /dev/null
        assert_equal "$(wc -l < scores)" 39
        run -0 --separate-stderr llm-infer -m "$F/$name.llm" --ids --ignore-eos -n 20 -f "$F/twelve"
        [[ $stderr == *"the context of 16 tokens is full; rotary positions are scaled for as many: -c N asks for others" ]]
    done
}

@test "the choice is recorded: in caches, which are then of use for no other; in tensor streams; in JSON Lines" {
    for name in long dynamic; do
        llm-infer -m "$F/$name.llm" --ids --kv-out cache.kv -n 0 -f "$F/twelve"
        grep -qa '"llm.rope_context":"16"' cache.kv
        logits "$F/$name.llm" -c 14 -f "$F/twelve" | grep -qa '"llm.rope_context":"14"'
        llm-infer -m "$F/$name.llm" --kv-in cache.kv -c 15 --ids -n 2 > continued
        run -65 --separate-stderr llm-infer -m "$F/$name.llm" --kv-in cache.kv -c 40 --ids -n 2
        [[ $stderr == *"llm-infer: cache.kv: expected keys with rotary positions for a context of 40 tokens (-c), found 16" ]]
        sed 's/"llm.rope_context":"16"/"llm.rope_contexT":"16"/; s/llm[.]checksums/old.checksums/' cache.kv > older.kv # as before the key was there
        run -0 --separate-stderr llm-infer -m "$F/$name.llm" --kv-in older.kv --ids -n 2
        [[ $stderr == *"the cache does not say for which context its keys were rotated: expected 16 tokens (-c)" ]]
        assert_equal "$output" "$(cat continued)"
        echo '{"ids": [3, 4, 5]}' > prompts
        assert_equal "$(llm-infer -m "$F/$name.llm" --ids --jsonl -n 2 prompts | jq .rope_context)" 16
        assert_equal "$(llm-infer -m "$F/$name.llm" --ids --jsonl --embed prompts | jq .rope_context)" 16
        run -0 --separate-stderr llm-infer -m "$F/$name.llm" --ids --score -c 40 -f "$F/twelve"
        [[ $stderr == *"llm-infer: rotary positions are scaled for a context of 40 tokens (-c)" ]]
    done
    llm-train -q -c tiny --set num_hidden_layers=1 --set vocab_size=280 -n 0 -T "$F/tok.json" -o plain.llm
    assert_equal "$(llm-infer -m plain.llm --ids --jsonl -n 2 prompts | jq 'has("rope_context")')" false
}

@test "llm-bench quality: a column says for which context, and a note that longer texts are scored in windows" {
    local note="llm-bench quality: text: documents of more than 16 tokens are scored in windows, with rotary positions scaled for a context of as many"
    printf 'A word and another word, and a third one.' > text
    for name in long dynamic; do
        run -0 --separate-stderr llm-bench quality --json -m "$F/$name.llm" text
        assert_equal "$(jq -c .rope_context <<< "$output")" 16
        [[ $stderr == "$note; -c N asks for others" ]]
        run -0 --separate-stderr llm-bench quality -c 64 -m "$F/$name.llm" text
        [[ $stderr != *windows* ]]
        assert_equal "$(head -n 1 <<< "$output" | cut -f 10) $(tail -n 1 <<< "$output" | cut -f 10)" "rope_context 64"
    done
    llm-train -q -c tiny --set num_hidden_layers=1 --set vocab_size=280 -n 0 -T "$F/tok.json" -o plain.llm
    assert_equal "$(llm-bench quality -m plain.llm text | head -n 1 | cut -f 10)" ""
}

@test "training takes the factors of its own context, by default the original one" {
    first() { llm-train -q -T "$F/tok.json" -n 1 -b 2 --precision f32 --log log "$@" -o model.llm "$F/data.tok" && jq -c '[.loss, .grad_norm]' log; }
    local default short long
    default=$(first -c "$F/long.json")
    assert_equal "$(first -c "$F/long.json" -l 16)" "$default"
    assert_equal "$(first -c "$F/short.json" -l 16)" "$default"
    long=$(first -c "$F/long.json" -l 32)
    short=$(first -c "$F/short.json" -l 32)
    [[ $long != "$short" ]]
}
