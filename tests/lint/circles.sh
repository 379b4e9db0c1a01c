#!/bin/bash
# Files call one another in one direction: no file calls, through others or at once, a file that calls it. Functions count, not rows of tables: a
# table lists its rows, and a row may call what its table's file has beside it. Headers include one another in one direction too.
# Prints the calls of each circle, and returns 1.
# Usage: tests/lint/circles.sh [FOLDER of the build [FOLDER that holds lib/ and bin/]]
set -u
build=$(cd "${1:-${0%/*}/../../build}" && pwd) || exit 1
cd "${2:-${0%/*}/../..}" || exit 1

# Circles that are the algorithm's own: these files are one evaluator, which is recursive as the language that it evaluates is (a call's arguments are
# expressions, an expression has calls, filters, tests and loops).
together='lib/token/chat/(call|eval|filters|filters_sequence|format|methods|operators|run|tests|text)'

# Lines "file file symbol": which file calls a function of which other. Programs have functions of their own under the same names.
calls() {
    find "$build/lib" "$build/bin" -name '*.o' | LC_ALL=C sort | xargs nm -A | awk -v top="$build/" '
        {
            split($1, head, ":")
            file = substr(head[1], length(top) + 1)
            sub(/(\.[a-z0-9]+)?\.o$/, "", file)
            kind = $(NF - 1)
            split(file, part, "/")
            program = part[1] == "bin" ? part[2] : ""
            sub(/^llm-/, "", program)
            if (kind == "T") defined[program, $NF] = file
            else if (kind == "U") { n++; user[n] = file; of[n] = program; symbol[n] = $NF }
        }
        END {
            for (i = 1; i <= n; i++) {
                to = (of[i], symbol[i]) in defined ? defined[of[i], symbol[i]] : ("", symbol[i]) in defined ? defined["", symbol[i]] : ""
                if (to != "" && to != user[i]) print user[i], to, symbol[i]
            }
        }'
}

# Lines "header header": what headers include.
includes() {
    find lib bin -name '*.h' | LC_ALL=C sort | xargs awk -F '"' '/^[[:space:]]*#[[:space:]]*include[[:space:]]*"/ {
        print FILENAME, ($2 ~ /^bin\// ? "" : "lib/") $2, "included" }'
}

# Prints the lines that are part of a circle. What nothing calls and what calls nothing is taken away first, again and again; of the rest a line is in
# a circle if its callee reaches its caller.
circles() {
    awk -v together="^$together\$" '
        function reaches(at, goal,    i) {
            if (at == goal) return 1
            visited[at] = 1
            for (i in live) if (from[i] == at && !(to[i] in visited) && reaches(to[i], goal)) return 1
            return 0
        }
        {
            a = $1 ~ together ? "the evaluator" : $1
            b = $2 ~ together ? "the evaluator" : $2
            if (a == b || (a, b) in seen) next
            seen[a, b] = live[++n] = 1
            from[n] = a
            to[n] = b
            why[n] = $3
        }
        END {
            do {
                split("", callers)
                split("", called)
                changed = 0
                for (i in live) callers[from[i]] = called[to[i]] = 1
                for (i in live) if (!(from[i] in called) || !(to[i] in callers)) { delete live[i]; changed = 1 }
            } while (changed)
            for (i = 1; i <= n; i++) {
                if (!(i in live)) continue
                split("", visited)
                if (reaches(to[i], from[i])) { print from[i] ": " why[i] " of " to[i] ", which leads back"; bad = 1 }
            }
            exit bad
        }'
}

status=0
calls | circles || status=1
includes | circles || status=1
exit $status
