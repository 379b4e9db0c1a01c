# The model opened: llm-infer --export, --lens, --patch, --steer, --ablate; llm-bench steer. Values are transformers' (tests/oracle/inside.py).
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny P="Once upon a time there was a little cat"
}

# look.py: reads streams of activations as {place: rows}
setup_file() {
    cat > look.py <<'END'
import json, struct, sys
def read(path):
    b, at, out = open(path, "rb").read(), 0, {}
    while at < len(b):
        n = int.from_bytes(b[at:at + 8], "little")
        header = json.loads(b[at + 8:at + 8 + n])
        kind, data = header.pop("__metadata__")["llm.kind"], at + 8 + n
        end = data
        for name, t in header.items():
            lo, hi = t["data_offsets"]
            end = max(end, data + hi)
            v = struct.unpack("<%d%s" % ((hi - lo) // 4, "f" if t["dtype"] == "F32" else "i"),
                              b[data + lo:data + hi]) if kind == "activations" else ()
            if kind != "activations": continue
            width = t["shape"][1] if len(t["shape"]) > 1 else 1
            out.setdefault(name, []).extend(v[i:i + width] for i in range(0, len(v), width))
        at = end
    return out
END
}

@test "every place of a llama: transformers' hidden states and hooks, within 5e-6 of the range" {
    need_tool python3
    python3 - "$ROOT/tests/golden/inside/expected.json" > run.sh <<'END'
import json, sys
want = json.load(open(sys.argv[1]))
print('llm-infer -q -m "$1" --precision f32 --ids', *(f"--export '{p}'" for p in want["places"]), f'"{" ".join(map(str, want["ids"]))}" > a.act')
END
    bash run.sh "$M"
    PYTHONPATH=$BATS_FILE_TMPDIR python3 - "$ROOT/tests/golden/inside/expected.json" <<'END'
import json, sys, look
want, have = json.load(open(sys.argv[1])), look.read("a.act")
assert len(want["places"]) > 20 and set(want["places"]) == set(have) - {"ids", "positions"}
for place, rows in want["places"].items():
    all_ = [x for r in rows for x in r]
    reach = max(all_) - min(all_)
    for r, row in zip(want["rows"], rows):
        assert max(abs(x - y) for x, y in zip(row, have[place][r])) <= 5e-6 * reach, place
END
}

@test "exported bytes do not depend on passes or threads; --which-tokens picks rows of the same values" {
    need_tool python3
    llm-infer -q -m "$M" --export 'layers.*.mlp.hidden' --export logits "$P" > a.act
    llm-infer -q -m "$M" --export 'layers.*.mlp.hidden' --export logits -b 3 -j 1 "$P" > b.act
    cmp a.act b.act
    llm-infer -q -m "$M" --export 'layers.1.mlp.hidden' --which-tokens last "$P" > last.act
    llm-infer -q -m "$M" --export 'layers.1.mlp.hidden' --which-tokens '*cat' "$P" > cat.act
    cmp last.act cat.act
    PYTHONPATH=$BATS_FILE_TMPDIR python3 -c '
import look
a, b = look.read("a.act"), look.read("last.act")
assert len(b["ids"]) == 1 and a["layers.1.mlp.hidden"][-1:] == b["layers.1.mlp.hidden"] and a["positions"][-1] == b["positions"][0]'
}

@test "a run patched with its own values is the same run; with another prompt's it is not" {
    llm-infer -q -m "$M" --export 'layers.*.residual.after' --export layers.0.attention.heads "$P" > own.act
    llm-infer -q -m "$M" --export 'layers.*.residual.after' "The ball was gone in the garden with her" > other.act
    llm-infer -q -m "$M" --logits "$P" > plain
    llm-infer -q -m "$M" --logits --patch own.act@layers.0.residual.after --patch own.act@layers.0.attention.heads "$P" > patched
    cmp plain patched
    llm-infer -q -m "$M" --logits --patch other.act@layers.0.residual.after "$P" > patched
    run ! cmp -s plain patched
}

@test "a run whose last layer is patched with another prompt's values has the logits of that prompt" {
    need_tool python3
    llm-infer -q -m "$M" --export 'layers.1.residual.after' "The ball was gone in the garden with her" > other.act
    llm-infer -q -m "$M" --export logits "The ball was gone in the garden with her" > wanted
    llm-infer -q -m "$M" --export logits --which-tokens all --patch 'other.act@layers.1.residual.after' "$P" > patched
    PYTHONPATH=$BATS_FILE_TMPDIR python3 -c '
import look
a, b = look.read("wanted")["logits"], look.read("patched")["logits"]
n = min(len(a), len(b))
assert n > 5 and a[:n] == b[:n]'
}

@test "a control vector: made of two sets, strength 0 is the same run, and it goes where it should" {
    need_tool python3
    for text in "The cat had a red ball" "She liked the cat"; do
        llm-infer -q -m "$M" --precision f32 --export 'layers.*.residual.after' --which-tokens last "$text"
    done > towards.act
    llm-infer -q -m "$M" --precision f32 --export 'layers.*.residual.after' --which-tokens last "Where is my garden?" > away.act
    llm-bench steer -o v.gguf towards.act away.act
    llm-infer -q -m "$M" --logits "$P" > plain
    llm-infer -q -m "$M" --logits --steer v.gguf:0 "$P" > steered
    cmp plain steered
    llm-infer -q -m "$M" --precision f32 --export layers.1.residual.after "$P" > before.act
    llm-infer -q -m "$M" --precision f32 --export layers.1.residual.after --steer v.gguf:2@1 "$P" > after.act
    PYTHONPATH=$BATS_FILE_TMPDIR python3 -c '
import look
t, a = look.read("towards.act"), look.read("away.act")
x, y = look.read("before.act"), look.read("after.act")
place = "layers.1.residual.after"
direction = [(p + q) / 2 - r for p, q, r in zip(*t[place], *a[place])]
for row, moved in zip(x[place], y[place]):
    assert all(abs(m - v - 2 * d) < 1e-4 for v, m, d in zip(row, moved, direction))'
}

@test "lines of --jsonl with directions of their own share passes, and each gets what it would get alone" {
    llm-infer -q -m "$M" --precision f32 --export 'layers.*.residual.after' --which-tokens last "The cat had a red ball" > one.act
    llm-infer -q -m "$M" --precision f32 --export 'layers.*.residual.after' --which-tokens last "Where is my garden?" > two.act
    llm-bench steer -o v.gguf one.act two.act
    llm-bench steer -o w.gguf two.act one.act
    for i in 0 1 2 3 4 5 6 7 8; do printf '{"id": %d, "prompt": "Once upon a %d"}\n' $i $i; done > lines.jsonl
    # alone OPTION...: all lines, with what the options say
    alone() { llm-infer -q -m "$M" --jsonl --no-timings -n 8 --temp .8 "$@" lines.jsonl | jq -c '[.id, .text]'; }
    alone > none
    alone --steer v.gguf:3@1 > v
    alone --steer w.gguf:-9 --steer v.gguf:1@1 > both
    alone --steer w.gguf:1 > w
    run ! cmp -s none v
    run ! cmp -s v both
    jq -c '.steer = [null, "v.gguf:3@1", ["w.gguf:-9", "v.gguf"], ["w.gguf"]][.id % 4] | if .id == 5 then del(.steer) else . end' lines.jsonl > mixed.jsonl
    paste -d '\n' none v both w | awk '(NR - 1) % 4 == int((NR - 1) / 4) % 4' > wanted
    for options in "--parallel 16" "--parallel 2 -b 8" "--parallel 16 -j 1"; do
        llm-infer -q -m "$M" --jsonl --no-timings -n 8 --temp .8 --steer v.gguf:3@1 --steer w.gguf:0 $options mixed.jsonl | jq -c '[.id, .text]' | cmp - wanted
    done
    run -65 --separate-stderr llm-infer -q -m "$M" --jsonl --no-timings -n 2 --steer v.gguf:3@1 <<< '{"prompt": "a", "steer": "other.gguf:1"}'
    [[ $output == *'expected a file (and layers) of --steer, found '\''other.gguf:1'\'* ]] || fail "$output"
    run -65 --separate-stderr llm-infer -q -m "$M" --jsonl --no-timings -n 2 <<< '{"prompt": "a", "steer": "v.gguf:1"}'
    [[ $output == *'expected --steer, which loads what lines may name'* ]] || fail "$output"
    run -65 --separate-stderr llm-infer -q -m "$M" --jsonl --no-timings -n 2 --steer v.gguf:1 <<< '{"prompt": "a", "steer": 3}'
    [[ $output == *'expected a string or a list of strings'* ]] || fail "$output"
}

@test "ablation: the values are 0, of one head its columns alone" {
    need_tool python3
    llm-infer -q -m "$M" --export layers.1.attention.heads --ablate layers.1.attention.heads:1 "$P" > a.act
    llm-infer -q -m "$M" --export layers.1.attention.heads "$P" > b.act
    PYTHONPATH=$BATS_FILE_TMPDIR python3 -c '
import look
for a, b in zip(look.read("a.act")["layers.1.attention.heads"], look.read("b.act")["layers.1.attention.heads"]):
    assert len(a) == 64 and a[:32] == b[:32] and not any(a[32:]) and any(b[32:])'
}

@test "the logit lens: after the last layer it is the model itself" {
    llm-infer -q -m "$M" --precision f32 --lens logit "$P" > lens.tsv
    assert_equal "$(head -n 1 lens.tsv)" $'position\tid\ttext\tlayer\ttop_id\ttop_text\tp\tentropy\tkl'
    awk -F'\t' 'NR > 1 && $4 == 1 && $9 != "0.000000" { exit 1 } NR > 1 && $4 == 0 && $9 <= 0 { exit 1 }' lens.tsv
    # its most likely token after the prompt is what greedy decoding writes
    assert_equal "$(tail -n 1 lens.tsv | cut -f5)" "$(llm-infer -q -m "$M" --precision f32 --temp 0 -n 1 \
        --ids "$(cut -f2 <(awk 'NR > 1 && $0 ~ /./' lens.tsv |
        awk -F'\t' '$4 == 0') | tr '\n' ' ')" | tr -d ' \n')"
}

@test "the logit lens: what is not finite has no entropy and no divergence" {
    cp -r "$M" broken
    chmod -R u+w broken
    printf '\xff\xff\xff\xff' | dd of=broken/model.safetensors bs=1 seek=$(($(stat -L -c %s broken/model.safetensors) - 4)) conv=notrunc status=none
    llm-infer -q -m broken --precision f32 --lens logit "$P" > lens.tsv
    awk -F'\t' 'NR > 1 && ($5 != "-" || $6 != "-" || $7 != "nan" || $8 != "nan" || $9 != "nan") { exit 1 }' lens.tsv
}

# parts FILE: the table without its heading, part and contribution of the last position
parts() {
    awk -F'\t' 'NR > 1 { print $6 "\t" $7 }' "$1"
}

@test "--attribute: the parts sum to the logit, a head that is ablated adds nothing, and the rest keeps its proportions" {
    llm-infer -q -m "$M" --precision f32 --attribute top --which-tokens last "$P" > a.tsv
    assert_equal "$(head -n 1 a.tsv)" $'position\tid\ttext\ttarget_id\ttarget_text\tpart\tcontribution'
    parts a.tsv | awk -F'\t' '$1 == "remainder" { r = $2 } $1 == "logit" { l = $2 } $1 != "logit" { s += $2 }
        END { exit !(NR == 9 && l > 1 && (s - l) ^ 2 < 1e-10 && r ^ 2 < 1e-10) }'
    assert_equal "$(cut -f4 a.tsv | tail -n 1)" "$(llm-infer -q -m "$M" --precision f32 --lens logit --which-tokens last "$P" | tail -n 1 | cut -f5)"
    # after the last layer's attention nothing but its MLP sees the head: all parts before are divided by another length, and the head's is gone
    llm-infer -q -m "$M" --precision f32 --attribute ' was' --which-tokens last "$P" > a.tsv
    llm-infer -q -m "$M" --precision f32 --attribute ' was' --which-tokens last --ablate layers.1.attention.heads:0 "$P" > b.tsv
    paste <(parts a.tsv) <(parts b.tsv) | awk -F'\t' '
        $1 == "layers.1.attention.heads:0" { gone = $4 == 0 && $2 ^ 2 > 1e-4; next }
        $1 ~ /^(embedding|layers.0|layers.1.attention)/ { ratio = $4 / $2; if (n++ && (ratio / first - 1) ^ 2 > 1e-8) exit 1; if (n == 1) first = ratio }
        END { exit !(gone && n == 5 && first != 1) }'
}

@test "--attribute: the same bytes for any passes and threads, several tokens, other forms of the table" {
    llm-infer -q -m "$M" --attribute top --attribute ' was' "$P" > a.tsv
    llm-infer -q -m "$M" --attribute top --attribute ' was' -b 3 -j 1 "$P" > b.tsv
    cmp a.tsv b.tsv
    n=$(($(llm-infer -q -m "$M" --score "$P" | wc -l) + 1)) # the first token has no score
    assert_equal "$(awk 'NR > 1' a.tsv | wc -l)" $((n * 2 * 9))
    llm-infer -q -m "$M" --attribute top --which-tokens last --format json "$P" | jq -se 'length == 9 and .[-1].part == "logit" and .[0].text == " cat"'
    llm-infer -q -m "$M" --attribute top --which-tokens last --format md "$P" | grep -q '^| *position'
}

@test "--neurons: values times activations are what --attribute says of the MLP; keys are the places where a unit is largest" {
    need_tool python3
    llm-infer -q -m "$M" --precision f32 --neurons 1 --neurons-top 300 --format json "$P" > units
    llm-infer -q -m "$M" --precision f32 --export layers.1.mlp.hidden --export layers.1.residual.after "$P" > a.act
    llm-infer -q -m "$M" --precision f32 --attribute ' was' --which-tokens last "$P" > a.tsv
    PYTHONPATH=$BATS_FILE_TMPDIR python3 -c '
import json, look
hidden, residual = (look.read("a.act")["layers.1." + p] for p in ("mlp.hidden", "residual.after"))
want = next(float(l.split("\t")[6]) for l in open("a.tsv") if "\tlayers.1.mlp.output\t" in l)
rows = [json.loads(l) for l in open("units")]
value = {r["unit"]: r["score"] for r in rows if r["part"] == "value" and r["text"] == " was"}
assert sorted(value) == list(range(len(hidden[0])))
length = (sum(x * x for x in residual[-1]) / len(residual[-1]) + 1e-5) ** .5
found = sum(h * value[i] for i, h in enumerate(hidden[-1])) / length
assert abs(found - want) < 1e-4, (found, want)
for unit in range(len(hidden[0])):
    keys = [(r["position"], r["score"]) for r in rows if r["unit"] == unit and r["part"] == "key"]
    order = sorted(range(len(hidden)), key=lambda t: (-hidden[t][unit], t))
    assert [p for p, _ in keys] == order, unit
    assert all(abs(s - hidden[p][unit]) <= 1e-6 * max(1, abs(s)) for p, s in keys)'
}

@test "--neurons: lines are texts of their own; the same bytes for any threads and passes" {
    printf 'The cat had a ball\n\nShe was in the garden\nOnce upon a time\n' > texts
    llm-infer -q -m "$M" --neurons 0:3-5 --neurons-top 2 --lines -f texts > a.tsv
    llm-infer -q -m "$M" --neurons 0:3-5 --neurons-top 2 --lines -b 3 -j 1 < texts | cmp - a.tsv
    assert_equal "$(awk 'NR > 1' a.tsv | wc -l)" 12
    awk -F'\t' 'NR > 1 && $3 == "key" && ($8 == 2 || $8 < 1 || $8 > 4) { exit 1 }' a.tsv
    # the best line alone gives the same first key
    line=$(awk -F'\t' '$2 == 4 && $3 == "key" && $4 == 1 { print $8 }' a.tsv)
    llm-infer -q -m "$M" --neurons 0:4 --neurons-top 1 "$(sed -n "${line}p" texts)" | awk -F'\t' '$3 == "key"' | cut -f5-7,9- > one
    awk -F'\t' '$2 == 4 && $3 == "key" && $4 == 1' a.tsv | cut -f5-7,9- | cmp - one
}

@test "--lens --png: the same table, and a picture that does not depend on threads" {
    llm-infer -q -m "$M" --lens logit "$P" > lens.tsv
    llm-infer -q -m "$M" --lens logit --png a.png "$P" | cmp - lens.tsv
    llm-infer -q -m "$M" --lens logit --png b.png -b 3 -j 1 "$P" > lens.tsv
    cmp a.png b.png
    [[ $(file -b a.png) == "PNG image data"* ]]
    llm-infer -q -m "$M" --lens logit --png - -o table.tsv --which-tokens last "$P" > last.png
    [[ $(file -b last.png) == "PNG image data"* && $(wc -l < table.tsv) == 3 ]]
    run ! cmp -s a.png last.png
    run -2 --separate-stderr llm-infer -q -m "$M" --lens logit --png - "$P"
    run -2 --separate-stderr llm-infer -q -m "$M" --png a.png "$P"
    [[ $stderr == *'--png goes with --lens'* ]]
    run -73 --separate-stderr llm-infer -q -m "$M" --lens logit --png nowhere/a.png "$P"
}

# refused STATUS TEXT ARGUMENT...
refused() {
    local status=$1 text=$2
    shift 2
    run "-$status" --separate-stderr llm-infer -q -m "$M" "$@" "$P"
    [[ $stderr == *"$text"* ]] || fail "expected '$text', found '$stderr'"
}

@test "bad input: a place that is not there, another model's file, another width" {
    refused 2 "--export: place 'layers.2.mlp.hidden': expected a layer below 2, found 2" --export layers.2.mlp.hidden
    refused 2 "expected a place of a llama" --export layers.0.mixer.hidden
    refused 2 "--patch: expected FILE@PLACE" --patch x
    llm-infer -q -m "$M" -n 0 --kv-out c.kv "$P"
    run -65 --separate-stderr llm-infer -q -m "$M" --kv-in c.kv --export final_norm
    [[ $stderr == *": the prompt is empty: there is no token to show" ]]
    refused 66 "nothing.act" --patch nothing.act@final_norm
    refused 2 "--ablate: expected PLACE" --ablate layers.0.mlp.hidden:1
    refused 2 "--steer: expected FILE:STRENGTH" --steer v.gguf
    refused 2 "--which-tokens goes with --export, --lens and --attribute" --which-tokens last
    refused 2 "--attribute: expected top or the text of one token" --attribute 'no such token'
    run -2 --separate-stderr llm-infer -q -m "$M" --ids --attribute 100000 '5 6'
    [[ $stderr == *'--attribute: expected top or, with --ids, an id below 300'* ]] || fail "$stderr"
    refused 2 "standard output has one owner" --attribute top --lens logit
    refused 2 "--neurons: expected LAYER, LAYER:7 or LAYER:2-5, found '1:x'" --neurons 1:x
    refused 2 "--neurons: expected LAYER, LAYER:7 or LAYER:2-5, found '1:5-2'" --neurons 1:5-2
    refused 2 "--neurons: expected a layer below 2, found 2" --neurons 2
    refused 2 "--neurons: expected units below" --neurons 1:100000
    refused 2 "--neurons-top goes with --neurons" --neurons-top 3
    run -69 --separate-stderr llm-infer -q -m "$ROOT/tests/golden/tiny-t5" --ids --attribute top "5 6 7"
    [[ $stderr == *tiny-t5* ]]
    refused 65 "--which-tokens: expected tokens like" --export final_norm --which-tokens 'zzz*'
    llm-infer -q -m "$M" --export final_norm "$P" > own.act
    refused 65 "expected activations at layers.0.mlp.hidden, found none" --patch own.act@layers.0.mlp.hidden
    refused 65 "--patch: expected at most 4 tokens (the context)" -c 4 --export logits --patch own.act@final_norm
    refused 65 "--patch: expected at most 4 tokens (the context)" -c 4 --score --patch own.act@final_norm
    run -65 llm-infer -q -m "$M" -c 4 --score --jsonl --patch own.act@final_norm <<< "{\"prompt\": \"$P\"}"
    [[ $output == *'"error"'*"--patch: expected at most 4 tokens"* ]]
    refused 65 "own.act: expected directions for the residual after layers, found none" --steer own.act:1
    llm-quantize -t q8_0 "$M" other.llm
    run -65 --separate-stderr llm-infer -q -m other.llm --score --patch own.act@final_norm "$P"
    [[ $stderr == *"expected activations of this model ("*"), found those of another ("* ]]
    head -c -20 own.act > cut.act
    refused 65 "cut.act" --patch cut.act@final_norm
}
