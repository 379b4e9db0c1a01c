load ../helper

setup() {
    M=$ROOT/tests/golden/tiny-bert
    D=$ROOT/tests/golden/tiny
}

# differ FILE KEY: the largest difference between vectors in FILE and those that transformers made (tests/oracle/tiny_bert.py)
differ() {
    jq -s --arg key "$2" --slurpfile want "$M/expected.json" \
        '[.[] | .embedding] as $got | [range($got | length) as $t | range($got[$t] | length) as $k | $got[$t][$k] - $want[0][$t][$key][$k] | fabs] | max' "$1"
}

# below X LIMIT
below() {
    awk -v x="$1" -v limit="$2" 'BEGIN {exit !(x < limit)}'
}

@test "vectors of an encoder are those of transformers in double precision, pooled and normalised as the folder asks" {
    need_tool jq
    jq -c '.[] | {prompt}' "$M/expected.json" > texts.jsonl
    llm-infer -m "$M" --precision f32 --embed --jsonl texts.jsonl > mean.jsonl
    below "$(differ mean.jsonl mean)" 1e-6
    for pool in cls last; do
        llm-infer -m "$M" --precision f32 --embed --jsonl --pooling $pool --embd-normalize -1 texts.jsonl > $pool.jsonl
        below "$(differ $pool.jsonl $pool)" 2e-6
    done
    run -0 jq -c '[.id, .prompt_tokens]' mean.jsonl
    assert_output "$(jq -c '. as $all | range(length) | [. + 1, ($all[.].ids | length)]' "$M/expected.json")"
}

@test "a line's vector has the same bits alone, in other company, by ids, with any --threads and as a tensor" {
    need_tool jq
    jq -c '.[] | {prompt}' "$M/expected.json" > texts.jsonl
    llm-infer -m "$M" --embed --jsonl texts.jsonl | jq -c .embedding > all
    sed -n 3p texts.jsonl | llm-infer -m "$M" -j 1 --embed --jsonl | jq -c .embedding | cmp - <(sed -n 3p all)
    llm-infer -m "$M" -b 4 --embed --jsonl texts.jsonl | jq -c .embedding | cmp - all
    jq -c '.[] | {ids}' "$M/expected.json" | llm-infer -m "$M" --embed --jsonl | jq -c .embedding | cmp - all
    llm-infer -m "$M" --embed "$(jq -r '.[2].prompt' "$M/expected.json")" > one.llmt
    header=$(od -An -N8 -tu8 one.llmt | tr -d ' ')
    tail -c +$((8 + header + 1)) one.llmt | head -c 96 | od -An -v -w4 -tf4 > found
    assert_equal "$(wc -l < found)" 24
    near_lines found <(sed -n 3p all | jq '.[]') 1e-7
}

@test "lines carry their members along; a model of next tokens embeds lines too" {
    need_tool jq
    run -0 bash -c "echo '{\"id\": \"a\", \"prompt\": \"red\", \"kind\": [1]}' | llm-infer -q -m '$M' --embed --jsonl | jq -c 'del(.embedding)'"
    assert_output '{"id":"a","kind":[1],"prompt_tokens":3}'
    echo '{"prompt": "Once upon a time"}' | llm-infer -m "$D" --embed --jsonl | jq '.embedding[]' > line
    llm-infer -m "$D" --embed "Once upon a time" > one.llmt
    header=$(od -An -N8 -tu8 one.llmt | tr -d ' ')
    tail -c +$((8 + header + 1)) one.llmt | head -c "$((4 * $(wc -l < line)))" | od -An -v -w4 -tf4 > found
    near_lines found line 1e-6
}

@test "normalising: by length, by sum, by the largest, not at all" {
    need_tool jq
    for p in -1 0 1 2 3; do
        llm-infer -m "$M" --precision f32 --embed --embd-normalize "$p" --jsonl <<< '{"prompt": "the cat"}' > "n$p"
    done
    run -0 jq -c '[.embedding[] | fabs] | (max * 1000 | round)' n0
    assert_output 32760000
    run -0 jq -c '[.embedding[] | fabs] | (add * 1e6 | round)' n1
    assert_output 1000000
    run -0 jq -c '[.embedding[] | . * .] | (add * 1e6 | round)' n2
    assert_output 1000000
    run -0 jq -c '[.embedding[] | fabs | . * . * .] | (add * 1e6 | round)' n3
    assert_output 1000000
    run -0 jq -c '[.embedding[] | . * .] | add > 1.1' n-1
    assert_output true
}

@test "a checkpoint of an encoder keeps what it asks for" {
    llm-quantize -t f32 "$M" model.llm
    llm-infer -m "$M" --embed --jsonl <<< '{"prompt": "red cats"}' > a
    llm-infer -m model.llm --embed --jsonl <<< '{"prompt": "red cats"}' | cmp - a
}

@test "what an encoder cannot do is one line with status 69" {
    local says="expected a model that predicts the next token, found an encoder (bert): it embeds texts (llm-infer --embed)"
    run -69 --separate-stderr llm-infer -m "$M" "the cat"
    assert_equal "$stderr" "llm-infer: $M: $says"
    run -69 --separate-stderr llm-infer -m "$M" --score "the cat"
    assert_equal "$stderr" "llm-infer: $M: $says"
    run -69 --separate-stderr llm-infer -m "$M" --jsonl <<< '{"prompt": "x"}'
    assert_equal "$stderr" "llm-infer: $M: $says"
    run -69 --separate-stderr llm-infer -m "$M" --logits "the cat"
    [[ $stderr == "llm-infer: "*"expected a model with a masked-token head, found an encoder (bert) without one" ]]
    echo "the cat liked the garden" > text
    run -69 --separate-stderr llm-bench quality -m "$M" text
    assert_equal "$stderr" "llm-bench quality: $M: $says"
    run -69 --separate-stderr llm-bench speed -m "$M"
    [[ $stderr == *"$says" ]]
    run -2 --separate-stderr llm-infer -m "$M" --pooling cls "the cat"
    [[ $stderr == "llm-infer: --pooling and --embd-normalize go with --embed"* ]]
}

@test "--plan of an encoder: no cache" {
    run -0 llm-infer -m "$M" --plan
    assert_line $'cache_bytes\t0'
}

@test "bad lines and bad folders are refused by line and file" {
    run -65 --separate-stderr llm-infer -m "$M" --embed -q --jsonl <<< $'{"prompt": "red"}\n{"promt": "red"}'
    [[ $stderr == 'llm-infer: standard input: line 2: expected "prompt" (a string) or "ids" (a list)'* ]]
    run -65 --separate-stderr llm-infer -m "$M" --embed -q --jsonl <<< $'{"prompt": "red"}\n{"id": "b"}\n{"prompt": "dog"}\n[]'
    [[ $stderr == 'llm-infer: standard input: 2 of 4 lines cannot be used, the first: line 2: expected "prompt" (a string) or "ids" (a list)' ]]
    assert_equal "$(jq -c .id <<< "$output")" $'1\n"b"\n3\n4'
    assert_equal "$(jq -c .embedding <<< "${lines[2]}")" "$(llm-infer -m "$M" --embed --jsonl <<< '{"prompt": "dog"}' | jq -c .embedding)"
    assert_equal "${lines[1]}" '{"id":"b","error":"expected \"prompt\" (a string) or \"ids\" (a list)"}'
    run -65 --separate-stderr llm-infer -m "$M" --embed --jsonl <<< '{"ids": [1, 70000]}'
    [[ $stderr == *'line 1: "ids": element 1: expected a token id below '* ]]
    run -65 --separate-stderr llm-infer -m "$M" --embed "$(printf 'red %.0s' {1..40})"
    [[ $stderr == *"expected at most 32 tokens (the context), found 42" ]]
    cp -r "$M" folder
    echo '[{"type": "sentence_transformers.models.Pooling", "path": "../x"}]' > folder/modules.json
    run -65 --separate-stderr llm-infer -m folder --embed red
    [[ $stderr == *"folder/modules.json: path: expected a name in this folder, found '../x'" ]]
    echo '[{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]' > folder/modules.json
    run -69 --separate-stderr llm-infer -m folder --embed red
    [[ $stderr == *"folder: the model asks for vectors made in a way that is not supported (modules.json); --pooling chooses another" ]]
    llm-infer -m folder --embed --pooling mean red > v.llmt
    rm folder/modules.json
    sed -i 's/"model_type": "bert"/"model_type": "albert"/' folder/config.json
    run -65 --separate-stderr llm-infer -m folder --embed red
    [[ $stderr == *"model_type: expected one of gpt2, llama, "*", bert, "*"; found 'albert'"* ]]
}

@test "--normalize, --dims and prefixes: what is kept is normalised; the folder says how a query begins; a text stays in its line" {
    need_tool jq
    local line='{"id": "a", "text": "red cats", "page": 3}'
    run -0 bash -c "llm-infer -q -m '$M' --embed --jsonl <<< '$line' | jq -c 'del(.embedding)'"
    assert_output '{"id":"a","text":"red cats","page":3,"prompt_tokens":'"$(llm-infer -q -m "$M" --embed --jsonl <<< "$line" | jq .prompt_tokens)"'}'
    llm-infer -q -m "$M" --precision f32 --embed --jsonl --embd-normalize -1 <<< "$line" | jq -c '.embedding[:7]' > raw
    llm-infer -q -m "$M" --precision f32 --embed --jsonl --normalize --dims 7 <<< "$line" | jq -c .embedding > kept
    run -0 jq -n --slurpfile raw raw --slurpfile kept kept \
        '($raw[0] | map(. * .) | add | sqrt) as $n | [range(7) | $raw[0][.] / $n - $kept[0][.] | fabs] | max < 1e-6'
    assert_output true
    llm-infer -m "$M" --embed --normalize --dims 7 "red cats" > one.llmt
    header=$(od -An -N8 -tu8 one.llmt | tr -d ' ')
    assert_equal "$(($(wc -c < one.llmt) > 8 + header + 28))" 1
    near_lines <(tail -c +$((8 + header + 1)) one.llmt | head -c 28 | od -An -v -w4 -tf4) \
        <(llm-infer -m "$M" --embed --jsonl --normalize --dims 7 <<< '{"prompt": "red cats"}' | jq '.embedding[]') 1e-7
    run -2 llm-infer -m "$M" --embed --dims 1000 x
    assert_output "llm-infer: --dims: expected at most 24 (the width of the model's vectors), found 1000"
    cp -r "$M" folder
    llm-infer -m folder --embed --jsonl <<< '{"prompt": "the red cats"}' | jq .embedding > want
    llm-infer -m folder --embed --jsonl --embed-prefix "the " <<< '{"prompt": "red cats"}' | jq .embedding | cmp - want
    run -66 --separate-stderr llm-infer -m folder --embed --embed-as query --jsonl <<< '{"prompt": "red cats"}'
    echo '{"prompts": {"query": "the ", "document": "a "}}' > folder/config_sentence_transformers.json
    llm-infer -m folder --embed --jsonl --embed-as query <<< '{"text": "red cats"}' | jq .embedding | cmp - want
    llm-infer -m folder --embed --jsonl --embed-as passage <<< '{"text": "red cats"}' | jq .embedding > passage
    run -1 cmp passage want
    echo '{"prompts": {"query": "the "}}' > folder/config_sentence_transformers.json
    run -65 --separate-stderr llm-infer -m folder --embed --embed-as passage x
    assert_equal "$stderr" 'llm-infer: folder/config_sentence_transformers.json: expected the prefix "passage" in "prompts", found none'
}

@test "--rerank: the score of each text beside the query, from the best down, equal to that of a pair" {
    need_tool jq
    printf '{"prompt": "red", "chosen": " cat", "rejected": " dog"}\n' > pairs.jsonl
    llm-tokenize train --model byte --special '</s>' -o tok.json /dev/null
    llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -l 40 \
        --objective reward -T tok.json -n 3 -b 1 --lr 1e-2 -o r.llm pairs.jsonl
    printf '{"id": %d, "text": "%s"}\n' 1 " cat" 2 " dog" 3 " old house" 4 " dog" > lines
    llm-infer -q -m r.llm --jsonl --rerank "red" lines > ranked
    assert_equal "$(jq -s 'length' ranked)" 4
    assert_equal "$(jq -s '[.[].score] as $s | $s == ($s | sort | reverse)' ranked)" true
    assert_equal "$(jq -s -c '[.[].id] | index(2) < index(4)' ranked)" true
    assert_equal "$(jq -s -c 'map(select(.id == 2 or .id == 4).score) | .[0] == .[1]' ranked)" true
    jq -c '{id, prompt: ("red" + .text)}' lines | llm-infer -q -m r.llm --jsonl --score-reward | jq -c '[.id, .reward]' | sort > rewards
    jq -c '[.id, .score]' ranked | sort | cmp - rewards
    llm-infer -q -j 1 -m r.llm --jsonl --rerank "red" lines | cmp - ranked
    run -65 --separate-stderr llm-infer -q -m r.llm --jsonl --rerank "red" <<< '{"id": 1}'
    run -2 llm-infer -m r.llm --rerank "red" x
    run -69 --separate-stderr llm-infer -m "$D" --jsonl --rerank "red" lines
}

# headed FILE OUT FILTER [BYTES]: FILE (.safetensors) with what the jq filter makes of its header, and BYTES zero bytes after its tensors
headed() {
    local n text
    n=$(od -An -N8 -tu8 "$1" | tr -d ' ')
    text=$(tail -c +9 "$1" | head -c "$n" | jq -c --argjson end "$(($(stat -c %s "$1") - 8 - n))" "$3")
    {
        printf "$(printf '\\x%02x\\x%02x\\0\\0\\0\\0\\0\\0' $((${#text} % 256)) $((${#text} / 256)))"
        printf %s "$text"
        tail -c +$((9 + n)) "$1"
        head -c "${4:-0}" /dev/zero
    } > "$2"
}

@test "a masked-token head apart from the embeddings has the bias of its matrix, as in transformers; other files have it under the older name" {
    need_tool jq
    yes "red cats liked the old garden and the dog" | head -n 40 | llm-tokenize encode -T "$M/tokenizer.json" -o t.tok
    llm-train -q -c bert-mini --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 \
        --set tie_word_embeddings=false -T "$M/tokenizer.json" --objective mlm -l 16 -b 2 -n 3 --lr .1 -o m.safetensors t.tok
    logits() { llm-infer -q -m "$1" --precision f32 --logits --ids "2 5 9 4 7 3" -o "$2"; }
    logits m.safetensors want
    [[ $(stat -c %s want) -gt $((6 * 4 * $(jq .vocab_size "$M/config.json"))) ]]
    local own='."cls.predictions.decoder.bias"' old='."cls.predictions.bias"'
    headed m.safetensors both.safetensors "$own //= $old | $old = ($own | .data_offsets = [\$end, \$end + 4 * .shape[0]])" \
        $((4 * $(jq .vocab_size "$M/config.json")))
    logits both.safetensors got
    cmp got want
    headed m.safetensors older.safetensors "$old //= $own | del($own)"
    logits older.safetensors got
    cmp got want
    llm-quantize -q -t f32 older.safetensors again.safetensors
    run -0 grep -ac '"cls.predictions.decoder.bias"' again.safetensors
    llm-quantize -q -t keep m.safetensors parts/ # the older bias, of zeros, in a file of its own
    mv parts/model.safetensors parts/1.safetensors
    headed parts/1.safetensors parts/2.safetensors "{\"cls.predictions.bias\": ($own | .data_offsets = [0, 4 * .shape[0]])}"
    truncate -s $((8 + $(od -An -N8 -tu8 parts/2.safetensors))) parts/2.safetensors
    truncate -s +$((4 * $(jq .vocab_size "$M/config.json"))) parts/2.safetensors
    head -c $((8 + $(od -An -N8 -tu8 parts/1.safetensors))) parts/1.safetensors | tail -c +9 | jq '{weight_map: (del(.__metadata__)
        | map_values("1.safetensors") + {"cls.predictions.bias": "2.safetensors"})}' > parts/model.safetensors.index.json
    logits parts got
    cmp got want
}
