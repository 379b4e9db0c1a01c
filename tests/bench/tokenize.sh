#!/bin/bash
# llm-tokenize against tiktoken and Hugging Face's tokenizers, and against its own promises. Alternating runs, medians; one core unless it says otherwise.
#
#   tests/bench/tokenize.sh [SHARED [PYTHON]]
#
# SHARED holds data/ [../shared]; PYTHON has tiktoken and tokenizers (without it: ours alone). BIN: the folder of llm-tokenize [bin]. ROUNDS [5].
# Times of ours are whole processes, the tokenizer's loading included, but beside peers: there both are without.
set -eu
here=$(cd "${0%/*}/../.." && pwd)
shared=${1:-$here/../shared}/data
python=${2:-}
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

cat > "$work/peer.py" <<'PY'
import os, sys, time
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
which, ranks, path = sys.argv[1:4]
text = open(path, encoding="utf-8", errors="replace", newline="").read()
if which == "tiktoken":
    import base64, tiktoken
    table = {base64.b64decode(a): int(b) for a, b in (line.split() for line in open(ranks, "rb"))}
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    encode = tiktoken.Encoding("r50k", pat_str=pattern, mergeable_ranks=table, special_tokens={}).encode_ordinary
else:
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(ranks)
    encode = lambda s: t.encode(s, add_special_tokens=False).ids
start = time.time()
n = len(encode(text))
print(time.time() - start, n)
PY

row what measured bar
for name in once english; do
    for ((i = 0; i < rounds; i++)); do
        seconds "$bin/llm-tokenize" encode -q -j 1 -T "$tok" -o /dev/null "$work/$name" >> "$work/$name.s"
    done
    row "GPT-2 ids of English text, $(($(size "$work/$name") / 1000000)) MB" \
        "$(rate "$(size "$work/$name")" "$(median < "$work/$name.s")")" "50 MB/s"
done
if [[ -n $python ]]; then
    for ((i = 0; i < rounds; i++)); do seconds "$bin/llm-tokenize" encode -q -j 1 -T "$tok" -o /dev/null /dev/null >> "$work/load.s"; done
    load=$(median < "$work/load.s")
    for ((i = 0; i < (rounds + 1) / 2; i++)); do
        for peer in tiktoken tokenizers; do
            ranks=$tok
            [[ $peer == tiktoken ]] || ranks=$shared/tokenizers/gpt2/tokenizer.json
            "$python" "$work/peer.py" "$peer" "$ranks" "$work/once" >> "$work/$peer.s"
        done
        seconds "$bin/llm-tokenize" encode -q -j 1 -T "$tok" -o /dev/null "$work/once" >> "$work/beside.s"
    done
    ours=$(awk -v a="$(median < "$work/beside.s")" -v b="$load" 'BEGIN { print a - b }')
    row "each word for the first time, 8 MB, one core" "$(rate "$(size "$work/once")" "$ours")" ""
    for peer in tiktoken tokenizers; do
        theirs=$(cut -d ' ' -f 1 "$work/$peer.s" | median)
        row "the same by $peer, one thread" "$(rate "$(size "$work/once")" "$theirs")" \
            "ours is $(awk -v a="$theirs" -v b="$ours" 'BEGIN { printf "%.1f", a / b }') times as fast"
    done
fi

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
