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

@test "--rotate: what cannot be rotated is said by name, and nothing is written" {
    printf '{"model_type": "gpt2", "vocab_size": 256, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}' > g.json
    llm-train -q -c g.json -T "$BATS_FILE_TMPDIR/tok.json" -l 16 -b 1 --steps 1 -o g.llm "$BATS_FILE_TMPDIR/data.tok"
    refused 69 "a model of type 'gpt2': its norms are no RMSNorms" llm-quantize -t q8_0 --rotate g.llm x.llm
    refused 2 'expected no --budget' llm-quantize -t q4_0 --rotate --budget 5bpw --calibrate "$HELD" "$M" x.llm
    refused 2 'expected no --refine' llm-quantize -t q4_0 --rotate --refine 2 --calibrate "$HELD" "$M" x.llm
    [[ ! -e x.llm ]]
}
