#!/bin/bash
# What a manual page says when it is rendered. mdoc's macros reach to the end of their line: `.Pq unless Fl -x is given` renders as
# "(unless --x -is -given)", and `.Sq a , Sq b` quotes the comma. Such words are found here: a word after dashes that is no option of any program
# (the words of ALLOWED are options of other tools in examples), quotes within quotes, and quotes around four words or more.
# Usage: tests/lint/rendered.sh FOLDER-OF-PROGRAMS PAGE...
set -u -o pipefail
export LC_ALL=C.UTF-8
ALLOWED='-dc -k -s -n -e --array --hostfile --job-name --map-by --mpi --nodes --ntasks-per-node --open-mode --oversubscribe --requeue --signal'
folder=$1
shift

options() {
    local program command
    for program in "$folder"/llm-*; do
        [[ -x $program && $program != *.c ]] || continue
        "$program" --complete-options
        "$program" --complete-options | awk -F'\t' '$1 == "command" { print $2 }' | while read -r command; do
            "$program" "$command" --complete-options
        done
        "$program" --complete-aliases | awk -F'\t' '{ print $2 }'
        "$program" --complete-options | awk -F'\t' '$1 == "command" { print $2 }' | while read -r command; do
            "$program" "$command" --complete-aliases | awk -F'\t' '{ print $2 }'
        done
    done < /dev/null | tr '\t' '\n' | grep -E '^--?[A-Za-z]'
    tr ' ' '\n' <<< "$ALLOWED"
}
known=$(options | sort -u)
[[ -n $known ]] || { echo "$folder: programs that answer --complete-options"; exit 1; }

bad=0
for page; do
    # one line: quotes may span several
    text=$(mandoc -T utf8 -O width=200 "$page" | sed 's/.\x08//g' | tr -s ' \t\n' ' ')
    found=$(
        grep -oE '(^|[^[:alnum:]_.*/=:<-])--?[[:alpha:]][[:alnum:]-]*' <<< "$text" | sed 's/^[^-]*//' | sort -u | grep -vxF -e "$known"
        grep -oE '‘[^’]*‘[^’]*’?|‘[^’ ]*( [^’ ]*){3,}’' <<< "$text"
    )
    [[ -z $found ]] || { sed "s|^|$page: rendered: |" <<< "$found"; bad=1; }
done
exit $bad
