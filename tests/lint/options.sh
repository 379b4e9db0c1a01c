#!/bin/bash
# Every option of a program stands in its manual page with the same letter, and the page names no other.
# Usage: tests/lint/options.sh PROGRAM PAGE
set -u -o pipefail
program=$1 page=$2

# "-x --long" or "--long", one a line, of the program and all its commands.
offered() {
    local command
    {
        "$program" --complete-options
        "$program" --complete-options | awk -F'\t' '$1 == "command" { print $2 }' | while read -r command; do
            "$program" "$command" --complete-options
        done
    } | awk -F'\t' '$1 != "command" && $2 != "" { print ($1 != "" ? $1 " " : "") $2 }' | LC_ALL=C sort -u
}

# The same from `.It Fl x Ar n , Fl -long Ns = Ns Ar n` lines.
documented() {
    awk '/^\.It Fl / {
        letter = long = ""
        for (i = 2; i < NF; i++) if ($i == "Fl") {
            if ($(i + 1) ~ /^-./) long = "-" $(i + 1); else letter = "-" $(i + 1)
        }
        if (long != "") print (letter != "" ? letter " " : "") long
    }' "$page" | LC_ALL=C sort -u
}

[[ -n $(offered) ]] || { echo "$program --complete-options: nothing"; exit 1; }
diff <(offered) <(documented) | sed -n "s|^< |$page: missing: |p; s|^> |$page: no such option: |p"
exit "${PIPESTATUS[0]}"
