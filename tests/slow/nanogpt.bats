# nanoGPT's setting for a CPU on tinyshakespeare, character by character: 4 layers, 4 heads, 128 wide, context 64, batch 12, 2000 steps, no dropout, no
# biases, lr 1e-3 to 1e-4 after 100 steps of warm-up, beta2 .99. PyTorch reaches 1.895 to 1.911 nats on the whole validation split, by seed.
# tests/oracle/train_nanogpt.py compares with PyTorch from the same weights and batches.
load ../helper

setup_file() {
    local text=$SHARED/data/corpora/tinyshakespeare.txt
    [[ -e $text ]] || return 0
    llm-tokenize train --model char -o char.json "$text"
    head -c 1003854 "$text" | llm-tokenize encode -T char.json -o train.tok -
    tail -c +1003855 "$text" | llm-tokenize encode -T char.json -o val.tok -
    export F=$PWD
}

# trained PRECISION SEED: the validation loss at step 2000
trained() {
    llm-train -q -c nano -T "$F/char.json" -l 64 -b 12 -n 2000 --order random --lr 1e-3 --min-lr 1e-4 --warmup 100 --beta2 .99 --precision "$1" \
        --seed "$2" --val "$F/val.tok" --eval-every 0 --log log -o model.llm "$F/train.tok"
    tail -n 1 log | jq .val_loss
}

@test "the split is that of the reference" {
    need_shared corpora/tinyshakespeare.txt
    assert_equal "$(llm-tokenize info -T "$F/char.json" | awk '$1 == "vocab_size" { print $2 }')" 65
    assert_equal "$(llm-tokenize decode -T "$F/char.json" "$F/train.tok" | wc -c)" 1003854
    assert_equal "$(llm-tokenize decode -T "$F/char.json" "$F/val.tok" | wc -c)" 111540
}

@test "the mean of three seeds is at most 1.91 on the whole validation split, in BF16" {
    need_shared corpora/tinyshakespeare.txt
    local losses
    losses="$(trained bf16 1) $(trained bf16 2) $(trained bf16 3)"
    echo "# bf16: $losses" >&3
    awk '{ exit !(($1 + $2 + $3) / 3 <= 1.91) }' <<< "$losses" || fail "$losses"
}

@test "and in FP32" {
    need_shared corpora/tinyshakespeare.txt
    local losses
    losses="$(trained f32 1) $(trained f32 2) $(trained f32 3)"
    echo "# f32: $losses" >&3
    awk '{ exit !(($1 + $2 + $3) / 3 <= 1.91) }' <<< "$losses" || fail "$losses"
}
