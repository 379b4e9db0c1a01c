# llm-train under mpirun: 2, 3, 4 and 6 ranks with each ZeRO give the bits of one process, for each family of tests/cli/train_ranks.bats.
load ../helper
load ../mpi

setup_file() { sentences_tokens; }

setup() {
    need_mpi
    of=(-q -j 1 -l 24 -T "$F/tok.json" "$F/data.tok" -n 2)
    gpt=(llm-train -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 "${of[@]}")
}

@test "GPT-2: BF16 with dropout, validation and averages; FP32 with shards that no number of ranks divides" {
    same_for "2 3 4 6" "0 1 2" "${gpt[@]}" --dropout .1 -n 3 -b 4 --accumulate 3 --grad-shards 12 --val .2 --eval-every 2 --ema .9
    same_for "2 3 4 6" "0 1 2 3" "${gpt[@]}" --precision f32 -b 7 --grad-shards 7
}

@test "17 and 20 ranks, which gather small messages in rounds" {
    same_for "17 20" "0 1 2 3" "${gpt[@]}" -b 20 --grad-shards 20 --val .2 --eval-every 2
}

@test "Llama with layers that predict further, a mixture, MLA, Mamba: BF16 and FP32" {
    local precision
    for precision in bf16 f32; do
        same_for "2 3 4 6" "0 1 2 3" llm-train -c tiny --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 \
            --set num_nextn_predict_layers=2 --precision $precision "${of[@]}" -b 6 --grad-shards 6
        same_for "2 3 4 6" "0 1 2 3" llm-train -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=5 \
            --set router_bias=true --precision $precision "${of[@]}" -b 6 --grad-shards 6
        same_for "2 3 4 6" "0 1 2 3" llm-train -c mla --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --precision $precision "${of[@]}" \
            -b 6 --grad-shards 6
        same_for "2 3 4 6" "0 1 2 3" llm-train -c mamba --set num_hidden_layers=2 --set hidden_size=32 --precision $precision "${of[@]}" -b 6 --grad-shards 6
    done
}

@test "every small preset that predicts the next token" {
    local c
    for c in nano tiny moe mla rnn lstm mamba mamba2 rwkv rwkv5 rwkv6 rwkv7 hyena bengio mlp perceiver; do
        same_for "2" "0 1 2 3" llm-train -c $c "${of[@]}" -b 2 --grad-shards 2
    done
}

@test "stages: 2, 3 and 4, both schedules, with replicas, for each family: BF16 and FP32" {
    local precision line family small=(--set hidden_size=32 --set intermediate_size=48)
    for precision in bf16 f32; do
        for line in "nano --set n_layer=4 --set n_embd=32 --set n_head=2" "tiny --set num_hidden_layers=4 ${small[*]}" \
            "moe --set num_hidden_layers=4 --set num_local_experts=5 --set router_bias=true ${small[*]}" "mla --set num_hidden_layers=4 ${small[*]}" \
            "mamba --set num_hidden_layers=4 --set hidden_size=32" "rwkv6 --set num_hidden_layers=4"; do
            read -ra family <<< "$line"
            same_in "2 pp=2" llm-train -c "${family[@]}" --precision $precision "${of[@]}" -b 2 --accumulate 3 --grad-shards 2
            same_in "3 pp=3 pp=3,schedule=gpipe" llm-train -c "${family[@]}" --precision $precision "${of[@]}" -b 2 --accumulate 3 --grad-shards 4
            same_in "4 pp=4 dp=2,pp=2 dp=2,pp=2,zero=0 dp=2,pp=2,zero=2 dp=2,pp=2,zero=3" llm-train -c "${family[@]}" --precision $precision "${of[@]}" -b 2 --accumulate 3 --grad-shards 5
        done
    done
}

@test "interleaved stages: 2, 3 and 4 of 2 and 4 chunks, with replicas, for each family: BF16 and FP32" {
    local precision line family accumulate small=(--set hidden_size=32 --set intermediate_size=48)
    for precision in bf16 f32; do
        for line in "nano --set n_layer=9 --set n_embd=32 --set n_head=2" "tiny --set num_hidden_layers=8 ${small[*]}" \
            "moe --set num_hidden_layers=8 --set num_local_experts=5 --set router_bias=true ${small[*]}" "mla --set num_hidden_layers=8 ${small[*]}" \
            "mamba --set num_hidden_layers=8 --set hidden_size=32"; do
            read -ra family <<< "$line"
            for accumulate in 1 2 5 8; do
                same_in "2 pp=2,vp=2 pp=2,vp=4" llm-train -c "${family[@]}" --precision $precision "${of[@]}" -b 2 --accumulate $accumulate --grad-shards 2
                same_in "3 pp=3,vp=2" llm-train -c "${family[@]}" --precision $precision "${of[@]}" -b 2 --accumulate $accumulate --checkpoint-every 2
                same_in "4 pp=4,vp=2 dp=2,pp=2,vp=4 dp=2,pp=2,vp=2,zero=0" llm-train -c "${family[@]}" --precision $precision "${of[@]}" -b 3 --accumulate $accumulate --grad-shards 3
                same_in "4 dp=2,pp=2,vp=2,zero=2 dp=2,pp=2,vp=4,zero=3" llm-train -c "${family[@]}" --precision $precision "${of[@]}" -b 3 \
                    --accumulate $accumulate --grad-shards $((2 * accumulate))
            done
        done
    done
}

@test "divided experts: 2, 3, 4 and 6 ranks in groups of 2, 3 and 6, alone and with several shards a rank: BF16 and FP32" {
    local precision moe=(llm-train -c moe --set num_hidden_layers=3 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=12 --set router_bias=true)
    for precision in bf16 f32; do
        same_in "2 ep=2" "${moe[@]}" --precision $precision "${of[@]}" -b 2 --accumulate 6 --grad-shards 12
        same_in "3 ep=3" "${moe[@]}" --precision $precision "${of[@]}" -b 4 --accumulate 3 --grad-shards 12
        same_in "4 ep=4 dp=4,ep=2" "${moe[@]}" --precision $precision "${of[@]}" -b 12 --grad-shards 12 --checkpoint-every 2
        same_in "6 ep=6 dp=6,ep=3 dp=6,ep=2 dp=6,ep=2,zero=0" "${moe[@]}" --precision $precision "${of[@]}" -b 6 --grad-shards 6
    done
}

@test "divided experts with stages, with slices, and with both, of a mixture and DeepSeek-V3's layers: BF16 and FP32" {
    local precision line family sizes=(--set num_attention_heads=12 --set num_key_value_heads=12)
    jq -n '{model_type: "deepseek_v3", vocab_size: 280, hidden_size: 32, intermediate_size: 48, moe_intermediate_size: 24, num_hidden_layers: 3,
        num_attention_heads: 12, num_key_value_heads: 12, n_routed_experts: 12, num_experts_per_tok: 2, n_shared_experts: 1, n_group: 2, topk_group: 1,
        first_k_dense_replace: 1, kv_lora_rank: 16, q_lora_rank: 16, qk_nope_head_dim: 8, qk_rope_head_dim: 8, v_head_dim: 8,
        max_position_embeddings: 128, num_nextn_predict_layers: 0, bos_token_id: null, eos_token_id: null}' > deepseek.json
    for precision in bf16 f32; do
        for line in "moe --set num_hidden_layers=3 --set hidden_size=48 --set intermediate_size=24 --set num_local_experts=12 ${sizes[*]}" deepseek.json; do
            read -ra family <<< "$line"
            same_in "4 ep=2,pp=2 ep=2,pp=2,schedule=gpipe" llm-train -c "${family[@]}" --precision $precision "${of[@]}" -b 2 --accumulate 6 --grad-shards 4
            same_in "6 ep=2,pp=3 ep=3,pp=2" llm-train -c "${family[@]}" --precision $precision "${of[@]}" -b 3 --accumulate 4 --grad-shards 12
            same_in "8 dp=4,ep=2,pp=2" llm-train -c "${family[@]}" --precision $precision "${of[@]}" -b 2 --accumulate 4 --grad-shards 8
            same_in "4 ep=2,tp=2 ep=2,tp=2,zero=2 ep=2,tp=2,zero=3" llm-train -c "${family[@]}" --tensor-parts 4 --precision $precision "${of[@]}" -b 4 --accumulate 2 --grad-shards 4
            same_in "6 ep=2,tp=3 ep=3,tp=2" llm-train -c "${family[@]}" --tensor-parts 6 --precision $precision "${of[@]}" -b 6 --grad-shards 6
            same_in "3 ep=3 ep=3,zero=2 ep=3,zero=3" llm-train -c "${family[@]}" --precision $precision "${of[@]}" -b 3 --accumulate 3 --grad-shards 7
            same_in "4 dp=4,ep=2 dp=4,ep=2,zero=3 ep=2,tp=2 ep=2,pp=2 ep=2,pp=2,schedule=gpipe" llm-train -c "${family[@]}" --tensor-parts 2 \
                --precision $precision "${of[@]}" -b 2 --accumulate 5 --grad-shards 5
            same_in "8 ep=2,tp=2,pp=2 dp=4,ep=2,tp=2 ep=2,tp=2,pp=2,zero=0 ep=2,tp=2,pp=2,zero=3" llm-train -c "${family[@]}" --tensor-parts 2 --precision $precision "${of[@]}" -b 2 \
                --accumulate 4 --grad-shards 4
        done
    done
}

@test "parts of rows of mixtures and of MLA: 2, 3, 4 and 6 ranks, with stages and slices: BF16 and FP32" {
    local precision r line family small=(--set num_hidden_layers=2 --set hidden_size=48 --set intermediate_size=48 --set num_attention_heads=12)
    for precision in bf16 f32; do
        for line in "moe ${small[*]} --set num_key_value_heads=12 --set num_local_experts=5 --set expert_capacity_factor=1" \
            "mla ${small[*]} --set num_key_value_heads=12" "mamba --set hidden_size=24 --set num_hidden_layers=2" \
            "mamba2 --set hidden_size=24 --set num_hidden_layers=2 --set num_heads=6 --set head_dim=8 --set n_groups=2"; do
            read -ra family <<< "$line"
            for r in 2 3 4 6; do
                same_in "$r cp=$r cp=$r,zero=3" llm-train -c "${family[@]}" --seq-parts 12 --precision $precision "${of[@]}" -b 2 --grad-shards 2
            done
            same_in "4 pp=2,cp=2" llm-train -c "${family[@]}" --seq-parts 4 --precision $precision "${of[@]}" -b 2 --accumulate 3
            [[ ${family[0]} != moe ]] || same_in "4 dp=1,cp=4,ep=2 dp=1,cp=2,ep=2,pp=2 dp=1,cp=2,ep=2,pp=2,zero=3 dp=2,cp=2,ep=4,zero=3 dp=2,cp=2,ep=2 dp=1,cp=4,ep=4,zero=2" \
                llm-train -c "${family[@]}" --set num_local_experts=4 --seq-parts 4 --precision $precision "${of[@]}" -b 2 --accumulate 2 --grad-shards 3
            same_in "4 tp=2,cp=2" llm-train -c "${family[@]}" --tensor-parts 2 --seq-parts 2 --precision $precision "${of[@]}" -b 2 --accumulate 3
        done
    done
}

@test "parts of rows: 2, 3, 4 and 6 ranks, with replicas: BF16 and FP32" {
    local precision line family
    for precision in bf16 f32; do
        for line in "nano --set n_layer=2 --set n_embd=48 --set n_head=12" \
            "tiny --set num_hidden_layers=2 --set hidden_size=48 --set intermediate_size=48 --set num_attention_heads=12 --set num_key_value_heads=2"; do
            read -ra family <<< "$line"
            for r in 2 3 4 6; do
                same_in "$r cp=$r cp=$r,zero=1 cp=$r,zero=2 cp=$r,zero=3" llm-train -c "${family[@]}" --seq-parts 12 --precision $precision "${of[@]}" \
                    -b 2 --accumulate 2 --grad-shards 2
            done
            same_in "6 dp=2,cp=3 dp=3,cp=2,zero=1" llm-train -c "${family[@]}" --seq-parts 6 --precision $precision "${of[@]}" -b 6 --grad-shards 6
            same_in "4 tp=2,cp=2 pp=2,cp=2" llm-train -c "${family[@]}" --tensor-parts 2 --seq-parts 6 --precision $precision "${of[@]}" -b 2 --accumulate 3
            same_in "6 tp=2,cp=3 pp=2,cp=3" llm-train -c "${family[@]}" --tensor-parts 2 --seq-parts 6 --precision $precision "${of[@]}" -b 2 --accumulate 3
            same_in "8 tp=2,cp=2,pp=2 tp=2,cp=2,pp=2,zero=0 tp=2,cp=2,pp=2,zero=2 dp=2,tp=2,cp=2 dp=2,pp=2,cp=2" llm-train -c "${family[@]}" --tensor-parts 2 --seq-parts 4 --precision $precision \
                "${of[@]}" -b 2 --accumulate 3 --grad-shards 3
        done
    done
}

@test "slices: 2, 3, 4 and 6 ranks, with replicas, for each family: BF16 and FP32" {
    local precision line family small=(--set num_hidden_layers=2 --set hidden_size=48 --set intermediate_size=48)
    for precision in bf16 f32; do
        for line in "nano --set n_layer=2 --set n_embd=48 --set n_head=12" "tiny ${small[*]} --set num_attention_heads=12 --set num_key_value_heads=12" \
            "moe ${small[*]} --set num_attention_heads=12 --set num_key_value_heads=12 --set num_local_experts=5" \
            "mla ${small[*]} --set num_attention_heads=12 --set num_key_value_heads=12" "mamba --set hidden_size=24 --set num_hidden_layers=2" \
            "mamba2 --set hidden_size=24 --set num_hidden_layers=2 --set num_heads=12 --set head_dim=4 --set n_groups=12" \
            "mamba2 --set hidden_size=24 --set num_hidden_layers=2 --set num_heads=12 --set head_dim=4 --set state_size=24"; do
            read -ra family <<< "$line"
            for r in 2 3 4 6; do
                same_in "$r tp=$r" llm-train -c "${family[@]}" --tensor-parts 12 --precision $precision "${of[@]}" -b 2 --accumulate 2
            done
            same_in "6 dp=2,tp=3 dp=3,tp=2 dp=2,tp=3,zero=0 dp=2,tp=3,zero=2 dp=3,tp=2,zero=3" llm-train -c "${family[@]}" --tensor-parts 6 --precision $precision "${of[@]}" -b 6 --grad-shards 6
            [[ ${family[0]} == mamba* ]] || continue
            same_in "8 tp=2,cp=2,pp=2 tp=2,cp=2,pp=2,zero=0 tp=2,cp=2,pp=2,zero=2 tp=2,cp=2,pp=2,zero=3 dp=2,tp=2,cp=2" llm-train -c "${family[@]}" \
                --tensor-parts 4 --seq-parts 4 --precision $precision "${of[@]}" -b 2 --accumulate 3 --grad-shards 3
        done
    done
}
