# Encoders that guess masked tokens, from configuration to vectors.
load ../helper
export LLM_THREADS=1

setup_file() { sentences_tokens; }

setup() {
    shape=(-c bert-mini --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -l 24)
    new=(llm-train -q "${shape[@]}" -T "$F/tok.json" --objective mlm "$F/data.tok")
}

@test "gradients pass the check, also of what was before the norms and of rotary positions" {
    "${new[@]}" -b 2 --gradcheck > checked
    grep -q '^bert.embeddings.token_type_embeddings.weight' checked
    grep -q '^cls.predictions.bias' checked
    "${new[@]}" -b 2 --gradcheck --set norm_place=pre --set position_embedding=rope > checked
    grep -q '^bert.encoder.LayerNorm.weight' checked
}

@test "one batch is learned by heart, and guessed better than its tokens' frequencies allow" {
    without_sanitizer "${new[@]}" -n 300 -b 2 --overfit-one --lr 3e-3
    run -0 --separate-stderr without_sanitizer llm-train "${shape[@]}" -T "$F/tok.json" --objective mlm -n 800 -b 8 --lr 3e-3 --val .1 "$F/data.tok" -o m.llm
    loss=$(grep -oE 'validation [0-9.]+' <<< "$stderr" | tail -1 | cut -d' ' -f2)
    awk -v loss="$loss" 'BEGIN { exit !(loss < 1.2) }' # ln 280 is 5.6; frequencies alone are worth 2.6
}

@test "the same bytes by any threads, any passes of a step, and after an interruption; another rate is another model" {
    same_by_threads "${new[@]}" -n 6 -b 4 --dropout .1
    same_steps "${new[@]}" -n 6 -b 4 --dropout .1 --checkpoint-every 1
    same_steps "${new[@]}" -n 6 -b 1 --dropout .1 --accumulate 4
    same_when_resumed 3 "${new[@]}" -b 4 --mask-rate .3 --val .2 --eval-every 2
    "${new[@]}" -n 6 -b 4 --dropout .1 --mask-rate .3 --log other.jsonl -o other.llm
    [[ $(hashes other.jsonl) != "$(hashes whole.jsonl)" ]]
}

@test "what was trained says what stands behind a mask, and embeds" {
    without_sanitizer "${new[@]}" -n 500 -b 8 --lr 3e-3 -o m.llm
    mask=$(zstd -dcq m.llm | head -c 20000 | grep -aoE 'mask_token_id[^0-9]*[0-9]+' | grep -oE '[0-9]+$' | sed 1q)
    [[ -n $mask ]]
    ids=($(echo -n "the red cat sees the fish" | llm-tokenize encode -T "$F/tok.json" --text))
    hidden=("${ids[@]}")
    hidden[0]=$mask # [MASK] red cat
    llm-infer -m m.llm --precision f32 --logits --ids "${hidden[*]}" > logits.llmt
    header=$(od -An -N8 -tu8 logits.llmt | tr -d ' ')
    guess=$(tail -c +$((8 + header + 4 * ${#ids[@]} + 1)) logits.llmt | head -c $((4 * (mask + 1))) | od -An -v -w4 -tf4 \
        | awk '$1 > best || NR == 1 { best = $1; id = NR - 1 } END { print id }')
    assert_equal "$guess" "${ids[0]}"
    llm-infer -m m.llm --embed "the red cat" > v.llmt
}

@test "an objective that the model does not serve is one line" {
    run -69 --separate-stderr llm-train -q -c tiny -T "$F/tok.json" --objective mlm -o m.llm "$F/data.tok"
    assert_equal "$stderr" "llm-train: --objective mlm: expected an encoder, found a model that predicts the next token (llama)"
    run -69 --separate-stderr llm-train -q "${shape[@]}" -T "$F/tok.json" -o m.llm "$F/data.tok"
    assert_equal "$stderr" "llm-train: --objective lm: expected a model that predicts the next token, found an encoder (bert): --objective mlm trains it"
    llm-tokenize encode -T "$ROOT/tests/golden/tiny-bert/tokenizer.json" -o other.tok "$F/text"
    run -69 --separate-stderr llm-train -q --init "$ROOT/tests/golden/tiny-bert" --objective mlm -o m.llm other.tok
    [[ $stderr == *"expected an encoder with a masked-token head, found one without (bert)" ]]
    assert_not_exist m.llm
}

@test "--plan and llm-bench cost know the shape" {
    run -0 llm-train "${shape[@]}" -T "$F/tok.json" --objective mlm -n 10 --plan
    [[ $output == *parameters* ]]
    run -0 llm-bench cost bert-mini
    assert_line $'KV cache in f32, one token\t0\tbytes'
    [[ $output == *"bert.encoder.layer.0.attention.self.query.weight"* ]]
}

@test "the configuration of a BertModel gets a head of masked tokens, unless --set says that it has none" {
    printf '%s' '{"architectures": ["BertModel"], "model_type": "bert", "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 32, "mask_token_id": 299}' > config.json
    llm-train -q -c config.json --objective mlm -l 16 -n 1 -T "$F/tok.json" -o model.llm "$F/data.tok"
    run -69 --separate-stderr llm-train -q -c config.json --set prediction_head=false --objective mlm -l 16 -n 1 -T "$F/tok.json" -o model.llm \
        "$F/data.tok"
    [[ $stderr == *"expected an encoder with a masked-token head, found one without (bert)" ]]
}
