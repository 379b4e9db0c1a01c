# Layers behind the last that learn to predict the tokens after the next one.
load ../helper
export LLM_THREADS=1

setup_file() { sentences_tokens; }

setup() {
    tiny=(llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 -l 24 -T "$F/tok.json" "$F/data.tok")
    further=("${tiny[@]}" --set num_nextn_predict_layers=2)
}

@test "their gradients pass the check, tied and untied" {
    "${further[@]}" -n 1 -b 2 --precision f32 --gradcheck > tied.tsv
    "${further[@]}" -n 1 -b 2 --precision f32 --gradcheck --set tie_word_embeddings=false > untied.tsv
    for name in layers.2.enorm layers.2.eh_proj layers.3.hnorm layers.3.shared_head.norm layers.3.mlp.down_proj; do
        grep -q "^model.$name.weight" tied.tsv
        grep -q "^model.$name.weight" untied.tsv
    done
}

@test "the same bytes by any threads, any passes of a step, and after an interruption" {
    for tied in true false; do
        same_by_threads "${further[@]}" --set tie_word_embeddings=$tied -n 6 -b 4
        same_steps "${further[@]}" --set tie_word_embeddings=$tied -n 6 -b 1 --accumulate 4
    done
    same_when_resumed 3 "${further[@]}" -b 2
}

@test "they learn, and leave decoding alone" {
    without_sanitizer "${further[@]}" -n 200 -b 4 --lr 3e-3 --log log.jsonl -o model.llm
    jq -s -e '.[0].mtp_loss > 5 and .[-1].mtp_loss < 3' log.jsonl
    "${tiny[@]}" -n 2 --log plain.jsonl -o plain.llm
    jq -s -e 'all(has("mtp_loss") | not)' plain.jsonl
    llm-infer -m model.llm --temp 0 -n 12 "the red" > text
    (($(wc -c < text) > 5))
    # a weight of nothing leaves the rest of the model as it is without them
    "${tiny[@]}" -n 3 -b 2 --clip 0 -o without.llm
    "${further[@]}" -n 3 -b 2 --clip 0 --set mtp_loss_weight=0 -o with.llm
    assert_equal "$(llm-infer -m with.llm --precision f32 --score "the red cat sees the old dog")" \
        "$(llm-infer -m without.llm --precision f32 --score "the red cat sees the old dog")"
}

@test "a family without names for them says so" {
    run -2 --separate-stderr llm-train -c gpt2 --set num_nextn_predict_layers=1 -n 0 -o x.llm
    one_line "$stderr"
}
