# llm-train --shard ep=E: ranks that divide the experts of mixtures have the bits of one process, at every step and in the checkpoint, whatever E is.
load ../helper
load ../mpi

setup_file() { sentences_tokens; }

setup() {
    of=(-q -j 1 -l 24 -T "$F/tok.json" "$F/data.tok")
    small=(--set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24)
    moe=(llm-train -c moe "${small[@]}" --set num_local_experts=8 "${of[@]}")
}

# deepseek: layers with and without experts, shared experts and groups of experts in deepseek.json
deepseek() {
    jq -n '{model_type: "deepseek_v3", vocab_size: 280, hidden_size: 32, intermediate_size: 48, moe_intermediate_size: 16, num_hidden_layers: 3,
        num_attention_heads: 4, num_key_value_heads: 4, n_routed_experts: 8, num_experts_per_tok: 2, n_shared_experts: 1, n_group: 2, topk_group: 1,
        first_k_dense_replace: 1, kv_lora_rank: 16, q_lora_rank: 16, qk_nope_head_dim: 8, qk_rope_head_dim: 8, v_head_dim: 8,
        max_position_embeddings: 128, num_nextn_predict_layers: 0, bos_token_id: null, eos_token_id: null}' > deepseek.json
}

@test "a mixture on 2 and 4 ranks, in one group and in two: routers' losses and biases, dropout, validation; BF16 and FP32" {
    need_mpi
    same_in "2 ep=2 dp=2,ep=2,zero=1" "${moe[@]}" --set router_bias=true --set router_aux_loss_coef=.5 --dropout .1 -n 3 -b 4 --grad-shards 2 --val .2 \
        --eval-every 2
    jq -es 'all(.ranks == 2 and .comm_bytes > 0 and .router_balance > .9 and .router_balance < 2)' ranks.log
    same_in "4 ep=4 dp=4,ep=2" "${moe[@]}" --precision f32 -n 2 -b 2 --accumulate 6 --grad-shards 12 --keep-zeros --z-loss 1e-3
    same_in "4 dp=4,ep=2 ep=4 dp=4,ep=2,zero=0" "${moe[@]}" -n 2 -b 4 --accumulate 2 --grad-shards 4 --checkpoint-every 1 --optimizer lion
    same_in "3 ep=3" "${moe[@]}" --set num_local_experts=6 -n 2 -b 6 --grad-shards 3 --objective prefix
}

@test "an expert for each rank, experts that nobody chooses, capacity, Muon, activations of fewer bits" {
    need_mpi
    same_in "2 ep=2" "${moe[@]}" --set num_local_experts=2 --set num_experts_per_tok=1 -n 3 -b 2 --grad-shards 2
    same_in "4 ep=4" "${moe[@]}" -l 3 -n 3 -b 4 --grad-shards 4 # 6 slots a rank
    same_in "2 ep=2" "${moe[@]}" --set expert_capacity_factor=1 -n 3 -b 4 --grad-shards 2
    jq -es 'all(.router_dropped > 0)' ranks.log
    same_in "4 dp=4,ep=2 ep=4" "${moe[@]}" --optimizer muon -n 3 -b 4 --grad-shards 4
    same_in "2 ep=2" "${moe[@]}" --activations int8 -n 2 -b 2 --accumulate 2 --grad-shards 2
}

@test "DeepSeek-V3's layers: shared experts, groups of experts, a layer without, layers that predict further" {
    need_mpi
    deepseek
    same_in "4 ep=4 dp=4,ep=2" llm-train -c deepseek.json "${of[@]}" -n 2 -b 4 --grad-shards 4
    same_in "2 ep=2" llm-train -c deepseek.json --set num_nextn_predict_layers=1 --precision f32 "${of[@]}" -n 2 -b 4 --grad-shards 4
}

@test "pairs: stages and slices whose ranks divide experts, each slice of an expert with those of its lane" {
    need_mpi
    local of=(--set router_bias=true --set router_aux_loss_coef=.5 -n 2 -b 2 --accumulate 4)
    same_in "4 ep=2,pp=2" "${moe[@]}" "${of[@]}" --grad-shards 4 --val .2 --eval-every 2 --checkpoint-every 1
    jq -es 'all(.ranks == 4 and .router_balance > .9 and .router_balance < 2)' ranks.log
    same_in "4 ep=2,tp=2" "${moe[@]}" "${of[@]}" --grad-shards 2 --set num_key_value_heads=4 --tensor-parts 4 --precision f32 --val .2 \
        --eval-every 2
    same_in "8 ep=2,tp=2,pp=2" "${moe[@]}" -n 1 -b 2 --accumulate 2 --grad-shards 2 --tensor-parts 2
}

@test "uneven shards: a rank without rows makes a pass for its experts, which changes neither counts nor statistics of routers" {
    need_mpi
    local of=(--set router_bias=true --set router_aux_loss_coef=.5 --dropout .1 -n 2 -b 2)
    # More layers than there are slots for gradients on their way.
    same_in "2 ep=2 ep=2,zero=3" "${moe[@]}" "${of[@]}" --set num_hidden_layers=6 --accumulate 3 --grad-shards 5 --checkpoint-every 1
    diff <(jq '.router_balance * 1e9 | round' alone.log) <(jq '.router_balance * 1e9 | round' ranks.log)
    same_in "4 ep=2,pp=2 dp=4,ep=2,zero=1" "${moe[@]}" "${of[@]}" --set num_hidden_layers=5 --accumulate 5 --grad-shards 7
}

@test "ZeRO 2 and 3: the experts of two layers have memory, or come from the ranks of the same member; several shards a rank" {
    need_mpi
    deepseek
    same_in "2 ep=2,zero=2 ep=2,zero=3" "${moe[@]}" --set router_bias=true --set router_aux_loss_coef=.5 -n 3 -b 2 --accumulate 2 --grad-shards 4 --val .2 \
        --eval-every 2 --keep-zeros
    same_in "4 dp=4,ep=2,zero=3 dp=4,ep=2,zero=2" llm-train -c deepseek.json --precision f32 "${of[@]}" -n 2 -b 2 --accumulate 4 --grad-shards 8
    same_in "4 dp=4,ep=2,zero=3" "${moe[@]}" --set num_hidden_layers=5 --optimizer muon -n 2 -b 4 --grad-shards 4 --checkpoint-every 2
}

@test "a run goes on with any other layout, and is saved as plain tensors and in snapshots too" {
    need_mpi
    local of=(-b 4 --grad-shards 4 --schedule constant --warmup 2)
    "${moe[@]}" "${of[@]}" -n 6 -o straight.llm
    ranks 4 "${moe[@]}" "${of[@]}" -n 2 --shard ep=4 -o part.llm
    ranks 2 llm-train -q -j 1 --resume part.llm -n 3 --shard dp=2,zero=3
    llm-train -q -j 1 --resume part.llm -n 4
    ranks 4 llm-train -q -j 1 --resume part.llm -n 5 --shard dp=4,ep=2,zero=3 --save-every 1
    ranks 2 llm-train -q -j 1 --resume part.llm -n 6 --shard ep=2,zero=0
    cmp straight.llm part.llm
    ranks 2 "${moe[@]}" "${of[@]}" -n 2 --val .2 --keep-best ranks.best.llm --shard ep=2 -o ranks.safetensors
    "${moe[@]}" "${of[@]}" -n 2 --val .2 --keep-best alone.best.llm -o alone.safetensors
    cmp alone.safetensors ranks.safetensors
    cmp alone.best.llm ranks.best.llm
    mkdir snapshots
    ranks 2 "${moe[@]}" "${of[@]}" -n 6 --shard ep=2 --snapshot snapshots --snapshot-every 2 -o snapped.llm
    cmp straight.llm snapped.llm
}

@test "what does not go with divided experts is refused by name: status 2, one line" {
    refused() { # MESSAGE COMMAND...
        run -2 --separate-stderr "${@:2}" -n 1 -b 4 -o x.llm
        assert_equal "$stderr" "llm-train: --shard: $1"
    }
    refused "expected a launcher that starts 4 ranks (mpirun -n 4), or a multiple, found 1 rank" "${moe[@]}" --shard ep=2,pp=2
    refused "expected ep to be a divisor of dp, 3, found ep=2" "${moe[@]}" --shard dp=3,ep=2
    refused "expected a launcher that starts 2 ranks (mpirun -n 2), or a multiple, found 1 rank" "${moe[@]}" --shard ep=2
    refused "expected a launcher that starts 4 ranks (mpirun -n 4), found 1 rank" "${moe[@]}" --shard dp=4,ep=2
    planned() { # MESSAGE COMMAND...
        run -2 --separate-stderr "${@:2}" -b 4 --shard ep=2 --plan
        assert_equal "$stderr" "llm-train: --shard: $1"
    }
    moe+=(--grad-shards 2)
    planned "ep=2: expected a model with mixtures of experts, found llama" llm-train -c tiny "${of[@]}"
    planned "expected ep to be a divisor of the model's 5 experts, found ep=2" "${moe[@]}" --set num_local_experts=5
    planned "ep=2: expected a run without --gradients int8" "${moe[@]}" --gradients int8
    planned "ep=2: expected a run without --outer" "${moe[@]}" --outer diloco --replicas 2
    planned "ep=2: expected a run without --carry-state" "${moe[@]}" --carry-state
    planned "ep=2: expected steps of --batch rows, found --batch-tokens" "${moe[@]}" --objective sft --batch-tokens 96
    planned "ep=2: expected a run without averages (--ema)" "${moe[@]}" --ema .9
    planned "ep=2: expected a run without --train" "${moe[@]}" --train '*norm*'
    planned "ep=2: expected a run without --freeze" "${moe[@]}" --freeze '*norm*'
    planned "ep=2: expected an objective that predicts the next token in one pass (lm, sft, prefix, fim), found dpo" "${moe[@]}" --objective dpo
    need_mpi
    refused "ep=2: expected a run without --gradients int8" ranks 2 "${moe[@]}" --gradients int8 --shard ep=2
    refused "ep=2: expected a run without --outer" ranks 2 "${moe[@]}" --outer diloco --replicas 2 --inner-steps 1 --shard ep=2
    llm-tokenize train --model byte --special '<|im_start|>' --special '<|im_end|>' --special '</s>' -o chat.json /dev/null
    for ((i = 0; i < 8; i++)); do echo '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "the cat"}]}'; done > chat.jsonl
    refused "ep=2: expected steps of --batch rows, found --batch-tokens" ranks 2 llm-train -q -j 1 -c moe "${small[@]}" -l 64 -T chat.json chat.jsonl \
        --objective sft --chat-template chatml --batch-tokens 256 --grad-shards 2 --shard ep=2
    "${moe[@]}" -n 1 -b 4 -o base.llm
    refused "ep=2: expected a model without an adapter" ranks 2 llm-train -q -j 1 --init base.llm --adapter lora -l 24 "$F/data.tok" --grad-shards 2 \
        --shard ep=2
    [[ ! -e x.llm ]]
}

@test "--plan: a rank's share of experts; what it sends is what the log says" {
    need_mpi
    local moe=("${moe[@]}" --set intermediate_size=256 -b 2 --accumulate 4 --grad-shards 4) layout planned logged
    value() { awk -v key="$1" '$1 == key { print $2 }'; }
    local weights=()
    for layout in dp=4,zero=1 dp=4,ep=2 dp=4,ep=4 dp=4,ep=2,zero=0 dp=4,ep=2,zero=2 dp=4,ep=2,zero=3 ep=2,tp=2 ep=2,pp=2; do
        [[ $layout != *tp* ]] || moe+=(--tensor-parts 2)
        [[ $layout != *pp* ]] || moe+=(--tensor-parts 1 --set tie_word_embeddings=false)
        "${moe[@]}" --shard $layout --plan > plan
        weights+=("$(value weight_bytes < plan)")
        planned=$(value rank_sent_bytes < plan)
        assert_equal "$(value ranks < plan)" 4
        ranks 4 "${moe[@]}" -n 2 --shard $layout -o x.llm --log log
        logged=$(tail -n 1 log | jq .comm_bytes)
        awk -v planned="$planned" -v logged="$logged" 'BEGIN { print planned, logged; off = planned - logged; exit !(off * off < (.1 * logged + 65536) ^ 2) }'
    done
    ((weights[1] < 60 * weights[0] / 100 && weights[2] < 40 * weights[0] / 100)) || fail "found: ${weights[*]}"
}

@test "a loss or a gradient that is not finite stops all ranks; one rank's file is missing" {
    need_mpi
    write_rank1
    run -1 --separate-stderr ranks 2 "${moe[@]}" -n 8 -b 4 --grad-shards 2 --lr 1e6 --clip 0 --warmup 0 --optimizer sgd --shard ep=2 -o x.llm
    [[ $stderr =~ "llm-train: ".*"step "[0-9]+": the "(loss|norm of the gradient)" is "("not a number"|infinite)": first bad tensor: " ]] || fail "$stderr"
    [[ $(wc -l <<< "$stderr") == 1 ]]
    run -66 --separate-stderr env RANK1="s|.*data.tok|none.tok|" bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${moe[@]}" -n 1 -b 4 \
        --grad-shards 2 --shard ep=2 -o x.llm
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): none.tok: No such file or directory"$ ]] || fail "$stderr"
    [[ ! -e x.llm ]]
}
