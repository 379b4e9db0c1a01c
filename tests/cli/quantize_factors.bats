# Low-rank factors beside quantised matrices, and in place of matrices.
load quantize_suite

# kl OPTION...: nats between the model and what these options make of it.
kl() {
    llm-quantize "${CALIBRATE[@]}" "${MEASURE[@]}" "$@" "$M" q.llm 2> said
    sed -n 's/.*KL -*\([0-9.]*\).*/\1/p' said
}

@test "--rank: the correction is an adapter of the model that is written; more rank, less divergence; the same bytes for any threads" {
    local plain some more
    # Factors correct the layers' matrices: the others stay whole, so that their noise hides nothing.
    local matrices=(-t q2_k --method rtn --tensor-type '*embed*=f32' --tensor-type 'lm_head*=f32')
    plain=$(kl "${matrices[@]}")
    some=$(kl "${matrices[@]}" --rank 8 --factors f.llm --report r.tsv)
    [[ $(awk -F'\t' '$1 ~ /layers.*proj/ {print $21, ($22 > 0 && $22 < 1)}' r.tsv | sort -u) == '8 1' ]]
    [[ $(awk -F'\t' '$1 ~ /embed|norm/ {print $21, $22}' r.tsv | sort -u) == '- -' ]]
    cp f.llm first.llm
    more=$(kl "${matrices[@]}" --rank 32 --factors f.llm)
    awk "BEGIN {exit !($more < $some && $some < $plain)}"
    kl "${matrices[@]}" --rank 8 --factors f.llm -j 3 > again
    cmp first.llm f.llm
    [[ $(< again) == "$some" ]]
    llm-infer -m q.llm --adapter f.llm -n 3 --temperature 0 "1 2 3" > /dev/null
    # by --merge the correction becomes a part of the matrices
    llm-quantize -q -t f32 --merge f.llm q.llm merged.llm
    llm-infer -m merged.llm --precision f32 --score -f "$HELD" > merged
    llm-infer -m q.llm --adapter f.llm --precision f32 --score -f "$HELD" > beside
    paste <(tail -1 merged | grep -Eo '[0-9]+\.[0-9]+' | head -1) <(tail -1 beside | grep -Eo '[0-9]+\.[0-9]+' | head -1) \
        | awk '{exit !($1 - $2 < 1e-3 && $2 - $1 < 1e-3)}'
}

@test "--factors-only: factors of full rank are the model; smaller ones are a smaller model, which trains on" {
    need_tool jq
    local whole half
    whole=$(kl -t f32 --rank 256 --factors f.llm --factors-only)
    awk "BEGIN {exit !($whole < 1e-6)}"
    half=$(kl -t f32 --energy .9 --factors f.llm --factors-only --report r.tsv)
    awk "BEGIN {exit !($half > 1e-6)}"
    [[ $(awk -F'\t' '$1 ~ /layers.*proj/ {print $4, $7, ($21 < 256), ($22 >= .9)}' r.tsv | sort -u) == 'zero 0 1 1' ]]
    (($(stat -c %s q.llm) + $(stat -c %s f.llm) < $(stat -c %s "$M")))
    llm-infer -m q.llm --adapter f.llm -n 3 --temperature 0 "1 2 3" > /dev/null
    llm-quantize -q "${CALIBRATE[@]}" -t f32 --energy .3 --factors f.llm --factors-only "$M" q.llm
    llm-quantize -q -t q8_0 q.llm again.llm # matrices without any bytes
    llm-train -q --init q.llm --adapter lora --adapter-init f.llm -l 32 -b 8 --steps 16 --lr 1e-3 --precision f32 -o on.llm \
        "$BATS_FILE_TMPDIR/data.tok" --log on.log
    jq -es 'map(.loss) | (.[12:] | add) < (.[:4] | add)' on.log > /dev/null
    llm-infer -m q.llm --adapter on.llm -n 3 --temperature 0 "1 2 3" > /dev/null
    # plain safetensors, a pipe, and dense again
    llm-quantize -q -t keep q.llm q.safetensors
    cat q.safetensors | llm-infer -m - --adapter f.llm -n 3 --temperature 0 "1 2 3" > /dev/null
    llm-quantize -q -t bf16 --merge f.llm q.llm dense.gguf
    llm-infer -m dense.gguf -n 3 --temperature 0 "1 2 3" > /dev/null
    refused 69 "zero" llm-quantize -q -t keep q.llm x.gguf
    [[ ! -e x.gguf ]]
}

@test "factors in other formats: a folder of PEFT's, GGUF beside GGUF" {
    llm-quantize -q -t q4_0 --rank 4 --factors folder "$M" q.llm
    [[ -s folder/adapter_config.json && -s folder/adapter_model.safetensors ]]
    llm-infer -m q.llm --adapter folder -n 3 --temperature 0 "1 2 3" > a
    llm-quantize -q -t q4_0 --rank 4 --factors f.gguf "$M" q.gguf
    llm-infer -m q.gguf --adapter f.gguf -n 3 --temperature 0 "1 2 3" > b
    cmp a b
}

@test "what the format of factors or of OUT cannot have is refused before the work: one line, nothing written" {
    local preset file of=(-q -t q8_0 --report report.tsv)
    for preset in lstm mla rwkv7; do llm-train -q -c $preset --set vocab_size=64 -n 0 -o $preset.llm; done
    for file in lstm.gguf rwkv7.gguf; do
        refused 69 "$file: a model of type '${file%.*}' has no names" llm-quantize "${of[@]}" --rank 1 --factors "$file" ${file%.*}.llm x.llm
    done
    refused 69 "f.gguf: 'model.layers.0.self_attn.kv_b_proj.weight': GGUF has this matrix in two" \
        llm-quantize "${of[@]}" --energy .5 --factors f.gguf mla.llm x.llm
    llm-quantize "${of[@]}" --except '*kv_b*' --energy .5 --factors f.gguf mla.llm y.llm # all others can be there
    rm f.gguf report.tsv
    refused 73 "nowhere/f.llm" llm-quantize "${of[@]}" --rank 1 --factors nowhere/f.llm mla.llm x.llm
    touch file
    for file in file nowhere/folder; do refused 73 "$file" llm-quantize "${of[@]}" --rank 1 --factors "$file" mla.llm x.llm; done
    refused 69 "x.gguf: a model of type 'lstm' cannot be written as GGUF" llm-quantize "${of[@]}" lstm.llm x.gguf
    [[ ! -e x.llm && ! -e x.gguf && ! -e f.gguf && ! -e lstm.gguf && ! -e rwkv7.gguf && ! -e report.tsv ]]
}

@test "factors that cannot be: one line, nothing written" {
    refused 2 'expected --rank R or --energy E too' llm-quantize -t q4_0 --factors f.llm "$M" x.llm
    refused 2 'expected --rank R or --energy E too' llm-quantize -t q4_0 --factors-only "$M" x.llm
    refused 2 'expected --factors FILE too' llm-quantize -t q4_0 --rank 4 "$M" x.llm
    refused 2 'found both' llm-quantize -t q4_0 --rank 4 --energy .5 --factors f.llm "$M" x.llm
    refused 2 'expected no --prune' llm-quantize -t q4_0 --rank 4 --prune .5 --factors f.llm "$M" x.llm
    refused 2 'expected files as OUT' llm-quantize -t q4_0 --rank 4 --factors f.llm "$M" -
    refused 2 'expected a .gguf file beside' llm-quantize -t q4_0 --rank 4 --factors f.llm "$M" x.gguf
    refused 2 'expected no GGUF' llm-quantize -t q4_0 --rank 4 --factors f.gguf --factors-only "$M" x.gguf
    refused 65 'expected a matrix of a layer that changes' llm-quantize -q -t keep --rank 4 --factors f.llm "$M" x.llm
    [[ ! -e x.llm && ! -e f.llm && ! -e x.gguf ]]
}
