# Speculation by the model's own layers that predict further: the text is the same, only the time differs.
# All sources of drafts with all models and samplers: tests/slow/draft.bats.
load ../helper
load ../draft

@test "the text without drafts, greedily and by chance, for every kind of cache" {
    for model in plain mla window; do
        for how in "--temp 0" "--temp 1 --seed 5" "--temp 0.7 --top-k 8 --repeat-penalty 1.2 --seed 9" "--temp 1.5 --samples 5 --seed 2" \
            "--mirostat 2 --mirostat-ent 2 --temp 1.2 --samples 2" "--adaptive-target 0.2 --dry-multiplier 1 --xtc-probability 0.5 --top-n-sigma 2"; do
            for prompt in "the old dog sees the small cat and the" "a"; do
                llm-infer -m "$F/$model.llm" -q -n 60 --ignore-eos $how "$prompt" > want
                for draft in 1 3; do
                    llm-infer -m "$F/$model.llm" -q -n 60 --ignore-eos $how --draft-max $draft "$prompt" > got
                    cmp want got || fail "$model $how $draft $prompt"
                done
                llm-infer -m "$F/$model.llm" -q -n 60 --ignore-eos $how --draft-max 2 -b 3 -j 2 "$prompt" > got
                cmp want got || fail "$model $how: small passes"
            done
        done
    done
}

@test "many prompts at once, ends, stops and limits as without" {
    printf '{"prompt": "the %s", "tokens": %d}\n' red 9 old 1 small 30 dog 0 cat 17 > prompts.jsonl
    for how in "" "--parallel 2" "--stop cat" "--samples 3 --parallel 4" "--context 20"; do
        llm-infer -m "$F/plain.llm" -q --jsonl --no-timings --temp 1 $how < prompts.jsonl > want
        llm-infer -m "$F/plain.llm" -q --jsonl --no-timings --temp 1 --draft-max 3 $how < prompts.jsonl > got
        cmp want got || fail "$how"
    done
}

@test "a cache holds what was said and no draft" {
    for model in plain mla; do
        llm-infer -m "$F/$model.llm" -q -n 31 --ignore-eos --temp 0 --kv-out want.kv "the red cat" > want
        llm-infer -m "$F/$model.llm" -q -n 31 --ignore-eos --temp 0 --kv-out got.kv --draft-max 3 "the red cat" > got
        cmp want.kv got.kv || fail "$model"
        llm-infer -m "$F/$model.llm" -q -n 9 --temp 0 --kv-in want.kv > want
        llm-infer -m "$F/$model.llm" -q -n 9 --temp 0 --kv-in got.kv --draft-max 2 > got
        cmp want got || fail "$model: from a cache"
    done
}

@test "drafts are right more often than not where the model learned them, and are counted" {
    echo '{"prompt": "the red"}' | llm-infer -m "$F/plain.llm" -q --jsonl --temp 0 -n 60 --ignore-eos --draft-max 1 > line
    jq -e '.timings.draft_n > 20 and .timings.draft_n_accepted > .timings.draft_n / 2 and .timings.draft_n_accepted <= .timings.draft_n' line
    echo '{"prompt": "the red"}' | llm-infer -m "$F/plain.llm" -q --jsonl --temp 0 -n 60 | jq -e '.timings | has("draft_n") | not'
    run --separate-stderr llm-infer -v -m "$F/plain.llm" --temp 0 -n 60 --ignore-eos --draft-max 1 "the red"
    [[ $stderr =~ [0-9]+" tokens drafted, "[0-9]+" of them right (0."[0-9]+")" ]]
}

@test "by chance: the first and second tokens are drawn as the model's probabilities say" {
    # 2,000 completions of two tokens from one prompt: the same counts with drafts, since each is the same
    without_sanitizer llm-infer -m "$F/plain.llm" -q -n 2 --ignore-eos --temp 1.3 --top-k 0 --top-p 1 --min-p 0 --samples 2000 --parallel 256 "the" > want
    without_sanitizer llm-infer -m "$F/plain.llm" -q -n 2 --ignore-eos --temp 1.3 --top-k 0 --top-p 1 --min-p 0 --samples 2000 --parallel 256 --draft-max 1 "the" > got
    cmp want got
    [ "$(sort -u got | wc -l)" -gt 20 ]
}

@test "--accept maximal: the distribution stays, tokens of a temperature of 0 and of Mirostat too; a model accepts all of its own drafts" {
    local b=(llm-infer -m "$F/plain.llm" -q --ignore-eos --draft "$F/draft.llm" --draft-max 2) how
    for how in "--temp 0" "--mirostat 2 --temp 1"; do
        # shellcheck disable=SC2086
        "${b[@]}" -n 40 $how "the old dog" > want
        # shellcheck disable=SC2086
        "${b[@]}" -n 40 $how --accept maximal "the old dog" | cmp - want || fail "$how"
    done
    llm-infer -m "$F/plain.llm" -q --jsonl --temp 1 --top-k 0 --ignore-eos -n 60 --draft "$F/plain.llm" --accept maximal <<< '{"prompt": "the"}' |
        jq -e '.timings.draft_n > 30 and .timings.draft_n_accepted == .timings.draft_n'
    # the second of three tokens of 3,000 completions, drafted by an untrained model, beside as many without drafts: chi-square of two samples
    b=(llm-infer -m "$F/plain.llm" -q --jsonl --no-timings --ids --ignore-eos -n 3 --temp 1.2 --samples 3000 --parallel 256)
    jq -nc '{ids: [70, 80]}' > one.jsonl
    without_sanitizer "${b[@]}" --seed 1 one.jsonl | jq '.ids[1]' > plain
    without_sanitizer "${b[@]}" --seed 2 --draft "$F/draft.llm" --accept maximal one.jsonl | jq '.ids[1]' > drafted
    run ! cmp -s plain drafted
    awk 'NR == FNR { a[$1]++; t[$1]++; next } { b[$1]++; t[$1]++ }
        END { for (k in t) if (t[k] >= 10) { d = a[k] - b[k]; chi += d * d / t[k]; n++ }
              print chi, n; exit !(n > 3 && chi < n + 5 * sqrt(2 * n)) }' plain drafted
    refused 2 "--accept is of drafts of a model" llm-infer -m "$F/plain.llm" --accept maximal the
    refused 2 "--resume: expected --accept exact" llm-infer -m "$F/plain.llm" --accept maximal --draft "$F/draft.llm" --jsonl -o out --resume
}

@test "a model without such layers is refused" {
    llm-train -q -c tiny --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 -l 24 -n 0 -T "$F/tok.json" -o m.llm "$F/data.tok"
    run -69 --separate-stderr llm-infer -m m.llm --draft-max 1 "the"
    one_line "$stderr"
    [[ $stderr == *num_nextn_predict_layers* ]]
}

@test "drafts of repetitions and by a smaller model: the text without, greedily and by chance, one prompt and many" {
    local from again
    drafted 3
    # branches of drafts leave no trace in the cache either
    llm-infer -m "$F/window.llm" -q -n 60 --ignore-eos --temp 0 --kv-out want.kv "the old dog sees the small cat and the old dog sees" > want
    for from in "--draft-ngram" "--draft $F/draft.llm" "--draft $F/ngram.llm --draft-ngram -j 2"; do
        # shellcheck disable=SC2086
        llm-infer -m "$F/window.llm" -q -n 60 --ignore-eos --temp 0 --kv-out got.kv $from "the old dog sees the small cat and the old dog sees" > got
        cmp got.kv want.kv || fail "$from: the cache"
    done
    # a model that drafts for itself is right, but where rounding would differ, and that is nowhere; five passes of 11 drafts have no room for branches
    llm-infer -m "$F/plain.llm" -q --jsonl --temp 1 --top-k 0 --ignore-eos -n 62 --draft "$F/plain.llm" --draft-max 11 <<< '{"prompt": "the"}' |
        jq -e '.timings.draft_n > 30 and .timings.draft_n_accepted == .timings.draft_n'
    again='the red dog sees a cat. the red dog sees a cat. the red dog sees a'
    llm-infer -m "$F/plain.llm" -q --jsonl --temp 0 --ignore-eos -n 60 --draft-ngram <<< "{\"prompt\": \"$again\"}" | jq -e '.timings.draft_n_accepted > 5'
    printf '%s\n' 'the red' 'dog sees' > turns
    llm-infer -m "$F/plain.llm" -q --chat --chat-template chatml --lines -n 20 -f turns > want
    llm-infer -m "$F/plain.llm" -q --chat --chat-template chatml --lines -n 20 -f turns --draft "$F/draft.llm" | cmp - want
    llm-infer -m "$F/plain.llm" -q --chat --chat-template chatml --lines -n 20 -f turns --draft-ngram | cmp - want
}

@test "a smaller model drafts where the text does not repeat, beside repetitions and by tables of n-grams; of a model that costs as much, few drafts" {
    local line='{"prompt": "the"}' b=(llm-infer -q --jsonl --temp 0 --ignore-eos) again='the red dog sees a cat. the red dog sees a cat. the red dog sees a'
    "${b[@]}" -m "$F/plain.llm" -n 60 --draft "$F/ngram.llm" <<< "$line" | jq -e '.timings | .draft_n > 20 and .draft_n_accepted > .draft_n / 4'
    "${b[@]}" -m "$F/plain.llm" -n 4 --draft-ngram <<< "$line" | jq -e '.timings.draft_n == 0'
    "${b[@]}" -m "$F/plain.llm" -n 4 --draft-ngram --draft "$F/plain.llm" <<< "$line" |
        jq -e '.timings | .draft_n == 2 and .draft_n_accepted == 1' # a draft of one token, beside it a branch of one
    "${b[@]}" -m "$F/plain.llm" -n 60 --draft-ngram --draft "$F/draft.llm" <<< "{\"prompt\": \"$again\"}" | jq -e '.timings.draft_n_accepted > 5'
    # the first 6 passes draft 8 each; then only what pays, and a model of the same size with few right drafts does not
    llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 -T "$F/tok.json" -n 0 --seed 9 -o untrained.llm "$F/data.tok"
    "${b[@]}" -m "$F/plain.llm" -n 400 -c 500 --draft untrained.llm <<< "$line" | jq -e '.timings.draft_n < 400'
}

@test "drafts for recurrent models: the text without, greedily and by chance, one prompt and many, bounded memory, saved states" {
    local model how from train=(llm-train -q --set num_hidden_layers=2 --set hidden_size=32 -l 24 -T "$F/tok.json" -b 4 --lr 3e-3 -n 60 --cross-document)
    printf '{"prompt": "the %s", "tokens": %d}\n' red 30 old 1 small 60 dog 0 cat 17 red 40 > prompts.jsonl
    "${train[@]}" -c mamba -o mamba.llm "$F/data.tok"
    "${train[@]}" -c mamba2 --set num_heads=8 --set head_dim=8 -o mamba2.llm "$F/data.tok"
    llm-train -q -c lstm --set hidden_size=32 -l 24 -T "$F/tok.json" -b 4 --lr 3e-3 -n 60 --cross-document -o lstm.llm "$F/data.tok"
    for model in mamba mamba2 lstm; do
        for how in "--temp 0" "--temp 1 --seed 5 --samples 3" "--mirostat 2 --mirostat-ent 2"; do
            # shellcheck disable=SC2086
            llm-infer -m $model.llm -q -n 60 --ignore-eos $how --samples 1 --kv-out want.kv "the old dog sees the small cat and the old dog sees" > want
            # shellcheck disable=SC2086
            llm-infer -m $model.llm -q --jsonl --no-timings --ignore-eos $how prompts.jsonl > want.jsonl
            for from in "--draft-ngram" "--draft $F/draft.llm --draft-max 3" "--draft $F/ngram.llm --draft-ngram -b 5 -j 2" "--draft $F/ngram.llm --memory 60M"; do
                # shellcheck disable=SC2086
                llm-infer -m $model.llm -q -n 60 --ignore-eos $how --samples 1 ${from% --memory*} --kv-out got.kv \
                    "the old dog sees the small cat and the old dog sees" | cmp - want || fail "$model $how $from"
                cmp got.kv want.kv || fail "$model $how $from: the state"
                # shellcheck disable=SC2086
                llm-infer -m $model.llm -q --jsonl --no-timings --ignore-eos --parallel 4 $how $from prompts.jsonl | cmp - want.jsonl || fail "$model $how $from"
            done
        done
    done
    llm-infer -m mamba.llm -q --jsonl --temp 0 --ignore-eos -n 60 --draft "$F/ngram.llm" <<< '{"prompt": "the"}' > line
    jq -e '.timings | .draft_n_accepted > 0 and .draft_n_accepted < .draft_n' line || fail "$(< line)"
}

@test "drafts: another tokenizer and states are refused" {
    refused 65 "expected a vocabulary of" llm-infer -m "$F/plain.llm" --draft "$ROOT/tests/golden/tiny" "the"
    refused 66 "none.llm" llm-infer -m "$F/plain.llm" --draft none.llm "the"
    llm-train -q -c mamba --set num_hidden_layers=1 --set hidden_size=32 -l 24 -n 0 -T "$F/tok.json" -o m.llm "$F/data.tok"
    refused 69 "m.llm: expected a drafting model without a recurrent state" llm-infer -m "$F/plain.llm" --draft m.llm "the"
}
