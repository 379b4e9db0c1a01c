# The rules of the tree itself. Each check is a script or a line here; those that could go blind are tried on a planted breach.
load ../helper

setup() {
    cd "$ROOT" || exit 1
}

# plant FILE TEXT: a small tree in $BATS_TEST_TMPDIR/tree with that file.
plant() {
    mkdir -p "$BATS_TEST_TMPDIR/tree/bin" "$BATS_TEST_TMPDIR/tree/${1%/*}"
    printf '%s\n' "$2" > "$BATS_TEST_TMPDIR/tree/$1"
}

@test "a file includes headers of its own layer and those before it only" {
    run -0 tests/lint/layers.sh
    assert_output ""
}

@test "the layer check sees a header of a later layer, an unknown one, and a bare name" {
    plant lib/cpu/x.c '#include "model/model.h"'
    run -1 tests/lint/layers.sh "$BATS_TEST_TMPDIR/tree"
    assert_output "lib/cpu/x.c:1: cpu may not include model/model.h"
    plant lib/cpu/x.c '#include "nowhere/x.h"'
    run -1 tests/lint/layers.sh "$BATS_TEST_TMPDIR/tree"
    plant lib/cpu/x.c '#include "x.h"'
    run -1 tests/lint/layers.sh "$BATS_TEST_TMPDIR/tree"
}

@test "the layer check sees an include against the direction of the rooms of lib/model" {
    plant lib/model/config/x.c '#include "model/spec/block.h"'
    run -1 tests/lint/layers.sh "$BATS_TEST_TMPDIR/tree"
    assert_output "lib/model/config/x.c:1: model/config may not include model/spec/block.h"
    plant lib/model/config/x.c '#include "model/config/config.h"'
    plant lib/model/forward/x.c '#include "model/model.h"'
    run -1 tests/lint/layers.sh "$BATS_TEST_TMPDIR/tree"
    assert_output "lib/model/forward/x.c:1: model/forward may not include model/model.h"
    plant lib/model/forward/x.c '#include "model/weights/model.h"'
    run -0 tests/lint/layers.sh "$BATS_TEST_TMPDIR/tree"
}

@test "files call one another in one direction" {
    run -0 tests/lint/circles.sh "${OBJECTS:-build}"
    assert_output ""
}

@test "the check of circles sees one of three files, and one of headers" {
    local tree=$BATS_TEST_TMPDIR/tree
    plant lib/base/a.c 'void b(void); void a(void); void a(void) { b(); }'
    plant lib/base/b.c 'void c(void); void b(void); void b(void) { c(); }'
    plant lib/base/c.c 'void a(void); void c(void); void c(void) { a(); }'
    plant lib/base/d.c 'void a(void); void d(void); void d(void) { a(); }'
    mkdir -p "$tree/build/lib/base" "$tree/build/bin"
    for f in a b c d; do ${CC:-cc} -c -o "$tree/build/lib/base/$f.o" "$tree/lib/base/$f.c"; done
    run -1 tests/lint/circles.sh "$tree/build" "$tree"
    assert_output "lib/base/a: b of lib/base/b, which leads back
lib/base/b: c of lib/base/c, which leads back
lib/base/c: a of lib/base/a, which leads back"
    rm "$tree"/build/lib/base/c.o
    run -0 tests/lint/circles.sh "$tree/build" "$tree"
    plant lib/base/a.h '#include "base/b.h"'
    plant lib/base/b.h '#include "base/a.h"'
    run -1 tests/lint/circles.sh "$tree/build" "$tree"
    assert_output "lib/base/a.h: included of lib/base/b.h, which leads back
lib/base/b.h: included of lib/base/a.h, which leads back"
}

@test "no banned function is called" {
    run -0 tests/lint/banned.sh
    assert_output ""
}

@test "the check of banned functions sees a call, and not a word in a comment" {
    plant lib/io/x.c 'void f(char *s) { strcpy(s, "x"); }'
    run -1 tests/lint/banned.sh "$BATS_TEST_TMPDIR/tree"
    plant lib/io/x.c '/* strcpy(s) */ int x; // sprintf()'
    run -0 tests/lint/banned.sh "$BATS_TEST_TMPDIR/tree"
    plant lib/io/x.c 'void f(void) { exit(1); }'
    run -1 tests/lint/banned.sh "$BATS_TEST_TMPDIR/tree"
}

@test "nothing finds out what a parameter is from its name: its declaration says it" {
    run -1 grep -rnE 'str(n?cmp|str)\([^;]*\b(p|param|spec|specs\[[a-z]+\]|params\[[a-z]+\])(->|\.)name\b' lib/model lib/train lib/measure lib/infer lib/quant --exclude=model.c # llm_model_find looks a name up
    run -1 grep -rnE '(==|!=) *&?[a-z>.-]*(params\[0\]|arch->names\b)' lib
}

@test "every program has a manual page, and both name the same options" {
    local source name bad=0
    for source in bin/llm-*.c; do
        name=${source#bin/}
        name=${name%.c}
        [[ -e man/$name.1 ]] || { echo "man/$name.1 is missing"; bad=1; continue; }
        tests/lint/options.sh "$BIN/$name" "man/$name.1" || bad=1
    done
    ((bad == 0))
}

@test "every option's help, every page's line and every sub-command is within reach of --help" {
    local source name command all
    for source in bin/llm-*.c; do
        name=${source#bin/}
        name=${name%.c}
        all=$("$name" --help=all)
        while read -r command; do
            grep -q -e "--$command[= ]" <<< "$all" || fail "$name --help=all lacks --$command"
        done < <("$name" --complete-options | awk -F'\t' '$1 != "command" && $2 != "" { print substr($2, 3) }')
        run -0 "$name" --help
        [[ $output == *"$name"* ]]
        [[ $(wc -l <<< "$output") -le 50 ]] || fail "$name --help: no longer on a screen of 50 lines: see .usual in base/cli.h"
        while read -r command; do
            run -0 "$name" "$command" --help
            [[ $output == *"$name $command"* ]]
            [[ $(wc -l <<< "$output") -le 50 ]] || fail "$name $command --help: no longer on a screen of 50 lines: see .usual in base/cli.h"
        done < <("$name" --complete-options | awk -F'\t' '$1 == "command" { print $2 }')
    done
}

@test "tests have no check that cannot fail" {
    # `! command` and all but the last of `a && b` never end a test
    run -1 grep -rnE --include='*.bats' --include='*.bash' -e '^ *! ' -e '\|\| *(true|:)( |;|\)|$)' -e '^ +cmp [^|&]*&& cmp' -e '<<.*\|\| skip' tests
}

@test "manual pages pass mandoc -Tlint" {
    run mandoc -Tlint -Wstyle man/*.[17]
    # a page that is not installed yet cannot be found
    run grep -v -e 'referenced manual not found' -e 'mandoc.db' <<< "$output"
    assert_output ""
}

@test "manual pages as they are rendered: options that exist, quotes that end where they should" {
    run -0 tests/lint/rendered.sh "$BIN" man/*.[17]
    assert_output ""
}

@test "the check of rendered pages sees words that became options, and quotes within quotes" {
    cat > "$BATS_TEST_TMPDIR/page.1" << 'EOF'
.Dd November 22, 2026
.Dt PAGE 1
.Os
.Sh NAME
.Nm page
.Nd a page
.Sh DESCRIPTION
Documents stand alone
.Pq unless Fl -cross-document is given ;
see
.Sq a , Sq b .
EOF
    run -1 tests/lint/rendered.sh "$BIN" "$BATS_TEST_TMPDIR/page.1"
    assert_line --partial 'rendered: -is'
    assert_line --partial 'rendered: -given'
    assert_line --partial '‘a, ‘b’'
    refute_line --partial 'cross-document'
}

# each_command: PROGRAM and, where it has some, COMMAND, one a line
each_command() {
    local source name
    for source in bin/llm-*.c; do
        name=$(basename "$source" .c)
        "$name" --complete-options | awk -F'\t' -v name="$name" '$1 == "command" { print name, $2; some = 1 } END { if (!some) print name }'
    done
}

@test "other names stand for options there are, no option or other name is given twice, and the manual lists each" {
    local command page
    while read -r command; do
        page=man/${command%% *}.1
        # shellcheck disable=SC2086  # a program and its command
        $command --complete-options | awk -F'\t' '$1 != "command" && $2 != "" { print $2; if ($1 != "") print $1 }' > "$BATS_TEST_TMPDIR/own"
        # shellcheck disable=SC2086
        $command --complete-aliases > "$BATS_TEST_TMPDIR/names"
        run cut -f 2 "$BATS_TEST_TMPDIR/names"
        [[ -z $(sort "$BATS_TEST_TMPDIR/own" <(echo "$output") | sed '/^$/d' | uniq -d) ]] || fail "$command: $(sort "$BATS_TEST_TMPDIR/own" <(echo "$output") | uniq -d)"
        while IFS=$'\t' read -r kind word option; do
            [[ $kind == foreign ]] && continue
            grep -qxF -e "$option" "$BATS_TEST_TMPDIR/own" || fail "$command: $word stands for $option, which there is not"
            grep -qxF -e ".It Li $word Ta Fl ${option#-}" "$page" || fail "$page: missing: $word for $option"
        done < "$BATS_TEST_TMPDIR/names"
    done < <(each_command)
}

@test "the manual names each word of a choice that comes from a table" {
    local command page word
    while read -r command; do
        page=$(mandoc -T utf8 -O width=200 "man/${command%% *}.1" | sed 's/.\x08//g')
        while read -r word; do
            grep -qwF -e "$word" <<< "$page" || fail "man/${command%% *}.1: missing: $word"
        done < <($command --complete-options | awk -F'\t' '$1 != "command" { print $3 "|" $5 }' | tr '|' '\n' | grep -E '^[a-z0-9_-]+$')
    done < <(each_command)
}

@test "comments, manuals and Markdown pages name files, sections and functions that exist" {
    run -0 tests/lint/refs.sh
    assert_output ""
}

@test "the check of references sees a file, a section, a function, a link and a manual's section that are not there" {
    plant lib/README.md $'# Page\n\n## Canonical order\n\nSee [this](gone.txt) and `llm_there`.'
    plant lib/io/x.c $'/* See io/gone.h. */\nint llm_there;\n/* (lib/README.md, Canonical order), tests/x.bats, io/<name>.h, llm_<name>, llm_gone */ /* (lib/README.md,\n * Lost order) */'
    plant man/llm-x.1 $'.Sh NAME\nsee\n.Sx Elsewhere\nand\n.Sx NAME ,\n.Sx NAME\nof\n.Xr llm-y 1'
    run -1 tests/lint/refs.sh "$BATS_TEST_TMPDIR/tree"
    assert_line "lib/io/x.c:1: no such file: io/gone.h"
    assert_line "lib/io/x.c:3: no such name: llm_gone"
    assert_line --partial "lib/io/x.c:3: no such section: lib/README.md, Lost order"
    assert_line --partial "no such file: gone.txt"
    assert_line "man/llm-x.1: no such section: Elsewhere"
    assert_line "man/llm-x.1: no such page: llm-y(1)"
    [[ ${#lines[@]} -eq 6 ]]
}

@test "the top level holds only what it should" {
    local name bad=0
    while read -r name; do
        case $name in
        bin | lib | formats | man | tests | Makefile | README.md | LICENSE | .ci | .clang-format | .gitignore) ;;
        *) echo "not expected at the top: $name"; bad=1 ;;
        esac
    done < <(git ls-files 2> /dev/null | cut -d/ -f1 | sort -u)
    ((bad == 0))
}

@test "a test that runs python3 says that it needs it" {
    run -0 tests/lint/python.sh
    assert_output ""
    mkdir -p "$BATS_TEST_TMPDIR/tree/tests/cli"
    printf '%s\n' 'reads() {' '    python3 -c 1' '}' '@test "a" {' '    reads' '}' '@test "b" {' '    need_tool python3' '    reads' '}' '@test "c" {' \
        '    echo' '}' > "$BATS_TEST_TMPDIR/tree/tests/cli/x.bats"
    run -1 tests/lint/python.sh "$BATS_TEST_TMPDIR/tree"
    assert_output 'tests/cli/x.bats: @test "a" {'
}

@test "make check-slow runs every fuzzer for ten minutes, and says how long that takes" {
    local source
    sed -n '/^check-slow:/,/^$/p' Makefile | grep -q ' fuzz-slow ' # -n would build: it calls make
    grep -qx 'FUZZ_SLOW_SECONDS ?= 600' Makefile
    make -s -f - print BUILD=build/fuzz <<< $'include Makefile\nprint:\n\t@printf "%s\\n" $(FUZZERS)\n' > "$BATS_TEST_TMPDIR/fuzzers"
    for source in tests/fuzz/fuzz_*.c; do grep -qx "build/fuzz/${source%.c}" "$BATS_TEST_TMPDIR/fuzzers" || fail "$source"; done
    cd "$BATS_TEST_TMPDIR"
    printf '#!/bin/sh\necho "Done 5 runs in 1 second(s)"\n' > fuzz_well
    printf '#!/bin/sh\necho "ERROR: found"\nexit 77\n' > fuzz_finds
    printf '#!/bin/sh\nexit 0\n' > fuzz_idle
    chmod +x fuzz_*
    JOBS=2 run -0 "$ROOT/tests/fuzz/run" 600 ./fuzz_well
    assert_output $'1 fuzzers of 600 s, 2 at once: 10 min\nok    fuzz_well: 5 runs in 1 second(s)'
    JOBS=2 run -1 "$ROOT/tests/fuzz/run" 600 ./fuzz_well ./fuzz_finds ./fuzz_idle ./missing
    assert_line --index 0 '4 fuzzers of 600 s, 2 at once: 20 min'
    assert_line --partial 'FAIL  fuzz_finds: status 77'
    assert_line 'ERROR: found'
    assert_line --partial 'FAIL  fuzz_idle: status 0'
    assert_line --partial 'FAIL  missing: status 127'
}

@test "no source file is longer than 700 lines, no line longer than 150 columns" {
    run -0 env LC_ALL=C awk 'FNR == 701 { print FILENAME " is longer than 700 lines" }
        { line = $0; gsub(/[\200-\277]/, "", line) } length(line) > 150 { print FILENAME ":" FNR ": a line of " length(line) " columns" }' \
        $(find lib bin tests -name '*.[ch]')
    assert_output ""
}

@test "shell scripts parse" {
    local script
    for script in .ci/* tests/run tests/helper.bash tests/*/run tests/*/*.sh man/*.bash; do
        [[ ! -f $script ]] || bash -n "$script"
    done
}

@test "the examples of tests/extend apply to the tree" {
    local patch tree=$BATS_TEST_TMPDIR/tree
    command -v patch > /dev/null || skip "no patch program"
    mkdir "$tree"
    sed -n 's|^--- a/||p' tests/extend/*.patch | sort -u | xargs cp --parents -t "$tree"
    for patch in tests/extend/*.patch; do patch -s -p1 --fuzz=2 -d "$tree" < "$patch"; done
}

@test "every golden that a format page names exists, and each page of bytes names one" {
    local page path bad=0
    for page in formats/*.md; do
        grep -q 'tests/golden/' "$page" || { echo "$page names no golden"; bad=1; }
        while read -r path; do
            compgen -G "$path" > /dev/null || { echo "$page: $path does not exist"; bad=1; }
        done < <(grep -oE 'tests/golden/[A-Za-z0-9_./*-]*[A-Za-z0-9_*]' "$page")
    done
    ((bad == 0))
}

@test "no source says TODO, FIXME or XXX" {
    run -1 grep -rnE --include='*.[ch]' '\b(TODO|FIXME|XXX|HACK)\b' lib bin
}

@test "what stands for cmocka under qemu has all that the tests of lib/cpu use" {
    run -0 ${CC:-cc} -std=c11 -D_GNU_SOURCE -fsyntax-only -Werror=implicit-function-declaration -Itests/cross -Ilib \
        $(grep -L base/hash.h tests/unit/cpu/test_*.c)
    assert_output ""
}

@test "no file names a path of the machine it was written on, or a paper that is not in the tree" {
    run -1 grep -rnE --binary-files=without-match --exclude=.git --exclude-dir={.git,build,dist,lint} \
        '/(work)/|/(home)/[a-z]|\b(DESIGN|STYLE|ENGLISH|PITFALLS|ORACLES|MISSION|PLAN)\b' .
    assert_output ""
}
