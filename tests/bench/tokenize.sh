#!/bin/bash
# llm-tokenize against its own promises: long and repeated text, memory, training. Medians; one core unless it says otherwise. Beside peers:
# tests/bench/all tokenising.
#
#   tests/bench/tokenize.sh [SHARED]
#
# SHARED holds data/ [../shared]. BIN: the folder of llm-tokenize [bin]. ROUNDS [5].
# Encoding: processor time, loading apart. Other times are whole processes.
set -eu
here=$(cd "${0%/*}/../.." && pwd)
shared=${1:-$here/../shared}/data
bin=${BIN:-$here/bin}
rounds=${ROUNDS:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tok=$shared/tokenizers/tiktoken/r50k_base.tiktoken

# English text: every English corpus once, then over and over to 100 MB.
cat "$shared"/corpora/{tinyshakespeare.txt,wikitext-2/wiki.test.raw,botchan.txt,gsm8k/train.jsonl,gsm8k/test.jsonl} \
    "$shared"/corpora/llama-factory/wiki_demo.txt > "$work/once"
for _ in {1..12}; do cat "$work/once"; done | head -c 100000000 > "$work/english"

seconds() {
    local start=$EPOCHREALTIME
    "$@" > /dev/null
    awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.4f\n", b - a }'
}
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
rate() { awk -v bytes="$1" -v s="$2" 'BEGIN { printf "%.1f MB/s", bytes / s / 1e6 }'; }
size() { stat -c %s "$1"; }
row() { printf '%s\t%s\t%s\n' "$@"; }

# Processor seconds of one run on one core, loading included.
processor() {
    local TIMEFORMAT='%U %S'
    { time "$bin/llm-tokenize" encode -q -j 1 -T "$1" "${@:3}" "$2" > /dev/null; } 2>&1 | awk '{ print $1 + $2 }'
}

row what measured bar
head -c 10000000 "$work/english" > "$work/ten"
declare -A file=([gpt2]=$shared/tokenizers/tiktoken/r50k_base.tiktoken [llama3]=$shared/tokenizers/llama3/tokenizer.json)
for name in gpt2 llama3; do
    for ((i = 0; i < rounds; i++)); do
        processor "${file[$name]}" /dev/null --count >> "$work/$name.load"
        for text in ten english; do processor "${file[$name]}" "$work/$text" --count >> "$work/$name.$text"; done
        processor "${file[$name]}" /dev/null -o /dev/null >> "$work/$name.load.tok"
        processor "${file[$name]}" "$work/ten" -o /dev/null >> "$work/$name.tok"
    done
    load=$(median < "$work/$name.load")
    for text in ten english; do
        ours=$(awk -v a="$(median < "$work/$name.$text")" -v b="$load" 'BEGIN { print a - b }')
        row "$name ids of English text, $(($(size "$work/$text") / 1000000)) MB, processor time without $load s of loading" \
            "$(rate "$(size "$work/$text")" "$ours")" "120 MB/s"
    done
    ours=$(awk -v a="$(median < "$work/$name.tok")" -v b="$(median < "$work/$name.load.tok")" 'BEGIN { print a - b }')
    row "$name ids of the first 10 MB, written as a token stream, likewise" "$(rate "$(size "$work/ten")" "$ours")" "120 MB/s"
done

for mb in 5 10 20; do
    head -c ${mb}000000 /dev/zero | tr '\0' a > "$work/run"
    row "a run of one letter, $mb MB" "$(seconds "$bin/llm-tokenize" encode -q -j 1 -T "$tok" --count "$work/run") s" "linear"
done

for ((i = 0; i < rounds; i++)); do
    seconds "$bin/llm-tokenize" train -q -j 2 --vocab-size 8192 -o /dev/null "$work/english" >> "$work/train.s"
done
row "training a vocabulary of 8192 on 100 MB, two cores" "$(median < "$work/train.s") s" "5 s"
for j in 1 2 3; do "$bin/llm-tokenize" train -q -j $j --vocab-size 8192 "$work/english" | sha256sum; done | sort -u > "$work/sums"
row "… with 1, 2 and 3 threads" "$(wc -l < "$work/sums") different results" "1"

for gb in 1 2; do
    rss=$({ for ((i = 0; i < gb * 10; i++)); do cat "$work/english"; done |
        /usr/bin/time -f %M "$bin/llm-tokenize" encode -q -j 2 -T "$tok" -o /dev/null; } 2>&1)
    row "memory of encoding $gb GB of standard input" "$((rss / 1000)) MB" "constant"
done
for gb in 1 2; do
    rss=$({ for ((i = 0; i < gb * 10; i++)); do cat "$work/english"; done |
        /usr/bin/time -f %M "$bin/llm-tokenize" train -q -j 2 --vocab-size 8192 -o /dev/null; } 2>&1)
    row "memory of training on $gb GB" "$((rss / 1000)) MB" "constant: the same words"
done
