# --precision bf16x3: products of F32 by three of BF16 where the instruction set has them (AMX), else products of F32.
load ../helper

M=$ROOT/tests/golden/tiny

score() { llm-infer -q -m "$M" --score -f text "$@"; }

@test "bf16x3: scores near those of f32, the same bits for any batch and threads; the bits of f32 where there are no such products" {
    head -c 600 "$ROOT/README.md" > text
    score --precision f32 | cut -f 3 > f32
    score --precision bf16x3 > x3
    near_lines <(cut -f 3 x3) f32 5e-4
    score --precision bf16x3 -b 7 -j 1 | cmp - x3
    export LLM_ISA=scalar
    score --precision f32 > scalar
    score --precision bf16x3 | cmp - scalar
}

@test "bf16x3: training has the same bits for any number of threads" {
    head -c 4000 "$ROOT/README.md" | llm-tokenize encode -T "$M/tokenizer.json" > text.tok
    for threads in 1 3; do
        llm-train -q -c nano -T "$M/tokenizer.json" -l 32 -b 2 -n 3 --precision bf16x3 -j $threads -o $threads.llm text.tok
    done
    cmp 1.llm 3.llm
    run -0 --separate-stderr llm-infer -q -m 1.llm --precision bf16x3 -n 4 --temp 0 Once
}
