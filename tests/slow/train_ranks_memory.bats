# What --plan says that a rank takes is what the rank that takes most then takes: layouts that tests/cli/train_ranks_memory.bats leaves out.
load ../helper
load ../mpi
load ../ranks_memory

@test "rows divided: the memory of the rank that takes most, while it saves" {
    wide 2 cp=2 --seq-parts 2
    wide 2 cp=2,zero=1 --seq-parts 4
}

@test "moments divided, beside stages and without: the memory of the rank that takes most, while it saves" {
    local zero
    for zero in 0 1; do
        wide 2 "dp=2,zero=$zero"
        wide 4 "dp=2,pp=2,zero=$zero"
    done
}

@test "experts, weights, gradients and moments divided: the memory of the rank that takes most, while it saves" {
    local zero
    for zero in 2 3; do
        planned 4 .06 -c moe --set num_hidden_layers=6 --set hidden_size=256 --set intermediate_size=256 --set num_local_experts=8 \
            --set vocab_size=2048 --precision f32 --grad-shards 4 --shard "dp=4,ep=2,zero=$zero"
    done
    planned 4 .06 -c moe --set num_hidden_layers=6 --set hidden_size=512 --set intermediate_size=512 --set num_local_experts=8 \
        --set vocab_size=8192 --precision f32 --grad-shards 4 --shard dp=4,ep=2,zero=1
}

@test "a model whose layers are one group has memory for one; gradients that are summed as integers" {
    planned 2 .06 -c rwkv7 --set num_hidden_layers=4 --set hidden_size=512 --grad-shards 2 --shard dp=2,zero=3
    wide 2 dp=2,zero=3 --checkpoint-every 6
    planned 2 .06 -c tiny --set num_hidden_layers=4 --set hidden_size=512 --set intermediate_size=1536 --set num_attention_heads=8 \
        --set num_key_value_heads=8 --set vocab_size=4096 --grad-shards 4 --gradients int8 --shard dp=2,zero=1
}

@test "slices and whole weights of layers that come from others, whole again while the first rank saves; gradients that take turns in few places" {
    planned 4 .05 -c tiny --set num_hidden_layers=6 --set hidden_size=512 --set intermediate_size=1536 --set num_attention_heads=8 \
        --set num_key_value_heads=8 --set vocab_size=8192 --grad-shards 2 --tensor-parts 2 --shard dp=2,tp=2,zero=3
    planned 4 .05 -c mla --set num_hidden_layers=6 --set hidden_size=512 --set intermediate_size=1536 --set num_attention_heads=8 \
        --set num_key_value_heads=8 --set vocab_size=8192 --grad-shards 2 --tensor-parts 2 --shard dp=2,tp=2,zero=3
    planned 2 .05 -c rwkv7 --set num_hidden_layers=4 --set hidden_size=512 --grad-shards 2 --shard dp=2,zero=1
}
