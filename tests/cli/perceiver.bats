# Perceivers: latents that look at a text once, as a language model and as a classifier.
load ../helper
export LLM_THREADS=1

setup_file() {
    sentences_tokens
    awk 'BEGIN { split("red green small old quick cat dog bird fish hen", w); split("good great fine lovely", g); split("bad awful poor nasty", b)
        for (i = 0; i < 300; i++) { p = int(i / 10) % 2
            printf "%s %s %s %s\t%s\n", w[i % 10 + 1], p ? g[i % 4 + 1] : b[i % 4 + 1], w[i * 3 % 10 + 1], w[int(i / 7) % 10 + 1], p ? "pos" : "neg" } }' > data.tsv
    llm-tokenize encode -T tok.json --tsv --label 2 -o classes.tok data.tsv
}

setup() {
    shape=(-q -c perceiver --set num_hidden_layers=3 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -T "$F/tok.json")
    lm=(llm-train "${shape[@]}" --set num_latents=8 -l 24 "$F/data.tok")
    learned=(llm-train "${shape[@]}" --set latents=learned --set num_latents=6 -l 32 --objective classify "$F/classes.tok")
}

@test "gradients pass the check, of both kinds" {
    "${lm[@]}" -b 2 --gradcheck > checked
    grep -q '^model.layers.2.self_attn.v_proj.weight' checked
    "${learned[@]}" -b 3 --set initializer_range=0.2 --gradcheck > checked
    grep -q '^model.latents.weight' checked
    grep -q '^model.layers.0.cross_attn.k_proj.weight' checked
    grep -q '^classifier.weight' checked
}

@test "one batch is learned by heart, classes are learned" {
    without_sanitizer "${lm[@]}" --cross-document -n 250 -b 2 --overfit-one --lr 5e-3
    "${learned[@]}" -n 60 -b 8 --overfit-one --lr 3e-3
    without_sanitizer "${learned[@]}" -n 200 -b 16 --lr 3e-3 --val .2 --log log.jsonl -o m.llm
    assert_equal "$(jq -s 'map(.val_accuracy // empty) | last > .9' log.jsonl)" true
    printf '{"prompt": "dog awful hen bird"}\n{"prompt": "red lovely fish cat"}\n' | llm-infer -m m.llm --classify --jsonl > said
    assert_equal "$(jq -r .label said | tr '\n' ' ')" "neg pos "
    llm-infer -m m.llm --classify "dog awful hen bird" | cut -f 1 | sed -n 1p | grep -qx neg
}

@test "the same bytes by any threads, any passes of a step, and after an interruption" {
    for kind in lm learned; do
        declare -n new=$kind
        same_by_threads "${new[@]}" -n 5 -b 4 --dropout .1 --set tie_word_embeddings=false
        same_steps "${new[@]}" -n 5 -b 1 --accumulate 4 --dropout .1 --set tie_word_embeddings=false
        same_steps "${new[@]}" -n 5 -b 4 --dropout .1 --set tie_word_embeddings=false --checkpoint-every 1
        same_when_resumed 4 "${new[@]}" -b 4 --val .2 --eval-every 2
    done
}

@test "text goes on over the latents' blocks, the same by a cache and read anew, and each token is seen from behind it alone" {
    "${lm[@]}" -n 60 -b 8 --lr 3e-3 -o m.llm
    llm-infer -m m.llm --precision f32 --temp 0 -n 24 --ignore-eos --ids "5 6 7" > ids
    for n in 4 11 17; do # what was said so far, read anew, is continued alike
        read -r -a said < ids
        run -0 llm-infer -m m.llm --precision f32 --temp 0 -n 1 --ignore-eos --ids "5 6 7 ${said[*]:0:n}"
        assert_output "${said[n]}"
    done
    llm-infer -m m.llm --precision f32 --temp 0 -n 24 --ignore-eos -b 5 --ids "5 6 7" | cmp - ids
    # blocks of more than a tile, in pieces that end anywhere, for several sequences, over caches of any type
    "${lm[@]}" --set num_latents=70 --set initializer_range=0.3 --set hidden_size=64 -l 200 -n 4 -b 2 --cross-document -o wide.llm
    for type in f32 q8_0; do
        infer=(llm-infer -m wide.llm --precision f32 --cache-type $type --ignore-eos)
        "${infer[@]}" --temp 0 -n 230 --ids "5 6 7" > ids
        read -r -a said < ids
        for n in 66 67 139; do
            for batch in 1 64 101 512; do
                run -0 "${infer[@]}" --temp 0 -n 1 -b $batch --ids "5 6 7 ${said[*]:0:n}"
                assert_output "${said[n]}"
            done
        done
        "${infer[@]}" -n 0 --ids "5 6 7 ${said[*]:0:80}" --kv-out all.kv
        run -0 "${infer[@]}" --kv-in all.kv --temp 0 -n 4 --ids "${said[*]:80:20}"
        assert_output "${said[*]:100:4}"
    done
    # 20 tokens; the 13th is another: what was said of the ones before it stays
    all="5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24"
    llm-infer -m m.llm --precision f32 --score --ids "$all" > one
    llm-infer -m m.llm --precision f32 --score --ids "${all/17/30}" > other
    cmp <(sed -n 1,11p one) <(sed -n 1,11p other)
    run -1 cmp -s <(sed -n 12,19p one) <(sed -n 12,19p other)
}

@test "learned latents without positions ignore the order of a text" {
    "${learned[@]}" --set position_embedding=none --set initializer_range=0.3 -n 0 -o m.llm
    for order in "4 9 17 30 8" "30 8 4 17 9" "4 9 17 30 7"; do
        llm-infer -m m.llm --precision f32 --embed --jsonl <<< "{\"ids\": [${order// /,}]}" | jq -c .embedding
    done > vectors
    run -0 jq -s '[.[0] as $a | .[1] as $b | .[2] as $c | range($a | length) | [($a[.] - $b[.] | fabs), ($a[.] - $c[.] | fabs)]]
        | (map(.[0]) | max) < 1e-4 and (map(.[1]) | max) > 1e-2' vectors
    assert_output true
}

@test "costs, plans, and what cannot be" {
    run -0 llm-bench cost perceiver
    # two heads of 64 in the first layer alone; of the other four those of 128 latents
    assert_line $'KV cache in bf16, one token\t512\tbytes'
    assert_line $'state in F32, one sequence\t524288\tbytes'
    run -0 llm-train "${shape[@]:1}" -n 10 --plan
    [[ $output == *parameters* ]]
    run -69 --separate-stderr "${lm[@]}" --objective prefix -o m.llm
    assert_equal "$stderr" "llm-train: --objective prefix: expected attention to all tokens, found blocks of latents (perceiver)"
    run -69 --separate-stderr llm-train "${shape[@]}" --set latents=learned -l 32 -o m.llm "$F/data.tok"
    one_line "$stderr"
    "${learned[@]}" -n 0 -o c.llm
    run -69 --separate-stderr llm-infer -m c.llm text
    one_line "$stderr"
    run -69 --separate-stderr llm-quantize -q -t f16 c.llm c.gguf
    one_line "$stderr"
    assert_not_exist m.llm c.gguf
}
