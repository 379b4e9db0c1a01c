# Texts that belong together: vectors that find each other.
load ../helper
export LLM_THREADS=1

setup_file() {
    # a question and its answer share a word
    awk 'BEGIN { split("red green small old quick cat dog bird fish hen", w)
        for (i = 0; i < 100; i++) { a = w[i % 10 + 1]; b = w[int(i / 10) % 10 + 1]
            printf "%s with %s\tthe %s has %s here\n", a, b, b, a } }' > pairs.tsv
    tr '\t' '\n' < pairs.tsv > text
    llm-tokenize train --vocab-size 300 -o tok.json text
    llm-tokenize encode -T tok.json --tsv --pair 1,2 -o data.tok pairs.tsv
    export F=$PWD
}

setup() {
    small=(--set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -l 16 --objective contrastive
        -T "$F/tok.json" "$F/data.tok")
    bert=(llm-train -q -c bert-mini "${small[@]}")
    llama=(llm-train -q -c tiny "${small[@]}")
}

@test "gradients pass the check: of an encoder's mean, a decoder's last token, and the scale" {
    "${bert[@]}" -b 5 --set initializer_range=0.2 --temperature .5 --gradcheck > checked
    grep -q '^logit_scale' checked
    run -1 grep -e pooler -e cls.predictions checked
    "${llama[@]}" -b 5 --temperature .5 --gradcheck > checked
    grep -q '^model.layers.1.self_attn.v_proj.weight' checked
}

@test "one batch is learned by heart; recall is in the log, and vectors find their texts" {
    without_sanitizer "${bert[@]}" -n 250 -b 8 --overfit-one --lr 3e-3
    run -0 --separate-stderr without_sanitizer "${bert[@]:0:1}" "${bert[@]:2}" -n 300 -b 32 --lr 3e-3 --val .1 --log log.jsonl -o m.llm
    [[ $stderr =~ "recall_at_1 "[01]\.[0-9]+ ]]
    assert_equal "$(jq -s 'map(.val_recall_at_1 // empty) | last > .3' log.jsonl)" true
    printf '%s\n' '{"prompt":"cat with old"}' '{"prompt":"dog with red"}' '{"prompt":"the old has cat here"}' '{"prompt":"the red has dog here"}' \
        | llm-infer -m m.llm --embed --jsonl | jq -s 'def dot($a; $b): [range($a | length) | $a[.] * $b[.]] | add; map(.embedding)
            | [dot(.[0]; .[2]) > dot(.[0]; .[3]), dot(.[1]; .[3]) > dot(.[1]; .[2]), (dot(.[0]; .[0]) - 1 | fabs) < 1e-5] | all' > right
    assert_equal "$(< right)" true
    assert_equal "$(jq -s 'map(has("bits_per_byte")) | any' log.jsonl)" false
}

@test "the same bytes by any threads and after an interruption; passes of a step are batches of their own" {
    for model in bert llama; do
        declare -n new=$model
        same_by_threads "${new[@]}" -n 5 -b 6 --dropout .1
        same_when_resumed 4 "${new[@]}" -b 6 --val .2 --eval-every 2
    done
    "${bert[@]}" -n 1 -b 8 --log eight.jsonl -o m.llm
    "${bert[@]}" -n 1 -b 4 --accumulate 2 --log four.jsonl -o m.llm
    # fewer to be told from: an easier task (ln 8 against ln 4, when nothing is known yet)
    assert_equal "$(jq -s '.[0].loss - .[1].loss | . > .4 and . < .9' eight.jsonl four.jsonl)" true
}

@test "the temperature begins where it is told, and stays when it is told" {
    scale() {
        llm-quantize -q -t f32 --to safetensors "$1" scale.safetensors
        local n from
        n=$(od -An -N8 -tu8 scale.safetensors | tr -d ' ')
        from=$(tail -c +9 scale.safetensors | dd bs="$n" count=1 2> /dev/null | jq '.logit_scale.data_offsets[0]')
        tail -c +$((9 + n + from)) scale.safetensors | od -An -N4 -tf4 | tr -d ' '
    }
    "${bert[@]}" -n 3 -b 6 --lr .01 --temperature .5 --fixed-temperature -o fixed.llm
    awk -v s="$(scale fixed.llm)" 'BEGIN { exit !(s > .69314 && s < .69316) }'
    "${bert[@]}" -n 3 -b 6 --lr .01 --temperature .5 -o free.llm
    awk -v s="$(scale free.llm)" 'BEGIN { exit !(s < .69 || s > .70) }'
    "${bert[@]}" -n 0 -o fresh.llm
    awk -v s="$(scale fresh.llm)" 'BEGIN { exit !(s > 2.659 && s < 2.66) }'
}

@test "other weights become such a model; what cannot be is one line" {
    llm-train -q -c tiny --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -l 16 -T "$F/tok.json" \
        -n 2 -o lm.llm "$F/data.tok"
    llm-train -q --init lm.llm --objective contrastive -n 2 -b 4 -o c.llm "$F/data.tok"
    llm-infer -m c.llm --embed "red dog" > v.llmt
    run -69 --separate-stderr llm-infer -m c.llm text
    assert_equal "$stderr" "llm-infer: c.llm: expected a model that predicts the next token, found one that compares texts (llama): llm-infer --embed"
    run -2 --separate-stderr "${bert[@]}" -b 1 -o m.llm
    one_line "$stderr"
    llm-tokenize encode -T "$F/tok.json" --lines -o plain.tok "$F/text"
    run -65 --separate-stderr llm-train -q --init lm.llm --objective contrastive -n 2 -b 4 -o m.llm plain.tok
    [[ $stderr =~ ^"llm-train: document "[0-9]+": expected two texts (llm-tokenize encode --pair), found 0 and "[0-9]+" tokens"$ ]]
    run -69 --separate-stderr llm-quantize -q -t f16 c.llm c.gguf
    one_line "$stderr"
    assert_not_exist m.llm c.gguf
}
