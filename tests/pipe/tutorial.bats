# The commands of llmutils(7), in the order of the page; tests/slow/tutorial.bats: what its studies find.
load ../helper
load ../tutorial

@test "every command of llmutils(7) works, with a few steps for the models of its studies" {
    [[ -z ${SANITIZER-} ]] || skip "its training takes too long under $SANITIZER"
    tutorial_texts
    tutorial_run 's/--steps 1[25]00/--steps 12/'
    [[ -s copy.llm && -s names.llm && $(wc -l < heads.tsv) == 9 ]]
}

@test "every program and page of the package is named in it" {
    local source name
    for source in "$ROOT"/bin/llm-*.c; do
        name=$(basename "$source" .c)
        grep -q "^\.Xr $name 1" "$ROOT/man/llmutils.7"
        grep -q '^\.Xr llmutils 7' "$ROOT/man/$name.1"
    done
}
