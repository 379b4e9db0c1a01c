# llm-train --objective sae and transcoder: dictionaries of features from streams of activations; llm-infer --splice, llm-bench dictionary.
load ../helper
export LLM_THREADS=1

setup_file() {
    [[ -z ${SANITIZER-} ]] || return 0
    command -v python3 > /dev/null || return 0
    local M=$ROOT/tests/golden/tiny word
    # the model's fingerprint, as an export says it
    llm-infer -q -m "$M" --export embedding --ids "1 2" > one.act
    FP=$(grep -aoE 'llm.fingerprint":"[0-9a-f]{16}' one.act | head -n 1 | cut -d '"' -f 3)
    python3 "$ROOT/tests/cli/planted.py" make planted.act 1 16000 32 64 3 "$FP" layers.0.residual.after layers.1.mlp.output
    # real activations of words in any order
    for word in 1 2 3 4 5 6; do
        llm-infer -q -m "$M" --precision f32 --ids --export layers.0.mlp.input --export layers.0.mlp.output --export layers.0.residual.after \
            "$(awk -v s=$word 'BEGIN { srand(s); for (i = 0; i < 60; i++) printf "%d ", 1 + int(rand() * 290) }')"
    done > real.act
    export F=$PWD FP
}

setup() {
    [[ -z ${SANITIZER-} ]] || skip "minutes under $SANITIZER, which the unit tests of this code run under"
    need_tool python3
    M=$ROOT/tests/golden/tiny
    new=(llm-train -q --objective sae --init "$M" --precision f32 --lr 3e-3 -b 256)
    planted=("${new[@]}" --place layers.0.residual.after --features 128 --active 3)
    real=("${new[@]}" --place layers.0.residual.after --features 96 --active 6 -b 64)
}

# found FILE [other]: the share of planted directions that the dictionary has
found() {
    python3 "$ROOT/tests/cli/planted.py" found "$1" 1 32 64 "${2-}"
}

@test "a planted dictionary is found: cosine .9 or more for 95% of the directions; no feature stays dead that is needed" {
    "${planted[@]}" -n 1000 --log log.jsonl --to safetensors -o topk.st "$F/planted.act"
    awk "BEGIN { exit !($(found topk.st) >= .95) }" || fail "topk: $(found topk.st)"
    jq -s -e '.[-1] | .active <= 3 and .explained_variance > .9' log.jsonl
    "${planted[@]}" --dictionary l1 -n 1200 --to safetensors -o l1.st "$F/planted.act"
    awk "BEGIN { exit !($(found l1.st) >= .95) }" || fail "l1: $(found l1.st)"
    "${planted[@]}" --dictionary jumprelu -n 2000 --log jump.jsonl --to safetensors -o jump.st "$F/planted.act"
    awk "BEGIN { exit !($(found jump.st) >= .95) }" || fail "jumprelu: $(found jump.st)"
    jq -s -e '.[-1] | .active < 6 and .explained_variance > .85' jump.jsonl
}

@test "a transcoder finds the directions of what it predicts, which are others" {
    llm-train -q --objective transcoder --init "$M" --precision f32 --lr 3e-3 -b 256 --place layers.0.residual.after --predict layers.1.mlp.output \
        --features 128 --active 3 -n 1500 --to safetensors -o t.st "$F/planted.act"
    awk "BEGIN { exit !($(found t.st other) >= .9 && $(found t.st) < .2) }" || fail "$(found t.st other) $(found t.st)"
}

@test "dead features are revived: with --revive 0 more of as many features as there are directions stay dead" {
    for revive in 0 .03125; do
        "${planted[@]}" --revive $revive --features 64 -n 1000 --log log.jsonl -o x.llm "$F/planted.act"
        jq -s '[.[800:][] | .dead] | add' log.jsonl > dead.$revive
    done
    awk "BEGIN { exit !($(< dead.0) > $(< dead..03125)) }" || fail "$(< dead.0) $(< dead..03125)"
}

# With fewer than all features topk's loss jumps where two pre-activations change places, which differences of losses take for a slope.
@test "gradients pass the check" {
    for kind in topk l1; do
        "${planted[@]}" -b 64 --features 64 --active 64 --dictionary $kind --gradcheck "$F/planted.act" > table
        assert_equal "$(awk 'NR > 1' table | wc -l)" 4
    done
}

@test "the same bytes by any threads and after an interruption" {
    real+=("$F/real.act")
    same_by_threads "${real[@]}" -n 20
    "${real[@]}" --schedule constant --warmup 2 -n 90 --val .1 -o part.llm
    "${real[@]}" --schedule constant --warmup 2 -n 180 --val .1 -o straight.llm
    llm-train -q --resume part.llm -n 180 -o resumed.llm
    cmp straight.llm resumed.llm
    "${real[@]}" --dictionary jumprelu --schedule constant --warmup 2 -n 3 -o part.llm
    "${real[@]}" --dictionary jumprelu --schedule constant --warmup 2 -n 6 -o straight.llm
    llm-train -q --resume part.llm -n 6 -o resumed.llm
    cmp straight.llm resumed.llm
}

@test "in the model: what SAELens prints, as computed from the exported values; --splice puts the output where the value was" {
    "${real[@]}" -n 800 --to safetensors -o d.st "$F/real.act"
    "${real[@]}" -n 800 -o d.llm "$F/real.act"
    printf 'Once upon a time there was a little cat. She liked to play with the red ball in the garden.' > text
    llm-bench dictionary -q -m "$M" --precision f32 --format json d.llm text > measured
    llm-infer -q -m "$M" --precision f32 --export layers.0.residual.after -f text > plain.act
    llm-infer -q -m "$M" --precision f32 --export layers.0.residual.after --splice d.llm -f text > spliced.act
    python3 - <<'END'
import json, struct
def tensors(path):
    b, at, out = open(path, "rb").read(), 0, {}
    while at < len(b):
        n = int.from_bytes(b[at:at + 8], "little")
        h = json.loads(b[at + 8:at + 8 + n])
        meta, at = h.pop("__metadata__"), at + 8 + n
        size = 0
        for name, t in h.items():
            lo, hi = t["data_offsets"]
            size = max(size, hi)
            if t["dtype"] == "F32":
                v, w = struct.unpack("<%df" % ((hi - lo) // 4), b[at + lo:at + hi]), t["shape"][-1]
                out.setdefault(name, []).extend(v[i:i + w] for i in range(0, len(v), w))
        out.setdefault("meta", meta)
        at += size
    return out
d, plain, spliced = tensors("d.st"), tensors("plain.act")["layers.0.residual.after"], tensors("spliced.act")["layers.0.residual.after"]
o = json.loads(d["meta"]["llm.dictionary"])
active, fired, error, mean = 0, set(), 0, [sum(c) / len(plain) for c in zip(*plain)]
for x, y in zip(plain, spliced):
    z = [(v - m) / o["scale_in"] for v, m in zip(x, o["mean_in"])]
    p = [sum(a * b for a, b in zip(w, z)) + e for w, e in zip(d["encoder.weight"], d["encoder.bias"][0])]
    top = [j for j in sorted(range(len(p)), key=lambda j: (-p[j], j))[:o["k"]] if p[j] > 0]
    active += len(top)
    fired |= set(top)
    made = [m + o["scale_out"] * (b + sum(w[j] * p[j] for j in top)) for m, w, b in zip(o["mean_out"], d["decoder.weight"], d["decoder.bias"][0])]
    assert all(abs(a - b) < 1e-4 for a, b in zip(made, y)), (made, y)
    error += sum((a - b) ** 2 for a, b in zip(made, x))
measured = json.loads(open("measured").read().strip("[]\n "))
assert abs(measured["active"] - active / len(plain)) < 1e-3, measured
explained = 1 - error / sum((a - m) ** 2 for x in plain for a, m in zip(x, mean))
assert abs(measured["explained_variance"] - explained) < 1e-3, (measured, explained)
assert abs(measured["dead"] - (1 - len(fired) / len(p))) < 1e-4
want = (measured["nats_zeroed"] - measured["nats_spliced"]) / (measured["nats_zeroed"] - measured["nats_per_token"])
assert abs(measured["recovered"] - want) < 1e-3
END
    # the losses are those that llm-infer gives
    loss() { llm-infer -q -m "$M" --precision f32 --score "$@" -f text | awk '{ s -= $NF } END { printf "%.3f\n", s / NR }'; }
    assert_equal "$(jq -s 'flatten[0].nats_spliced' measured | xargs printf %.3f)" "$(loss --splice d.llm)"
    assert_equal "$(jq -s 'flatten[0].nats_zeroed' measured | xargs printf %.3f)" "$(loss --ablate layers.0.residual.after)"
}

@test "what cannot be is one line" {
    "${real[@]}" -n 1 -o d.llm "$F/real.act"
    llm-train -q -c tiny -T "$M/tokenizer.json" -l 16 -n 0 -o other.llm
    refused 65 "d.llm: expected a dictionary of this model (" llm-infer -q -m other.llm --splice d.llm a
    refused 65 "expected a dictionary, found lens" llm-infer -q -m "$M" --splice "$ROOT/tests/golden/inside/lens.safetensors" a
    refused 65 "data: expected activations of this model (" llm-train -q --objective sae --init other.llm --place layers.0.residual.after -n 1 -o x.llm "$F/real.act"
    refused 65 "expected activations at layers.1.mlp.hidden" "${new[@]}" --place layers.1.mlp.hidden -n 1 -o x.llm "$F/real.act"
    refused 2 "expected one layer, found several" "${new[@]}" --place 'layers.*.residual.after' -n 1 -o x.llm "$F/real.act"
    refused 2 "expected a layer below 2" "${new[@]}" --place layers.7.residual.after -n 1 -o x.llm "$F/real.act"
    refused 2 "expected --place PLACE" "${new[@]}" -n 1 -o x.llm "$F/real.act"
    refused 2 "expected --predict PLACE" llm-train -q --objective transcoder --init "$M" --place layers.0.mlp.input -n 1 -o x.llm "$F/real.act"
    refused 2 "--active: expected at most 4 (--features), found 32" "${new[@]}" --place layers.0.residual.after --features 4 -n 1 -o x.llm "$F/real.act"
    refused 2 "--ema: expected 0" "${real[@]}" --ema .9 -n 1 -o x.llm "$F/real.act"
    head -c -30 "$F/real.act" > cut.act
    refused 65 "cut.act" "${real[@]}" -n 1 -o x.llm cut.act
    # a dictionary of another width: the file says one, its tensors have another
    "${real[@]}" -n 1 --to safetensors -o d.st "$F/real.act"
    sed 's/\\"features\\":96,/\\"features\\":95,/' d.st > narrow.st
    run ! cmp -s d.st narrow.st
    refused 65 "narrow.st: tensor 'encoder.weight': expected F32 \\[95, 32\\]" llm-infer -q -m "$M" --splice narrow.st a
    python3 "$ROOT/tests/cli/planted.py" make wide.act 1 64 40 8 2 "$FP" layers.0.residual.after
    "${real[@]}" -b 8 -n 1 -o wide.llm wide.act
    refused 65 "expected a width of 40, found 32" llm-infer -q -m "$M" --splice wide.llm a
}
