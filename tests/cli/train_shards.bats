# --grad-shards S: the gradient of a step is the sum of a fixed tree over S shards of its rows, whose bits depend on S, never on passes or threads.
load ../helper
export LLM_THREADS=1

setup_file() { sentences_tokens; }

setup() {
    tied=(llm-train -q -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 --dropout .1 -l 24 -T "$F/tok.json" "$F/data.tok")
}

# The checkpoint of three steps of twelve rows does not depend on their division into passes, for each S of the list.
same_for_divisions() {
    local s
    for s in $1; do
        "${@:2}" -n 3 -b 12 --grad-shards "$s" -o "whole.$s.llm"
        "${@:2}" -n 3 -b 1 --accumulate 12 --grad-shards "$s" -o ones.llm
        "${@:2}" -n 3 -b 4 --accumulate 3 --grad-shards "$s" -j 2 -o fours.llm
        cmp "whole.$s.llm" ones.llm
        cmp "whole.$s.llm" fours.llm
    done
}

@test "1 x 12 = 12 x 1 = 3 x 4 rows, for 1, 2, 3, 4, 6 and 12 shards; their number does change the bits" {
    same_for_divisions "1 2 3 4 6 12" "${tied[@]}"
    "${tied[@]}" -n 3 -b 12 -o default.llm
    cmp default.llm whole.1.llm
    for s in 2 3 4 6 12; do cmp -s whole.1.llm whole.$s.llm && fail "$s shards: the same bytes as one"; done
    same_by_threads "${tied[@]}" -n 3 -b 12 --grad-shards 6
}

@test "so with the counts of routers, with layers that predict further, and with an encoder that looks tokens up too" {
    same_for_divisions "3 4" llm-train -q -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=5 \
        --set router_bias=true -l 24 -T "$F/tok.json" "$F/data.tok"
    same_for_divisions 6 llm-train -q -c tiny --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 \
        --set num_nextn_predict_layers=2 -l 24 -T "$F/tok.json" "$F/data.tok"
    seq 1 60 | jq -c '{q: "number \(.)", a: "\(.) is it"}' > pairs.jsonl
    llm-tokenize encode -q -T "$F/tok.json" --pair q,a -o pairs.tok pairs.jsonl
    same_for_divisions 12 llm-train -q -c t5-mini --set d_model=32 --set d_kv=16 --set num_layers=1 --set num_heads=2 --set d_ff=32 \
        --objective seq2seq -l 24 -T "$F/tok.json" pairs.tok
}

@test "rows that do not divide evenly: shards of 7 rows, passes across their bounds" {
    "${tied[@]}" -n 2 -b 7 --grad-shards 3 -o whole.llm
    "${tied[@]}" -n 2 -b 1 --accumulate 7 --grad-shards 3 -o ones.llm
    cmp whole.llm ones.llm
}

@test "a checkpoint has the number of shards, and goes on with it" {
    "${tied[@]}" -n 6 -b 12 --grad-shards 3 --schedule constant --warmup 2 -o straight.llm
    "${tied[@]}" -n 3 -b 12 --grad-shards 3 --schedule constant --warmup 2 -o part.llm
    zstd -dcq part.llm | head -c 20000 | grep -aq 'grad_shards\\":3'
    llm-train -q --resume part.llm -n 6 -b 2 -o resumed.llm
    cmp straight.llm resumed.llm
    # one shard is not worth a word: checkpoints are those of versions that did not know shards
    "${tied[@]}" -n 1 -b 12 --grad-shards 1 -o one.llm
    [[ $(zstd -dcq one.llm | head -c 20000 | grep -ac grad_shards) == 0 ]]
}

@test "a step of fewer rows than shards is refused, with --plan too; so are shards that divide a pass that is a batch of its own" {
    run -2 --separate-stderr "${tied[@]}" -n 1 -b 2 --accumulate 3 --grad-shards 7 -o x.llm
    assert_equal "$stderr" "llm-train: --grad-shards: expected at most 6 (rows of a step), found 7"
    run -2 --separate-stderr llm-train -c nano -b 2 -l 16 --grad-shards 3 --plan
    assert_equal "$stderr" "llm-train: --grad-shards: expected at most 2 (rows of a step), found 3"
    run -2 --separate-stderr "${tied[@]}" -n 1 -b 6 --accumulate 2 --set norm=batch --grad-shards 4 -o x.llm
    assert_equal "$stderr" "llm-train: --grad-shards: expected shards of whole passes, since the rows of a pass are a batch of their own here, found 4 shards of 2 passes"
    "${tied[@]}" -n 1 -b 6 --accumulate 2 --set norm=batch --grad-shards 2 -o x.llm
    run -2 --separate-stderr "${tied[@]}" -n 1 --grad-shards 0 -o x.llm
    [[ ! -e y.llm ]]
}

@test "--plan counts the buffers: at most ceil(log2 S) + 2" {
    local n=$((300 * 128 + 32 * 128 + 12 * 128 * 128 + 2 * 128 + 128))
    planned() {
        llm-train -c nano --set n_layer=1 --set vocab_size=300 -b 4 --accumulate 3 -l 32 --grad-shards "$1" --plan | awk '$1 == "gradient_bytes" { print $2 }'
    }
    assert_equal "$(planned 1)" $((4 * n + 4 * 128 * 300))
    assert_equal "$(planned 2)" $((2 * 4 * n + 4 * 128 * 192))
    assert_equal "$(planned 3)" $((2 * 4 * n + 4 * 128 * 128))
    assert_equal "$(planned 12)" $((4 * 4 * n + 4 * 128 * 32))
}
