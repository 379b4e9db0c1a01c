load quantize_suite

@test "--method awq: places are scaled, in all formats, by a text or by importances; the same bytes for any threads" {
    llm-quantize -j 1 -t q4_0 --method awq "${CALIBRATE[@]}" --imatrix-out i.gguf --report r.tsv "$M" a.gguf 2> err
    [[ $(< err) =~ "awq: the channels of "([1-9])" places are scaled; of "([0-9])" it would not help; 0 have nothing before them" ]]
    ((BASH_REMATCH[1] + BASH_REMATCH[2] == 8)) # four a layer
    llm-quantize -q -j 3 -t q4_0 --method awq "${CALIBRATE[@]}" "$M" b.gguf
    cmp a.gguf b.gguf
    [[ $(awk -F'\t' '$1 ~ /layers.*proj/ {print $4, $13, $14}' r.tsv | sort -u) == 'q4_0 search yes' ]]
    llm-quantize -q -t q4_0 --method awq --imatrix i.gguf "$M" c.gguf
    cmp a.gguf c.gguf
    llm-quantize -q -t q4_0 --method awq "${CALIBRATE[@]}" "$M" a.llm
    llm-infer -m a.llm --precision f32 --score "1 2 3 4" | cut -f3 > llm.score
    llm-infer -m a.gguf --precision f32 --score "1 2 3 4" | cut -f3 > gguf.score # GGUF has the rows of queries and keys in another order
    near_lines llm.score gguf.score 1e-5
}

@test "--method awq: in 16 bits the predictions are the model's; tensors that stay close their places" {
    llm-quantize -t f16 --method awq "${CALIBRATE[@]}" --measure "$BATS_FILE_TMPDIR/held" --measure-tokens 600 "$M" f.gguf 2> err
    awk '/held: KL/ {found = 1; exit !($4 < 1e-5)} END {exit !found}' err
    llm-quantize -t keep --method awq "${CALIBRATE[@]}" "$M" k.llm 2> err
    grep -q 'the channels of 0 places are scaled; of 0 it would not help; 8 have nothing' err
    llm-quantize -t q4_0 --method awq --except '*up_proj*' "${CALIBRATE[@]}" "$M" k.llm 2> err
    grep -q '; 4 have nothing' err # the input of the feed-forward part, and what up_proj would take of down_proj's, in two layers
}

@test "--method awq that cannot be: one line, nothing written" {
    refused 2 '--method awq: expected --calibrate FILE or --imatrix' llm-quantize -t q4_0 --method awq "$M" x.llm
    refused 2 '--method awq: expected no --budget' llm-quantize -t q4_0 --method awq --budget 4bpw "${CALIBRATE[@]}" "$M" x.llm
    refused 2 '--method awq: expected no --refine' llm-quantize -t q4_0 --method awq --refine 3 "${CALIBRATE[@]}" "$M" x.llm
    refused 2 'found awq' llm-quantize -t q4_0 --method awq --prune .5 "${CALIBRATE[@]}" "$M" x.llm
    [[ ! -e x.llm ]]
}
