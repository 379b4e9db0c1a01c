# Models that see a prompt both ways, from configuration to text.
load ../helper
export LLM_THREADS=1

setup_file() {
    sentences_tokens
    # the answer says the question's words backwards
    awk 'BEGIN { split("red green small old quick cat dog bird fish hen", w)
        for (i = 0; i < 600; i++) { a = w[i % 10 + 1]; b = w[i * 7 % 9 + 1]; c = w[int(i / 3) % 10 + 1]
            printf "{\"q\": \"%s %s %s:\", \"a\": \" %s %s %s.\"}\n", a, b, c, c, b, a } }' > pairs.jsonl
    jq -r '.q + .a' pairs.jsonl > pairs.txt
    llm-tokenize train --vocab-size 300 --special '</s>' -o pairs.json pairs.txt
    llm-tokenize encode -T pairs.json --pair q,a --append-eos -o pairs.tok pairs.jsonl
}

setup() {
    shape=(-c tiny --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -l 24)
    new=(llm-train -q "${shape[@]}" -T "$F/tok.json" --objective prefix "$F/data.tok")
}

@test "gradients pass the check, of plain and latent attention" {
    "${new[@]}" -b 3 --gradcheck > checked
    grep -q '^model.layers.1.self_attn.k_proj.weight' checked
    llm-train -q -c mla --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -l 24 -T "$F/tok.json" \
        --objective prefix -b 2 --gradcheck "$F/data.tok" > checked
    grep -q '^model.layers.0.self_attn.kv_b_proj.weight' checked
}

@test "one batch is learned by heart" {
    without_sanitizer "${new[@]}" -n 300 -b 2 --overfit-one --lr 5e-3
}

@test "the same bytes by any threads, any passes of a step, and after an interruption" {
    same_by_threads "${new[@]}" -n 6 -b 4 --dropout .1
    same_steps "${new[@]}" -n 6 -b 4 --dropout .1 --checkpoint-every 1
    same_by_threads "${new[@]}" -n 6 -b 4 --dropout .1 --set tie_word_embeddings=false
    same_steps "${new[@]}" -n 6 -b 1 --dropout .1 --accumulate 4 --set tie_word_embeddings=false
    same_when_resumed 3 "${new[@]}" -b 4 --val .2 --eval-every 2
    grep -aq prefix_lm <(zstd -dcq resumed.llm 2> /dev/null)
}

@test "prefixes come from the loss mask: only answers are learned, and a prompt is answered" {
    pairs=(llm-train -q "${shape[@]}" -T "$F/pairs.json" --objective prefix "$F/pairs.tok" --set num_attention_heads=4 -l 64)
    without_sanitizer "${pairs[@]}" -n 400 -b 16 --lr 4e-3 --val .05 --log log.jsonl -o m.llm
    awk -v loss="$(jq -s 'map(.val_loss // empty) | last' log.jsonl)" 'BEGIN { exit !(loss < .25) }'
    for words in "red green small" "cat dog bird"; do
        read -r a b c <<< "$words"
        run -0 llm-infer -m m.llm --precision f32 --temp 0 -n 20 "$words:"
        assert_output " $c $b $a."
    done
    # a prompt is read in one piece, whatever the passes and whoever else is under way
    jq -c '{prompt: .q}' "$F/pairs.jsonl" | sed -n 1,40p > prompts.jsonl
    llm-infer -m m.llm --jsonl --no-timings --temp 0 -n 12 prompts.jsonl > all
    llm-infer -m m.llm --jsonl --no-timings --temp 0 -n 12 -b 3 --parallel 2 -j 2 prompts.jsonl | cmp - all
    sed -n 7p prompts.jsonl | llm-infer -m m.llm --jsonl --no-timings --temp 0 -n 12 | jq .text | cmp - <(sed -n 7p all | jq .text)
    # an empty cache and a saved one go on alike
    llm-infer -m m.llm --temp 0 -n 2 --kv-out c.kv "red green small:" > first
    llm-infer -m m.llm --temp 0 -n 20 --kv-in c.kv > rest
    assert_equal "$(tr -d '\n' < first)$(< rest)" "$(llm-infer -m m.llm --temp 0 -n 20 'red green small:')"
}

@test "what does not go with it is one line" {
    run -69 --separate-stderr llm-train -q -c mamba -T "$F/tok.json" --objective prefix -o m.llm "$F/data.tok"
    assert_equal "$stderr" "llm-train: --objective prefix: expected attention to all tokens, found layers without attention (mamba)"
    run -69 --separate-stderr llm-train -q -c tiny --set sliding_window=8 -T "$F/tok.json" --objective prefix -o m.llm "$F/data.tok"
    assert_equal "$stderr" "llm-train: --objective prefix: expected attention to all tokens, found a sliding window (llama)"
    run -69 --separate-stderr llm-train -q -c bert-mini -T "$F/tok.json" --objective prefix -o m.llm "$F/data.tok"
    [[ $stderr == "llm-train: --objective prefix: expected a model that predicts the next token, found an encoder (bert)"* ]]
    "${new[@]}" -n 0 -o fresh.llm
    run -69 --separate-stderr llm-quantize -q -t f16 fresh.llm fresh.gguf
    assert_equal "$stderr" "llm-quantize: fresh.gguf: prefix_lm: GGUF cannot say this of a model of type 'llama': expected none, found true"
    assert_not_exist m.llm fresh.gguf
}
