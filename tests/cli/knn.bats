# kNN-LM: llm-infer --export, llm-index build, and predictions mixed with what followed similar hidden states.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    head -c 3000 "$ROOT/tests/golden/knn.txt" > store.txt
    tail -c 250 "$ROOT/tests/golden/knn.txt" > text.txt
    llm-infer -m "$M" --export final_norm -f store.txt > store.act
    llm-index build --metric l2 store.idx < store.act
}

@test "--knn: the mixture is that of the formula, from what llm-index search finds" {
    need_tool python3
    llm-infer -m "$M" --export final_norm -f text.txt > text.act
    for metric in l2 cosine; do
        llm-index build --metric $metric m.idx < store.act
        llm-index search m.idx -k 8 --json text.act > hits.jsonl
        llm-infer -m "$M" --score -f text.txt > plain.tsv 2> /dev/null
        llm-infer -m "$M" --score -f text.txt --knn m.idx --lambda .4 --knn-neighbours 8 --knn-temperature .3 > mixed.tsv
        run -0 python3 - $metric <<'P'
import json, math, sys
hits = {}
for line in open("hits.jsonl"):
    h = json.loads(line)
    hits.setdefault(int(h["query"]), []).append(h)
plain = [line.rstrip("\n").split("\t") for line in open("plain.tsv")]
mixed = [line.rstrip("\n").split("\t") for line in open("mixed.tsv")]
changed = 0
assert len(plain) == len(mixed) == len(hits)
for i, (p, m) in enumerate(zip(plain, mixed)):
    own = hits[i]
    d = [-h["score"] if sys.argv[1] == "l2" else 2 - 2 * h["score"] for h in own]
    mean = sum(d) / len(d)
    w = [math.exp(-(x - d[0]) / (.3 * mean)) for x in d]
    there = sum(x for x, h in zip(w, own) if h["metadata"]["next"] == int(p[0])) / sum(w)
    expected = math.log(.4 * there + .6 * math.exp(float(p[2])))
    changed += there > 0
    assert p[:2] == m[:2] and abs(float(m[2]) - expected) < 2e-5 * max(1, abs(expected)), (i, p, m, expected)
assert changed > 20, changed
P
    done
}

@test "--knn: lambda 0 changes nothing; neither passes, threads nor drafts change a bit; the graph of an index serves too" {
    llm-infer -m "$M" --score -f text.txt > plain.tsv 2> /dev/null
    llm-infer -m "$M" --score -f text.txt --knn store.idx --lambda 0 | cmp - plain.tsv
    llm-infer -m "$M" -j 2 --score -f text.txt --knn store.idx > mixed.tsv
    run ! cmp -s mixed.tsv plain.tsv
    llm-infer -m "$M" -j 1 -b 7 --score -f text.txt --knn store.idx | cmp - mixed.tsv
    llm-infer -m "$M" -n 40 --seed 3 --knn store.idx --lambda .8 "First Citizen:" > text
    llm-infer -m "$M" -n 40 --seed 3 --knn store.idx --lambda .8 --draft-ngram "First Citizen:" | cmp - text
    run ! cmp -s text <(llm-infer -m "$M" -n 40 --seed 3 "First Citizen:")
    llm-index build --metric l2 --kind hnsw graph.idx < store.act
    llm-infer -m "$M" --score -f text.txt --knn graph.idx | awk '{s += $NF} END {print s / NR}' > graph
    awk '{s += $NF} END {print s / NR}' mixed.tsv > flat
    awk 'NR == FNR {a = $1; next} {exit !(a - $1 < .05 && $1 - a < .05)}' graph flat
}

@test "llm-bench quality --knn: the perplexity of --score --knn; of the stored text it is far lower" {
    llm-infer -m "$M" --score -f text.txt --knn store.idx | awk '{s += $NF} END {print -s / NR}' > scored
    llm-bench quality -m "$M" --knn store.idx text.txt | awk 'NR == 2 {print $4}' > measured
    awk 'NR == FNR {a = $1; next} {exit !(a - $1 < 1e-4 && $1 - a < 1e-4)}' scored measured
    plain=$(llm-bench quality -m "$M" store.txt | awk 'NR == 2 {print $6}')
    mixed=$(llm-bench quality -m "$M" --knn store.idx store.txt | awk 'NR == 2 {print $6}')
    awk -v a="$plain" -v b="$mixed" 'BEGIN {exit !(b < a / 10)}'
}

@test "--export of a text longer than the context: in windows, with the positions of the text; the index has every token with a follower" {
    n=$(llm-tokenize encode -T "$M" --text store.txt | wc -w)
    ((n > 512))
    [[ $(llm-index stat store.idx | awk '$1 == "rows" {print $2}') == $((n - 1)) ]]
    [[ $(llm-index stat store.idx | awk '$1 == "place" {print $2}') == final_norm ]]
    # the first window is a text of its own
    head -c 200 store.txt > begin.txt
    llm-infer -m "$M" --export final_norm -f begin.txt > begin.act
    llm-index build --metric l2 begin.idx < begin.act
    llm-index search begin.idx -k 1 --json store.act | head -n 100 > hits
    jq -e -s 'all(.[]; .score > -.01 and .query == .id)' hits
    cat store.act begin.act | llm-index build both.idx # texts do not run into each other
    [[ $(llm-index stat both.idx | awk '$1 == "rows" {print $2}') == $((n - 1 + $(llm-tokenize encode -T "$M" --text begin.txt | wc -w) - 1)) ]]
}

@test "--knn: what cannot be used" {
    refused() { run "-$1" --separate-stderr "${@:3}"; [[ $stderr == *"$2"* && -z $output ]]; }
    Q=(llm-infer -m "$M" --score -f text.txt --knn)
    llm-index build --metric dot dot.idx < store.act
    refused 65 "dot.idx: expected an index of the metric l2 or cosine, found dot" "${Q[@]}" dot.idx
    llm-infer -m "$M" --export layers.0.residual.after -f store.txt | llm-index build --metric l2 other.idx
    refused 65 "other.idx: expected an index of hidden states at final_norm, found one of layers.0.residual.after" "${Q[@]}" other.idx
    printf '%s\n' "{\"id\": 1, \"embedding\": [$(seq -s , 32)], \"text\": \"x\"}" | tee texts.jsonl | llm-index build texts.idx
    refused 65 "texts.idx: expected an index of hidden states at final_norm, found one of texts" "${Q[@]}" texts.idx
    refused 65 "texts.idx: expected vectors of texts, found those of final_norm" llm-index add texts.idx store.act
    refused 65 "store.act: expected vectors of texts, found some of final_norm" llm-index build mixed.idx texts.jsonl store.act
    refused 65 "texts.jsonl: line 1: expected vectors of final_norm, found some of texts" llm-index build mixed.idx store.act texts.jsonl
    llm-quantize -q -t q8_0 "$M" other.llm
    refused 65 "store.idx: expected states of model" llm-infer -m other.llm --score -f text.txt --knn store.idx
    refused 2 "--knn-neighbours: expected at most" "${Q[@]}" store.idx --knn-neighbours 100000
    refused 66 "nowhere.idx" "${Q[@]}" nowhere.idx
    refused 2 "--knn changes predictions: it goes with text, --score and --logits" llm-infer -m "$M" --embed --knn store.idx x
    refused 2 "standard input cannot be two inputs at once" llm-infer -m "$M" --knn - 
    llm-infer -m "$M" --export final_norm --export layers.0.residual.after -f text.txt > two.act
    refused 65 "expected activations of one place, found" llm-index build two.idx two.act
    head -c -200 store.act > cut.act
    refused 65 "cut.act" llm-index build cut.idx cut.act
    head -c 3000 store.idx > cut.idx
    refused 65 "cut.idx" "${Q[@]}" cut.idx
}
