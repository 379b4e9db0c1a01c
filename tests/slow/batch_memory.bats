# llm-infer --memory: caches of more families than tests/cli/batch_memory.bats computes again.
load ../helper
load ../batch_memory

@test "caches computed again: latent attention, next-token layers, a prompt read together, an encoder, a cache to begin with" {
    families
    "${train[@]}" -c mla --set num_hidden_layers=8 --set kv_lora_rank=128 --set qk_nope_head_dim=8 --set qk_rope_head_dim=8 --set v_head_dim=8 \
        -o mla.llm "$F/data.tok"
    again 6000 mla
    "${train[@]}" -c tiny "${wide[@]}" --set prefix_lm=true -o prefix.llm "$F/data.tok"
    again 6000 prefix
    "${train[@]}" -c tiny "${wide[@]}" --set num_nextn_predict_layers=1 -o next.llm "$F/data.tok"
    "${b[@]}" -m next.llm --no-timings in.jsonl | jq -c . > want
    bounded 6000 "${b[@]}" -m next.llm --draft-max 2
    llm-infer -m next.llm -q --cache-type f32 --ids -n 0 --kv-out begin.kv '5 6 7 8 9 10'
    again 6000 next --kv-in begin.kv
    # an encoder's keys are bounded, too
    jq -c '.ids |= .[:30] | del(.samples)' in.jsonl > short.jsonl
    mv short.jsonl in.jsonl
    "${train[@]}" -c t5-mini --objective seq2seq --set num_layers=4 --set d_model=128 --set d_kv=32 --set d_ff=48 --set num_heads=4 -o t5.llm "$F/pairs.tok"
    again 2000 t5 -n 90
}
