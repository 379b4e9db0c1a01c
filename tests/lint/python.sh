#!/bin/bash
# A test that runs python3 says so (need_tool python3 in it, in its file's setup, or a skip of its own), since a system that has all that README asks
# for may not have it. Prints each breach and returns 1. Usage: tests/lint/python.sh [FOLDER that holds tests/]
set -u
cd "${1:-${0%/*}/../..}" || exit 1
find tests -name '*.bats' | LC_ALL=C sort | xargs awk '
    # Ends a function or test. A function that runs python3 makes its callers run it.
    function flush() {
        if (runs && kind == "function" && !needs) helpers[name] = 1
        if (runs && kind == "test" && !needs && !all_need) { print file ": " name; bad = 1 }
        runs = needs = 0
        kind = ""
    }
    FNR == 1 { flush(); file = FILENAME; all_need = 0; delete helpers }
    /^@test / { flush(); kind = "test"; name = $0; next }
    /^[a-z_]+\(\)/ { flush(); kind = "function"; name = $1; sub(/\(.*/, "", name) }
    /^ *#/ { next }
    /need_tool.*python3|python3.*\|\| skip/ { needs = 1; if (kind == "function" && name ~ /^setup/) all_need = 1; next }
    /python3/ { runs = 1 }
    { for (h in helpers) if ($0 ~ "(^|[^a-z_])" h "([^a-z_]|$)") runs = 1 }
    /^}/ { flush() }
    END { flush(); exit bad }' || exit 1
