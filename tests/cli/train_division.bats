# How the rows of a step are divided into passes is no part of a run: the same checkpoint, and any division goes on with it.
load ../helper
export LLM_THREADS=1

setup_file() { sentences_tokens; }

setup() {
    new=(llm-train -q -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 --dropout .1 -l 24 -T "$F/tok.json" --val .2 "$F/data.tok")
}

options_of() {
    zstd -dcq "$1" | head -c 20000 | grep -aoE '\\"options\\":\{[^}]*\}' | tr -d '\\'
}

@test "a checkpoint has the same bytes for any division of a step, with validation and averages too" {
    "${new[@]}" -n 5 -b 12 --eval-every 2 --ema .9 -o whole.llm
    for b in 1 2 4; do
        "${new[@]}" -n 5 -b $b --accumulate $((12 / b)) --eval-every 2 --ema .9 -o $b.llm
        cmp whole.llm $b.llm
    done
    [[ $(options_of whole.llm) == *'"rows":12'* && $(options_of whole.llm) != *'"batch"'* && $(options_of whole.llm) != *accumulate* ]]
}

@test "a run goes on with the division of the command line, or with one of the program's choice" {
    "${new[@]}" -n 6 -b 12 --schedule constant --warmup 2 -o straight.llm
    for how in "" "-b 3" "--accumulate 6" "-b 1 --accumulate 12"; do
        "${new[@]}" -n 3 -b 6 --accumulate 2 --schedule constant --warmup 2 -o part.llm
        llm-train -q --resume part.llm -n 6 $how -o resumed.llm
        cmp straight.llm resumed.llm
    done
    # as many rows as both say
    llm-train -q --resume part.llm -n 6 -b 2 --accumulate 2 -o other.llm
    [[ $(options_of other.llm) == *'"rows":4'* ]]
}

@test "a division that does not come out is refused" {
    "${new[@]}" -n 1 -b 6 -o part.llm
    run -2 --separate-stderr llm-train -q --resume part.llm -n 2 -b 4
    assert_equal "$stderr" "llm-train: --batch: expected a divisor of the run's 6 rows a step, or --batch and --accumulate, found 4"
    run -2 --separate-stderr llm-train -q --resume part.llm -n 2 --accumulate 5
    assert_equal "$stderr" "llm-train: --accumulate: expected a divisor of the run's 6 rows a step, or --batch and --accumulate, found 5"
}

@test "checkpoints that older versions wrote, with batch and accumulate, go on" {
    new=(llm-train -q -c nano --set n_layer=1 --set n_embd=8 --set n_head=2 --set n_positions=16 --set vocab_size=300 -l 16)
    "${new[@]}" -n 2 -b 6 -o straight.llm "$F/data.tok"
    for how in "" "-b 1" "--accumulate 2"; do
        llm-train -q --resume "$ROOT/tests/golden/train/old-division.llm" -n 2 $how -o resumed.llm "$F/data.tok"
        cmp straight.llm resumed.llm
    done
}

@test "where the rows of a pass change the result, their number is a part of the run" {
    "${new[@]}" -n 1 -b 3 --accumulate 2 --set norm=batch -o part.llm
    [[ $(options_of part.llm) == *'"batch":3'*'"rows":6'* || $(options_of part.llm) == *'"rows":6'*'"batch":3'* ]]
    "${new[@]}" -n 4 -b 3 --accumulate 2 --set norm=batch --schedule constant -o straight.llm
    "${new[@]}" -n 2 -b 3 --accumulate 2 --set norm=batch --schedule constant -o part.llm
    llm-train -q --resume part.llm -n 4 -o resumed.llm
    cmp straight.llm resumed.llm
}
