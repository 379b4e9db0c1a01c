# llm-train --seq-parts Q --shard cp=N: ranks that divide the parts of rows have the bits of one process, at every step and in the checkpoint, whatever N
# is.
load ../helper
load ../mpi

setup_file() { sentences_tokens; }

setup() {
    of=(-q -j 1 -l 24 -T "$F/tok.json" "$F/data.tok")
    gpt=(llm-train -c nano --set n_layer=2 --set n_embd=32 --set n_head=4 "${of[@]}")
    llama=(llm-train -c tiny --set num_hidden_layers=2 --set hidden_size=48 --set intermediate_size=48 --set num_attention_heads=12
        --set num_key_value_heads=6 "${of[@]}")
}

@test "GPT-2: 2 and 4 ranks, replicas, dropout, validation, recomputed activations; BF16 and FP32" {
    need_mpi
    same_in "4 cp=4 dp=2,cp=2 dp=2,cp=2,zero=1 dp=4" "${gpt[@]}" --seq-parts 4 --dropout .1 -n 3 -b 2 --accumulate 6 --grad-shards 4 --val .2 --eval-every 2
    jq -es 'all(.ranks == 4 and .comm_bytes > 0)' ranks.log
    same_in "2 cp=2,zero=1 dp=2" "${gpt[@]}" --set bias=true --seq-parts 4 --precision f32 -n 2 -b 3 --accumulate 2 --grad-shards 3 --checkpoint-every 1 \
        --keep-zeros --optimizer lion
    same_in "3 cp=3 cp=3,zero=1" "${gpt[@]}" --set n_embd=48 --set n_head=6 --set tie_word_embeddings=false --seq-parts 6 --z-loss 1e-3 -n 2 -b 4
}

# family TYPE KEY=VALUE...: a small model of a family in TYPE.json
family() {
    jq -n --arg type "$1" '{model_type: $type, vocab_size: 280, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4,
        num_key_value_heads: 4, head_dim: 8, max_position_embeddings: 128, bos_token_id: null, eos_token_id: null, pad_token_id: null}' > "$1.json"
}

@test "Llama with grouped heads: six parts of 1, 2, 3 and 6 ranks, uneven shards, Muon, frozen layers, averages; prefix" {
    need_mpi
    same_in "6 dp=2,cp=3 dp=3,cp=2,zero=1 cp=6" "${llama[@]}" --seq-parts 6 -n 2 -b 6 --grad-shards 3 --optimizer muon
    same_in "3 cp=3,zero=1" "${llama[@]}" --seq-parts 3 --precision f32 -n 2 -b 4 --objective prefix --ema .9
    same_in "2 cp=2" "${llama[@]}" --seq-parts 2 -n 2 -b 3 --accumulate 5 --grad-shards 5 --freeze 'model.layers.0.*' --cross-document
}

@test "more ranks than key/value heads: each head is copied for its parts" {
    need_mpi
    same_in "4 cp=4 dp=2,cp=2" "${llama[@]}" --set num_key_value_heads=2 --seq-parts 4 -n 2 -b 2 --grad-shards 2
    same_in "4 tp=2,cp=2" "${llama[@]}" --set num_key_value_heads=2 --tensor-parts 2 --seq-parts 4 --precision f32 -n 2 -b 2 # 6 heads a slice
    same_in "3 cp=3" "${llama[@]}" --set num_key_value_heads=1 --seq-parts 6 -n 2 -b 2
}

@test "more ranks than heads: those with the same heads divide queries and keys" {
    need_mpi
    local one=(--set num_attention_heads=1 --set num_key_value_heads=1) two=(--set num_attention_heads=2 --set num_key_value_heads=1)
    same_in "4 cp=4 cp=4,zero=1 dp=2,cp=2" "${llama[@]}" "${two[@]}" --seq-parts 4 --dropout .1 -n 2 -b 2 --accumulate 2 --grad-shards 2 --val .2 --eval-every 2 \
        --checkpoint-every 1
    same_in "3 cp=3" "${gpt[@]}" --seq-parts 3 --precision f32 -n 2 -b 3 # of 4 heads each rank has all
    same_in "6 cp=6 dp=2,cp=3" "${llama[@]}" --set num_attention_heads=4 --set num_key_value_heads=2 --seq-parts 6 -n 2 -b 4 --grad-shards 2
    same_in "4 tp=2,cp=2" "${gpt[@]}" --tensor-parts 4 --seq-parts 2 --dropout .1 -n 2 -b 2 # a head for each slice
    same_in "4 cp=4 dp=2,cp=2" "${llama[@]}" "${one[@]}" -l 600 --set max_position_embeddings=600 --seq-parts 4 -n 1 -b 3 --accumulate 2 --grad-shards 2 \
        --cross-document
    same_in "4 cp=4" llm-train -c mla --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 "${of[@]}" \
        -l 400 --set max_position_embeddings=400 --seq-parts 4 -n 1 -b 2 --objective prefix
    family gemma2
    same_in "3 cp=3" llm-train -c gemma2.json --set num_attention_heads=2 --set num_key_value_heads=2 --set sliding_window=70 "${of[@]}" \
        -l 384 --set max_position_embeddings=384 --seq-parts 3 -n 1 -b 2 -j 2 --cross-document
}

@test "families with fused matrices, biases, windows, caps, norms of queries and keys, two branches of a layer; MLA" {
    need_mpi
    local type
    for type in phi3 gpt_neox qwen2 qwen3 stablelm gemma2 olmo2; do
        family $type
        same_in "2 cp=2" llm-train -c $type.json "${of[@]}" --seq-parts 4 -n 2 -b 4 --grad-shards 2
    done
    same_in "4 cp=4 dp=2,cp=2" llm-train -c mla --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 "${of[@]}" --seq-parts 4 -n 2 -b 4 \
        --grad-shards 2
}

@test "stages of ranks that divide rows, a tied and an untied head, recomputed activations" {
    need_mpi
    same_in "4 pp=2,cp=2 pp=2,cp=2,schedule=gpipe" "${gpt[@]}" --seq-parts 4 --dropout .1 -n 2 -b 2 --accumulate 4 --grad-shards 2 --val .2 --eval-every 2 \
        --checkpoint-every 1
    same_in "4 pp=2,cp=2" "${llama[@]}" --seq-parts 2 --precision f32 -n 2 -b 1 --accumulate 3 --grad-shards 3 --cross-document
}

@test "gradients and weights of layers that ranks divide: one shard a rank and several, parts of a rank, validation" {
    need_mpi
    same_in "4 cp=2,zero=2 cp=2,zero=3" "${gpt[@]}" --seq-parts 4 --dropout .1 -n 2 -b 3 --accumulate 2 --grad-shards 3 --val .2 --eval-every 2
    same_in "4 dp=2,cp=2,zero=3" "${llama[@]}" --seq-parts 2 --precision f32 -n 2 -b 4 --grad-shards 3 --checkpoint-every 1
    same_in "2 dp=2,zero=2" "${llama[@]}" --seq-parts 3 -n 2 -b 4 --grad-shards 4 --optimizer muon
}

@test "mixtures: capacity and balance of a whole row, routers of all layers; with stages, slices, weights that ranks divide" {
    need_mpi
    local moe=(llm-train -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=5 --set num_attention_heads=4
        --set num_key_value_heads=4 --set expert_capacity_factor=1 "${of[@]}")
    same_in "4 cp=4 dp=2,cp=2,zero=3" "${moe[@]}" --set router_bias=true --set router_aux_loss_coef=.5 --seq-parts 4 -n 3 -b 4 --grad-shards 2
    jq -es 'all(.router_dropped > 0)' ranks.log
    same_in "4 pp=2,cp=2 tp=2,cp=2" "${moe[@]}" --tensor-parts 2 --seq-parts 2 --precision f32 -n 2 -b 2 --accumulate 2 --val .2 --eval-every 1
}

@test "experts that ranks which divide rows divide: those of one row and of two, ZeRO, uneven shards" {
    need_mpi
    local moe=(llm-train -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=4
        --set num_attention_heads=4 --set num_key_value_heads=4 --set expert_capacity_factor=1 "${of[@]}" --seq-parts 4 -n 2 -b 2)
    same_in "4 dp=2,cp=2,ep=4 dp=1,cp=4,ep=2,zero=3" "${moe[@]}" --accumulate 2 --grad-shards 3
}

@test "Mamba and Mamba 2: states pass from rank to rank, documents that end before, at and after a part's end" {
    need_mpi
    local parts mamba=(llm-train -c mamba --set hidden_size=24 --set num_hidden_layers=2) mamba2=(llm-train -c mamba2 --set hidden_size=24
        --set num_hidden_layers=2 --set num_heads=6 --set head_dim=8 --set n_groups=2)
    same_in "4 cp=4 dp=2,cp=2,zero=3" "${mamba[@]}" "${of[@]}" --seq-parts 4 -n 2 -b 4 --grad-shards 2 --checkpoint-every 1 --val .2 --eval-every 1
    same_in "4 cp=4 pp=2,cp=2" "${mamba2[@]}" "${of[@]}" --seq-parts 8 --precision f32 -n 2 -b 2 --cross-document
    same_in "2 cp=2" "${mamba[@]}" "${of[@]}" -j 2 -l 900 --seq-parts 2 -n 1 -b 2 --cross-document
    for parts in 1 2; do "${mamba[@]}" "${of[@]}" -l 8 -b 2 --seq-parts $parts --precision f32 --gradcheck | cut -f 2 > $parts; done
    paste 1 2 | awk 'NR > 1 && ($1 - $2) ^ 2 > 1e-8 * $1 ^ 2 { bad = 1 } END { exit bad || NR < 15 }'
}

@test "RNN, LSTM, RWKV 4 to 7 and windows: states and tokens before pass from rank to rank; the gradient is that of whole rows" {
    need_mpi
    local c parts small=(--set num_hidden_layers=2 --set hidden_size=32)
    local rnn=(--set num_layers=2 --set hidden_size=24) fifth=("${small[@]}" --set head_size=16 --set initializer_range=0.005)
    same_in "4 cp=4 dp=2,cp=2,zero=3" llm-train -c rnn "${rnn[@]}" "${of[@]}" --seq-parts 4 -n 2 -b 4 --grad-shards 2 --val .2 --eval-every 1
    same_in "4 cp=4 pp=2,cp=2" llm-train -c lstm "${rnn[@]}" "${of[@]}" --seq-parts 8 --precision f32 -n 2 -b 2 --cross-document
    same_in "4 cp=4 dp=2,cp=2" llm-train -c rwkv "${small[@]}" "${of[@]}" --seq-parts 4 -n 2 -b 4 --grad-shards 2 --checkpoint-every 1
    same_in "4 pp=2,cp=2" llm-train -c rwkv5 --set head_size=16 "${small[@]}" "${of[@]}" --seq-parts 4 -n 2 -b 2 --precision f32 --cross-document
    same_in "2 cp=2" llm-train -c rwkv6 --set head_size=16 "${small[@]}" "${of[@]}" -j 2 -l 600 --seq-parts 2 -n 1 -b 2 --cross-document
    same_in "4 cp=4 dp=2,cp=2" llm-train -c rwkv7 --set head_dim=16 "${small[@]}" "${of[@]}" --seq-parts 4 -n 2 -b 2 --grad-shards 2 --val .2 --eval-every 1
    same_in "3 cp=3" llm-train -c bengio "${of[@]}" --seq-parts 6 -n 2 -b 2 # as many tokens of a row each as the window sees before a token, and more
    same_in "6 cp=6 dp=2,cp=3,zero=1" llm-train -c mlp --set context_window=5 "${of[@]}" --seq-parts 6 -n 2 -b 2 --grad-shards 2 --precision f32
    for c in "rnn ${rnn[*]}" "lstm ${rnn[*]}" "rwkv ${small[*]}" "rwkv5 ${fifth[*]}" "rwkv6 ${fifth[*]}" \
        "rwkv7 ${small[*]} --set head_dim=16" "mlp --set intermediate_size=32 --set embedding_size=16"; do
        for parts in 1 4; do
            # shellcheck disable=SC2086
            llm-train -c $c "${of[@]}" -l 8 -b 2 --seq-parts $parts --precision f32 --gradcheck > checked
            cut -f 2 checked > $parts
        done
        paste 1 4 | awk -v c="$c" 'NR > 1 && ($1 - $2) ^ 2 > 1e-8 * $1 ^ 2 { print c, $0; bad = 1 } END { exit bad || NR < 5 }'
    done
}

@test "slices of ranks that divide rows; MLA, windows" {
    need_mpi
    same_in "4 tp=2,cp=2" "${gpt[@]}" --tensor-parts 2 --seq-parts 4 --dropout .1 --z-loss 1e-3 -n 2 -b 4 --grad-shards 2 --val .2 --eval-every 2
    same_in "2 cp=2 tp=2" llm-train -c mla --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 "${of[@]}" --tensor-parts 2 --seq-parts 2 \
        --precision f32 -n 2 -b 2
    family gemma2
    same_in "4 tp=2,cp=2" llm-train -c gemma2.json "${of[@]}" --tensor-parts 2 --seq-parts 2 -n 2 -b 2
}

@test "conversations; texts to fill in" {
    need_mpi
    local small=(llm-train -q -j 1 -c tiny --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=4 -T tok.json)
    llm-tokenize train --model byte --special '<|fim_prefix|>' --special '<|fim_suffix|>' --special '<|fim_middle|>' --special '</s>' -o tok.json "$F/text"
    llm-tokenize encode -T tok.json --lines --append-eos -o lines.tok "$F/text"
    same_in "4 dp=2,cp=2" "${small[@]}" -l 48 --objective fim lines.tok --seq-parts 2 -n 3 -b 4 --grad-shards 2
    jq -Rc '{messages: [{role: "user", content: .[:8]}, {role: "assistant", content: .}]}' < <(head -n 40 "$F/text") > talks.jsonl
    same_in "4 dp=2,cp=2" "${small[@]}" -l 256 --objective sft --chat-template chatml talks.jsonl --seq-parts 2 -n 3 -b 4 --grad-shards 2
}

@test "rows of several blocks of tokens, cut within and between them, on 1 and 2 threads" {
    need_mpi
    local threads parts
    for parts in "2 2 -l 1024" "2 4 -l 600" "4 4 -l 1200"; do
        set -- $parts
        for threads in 1 2; do
            same_in "$1 cp=$1" "${gpt[@]}" -j $threads --set n_positions=1200 --seq-parts "${@:2}" -n 1 -b 2 --accumulate 2
            mv alone.llm "$threads.llm"
        done
        cmp 1.llm 2.llm
    done
}

@test "the number of parts is part of the run: other bits, the same loss but for rounding; one part is a run without the option" {
    local q
    for q in 1 2 4; do "${gpt[@]}" --precision f32 -n 2 -b 4 --seq-parts $q -o $q.llm --log $q.log; done
    "${gpt[@]}" --precision f32 -n 2 -b 4 -o none.llm --log none.log
    cmp none.llm 1.llm
    for q in 2 4; do
        run -1 cmp -s none.llm $q.llm
        diff <(jq -r '.loss * 1e5 | round' none.log) <(jq -r '.loss * 1e5 | round' $q.log)
        [[ $(jq -r .loss none.log | head -1) == $(jq -r .loss $q.log | head -1) ]] # parts change no forward pass
    done
    "${gpt[@]}" --precision f32 -n 2 -b 1 --accumulate 4 -j 2 --seq-parts 4 -o passes.llm
    cmp 4.llm passes.llm
    "${gpt[@]}" -l 8 -b 2 --seq-parts 4 --precision f32 --gradcheck | awk 'NR > 1 && $4 > 1e-2 { bad = 1 } END { exit bad || NR < 15 }'
}

@test "a run goes on with any other layout, and is saved as plain tensors and in snapshots too" {
    need_mpi
    local of=(--seq-parts 4 -b 4 --grad-shards 2 --schedule constant --warmup 2)
    "${gpt[@]}" "${of[@]}" -n 6 -o straight.llm
    ranks 4 "${gpt[@]}" "${of[@]}" -n 2 --shard dp=2,cp=2 -o part.llm
    ranks 2 llm-train -q -j 1 --resume part.llm -n 3 --shard cp=2,zero=1
    llm-train -q -j 1 --resume part.llm -n 4
    ranks 4 llm-train -q -j 1 --resume part.llm -n 5 --shard cp=4 --save-every 1
    ranks 2 llm-train -q -j 1 --resume part.llm -n 6 --shard dp=2
    cmp straight.llm part.llm
    ranks 2 "${gpt[@]}" "${of[@]}" -n 2 --val .2 --keep-best ranks.best.llm --shard cp=2 -o ranks.safetensors
    "${gpt[@]}" "${of[@]}" -n 2 --val .2 --keep-best alone.best.llm -o alone.safetensors
    cmp alone.safetensors ranks.safetensors
    cmp alone.best.llm ranks.best.llm
    mkdir snapshots
    ranks 2 "${gpt[@]}" "${of[@]}" -n 6 --shard cp=2,zero=1 --snapshot snapshots --snapshot-every 2 -o snapped.llm
    cmp straight.llm snapped.llm
}

@test "what cannot be cut, or does not go with parts of rows, is refused by name: status 2, one line" {
    refused() { # MESSAGE COMMAND...
        run -2 --separate-stderr "${@:2}" -n 1 -b 4 -o x.llm
        assert_equal "$stderr" "llm-train: $1"
    }
    local parts="--seq-parts: expected" model="a model whose rows can be cut, found one with"
    refused "$parts a divisor of the 24 tokens of a row (--context), found 5" "${gpt[@]}" --seq-parts 5
    refused "$parts $model long convolutions (hyenadna)" llm-train -c hyena "${of[@]}" --seq-parts 2
    refused "--shard: cp=6: expected at least 15 tokens of a row for each rank, as a convolution or a window sees, found 4" llm-train -c mlp "${of[@]}" \
        --seq-parts 6 --shard cp=6 --plan
    refused "--shard: cp=12: expected at least 3 tokens of a row for each rank, as a convolution or a window sees, found 2" llm-train -c mamba "${of[@]}" --seq-parts 12 \
        --shard cp=12 --plan
    need_mpi
    refused "--shard: expected ep to be a divisor of dp × cp, 2, found ep=4" llm-train -c moe "${of[@]}" --seq-parts 2 --shard dp=1,cp=2,ep=4
    refused "--shard: expected ep to be a divisor or a multiple of cp, 2, found ep=3" llm-train -c moe "${of[@]}" --seq-parts 2 --shard dp=3,cp=2,ep=3
    refused "$parts $model layers that predict further (llama)" "${llama[@]}" --set num_nextn_predict_layers=1 --seq-parts 2
    refused "$parts a run without --gradients int8" "${gpt[@]}" --seq-parts 2 --gradients int8
    refused "$parts a run without --outer" "${gpt[@]}" --seq-parts 2 --outer diloco --replicas 2
    refused "$parts a run without --activations" "${gpt[@]}" --seq-parts 2 --activations bf16
    refused "$parts an objective that predicts the next token in one pass (lm, sft, prefix, fim), found dpo" "${gpt[@]}" --seq-parts 2 --objective dpo
    refused "--shard: expected a launcher that starts 2 ranks (mpirun -n 2), or a multiple, found 1 rank" "${gpt[@]}" --seq-parts 2 --shard cp=2
    run -2 --separate-stderr "${gpt[@]}" --seq-parts 65 -n 1 -o x.llm
    [[ $stderr == "llm-train: --seq-parts: "* ]] || fail "$stderr"
    "${gpt[@]}" -n 1 -b 4 -o base.llm
    refused "$parts a model without an adapter" llm-train -q --init base.llm --adapter lora -l 24 "$F/data.tok" --seq-parts 2
    refused "--shard: expected cp to be a divisor of --seq-parts, 2, found cp=3" ranks 3 "${gpt[@]}" --seq-parts 2 --shard cp=3
    refused "--shard: expected cp to be a divisor of --seq-parts, 1, found cp=2" ranks 2 "${gpt[@]}" --shard cp=2
    refused "--shard: zero=2: expected shards of one pass, of at most 4 rows (--batch), found 8 (--grad-shards)" ranks 2 "${gpt[@]}" --accumulate 2 \
        --seq-parts 2 --shard cp=2,zero=2
    [[ ! -e x.llm ]]
}

@test "--plan: a rank's share of activations and moments; what it sends is what the log says; auto finds cp" {
    need_mpi
    local gpt=(llm-train -q -j 1 -c nano --set vocab_size=300 --set n_layer=6 -l 240 -b 2 --accumulate 6 --grad-shards 2 --seq-parts 4) layout n planned logged
    value() { awk -v key="$1" '$1 == key { print $2 }'; }
    local activations=() moments=()
    for layout in dp=1 cp=2 cp=4,zero=1; do
        "${gpt[@]}" --shard $layout --plan > plan
        activations+=("$(value activation_bytes < plan)")
        moments+=("$(value moment_bytes < plan)")
    done
    ((activations[1] < 70 * activations[0] / 100 && activations[2] < 50 * activations[0] / 100)) || fail "found: ${activations[*]}"
    ((moments[1] == moments[0] && moments[2] < 26 * moments[0] / 100)) || fail "found: ${moments[*]}"
    for layout in cp=2 dp=2,cp=2,zero=1 dp=2 pp=2,cp=2; do
        n=2
        [[ $layout != ?p=2,* ]] || n=4
        planned=$("${gpt[@]}" --checkpoint-every 2 --shard $layout --plan | value rank_sent_bytes)
        ranks $n "${gpt[@]}" --checkpoint-every 2 -n 2 --shard $layout -o x.llm --log log "$F/data.tok"
        logged=$(tail -n 1 log | jq .comm_bytes)
        awk -v planned="$planned" -v logged="$logged" 'BEGIN { print planned, logged; off = planned - logged; exit !(off * off < (.05 * logged + 65536) ^ 2) }'
    done
    planned=$("${gpt[@]}" --set n_head=2 --shard cp=4 --plan | value rank_sent_bytes) # two ranks for each head
    ranks 4 "${gpt[@]}" --set n_head=2 -n 2 --shard cp=4 -o x.llm --log log "$F/data.tok"
    awk -v planned="$planned" -v logged="$(tail -n 1 log | jq .comm_bytes)" \
        'BEGIN { print planned, logged; off = planned - logged; exit !(off * off < (.05 * logged) ^ 2) }'
    local mamba=(llm-train -q -j 1 -c mamba --set vocab_size=300 --set num_hidden_layers=4 --set hidden_size=64 -l 64 -b 2 --seq-parts 4)
    planned=$("${mamba[@]}" --shard cp=2 --plan | value rank_sent_bytes) # states go one way
    ranks 2 "${mamba[@]}" -n 2 --shard cp=2 -o x.llm --log log "$F/data.tok"
    awk -v planned="$planned" -v logged="$(tail -n 1 log | jq .comm_bytes)" \
        'BEGIN { print planned, logged; off = planned - logged; exit !(off * off < (.02 * logged) ^ 2) }'
    run --separate-stderr "${gpt[0]}" "${gpt[@]:2}" -b 1 --accumulate 1 --grad-shards 1 --shard auto,ranks=4,flops=1e8 --plan
    [[ $stderr == "llm-train: --shard dp=1,zero="[01]",cp=4: the fastest of "* ]] || fail "$stderr"
    run -2 --separate-stderr "${gpt[@]}" --shard cp=3 --plan
    assert_equal "$stderr" "llm-train: --shard: expected cp to be a divisor of --seq-parts, 4, found cp=3"
}

@test "a loss or a gradient that is not finite stops all ranks; one rank's file is missing" {
    need_mpi
    write_rank1
    two_stop "${gpt[@]}" --seq-parts 2 --shard cp=2
    [[ ! -e x.llm ]]
}
