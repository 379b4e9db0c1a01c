#!/bin/bash
# llm-tokenize against tiktoken and Hugging Face's tokenizers, and against its own promises. Alternating runs, medians; one core unless it says otherwise.
#
#   tests/bench/tokenize.sh [SHARED [PYTHON]]
#
# SHARED holds data/ [../shared]; PYTHON has tiktoken and tokenizers (without it: ours alone). BIN: the folder of llm-tokenize [bin]. ROUNDS [5].
# Beside peers: processor time of encoding the same 10 MB on one core, in turns, the medians; loading apart. Other times are whole processes.
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
# peer.py tiktoken|tokenizers gpt2|llama3 TOKENIZERS TEXT...: processor seconds of loading, then of encoding each text; the number of ids of each.
import json, os, sys, time
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
which, name, folder = sys.argv[1:4]
texts = [open(path, encoding="utf-8", errors="replace", newline="").read() for path in sys.argv[4:]]
if which == "tiktoken":
    import base64, tiktoken
    start = time.process_time()
    if name == "gpt2":
        table = {base64.b64decode(a): int(b) for a, b in (line.split() for line in open(folder + "/tiktoken/r50k_base.tiktoken", "rb"))}
        pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    else:
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        byte = {chr(b): b for b in printable}
        byte.update({chr(256 + i): b for i, b in enumerate(sorted(set(range(256)) - set(printable)))})
        vocab = json.load(open(folder + "/llama3/tokenizer.json", encoding="utf-8"))["model"]["vocab"]
        table = {bytes(byte[c] for c in text): id for text, id in vocab.items()}
        pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    encode = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=table, special_tokens={}).encode_ordinary
else:
    from tokenizers import Tokenizer
    start = time.process_time()
    t = Tokenizer.from_file(f"{folder}/{name}/tokenizer.json")
    encode = lambda s: t.encode(s, add_special_tokens=False).ids
print(time.process_time() - start)
for text in texts:
    start = time.process_time()
    n = len(encode(text))
    print(time.process_time() - start, n)
PY

# Processor seconds of one run of ours on one core, loading included; peers do not write their ids either.
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
        [[ -z $python ]] || for peer in tiktoken tokenizers; do
            [[ $peer == tiktoken || $i == 0 ]] || continue # it takes long
            "$python" "$work/peer.py" $peer $name "$shared/tokenizers" "$work/ten" > "$work/peer"
            sed -n 1p "$work/peer" >> "$work/$name.$peer.load"
            sed -n '2s/ .*//p' "$work/peer" >> "$work/$name.$peer"
            [[ $(sed -n '2s/.* //p' "$work/peer") == "$("$bin/llm-tokenize" encode --count -T "${file[$name]}" "$work/ten")" ]]
        done
    done
    load=$(median < "$work/$name.load")
    for text in ten english; do
        ours=$(awk -v a="$(median < "$work/$name.$text")" -v b="$load" 'BEGIN { print a - b }')
        row "$name ids of English text, $(($(size "$work/$text") / 1000000)) MB, processor time without $load s of loading" \
            "$(rate "$(size "$work/$text")" "$ours")" "120 MB/s"
        [[ $text == ten ]] || continue
        [[ -z $python ]] || for peer in tiktoken tokenizers; do
            theirs=$(median < "$work/$name.$peer")
            row "… by $peer without $(median < "$work/$name.$peer.load") s of loading" "$(rate "$(size "$work/$text")" "$theirs")" \
                "10 times: ours is $(awk -v a="$theirs" -v b="$ours" 'BEGIN { printf "%.1f", a / b }') times as fast"
        done
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
