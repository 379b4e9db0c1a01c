# Encoder-decoders of other people: a prompt is the text that is answered.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny-t5
}

@test "answers are those of transformers in double precision, alone and many at once, cut into any passes" {
    need_tool jq
    for k in 0 1 2 3; do
        llm-infer -m "$M" --precision f32 --temp 0 -n 24 --ignore-eos --ids "$(jq -r ".[$k].ids | join(\" \")" "$M/expected.json")" > answer
        assert_equal "$(< answer)" "$(jq -r ".[$k].endless | join(\" \")" "$M/expected.json")"
    done
    jq -c 'to_entries[] | {id: .key, ids: .value.ids}' "$M/expected.json" > texts.jsonl
    llm-infer -m "$M" --precision f32 --temp 0 -n 24 --ids --no-timings --jsonl texts.jsonl > answers
    jq -c .ids answers | cmp - <(jq -c '.[].ended' "$M/expected.json")
    jq -c .prompt_tokens answers | cmp - <(jq -c '.[].ids | length' "$M/expected.json")
    llm-infer -m "$M" --precision f32 --temp 0 -n 24 --ids --no-timings --parallel 1 -j 1 -b 8 --jsonl texts.jsonl | cmp - answers
    llm-infer -m "$M" -n 12 --ids --no-timings --samples 3 --jsonl texts.jsonl > three
    sed -n 2p texts.jsonl | llm-infer -m "$M" -n 12 --ids --no-timings --samples 3 --jsonl | jq -c .ids | cmp - <(sed -n 4,6p three | jq -c .ids)
}

@test "--embed is the encoder's mean; a checkpoint answers alike" {
    need_tool jq
    jq -c '.[] | {ids}' "$M/expected.json" > texts.jsonl
    llm-infer -m "$M" --precision f32 --embed --jsonl texts.jsonl | jq -c .embedding > found
    run -0 jq -s --slurpfile want "$M/expected.json" \
        '. as $got | [range($got | length) as $t | range($got[$t] | length) as $k | $got[$t][$k] - $want[0][$t].mean[$k] | fabs] | max < 1e-5' found
    assert_output true
    llm-quantize -q -t f32 "$M" model.llm
    llm-infer -m "$M" --temp 0 -n 9 --ids "4 5 6 7" > a
    llm-infer -m model.llm --temp 0 -n 9 --ids "4 5 6 7" | cmp - a
    llm-quantize -q -t q8_0 "$M" small.llm
    llm-infer -m small.llm --temp 0 -n 9 --ids "4 5 6 7"
}

@test "what an encoder-decoder cannot do is one line with status 69" {
    local says="expected a model that continues texts, found an encoder-decoder (t5), which answers them"
    for option in --score --logits "--kv-out c.kv" --chat; do
        run -69 --separate-stderr llm-infer -m "$M" $option --ids "4 5" < /dev/null || run -69 --separate-stderr llm-infer -m "$M" $option < /dev/null
        assert_equal "$stderr" "llm-infer: $M: $says"
    done
    echo "4 5" > text
    run -69 --separate-stderr llm-bench quality -m "$M" text
    assert_equal "$stderr" "llm-bench quality: $M: $says"
    run -69 --separate-stderr llm-bench speed -m "$M"
    [[ $stderr == *"$says" ]]
}

@test "--plan and llm-bench cost count both stacks and the attention between them" {
    run -0 llm-infer -m "$M" --plan
    assert_line $'parameters\t'"$(tail -c +9 "$M/model.safetensors" | head -c "$(od -An -N8 -tu8 "$M/model.safetensors")" \
        | jq '[to_entries[] | select(.key != "__metadata__") | .value.shape | reduce .[] as $n (1; . * $n)] | add')"
    run -0 llm-bench cost "$M"
    [[ $output == *"decoder.block.0.layer.1.EncDecAttention.q.weight"* ]]
    [[ $output == *$'\nencoder\t-\t'* ]]
}

@test "a T5 becomes GGUF, and that answers alike: both stacks, what is between them, any type of weights" {
    need_tool jq
    cp -r "$M" m
    chmod -R u+w m
    run -69 --separate-stderr llm-quantize -q -t keep m m.gguf
    assert_equal "$stderr" "llm-quantize: m.gguf: relative_attention_max_distance: GGUF cannot say this of a model of type 't5': expected 128, found 20"
    [[ ! -e m.gguf ]]
    sed -i 's/"relative_attention_max_distance": 20/"relative_attention_max_distance": 128/' m/config.json # what every T5 in GGUF has
    llm-quantize -q -t keep m m.gguf
    for name in enc.blk.1.attn_q.weight enc.blk.0.attn_rel_b.weight enc.output_norm.weight dec.blk.1.cross_attn_k.weight dec.blk.0.attn_rel_b.weight \
        dec.blk.1.ffn_gate.weight t5.decoder_start_token_id; do
        grep -qaF "$name" m.gguf
    done
    jq -c '.[] | {ids}' "$M/expected.json" > texts.jsonl
    for model in m m.gguf; do
        llm-infer -m $model --precision f32 --temp 1 -n 40 --samples 3 --ids --no-timings --jsonl texts.jsonl > $model.answers
        llm-infer -m $model --precision f32 --embed --jsonl texts.jsonl > $model.embeddings
    done
    cmp m.answers m.gguf.answers
    cmp m.embeddings m.gguf.embeddings
    [[ $(jq -c .ids m.answers | sort -u | wc -l) -gt 8 ]] # the samples do differ
    llm-quantize -q -t bf16 m.gguf small.gguf
    llm-quantize -q -t keep small.gguf small.llm
    llm-quantize -q -t keep small.llm again.gguf
    cmp small.gguf again.gguf
    llm-infer -m small.gguf --temp 1 -n 40 --samples 3 --ids --no-timings --jsonl texts.jsonl | cmp - <(
        llm-infer -m small.llm --temp 1 -n 40 --samples 3 --ids --no-timings --jsonl texts.jsonl)
    sed 's/dec\.blk\.1\.cross_attn_k/dec.blk.1.cross_attn_j/' m.gguf > other.gguf
    run -65 --separate-stderr llm-infer -m other.gguf --ids "4 5"
    assert_equal "$stderr" "llm-infer: other.gguf: tensor 'dec.blk.1.cross_attn_k.weight': expected by the configuration (t5, 2 layers), found none"
}
