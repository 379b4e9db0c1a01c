# Kinds of attention: MLA, keys and values shared between layers, sinks.
load ../helper
export LLM_THREADS=1

setup_file() { sentences_tokens; }

setup() {
    mla=(-c mla --set q_lora_rank=24 --set num_hidden_layers=3)
    shared=(-c tiny --set kv_sharing=2 --set num_hidden_layers=4)
    sinks=(-c tiny --set attention_sinks=true --set sliding_window=9 --set num_hidden_layers=3)
    kinds=(mla shared sinks)
}

# new KIND OPTION...: trains a model of that kind
new() {
    declare -n kind=$1
    llm-train -q "${kind[@]}" --set hidden_size=64 --set intermediate_size=48 -l 24 -T "$F/tok.json" "$F/data.tok" "${@:2}"
}

@test "gradients of every kind of attention pass the check" {
    for k in "${kinds[@]}"; do
        new $k -n 1 -b 2 --precision f32 --gradcheck > $k.tsv
    done
    grep -q 'kv_a_proj_with_mqa' mla.tsv
    grep -q 'sinks' sinks.tsv
    run ! grep -q 'layers.1.self_attn.k_proj' shared.tsv
    grep -q 'layers.2.self_attn.k_proj' shared.tsv
}

@test "every kind learns one batch by heart" {
    for k in "${kinds[@]}"; do
        without_sanitizer new $k -n 300 -b 1 --overfit-one --lr 3e-3 -o $k.llm
    done
}

@test "the same bytes by any threads, with blocks computed again, after an interruption" {
    for k in "${kinds[@]}"; do
        same_by_threads new $k -n 6 -b 3
        same_steps new $k -n 6 -b 3 --checkpoint-every 1
        same_when_resumed 3 new $k -b 3
    done
}

@test "logits are the same however the prompt is cut; a cache goes on where it ended" {
    P="the red cat sees the old dog the small bird"
    for k in "${kinds[@]}"; do
        new $k -n 30 -b 2 -o $k.llm
        for precision in f32 bf16; do
            llm-infer -m $k.llm --precision $precision --logits "$P" > whole
            for b in 1 7 64; do
                llm-infer -m $k.llm --precision $precision --logits -b $b "$P" | cmp - whole
            done
            llm-infer -m $k.llm --precision $precision --logits -j 2 "$P" | cmp - whole
        done
        llm-infer -m $k.llm --temp 0 -n 12 "$P" > straight
        llm-infer -m $k.llm -n 0 --kv-out $k.kv --trace-queries 2 "$P"
        llm-infer -m $k.llm --temp 0 -n 12 --kv-in $k.kv | cmp - straight
        llm-kvinspect heads $k.kv > heads
        (($(wc -l < heads) > 1))
        llm-kvinspect diff $k.kv $k.kv > difference
    done
    llm-infer -m mla.llm --cache-type q8_0 --temp 0 -n 3 "$P" > /dev/null
    assert_equal "$(llm-kvinspect --json mla.kv | jq '.d_k, .d_v' | tr '\n' ' ')" "96 0 "
    llm-kvinspect export --tensor layers.2.latent mla.kv > latent.npy
    llm-kvinspect export --tensor layers.2.k shared.kv > k.npy
    run -65 --separate-stderr llm-kvinspect export --tensor layers.1.k shared.kv
    one_line "$stderr"
}

@test "dual chunk attention: within a chunk the plain one to the bit, beyond it the same however the text is cut" {
    P="the red cat sees the old dog the small bird likes the green hen"
    long=$(for k in 1 2 3 4; do printf '%s ' "$P"; done)
    for more in '' '--set dual_chunk_size=24 --set dual_chunk_local=8'; do
        llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=64 --set intermediate_size=48 $more -l 12 -T "$F/tok.json" "$F/data.tok" \
            -n 30 -b 2 -o "${more:+chunks}.llm"
    done
    llm-infer -m .llm --score "the red cat" > plain
    llm-infer -m chunks.llm --score "the red cat" | cmp - plain
    llm-infer -m chunks.llm --score "$long" > beyond
    run ! cmp -s beyond <(llm-infer -m .llm --score "$long")
    for b in 1 5 64; do
        llm-infer -m chunks.llm --score -b $b "$long" | cmp - beyond
    done
    llm-infer -m chunks.llm -j 2 --score "$long" | cmp - beyond
    run -69 --separate-stderr llm-train -q -c tiny --set dual_chunk_size=24 --set dual_chunk_local=8 -l 30 --cross-document -T "$F/tok.json" "$F/data.tok" -n 1 -o x.llm
    one_line "$stderr"
    run -2 --separate-stderr llm-train -c tiny --set dual_chunk_size=24 --set dual_chunk_local=20 -n 0 -o x.llm
    one_line "$stderr"
}

@test "what a family cannot have is refused" {
    run -2 --separate-stderr llm-train -c gpt2 --set kv_sharing=2 -n 0 -o x.llm
    one_line "$stderr"
    run -2 --separate-stderr llm-train -c mla --set kv_lora_rank=0 -n 0 -o x.llm
    one_line "$stderr"
}
