# The README's commands run word for word in a fresh folder with the programs in bin/, and what it names is there.
load ../helper

# Lines after "$ " and "> " of the console blocks; those of make are what `make check` itself is.
commands() {
    awk '/^```console/ { on = 1; next } /^```/ { on = 0 } !on { next }
        /^\$ / { skip = /^\$ make/; if (!skip) print substr($0, 3); next }
        /^> / { if (!skip) print substr($0, 3) }' "$ROOT/README.md"
}

@test "the commands of the README work as they stand" {
    [[ -z ${SANITIZER-} ]] || skip "its training takes too long under $SANITIZER"
    ln -s "$BIN" bin
    mkdir build
    cc -O1 -o build/stories "$ROOT/tests/demo/stories.c"
    commands > commands.sh
    [[ $(wc -l < commands.sh) -ge 10 ]]
    run -0 --separate-stderr bash -e -o pipefail commands.sh
    # the perplexity by pipe and by llm-bench are of one model, and it has learned something
    awk -F'\t' -v piped="$(grep -E '^[0-9.]+$' <<< "$output")" '$1 == "held-out.txt" && NF == 9 { seen = $6 / piped; good = $6 < 10 }
        END { exit !(good && seen > .95 && seen < 1.05) }' <<< "$output" || fail "$output"
    [[ $output == *"Once upon a time"* && $(grep -c $'^2\t' <<< "$output") == 4 ]]
}

@test "what the README names is there: programs, files, folders, targets" {
    local name
    for name in "$ROOT"/bin/llm-*.c; do
        grep -q "^| \`$(basename "$name" .c)\`" "$ROOT/README.md"
    done
    while read -r name; do
        [[ $name == *'<'* || -e $ROOT/$name ]] || fail "README.md names $name"
    done < <(grep -oE '`?(lib|tests|bin|formats|man)/[a-z_0-9./<>-]*[a-z/>]' "$ROOT/README.md" | tr -d '`' | sort -u)
    for name in $(grep -oE '^    make [a-z-]+|`make [a-z -]+`' "$ROOT/README.md" | tr -d '`' | sed 's/^ *make//' | sort -u); do
        make -s -C "$ROOT" help | grep -q "^$name " || fail "README.md names make $name"
    done
}
