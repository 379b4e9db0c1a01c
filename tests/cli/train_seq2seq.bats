# Encoder-decoders learn to answer, from pairs to answers.
load ../helper
export LLM_THREADS=1

setup_file() {
    # the answer says the source's words backwards
    awk 'BEGIN { split("red green small old quick cat dog bird fish hen", w)
        for (i = 0; i < 600; i++) { a = w[i % 10 + 1]; b = w[i * 7 % 9 + 1]; c = w[int(i / 3) % 10 + 1]
            printf "{\"q\": \"%s %s %s\", \"a\": \"%s %s %s\"}\n", a, b, c, c, b, a } }' > pairs.jsonl
    jq -r .q pairs.jsonl > text
    llm-tokenize train --vocab-size 280 --special '</s>' -o tok.json text
    llm-tokenize encode -T tok.json --pair q,a --append-eos -o data.tok pairs.jsonl
    export F=$PWD
}

setup() {
    shape=(-c t5-mini --set num_layers=2 --set d_model=32 --set d_kv=16 --set d_ff=48 --set num_heads=2 -l 24)
    new=(llm-train -q "${shape[@]}" -T "$F/tok.json" --objective seq2seq "$F/data.tok")
}

@test "gradients pass the check, of both stacks, the attention between them, buckets and rotary positions" {
    "${new[@]}" -b 3 --gradcheck > checked
    grep -q '^encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight' checked
    grep -q '^decoder.block.1.layer.1.EncDecAttention.k.weight' checked
    "${new[@]}" -b 3 --gradcheck --set position_embedding=rope --set feed_forward_proj=gated-silu --set tie_word_embeddings=false > checked
    grep -q '^lm_head.weight' checked
}

@test "one batch is learned by heart, and an answer written" {
    without_sanitizer "${new[@]}" -n 250 -b 2 --overfit-one --lr 5e-3 -o m.llm
    llm-infer -m m.llm --temp 0 -n 20 "red green small" > answer
    run -0 llm-infer -q -m m.llm --temp 0 -n 20 --jsonl --no-timings <<< '{"prompt": "red green small"}'
    assert_equal "$(jq -r .text <<< "$output")" "$(< answer)"
}

@test "the same bytes by any threads, any passes of a step, and after an interruption" {
    same_by_threads "${new[@]}" -n 6 -b 4 --dropout .1
    same_steps "${new[@]}" -n 6 -b 4 --dropout .1 --checkpoint-every 1
    # embeddings and biases of distances, which layers and stacks share, have an accumulator for each use
    local tied batch
    for tied in true false; do
        for batch in 8 4 1; do
            "${new[@]}" -n 4 -b $batch --accumulate $((8 / batch)) --dropout .1 --set tie_word_embeddings=$tied --log $batch.jsonl -o $batch.llm
            llm-quantize -q -t f32 $batch.llm $batch.safetensors
            jq -c '[.loss, .grad_norm, .hash]' $batch.jsonl > $batch.log
        done
        cmp 8.safetensors 4.safetensors
        cmp 8.safetensors 1.safetensors
        cmp 8.log 4.log
        cmp 8.log 1.log
    done
    same_when_resumed 3 "${new[@]}" -b 4 --val .2 --eval-every 2
}

@test "pairs are one document each, with a loss mask over the target" {
    printf '{"q": "red", "a": "cat"}\n\n{"q": "old dog", "a": "hen"}\n' > two.jsonl
    llm-tokenize encode -T "$F/tok.json" --pair q,a --text two.jsonl > ids
    assert_equal "$(wc -l < ids)" 2
    assert_equal "$(sed -n 1p ids)" "$(for t in red cat; do echo -n $t | llm-tokenize encode -T "$F/tok.json" --text; done | xargs)"
    llm-tokenize encode -T "$F/tok.json" --pair q,a two.jsonl | grep -aq '"loss_mask"'
    run -65 --separate-stderr llm-tokenize encode -T "$F/tok.json" --pair q,b two.jsonl
    [[ $stderr == "llm-tokenize encode: two.jsonl: line 1: field 'b': expected a string" ]]
    run -2 --separate-stderr llm-tokenize encode -T "$F/tok.json" --pair q two.jsonl
    [[ $stderr == *"--pair: expected SOURCE,TARGET, found 'q'"* ]]
}

@test "data and models that do not serve are one line" {
    refused 69 "--objective mlm: expected an encoder, found an encoder-decoder (t5)" llm-train -q "${shape[@]}" -T "$F/tok.json" --objective mlm \
        -o m.llm "$F/data.tok"
    run -69 --separate-stderr llm-train -q -c tiny -T "$F/tok.json" --objective seq2seq -o m.llm "$F/data.tok"
    assert_equal "$stderr" "llm-train: --objective seq2seq: expected an encoder-decoder, found another model (llama)"
    run -69 --separate-stderr llm-train -q "${shape[@]}" -T "$F/tok.json" -o m.llm "$F/data.tok"
    [[ $stderr == "llm-train: --objective lm: expected a model that continues texts, found an encoder-decoder (t5): --objective seq2seq trains it" ]]
    llm-tokenize encode -T "$F/tok.json" --lines -o plain.tok "$F/text"
    run -65 --separate-stderr llm-train -q "${shape[@]}" -T "$F/tok.json" --objective seq2seq -o m.llm plain.tok
    [[ $stderr =~ ^"llm-train: document "[0-9]+": expected a source (loss mask 0) and a target behind it, found 0 and "[0-9]+" tokens"$ ]]
    run -65 --separate-stderr llm-train -q "${shape[@]}" -l 4 -T "$F/tok.json" --objective seq2seq -n 200 -o m.llm "$F/data.tok"
    [[ $stderr =~ "(--context)" ]]
    assert_not_exist m.llm
}
