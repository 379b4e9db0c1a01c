# Layers left out by measured harm.
LAYERS=4
load quantize_suite

@test "--drop-layers: a layer that does nothing goes first; the other is the least harmful one; the result is a model" {
    need_tool python3
    # layer 2 adds nothing: its outputs are 0
    llm-quantize -q -t f32 "$M" m.safetensors
    python3 - << 'END'
import json, struct
f = open("m.safetensors", "r+b")
n = struct.unpack("<Q", f.read(8))[0]
h = json.loads(f.read(n))
for name in ("model.layers.2.self_attn.o_proj.weight", "model.layers.2.mlp.down_proj.weight"):
    at, end = h[name]["data_offsets"]
    f.seek(8 + n + at)
    f.write(bytes(end - at))
END
    llm-quantize -t f32 --drop-layers 2 --calibrate "$TEXT" --calibrate-tokens 300 --calibrate-context 64 m.safetensors d.llm 2> said
    [[ $(sed -n 's/.*without layer \([0-9]*\): KL -*\([0-9.]*\) .*/\1 \2/p' said | head -1) == '2 0.000000' ]]
    local second harm
    read -r second harm < <(sed -n 's/.*without layer \([0-9]*\): KL -*\([0-9.]*\) .*/\1 \2/p' said | tail -1)
    ((second != 2 && second >= 0 && second < 4))
    awk "BEGIN {exit !($harm > 0)}"
    # without the layer that does nothing the model is the same
    llm-quantize -q -t f32 --drop-layers 1 --calibrate "$TEXT" --calibrate-tokens 300 --calibrate-context 64 m.safetensors one.llm
    llm-infer -m one.llm --precision f32 -n 8 --temperature 0 "1 2 3" > a
    llm-infer -m m.safetensors --precision f32 -n 8 --temperature 0 "1 2 3" > b
    cmp a b
    llm-quantize -q -t q8_0 d.llm d.gguf
    llm-infer -m d.gguf -n 3 --temperature 0 "1 2 3" > /dev/null
    llm-train -q --init d.llm -l 32 -b 4 --steps 2 -o t.llm "$BATS_FILE_TMPDIR/data.tok"
}

@test "--drop-layers: what cannot be: one line, nothing written" {
    refused 2 'expected files as IN and --calibrate' llm-quantize -t f32 --drop-layers 1 "$M" x.llm
    refused 2 'expected no --budget' llm-quantize -t q4_0 --drop-layers 1 --budget 5bpw --calibrate "$TEXT" "$M" x.llm
    refused 65 "expected fewer than the model's 4 layers, found 4" llm-quantize -t f32 --drop-layers 4 --calibrate "$TEXT" --calibrate-tokens 64 "$M" x.llm
    llm-train -q -c tiny --set num_nextn_predict_layers=1 -T "$BATS_FILE_TMPDIR/tok.json" -l 16 -b 1 --steps 1 -o n.llm "$BATS_FILE_TMPDIR/data.tok"
    refused 69 'expected one stack of layers' llm-quantize -q -t f32 --drop-layers 1 --calibrate "$TEXT" --calibrate-tokens 64 n.llm x.llm
    [[ ! -e x.llm ]]
}

@test "--drop-layers: of layers in turn with and without a window only the last can go" {
    printf '{"model_type": "gemma2", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2,
             "num_key_value_heads": 1, "head_dim": 16, "sliding_window": 8}' > g.json
    llm-train -q -c g.json -T "$BATS_FILE_TMPDIR/tok.json" -l 16 -b 1 --steps 1 -o g.llm "$BATS_FILE_TMPDIR/data.tok"
    llm-quantize -t f32 --drop-layers 1 --calibrate "$TEXT" --calibrate-tokens 64 g.llm last.llm 2> said
    grep -q 'without layer 3:' said
    llm-infer -m last.llm -n 3 --temperature 0 "1 2 3" > /dev/null
}
