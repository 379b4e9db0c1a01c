# Muon against AdamW, and learning rates across widths, on tinyshakespeare. The scripts keep a row a run in LLM_RECIPES (default: a folder in
# TMPDIR), so that a run that was cut short goes on where it stopped.
load ../helper

setup() {
    need_shared corpora/tinyshakespeare.txt
    text=$SHARED/data/corpora/tinyshakespeare.txt
    rows=${LLM_RECIPES:-${TMPDIR:-/tmp}/llmutils-recipes}
}

@test "Muon reaches in .85 of the steps what AdamW does, each at its best of four rates" {
    run "$ROOT/tests/slow/muon.sh" "$text" "$rows"
    echo "# $output" >&3
    assert_equal "$status" 0
}

@test "under muP the best rate at 128 is the best at 512 within a factor of 2; in the standard parametrisation it is off by 4 or more" {
    run "$ROOT/tests/slow/mup.sh" "$text" "$rows"
    echo "# $output" >&3
    assert_equal "$status" 0
}
