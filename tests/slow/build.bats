# Building: the same bytes in any folder, from the tarball too, with both compilers; what install puts, uninstall takes.
load ../helper

PROGRAMS="llm-tokenize llm-train llm-infer llm-quantize llm-bench llm-kvinspect llm-index"

setup_file() {
    need_tool git
    git -C "$ROOT" rev-parse HEAD > /dev/null 2>&1 || skip "this is no git checkout"
    unset MAKEFLAGS MAKELEVEL BIN BUILD CFLAGS
    git clone -q "$ROOT" one
    make -s -C one -j2 all
}

setup() {
    unset MAKEFLAGS MAKELEVEL BIN BUILD CFLAGS
    ONE=$BATS_FILE_TMPDIR/one
}

@test "two builds in different folders are the same bytes, and so is one from the tarball" {
    local program
    make -s -C "$ONE" dist
    cp "$ONE"/dist/*.tar.gz first.tar.gz
    sleep 1
    make -s -C "$ONE" dist
    cmp first.tar.gz "$ONE"/dist/*.tar.gz
    mkdir -p somewhere/else
    tar -xzf first.tar.gz -C somewhere/else
    make -s -C somewhere/else/llmutils-* -j2 all
    for program in $PROGRAMS; do
        cmp "$ONE/bin/$program" somewhere/else/llmutils-*/bin/"$program"
    done
}

@test "install puts programs, pages, completion, formats; uninstall leaves no file" {
    make -s -C "$ONE" install DESTDIR="$PWD/root" PREFIX=/usr > /dev/null
    local program
    for program in $PROGRAMS; do
        assert_file_executable "root/usr/bin/$program"
        assert_file_exists "root/usr/share/man/man1/$program.1"
        assert_file_exists "root/usr/share/bash-completion/completions/$program"
    done
    assert_file_exists root/usr/share/man/man7/llmutils.7
    run -0 root/usr/bin/llm-bench cost --table parts nano
    make -s -C "$ONE" uninstall DESTDIR="$PWD/root" PREFIX=/usr > /dev/null
    [[ -z $(find root -type f) ]]
}

@test "clang builds it without a warning" {
    need_tool clang
    run -0 make -s -C "$ONE" -j2 CC=clang BUILD=build/clang BIN=build/clang/bin all
    assert_output ""
}

@test "a build leaves nothing that git sees, clean leaves nothing at all" {
    [[ -z $(git -C "$ONE" status --porcelain) ]]
    make -s -C "$ONE" clean
    [[ -z $(git -C "$ONE" status --porcelain --ignored) ]]
}

@test "a missing library is one clear line, before anything is compiled" {
    run ! make -s -C "$ONE" PKGS=no-such-library all
    assert_output --partial "missing: no-such-library; \`make deps\` installs what is needed"
    [[ $output != *"fatal error"* ]]
}
