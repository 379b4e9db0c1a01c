# Distillation of hidden states and embeddings (llm-train --objective distill --match).
load ../helper
export LLM_THREADS=1

setup_file() {
    awk 'BEGIN { split("red green small old quick cat dog bird fish hen", w)
        for (i = 0; i < 300; i++) printf "%s is %s and %s\n", w[i % 10 + 1], w[int(i / 10) % 10 + 1], w[i * 7 % 10 + 1] }' > text
    llm-tokenize train -q --vocab-size 290 -o tok.json text
    llm-tokenize encode -T tok.json --lines -o data.tok text
    llm-train -q -c bert-mini --set num_hidden_layers=2 --set hidden_size=48 --set intermediate_size=96 --set num_attention_heads=4 -T tok.json -l 24 \
        -n 60 --objective mlm -b 8 --lr 3e-3 -o teacher.llm data.tok
    export F=$PWD
}

setup() {
    student=(llm-train -q -c bert-mini --set num_hidden_layers=1 --set intermediate_size=48 --set num_attention_heads=2 -T "$F/tok.json" -l 24
        --objective distill --teacher "$F/teacher.llm")
    narrow=("${student[@]}" --set hidden_size=32)
}

@test "gradients pass the check: hidden states and embeddings, squared error and cosine, with a projection and without, of encoders and decoders" {
    for what in hidden embedding; do
        for loss in mse cosine; do
            for width in 32 48; do
                "${student[@]}" --set hidden_size=$width --set initializer_range=0.2 --match $what --match-loss $loss -b 3 --gradcheck "$F/data.tok" > checked
                [[ $width == 48 ]] || grep -q ^match.weight checked
            done
        done
    done
    llm-train -q -c tiny --set vocab_size=291 --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -T "$F/tok.json" -l 24 \
        --objective distill --teacher "$F/teacher.llm" --match hidden -b 3 --gradcheck "$F/data.tok" > /dev/null
}

@test "the student's vectors come to be the teacher's, of texts that it has not seen, too" {
    for what in hidden embedding; do
        for loss in mse cosine; do
            without_sanitizer "${narrow[@]}" --match $what --match-loss $loss -b 8 -n 150 --lr 3e-3 --val .1 --log log -o m.llm "$F/data.tok"
            jq -es --arg loss $loss '.[0].cosine < .3 and .[-1].val_cosine > .98 and .[-1].val_loss < .[0].loss / 20
                and ($loss == "mse" or (.[-1].loss - 1 + .[-1].cosine | fabs < 1e-6))' log
        done
    done
    without_sanitizer "${student[@]}" --set hidden_size=48 --match embedding -b 8 -n 150 --lr 3e-3 -o same.llm "$F/data.tok"
    for m in "$F/teacher.llm" same.llm; do # of equal width nothing stands between them
        llm-infer -q -m "$m" --embed --jsonl <<< '{"prompt": "green is old and bird"}' | jq '.embedding[]' > "$(basename "$m").vector"
    done
    paste teacher.llm.vector same.llm.vector | awk '{ xy += $1 * $2; xx += $1 * $1; yy += $2 * $2 } END { exit !(NR == 48 && xy / sqrt(xx * yy) > .95) }'
    llm-train -q --init "$F/teacher.llm" -l 24 --objective distill --teacher "$F/teacher.llm" --match hidden --lr 0 -n 1 -b 4 --log log -o x.llm "$F/data.tok"
    jq -es '.[0].loss == 0 and .[0].cosine > .999999' log
}

@test "the same bytes by any threads, any passes of a step, and after an interruption" {
    cp "$F/data.tok" "$F/teacher.llm" .
    for what in hidden embedding; do
        new=("${narrow[@]/"$F/teacher.llm"/teacher.llm}" --dropout .1 --match $what data.tok)
        same_by_threads "${new[@]}" -n 6 -b 4
        same_steps "${new[@]}" -n 6 -b 1 --accumulate 4
        same_steps "${new[@]}" -n 6 -b 2 --accumulate 2 --checkpoint-every 1
        same_when_resumed 3 "${new[@]}" -b 4 --match-loss cosine --val .2 --eval-every 2
    done
}

# refused STATUS TEXT OPTION...
refused() {
    run -"$1" --separate-stderr "${@:3}"
    [[ $stderr == *"$2"* ]] || fail "expected '$2', found '$stderr'"
    [[ $(grep -c ^llm-train: <<< "$stderr") == 1 && ! -e x.llm ]]
}

@test "what cannot be matched is refused by name" {
    refused 2 '--match: expected hidden or embedding with an encoder (bert), found logits' "${narrow[@]}" -o x.llm "$F/data.tok"
    refused 2 '--objective distill: expected --teacher MODEL' "${narrow[@]/--teacher/--val}" --match embedding -o x.llm "$F/data.tok"
    refused 2 '--match: expected no --temperature, which is about distributions' "${narrow[@]}" --match hidden --temperature 2 -o x.llm "$F/data.tok"
    refused 2 '--match: expected no --jsd-beta' "${narrow[@]}" --match hidden --jsd-beta .5 -o x.llm "$F/data.tok"
    refused 65 'expected a vocabulary of ' "${narrow[@]}" --set vocab_size=400 --match hidden -o x.llm "$F/data.tok"
    refused 65 ': expected at most 3 tokens (--context), found ' "${narrow[@]}" --match hidden -l 3 -b 300 -o x.llm "$F/data.tok"
}
