# n-gram models through the programs: against KenLM's numbers (tests/oracle/ngrams.py), whatever memory and threads, in and out of ARPA.
load ../helper
export LLM_THREADS=1

GOLDEN=$ROOT/tests/golden/ngram

setup_file() {
    export LLM_THREADS=1
    local golden=$ROOT/tests/golden/ngram
    jq -Rc '{text: .}' "$golden/letters.txt" > letters.jsonl
    llm-tokenize train --model char --special '</s>' --jsonl --field text -o letters.json letters.jsonl
    llm-tokenize encode -T letters.json --jsonl --field text --append-eos -o letters.tok letters.jsonl
    printf '{"text":"aaba"}\n{"text":"baab"}\n' > toy.jsonl
    llm-tokenize train --model char --special '</s>' --jsonl --field text -o toy.json toy.jsonl
    llm-tokenize encode -T toy.json --jsonl --field text --append-eos -o toy.tok toy.jsonl
    export F=$PWD
}

# same_arpa A B: the same n-grams with the same logarithms, but for the seventh digit and what <s> has for a probability.
same_arpa() {
    awk -F'\t' 'NF < 2 { next } FNR == NR { p[$2] = $1; b[$2] = $3; n++; next }
        { m++; if (!($2 in p)) { print "not expected: " $2; bad = 1; next }
          d = p[$2] - $1; if ($2 == "<s>") d = 0; if (d < 0) d = -d; e = b[$2] - $3; if (e < 0) e = -e
          if (d > 5e-7 || e > 5e-7) { print $2 ": expected " p[$2] " " b[$2] ", found " $1 " " $3; bad = 1 } }
        END { if (n != m) print n " n-grams expected, found " m; exit bad || n != m || n == 0 }' "$1" "$2"
}

count() {
    llm-train -q --objective ngram "$@"
}

@test "the toy corpus has KenLM's numbers, to the sixth digit" {
    run -0 --separate-stderr llm-train --objective ngram --order 3 -T "$F/toy.json" -o toy.arpa "$F/toy.tok"
    [[ $stderr == *"order 2: the counts of counts of 7 n-grams give no discounts"*"0.5, 1 and 1.5"* ]]
    same_arpa "$GOLDEN/toy.arpa" toy.arpa
    count --order 3 -T "$F/toy.json" -o toy.llm "$F/toy.tok"
    # log10 P(b | a a) and of the sentence "a a b a"
    llm-infer -m toy.llm --score --special '</s>aaba</s>' > scores
    run -0 awk '{ s += $NF } NR == 3 { printf "%.6f ", $NF / log(10) } END { printf "%.6f %.5f\n", s / log(10), exp(-s / NR) }' scores
    assert_output "-0.201029 -1.447568 1.94766"
}

@test "four orders with discounts, and pruned ones, are what lmplz makes" {
    count --order 4 -T "$F/letters.json" -o all.arpa "$F/letters.tok"
    same_arpa "$GOLDEN/letters.arpa" all.arpa
    count --order 4 --prune 0,0,1,2 -T "$F/letters.json" -o pruned.arpa "$F/letters.tok"
    same_arpa "$GOLDEN/letters-pruned.arpa" pruned.arpa
}

@test "threads, memory and files on disk do not change a byte" {
    count --order 4 -T "$F/letters.json" -o one.llm "$F/letters.tok"
    count -j 3 --order 4 -T "$F/letters.json" -o three.llm "$F/letters.tok"
    run -0 --separate-stderr llm-train -v -S 256K -j 2 --objective ngram --order 4 -T "$F/letters.json" -o little.llm "$F/letters.tok"
    [[ $stderr == *"in 2 parts"* ]]
    cmp one.llm three.llm
    cmp one.llm little.llm
    cat "$F/letters.tok" | count --order 4 -T "$F/letters.json" -o piped.llm -
    cmp one.llm piped.llm
    count --order 4 --prune 0,0,1,2 -T "$F/letters.json" -o pruned.llm "$F/letters.tok"
    count --order 4 --prune 0,0,1,2 -S 256K -T "$F/letters.json" -o pruned-little.llm "$F/letters.tok"
    cmp pruned.llm pruned-little.llm
}

@test "llm, safetensors and ARPA score alike, and so does a window that begins later" {
    local file
    for file in m.llm m.safetensors m.arpa; do count --order 4 -T "$F/letters.json" -o $file "$F/letters.tok"; done
    head -c 300 "$GOLDEN/letters.txt" | tr -d '\n' > text
    llm-infer -m m.llm --score -f text | cut -f1,3 > expected
    llm-infer -m m.safetensors --score -f text | cut -f1,3 > mapped
    cmp expected mapped
    llm-infer -m m.arpa -T "$F/letters.json" --score -f text | cut -f1,3 > read
    cmp <(cut -f 1 read) <(cut -f 1 expected)
    near_lines <(cut -f 2 read) <(cut -f 2 expected) 3e-6
    llm-infer -m m.llm -c 16 --score -f text 2> note | cut -f1,3 > windows
    cmp expected windows
    llm-infer -m - --score -f text < m.llm | cut -f1,3 | cmp expected -
}

@test "probabilities of all tokens add up to 1, less the share of what no token stands for" {
    need_tool python3
    count --order 4 -T "$F/letters.json" -o m.llm "$F/letters.tok"
    run -0 bash -c "llm-infer -m m.llm --logits abcdefab | python3 -c '
import json, math, struct, sys
d = sys.stdin.buffer.read(); n = struct.unpack(\"<Q\", d[:8])[0]; h = json.loads(d[8:8 + n])[\"logits\"]
a, b = h[\"data_offsets\"]; v = struct.unpack(\"<%df\" % ((b - a) // 4), d[8 + n + a:8 + n + b]); w = h[\"shape\"][1]
for r in range(0, len(v), w): print(.998 < sum(math.exp(x) for x in v[r:r + w]) < 1)' | sort -u"
    assert_output True
}

@test "samples are drawn as from any model: seeds, temperature 0, ends, many at once" {
    count --order 4 -T "$F/letters.json" -o m.llm "$F/letters.tok"
    llm-infer -m m.llm -n 20 --seed 5 --ignore-eos abc > a
    llm-infer -m m.llm -n 20 --seed 5 --ignore-eos -j 2 abc > b
    cmp a b
    assert_equal "$(wc -m < a)" 21
    llm-infer -m m.llm -n 20 --seed 6 --ignore-eos abc > c
    run ! cmp -s a c
    # greedy: each token is the likeliest, by the scores
    local text
    text=$(llm-infer -m m.llm -n 12 --temp 0 --ignore-eos abc)
    assert_equal "$(llm-infer -m m.llm -n 12 --temp 0 --ignore-eos abc)" "$text"
    # a batch of prompts gives each what it gives alone
    printf '{"id": %d, "prompt": "%s"}\n' 1 ab 2 cde 3 lk > prompts
    llm-infer -m m.llm --jsonl -n 15 --no-timings prompts > together
    while read -r line; do llm-infer -m m.llm --jsonl -n 15 --no-timings - <<< "$line"; done < prompts > alone
    cmp together alone
}

@test "quality and validation agree" {
    run -0 --separate-stderr llm-train --objective ngram --order 3 -T "$F/letters.json" --val "$F/letters.tok" -o m.llm "$F/letters.tok"
    said=$(grep -o 'validation [0-9.]*' <<< "$stderr")
    run -0 llm-bench quality -m m.llm "$F/letters.tok"
    assert_equal "$said" "validation $(awk -F'\t' 'NR == 2 { printf "%.4f", $4 }' <<< "$output")"
}

@test "--ngram-bar says what counting reaches: of one order, or the best" {
    network=(llm-train -c nano --set n_layer=1 --set n_embd=16 --set n_head=1 -T "$F/letters.json" -l 16 -n 1 --val .1)
    run -0 --separate-stderr "${network[@]}" --ngram-bar --order 3 -o m.llm "$F/letters.tok"
    [[ $stderr =~ "bar: n-grams of order 3: validation "[0-9.]+" ("[0-9.]+" bits per byte)" ]]
    three=$(grep -o 'validation [0-9.]*' <<< "$stderr" | sed -n 1p)
    run -0 --separate-stderr llm-train --objective ngram --order 3 -T "$F/letters.json" --val .1 -o n.llm "$F/letters.tok"
    [[ $stderr == *"$three"* ]]
    run -0 --separate-stderr "${network[@]}" --ngram-bar -v -o m.llm "$F/letters.tok"
    best=$(grep -o 'n-grams of order [0-9]: validation [0-9.]*' <<< "$stderr" | grep -v bar | sort -t' ' -k6 | sed -n 1p)
    [[ $stderr == *"bar: $best"* ]]
    run -2 llm-train -c nano --ngram-bar --stream -T "$F/letters.json" -l 16 -n 1 -o m.llm "$F/letters.tok"
    run -2 "${network[@]}" --order 3 -o m.llm "$F/letters.tok"
}

@test "--plan says how many n-grams, how much memory, how long" {
    run -0 --separate-stderr llm-train --objective ngram --order 4 -T "$F/letters.json" --plan "$F/letters.tok"
    assert_equal "$(cut -f1 <<< "$output" | tr '\n' ' ')" "tokens ngrams model_bytes memory_bytes file_bytes seconds "
    # 5,524 in truth
    run -0 awk '$1 == "ngrams" && $2 > 5524 * .97 && $2 < 5524 * 1.03 { print "near" }' <<< "$output"
    assert_output near
    run -0 --separate-stderr llm-train --objective ngram --order 4 -T "$F/letters.json" --plan "$F/letters.tok"
    count --order 4 -T "$F/letters.json" -o m.safetensors "$F/letters.tok"
    bytes=$(awk '$1 == "model_bytes" { print $2 }' <<< "$output")
    ((bytes > 0 && bytes < $(stat -c %s m.safetensors) && bytes * 10 > $(stat -c %s m.safetensors) * 6))
    run -0 bash -c "llm-train --objective ngram --json -T '$F/letters.json' --plan '$F/letters.tok' | jq -e '.tokens == 8839'"
}

@test "documents stand alone, unless the data is one text" {
    count --order 3 -T "$F/toy.json" -o apart.arpa "$F/toy.tok"
    run ! grep -q 'a </s> b' apart.arpa
    count --order 3 --cross-document -T "$F/toy.json" -o one.arpa "$F/toy.tok"
    grep -q 'a </s> b' one.arpa
}

@test "a model is what it says: other programs take it or say why not" {
    count --order 3 -T "$F/toy.json" -o m.llm "$F/toy.tok"
    zstd -qt m.llm
    run -65 --separate-stderr llm-train --init m.llm -n 1 -o x.llm "$F/toy.tok"
    one_line "$stderr"
    [[ $stderr == *"counted anew"* ]]
    echo '{"model_type": "ngram", "vocab_size": 3, "ngram_order": 2}' > config.json
    run -2 --separate-stderr llm-train -c config.json -n 1 -o x.llm "$F/toy.tok"
    one_line "$stderr"
    run -0 llm-infer -m m.llm --plan
    assert_line $'parameters\t17'
    assert_line --regexp $'^weight_bytes\t[1-9]'
    run -0 llm-bench cost m.llm
    run -0 --separate-stderr llm-bench speed -m m.llm -p 4 -n 4 -r 1
    [[ $output == *pp4*$'\t'f32$'\t'* ]] # no matrix of a network decides its arithmetic
    local option
    for option in --embed "--kv-out x.kv"; do
        run -65 --separate-stderr llm-infer -m m.llm $option aab
        one_line "$stderr"
        [[ $stderr == *"n-gram"* ]]
    done
}

@test "misuse is status 2, in words" {
    local options
    for options in "-c nano" "--stream" "--prune 1" "--prune 0,2,1" "--prune x" "--order 0" "--order 17" "--order shuffle" "--gradcheck" \
        "--save-every 2" "--ngram-bar"; do
        run -2 --separate-stderr llm-train --objective ngram $options -T "$F/toy.json" -o x.llm "$F/toy.tok"
        [[ -n $stderr ]]
    done
    run -2 --separate-stderr llm-train --objective ngram -T "$F/toy.json" -o x.llm
    run -2 --separate-stderr llm-train --objective ngram -T "$F/toy.json" "$F/toy.tok"
    run -65 --separate-stderr llm-train --objective ngram -T "$F/letters.json" -o x.llm "$F/toy.tok"
    one_line "$stderr"
    [[ ! -e x.llm ]]
}

@test "a temporary file that cannot grow is status 74, that cannot be made 73, and nothing is left" {
    mkdir tmp
    run -74 --separate-stderr env TMPDIR="$PWD/tmp" bash -c "ulimit -f 100; exec llm-train -q -S 256K --objective ngram --order 4 -T '$F/letters.json' \
        -o /dev/null '$F/letters.tok'"
    one_line "$stderr"
    run -73 --separate-stderr env TMPDIR=/nowhere llm-train -q -S 256K --objective ngram --order 4 -T "$F/letters.json" -o x.llm "$F/letters.tok"
    one_line "$stderr"
    [[ -z $(ls tmp) && ! -e x.llm ]]
}

@test "a signal ends counting at once: nothing is left behind" {
    mkdir tmp
    for _ in {1..50}; do cat "$F/letters.tok"; done > part.tok
    for _ in {1..40}; do cat part.tok; done > long.tok
    for _ in {1..200}; do set -- "$@" long.tok; done # minutes of counting, on any machine
    TMPDIR=$PWD/tmp llm-train -q -S 256K --objective ngram --order 9 -T "$F/letters.json" -o x.llm "$@" &
    running $!
    sleep .3
    kill -TERM $!
    ends_by 143 $!
    [[ -z $(ls tmp) && ! -e x.llm ]]
    nothing_left
}

@test "ARPA files are models: of words between white space, from a file or a pipe" {
    run -0 --separate-stderr llm-infer -m "$GOLDEN/toy.arpa" --score "a a b zebra"
    assert_equal "$(cut -f2 <<< "$output" | xargs)" "a a b <unk>"
    assert_equal "$(awk -F'\t' '{ printf "%.5f ", $3 / log(10) }' <<< "$output")" "-0.37712 -0.14885 -0.20103 -1.50515 "
    run -0 bash -c "llm-infer -m - --score 'a a b' < '$GOLDEN/toy.arpa' | tail -n 1 | cut -f 3"
    assert_output -- "-0.462886"
    run -0 llm-bench quality -m "$GOLDEN/toy.arpa" <(echo "a a b a")
    assert_line -n 1 --regexp $'\t4\t'
    run -0 llm-infer -m "$GOLDEN/toy.arpa" -n 2 --temp 0 "b"
    printf '%s' '\data\' > cut.arpa
    run -65 --separate-stderr llm-infer -m cut.arpa a
    one_line "$stderr"
    [[ $stderr == "llm-infer: cut.arpa: line "* ]]
}

@test "llm-quantize turns ARPA into tables and back" {
    llm-quantize -t f32 "$GOLDEN/letters.arpa" tables.llm
    llm-quantize tables.llm back.arpa
    same_arpa "$GOLDEN/letters.arpa" back.arpa
    llm-quantize -q --to arpa tables.llm - | cmp - back.arpa
    run -2 llm-quantize tables.llm x.llm
    llm-train -q -c nano --set n_layer=1 --set n_embd=16 --set n_head=1 -T "$F/toy.json" -n 0 -o net.llm
    run -65 --separate-stderr llm-quantize --to arpa net.llm x.arpa
    one_line "$stderr"
    [[ $stderr == *"expected an n-gram model, found a gpt2" && ! -e x.arpa ]]
}

@test "ARPA: words that would be ambiguous are escaped, and come back with the same ids" {
    printf 'a b\n\\ <s>\t</s>\303\251' > odd
    llm-tokenize train --model byte -o byte.json odd
    llm-tokenize encode -T byte.json -o odd.tok odd
    count --order 3 -T byte.json -o m.llm odd.tok
    count --order 3 -T byte.json -o m.arpa odd.tok
    grep -qF '\x20' m.arpa
    grep -qF '\x5c' m.arpa
    grep -qF '\xc3' m.arpa
    llm-infer -m m.llm --score -f odd | cut -f1,3 > expected
    llm-infer -m m.arpa -T byte.json --score -f odd | cut -f1,3 > found
    cmp <(cut -f 1 found) <(cut -f 1 expected)
    near_lines <(cut -f 2 found) <(cut -f 2 expected) 3e-6
}

@test "ARPA files of other programs score as KenLM scores them" {
    need_shared ngram
    need_shared golden/ngram
    local name
    for name in toy0.arpa toy1.arpa test.arpa test_nounk.arpa; do
        jq -r 'select(.tokens | length > 0) | .text' "$SHARED/data/golden/ngram/$name.jsonl" | head -n 8 > texts
        jq -r 'select(.tokens | length > 0) | [.tokens[].lp] | @tsv' "$SHARED/data/golden/ngram/$name.jsonl" | head -n 8 | tr '\t' '\n' > expected
        while read -r text; do llm-infer -m "$SHARED/data/ngram/$name" --score --special -- "$text </s>" | cut -f3; done < texts > found
        paste expected found | awk '{ d = $1 - $2 / log(10); if (d < 0) d = -d; if (d > 3e-6) { print; bad = 1 } } END { exit bad || NR < 8 }'
    done
}

@test "tinyshakespeare: nats per character of orders 2 to 7" {
    need_shared corpora/tinyshakespeare.txt
    head -c 1003854 "$SHARED/data/corpora/tinyshakespeare.txt" > train
    tail -c +1003855 "$SHARED/data/corpora/tinyshakespeare.txt" > val
    llm-tokenize train --model char -o char.json train
    llm-tokenize encode -T char.json -o train.tok train
    local n expected=(0 0 2.4835 2.0381 1.7190 1.5612 1.5226 1.5165)
    for n in 2 3 4 5 6 7; do
        count --order $n -T char.json -o m.llm train.tok
        llm-infer -m m.llm --score -f val > scores
        # the first character, a line feed or not, is told by how often it comes alone
        count --order $n -T char.json -o m.arpa train.tok
        first=$(head -c 1 val | sed 's/ /\\x20/')
        run -0 awk -v first="${first:-\\\\x0a}" -F'\t' 'FNR == NR { if ($2 == first && !p) p = -$1 * log(10); next } { s -= $NF; n++ }
            END { printf "%.4f", (s + p) / (n + 1) }' m.arpa scores
        assert_output "${expected[n]}"
    done
}
