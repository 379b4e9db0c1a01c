# llm-train --objective lens: affine translators beside a model, and llm-infer --lens tuned:FILE, which reads them.
load ../helper
export LLM_THREADS=1

# A model of four layers that has learned a little, text that it was not trained on, and a lens.
setup_file() {
    [[ -z ${SANITIZER-} ]] || return 0
    # sentences SEED N: lines whose last word is the first again
    sentences() {
        awk -v seed="$1" -v n="$2" 'BEGIN { srand(seed); split("red green small old quick cat dog bird fish hen", w)
            for (i = 0; i < n; i++) { a = w[int(rand() * 10) + 1]; printf "%s is %s and %s\n", a, w[int(rand() * 10) + 1], a } }'
    }
    sentences 1 500 > text
    sentences 2 12 > held
    llm-tokenize train --model byte --special '</s>' -o tok.json text
    llm-tokenize encode -T tok.json --lines --append-eos -o data.tok text
    llm-train -q -c tiny --set num_hidden_layers=4 --set hidden_size=64 --set intermediate_size=96 --set num_attention_heads=4 -l 48 -T tok.json \
        -n 150 -b 8 --lr 4e-3 -o m.llm data.tok
    llm-train -q --objective lens --init m.llm -l 48 -b 8 -n 120 --lr 1e-2 --val .1 --log log.jsonl -o lens.llm data.tok
    export F=$PWD
}

setup() {
    [[ -z ${SANITIZER-} ]] || skip "minutes under $SANITIZER, which the unit tests of this code run under"
    new=(llm-train -q --objective lens --init m.llm -l 48)
    cp "$F/m.llm" "$F/data.tok" "$F/lens.llm" .
}

# mean_kl KIND: layer and mean KL from the last layer over the held-out text
mean_kl() {
    llm-infer -q -m m.llm --precision f32 --lens "$1" -f "$F/held" -c 4096 | awk -F'\t' 'NR > 1 { s[$4] += $9; n[$4]++ } END { for (l in s) print l, s[l] / n[l] }' | sort -n
}

@test "on held-out text the tuned lens is closer to the last layer than the logit lens at every layer, and 0 at the last" {
    mean_kl logit > logit
    mean_kl tuned:lens.llm > tuned
    paste -d ' ' logit tuned | awk '$1 != $3 { exit 1 } $1 < 3 && !($4 < $2 * .9) { exit 1 } $1 == 3 { last = $2 == 0 && $4 == 0 } END { exit !(NR == 4 && last) }' || {
        cat logit tuned
        false
    }
    # what training reports of held-out windows is the mean over the layers
    jq -s -e '.[0].loss > .[-1].val_loss and .[-1].val_loss > 0' "$F/log.jsonl"
    jq -s -e '.[0].trained_parameters == 3 * (64 * 64 + 64)' "$F/log.jsonl"
}

@test "the divergences are those that transformers' hidden states give, computed from the file (tests/oracle/inside.py)" {
    need_tool python3
    local G=$ROOT/tests/golden
    llm-infer -q -m "$G/tiny" --precision f32 --ids --lens "tuned:$G/inside/lens.safetensors" "$(jq -r '.ids | join(" ")' "$G/inside/lens.json")" > table
    python3 - "$G/inside/lens.json" <<'END'
import json, sys
want = json.load(open(sys.argv[1]))["kl"]
rows = [line.split("\t") for line in open("table")][1:]
have = {(int(r[3]), int(r[0])): float(r[8]) for r in rows}
assert len(have) == (len(want) + 1) * len(want[0])
for layer, values in enumerate(want):
    for position, kl in enumerate(values):
        assert abs(have[layer, position] - kl) < 5e-6, (layer, position, kl, have[layer, position])  # printed with 6 digits
END
}

@test "without steps the lens is the logit lens, to the byte" {
    "${new[@]}" -n 0 -o none.llm data.tok
    for precision in f32 bf16; do
        llm-infer -q -m m.llm --precision $precision --lens logit -f "$F/held" -c 4096 > logit
        llm-infer -q -m m.llm --precision $precision --lens tuned:none.llm -f "$F/held" -c 4096 | cmp - logit
    done
}

@test "gradients pass the check; the model's file has not changed and the lens has no weights of it" {
    sha256sum m.llm > sum
    "${new[@]}" -b 2 --gradcheck > table
    assert_equal "$(awk 'NR > 1' table | wc -l)" 6
    "${new[@]}" -n 2 -b 2 -o x.llm data.tok
    sha256sum -c --quiet sum
    (($(stat -c %s x.llm) < 200000))
    cmp <(llm-infer -q -m m.llm --lens tuned:lens.llm -j 1 "red is old") <(llm-infer -q -m m.llm --lens tuned:lens.llm -j 2 -b 3 "red is old")
}

@test "the same bytes by any threads, any passes of a step, and after an interruption; --base finds a model that was moved" {
    new+=(data.tok)
    same_by_threads "${new[@]}" -n 5 -b 4
    same_steps "${new[@]}" -n 5 -b 1 --accumulate 4
    same_when_resumed 3 "${new[@]}" -b 4 --val .2 --eval-every 2 --ema .9
    "${new[@]}" -b 2 -n 2 -o x.llm
    mv m.llm moved.llm
    run -66 --separate-stderr llm-train -q --resume x.llm -n 3
    [[ $stderr == "llm-train: x.llm: its model: m.llm: No such file"* ]] || fail "$stderr"
    llm-train -q --resume x.llm --base moved.llm -n 3
}

@test "--png draws the tuned lens; a quantised model has one too" {
    llm-infer -q -m m.llm --lens tuned:lens.llm --png a.png "red is old and" > a.tsv
    llm-infer -q -m m.llm --lens logit --png b.png "red is old and" > b.tsv
    [[ $(file -b a.png) == "PNG image data"* ]]
    run ! cmp -s a.png b.png
    llm-quantize -q -t q8_0 m.llm q.llm
    llm-train -q --objective lens --init q.llm -l 48 -b 4 -n 3 -o lens8.llm data.tok
    llm-infer -q -m q.llm --lens tuned:lens8.llm "red is old and" > a.tsv
    (($(wc -l < a.tsv) > 4))
}

@test "what cannot be is one line" {
    llm-train -q --init m.llm -l 48 -n 1 -b 2 -o other.llm data.tok
    refused 65 "lens.llm: expected a lens of this model (" llm-infer -q -m other.llm --lens tuned:lens.llm a
    refused 65 "m.llm: expected a lens, found checkpoint" llm-infer -q -m m.llm --lens tuned:m.llm a
    refused 66 "none.llm" llm-infer -q -m m.llm --lens tuned:none.llm a
    refused 2 "--lens: expected logit or tuned:FILE, found 'tunes'" llm-infer -q -m m.llm --lens tunes a
    refused 65 "lens.llm: expected a model, found a lens of one" llm-infer -q -m lens.llm a
    head -c -40 lens.llm > cut.llm
    refused 65 "cut.llm" llm-infer -q -m m.llm --lens tuned:cut.llm a
    llm-train -q -c tiny --set num_hidden_layers=1 -l 16 -T "$F/tok.json" -n 0 -o one.llm
    refused 69 "--objective lens: expected a model with two or more layers" llm-train -q --objective lens --init one.llm -n 1 -o x.llm data.tok
    run -2 --separate-stderr llm-train -q --objective lens -c tiny -n 1 -o x.llm data.tok
    [[ $stderr == *"expected the model that it looks into, --init MODEL"* ]]
    run -2 --separate-stderr "${new[@]}" --adapter lora -n 1 -o x.llm data.tok
    run -2 --separate-stderr "${new[@]}" --plan -n 1
    refused 2 "expected the kind of run that lens.llm is" llm-train -q --resume lens.llm --objective lm -n 200
}
