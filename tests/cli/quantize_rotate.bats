# Rotations folded into a model's matrices.
load quantize_suite

@test "--rotate: other weights, the same predictions; the same bytes for any threads; with types, calibration and GGUF" {
    local type
    llm-quantize -t f32 --rotate -j 1 --measure "$HELD" --measure-tokens 600 "$M" a.llm 2> said
    grep -q 'rotated: 256 channels of the residual stream (Hadamard of 256), heads. values of 2 layers;' said
    grep -Eq 'KL -?0\.00000[01] .* same most probable token: 100.00%' said
    llm-quantize -q -t f32 --rotate -j 3 "$M" b.llm
    cmp a.llm b.llm
    run -1 cmp -s a.llm "$M"
    llm-infer -m "$M" --precision f32 -n 8 --temperature 0 "1 2 3" > want
    for type in f32 q8_0; do
        llm-quantize -q -t $type --rotate "$M" r.gguf
        llm-infer -m r.gguf --precision f32 -n 8 --temperature 0 "1 2 3" > got
        cmp want got
    done
    llm-quantize -q -t q4_k --rotate --method gptq --calibrate "$BATS_FILE_TMPDIR/text" --calibrate-tokens 640 --calibrate-context 64 "$M" r.llm
    llm-infer -m r.llm -n 3 --temperature 0 "1 2 3" > /dev/null
}

@test "--rotate with --refine and with --budget: less divergence than without, the same bytes for any threads" {
    llm-quantize -t q3_k --rotate --refine 12 "${CALIBRATE[@]}" "${MEASURE[@]}" "$M" a.llm 2> said
    grep -q 'the refined model is written' said
    llm-quantize -q -t q3_k --rotate --refine 12 -j 3 "${CALIBRATE[@]}" "$M" b.llm
    cmp a.llm b.llm
    llm-quantize -t q3_k --rotate "${CALIBRATE[@]}" "${MEASURE[@]}" "$M" plain.llm 2> plain
    awk '/held: KL/ { kl[n++] = $4 } END { exit !(n == 2 && kl[0] < .9 * kl[1]) }' said plain || fail "$(cat said plain)"
    llm-quantize --rotate --budget 5bpw "${CALIBRATE[@]}" "${MEASURE[@]}" "$M" b.llm 2> said
    grep -q "budget: the budget's choice is written" said
    awk '/held: KL/ { kl[n++] = $4 } END { exit !(n == 2 && kl[0] < .5 * kl[1]) }' said plain || fail "$(cat said plain)"
}

@test "--rotate: what cannot be rotated is said by name, and nothing is written" {
    printf '{"model_type": "gpt2", "vocab_size": 256, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}' > g.json
    llm-train -q -c g.json -T "$BATS_FILE_TMPDIR/tok.json" -l 16 -b 1 --steps 1 -o g.llm "$BATS_FILE_TMPDIR/data.tok"
    refused 69 "a model of type 'gpt2': its norms are no RMSNorms" llm-quantize -t q8_0 --rotate g.llm x.llm
    refused 2 '--rotate: expected no --merge' llm-quantize -t q4_0 --rotate --merge a.llm "$M" x.llm
    [[ ! -e x.llm ]]
}
