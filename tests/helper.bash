# What every bats file loads (`load ../helper`): the programs first in PATH, a fresh empty folder as the working directory.
#
#   $ROOT    the checkout
#   $SHARED  test data beside the checkout; need_shared skips the test when it is absent
#   $BIN     the folder of the programs under test (make asan and its like give another)
#
# setup_file runs in $BATS_FILE_TMPDIR, each test in a folder of its own.

# Before every command bats notes where it is, to name the line of one that fails: that takes longer than most commands. The trap of ERR knows the line
# as well. (`bats --trace` keeps the trap.)
if [[ ${BATS_TRACE_LEVEL:-0} == 0 && $(type -t bats_setup_tracing) == function ]]; then
    eval "traced_$(declare -f bats_setup_tracing)"
    bats_setup_tracing() {
        traced_bats_setup_tracing
        trap - DEBUG
    }
    bats_error_trap() {
        bats_check_status_from_trap
        [[ ${BATS_DEBUG_LAST_STACK_TRACE_IS_VALID-} ]] || bats_capture_stack_trace
        BATS_DEBUG_LAST_STACK_TRACE_IS_VALID=1
    }
    trap - DEBUG # in setup_file
fi

bats_require_minimum_version 1.5.0

# The libraries' functions that tests call. Reading the libraries takes as long as bats needs for a test, so only a call that plain_NAME does not find
# true reads them: one that fails, or that has options.
plain_assert_equal() { [[ $1 == "$2" ]]; }
plain_assert_output() { [[ $# == 1 && $1 != -* && -v output && $output == "$1" ]]; }
plain_assert_line() {
    local line
    [[ $# == 1 && $1 != -* ]] || return 1
    for line in "${lines[@]}"; do [[ $line != "$1" ]] || return 0; done
    return 1
}
plain_assert_exist() { [[ $# == 1 && -e $1 ]]; }
plain_assert_not_exist() { [[ $# == 1 && ! -e $1 ]]; }
for name in fail assert_equal assert_output assert_line assert_regex refute_output refute_line \
    assert_exist assert_exists assert_not_exist assert_not_exists assert_file_exist assert_file_exists assert_file_executable; do
    if declare -F "plain_$name" > /dev/null; then eval "$name() { plain_$name \"\$@\" || { libraries; $name \"\$@\"; }; }"
    else eval "$name() { libraries; $name \"\$@\"; }"; fi
done
unset name
assert() { "$@" || fail "expected to be true: $*"; }
refute() { ! "$@" || fail "expected to be false: $*"; }
libraries() {
    dirname() { printf '%s\n' "${1%/*}"; } # they ask for their folder twenty times: not by a program each
    bats_load_library bats-support
    bats_load_library bats-assert
    bats_load_library bats-file
    unset -f dirname
}

# bats asks mktemp for the file of each `run --separate-stderr`: not by a program each.
mktemp() {
    if [[ $# == 1 && $1 == "${BATS_TEST_TMPDIR-}"/separate-stderr-XXXXXX ]]; then
        printf '%s\n' "${1%XXXXXX}$BASHPID"
    else
        command mktemp "$@"
    fi
}

# jq reads its own library at every start, ten times as long as gojq needs for most filters. Where the order of an object's keys counts, or bytes that are
# no characters do: `command jq`.
if type -P gojq > /dev/null; then
    jq() {
        case $* in
        *input_line_number* | *keys_unsorted*) command jq "$@" ;; # which gojq does not know
        *) gojq "$@" ;;
        esac
    }
fi

ROOT=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)
SHARED=${LLM_SHARED:-$ROOT/../shared}
BIN=${BIN:-bin}
[[ $BIN == /* ]] || BIN=$ROOT/$BIN
export ROOT SHARED BIN PATH="$BIN:$PATH" LC_ALL=C.UTF-8
unset LLM_THREADS LLM_ISA

if [[ -n ${BATS_TEST_TMPDIR-} ]]; then
    mkdir -p "$BATS_TEST_TMPDIR/work"
    cd "$BATS_TEST_TMPDIR/work" || exit 1
elif [[ -n ${BATS_FILE_TMPDIR-} ]]; then
    cd "$BATS_FILE_TMPDIR" || exit 1
fi

# need_shared [FILE]: skips unless $SHARED/data (or $SHARED/data/FILE) is there.
need_shared() {
    [[ -e $SHARED/data/${1-} ]] || skip "${1:-data} is not in ../shared/data"
}

# need_tool NAME...: skips unless all these programs are in PATH.
need_tool() {
    local tool
    for tool; do
        command -v "$tool" > /dev/null || skip "$tool is not installed"
    done
}

# need_plain_memory: skips under AddressSanitizer and its like, which take address space of their own.
need_plain_memory() {
    [[ -z ${SANITIZER-} ]] || skip "memory limits mean nothing under $SANITIZER"
}

# without_sanitizer COMMAND...: a training of hundreds of steps, or thousands of samples. Under a sanitizer it is left to the programs of the plain
# build, which give the same bits ten times as fast; its first ones are taken under the sanitizer elsewhere.
without_sanitizer() {
    PATH=${SANITIZER:+$ROOT/bin:}$PATH "$@"
}

# running PID: waits until process PID, begun in the background, has become a program of the toolkit. Until then a shell may still stand in its place,
# which ignores SIGINT.
running() {
    until [[ $(cat "/proc/$1/comm" 2> /dev/null || ps -o comm= -p "$1") == *llm-* ]]; do # a minimal Debian has no ps
        kill -0 "$1" || fail "process $1 ended before it began"
        sleep .02
    done
}

# filled FILE PID: waits until FILE is not empty, which process PID makes it.
filled() {
    until [[ -s $1 ]]; do
        kill -0 "$2" || fail "$1: process $2 ended and left it empty"
        sleep .02
    done
}

# comes_true PID COMMAND...: waits until COMMAND succeeds, however long that takes; fails if process PID ends before.
comes_true() {
    local pid=$1
    shift
    until "$@" 2> /dev/null; do
        kill -0 "$pid" || fail "process $pid ended before this came true: $*"
        sleep .02
    done
}

# has_lines FILE N: FILE has at least N lines.
has_lines() {
    (($(wc -l < "$1") >= $2))
}

# writes_lines PID FOLDER N: one of the regular files that process PID has opened for writing in FOLDER, under whatever name, has N lines or more.
writes_lines() {
    local fd flags
    for fd in "/proc/$1/fd"/*; do
        [[ ${fd##*/} -gt 2 && $(readlink "$fd") == "$(cd "$2" && pwd -P)"/* && -f $fd ]] || continue
        flags=$(sed -n 's/^flags:[[:space:]]*//p' "/proc/$1/fdinfo/${fd##*/}")
        (((8#$flags & 3) != 0)) || continue
        if has_lines "$fd" "$3"; then return 0; fi
    done
    return 1
}

# ends_by STATUS PID: process PID ends with this status.
ends_by() {
    local status=0
    wait "$2" || status=$?
    [[ $status == "$1" ]] || fail "expected status $1, found $status"
}

# interrupted SIGNAL LINE COMMAND...: sends SIGNAL once COMMAND has logged LINE lines; its status. The log is a pipe of one page of memory, so COMMAND
# cannot end before the signal if its log has LINE lines and two pages more (at most 60 lines).
interrupted() {
    local signal=$1 line=$2 pid status=0
    shift 2
    rm -f fifo
    mkfifo fifo
    exec 9<> fifo
    perl -e 'fcntl(STDIN, 1031, 4096) or die "F_SETPIPE_SZ: $!\n"' <&9
    env --default-signal=INT,HUP "$@" --log fifo <&0 9>&- & # a shell ignores SIGINT, and closes standard input, for what it runs in the background
    pid=$!
    { head -n "$line" > seen; exec 9>&-; kill -s "$signal" $pid; cat > rest; } < fifo
    wait $pid || status=$?
    return $status
}

# struck NUMBER PID: signal NUMBER for process PID, which dies of it unless it has ended well before.
struck() {
    local status=0
    kill -"$1" "$2" 2> /dev/null || echo "process $2 has ended"
    wait "$2" || status=$?
    [[ $status == 0 || $status == $((128 + $1)) ]] || fail "expected status 0 or $((128 + $1)), found $status"
}

# memory_meter: in setup_file, builds what `within` measures by.
memory_meter() {
    "${CC:-cc}" -O1 -w -o "$BATS_FILE_TMPDIR/peak" "$ROOT/tests/fault/peak.c"
}

# within MB COMMAND...: runs COMMAND, which may have that many million bytes resident at once; its status.
within() {
    local most=$1 status=0
    shift
    "$BATS_FILE_TMPDIR/peak" "$BATS_TEST_TMPDIR/peak.kib" "$@" || status=$?
    (($(< "$BATS_TEST_TMPDIR/peak.kib") * 1024 <= most * 1000000)) ||
        fail "expected at most $most MB resident, found $(($(< "$BATS_TEST_TMPDIR/peak.kib") * 1024 / 1000000)): $*"
    return $status
}

# one_line TEXT: TEXT is a message of exactly one line (what the toolkit promises of an error).
one_line() {
    [[ -n $1 && $1 != *$'\n'* ]] || fail "expected one line, found: $1"
}

# nothing_left [FILE]: no temporary file stands beside FILE (the current folder when not given).
nothing_left() {
    local found
    shopt -s dotglob globstar nullglob
    found=("${1:-.}"/**/{*.tmp*,*llm-tmp-*,.llm-*})
    shopt -u dotglob globstar nullglob
    [[ ${#found[@]} == 0 ]] || fail "left behind: ${found[*]}"
}

# refused STATUS PATTERN COMMAND...: the program of COMMAND fails so, in one line under its name, prints nothing, and leaves nothing half made.
refused() {
    local wanted=$1 pattern=$2
    shift 2
    run "-$wanted" --separate-stderr "$@" < /dev/null
    [[ -z $output ]] || fail "printed: $output"
    [[ $wanted == 2 ]] && stderr=${stderr%$'\n'Try*} # misuse adds the line "Try '… --help'."
    one_line "$stderr"
    [[ $* =~ llm-[a-z]+ && $stderr == "${BASH_REMATCH[0]}"[:\ ]*$pattern* ]] || fail "expected '$pattern', found: $stderr"
    nothing_left
}

# near A B TOLERANCE: two numbers differ by at most TOLERANCE · |B|. What is no number (null, nan, nothing) is near nothing.
near() {
    echo "$1 $2" | apart 0 "$3" || fail "expected $2 within $3 of its size, found $1"
}

# idx FILE DIMENSION... : the header of an IDX file of bytes; its data come from standard input.
idx() {
    local n
    { printf "\\0\\0\\x08\\x0$(($# - 1))"; for n in "${@:2}"; do printf '%b' "$(printf '\\x%02x' 0 0 $((n / 256)) $((n % 256)))"; done; cat; } > "$1"
}

# near_lines FILE FILE BOUND: two files of as many numbers, one a line and at least one, whose lines differ by at most BOUND.
near_lines() {
    paste "$1" "$2" > "$BATS_TEST_TMPDIR/pairs"
    apart "$3" 0 < "$BATS_TEST_TMPDIR/pairs" || fail "expected the second of two numbers within $3, found $(head -n 40 "$BATS_TEST_TMPDIR/pairs")"
}

# near_range FILE FILE SHARE: two files of as many numbers, one a line, whose lines differ by at most SHARE of the range of the second's.
near_range() {
    local range
    range=$(awk 'NR == 1 { low = high = $1 } { if ($1 < low) low = $1; if ($1 > high) high = $1 } END { print high - low }' "$2")
    near_lines "$1" "$2" "$(awk -v r="$range" -v s="$3" 'BEGIN { print r * s }')"
}

# elements FILE TENSOR: the F32 numbers of the tensor in all messages of FILE, one a line.
elements() {
    local n at=1 from to end
    while n=$(tail -c +$at "$1" | od -An -tu8 -N8) && read -r end from to < <(tail -c +$((at + 8)) "$1" | head -c "$n" | jq -r --arg t "$2" \
        'select(.[$t]) | [[.[].data_offsets // [] | .[]] | max] + .[$t].data_offsets | @tsv'); do
        tail -c +$((at + 8 + n + from)) "$1" | head -c $((to - from)) | od -An -v -tf4 -w4
        at=$((at + 8 + n + end))
    done
}

# apart ABSOLUTE RELATIVE: stdin has pairs of numbers, at least one, the second of each expected; fails if any two differ by more.
apart() {
    awk -v absolute="$1" -v relative="$2" '
        function number(s) { return s ~ /^[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?$/ }
        NF != 2 || !number($1) || !number($2) { bad = 1; next }
        { d = $1 - $2; size = $2 < 0 ? -$2 : $2; if ((d < 0 ? -d : d) > absolute + relative * size) bad = 1 }
        END { exit bad || NR == 0 }'
}

# sentences N: N lines of made-up English, the same at each call.
sentences() {
    awk -v n="$1" 'BEGIN { split("red green small old quick", a); split("cat dog bird fish hen", b); split("sees likes hears follows", v)
        for (i = 0; i < n; i++) printf "the %s %s %s the %s\n", a[i % 5 + 1], b[i * 7 % 5 + 1], v[i * 3 % 4 + 1], b[i * 11 % 5 + 1] }'
}

# sentences_tokens: in setup_file, $F with text, tok.json (280 tokens) and data.tok (a document a line).
sentences_tokens() {
    sentences 400 > text
    llm-tokenize train --vocab-size 280 -o tok.json text
    llm-tokenize encode -T tok.json --lines -o data.tok text
    export F=$PWD
}

# policy_model: in setup_file, $F with text, tok.json (bytes), data.tok (a document a line) and policy.llm, a small model that has learned from it, of
# which rollouts can be sampled.
policy_model() {
    sentences 300 > text
    llm-tokenize train --model byte -o tok.json text
    llm-tokenize encode -T tok.json --lines -o data.tok text
    llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -T tok.json -n 60 \
        -b 8 -l 32 --lr 3e-3 -o policy.llm data.tok
    export F=$PWD
}

# counting_model LAYERS OPTION...: in setup_file, m.llm with LAYERS layers, trained with these options on the numbers in `text`. Rows of its matrices are
# whole blocks of 256, except those of down_proj, which have 96 elements.
counting_model() {
    printf '{"model_type": "llama", "vocab_size": 256, "hidden_size": 256, "intermediate_size": 96, "num_hidden_layers": %d, "num_attention_heads": 4,
             "num_key_value_heads": 2, "tie_word_embeddings": false}' "$1" > c.json
    seq 1 2000 > text
    llm-tokenize train --model byte -o tok.json text
    llm-tokenize encode -T tok.json -o data.tok text
    llm-train -q -c c.json -T tok.json -l 32 "${@:2}" -o m.llm data.tok
}

# steps_done MODEL: how many steps the run has made that MODEL goes on with.
steps_done() {
    local length
    length=$(zstd -qdc "$1" | head -c 8 | od -An -tu8)
    zstd -qdc "$1" | tail -c +9 | head -c $((length)) | jq -e '.__metadata__["llm.training"] | fromjson.step'
}

# hashes LOG: of the parameters after each step that LOG tells of.
hashes() {
    jq -er .hash "$1"
}

# same_by_threads COMMAND...: COMMAND writes the same model by one thread (whole.llm, whole.jsonl) and by two.
same_by_threads() {
    "$@" -j 1 --log whole.jsonl -o whole.llm
    "$@" -j 2 -o two.llm
    cmp whole.llm two.llm
}

# same_steps COMMAND...: COMMAND goes through the parameters that whole.jsonl tells of.
same_steps() {
    "$@" --log other.jsonl -o other.llm
    hashes whole.jsonl > whole.hashes
    hashes other.jsonl | cmp - whole.hashes
}

# same_when_resumed N COMMAND...: six steps of COMMAND, and N of them that --resume goes on with (resumed.llm), write the same model.
same_when_resumed() {
    local steps=$1
    shift
    "$@" --schedule constant --warmup 2 -n "$steps" -o part.llm
    "$@" --schedule constant --warmup 2 -n 6 -o straight.llm
    llm-train -q --resume part.llm -n 6 -o resumed.llm
    cmp straight.llm resumed.llm
}

# readme_commands: those of the README, the lines after "$ " and "> " of its console blocks, but not those of make, which are what `make check` itself is.
readme_commands() {
    awk '/^```console/ { on = 1; next } /^```/ { on = 0 } !on { next }
        /^\$ / { skip = /^\$ make/; if (!skip) print substr($0, 3); next }
        /^> / { if (!skip) print substr($0, 3) }' "$ROOT/README.md"
}

# readme_run: runs commands.sh beside the programs, as a reader of the README has them. $output: what they print. The perplexity by pipe and by llm-bench
# is that of one model.
readme_run() {
    ln -s "$BIN" bin
    mkdir build
    cc -O1 -o build/stories "$ROOT/tests/demo/stories.c"
    [[ $(wc -l < commands.sh) -ge 10 ]]
    run -0 --separate-stderr bash -e -o pipefail commands.sh
    awk -F'\t' -v piped="$(grep -E '^[0-9.]+$' <<< "$output")" '$1 == "held-out.txt" && NF == 9 { seen = $6 / piped }
        END { exit !(seen > .95 && seen < 1.05) }' <<< "$output" || fail "$output"
}

# manual_blocks PAGE: `blocks`, the displays of man/PAGE as commands, in order.
manual_blocks() {
    mapfile -t -d '' blocks < <(awk '/^\.Bd/ { code = 1; next } /^\.Ed/ { code = 0; printf "%c", 0 } code' "$ROOT/man/$1" |
        sed 's/\\e/\\/g; s/^\\&//')
}

# manual_examples PROGRAM N: runs each block of the EXAMPLES of man/PROGRAM.1; there are N of them.
manual_examples() {
    local block blocks
    mapfile -t -d '' blocks < <(awk '/^\.Sh EXAMPLES/ { on = 1 } /^\.Sh SEE/ { on = 0 } !on { next } /^\.Bd/ { code = 1; next }
        /^\.Ed/ { code = 0; printf "%c", 0 } code' "$ROOT/man/$1.1" | sed 's/\\e/\\/g; s/^\\&//')
    [[ ${#blocks[@]} == "$2" ]] || fail "expected $2 examples, found ${#blocks[@]}"
    for block in "${blocks[@]}"; do
        run -0 bash -e -o pipefail -c "$block"
    done
}
