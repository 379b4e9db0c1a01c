# llm-bench quality: conventions of perplexity, entropies, and how far a model's predictions are from another's. Expected numbers are those of
# tests/oracle/conventions.py, which computes in FP64; FP32 agrees to five digits.
load ../helper

setup_file() {
    for ((i = 1; i <= 40; i++)); do
        printf 'The cat no. %d saw %d\u00a0birds, %d dogs;\n\n  and went on.\n' $i $((i * 7 % 13)) $((i * i % 11))
    done > text
    llm-quantize -q -t q4_0 "$ROOT/tests/golden/tiny" - | llm-quantize -q -t f32 - changed.llm
}

setup() {
    D=$BATS_FILE_TMPDIR M=$ROOT/tests/golden/tiny
}

# value FILE COLUMN: of the only row of a table
value() {
    awk -F'\t' -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) column = i } NR == 2 { print $column }' "$1"
}

# metric FILE NAME COLUMN: of a table of metrics
metric() {
    awk -F'\t' -v name="$2" -v column="$3" '$2 == name { print $column }' "$1"
}

@test "conventions: perplexities of llama.cpp, transformers' documentation, lm-eval, and ours" {
    local q=(llm-bench quality -m "$M" --precision f32 -c 64)
    "${q[@]}" --convention llama.cpp "$D/text" > llama
    "${q[@]}" --convention hf-stride --stride 24 "$D/text" > stride
    "${q[@]}" --convention word "$D/text" > word
    "${q[@]}" --entropy "$D/text" > document
    [[ $(value llama tokens) == 868 && $(value stride tokens) == 1799 && $(value word tokens) == 1800 && $(value document tokens) == 1799 ]]
    near "$(value llama perplexity)" 1323.978 2e-5
    near "$(value stride perplexity)" 1400.624 2e-5
    near "$(value word perplexity)" 1170.354 2e-5
    [[ $(value word words) == 481 ]]
    near "$(value word word_perplexity)" 303576434776 1e-4
    near "$(value document entropy)" 4.612405 1e-5
    # the text is one sequence also when it comes as a stream of documents
    llm-tokenize encode -T "$M/tokenizer.json" "$D/text" | "${q[@]}" --convention llama.cpp - | cut -f 2- | cmp - <(cut -f 2- llama)
}

@test "conventions: llama.cpp's pieces begin with the token that begins the text" {
    jq '.post_processor = {type: "TemplateProcessing", single: [{SpecialToken: {id: "<|endoftext|>", type_id: 0}}, {Sequence: {id: "A", type_id: 0}}],
        pair: [{Sequence: {id: "A", type_id: 0}}, {Sequence: {id: "B", type_id: 0}}],
        special_tokens: {"<|endoftext|>": {id: "<|endoftext|>", ids: [0], tokens: ["<|endoftext|>"]}}}' "$M/tokenizer.json" > begins.json
    llm-bench quality -m "$M" -T begins.json --precision f32 -c 64 --convention llama.cpp "$D/text" > begun
    # the same by hand: token 0, then 63 tokens of each piece of 64 of the text with token 0 before it
    llm-tokenize encode -T "$M/tokenizer.json" --text "$D/text" | tr -s ' ' '\n' | sed '1i 0' > ids
    local n sum=0 total=0 at
    n=$(grep -c . ids)
    for ((at = 0; at + 64 <= n; at += 64)); do
        { echo 0; sed -n "$((at + 2)),$((at + 64))p" ids; } | paste -s -d ' ' > piece
        llm-infer -m "$M" --ids --score --precision f32 -f piece | tail -n 31 | awk '{ s -= $NF } END { printf "%.8f\n", s }' >> sums
        total=$((total + 31))
    done
    [[ $(value begun tokens) == "$total" ]]
    near "$(value begun nats_per_token)" "$(awk -v n=$total '{ s += $1 } END { printf "%.8f", s / n }' sums)" 1e-5
}

@test "entropy: of each prediction with --score, of a text with --jsonl, of all tokens in quality" {
    llm-infer -m "$M" --precision f32 -c 256 --score -f <(head -c 200 "$D/text") > plain
    llm-infer -m "$M" --precision f32 -c 256 --score --entropy -f <(head -c 200 "$D/text") > score
    cut -f -3 score | cmp - plain
    awk -F'\t' '!($4 > 0 && $4 < log(300)) { exit 1 }' score
    local mean
    mean=$(awk -F'\t' '{ s += $4 } END { printf "%.8f", s / NR }' score)
    near "$(value <(llm-bench quality -m "$M" --precision f32 --entropy <(head -c 200 "$D/text")) entropy)" "$mean" 1e-5
    [[ $(value <(llm-bench quality -m "$M" --precision f32 <(head -c 200 "$D/text")) entropy) == - ]]
    refused 2 "--entropy: expected no --base" llm-bench quality -m "$M" --base "$M" --entropy "$D/text"
    jq -Rs '{id: 1, prompt: .}' < <(head -c 200 "$D/text") | jq -c . | llm-infer -q -m "$M" --precision f32 --score --jsonl --entropy --per-token > line
    near "$(jq .entropy line)" "$mean" 1e-5
    jq -e '(.per_token | length) == .tokens and ([.per_token[].entropy] | add / length) - .entropy < 1e-9' line
    # uniform predictions: the logarithm of the number of tokens
    run -0 llm-infer -m "$M" --precision f32 --score --entropy --format json -f <(printf 'ab')
    assert_output --partial '"entropy"'
}

@test "--base: divergence, changes of probabilities, ratio of perplexities, against FP64" {
    local q=(llm-bench quality --precision f32 -c 64)
    "${q[@]}" -m "$D/changed.llm" --base "$M" "$D/text" > c
    [[ $(metric c kl 6) == 1799 && $(metric c kl 7) == 29 ]]
    near "$(metric c kl 3)" 0.4970401 2e-5
    near "$(metric c kl_median 3)" 0.3529815 2e-5
    near "$(metric c kl_p99 3)" 2.0562435 2e-5
    near "$(metric c kl_max 3)" 3.9743930 2e-5
    near "$(metric c same_top 3)" 0.3173986 2e-6
    near "$(metric c log_perplexity_ratio 3)" -0.1506211 5e-5
    near "$(metric c delta_p 3)" 0.000322383 1e-4
    near "$(metric c delta_p_rms 3)" 0.004000923 2e-5
    near "$(metric c base_perplexity 3)" "$(value <("${q[@]}" -m "$M" "$D/text") perplexity)" 1e-5
    near "$(metric c perplexity 3)" "$(value <("${q[@]}" -m "$D/changed.llm" "$D/text") perplexity)" 1e-5
    awk -F'\t' 'NR > 1 && $4 != "-" && !($4 <= $3 && $3 <= $5 && $4 < $5) { print; exit 1 }' c # each interval holds its value
    # half the standard error of independent runs is too narrow, twice it too wide
    awk -F'\t' '$2 == "kl" && !($5 - $4 > .02 && $5 - $4 < .08) { exit 1 }' c
}

@test "--against: the divergence of a second model, and the ratio, whose interval is of paired runs" {
    local q=(llm-bench quality --precision f32 -c 64)
    llm-quantize -q -t q4_1 "$M" - | llm-quantize -q -t f32 - near.llm
    "${q[@]}" -m near.llm --base "$M" --against "$D/changed.llm" "$D/text" > c
    "${q[@]}" -m near.llm --base "$M" "$D/text" | cmp - <(head -n -2 c)
    "${q[@]}" -m "$D/changed.llm" --base "$M" "$D/text" > changed
    # the same resamples: value and limits are those of the other comparison
    [[ $(grep -P '\tkl\t' changed | cut -f 3-) == $(grep against_kl c | cut -f 3-) ]]
    near "$(metric c kl_ratio 3)" "$(awk -v a="$(metric c kl 3)" -v b="$(metric c against_kl 3)" 'BEGIN { printf "%.9f", a / b }')" 1e-5
    awk -F'\t' -v kl="$(metric c kl 4) $(metric c kl 5)" -v against="$(metric c against_kl 4) $(metric c against_kl 5)" '$2 == "kl_ratio" {
        split(kl, k, " "); split(against, a, " "); exit !($4 < $3 && $3 < $5 && $5 - $4 < k[2] / a[1] - k[1] / a[2]) }' c
    # a model against itself has no uncertainty, whatever the interval of its divergence
    "${q[@]}" -m near.llm --base "$M" --against near.llm "$D/text" > same
    [[ $(grep kl_ratio same | cut -f 3-5) == $'1.00000\t1.00000\t1.00000' ]]
    "${q[@]}" -m "$M" --logits "$D/text" | "${q[@]}" -m near.llm --base-logits - --against "$D/changed.llm" "$D/text" | cmp - c
    refused 2 '--against goes with --base or --base-logits' "${q[@]}" -m near.llm --against "$D/changed.llm" "$D/text"
    refused 2 'only one input can be standard input' "${q[@]}" -m near.llm --base "$M" --against - -
}

@test "--base: a model and itself differ by nothing" {
    llm-bench quality -m "$M" --base "$M" -c 64 "$D/text" > c
    [[ $(metric c kl 3) == 0.00000 && $(metric c kl_max 3) == 0.00000 && $(metric c same_top 3) == 1.00000 ]]
    [[ $(metric c log_perplexity_ratio 3) == 0.00000 && $(metric c delta_p_rms 3) == 0.00000 ]]
}

@test "--base: the same bits whatever the threads and the pass; every convention" {
    for convention in document llama.cpp hf-stride word; do
        llm-bench quality --json -m "$D/changed.llm" --base "$M" -c 64 --convention $convention "$D/text" > all
        llm-bench quality --json -j 1 -b 7 -m "$D/changed.llm" --base "$M" -c 64 --convention $convention "$D/text" | cmp - all
    done
}

@test "--base-logits: a base in another process gives the bytes of --base, from a pipe and a file, in every convention" {
    local q=(llm-bench quality -c 64) options
    head -c 700 "$D/text" > second
    llm-tokenize encode -T "$M/tokenizer.json" "$D/text" second second > three.tok
    for options in '' '--convention llama.cpp' '--convention hf-stride --stride 24' '--convention word'; do
        "${q[@]}" $options -m "$D/changed.llm" --base "$M" "$D/text" second > both
        "${q[@]}" $options -m "$M" --logits "$D/text" second | "${q[@]}" -b 9 $options -m "$D/changed.llm" --base-logits - "$D/text" second | cmp - both
    done
    "${q[@]}" -m "$D/changed.llm" --base "$M" three.tok > both
    "${q[@]}" -m "$M" --logits -o logits three.tok
    "${q[@]}" -m "$D/changed.llm" --base-logits logits three.tok | cmp - both
    # each row that predicts a token is there once: 8 bytes beside its logits
    llm-bench quality --json -m "$M" -c 64 three.tok | jq -e --argjson bytes "$(stat -c %s logits)" '$bytes / .tokens | . > 1208 and . < 1260'
}

@test "--base-logits: llm-infer --logits is a base for a text within the context" {
    head -c 150 "$D/text" > short
    llm-bench quality -m "$D/changed.llm" --base "$M" -c 256 short > both
    llm-infer -m "$M" -c 256 --logits -f short | llm-bench quality -m "$D/changed.llm" --base-logits - -c 256 short | cmp - both
}

@test "--base-logits: another text, context or vocabulary, a cut stream and other files are refused" {
    local q=(llm-bench quality -m "$D/changed.llm") said='expected logits after token'
    head -c 700 "$D/text" > text
    sed 's/cat/dog/' text > other
    llm-bench quality -m "$M" -c 64 --logits -o logits text
    refused 65 "logits: $said" "${q[@]}" -c 64 --base-logits logits other
    refused 65 "another --context" "${q[@]}" -c 32 --base-logits logits text
    refused 65 "found the end" "${q[@]}" -c 64 --base-logits logits "$D/text"
    refused 65 "found more logits" "${q[@]}" -c 64 --base-logits logits <(head -c 500 text)
    head -c -9 logits > cut
    refused 65 "cut: byte" "${q[@]}" -c 64 --base-logits cut text
    refused 65 "expected logits, found tokens" "${q[@]}" --base-logits <(llm-tokenize encode -T "$M/tokenizer.json" text) text
    refused 66 absent "${q[@]}" --base-logits absent text
    refused 2 'only one input can be standard input' "${q[@]}" --base-logits - -
    refused 2 'expected one of --base and --base-logits' "${q[@]}" --base-logits logits --base "$M" text
    refused 2 'instead of a table' "${q[@]}" --logits --base "$M" text
    sed 's/"vocab_size": 300/"vocab_size": 310/' "$M/config.json" > other.json
    llm-train -q -c other.json --steps 1 -l 16 -b 1 -o wide.llm <(llm-tokenize encode -T "$M/tokenizer.json" text)
    refused 65 "expected a vocabulary of 310 tokens, found 300" llm-bench quality -m wide.llm -c 64 --base-logits logits <(llm-tokenize encode -T "$M/tokenizer.json" text)
    llm-tokenize encode -T "$M/tokenizer.json" text > text.tok
    llm-train -q --objective ngram --order 2 -T "$M/tokenizer.json" -o two.llm text.tok
    refused 69 'expected a network' llm-bench quality -m two.llm --logits -o out text.tok
    [[ ! -e out ]]
}

@test "bad input: texts too short, n-grams, vocabularies, strides, streams by words" {
    refused 65 'expected a text of at least the context' llm-bench quality -m "$M" -c 64 --convention llama.cpp <(echo short)
    refused 2 '--stride goes with --convention=hf-stride' llm-bench quality -m "$M" --stride 3 "$D/text"
    refused 2 'expected at most the context' llm-bench quality -m "$M" -c 8 --convention hf-stride --stride 9 "$D/text"
    refused 2 "did you mean llama.cpp?" llm-bench quality -m "$M" --convention llama.cp "$D/text"
    llm-tokenize encode -T "$M/tokenizer.json" "$D/text" > text.tok
    refused 2 'scores texts, found a token stream' llm-bench quality -m "$M" --convention word text.tok
    llm-train -q --objective ngram --order 2 -T "$M/tokenizer.json" -o two.llm text.tok
    refused 69 'expected two networks to compare' llm-bench quality -m two.llm --base "$M" -c 64 text.tok
    llm-bench quality -m two.llm text.tok > ngram
    [[ $(value ngram entropy) == - ]]
    sed 's/"vocab_size": 300/"vocab_size": 310/' "$M/config.json" > other.json
    llm-train -q -c other.json --steps 1 -l 16 -b 1 -o other.llm text.tok
    refused 65 "expected a vocabulary of the base's 300 tokens, found 310" llm-bench quality -m other.llm --base "$M" text.tok
    refused 2 'only one input can be standard input' llm-bench quality -m "$M" --base - -
    refused 66 absent llm-bench quality -m "$M" --base absent "$D/text"
    printf '' > empty
    refused 65 'empty' llm-bench quality -m "$M" --base "$M" empty
}
