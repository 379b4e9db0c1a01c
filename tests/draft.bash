# For tests of drafts (draft.bats here and among the slow tests).
export LLM_THREADS=1

setup_file() {
    sentences_tokens
    small=(llm-train -q --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_nextn_predict_layers=1 -l 24
        -T "$F/tok.json" -b 4 --lr 3e-3 -n 200 --cross-document)
    without_sanitizer "${small[@]}" -c tiny -o "$F/plain.llm" "$F/data.tok"
    without_sanitizer "${small[@]}" -c tiny --set num_nextn_predict_layers=0 --set num_hidden_layers=1 -o "$F/draft.llm" "$F/data.tok"
    llm-train -q --objective ngram --order 4 -T "$F/tok.json" -o "$F/ngram.llm" "$F/data.tok"
    without_sanitizer "${small[@]}" -c mla --set kv_lora_rank=16 --set qk_nope_head_dim=8 --set qk_rope_head_dim=8 --set v_head_dim=8 -o "$F/mla.llm" "$F/data.tok"
    without_sanitizer "${small[@]}" -c tiny --set use_sliding_window=true --set sliding_window=8 -o "$F/window.llm" "$F/data.tok"
}

# drafted STEP: with drafts of repetitions, of smaller models and of n-grams the text is the one without, greedily and by chance, one prompt and many.
# STEP 1: every model with every way of choosing tokens and every source of drafts; 3: every two of these together, with a third of the work.
drafted() {
    local models=(plain mla window) model how from m h d
    local hows=("--temp 0" "--temp 1 --seed 5" "--temp 0.7 --top-k 8 --repeat-penalty 1.2" "--mirostat 2 --mirostat-ent 2 --samples 3" "--adaptive-target 0.2")
    local sources=("--draft-ngram" "--draft-ngram --draft-max 2 -b 5" "--draft $F/draft.llm" "--draft $F/draft.llm --draft-max 9 -j 2" "--draft own"
        "--draft $F/ngram.llm" "--draft $F/draft.llm --draft-ngram" "--draft $F/ngram.llm --draft-ngram --draft-max 3")
    printf '{"prompt": "the %s", "tokens": %d}\n' red 30 old 1 small 60 dog 0 cat 17 red 40 > prompts.jsonl
    for m in "${!models[@]}"; do
        model=$F/${models[m]}.llm
        for h in "${!hows[@]}"; do
            how=${hows[h]}
            # shellcheck disable=SC2086
            llm-infer -m "$model" -q -n 60 --ignore-eos $how "the old dog sees the small cat and the old dog sees" > want
            # shellcheck disable=SC2086
            llm-infer -m "$model" -q --jsonl --no-timings $how prompts.jsonl > want.jsonl
            for d in "${!sources[@]}"; do
                (((m + h + d) % $1 == 0)) || continue
                from=${sources[d]/ own/ $model}
                # shellcheck disable=SC2086
                llm-infer -m "$model" -q -n 60 --ignore-eos $how $from "the old dog sees the small cat and the old dog sees" | cmp - want || fail "$model $how $from"
                # shellcheck disable=SC2086
                llm-infer -m "$model" -q --jsonl --no-timings --parallel 4 $how $from prompts.jsonl | cmp - want.jsonl || fail "$model $how $from"
            done
        done
    done
}
