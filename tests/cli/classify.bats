# Classes of texts: labelled data, training, and what other people's classifiers say.
load ../helper
export LLM_THREADS=1

setup_file() {
    awk 'BEGIN { split("red green small old quick cat dog bird fish hen", w); split("good great fine lovely", g); split("bad awful poor nasty", b)
        for (i = 0; i < 400; i++) { p = i * 7 % 3
            x = p == 0 ? g[i % 4 + 1] : p == 1 ? b[i % 4 + 1] : "plain"
            printf "%s %s %s %s\t%s\n", w[i % 10 + 1], x, w[i * 3 % 10 + 1], w[int(i / 7) % 10 + 1], p == 0 ? "pos" : p == 1 ? "neg" : "none" } }' > data.tsv
    cut -f 1 data.tsv > text
    llm-tokenize train --vocab-size 320 -o tok.json text
    llm-tokenize encode -T tok.json --tsv --label 2 -o data.tok data.tsv
    export F=$PWD
}

setup() {
    bert=(llm-train -q -c bert-mini --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -l 20
        --objective classify -T "$F/tok.json" "$F/data.tok")
    llama=(llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -l 20
        --objective classify -T "$F/tok.json" "$F/data.tok")
}

@test "gradients pass the check: an encoder's pooler, its mean, a decoder's last token" {
    "${bert[@]}" -b 3 --set initializer_range=0.2 --gradcheck > checked
    grep -q '^classifier.bias' checked
    grep -q '^bert.pooler.dense.weight' checked
    "${bert[@]}" -b 3 --set initializer_range=0.2 --set pooling=mean --gradcheck > checked
    grep -q '^classifier.weight' checked
    run -1 grep pooler checked
    "${llama[@]}" -b 3 --gradcheck > checked
    grep -q '^score.weight' checked
    run -1 grep lm_head checked
}

@test "one batch is learned by heart" {
    "${bert[@]}" -n 60 -b 8 --overfit-one --lr 3e-3
    "${llama[@]}" -n 60 -b 8 --overfit-one --lr 3e-3
}

@test "the same bytes by any threads, any passes of a step, and after an interruption" {
    for model in bert llama; do
        declare -n new=$model
        same_by_threads "${new[@]}" -n 5 -b 4 --dropout .1
        same_steps "${new[@]}" -n 5 -b 1 --dropout .1 --accumulate 4
        same_when_resumed 3 "${new[@]}" -b 4 --val .2 --eval-every 2
    done
}

@test "classes are learned, the accuracy is in the log, and llm-infer says class and probabilities" {
    run -0 --separate-stderr without_sanitizer "${llama[@]:0:1}" "${llama[@]:2}" -n 120 -b 16 --lr 3e-3 --val .2 --log log.jsonl -o m.llm
    [[ $stderr =~ "accuracy "(1\.0000|0\.9[0-9]*) ]]
    assert_equal "$(jq -s 'map(.val_accuracy // empty) | last > .9' log.jsonl)" true
    assert_equal "$(jq -s 'map(has("bits_per_byte")) | any' log.jsonl)" false
    run -0 llm-infer -m m.llm --classify "dog awful hen"
    assert_equal "$(cut -f 1 <<< "${lines[0]}")" neg
    assert_equal "$(cut -f 1 <<< "$output" | sort | tr '\n' ' ')" "neg none pos "
    awk -F'\t' '{ s += $2; if (NR > 1 && $2 > before) bad = 1; before = $2 } END { exit bad || !(s > .99999 && s < 1.00001) }' <<< "$output"
    printf '{"id": "a", "prompt": "red lovely cat dog"}\n{"id": "b", "prompt": "red plain fish hen"}\n' > lines
    llm-infer -m m.llm --classify --format csv "dog awful hen" | tr -d '\r' | cmp - <(echo label,probability; tr '\t' , <<< "$output")
    run -0 llm-infer -q -m m.llm --classify --jsonl lines
    assert_equal "$(jq -r .label <<< "$output" | tr '\n' ' ')" "pos none "
    assert_equal "$(jq -c '.probabilities | keys' <<< "${lines[0]}")" '["neg","none","pos"]'
}

@test "a language model becomes a classifier with its weights, and a classifier goes on with its classes" {
    llm-train -q -c tiny --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 \
        --set tie_word_embeddings=false -l 20 -T "$F/tok.json" -n 3 -o lm.llm "$F/data.tok"
    llm-train -q --init lm.llm --objective classify -n 0 -o c.llm "$F/data.tok"
    llm-quantize -q -t f32 --to safetensors lm.llm lm.safetensors
    llm-quantize -q -t f32 --to safetensors c.llm c.safetensors
    shapes() { tail -c +9 "$1" | head -c "$(od -An -N8 -tu8 "$1")"; }
    assert_equal "$(shapes c.safetensors | jq -c '.["score.weight"].shape')" "[3,32]"
    assert_equal "$(shapes c.safetensors | jq 'has("lm_head.weight")')" false
    # the hidden states are the same
    llm-infer -m lm.llm --embed --pooling last --jsonl <<< '{"prompt": "red dog"}' > one
    llm-infer -m c.llm --embed --pooling last --jsonl <<< '{"prompt": "red dog"}' | cmp - one
    llm-train -q --init c.llm --objective classify -n 5 -b 16 --lr 3e-3 -o more.llm "$F/data.tok"
    sed -n 1,60p "$F/data.tsv" | grep -v none | llm-tokenize encode -T "$F/tok.json" --tsv --label 2 -o two.tok
    llm-train -q --init more.llm --objective classify -n 2 -o two.llm two.tok
    assert_equal "$(llm-infer -m two.llm --classify red | wc -l)" 3
    printf 'red dog\tother\n' | llm-tokenize encode -T "$F/tok.json" --tsv --label 2 -o other.tok
    run -65 --separate-stderr llm-train -q --init more.llm --objective classify -n 2 -o m.llm other.tok
    assert_equal "$stderr" "llm-train: training data: expected classes that the model knows (neg, ...), found 'other'"
}

@test "transformers' classifiers say what they say there, alone, many at once, of two texts" {
    for model in bert llama; do
        M=$ROOT/tests/golden/classify/$model
        jq -c '.texts[] | {ids} + (if .second then {second} else {} end)' "$M/expected.json" > texts.jsonl
        llm-infer -m "$M" --precision f32 --classify --jsonl texts.jsonl > found
        run -0 jq -s --slurpfile want "$M/expected.json" '. as $got | $want[0].texts | to_entries
            | map(.key as $t | .value.label == $got[$t].label and
                  ((.value.probabilities | to_entries | map(.key as $k | .value - $got[$t].probabilities[$k] | fabs) | max) < 5e-6)) | all' found
        assert_output true
        llm-infer -m "$M" --precision f32 --classify --jsonl -j 2 -b 7 texts.jsonl | cmp - found
        llm-quantize -q -t f32 "$M" model.llm
        llm-infer -m model.llm --precision f32 --classify --jsonl texts.jsonl | cmp - found
    done
    # what is written is a model that names itself as transformers does
    llm-quantize -q -t f32 --to safetensors "$ROOT/tests/golden/classify/bert" again.safetensors
    tail -c +9 again.safetensors | head -c "$(od -An -N8 -tu8 again.safetensors)" | jq '.__metadata__["llm.config"] | fromjson' > config
    assert_equal "$(jq -c '[.architectures, .id2label, .label2id]' config)" \
        '[["BertForSequenceClassification"],{"0":"no","1":"perhaps","2":"yes"},{"no":0,"perhaps":1,"yes":2}]'
}

@test "pairs of texts: a class of both" {
    awk 'BEGIN { split("red green small old quick cat dog bird fish hen", w)
        for (i = 0; i < 500; i++) { a = w[int(i / 2) % 10 + 1]; b = i % 2 ? a : w[(int(i / 2) * 3 + int(i / 20)) % 10 + 1]
            printf "{\"a\": \"%s\", \"b\": \"%s\", \"same\": %s}\n", a, b, a == b ? "true" : "false" } }' > pairs.jsonl
    llm-tokenize encode -T "$F/tok.json" --pair a,b --label same -o pairs.tok pairs.jsonl
    without_sanitizer "${bert[@]:0:$((${#bert[@]} - 1))}" -n 250 -b 32 --lr 3e-3 --val .1 --log log.jsonl -o m.llm pairs.tok
    assert_equal "$(jq -s 'map(.val_accuracy // empty) | last > .9' log.jsonl)" true
    printf '{"prompt": "dog", "pair": "dog"}\n{"prompt": "dog", "pair": "hen"}\n' | llm-infer -m m.llm --classify --jsonl > said
    assert_equal "$(jq -r .label said | tr '\n' ' ')" "true false "
}

@test "what cannot be is one line" {
    llm-tokenize encode -T "$F/tok.json" --lines -o plain.tok "$F/text"
    run -65 --separate-stderr "${bert[@]:0:$((${#bert[@]} - 1))}" -o m.llm plain.tok
    assert_equal "$stderr" "llm-train: --objective classify: training data: expected a class of each document (llm-tokenize encode --label), found none"
    printf 'red dog\tone\n' | llm-tokenize encode -T "$F/tok.json" --tsv --label 2 -o one.tok
    run -65 --separate-stderr "${bert[@]:0:$((${#bert[@]} - 1))}" -o m.llm one.tok
    assert_equal "$stderr" "llm-train: --objective classify: expected at least two classes (llm-tokenize encode --label), found 1"
    run -65 --separate-stderr "${bert[@]}" -l 2 -n 3 -o m.llm
    [[ $stderr =~ ^"llm-train: document "[0-9]+": expected at most 2 tokens (--context), found "[0-9]+ ]]
    run -65 --separate-stderr llm-tokenize encode -T "$F/tok.json" --tsv --label 3 "$F/data.tsv"
    [[ $stderr == "llm-tokenize encode: $F/data.tsv: line 1: field '3': expected a class: a text or an integer" ]]
    run -2 --separate-stderr llm-tokenize encode -T "$F/tok.json" --tsv "$F/data.tsv"
    one_line "$(sed -n 1p <<< "$stderr")"
    "${llama[@]}" -n 0 -o c.llm
    run -69 --separate-stderr llm-infer -m c.llm text
    assert_equal "$stderr" "llm-infer: c.llm: expected a model that predicts the next token, found one that tells classes apart (llama): llm-infer --classify"
    run -69 --separate-stderr llm-infer -m "$ROOT/tests/golden/tiny-bert" --classify text
    [[ $stderr == *"expected a model that tells classes apart (llm-train --objective classify), found another (bert)" ]]
    run -69 --separate-stderr llm-train -q --init c.llm -o m.llm plain.tok
    one_line "$stderr"
    run -69 --separate-stderr llm-quantize -q -t f16 c.llm c.gguf
    assert_equal "$stderr" "llm-quantize: c.gguf: num_labels: GGUF cannot say this of a model of type 'llama': expected none, found 3"
    assert_not_exist m.llm c.gguf
}
