load ../helper

setup_file() {
    export M=$ROOT/tests/golden/tiny
    llm-infer -m "$M" --precision f32 -n 0 --trace-queries 8 --kv-out c.kv --ids "$(seq -s ' ' 1 70)"
    export KV=$PWD/c.kv
}

value() {
    awk -F'\t' -v key="$1" '$1 == key {print $2}'
}

@test "a summary is what comes without a command, of a file and of standard input" {
    llm-kvinspect "$KV" > a
    llm-kvinspect summary "$KV" > b
    llm-kvinspect < "$KV" > c
    llm-kvinspect - < "$KV" > d
    for one in b c d; do cmp a $one; done
    [[ $(value tokens < a) == 70 && $(value layers < a) == 2 && $(value heads < a) == 2 && $(value kv_heads < a) == 1 ]]
    [[ $(value type < a) == f32 && $(value bytes_per_token < a) == 512 && $(value traced_queries < a) == 8 ]]
    [[ $(llm-kvinspect --json "$KV" | jq -c '[.tokens, .type, .last_position]') == '[70,"f32",69]' ]]
}

@test "keys and values of other types, layer by layer: each is stored in its own, and goes on, is cut and joined like any other" {
    local ids infer=(llm-infer -m "$M" --precision f32 -n 0)
    ids=$(seq -s ' ' 1 70)
    "${infer[@]}" --cache-type f16,q4_0/1:q8_0,bf16 --kv-out mixed.kv --ids "$ids"
    [[ $(llm-kvinspect mixed.kv | value type) == 0:f16,q4_0/1:q8_0,bf16 ]]
    # keys and values of the first layer do not depend on what is stored of them
    for type in f16:k q4_0:v; do
        "${infer[@]}" --cache-type ${type%:*} --kv-out one.kv --ids "$ids"
        cmp <(llm-kvinspect export --tensor layers.0.${type#*:} one.kv) <(llm-kvinspect export --tensor layers.0.${type#*:} mixed.kv)
    done
    # 32 channels: F16 64 bytes, Q4_0 18, Q8_0 34, BF16 64
    [[ $(llm-kvinspect size mixed.kv | awk '$2 == "yes" {print $1, $4, $5}') == "0:f16,q4_0/1:q8_0,bf16 180 12600" ]]
    [[ $(llm-kvinspect mixed.kv | value bytes_per_token) == 180 ]]
    llm-infer -m "$M" --precision f32 --cache-type 1:q8_0,bf16/0:f16,q4_0 --kv-out whole.kv -n 9 --temp 0 --ids "$ids" > whole
    llm-infer -m "$M" --precision f32 --cache-type f16,q4_0/1:q8_0,bf16 --kv-in mixed.kv -n 9 --temp 0 --ids | cmp - whole
    llm-kvinspect slice --to 40 -o a.kv mixed.kv
    llm-kvinspect slice --from 40 -o b.kv mixed.kv
    llm-kvinspect cat -o joined.kv a.kv b.kv
    cmp joined.kv mixed.kv
    refused 65 'cache 2: expected 0:f16,q4_0/1:q8_0,bf16, as the first cache has, found f32' llm-kvinspect cat a.kv "$KV"
    llm-infer -m "$M" --kv-in mixed.kv --cache-type f32 -n 0 --kv-out wide.kv < /dev/null
    [[ $(llm-kvinspect wide.kv | value type) == f32 ]]
    llm-kvinspect evict --method window --keep 9 --kv-out small.kv mixed.kv
    [[ $(llm-kvinspect small.kv | value type) == 0:f16,q4_0/1:q8_0,bf16 && $(llm-kvinspect small.kv | value kept) == 9 ]]
    refused 2 'cache types: expected layers below 2, found 2' llm-infer -m "$M" --cache-type f32/2:f16 -n 1 x
}

@test "size in every cache type" {
    llm-kvinspect size "$KV" > sizes
    [[ $(awk '$1 == "f32" {print $2, $4, $5}' sizes) == 'yes 512 35840' ]]
    [[ $(awk '$1 == "bf16" {print $2, $4, $5}' sizes) == 'no 256 17920' ]]
    [[ $(awk '$1 == "q8_0" {print $2, $4, $5}' sizes) == 'no 136 9520' ]]
    [[ $(awk '$1 == "q4_0" {print $2, $4, $5}' sizes) == 'no 72 5040' ]]
}

# npy TYPE FILE: the numbers of a NumPy file of version 1, one a line, as od has them (f4, u2, d4, ...).
npy() {
    [[ $(head -c 8 "$2" | od -An -tx1) == ' 93 4e 55 4d 50 59 01 00' ]] || fail "$2 is no NumPy file"
    local header
    header=$(od -An -tu2 -j 8 -N 2 "$2" | tr -d ' ')
    (((10 + header) % 64 == 0)) || fail "$2: data begin at $((10 + header))"
    od -An -v -w"${1#?}" -t"$1" -j $((10 + header)) "$2" | tr -d ' '
}

@test "an exported tensor is a NumPy file of the cache's numbers" {
    for type in f32 f16 bf16 q8_0 q4_0 q8_0_rot q4_0_rot; do
        llm-infer -m "$M" --precision f32 --cache-type $type -n 0 --kv-out $type.kv --ids "$(seq -s ' ' 1 70)"
        llm-kvinspect export --tensor layers.0.k -o $type.npy $type.kv # the same numbers, rounded once
        head -c 128 $type.npy | grep -aqE "'fortran_order': False, 'shape': \(70, 1, 32,?\)"
    done
    for type in f32 bf16 q8_0 q4_0; do head -c 128 $type.npy | grep -aq "'descr': '<f4'"; done
    head -c 128 f16.npy | grep -aq "'descr': '<f2'"
    npy f4 f32.npy > f32
    [[ $(wc -l < f32) == 2240 ]]
    npy f4 bf16.npy > bf16
    npy f4 q8_0.npy > q8_0
    npy f4 q4_0.npy > q4_0
    npy f4 q8_0_rot.npy > q8_0_rot
    npy f4 q4_0_rot.npy > q4_0_rot
    npy u2 f16.npy | awk '{sign = $1 >= 32768 ? -1 : 1; e = int($1 / 1024) % 32; m = $1 % 1024
        print sign * (e ? (1 + m / 1024) * 2 ^ (e - 15) : m * 2 ^ -24)}' > f16
    for type in f16:5e-4 bf16:4e-3 q8_0:4e-3 q4_0:13e-2 q8_0_rot:8e-3 q4_0_rot:13e-2; do
        paste f32 "${type%:*}" | awk -v bound="${type#*:}" '{a = $1 < 0 ? -$1 : $1; d = $1 - $2; if (d < 0) d = -d; if (a > size) size = a; if (d > most) most = d}
            END {exit !(most > 0 && most < bound * size)}' || fail "$type"
    done
    # BF16 has the upper half of the bits
    npy u4 bf16.npy | awk '$1 % 65536 {exit 1}'
    llm-kvinspect export --tensor ids "$KV" > ids.npy
    npy d4 ids.npy | cmp - <(seq 1 70)
    llm-kvinspect export --tensor positions "$KV" > positions.npy
    npy d4 positions.npy | cmp - <(seq 0 69)
    llm-kvinspect export --tensor layers.0.q "$KV" > q.npy
    head -c 128 q.npy | grep -aqE "'shape': \(8, 2, 32,?\)"
}

@test "heads: norms and attention are those of the exported numbers" {
    for name in k v q; do
        llm-kvinspect export --tensor layers.1.$name -o $name.npy "$KV"
        npy f4 $name.npy > $name
    done
    llm-kvinspect heads -l 1 "$KV" > heads.tsv
    [[ $(wc -l < heads.tsv) == 3 ]]
    awk -F'\t' '
        function moments(x, m,    t, i, s) {
            m["mean"] = m["sd"] = 0
            for (t = 0; t < 70; t++) {
                s = 0
                for (i = 0; i < 32; i++) s += x[32 * t + i] ^ 2
                m[t] = sqrt(s)
                m["mean"] += m[t] / 70
            }
            for (t = 0; t < 70; t++) m["sd"] += (m[t] - m["mean"]) ^ 2 / 69
            m["sd"] = sqrt(m["sd"])
        }
        function same(name, want,    d) {
            d = $column[name] - want
            if ((d < 0 ? -d : d) > 1e-5 * (want < 0 ? -want : want)) { print name, $column[name], want; bad = 1 }
        }
        FILENAME == "k" { k[FNR - 1] = $1; next }
        FILENAME == "v" { v[FNR - 1] = $1; next }
        FILENAME == "q" { q[FNR - 1] = $1; next }
        FNR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; moments(k, km); moments(v, vm); next }
        {
            entropy = most = sink = largest = distance = 0
            for (n = 0; n < 8; n++) {
                sum = top = 0
                for (t = 0; t <= 62 + n; t++) {
                    s = 0
                    for (i = 0; i < 32; i++) s += q[(2 * n + FNR - 2) * 32 + i] * k[32 * t + i]
                    p[t] = exp(s / sqrt(32))
                    sum += p[t]
                }
                for (t = 0; t <= 62 + n; t++) {
                    p[t] /= sum
                    entropy -= p[t] * log(p[t]) / 8
                    distance += p[t] * (62 + n - t) / 8
                    if (p[t] > top) top = p[t]
                }
                sink += p[0] / 8
                largest += top / 8
                most += log(63 + n) / 8
            }
            same("layer", 1); same("head", FNR - 2); same("kv_head", 0)
            same("k_norm", km["mean"]); same("k_norm_sd", km["sd"]); same("k_norm_first", km[0])
            same("v_norm", vm["mean"]); same("v_norm_sd", vm["sd"]); same("v_norm_first", vm[0])
            same("entropy", entropy); same("entropy_most", most); same("sink", sink); same("largest", largest); same("distance", distance)
        }
        END { exit bad }' k v q heads.tsv
}

@test "diff: the numbers that it gives are those of the exported numbers" {
    llm-infer -m "$M" --precision f32 --cache-type q8_0 -n 0 --kv-out q8.kv --ids "$(seq -s ' ' 1 70)"
    for cache in "$KV" q8.kv; do
        llm-kvinspect export --tensor layers.1.v -o v.npy $cache
        npy f4 v.npy > "v.${cache##*/}"
    done
    run -1 llm-kvinspect diff "$KV" q8.kv
    [[ ${lines[4]} == $'1\t0\tv\t'* ]]
    paste v.c.kv v.q8.kv | awk -v line="${lines[4]}" '
        { d = $1 - $2; dd += d * d; xx += $1 ^ 2; yy += $2 ^ 2; xy += $1 * $2; if (d < 0) d = -d; if (d > most) most = d }
        function same(found, want) { d = found - want; if ((d < 0 ? -d : d) > 1e-5 * want) { print found, want; bad = 1 } }
        END { split(line, f, "\t"); same(f[4], sqrt(dd / NR)); same(f[5], most); same(f[6], sqrt(dd / xx)); same(f[7], xy / sqrt(xx * yy)); exit bad }'
}

@test "attention: its averages are those of heads; roles of heads are those of the exported numbers" {
    need_tool python3
    llm-infer -m "$M" --precision f32 -n 0 --trace-queries 40 --kv-out twice.kv --ids "$(seq -s ' ' 1 20) $(seq -s ' ' 1 20)"
    for name in k q; do
        llm-kvinspect export --tensor layers.1.$name -o $name.npy twice.kv
        npy f4 $name.npy > $name
    done
    llm-kvinspect heads -l 1 twice.kv > heads.tsv
    for head in 0 1; do llm-kvinspect attention -l 1 --head $head twice.kv > map.$head.tsv; done
    python3 - <<'END'
import math
k, q = ([float(x) for x in open(n)] for n in "kq")
rows = [dict(zip(*pair)) for line in open("heads.tsv").read().splitlines()[1:]
        for pair in [(open("heads.tsv").readline().rstrip("\n").split("\t"), line.split("\t"))]]
ids = list(range(20)) * 2
close = lambda a, b: abs(float(a) - b) <= 1e-5 * max(1e-3, abs(b))
for head in 0, 1:
    previous = duplicate = induction = largest = entropy = 0
    for t in range(40):
        s = [sum(q[(2 * t + head) * 32 + i] * k[32 * j + i] for i in range(32)) / math.sqrt(32) for j in range(t + 1)]
        p = [math.exp(x - max(s)) for x in s]
        p = [x / sum(p) for x in p]
        line = open(f"map.{head}.tsv").read().splitlines()[1 + t].split("\t")
        assert line[0] == str(t) and line[1] == str(p.index(max(p))) and close(line[2], max(p)), (line, p)
        previous += p[t - 1] / 40 if t else 0
        largest += max(p) / 40
        if t >= 20:
            duplicate += p[t - 20] / 20
            induction += p[t - 19] / 20
    for name in "previous", "duplicate", "induction", "largest":
        assert close(rows[head][name], locals()[name]), (head, name, rows[head][name], locals()[name])
END
}

@test "attention: a grid of heads, as table, page and text, has the attentions of transformers" {
    need_tool python3
    llm-kvinspect attention -l 1 --grid -T "$M" --png grid.png --svg grid.svg --html grid.html --json "$KV" > grid.json
    llm-kvinspect attention -j 1 -l 1 --grid -T "$M" --png one.png --svg one.svg --html one.html --json "$KV" | cmp - grid.json
    for what in png svg html; do cmp grid.$what one.$what; done
    llm-kvinspect attention -l 1 --grid --show -T "$M" -o grid.txt "$KV"
    python3 - "$ROOT/tests/golden/kvinspect/expected.json" "$ROOT/tests/golden/tiny" <<'END'
import base64, json, re, sys
golden = json.load(open(sys.argv[1]))["attention"][1]
rows = [json.loads(line) for line in open("grid.json")]
page = open("grid.html", encoding="utf-8").read()
panels = re.search(r"panels=(\[.*?\]),data=\[(.*?)\];", page)
assert json.loads(panels[1]) == ["head 0", "head 1"]
cells = [base64.b64decode(text.strip("'")) for text in panels[2].split(",")]
largest = float(re.search("largest=([0-9.e-]+)", page)[1])
names = json.loads(re.search(r"xnames=(\[.*?\]);", page)[1])
assert len(names) == 70 and names[32] == "32 A", names
text = open("grid.txt", encoding="utf-8").read().split("\n")
for head in 0, 1:
    start = text.index(f"head {head}") + 1
    for query in range(8):
        want, row = golden[head][query * 70:query * 70 + 70], rows[head * 8 + query]
        order = sorted(range(70), key=lambda j: -want[j])
        assert (row["head"], row["query"], row["key"], row["second_key"]) == (head, 62 + query, order[0], order[1]), row
        assert abs(row["p"] - want[order[0]]) < 1e-5 and abs(row["second_p"] - want[order[1]]) < 1e-5
        shades = text[start + query][6:76]
        for key in range(70):
            byte = cells[head][query * 70 + key]
            if key > 62 + query:
                assert byte == 255 and shades[key] == " "
                continue
            assert abs((byte / 254) ** 2 * largest - want[key]) < 1e-5 + largest / 127, (head, query, key)  # half a step of the root
            share = (want[key] / largest) ** .5 * 5
            assert abs("·░▒▓█".index(shades[key]) - min(4, int(share))) <= (abs(share - round(share)) < 1e-4)
END
    [[ $(head -c 4 grid.png | tail -c 3) == PNG && $(head -c 4 grid.svg) == '<svg' ]]
    run ! grep -qE 'src=|http:' grid.html
    need_tool xmllint
    xmllint --noout grid.svg
}

@test "attention: pictures and pages of a head and of a layer; bad input" {
    llm-kvinspect attention -l 1 --head 1 -T "$M" --png head.png --html head.html "$KV" > head.tsv
    llm-kvinspect attention -j 1 -l 1 --head 1 -T "$M" --png one.png --html one.html "$KV" > one.tsv
    cmp head.png one.png
    cmp head.html one.html
    cmp head.tsv one.tsv
    [[ $(head -c 4 head.png | tail -c 3) == PNG ]]
    grep -q "const rows=8,cols=70,ystep=1,xstep=1," head.html
    run ! grep -q 'src=\|http' head.html
    [[ $(wc -l < head.tsv) == 9 ]]
    llm-kvinspect attention -l 1 "$KV" > mean.tsv
    run ! cmp -s mean.tsv head.tsv
    llm-infer -m "$M" --precision f32 -n 0 --kv-out plain2.kv --ids "1 2 3"
    refused 65 'expected traced queries' llm-kvinspect attention plain2.kv
    refused 2 'it does not go with --head' llm-kvinspect attention --grid --head 1 "$KV"
    refused 2 'expected no --json' llm-kvinspect attention --show --json "$KV"
    for it in "" "--html - -o table"; do refused 2 'one owner' llm-kvinspect attention --svg - $it "$KV"; done
    llm-kvinspect attention --svg - -o table "$KV" > out.svg
    [[ $(head -c 4 out.svg) == '<svg' && -s table ]]
    llm-infer -m "$M" --precision f32 -n 0 -c 4096 --trace-queries 1500 --kv-out long.kv --ids "$(seq -s ' ' 1 1500 | awk '{for (i = 1; i <= NF; i++) printf "%d ", $i % 90 + 1}')"
    llm-kvinspect attention --html long.html --png long.png --grid -T "$M" --show long.kv > long.txt
    grep -q 'the largest among up to 2 × 3 neighbours' long.html
    [[ $(grep -c 'A cell shows the largest among up to' long.txt) == 1 && $(wc -L < long.txt) -lt 100 ]]
    refused 2 '--head: expected below 2, found 2' llm-kvinspect attention --head 2 "$KV"
    refused 2 '--layer: expected below 2, found 5' llm-kvinspect attention -l 5 "$KV"
}

@test "spectrum: singular values and ranks are NumPy's of transformers' keys and values; the same for any threads" {
    need_tool python3
    for how in '' --centre; do
        llm-kvinspect spectrum $how --json "$KV" > "heads$how"
        llm-kvinspect spectrum $how --json --values "$KV" > "values$how"
        llm-kvinspect spectrum $how --json -j 1 "$KV" | cmp - "heads$how"
        llm-kvinspect spectrum $how --json -j 3 "$KV" | cmp - "heads$how"
    done
    python3 - "$ROOT/tests/golden/kvinspect/expected.json" <<'END'
import json, sys
seen = 0
for want in json.load(open(sys.argv[1]))["spectrum"]:
    how = "--centre" if want["centred"] else ""
    mine = lambda name: [row for row in map(json.loads, open(name + how))
                         if (row["layer"], row["kv_head"], row["tensor"]) == (want["layer"], want["kv_head"], want["tensor"])]
    [row], values = mine("heads"), [v["value"] for v in mine("values")]
    # keys of two FP32 computations differ by some 1e-6 of the largest value
    assert len(values) == len(want["values"]) == row["of"] == 32
    assert max(abs(a - b) for a, b in zip(values, want["values"])) < 1e-5 * want["values"][0], (values, want)
    assert values == sorted(values, reverse=True) and (row["largest"], row["smallest"]) == (values[0], values[-1])
    for name in "effective_rank", "stable_rank":
        assert abs(row[name] / want[name] - 1) < 1e-5, (name, row, want)
    assert (row["rank_90"], row["rank_99"]) == (want["rank_90"], want["rank_99"])
    seen += 1
assert seen == 8
END
    [[ $(llm-kvinspect spectrum -l 1 "$KV" | wc -l) == 3 ]]
    llm-kvinspect spectrum --png s.png "$KV" | cmp - <(llm-kvinspect spectrum "$KV")
    [[ $(head -c 4 s.png | tail -c 3) == PNG ]]
    llm-infer -m "$M" -n 0 --kv-out three.kv --ids "1 2 3" # fewer tokens than channels
    [[ $(llm-kvinspect spectrum three.kv | cut -f 8 | sort -u | xargs) == '3 of' ]]
    refused 2 '--layer: expected below 2, found 2' llm-kvinspect spectrum -l 2 "$KV"
}

# The oracle's cache: 40 of 70 queries are traced.
traced() {
    llm-infer -m "$M" --precision f32 -n 0 --trace-queries 40 --kv-out traced.kv --ids "$(seq -s ' ' 1 70)"
}

@test "quant: attention with rounded keys and values is NumPy's; the same for any threads" {
    need_tool python3
    traced
    llm-kvinspect quant --by head --json traced.kv > quant
    llm-kvinspect quant --by head --json -j 1 traced.kv | cmp - quant
    llm-kvinspect quant --by head --json -j 3 traced.kv | cmp - quant
    python3 - "$ROOT/tests/golden/kvinspect/expected.json" <<'END'
import json, sys
mine = {(r["type"], r["layer"], r["head"]): r for r in map(json.loads, open("quant"))}
want = json.load(open(sys.argv[1]))["quant"]
assert len(mine) == 28 and len(want) == 16
for w in want:
    r = mine[w["type"], w["layer"], w["head"]]
    # two computations in FP32 differ before they are rounded: a key near the middle of two steps goes either way, so few types are equal to 1e-3
    for name, bound in ("k_error", 1e-2), ("v_error", 1e-2), ("output_error", 3e-2):
        assert abs(r[name] / w[name] - 1) < bound, (name, r, w)
    assert abs(r["kl"] - w["kl"]) < .05 * w["kl"] + 1e-8, (r, w)
for layer in 0, 1:
    for head in 0, 1:
        assert not any(mine["f32", layer, head][name] for name in ("kl", "output_error", "k_error", "v_error"))
        for kind in "q8_0", "q4_0":
            plain, rotated = mine[kind, layer, head], mine[kind + "_rot", layer, head]
            assert rotated["v_error"] == plain["v_error"] and 0.5 < rotated["k_error"] / plain["k_error"] < 1.5, (plain, rotated)
            assert rotated["k_error"] != plain["k_error"], (plain, rotated)
END
    [[ $(llm-kvinspect quant traced.kv | wc -l) == 8 && $(llm-kvinspect quant --by layer traced.kv | wc -l) == 15 ]]
    # a rounded cache loses nothing more in its own type
    llm-infer -m "$M" --precision f32 --cache-type q8_0 -n 0 --trace-queries 4 --kv-out q8.kv --ids "$(seq -s ' ' 1 70)"
    [[ $(llm-kvinspect quant q8.kv | awk '$1 == "q8_0" {print $4, $5}') == '0 0' ]]
    llm-infer -m "$M" -n 0 --kv-out plain.kv --ids "1 2 3"
    refused 65 'expected traced queries' llm-kvinspect quant plain.kv
}

@test "evict: what is kept and what is lost is NumPy's, and llm-infer goes on with the probabilities of transformers" {
    need_tool python3
    traced
    llm-kvinspect evict --keep 7,24 --hold 10 --by head --json traced.kv > losses
    llm-kvinspect evict --keep 7,24 --hold 10 --by head --json -j 1 traced.kv | cmp - losses
    llm-kvinspect evict --keep 7,24 --hold 10 --by head --json -j 3 traced.kv | cmp - losses
    for method in window sinks h2o snapkv; do
        for keep in 7 24; do
            llm-kvinspect evict --method $method --keep $keep --kv-out $method.$keep.kv traced.kv
            for layer in 0 1; do
                llm-kvinspect export --tensor layers.$layer.positions $method.$keep.kv > positions.npy
                npy d4 positions.npy > $method.$keep.$layer
            done
            llm-infer -q -m "$M" --precision f32 --kv-in $method.$keep.kv --score --ids "5 6 7 8" > $method.$keep.score
            for more in '-j 1' '-j 3' '--batch 1'; do # shellcheck disable=SC2086
                llm-infer -q -m "$M" --precision f32 $more --kv-in $method.$keep.kv --score --ids "5 6 7 8" | cmp - $method.$keep.score
            done
        done
    done
    python3 - "$ROOT/tests/golden/kvinspect/expected.json" <<'END'
import json, sys
golden = json.load(open(sys.argv[1]))
mine = {(r["method"], r["keep"], r["layer"], r["head"]): r for r in map(json.loads, open("losses"))}
assert len(mine) == len(golden["loss"]) == 32
for w in golden["loss"]:
    r = mine[w["method"], w["keep"], w["layer"], w["head"]]
    for name in "lost", "kl", "output_error":
        assert abs(r[name] - w[name]) < 1e-5 * max(1, w[name]), (name, r, w)
for w in golden["evict"]:
    name = f"{w['method']}.{w['keep']}"
    for layer in 0, 1:
        assert [int(x) for x in open(f"{name}.{layer}")] == w["kept"][layer], (name, layer)
    got = [float(line.split("\t")[-1]) for line in open(name + ".score")]
    # two computations in FP32 of logits that span 20
    assert len(got) == 4 and max(abs(a - b) for a, b in zip(got, w["log_prob"])) < 5e-5, (name, got, w["log_prob"])
END
}

@test "an evicted cache that keeps all is the cache; one that goes on is written whole; what it refuses" {
    traced
    score() { llm-infer -q -m "$M" --precision f32 --kv-in "$1" --score --ids "$2"; }
    llm-kvinspect evict --method window --keep 70 --kv-out all.kv traced.kv
    score traced.kv "5 6 7" > want
    score all.kv "5 6 7" | cmp - want
    llm-kvinspect evict --method h2o --keep 20 --kv-out small.kv traced.kv
    [[ $(llm-kvinspect --json small.kv | jq -c '[.tokens, .kept, .last_position, .bytes]') == '[70,20,69,10240]' ]]
    # 30 tokens cross a page of 64 rows in neither cache; 60 do
    for n in 30 60; do
        llm-infer -q -m "$M" --precision f32 --temp 0 --ignore-eos -n $n --kv-in small.kv --kv-out more.kv > /dev/null
        [[ $(llm-kvinspect --json more.kv | jq -c '[.tokens, .kept]') == "[$((70 + n)),$((20 + n))]" ]]
        score more.kv "5 6 7" > after
        score small.kv "$(llm-kvinspect export --tensor ids more.kv > ids.npy; npy d4 ids.npy | tail -n +71 | xargs) 5 6 7" | tail -n 3 | cmp - after
    done
    llm-infer -q -m "$M" --precision f32 --samples 3 -n 5 --kv-in small.kv > /dev/null # they share pages
    llm-kvinspect heads --png h.png small.kv > /dev/null
    llm-kvinspect spectrum small.kv | cut -f 8 | sort -u | xargs | grep -qx '20 of'
    refused 65 'evicted' llm-kvinspect diff small.kv traced.kv
    refused 65 'evicted' llm-kvinspect evict small.kv
    refused 65 'expected to keep all 70 tokens' llm-infer -m "$M" --precision f32 --kv-in small.kv --kv-keep 69 -n 1
    for it in "" "--method h2o --keep 3,4"; do refused 2 'one --method and one --keep' llm-kvinspect evict $it --kv-out x.kv traced.kv; done
    for it in "-o t" "--by head" "--by all" --json; do refused 2 'no table' llm-kvinspect evict --method h2o --keep 3 $it --kv-out x.kv traced.kv; done
    for it in "--sinks 2 --method h2o" "--recent 2 --method sinks"; do refused 2 "${it%% *} goes with" llm-kvinspect evict $it traced.kv; done
    refused 65 'more than the 40 tokens that are held out' llm-kvinspect evict --hold 40 traced.kv
    llm-infer -m "$M" -n 0 --kv-out plain.kv --ids "1 2 3"
    refused 65 'expected traced queries' llm-kvinspect evict --method h2o --keep 2 --kv-out x.kv plain.kv
    llm-kvinspect evict --method sinks --keep 2 --kv-out x.kv plain.kv # needs no queries
    refused 2 '--keep: expected integers' llm-kvinspect evict --keep 0 traced.kv
    jq -c '.sliding_window = 16 | .model_type = "mistral" | .architectures = ["MistralForCausalLM"]' "$M/config.json" > window.json
    seq 2000 | llm-tokenize encode -T "$M/tokenizer.json" -o numbers.tok
    llm-train -q -c window.json -T "$M/tokenizer.json" -n 1 --batch 1 --context 32 -o window.llm numbers.tok
    llm-infer -m window.llm -n 0 --kv-out window.kv --ids "1 2 3"
    refused 65 'found mistral: it has a sliding window' llm-kvinspect evict --method window --keep 2 --kv-out x2.kv window.kv
    [[ ! -e x2.kv ]]
}

@test "slice and cat: parts join to the same bytes; a cache at other positions has the keys of transformers" {
    need_tool python3
    traced
    llm-kvinspect slice --to 45 -o a.kv traced.kv
    llm-kvinspect slice --from 45 -o b.kv traced.kv
    [[ $(llm-kvinspect --json a.kv | jq -c '[.tokens, .first_position, .last_position, .traced_queries]') == '[45,0,44,15]' ]]
    [[ $(llm-kvinspect --json b.kv | jq -c '[.tokens, .first_position, .last_position, .traced_queries]') == '[25,45,69,25]' ]]
    llm-infer -q -m "$M" --precision f32 -n 0 --trace-queries 25 --kv-out whole.kv --ids "$(seq -s ' ' 1 70)"
    run -0 --separate-stderr llm-kvinspect cat -o joined.kv a.kv b.kv
    [[ -z $stderr ]]
    cmp joined.kv whole.kv
    llm-kvinspect slice -o - traced.kv | cmp - traced.kv
    llm-kvinspect heads b.kv > /dev/null # positions that do not begin at 0
    ids() { seq -s ' ' "$1" "$2"; }
    llm-infer -q -m "$M" --precision f32 -n 0 --kv-out first.kv --ids "$(ids 1 30)"
    llm-infer -q -m "$M" --precision f32 -n 0 --trace-queries 20 --kv-out second.kv --ids "$(ids 41 60)"
    run -0 --separate-stderr llm-kvinspect cat -o both.kv first.kv second.kv
    [[ $stderr == 'llm-kvinspect cat: 20 of 50 tokens have other positions than before' ]]
    for layer in 0 1; do
        llm-kvinspect export --tensor layers.$layer.k both.kv > k.npy
        npy f4 k.npy | tail -n 640 > k.$layer
    done
    llm-infer -q -m "$M" --precision f32 --kv-in both.kv --score --ids "5 6 7 8" > score
    # queries have turned with the keys: the second text looks at itself as before
    llm-kvinspect slice --from 30 -o turned.kv both.kv
    for file in turned second; do llm-kvinspect attention -l 1 --head 1 --json $file.kv > $file.map; done
    python3 - "$ROOT/tests/golden/kvinspect/expected.json" <<'END'
import json, sys
want = json.load(open(sys.argv[1]))["join"]
for layer in 0, 1:
    got = [float(x) for x in open(f"k.{layer}")]
    assert len(got) == 640 and max(abs(a - b) for a, b in zip(got, want["keys"][layer])) < 1e-5 * max(map(abs, got))
got = [float(line.split("\t")[-1]) for line in open("score")]
assert max(abs(a - b) for a, b in zip(got, want["log_prob"])) < 5e-5, (got, want["log_prob"])
for a, b in zip(open("turned.map"), open("second.map")):
    a, b = json.loads(a), json.loads(b)
    assert a["key"] == b["key"] + 30 and abs(a["p"] - b["p"]) < 1e-5 and abs(a["entropy"] - b["entropy"]) < 1e-4, (a, b)
END
    llm-kvinspect cat -o again.kv turned.kv # alone: from position 0 on
    run -1 llm-kvinspect diff --json again.kv second.kv
    jq -es 'map(.relative) | max < 1e-6' <<< "$output" > /dev/null
}

@test "a cache that goes on has the queries of the tokens that were run, and no others" {
    llm-infer -q -m "$M" --precision f32 -n 0 --trace-queries 8 --kv-out whole.kv --ids "$(seq -s ' ' 1 73)"
    llm-infer -q -m "$M" --precision f32 -n 0 --kv-in "$KV" --trace-queries 8 --kv-out more.kv --ids "71 72 73"
    [[ $(llm-kvinspect --json more.kv | jq -c '[.tokens, .traced_queries]') == '[73,3]' ]]
    for file in whole more; do
        llm-kvinspect export --tensor layers.1.q $file.kv > q.npy
        npy f4 q.npy | tail -n 192 > $file.q
    done
    cmp whole.q more.q
    llm-infer -q -m "$M" --precision f32 -n 0 --kv-in "$KV" --trace-queries 8 --kv-out same.kv # the last token is run again
    [[ $(llm-kvinspect --json same.kv | jq -c '[.tokens, .traced_queries]') == '[70,1]' ]]
}

@test "slice and cat: what they refuse" {
    traced
    refused 2 '--to: expected at most 70 (tokens), found 71' llm-kvinspect slice --to 71 traced.kv
    refused 2 '--from: expected below 70, found 70' llm-kvinspect slice --from 70 traced.kv
    refused 2 'expected files, found none' llm-kvinspect cat
    refused 2 'two inputs' llm-kvinspect cat - -
    refused 66 'absent.kv' llm-kvinspect cat traced.kv absent.kv
    llm-kvinspect evict --method window --keep 9 --kv-out small.kv traced.kv
    refused 65 'expected a cache with the keys of all tokens' llm-kvinspect slice --to 3 small.kv
    refused 65 'cache 2: expected a cache with the keys of all tokens' llm-kvinspect cat traced.kv small.kv
    llm-infer -m "$M" -n 0 --cache-type bf16 --kv-out bf16.kv --ids "1 2 3"
    refused 65 'cache 2: expected f32, as the first cache has, found bf16' llm-kvinspect cat traced.kv bf16.kv
    seq 2000 | llm-tokenize encode -T "$M/tokenizer.json" -o numbers.tok
    for model in gpt2 lstm; do
        [[ $model == gpt2 ]] && small=(--set n_embd=32 --set n_layer=1 --set n_head=2) || small=(--set hidden_size=32)
        llm-train -q -c $model "${small[@]}" -T "$M/tokenizer.json" -n 1 --batch 1 --context 32 -o $model.llm numbers.tok
        llm-infer -m $model.llm -n 0 --kv-out $model.kv --ids "1 2 3"
    done
    refused 65 'cache 2: expected a cache of the first one'"'"'s model' llm-kvinspect cat traced.kv gpt2.kv
    refused 65 'cache 2: expected position 3, found 0: keys of gpt2 cannot be rotated to it' llm-kvinspect cat gpt2.kv gpt2.kv
    refused 65 'found the state of a recurrent model' llm-kvinspect cat lstm.kv lstm.kv
    refused 65 'the state of a recurrent model is that after the last' llm-kvinspect slice --to 2 lstm.kv
    refused 65 'expected positions 0 to' llm-infer -m "$M" -n 1 --precision f32 --kv-in <(llm-kvinspect slice --from 3 traced.kv)
    refused 74 '' bash -c 'llm-kvinspect slice "$0" > /dev/full' "$KV"
    refused 74 '' bash -c 'llm-kvinspect cat "$0" > /dev/full' "$KV"
}

@test "the positions of an evicted cache's heads are checked" {
    sed 's/llm\.checksums/old.checksums/' "$ROOT/tests/golden/formats/evicted.kv" > unsummed.kv # as an earlier version wrote it
    llm-kvinspect -q unsummed.kv > /dev/null
    at=$(($(od -An -N8 -tu8 unsummed.kv) + 8 + 12)) # 12 bytes of ids come first, then positions [2][2]: 0 1 2 2
    for change in '0 7' '0 \xff' '4 2' '8 1' '12 1' '8 0'; do
        cp unsummed.kv bad.kv
        # shellcheck disable=SC2059  # bytes in octal and hexadecimal
        [[ ${change#* } == \\* ]] && byte=${change#* } || byte="\\x0${change#* }"
        printf "$byte" | dd of=bad.kv bs=1 seek=$((at + ${change% *})) conv=notrunc status=none
        refused 65 "bad.kv: tensor 'layers.0.positions': head * row *: expected ascending positions of tokens up to the last, found *" llm-kvinspect -q bad.kv
    done
    for change in 's/\[2,2,2\]/[4,1,2]/' 's/layers.0.positions/layers.0.positiont/g' 's/"I32","shape":\[2,2\]/"U32","shape":[2,2]/'; do
        sed "$change" unsummed.kv > bad.kv
        cmp -s bad.kv unsummed.kv && fail "nothing changed by $change"
        refused 65 'bad.kv' llm-kvinspect -q bad.kv
    done
}

@test "heads without traced queries, of one layer, as JSON, the same for any threads" {
    llm-infer -m "$M" -n 0 --kv-out plain.kv --ids "1 2 3"
    run -0 llm-kvinspect heads -l 1 plain.kv
    [[ ${#lines[@]} == 3 && ${lines[1]} == $'1\t0\t0\t'*$'\t-\t-\t-\t-\t-' ]]
    [[ $(llm-kvinspect heads --json plain.kv | jq -s -c '[length, .[0].entropy, .[3].layer]') == '[4,null,1]' ]]
    llm-kvinspect heads -j 1 "$KV" > one
    llm-kvinspect heads -j 3 "$KV" | cmp - one
    refused 2 'expected below 2' llm-kvinspect heads -l 2 plain.kv
    refused 65 'expected traced queries' llm-kvinspect heads --png x.png --map attention plain.kv
    [[ ! -e x.png ]]
}

# size PNG: its width and height
size_of() {
    od -An -tu1 -j 16 -N 8 "$1" | awk '{print ($1 * 256 + $2) * 65536 + $3 * 256 + $4, ($5 * 256 + $6) * 65536 + $7 * 256 + $8}'
}

@test "pictures are PNG with margins for labels, of bounded size" {
    need_tool file
    for map in k v attention; do
        llm-kvinspect heads --png $map.png --map $map "$KV" > /dev/null
        [[ $(file $map.png) == *'PNG image data, '*', 8-bit/color RGB'* ]]
    done
    run -1 cmp -s k.png v.png
    llm-kvinspect heads -o table.tsv --png - "$KV" | cmp - k.png
    refused 2 'one owner' llm-kvinspect heads --png - "$KV"
    read -r w h <<< "$(size_of k.png)"
    ((w > 70 * 16 && w < 1600 && h > 4 * 16 && h < 400)) || fail "$w x $h"
    # 1,500 tokens are binned: no more pixels than 1,024 columns and the margins need
    llm-infer -m "$M" -n 0 -c 2048 --kv-out long.kv --ids "$(seq -s ' ' 1 1500 | awk '{for (i = 1; i <= NF; i++) printf "%d ", $i % 90 + 1}')"
    llm-kvinspect heads --png long.png long.kv > /dev/null
    read -r w h <<< "$(size_of long.png)"
    ((w > 750 && w < 1300 && h < 400)) || fail "$w x $h"
}

@test "pictures: --scale, the texts of tokens, and what is refused" {
    llm-kvinspect heads --map attention --png auto.png "$KV" > /dev/null
    llm-kvinspect heads --map attention --scale linear --png linear.png "$KV" > /dev/null
    llm-kvinspect heads --map attention --scale log --png log.png "$KV" > /dev/null
    run -1 cmp -s linear.png log.png
    cmp auto.png log.png # the largest probability outshines the others
    llm-kvinspect heads --png k.png "$KV" > /dev/null
    llm-kvinspect heads --scale linear --png k2.png "$KV" > /dev/null
    cmp k.png k2.png # norms are much alike
    llm-kvinspect heads -T "$M" --png texts.png "$KV" > /dev/null
    [[ $(size_of texts.png | cut -d ' ' -f 2) -gt $(size_of k.png | cut -d ' ' -f 2) ]]
    llm-kvinspect diff -T "$M" --png d.png "$KV" "$KV" > /dev/null # nothing but zeros
    refused 2 '--scale needs --png' llm-kvinspect heads --scale log "$KV"
    refused 2 '--map needs --png' llm-kvinspect heads --map v "$KV"
    refused 2 '--tokenizer needs --png' llm-kvinspect diff -T "$M" "$KV" "$KV"
    refused 66 'absent: ' llm-kvinspect heads -T absent --png x.png "$KV"
    echo "other words" | llm-tokenize train --vocab-size 260 -o other.json
    refused 65 'other.json: expected the tokenizer of the cache (identity ' llm-kvinspect heads -T other.json --png x.png "$KV"
    [[ ! -e x.png ]]
    nothing_left
}

@test "diff: nothing between equals, the loss of a type, what is common" {
    run -0 --separate-stderr llm-kvinspect diff "$KV" "$KV"
    [[ -z $stderr && ${#lines[@]} == 5 && ${lines[1]} == $'0\t0\tk\t0\t0\t0\t1' ]]
    llm-infer -m "$M" --precision f32 --cache-type q8_0 -n 0 --kv-out q8.kv --ids "$(seq -s ' ' 1 70)"
    run -1 --separate-stderr llm-kvinspect diff "$KV" q8.kv
    [[ -z $stderr && $(awk 'NR > 1 && !($6 > 0 && $6 < .05 && $7 > .999) {print}' <<< "$output") == '' ]]
    llm-infer -m "$M" --precision f32 -n 0 --kv-out short.kv --ids "$(seq -s ' ' 1 40)"
    run -1 --separate-stderr llm-kvinspect diff --png d.png short.kv "$KV"
    [[ $stderr == *'40 and 70 tokens, of which the first 40 are the same'* && -s d.png ]]
    [[ $(awk 'NR > 1 && $5 != 0 {print}' <<< "$output") == '' ]]
    refused 2 'expected two files' llm-kvinspect diff "$KV"
    refused 2 'two inputs' llm-kvinspect diff - -
}

@test "tables in every form: --format, and aligned columns on a terminal" {
    need_tool script
    llm-kvinspect size "$KV" > tsv
    llm-kvinspect size --format tsv "$KV" | cmp - tsv
    llm-kvinspect size --json "$KV" > json
    llm-kvinspect size --format json "$KV" | cmp - json
    tr '\t' ',' < tsv | sed 's/$/\r/' > csv
    llm-kvinspect size --format csv "$KV" | cmp - csv
    run -0 llm-kvinspect size --format md "$KV"
    [[ ${lines[0]} == '| type | here | '* && ${lines[1]} == '|---|---|---:|'* && ${lines[2]} == '| f32 | yes | 256 | 512 |'* ]]
    llm-kvinspect size --format aligned "$KV" > aligned
    grep -qE '^f32 +yes +256 B +512 B +35.00 KiB' aligned
    script -qec "llm-kvinspect size $KV" /dev/null < /dev/null | tr -d '\r' | cmp - aligned
    script -qec "llm-kvinspect $KV" /dev/null < /dev/null | grep -qE '^bytes +35.00 KiB'
    llm-kvinspect --format csv "$KV" | grep -q '^tokens,70'
    refused 2 '--format' llm-kvinspect size --format xml "$KV"
    refused 2 '--json and --format' llm-kvinspect size --json --format csv "$KV"
}

@test "bad input: one line, the right status, nothing printed" {
    refused 66 'No such file' llm-kvinspect absent.kv
    refused 66 '' llm-kvinspect .
    : > empty.kv
    refused 65 'empty.kv' llm-kvinspect empty.kv
    size=$(stat -c %s "$KV")
    for cut in 1 7 8 100 700 $((size / 2)) $((size - 1)); do
        head -c "$cut" "$KV" > cut.kv
        refused 65 'cut.kv' llm-kvinspect heads cut.kv
    done
    { cat "$KV"; echo more; } > more.kv
    refused 65 'more.kv' llm-kvinspect more.kv
    printf '\0\0\0\0\0\0\0\x80{}' > huge.kv
    refused 65 'huge.kv' llm-kvinspect huge.kv
    refused 65 'expected a KV cache' llm-kvinspect "$M/model.safetensors"
    for change in 's/"kvcache"/"kvcahce"/' 's/layers.0.k/layers.9.k/' 's/"positions"/"posixions"/' 's/\[70,1,32\]/[70,2,16]/' 's/num_hidden_layers/num_hidden_lajers/' \
        's/"dtype":"F32","shape":\[70/"dtype":"I32","shape":[70/' 's/\[70\]/[71]/'; do
        sed "$change" "$KV" > changed.kv
        cmp -s changed.kv "$KV" && fail "nothing changed by $change"
        refused 65 'changed.kv' llm-kvinspect heads changed.kv
    done
    refused 65 'layers.0 to layers.1' llm-kvinspect export --tensor layers.2.k "$KV"
    refused 2 'expected a tensor' llm-kvinspect export "$KV"
    refused 2 'another operand' llm-kvinspect "$KV" "$KV"
    refused 2 '--threads' llm-kvinspect heads -j 0 "$KV"
}

@test "what is no cache is named for what it is" {
    llm-quantize -q -t f16 "$M" m.llm
    printf 'the cat' | llm-tokenize encode -T "$M/tokenizer.json" -o c.tok
    llm-infer -m "$M" --logits -o logits "a"
    : > empty
    refused 65 'm.llm: expected a KV cache, found a checkpoint (.llm)' llm-kvinspect m.llm
    refused 65 "c.tok: expected a KV cache, found a tensor message of kind 'tokens'" llm-kvinspect heads c.tok
    refused 65 "logits: expected a KV cache, found a tensor message of kind 'logits'" llm-kvinspect size logits
    refused 65 'tokenizer.json: expected a KV cache, found JSON' llm-kvinspect diff "$M/tokenizer.json" "$KV"
    refused 65 'empty: expected a KV cache, found an empty file' llm-kvinspect export --tensor ids empty
    refused 65 'standard input: expected a KV cache, found text' bash -c 'echo hello | llm-kvinspect'
}

@test "an id beyond the vocabulary and positions that do not ascend" {
    sed 's/llm\.checksums/old.checksums/' "$KV" > unsummed.kv # as an earlier version wrote it
    KV=unsummed.kv
    at=$(($(od -An -N8 -tu8 "$KV") + 8)) # ids come first, positions last
    cp "$KV" bad.kv
    printf '\xff\xff' | dd of=bad.kv bs=1 seek=$((at + 4)) conv=notrunc status=none
    refused 65 "bad.kv: tensor 'ids': token 1: expected an id below 300, found 65535" llm-kvinspect -q bad.kv
    cp "$KV" bad.kv
    printf '\0' | dd of=bad.kv bs=1 seek=$(($(stat -c %s "$KV") - 280 + 8)) conv=notrunc status=none
    refused 65 "bad.kv: tensor 'positions': token 2" llm-kvinspect -q bad.kv
}

@test "NaN is shown as no number, and differs from numbers" {
    sed 's/llm\.checksums/old.checksums/' "$KV" | tee plain.kv > nan.kv
    printf '\0\0\xc0\x7f' | dd of=nan.kv bs=1 seek=$(($(od -An -N8 -tu8 "$KV") + 288)) conv=notrunc status=none # layers.0.k follows 70 ids
    run -1 llm-kvinspect diff -q plain.kv nan.kv
    run -0 llm-kvinspect diff -q nan.kv nan.kv
    for it in "attention 2-6" "attention --grid 3-7" "heads 4-6,10,12-15" "quant 4,6" "spectrum 4-7" "evict 5,6,7"; do
        llm-kvinspect ${it% *} -q nan.kv > got && [[ $(sed -n 2p got | cut -f "${it##* }" | tr '\t' ' ') =~ ^-(\ -)*$ ]] || fail "$it"
    done
}

@test "the commands of the manual's EXAMPLES run" {
    llm-quantize -q -t bf16 "$M" model.llm
    printf 'Once upon a time there was a cat.' > prompt.txt
    ln -s "$ROOT/tests/golden/vit" vit
    ln -s "$ROOT/tests/golden/image/rgb.png" cat.png
    manual_examples llm-kvinspect 10
}

@test "outputs that cannot be written" {
    refused 74 '' bash -c 'llm-kvinspect "$0" > /dev/full' "$KV"
    refused 74 '' bash -c 'llm-kvinspect heads "$0" > /dev/full' "$KV"
    refused 74 '' bash -c 'llm-kvinspect export --tensor ids "$0" > /dev/full' "$KV"
    refused 74 '' bash -c 'llm-kvinspect heads -o table --png - "$0" > /dev/full' "$KV"
    refused 74 '' bash -c 'llm-kvinspect "$0" >&-' "$KV"
    refused 73 'absent/k.npy' llm-kvinspect export --tensor ids -o absent/k.npy "$KV"
}

@test "a value of a cache that was changed is refused; a cache without checksums is read with a note" {
    local i size
    llm-infer -q -m "$ROOT/tests/golden/tiny" -n 0 --kv-out good.kv "Once upon a time"
    run -0 --separate-stderr llm-kvinspect good.kv
    [[ -z $stderr ]]
    size=$(stat -c %s good.kv)
    for i in {1..40}; do # a bit of the data, which begins at 64 times something and is the last part
        cp good.kv bad.kv
        at=$((size - 1 - i * 97 % 2000))
        printf "\\x$(printf %02x $((0x$(od -A n -t x1 -j $at -N 1 good.kv | tr -d ' ') ^ 1 << i % 8)))" | dd of=bad.kv bs=1 seek=$at conv=notrunc status=none
        refused 65 "bad.kv: tensor '*': checksum: expected *, found *" llm-kvinspect bad.kv
    done
    sed 's/0123456789abcdef/1123456789abcdef/' "$ROOT/tests/golden/formats/cache.kv" > bad.kv
    refused 65 "bad.kv: metadata 'llm.fingerprint': checksum: expected *, found *" llm-kvinspect bad.kv
    run -0 --separate-stderr llm-kvinspect "$ROOT/tests/golden/formats/old.kv"
    [[ $stderr == *"old.kv: the cache has no checksums: an earlier version wrote it, and its values cannot be verified" ]]
    run -0 --separate-stderr llm-kvinspect -q "$ROOT/tests/golden/formats/old.kv"
    [[ -z $stderr ]]
}
