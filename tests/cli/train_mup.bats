# llm-train: maximal update parametrisation, and the check of coordinates.
load ../helper
export LLM_THREADS=1

setup_file() { sentences_tokens; }

setup() {
    new=(llm-train -q -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 -T "$F/tok.json" -l 24)
    check=(llm-train -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 --set vocab_size=65 -b 4 -l 16 --lr 1e-2 --precision f32 --seed 3)
}

# power TABLE PLACE: the power of the width with which the size at places that match goes after the last step, from the first and the last width
power() {
    awk -F'\t' -v place="$2" '$2 == 4 && $3 ~ place { if (!($3 in first)) { first[$3] = $4; at = $1 } last[$3] = $4; end = $1 }
        END { for (p in first) { s = log(last[p] / first[p]) / log(end / at); if (s > most) most = s } print most + 0 }' "$1"
}

below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }' || fail "expected below $2, found $1"; }

@test "--coordcheck: under muP activations do not grow with the width; in the standard parametrisation they do" {
    for o in adamw lion muon sgd; do
        rate=1e-2
        [[ $o == sgd ]] && rate=1
        [[ $o == lion ]] && rate=3e-3
        "${check[@]}" -q --optimizer $o --lr $rate --coordcheck 32,64,128,256 --mup --base-width 32 > mup.tsv
        below "$(power mup.tsv .)" .25
    done
    "${check[@]}" -q --coordcheck 32,64,128,256 > standard.tsv
    below .7 "$(power standard.tsv residual.after)"
    "${check[@]}" -q --optimizer muon --muon-scale match-rms-adamw --muon-lr .1 --coordcheck 32,64,128,256 --mup --base-width 32 > mup.tsv
    below "$(power mup.tsv .)" .25
}

@test "--coordcheck: TSV of each width, step and place, a word for people, a picture" {
    run -0 --separate-stderr "${check[@]}" --coordcheck 32,64 --coordcheck-png map.png
    assert_equal "${lines[0]}" $'width\tstep\tplace\tmean_abs'
    assert_equal "${#lines[@]}" $((1 + 2 * 5 * (1 + 2 * 2 + 2)))
    assert_equal "$(awk -F'\t' 'NR > 1 { print $1, $2 }' <<< "$output" | sort -u | wc -l)" 10
    awk -F'\t' 'NR > 1 && !($4 > 0) { bad = 1 } END { exit bad }' <<< "$output"
    assert_regex "$stderr" '^llm-train: after 4 steps the size of activations goes with the power -?[0-9.]+ of the width at .*, where it changes most$'
    assert_equal "$(head -c 8 map.png | od -An -tx1 | tr -d " ")" 89504e470d0a1a0a
    # on data, too, and the same for any number of threads
    "${check[@]}" -q --coordcheck 32,64 -j 1 "$F/data.tok" --set vocab_size=280 > one.tsv
    "${check[@]}" -q --coordcheck 32,64 -j 2 "$F/data.tok" --set vocab_size=280 | cmp one.tsv
}

@test "at the base width --mup changes nothing; elsewhere it does, and the model and the run keep it" {
    "${new[@]}" -n 5 --log plain -o x.llm "$F/data.tok"
    "${new[@]}" -n 5 --mup --base-width 32 --log same -o x.llm "$F/data.tok"
    assert_equal "$(jq .hash plain)" "$(jq .hash same)"
    "${new[@]}" -n 6 --mup --base-width 16 --base-head-dim 8 --log other -o straight.llm "$F/data.tok"
    [[ $(jq -s '.[4].hash' plain) != "$(jq -s '.[4].hash' other)" ]]
    "${new[@]}" -n 6 --warmup 0 --mup --base-width 16 --base-head-dim 8 -o straight.llm "$F/data.tok"
    "${new[@]}" -n 3 --warmup 0 --schedule constant --mup --base-width 16 --base-head-dim 8 -o part.llm "$F/data.tok"
    "${new[@]}" -n 6 --warmup 0 --schedule constant --mup --base-width 16 --base-head-dim 8 -o straight.llm "$F/data.tok"
    llm-train -q --resume part.llm -n 6
    cmp part.llm straight.llm
    # what scales logits and scores is in the configuration, which others read: scored as it was validated
    zstd -dcq straight.llm | head -c 4000 | tr -d '\\' > head
    grep -aq '"logit_scale": *0.5' head
    grep -aq '"query_pre_attn_scalar": *32' head # 16 wide, as 1/16 · sqrt(8)
    "${new[@]}" -n 1 --mup --base-width 16 --base-head-dim 8 --lr 0 --min-lr 0 --val "$F/data.tok" --log log --cross-document -o x.llm "$F/data.tok"
    llm-train -q --init x.llm -n 1 -l 24 --lr 0 --min-lr 0 --val "$F/data.tok" --log again --cross-document -o y.llm "$F/data.tok"
    assert_equal "$(jq .val_loss log)" "$(jq .val_loss again)"
}

@test "muP: what does not fit together" {
    run -2 --separate-stderr "${new[@]}" --mup -o x.llm "$F/data.tok"
    assert_regex "$stderr" "--mup and --base-width need each other"
    run -2 "${new[@]}" --base-width 32 -o x.llm "$F/data.tok"
    run -2 "${new[@]}" --base-head-dim 8 -o x.llm "$F/data.tok"
    run -2 --separate-stderr "${check[@]}" --coordcheck 32,33
    assert_regex "$stderr" "width 33: expected num_attention_heads"
    for v in "" x 32,x 0 32,,64; do
        run -2 --separate-stderr "${check[@]}" --coordcheck "$v"
        assert_regex "$stderr" "^llm-train: --coordcheck: expected widths"
    done
    run -2 llm-train --init x.llm --coordcheck 32
    run -2 "${check[@]}" --coordcheck-png x.png
    run -73 "${check[@]}" --coordcheck 32 --coordcheck-png nowhere/x.png
}
