load quantize_suite

kl() { # the divergence in a message of --measure or --budget
    sed -n "s/.*$1 \([0-9.]*\).*/\1/p" err
}

@test "--measure: nothing between a model and itself, more the fewer bits there are" {
    local type last=0
    for type in keep q8_0 q4_0 q2_k; do
        llm-quantize -t $type --pure --measure "$BATS_FILE_TMPDIR/held" --measure-tokens 500 "$M" x.gguf 2> err
        grep -q 'over 500 tokens; same most probable token: ' err
        awk -v kl="$(kl KL)" -v last="$last" -v type=$type 'BEGIN {exit !(type == "keep" ? kl == 0 : kl > last)}'
        last=$(kl KL)
    done
    refused 2 'expected a file as IN' llm-quantize -t q4_0 --measure held - y.llm
    refused 66 'absent' llm-quantize -q -t q4_0 --measure absent "$M" y.llm
    [[ ! -e y.llm ]]
}

@test "--method kl: needs a text, the same bytes for any threads, other than those of gptq" {
    for threads in 1 3; do
        llm-quantize -q -j $threads -t q4_0 --method kl "${CALIBRATE[@]}" --report r.tsv "$M" $threads.gguf
    done
    cmp 1.gguf 3.gguf
    [[ $(awk -F'\t' '$1 ~ /layers.*proj/ {print $13, $14}' r.tsv | sort -u) == 'kl yes' ]]
    [[ $(awk -F'\t' '/lm_head/ {print $13}' r.tsv) == gptq ]]
    llm-quantize -q -t q4_0 --method gptq "${CALIBRATE[@]}" "$M" g.gguf
    run -1 cmp -s 1.gguf g.gguf
    llm-infer -m 1.gguf -n 4 "1 2 3" > /dev/null
    refused 2 '--method kl: expected --calibrate' llm-quantize -t q4_0 --method kl "$M" x.llm
}

@test "--budget: the bytes are kept, the report has harms, the better of two is written, for any threads the same" {
    llm-quantize -j 1 -t q4_k_m --budget 4.2bpw --budget-tokens 128 "${CALIBRATE[@]}" --report r.tsv "$M" a.gguf 2> err
    llm-quantize -q -j 3 -t q4_k_m --budget 4.2bpw --budget-tokens 128 "${CALIBRATE[@]}" "$M" b.gguf
    cmp a.gguf b.gguf
    grep -q 'bytes; KL .* predicted, .* measured on .* tokens held out' err
    grep -Eq 'is written' err
    awk -F'\t' 'NR > 1 {n = split($2, s, ","); e = s[1]; for (i = 2; i <= n; i++) e *= s[i]; elements += e; bytes += $7}
                END {exit !(bytes * 8 / elements <= 4.2 && bytes * 8 / elements > 3)}' r.tsv
    if grep -q "the budget's choice is written" err; then
        awk -F'\t' 'NR > 1 && $5 == "-" && !($16 > 0 && $17 > 0) {exit 1}' r.tsv
    fi
    # without a type: the largest mix that fits
    llm-quantize --budget 4.2bpw --budget-tokens 64 "${CALIBRATE[@]}" "$M" c.gguf 2> err
    llm-quantize -q -t "$(sed -n 's/.*budget: \([a-z0-9_]*\), [0-9]* bytes: .*/\1/p' err)" --budget 4.2bpw --budget-tokens 64 "${CALIBRATE[@]}" "$M" d.gguf
    cmp c.gguf d.gguf
    # a type that an option names is left alone
    llm-quantize -q -t q4_k_m --budget 5bpw --budget-tokens 64 "${CALIBRATE[@]}" --output-tensor-type q8_0 --report r.tsv "$M" c.gguf
    [[ $(awk -F'\t' '/lm_head/ {print $4, $16}' r.tsv) == 'q8_0 -' ]]
}

@test "--budget: in GGUF the experts of a layer have one type; one window has no interval" {
    printf '{"model_type": "mixtral", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
             "num_key_value_heads": 1, "num_local_experts": 3, "num_experts_per_tok": 2}' > moe.json
    local bits data=$BATS_FILE_TMPDIR/data.tok tok=$BATS_FILE_TMPDIR/tok.json
    llm-train -q -c moe.json -T "$tok" -l 64 -b 4 --steps 20 --lr 1e-2 -o moe.llm "$data"
    for bits in 4.9 5.8 7; do
        llm-quantize -t q4_0 --budget ${bits}bpw --budget-tokens 128 --calibrate "$TEXT" --calibrate-tokens 320 --report r.tsv \
            moe.llm moe.gguf 2> err
        grep -Eq 'KL [0-9.]+ predicted, [0-9.]+ measured on 64 tokens held out$' err
        [[ $(grep -c 'experts.*w1' r.tsv) == 3 && $(grep 'experts.*w1' r.tsv | cut -f4 | sort -u | wc -l) == 1 ]]
    done
}

@test "--budget: a GGUF file whose tied embedding is there twice fits too" {
    printf '{"model_type": "gpt_neox", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
             "tie_word_embeddings": true}' > neox.json
    llm-train -q -c neox.json -T "$BATS_FILE_TMPDIR/tok.json" -l 64 -b 4 --steps 5 --lr 1e-2 -o neox.llm "$BATS_FILE_TMPDIR/data.tok"
    local size budget=$((40 << 10))
    for format in gguf safetensors; do
        llm-quantize -q --budget $budget --budget-tokens 128 --calibrate "$TEXT" --calibrate-tokens 320 --report $format.tsv neox.llm neox.$format
    done
    size=$(awk -F'\t' -v budget=$budget 'NR > 1 { n += $7 * (1 + ($1 ~ /embed_in/)) } END { print n }' gguf.tsv)
    ((size <= budget && size > budget * 8 / 10)) || fail "$size of $budget"
    size=$(awk -F'\t' 'NR > 1 { n += $7 } END { print n }' safetensors.tsv) # the embedding once
    ((size <= budget && size > budget * 8 / 10)) || fail "$size of $budget"
}

@test "--cache-budget: keys and values take their part of the bytes, less of it the longer the context; the types run and are measured" {
    local n types width
    declare -A bits
    for n in 16 1024; do
        llm-quantize -j $((n == 16 ? 1 : 3)) -t q4_k_m --budget 700KiB --cache-budget --context $n --budget-tokens 64 "${CALIBRATE[@]}" --report r.tsv \
            "$M" $n.gguf 2> err
        awk -F'\t' 'NR > 1 {bytes += $7} END {exit !(bytes <= 700 * 1024)}' r.tsv
        # each layer has keys and values, 4 heads of 32 (bits, harm, measured harm)
        [[ $(awk -F'\t' -v n=$n '$1 ~ /^cache.layers.[01].[kv]$/ && $2 == n ",128" && $7 * 8 == $12 * n * 128 && $17 == $18 && $17 > 0' r.tsv | wc -l) == 4 ]]
        bits[$n]=$(awk -F'\t' '/^cache/ {s += $12} END {print s / 4}' r.tsv)
        types=$(sed -n 's/.*is counted as --cache-type //p' err)
        grep -q "the cache of $n tokens is counted" err
        llm-infer -m $n.gguf --cache-type "$types" -n 0 --kv-out c.kv --ids "1 2 3"
        [[ $(llm-kvinspect c.kv | awk '$1 == "type" {print $2}') == "$types" ]]
        [[ $(grep -c 'with a cache of' err) -ge 1 ]]
    done
    awk -v short="${bits[16]}" -v long="${bits[1024]}" 'BEGIN {exit !(short == 16 && long < 16 && long >= 4.5)}'
    # threads change nothing
    llm-quantize -q -j 1 -t q4_k_m --budget 700KiB --cache-budget --context 1024 --budget-tokens 64 "${CALIBRATE[@]}" "$M" one.gguf
    cmp one.gguf 1024.gguf
    refused 2 'less than the smallest types need' llm-quantize -q -t q4_k_m --budget 700KiB --cache-budget --context 99999 --budget-tokens 64 \
        "${CALIBRATE[@]}" "$M" x.llm
    refused 2 '--cache-budget: expected --budget too' llm-quantize -t q4_0 --cache-budget "${CALIBRATE[@]}" "$M" x.llm
    refused 2 '--context: expected --cache-budget too' llm-quantize -t q4_0 --budget 4bpw --context 9 "${CALIBRATE[@]}" "$M" x.llm
    [[ ! -e x.llm ]]
}

@test "budgets that cannot be: one line, nothing written" {
    refused 2 "found '12 apples'" llm-quantize -t q4_0 --budget '12 apples' "${CALIBRATE[@]}" "$M" x.llm
    refused 2 'less than the smallest types need' llm-quantize -q -t q4_0 --budget 1.5bpw --budget-tokens 64 "${CALIBRATE[@]}" "$M" x.llm
    refused 2 'expected --calibrate' llm-quantize -t q4_0 --budget 4bpw "$M" x.llm
    llm-quantize -q -t q4_0 --rank 4 --factors f.llm "$M" y.llm
    refused 2 "an adapter is stored in one type" llm-quantize --budget 4bpw "${CALIBRATE[@]}" f.llm x.llm
    refused 2 'read again' llm-quantize -t q4_0 --budget 4bpw "${CALIBRATE[@]}" - x.llm
    seq 1 9 > short
    refused 65 'expected at least 256 tokens' llm-quantize -t q4_0 --budget 4bpw --calibrate short "$M" x.llm
    [[ ! -e x.llm ]]
}
