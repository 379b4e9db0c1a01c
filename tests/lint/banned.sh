#!/bin/bash
# Functions with a better twin, and what a library may not do. Prints each use and returns 1.
# Usage: tests/lint/banned.sh [FOLDER that holds lib/ and bin/]
set -u
cd "${1:-${0%/*}/../..}" || exit 1
bad=0

# forbid WHY EXPRESSION FILE...: calls that match outside comments and strings.
forbid() {
    local why=$1 expression=$2 found
    shift 2
    found=$(awk -v call="(^|[^A-Za-z0-9_>.])($expression)[[:space:]]*\\\\(" '
        FNR == 1 { comment = 0 }
        {
            line = $0
            gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
            if (comment) { if (!sub(/^.*\*\//, "", line)) next; comment = 0 }
            gsub(/\/\*([^*]|\*[^\/])*\*\//, "", line)
            if (sub(/\/\*.*$/, "", line)) comment = 1
            sub(/\/\/.*$/, "", line)
            if (line ~ call) print FILENAME ":" FNR ": " $0
        }' "$@")
    [[ -z $found ]] && return
    printf '%s\n  (%s)\n' "$found" "$why"
    bad=1
}

mapfile -t all < <(find lib bin -name '*.[ch]' | LC_ALL=C sort)
mapfile -t quiet < <(find lib -name '*.[ch]' ! -path 'lib/base/*' | LC_ALL=C sort)
mapfile -t no_pages < <(find lib bin -name '*.[ch]' ! -path 'lib/base/pages.c' | LC_ALL=C sort)
forbid "no bound on what they write: snprintf, memcpy, llm_buf_*" 'strcpy|strcat|stpcpy|sprintf|vsprintf|gets' "${all[@]}"
forbid "lib/base/pages.h owns what is released to the operating system" 'madvise|posix_madvise|malloc_trim' "${no_pages[@]}"
forbid "no errors, no bounds: llm_parse_int, llm_parse_real" 'atoi|atol|atoll|atof' "${all[@]}"
forbid "hidden state: strtok_r, base/rng.h" 'strtok|rand|srand|random|srandom|drand48' "${all[@]}"
forbid "unsafe names and shells" 'tmpnam|tempnam|mktemp|system|popen|alloca' "${all[@]}"
if ((${#quiet[@]})); then
    forbid "a library neither ends the process nor prints: base/err.h, base/log.h" 'exit|_exit|abort|printf|puts|putchar|perror|vprintf' \
        "${quiet[@]}"
fi
exit "$bad"
