# Results stay: what the commands of tests/bits/rows.bash write has the hashes of tests/bits/hashes.tsv. A change that is meant to change
# results records its rows again (tests/bits/record).
load ../helper
. "$ROOT/tests/bits/rows.bash"

# same_bits ISA: every recorded row of this instruction set.
same_bits() {
    local _ machine libc
    need_tool zstd jq
    [[ -z ${SANITIZER-} ]] || skip "the same bits as without $SANITIZER, at ten times the time"
    IFS=$'\t' read -r _ machine libc < "$ROOT/tests/bits/hashes.tsv"
    [[ $(uname -m) == "$machine" ]] || skip "hashes are those of $machine"
    [[ $(getconf GNU_LIBC_VERSION) == "$libc" ]] || skip "hashes are those of the mathematical functions of $libc"
    [[ $1 == scalar ]] || grep -qw "$1" /proc/cpuinfo || skip "this CPU has no $1"
    LLM_ISA=$1 bits_rows > found
    awk -v isa="$1" -F'\t' '$1 == isa { print $2 "\t" $3 }' "$ROOT/tests/bits/hashes.tsv" > expected
    assert_equal "$(cut -f 1 found | sort | uniq -d)" "" # a row has a name of its own
    [[ $(wc -l < expected) -gt 100 ]] || fail "expected more than 100 rows, found $(wc -l < expected)"
    diff expected found || fail "results have changed (rows expected <, found >): $(tail -n 5 errors)"
}

@test "results are the recorded bits: scalar" { same_bits scalar; }

@test "results are the recorded bits: AVX2" { same_bits avx2; }
