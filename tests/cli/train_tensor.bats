# llm-train --tensor-parts P --shard tp=T: ranks that divide the slices of the layers' matrices have the bits of one process, at every step and in the
# checkpoint, whatever T is.
load ../helper
load ../mpi

setup_file() { sentences_tokens; }

setup() {
    of=(-q -j 1 -l 24 -T "$F/tok.json" "$F/data.tok")
    gpt=(llm-train -c nano --set n_layer=2 --set n_embd=32 --set n_head=4 "${of[@]}")
    llama=(llm-train -c tiny --set num_hidden_layers=2 --set hidden_size=48 --set intermediate_size=48 --set num_attention_heads=12
        --set num_key_value_heads=6 "${of[@]}")
    mamba=(llm-train -c mamba --set hidden_size=24 --set num_hidden_layers=2 --set initializer_range=.4 "${of[@]}") # of weights that move the states
    mamba2=(llm-train -c mamba2 --set hidden_size=24 --set num_hidden_layers=2 --set num_heads=8 --set head_dim=6 --set n_groups=4
        --set initializer_range=.4 "${of[@]}")
    one_group=("${mamba2[@]}" --set n_groups=1) # of which all slices have a part
}

# family TYPE KEY=VALUE...: a small model of a family in TYPE.json
family() {
    jq -n --arg type "$1" '{model_type: $type, vocab_size: 280, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4,
        num_key_value_heads: 4, head_dim: 8, max_position_embeddings: 128, bos_token_id: null, eos_token_id: null, pad_token_id: null}' > "$1.json"
}

@test "GPT-2: 2 and 4 ranks, replicas, dropout, validation, recomputed activations; BF16 and FP32" {
    need_mpi
    same_in "4 tp=4 dp=2,tp=2" "${gpt[@]}" --tensor-parts 4 --dropout .1 -n 3 -b 2 --accumulate 6 --grad-shards 4 --val .2 --eval-every 2
    jq -es 'all(.ranks == 4 and .comm_bytes > 0)' ranks.log
    same_in "2 tp=2,zero=1" "${gpt[@]}" --set bias=true --tensor-parts 4 --precision f32 -n 2 -b 3 --accumulate 2 --checkpoint-every 1 --keep-zeros --optimizer lion
    same_in "3 tp=3" "${gpt[@]}" --set n_embd=48 --set n_head=6 --set tie_word_embeddings=false --tensor-parts 6 --z-loss 1e-3 -n 2 -b 4
    same_in "2 dp=2" "${gpt[@]}" --tensor-parts 2 -n 2 -b 4 --grad-shards 2
    same_in "4 dp=2,tp=2,zero=0" "${gpt[@]}" --tensor-parts 4 -n 2 -b 4 --grad-shards 2
    same_for "2" "2 3" "${gpt[@]}" --tensor-parts 2 -n 2 -b 4 --grad-shards 2
}

@test "Llama with grouped heads: six slices of 2, 3 and 6 ranks; BF16 and FP32" {
    need_mpi
    same_in "2 tp=2,zero=2 tp=2,zero=3" "${gpt[@]}" --tensor-parts 2 --precision f32 -n 2 -b 4 --grad-shards 2
    same_in "6 dp=2,tp=3 dp=3,tp=2 tp=6" "${llama[@]}" --tensor-parts 6 -n 2 -b 6 --grad-shards 3
    same_in "3 tp=3" "${llama[@]}" --tensor-parts 3 --precision f32 -n 2 -b 4 --objective prefix
}

@test "families with fused matrices, biases and two branches of a layer" {
    need_mpi
    local type
    for type in phi3 gpt_neox qwen2 stablelm gemma2; do
        family $type
        same_in "2 tp=2" llm-train -c $type.json "${of[@]}" --tensor-parts 4 -n 2 -b 4
    done
}

@test "a mixture, MLA, DeepSeek-V3's layers: whole routers and latent vectors; BF16 and FP32" {
    need_mpi
    local small=(--set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48)
    same_in "4 dp=2,tp=2" llm-train -c moe "${small[@]}" --set num_local_experts=5 --set router_bias=true --set router_aux_loss_coef=.5 "${of[@]}" \
        --tensor-parts 2 -n 2 -b 4 --grad-shards 2 --checkpoint-every 1
    jq -es 'all(.router_balance > .9 and .router_balance < 2)' ranks.log # counted once, not by each member
    same_in "2 tp=2" llm-train -c mla "${small[@]}" --precision f32 "${of[@]}" --tensor-parts 4 -n 2 -b 4
    jq -n '{model_type: "deepseek_v3", vocab_size: 280, hidden_size: 32, intermediate_size: 48, moe_intermediate_size: 16, num_hidden_layers: 2,
        num_attention_heads: 4, num_key_value_heads: 4, n_routed_experts: 8, num_experts_per_tok: 2, n_shared_experts: 1, n_group: 2, topk_group: 1,
        first_k_dense_replace: 1, kv_lora_rank: 16, q_lora_rank: 16, qk_nope_head_dim: 8, qk_rope_head_dim: 8, v_head_dim: 8,
        max_position_embeddings: 128, num_nextn_predict_layers: 0, bos_token_id: null, eos_token_id: null}' > deepseek.json
    same_in "4 tp=4" llm-train -c deepseek.json "${of[@]}" --tensor-parts 4 -n 2 -b 4
}

@test "Mamba and Mamba 2: channels, heads and groups; with replicas, stages, parts of rows, recomputed activations; BF16 and FP32" {
    need_mpi
    same_in "4 tp=4 dp=2,tp=2,zero=3 dp=2,tp=2,zero=0" "${mamba[@]}" --tensor-parts 4 -n 3 -b 4 --grad-shards 2 --val .2 --eval-every 2
    same_in "4 tp=2,cp=2 pp=2,tp=2" "${mamba[@]}" --set use_bias=true --tensor-parts 2 --seq-parts 2 --precision f32 -n 2 -b 2 --accumulate 2 --checkpoint-every 1
    same_in "3 tp=3" "${mamba[@]}" --tensor-parts 6 --precision f32 -n 2 -b 4 --cross-document
    same_in "4 tp=4 dp=2,tp=2,zero=2" "${mamba2[@]}" --tensor-parts 4 --precision f32 -n 3 -b 4 --grad-shards 2 --val .2 --eval-every 2
    same_in "4 tp=2,cp=2 pp=2,tp=2 dp=2,tp=2,zero=3" "${one_group[@]}" --set use_bias=true --tensor-parts 4 --seq-parts 2 -n 2 -b 2 --grad-shards 2 \
        --checkpoint-every 1
    same_in "4 tp=2,cp=2 pp=2,tp=2 tp=4" "${mamba2[@]}" --set n_groups=2 --tensor-parts 4 --seq-parts 2 --precision f32 -n 2 -b 4 --cross-document
    same_in "4 tp=2,cp=2 pp=2,tp=2" "${mamba2[@]}" --set use_bias=true --tensor-parts 4 --seq-parts 2 -n 2 -b 2 --accumulate 2 --checkpoint-every 1
}

@test "Mamba and Mamba 2 in slices: the weights, the loss but for rounding, the gradient; a run goes on in another layout" {
    need_mpi
    local c p
    for c in mamba mamba2 one_group; do
        local -n run_of=$c
        for p in 1 2 4; do
            "${run_of[@]}" -n 0 -b 4 --tensor-parts $p -o $p.safetensors
            cmp 1.safetensors $p.safetensors
            # Of 5.6, sums of 24 to 96 products in another order are off by some 1e-6, and so in three steps by as much as 1e-5.
            "${run_of[@]}" --precision f32 -n 3 -b 4 --tensor-parts $p -o x.llm --log $p.log
            paste <(jq .loss 1.log) <(jq .loss $p.log) | awk '($1 - $2) ^ 2 > 1e-10 { print; bad = 1 } END { exit bad || NR != 3 }'
        done
        run -1 cmp -s <(jq .hash 1.log) <(jq .hash 4.log)
        "${run_of[@]}" -l 8 -b 2 --tensor-parts 2 --precision f32 --gradcheck > checked
        awk 'NR > 1 && $4 > 2e-3 { print; bad = 1 } END { exit bad || NR < 35 }' checked
        "${run_of[@]}" -n 4 -b 4 --tensor-parts 4 --schedule constant --warmup 2 -o straight.llm
        ranks 2 "${run_of[@]}" -n 2 -b 4 --tensor-parts 4 --schedule constant --warmup 2 --shard tp=2 -o part.llm
        llm-train -q -j 1 --resume part.llm -n 3
        ranks 4 llm-train -q -j 1 --resume part.llm -n 4 --shard tp=4
        cmp straight.llm part.llm
    done
}

@test "stages whose ranks divide slices: tied and untied heads, both schedules, replicas, a mixture" {
    need_mpi
    same_in "4 pp=2,tp=2 pp=2,tp=2,schedule=gpipe" "${gpt[@]}" --tensor-parts 4 -n 3 -b 2 --accumulate 6 --grad-shards 4 --dropout .1 --val .2 --eval-every 2 \
        --checkpoint-every 1
    same_in "8 dp=2,pp=2,tp=2" "${gpt[@]}" --tensor-parts 2 --precision f32 -n 2 -b 2 --accumulate 4 --grad-shards 4 --set tie_word_embeddings=false
    same_in "4 pp=2,tp=2" llm-train -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=5 \
        --set router_bias=true --set router_aux_loss_coef=.5 "${of[@]}" --tensor-parts 2 -n 2 -b 2 --accumulate 2
}

@test "the number of slices is part of the run: other bits, the same loss but for rounding; one slice is a run without the option" {
    local p
    for p in 1 2 4; do "${gpt[@]}" --precision f32 -n 2 -b 4 --tensor-parts $p -o $p.llm --log $p.log; done
    "${gpt[@]}" --precision f32 -n 2 -b 4 -o none.llm --log none.log
    cmp none.llm 1.llm
    for p in 2 4; do
        run -1 cmp -s none.llm $p.llm
        diff <(jq -r '.loss * 1e5 | round' none.log) <(jq -r '.loss * 1e5 | round' $p.log)
    done
    "${gpt[@]}" --precision f32 -n 2 -b 1 --accumulate 4 -j 2 --tensor-parts 4 -o passes.llm
    cmp 4.llm passes.llm
    "${gpt[@]}" -l 8 -b 2 --tensor-parts 4 --precision f32 --gradcheck | awk 'NR > 1 && $4 > 1e-2 { bad = 1 } END { exit bad || NR < 20 }'
}

@test "a run goes on with any other layout, and is saved as plain tensors and in snapshots too" {
    need_mpi
    local of=(--tensor-parts 4 -b 4 --grad-shards 2 --schedule constant --warmup 2)
    "${gpt[@]}" "${of[@]}" -n 6 -o straight.llm
    ranks 4 "${gpt[@]}" "${of[@]}" -n 2 --shard dp=2,tp=2 -o part.llm
    ranks 2 llm-train -q -j 1 --resume part.llm -n 3 --shard tp=2
    llm-train -q -j 1 --resume part.llm -n 4
    ranks 4 llm-train -q -j 1 --resume part.llm -n 5 --shard dp=2,tp=2,zero=0 --save-every 1
    ranks 4 llm-train -q -j 1 --resume part.llm -n 6 --shard pp=2,tp=2
    cmp straight.llm part.llm
    ranks 2 "${gpt[@]}" "${of[@]}" -n 2 --val .2 --keep-best ranks.best.llm --shard tp=2 -o ranks.safetensors
    "${gpt[@]}" "${of[@]}" -n 2 --val .2 --keep-best alone.best.llm -o alone.safetensors
    cmp alone.safetensors ranks.safetensors
    cmp alone.best.llm ranks.best.llm
    mkdir snapshots
    ranks 2 "${gpt[@]}" "${of[@]}" -n 6 --shard tp=2 --snapshot snapshots --snapshot-every 2 -o snapped.llm
    cmp straight.llm snapped.llm
}

@test "what cannot be cut, or does not go with slices, is refused by name: status 2, one line" {
    refused() { # MESSAGE COMMAND...
        run -2 --separate-stderr "${@:2}" -n 1 -b 4 -o x.llm
        assert_equal "$stderr" "llm-train: $1"
    }
    local parts="--tensor-parts: expected" model="a model of attention, Mamba and feed-forward parts, found one with"
    refused "$parts a divisor of the model's 4 attention heads, found 3" "${gpt[@]}" --tensor-parts 3
    refused "$parts a divisor of the model's 9 attention heads, found 2" "${gpt[@]}" --set n_embd=72 --set n_head=9 --tensor-parts 2
    refused "$parts a divisor of the model's 6 key/value heads, found 4" "${llama[@]}" --tensor-parts 4
    refused "$parts a divisor of the model's 47 channels of the feed-forward parts, found 2" "${llama[@]}" --set intermediate_size=47 --tensor-parts 2
    refused "$parts a divisor of the model's 385 channels of an expert, found 2" llm-train -c moe --set intermediate_size=385 "${of[@]}" --tensor-parts 2
    refused "$parts $model layers that are neither attention nor Mamba (rwkv)" llm-train -c rwkv "${of[@]}" --tensor-parts 2
    refused "$parts a divisor of the model's 48 channels of Mamba, found 5" "${mamba[@]}" --tensor-parts 5
    refused "$parts a divisor of the model's 8 heads of Mamba 2, found 3" "${mamba2[@]}" --tensor-parts 3
    refused "$parts a divisor of the model's 31 inputs of Mamba 2's states, found 2" "${one_group[@]}" --set state_size=31 --tensor-parts 2
    refused "$parts a divisor or a multiple of the model's 4 groups of Mamba 2's heads (n_groups), found 6" "${mamba2[@]}" --set num_heads=12 \
        --set head_dim=4 --set state_size=3 --tensor-parts 6
    refused "$parts a run without --carry-state" "${mamba[@]}" --tensor-parts 2 --carry-state
    refused "$parts $model layers that predict further (llama)" "${llama[@]}" --set num_nextn_predict_layers=1 --tensor-parts 2
    family qwen3
    refused "$parts $model norms of queries and keys (qwen3)" llm-train -c qwen3.json "${of[@]}" --tensor-parts 2
    refused "$parts a run without averages (--ema)" "${gpt[@]}" --tensor-parts 2 --ema .9
    refused "$parts a run without --gradients int8" "${gpt[@]}" --tensor-parts 2 --gradients int8
    refused "$parts a run without --outer" "${gpt[@]}" --tensor-parts 2 --outer diloco --replicas 2
    refused "$parts a run without --activations" "${gpt[@]}" --tensor-parts 2 --activations bf16
    refused "$parts a run without --freeze" "${gpt[@]}" --tensor-parts 2 --freeze '*ln*'
    refused "$parts a run without --train" "${gpt[@]}" --tensor-parts 2 --train '*ln*'
    refused "$parts an optimizer that updates element by element, found muon" "${gpt[@]}" --tensor-parts 2 --optimizer muon
    refused "$parts an objective that predicts the next token in one pass (lm, sft, prefix, fim), found dpo" "${gpt[@]}" --tensor-parts 2 --objective dpo
    refused "--coordcheck: expected a run without --tensor-parts" "${gpt[@]}" --tensor-parts 2 --coordcheck 32,64
    refused "--shard: expected a launcher that starts 2 ranks (mpirun -n 2), or a multiple, found 1 rank" "${gpt[@]}" --tensor-parts 2 --shard tp=2
    "${gpt[@]}" -n 1 -b 4 -o base.llm
    refused "$parts a model without an adapter" llm-train -q --init base.llm --adapter lora -l 24 "$F/data.tok" --tensor-parts 2
    need_mpi
    refused "--shard: expected tp to be a divisor of --tensor-parts, 4, found tp=3" ranks 3 "${gpt[@]}" --tensor-parts 4 --shard tp=3
    refused "--shard: zero=2: expected shards of one pass, of at most 4 rows (--batch), found 12 (--grad-shards)" ranks 2 "${gpt[@]}" --tensor-parts 2 \
        --accumulate 3 --shard tp=2,zero=2
    refused "--shard: expected tp to be a divisor of --tensor-parts, 1, found tp=2" ranks 2 "${gpt[@]}" --shard tp=2
    [[ ! -e x.llm ]]
}

@test "--plan: a rank's share of weights and moments; what it sends is what the log says" {
    need_mpi
    local gpt=(llm-train -q -j 1 -c nano --set vocab_size=300 --set n_layer=6 -l 24 -b 2 --accumulate 6 --grad-shards 2 --tensor-parts 4) layout n planned logged
    value() { awk -v key="$1" '$1 == key { print $2 }'; }
    local weights=() moments=()
    for layout in dp=1 tp=2 tp=4; do
        "${gpt[@]}" --shard $layout --plan > plan
        weights+=("$(value weight_bytes < plan)")
        moments+=("$(value moment_bytes < plan)")
    done
    ((weights[1] < 55 * weights[0] / 100 && weights[2] < 32 * weights[0] / 100)) || fail "found: ${weights[*]}"
    ((moments[1] < 55 * moments[0] / 100 && moments[2] < 32 * moments[0] / 100)) || fail "found: ${moments[*]}"
    for layout in tp=2 dp=2,tp=2 pp=2,tp=2; do
        n=4
        [[ $layout != tp=2 ]] || n=2
        planned=$("${gpt[@]}" --set tie_word_embeddings=false --shard $layout --plan | value rank_sent_bytes)
        ranks $n "${gpt[@]}" --set tie_word_embeddings=false -n 2 --shard $layout -o x.llm --log log "$F/data.tok"
        logged=$(tail -n 1 log | jq .comm_bytes)
        awk -v planned="$planned" -v logged="$logged" 'BEGIN { print planned, logged; off = planned - logged; exit !(off * off < (.05 * logged + 65536) ^ 2) }'
    done
    local line c
    for line in "mamba tp=2 2" "mamba dp=2,tp=2 4" "mamba tp=2,cp=2 4" "mamba2 tp=2 2"; do
        read -r c layout n <<< "$line"
        local of=(llm-train -q -j 1 -c "$c" --set vocab_size=300 --set hidden_size=256 --set num_hidden_layers=4 -l 24 -b 2 --accumulate 6
            --grad-shards 2 --tensor-parts 4 --seq-parts 2 --shard "$layout")
        planned=$("${of[@]}" --plan | value rank_sent_bytes)
        ranks "$n" "${of[@]}" -n 2 -o x.llm --log log "$F/data.tok"
        logged=$(tail -n 1 log | jq .comm_bytes)
        awk -v planned="$planned" -v logged="$logged" 'BEGIN { print planned, logged; off = planned - logged; exit !(off * off < (.05 * logged) ^ 2) }'
    done
    run -2 --separate-stderr "${gpt[@]}" --shard tp=3 --plan
    assert_equal "$stderr" "llm-train: --shard: expected tp to be a divisor of --tensor-parts, 4, found tp=3"
}

@test "a loss or a gradient that is not finite stops all ranks; one rank's file is missing, or its instruction set is another" {
    need_mpi
    write_rank1
    two_stop "${gpt[@]}" --tensor-parts 2 --shard tp=2
    run -1 --separate-stderr env RANK1=LLM_ISA=scalar bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${gpt[@]}" -n 1 -b 3 --tensor-parts 2 \
        --shard tp=2 -o x.llm
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): instruction set: expected that of rank 0 ("[^\)]*"), "[a-z0-9]+", found scalar"$ ]] || fail "$stderr"
    [[ ! -e x.llm ]]
}
