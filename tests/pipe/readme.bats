# The README's commands run in a fresh folder with the programs in bin/, and what it names is there.
load ../helper

@test "the commands of the README work, with a tenth of the steps of its training (tests/slow/readme.bats: as they stand)" {
    [[ -z ${SANITIZER-} ]] || skip "its training takes too long under $SANITIZER"
    readme_commands | sed 's/--steps 400/--steps 40/' > commands.sh
    grep -q -e '--steps 40 ' commands.sh
    readme_run
    [[ $output == *"Once upon a time"* && $(grep -c $'^2\t' <<< "$output") == 4 ]]
}

@test "what the README names is there: programs, files, folders, targets" {
    local name targets
    targets=$(make -s -C "$ROOT" help)
    for name in "$ROOT"/bin/llm-*.c; do
        grep -q "^| \`$(basename "$name" .c)\`" "$ROOT/README.md"
    done
    while read -r name; do
        [[ $name == *'<'* || -e $ROOT/$name ]] || fail "README.md names $name"
    done < <(grep -oE '`?(lib|tests|bin|formats|man)/[a-z_0-9./<>-]*[a-z/>]' "$ROOT/README.md" | tr -d '`' | sort -u)
    for name in $(grep -oE '^    make [a-z-]+|`make [a-z -]+`' "$ROOT/README.md" | tr -d '`' | sed 's/^ *make//' | sort -u); do
        grep -q "^$name " <<< "$targets" || fail "README.md names make $name"
    done
}
