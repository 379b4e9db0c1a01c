# llm-train --gradients int8: shards are rounded to integers of the largest magnitude in any of them, and added as integers: the same bits on any number
# of ranks, for any division into passes.
load ../helper
load ../mpi

setup_file() { sentences_tokens; }

setup() {
    gpt=(llm-train -q -j 1 -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 -l 24 -T "$F/tok.json" "$F/data.tok" --gradients int8)
}

@test "passes and threads do not change the bits; shards do; a run goes on with it" {
    local of=("${gpt[@]}" -n 4 --dropout .1 --schedule constant --warmup 1)
    "${of[@]}" -b 12 --grad-shards 4 -o whole.llm
    "${of[@]}" -b 1 --accumulate 12 --grad-shards 4 -j 2 -o ones.llm
    cmp whole.llm ones.llm
    "${of[@]}" -b 12 --grad-shards 3 -o three.llm
    refute cmp -s whole.llm three.llm
    "${of[@]}" -b 12 --grad-shards 4 --gradients f32 -o f32.llm
    refute cmp -s whole.llm f32.llm
    zstd -dcq whole.llm | head -c 20000 | grep -aq 'gradients\\":\\"int8'
    "${of[@]}" -n 2 -b 12 --grad-shards 4 -o part.llm
    llm-train -q --resume part.llm -n 4
    cmp whole.llm part.llm
}

@test "1, 2, 3 and 4 ranks, ZeRO 0 and 1: the bits of one process, with Muon, an adapter and replicas too" {
    need_mpi
    same_for "2 3 4" "0 1" "${gpt[@]}" -n 3 -b 4 --accumulate 3 --grad-shards 12 --val .2 --eval-every 2
    same_for "4" "0 1" "${gpt[@]}" -n 2 -b 4 --grad-shards 4 --optimizer muon
    "${gpt[@]}" -n 1 -b 4 -o base.llm
    same_for "3" "1" llm-train --init base.llm --adapter lora -q -j 1 -l 24 "$F/data.tok" -n 2 -b 6 --grad-shards 6 --gradients int8
    same_for "2 3" "0" "${gpt[@]}" -n 4 -b 12 --outer diloco --inner-steps 2 --grad-shards 3
}

@test "what ranks send: less than half of what f32 sends, and what --plan says" {
    need_mpi
    local nano=(llm-train -q -j 1 -c nano --set vocab_size=300 --set n_layer=2 -b 4 -l 24 --grad-shards 4 --gradients int8) z int8 f32 planned
    for z in 0 1; do
        ranks 4 "${nano[@]}" -n 2 --shard "zero=$z" -o x.llm --log int8.log "$F/data.tok"
        ranks 4 "${nano[@]}" -n 2 --shard "zero=$z" -o x.llm --log f32.log --gradients f32 "$F/data.tok"
        int8=$(tail -n 1 int8.log | jq .comm_bytes)
        f32=$(tail -n 1 f32.log | jq .comm_bytes)
        planned=$("${nano[@]}" --shard "dp=4,zero=$z" --plan | awk '$1 == "rank_sent_bytes" { print $2 }')
        awk -v z=$z -v a="$int8" -v b="$f32" -v p="$planned" \
            'BEGIN { print a, b, p; exit !(a < (z ? .68 : .45) * b && (p - a) ^ 2 < (.05 * a + 65536) ^ 2) }'
    done
}

@test "a gradient that is not finite is named; what does not go with it is refused by name" {
    run -1 --separate-stderr "${gpt[@]}" -n 4 -b 4 --grad-shards 4 --lr 1e6 --optimizer sgd --warmup 0 --clip 0 -o x.llm
    [[ $stderr =~ ^"llm-train: step "[0-9]+": the "(loss|"norm of the gradient")" is "("not a number"|infinite)": first bad tensor: " ]]
    run -2 --separate-stderr "${gpt[@]}" -n 2 -b 4 --set norm=batch -o x.llm
    [[ $stderr =~ ^"llm-train: --gradients int8: expected a model whose gradients are no counts and statistics, found '"[^\']+"'"$ ]]
    need_mpi
    run -2 --separate-stderr ranks 2 "${gpt[@]}" -n 2 -b 4 --grad-shards 2 --shard zero=2 -o x.llm
    assert_equal "$stderr" "llm-train: --shard: expected zero=0 or 1 with --gradients int8, found zero=2"
    [[ ! -e x.llm ]]
}
