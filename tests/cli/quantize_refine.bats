CALIBRATE_TOKENS=2048 MEASURE_TOKENS=1000
load quantize_suite

kl() { # the divergence in the message of --measure
    sed -n 's/.*held: KL \([0-9.]*\).*/\1/p' "$1"
}

@test "--refine: nearer to the model on other text, as the type and size that it was; the same bytes for any threads" {
    local type
    for type in q2_k q4_0; do
        llm-quantize -t $type --method search "${CALIBRATE[@]}" "${MEASURE[@]}" "$M" a.gguf 2> a.err
        llm-quantize -t $type --method search "${CALIBRATE[@]}" --refine 40 "${MEASURE[@]}" -j 1 "$M" b.gguf 2> b.err
        grep -q 'tokens held out; .* the refined model is written' b.err
        awk -v a="$(kl a.err)" -v b="$(kl b.err)" 'BEGIN {exit !(b < .7 * a)}'
        [[ $(stat -c %s a.gguf) == "$(stat -c %s b.gguf)" ]]
        llm-quantize -q -t $type --method search "${CALIBRATE[@]}" --refine 40 -j 3 "$M" c.gguf
        cmp b.gguf c.gguf
        llm-infer -m b.gguf -n 3 "1 2 3" > /dev/null
    done
}

@test "--refine: the report has the errors of what is written" {
    need_tool python3
    llm-quantize -q -t q4_0 "${CALIBRATE[@]}" --refine 40 --report r.tsv "$M" a.llm
    for model in "$M" a.llm; do llm-quantize -q -t f32 --to safetensors "$model" "${model##*/}.safetensors"; done
    python3 - <<'PY'
import json, struct
def tensors(path):
    data = open(path, "rb").read()
    at = 8 + struct.unpack("<Q", data[:8])[0]
    part = lambda v: data[at + v["data_offsets"][0]:at + v["data_offsets"][1]]
    return {k: struct.unpack("<%df" % (len(part(v)) // 4), part(v)) for k, v in json.loads(data[8:at]).items() if k.startswith("model.layers")}
was, now = tensors("m.llm.safetensors"), tensors("a.llm.safetensors")
rows = [line.rstrip("\n").split("\t") for line in open("r.tsv")]
rmse = {row[0]: float(row[rows[0].index("rmse")]) for row in rows[1:]}
for name in was:
    error = (sum((x - y) ** 2 for x, y in zip(was[name], now[name])) / len(was[name])) ** .5
    assert abs(error - rmse[name]) <= 1e-4 * error, (name, error, rmse[name])
PY
}

@test "--refine that does not help is not written: the bytes are those without it" {
    llm-quantize -q -t q8_0 --method rtn "${CALIBRATE[@]}" "$M" a.gguf
    llm-quantize -t q8_0 --method rtn "${CALIBRATE[@]}" --refine 1 "$M" b.gguf 2> err
    if grep -q 'the model before is written' err; then cmp a.gguf b.gguf; else grep -q 'the refined model is written' err; fi
    # after gptq and kl, whose blocks come in another order
    llm-quantize -t q3_k --method gptq "${CALIBRATE[@]}" --refine 10 "$M" c.gguf 2> err
    grep -q 'is written' err
}

@test "a latent-attention model that calibration ran: --measure and --refine run the weights that are written" {
    local keys='"vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
        "kv_lora_rank": 32, "q_lora_rank": null, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": null'
    echo "{\"model_type\": \"deepseek_v3\", $keys, \"initializer_range\": 0.2}" > c.json
    llm-train -q -c c.json -T "$BATS_FILE_TMPDIR/tok.json" -n 0 -o mla.llm
    llm-quantize -t q4_0 --imatrix-out i.gguf "${CALIBRATE[@]}" "${MEASURE[@]}" mla.llm a.llm 2> a.err
    llm-quantize -t q4_0 --imatrix i.gguf "${MEASURE[@]}" mla.llm b.llm 2> b.err # which runs nothing before it quantises
    [[ -n $(kl a.err) && $(kl a.err) == "$(kl b.err)" ]]
    llm-quantize -t q4_0 --refine 10 "${CALIBRATE[@]}" "${MEASURE[@]}" mla.llm c.llm 2> c.err
    awk -v a="$(kl a.err)" -v c="$(kl c.err)" 'BEGIN {exit !(c < a)}'
}

@test "--refine that cannot be: one line, nothing written" {
    refused 2 '--refine: expected --calibrate' llm-quantize -t q4_0 --refine 5 "$M" x.llm
    refused 2 'expected files as IN' llm-quantize -t q4_0 --refine 5 "${CALIBRATE[@]}" - x.llm
    refused 2 'expected no --prune' llm-quantize -t q4_0 --refine 5 --prune .5 "${CALIBRATE[@]}" "$M" x.llm
    refused 69 'found none' llm-quantize -q -t f16 --refine 5 "${CALIBRATE[@]}" "$M" x.llm
    seq 1 9 > short
    refused 65 '--refine: expected at least 256 tokens' llm-quantize -q -t q4_0 --refine 5 --calibrate short "$M" x.llm
    refused 2 '--refine' llm-quantize -t q4_0 --refine 0 "${CALIBRATE[@]}" "$M" x.llm
    [[ ! -e x.llm ]]
}
