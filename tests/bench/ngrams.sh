#!/bin/bash
# llm-train --objective ngram against KenLM's lmplz (PyPI: kenlm, whose sources have lm/builder): the same tokens, each line a text, order 5, both with
# the same memory, ARPA to /dev/null. Alternating runs; per round and tool the wall and the processor's seconds, then medians of the paired ratios.
#
#   LMPLZ=/path/to/lmplz tests/bench/ngrams.sh TEXT TOK [ROUNDS [MEMORY]]
#
# TOK: a tokenizer (gpt2's for the line in RESULTS.md). BIN: the folder of the programs [bin].
set -eu
here=$(cd "${0%/*}/../.." && pwd)
text=$1 tok=$2 rounds=${3:-3} memory=${4:-8G}
bin=${BIN:-$here/bin}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TIMEFORMAT='%R %U %S'

"$bin/llm-tokenize" encode -T "$tok" --lines "$text" > "$work/tok"
"$bin/llm-tokenize" encode -T "$tok" --lines --text "$text" > "$work/ids"
ours() { "$bin/llm-train" -q -j 2 --objective ngram --order 5 -S "$memory" -T "$tok" --to "$1" -o /dev/null "$work/tok" 2> /dev/null; }
theirs() { "$LMPLZ" -o 5 -S "$memory" -T "$work" --discount_fallback < "$work/ids" > /dev/null 2> /dev/null; }
timed() { { time "$@"; } 2>&1 | awk '{ print $1, $2 + $3 }'; }

for ((round = 0; round < rounds; round++)); do
    read -r a b <<< "$(timed ours arpa)"
    read -r c d <<< "$(timed theirs)"
    read -r f g <<< "$(timed ours safetensors)"
    printf 'ours, ARPA\t%s s\t%s s of processor\nlmplz\t%s s\t%s s of processor\nours, tables\t%s s\t%s s of processor\n' "$a" "$b" "$c" "$d" "$f" "$g"
    echo "$a $b $c $d $f $g" >> "$work/rounds"
done
for column in 1:3 2:4 5:3 6:4; do
    awk -v o="${column%:*}" -v t="${column#*:}" '{ print $t / $o }' "$work/rounds" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
done | paste -s | awk '{ printf "lmplz / ours, ARPA: %.2f of the time, %.2f of the processor; tables: %.2f, %.2f\n", $1, $2, $3, $4 }'
