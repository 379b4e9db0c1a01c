# Adapters as files of others: PEFT's folders and llama.cpp's GGUF, there and back, and merged into the matrices of their base.
load ../helper
export LLM_THREADS=2

setup_file() {
    sentences_tokens
    llm-tokenize encode -q -T "$ROOT/tests/golden/tiny/tokenizer.json" -o g.tok "$ROOT/tests/golden/adapters/text"
    llm-train -q --init "$ROOT/tests/golden/tiny" --adapter lora --adapter-init "$ROOT/tests/golden/adapters/init" --precision f32 -l 24 -b 2 -n 0 -o init.llm g.tok
    llm-quantize -q -t keep "$ROOT/tests/golden/tiny" tiny.gguf
}

setup() {
    need_tool python3
    tiny=$ROOT/tests/golden/tiny
    golden=$ROOT/tests/golden/adapters
}

score() { echo "Once upon a time there was a red cat." | llm-infer -q --precision f32 --score -m "$@" | cut -f 3; }
same() { cmp <(score "${@:1:3}") <(score "${@:4}"); }
# tensors FILE.safetensors: names, shapes, and the hash of each tensor's bytes
tensors() {
    local length
    length=$(od -An -N8 -tu8 "$1" | tr -d ' ')
    tail -c +9 "$1" | head -c "$length" | jq -r 'del(.__metadata__) | to_entries[] | [.key, (.value.shape | tostring), .value.data_offsets[]] | @tsv' | sort \
        | while read -r name shape from to; do
            echo "$name $shape $(tail -c +$((8 + length + from + 1)) "$1" | head -c $((to - from)) | md5sum)"
        done
}
# renamed FOLDER END NEW: the adapter's tensor whose name ends in END gets NEW in its place; NEW empty: it is left out
renamed() {
    python3 - "$1/adapter_model.safetensors" "${@:2}" <<'PY'
import json, struct, sys
path, end, new = sys.argv[1:]
data = open(path, "rb").read()
at = 8 + struct.unpack("<Q", data[:8])[0]
kept, body = {}, b""
for name, v in json.loads(data[8:at]).items():
    if name == "__metadata__" or (name.endswith(end) and not new):
        continue
    part = data[at + v["data_offsets"][0]:at + v["data_offsets"][1]]
    kept[name.removesuffix(end) + new if name.endswith(end) else name] = v | {"data_offsets": [len(body), len(body) + len(part)]}
    body += part
text = json.dumps(kept).encode()
open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
}
# kl: the mean that the note of --merge gives on standard input
kl() { sed -n 's/.*mean \([0-9.e+-]*\), maximum.*/\1/p'; }

@test "PEFT's folder comes back as PEFT wrote it" {
    llm-quantize -q -t keep "$F/init.llm" folder
    diff <(tensors folder/adapter_model.safetensors) <(tensors "$golden/init/adapter_model.safetensors")
    for key in peft_type r lora_alpha use_rslora bias task_type; do
        assert_equal "$(jq -c ".$key" folder/adapter_config.json)" "$(jq -c ".$key" "$golden/init/adapter_config.json")"
    done
    assert_equal "$(jq -c '.target_modules | sort' folder/adapter_config.json)" "$(jq -c '.target_modules | sort' "$golden/init/adapter_config.json")"
    llm-quantize -q -t keep folder folder # replaces itself
    llm-quantize -q -t keep "$golden/init" --base "$tiny" again.llm
    same "$tiny" --adapter again.llm "$tiny" --adapter "$golden/init"
    llm-quantize -q -t bf16 "$F/init.llm" bf16
    [[ $(wc -c < bf16/adapter_model.safetensors) -lt $(wc -c < folder/adapter_model.safetensors) ]]
}

@test "DoRA: PEFT's folder comes back as PEFT wrote it; merged in f32 the model is the same within rounding; GGUF has no place for it" {
    llm-quantize -q -t keep "$golden/dora" --base "$tiny" dora.llm
    llm-quantize -q -t keep dora.llm dora
    diff <(tensors dora/adapter_model.safetensors) <(tensors "$golden/dora/adapter_model.safetensors")
    jq -e .use_dora dora/adapter_config.json
    same "$tiny" --adapter dora.llm "$tiny" --adapter "$golden/dora"
    llm-quantize -t f32 --merge dora.llm "$tiny" merged.llm 2> note
    awk -v kl="$(kl < note)" 'BEGIN { exit !(kl >= 0 && kl < 1e-9) }'
    paste -d ' ' <(score merged.llm) <(score "$tiny" --adapter dora.llm) | apart 2e-5 0
    refused 69 "x.gguf: use_dora: GGUF has no place for magnitudes" llm-quantize -q -t keep dora.llm x.gguf
    jq '.use_dora = false' dora/adapter_config.json > without.json
    mv without.json dora/adapter_config.json
    refused 65 "expected use_dora with it" llm-infer -m "$tiny" --adapter dora x
    cp "$golden/init/adapter_model.safetensors" dora
    cp "$golden/dora/adapter_config.json" dora
    refused 65 "expected its lora_magnitude_vector too" llm-infer -m "$tiny" --adapter dora x
}

@test "GGUF has llama.cpp's names and keys, rows in its order, and the same effect" {
    llm-quantize -q -t keep "$F/init.llm" a.gguf
    strings -n 6 a.gguf > found
    for word in general.type adapter.type adapter.lora.alpha blk.0.attn_q.weight.lora_a blk.1.ffn_down.weight.lora_b; do grep -q "$word" found; done
    same "$tiny" --adapter a.gguf "$tiny" --adapter "$golden/init"
    llm-quantize -q -t keep --base "$F/tiny.gguf" a.gguf of-gguf.llm
    same "$F/tiny.gguf" --adapter of-gguf.llm "$F/tiny.gguf" --adapter "$golden/init"
    llm-quantize -q -t keep of-gguf.llm b.gguf
    cmp a.gguf b.gguf
    llm-quantize -q -t keep of-gguf.llm folder
    diff <(tensors folder/adapter_model.safetensors) <(tensors "$golden/init/adapter_model.safetensors")
}

@test "experts, transposed and fused matrices go through the formats" {
    local -A sets=([moe]="--set num_hidden_layers=2 --set hidden_size=64 --set num_local_experts=4" [gpt2]="--set n_layer=2 --set n_embd=64 --set n_head=2")
    for preset in "${!sets[@]}"; do
        llm-train -q -c $preset ${sets[$preset]} -T "$F/tok.json" -l 24 -n 0 -o $preset.llm "$F/data.tok"
        llm-train -q --init $preset.llm --adapter lora --rank 2 -l 24 -b 4 -n 4 --precision f32 --lr 1e-2 -o $preset-a.llm "$F/data.tok"
        llm-quantize -q -t keep $preset-a.llm $preset-folder
        llm-quantize -q -t keep $preset-a.llm $preset-a.gguf
        same $preset.llm --adapter $preset-a.llm $preset.llm --adapter $preset-folder
        same $preset.llm --adapter $preset-a.llm $preset.llm --adapter $preset-a.gguf
        llm-quantize -t f32 --merge $preset-a.llm $preset.llm $preset-m.llm 2> note
        kl < note | apart 1e-9 0 || [[ $(kl < note) == *e-1* ]]
    done
    jq -e .fan_in_fan_out gpt2-folder/adapter_config.json
    jq -e '.fan_in_fan_out == false' moe-folder/adapter_config.json
}

@test "pairs of all experts of a layer (target_parameters) as PEFT has them; back as pairs of modules; in parts they are refused" {
    golden=$ROOT/tests/golden/experts
    of=(llm-infer -q --precision f32 --ids --score -m)
    jq -r '.ids | join(" ")' "$golden/scores.json" > ids
    "${of[@]}" "$golden/model" < ids | cut -f 3 > model.got
    for a in lora down; do
        "${of[@]}" "$golden/model" --adapter "$golden/$a" < ids | cut -f 3 > $a.got
        llm-quantize -q -t keep --base "$golden/model" "$golden/$a" $a.llm
        "${of[@]}" "$golden/model" --adapter $a.llm < ids | cut -f 3 | cmp - $a.got
        llm-quantize -q -t keep $a.llm --base "$golden/model" $a.folder
        "${of[@]}" "$golden/model" --adapter $a.folder < ids | cut -f 3 | cmp - $a.got
        jq -e 'has("target_parameters") | not' $a.folder/adapter_config.json
    done
    for a in model lora down; do # logits near 4: FP32 beside double
        jq -r ".$a[]" "$golden/scores.json" | paste - <(tail -n 15 $a.got) | awk '{ d = $1 - $2; if (d > 3e-6 || d < -3e-6) exit 1; n++ } END { exit n != 15 }'
    done
    cp -r "$golden/lora" half
    renamed half layers.1.mlp.experts.lora_B.weight ''
    run -65 "${of[@]}" "$golden/model" --adapter half < ids
    [[ $output == *"'base_model.model.model.layers.1.mlp.experts': expected lora_A and lora_B of the 3 experts of a layer, gates with ups or downs" ]]
    cp -r "$golden/lora" far
    renamed far layers.1.mlp.experts.lora_B.weight layers.2.mlp.experts.lora_B.weight
    run -65 "${of[@]}" "$golden/model" --adapter far < ids
    [[ $output == *"layers.1.mlp.experts': expected lora_A and lora_B"* ]]
    cp -r "$golden/lora" alphas
    jq '.alpha_pattern = {gate_up_proj: 3}' "$golden/lora/adapter_config.json" > alphas/adapter_config.json
    run -69 "${of[@]}" "$golden/model" --adapter alphas < ids
    [[ $output == *'target_parameters: expected no alpha_pattern beside it' ]]
    cp -r "$golden/down" dora
    jq '.use_dora = true' "$golden/down/adapter_config.json" > dora/adapter_config.json
    run -69 "${of[@]}" "$golden/model" --adapter dora < ids
    [[ $output == *'expected no use_dora with pairs of all experts' ]]
    # a model without experts
    run -65 "${of[@]}" "$tiny" --adapter "$golden/down" <<< '1 2 3'
    [[ $output == *"mlp.experts.lora_A.weight': expected a part of a llama of 2 layers" ]]
}

@test "GGUF stacks the experts of a layer: some without a pair, or of different ranks" {
    llm-train -q -c moe --set num_hidden_layers=1 --set hidden_size=64 --set num_local_experts=4 -T "$F/tok.json" -l 24 -n 4 -o m.llm "$F/data.tok"
    llm-train -q --init m.llm --adapter lora --rank 2 --targets '*experts.[13].*' -l 24 -b 4 -n 4 --precision f32 --lr 1e-2 -o a.llm "$F/data.tok"
    llm-quantize -q -t keep --base m.llm a.llm a.gguf
    refute cmp -s <(score m.llm) <(score m.llm --adapter a.llm)
    paste -d ' ' <(score m.llm --adapter a.gguf) <(score m.llm --adapter a.llm) | apart 1e-5 0
    llm-quantize -q -t q4_0 --energy .5 --factors f.gguf m.llm q.gguf
    llm-quantize -q -t q4_0 --energy .5 --factors f.llm --report report.tsv m.llm q.llm
    [[ $(awk -F '\t' 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "rank") column = i; next } /experts/ { print $column }' report.tsv | sort -u | wc -l) -gt 1 ]]
    refute cmp -s <(score q.llm) <(score q.llm --adapter f.llm)
    paste -d ' ' <(score q.gguf --adapter f.gguf) <(score q.llm --adapter f.llm) | apart 1e-5 0
}

@test "merged in f32 the model is the same within rounding; in fewer bits the note says what it costs" {
    local adapter=$golden/trained
    llm-quantize -t f32 --merge "$adapter" "$tiny" f32.llm 2> note
    awk -v kl="$(kl < note)" 'BEGIN { exit !(kl >= 0 && kl < 1e-9) }'
    paste -d ' ' <(score f32.llm) <(score "$tiny" --adapter "$adapter") | apart 2e-5 0
    previous=0
    for type in bf16 q8_0 q4_0; do
        llm-quantize -t $type --merge "$adapter" "$tiny" $type.llm 2> note
        awk -v kl="$(kl < note)" -v previous=$previous 'BEGIN { exit !(kl > previous) }'
        previous=$(kl < note)
    done
    llm-quantize -q -t keep --merge "$adapter" "$tiny" keep.llm
    cmp <(score keep.llm) <(score bf16.llm)
    llm-quantize -q -t f32 --merge "$adapter:.5" --merge "$adapter:.5" "$tiny" halves.llm
    paste -d ' ' <(score halves.llm) <(score f32.llm) | apart 2e-5 0
    llm-quantize -q -t f32 --merge "$adapter" "$F/tiny.gguf" merged.gguf
    paste -d ' ' <(score merged.gguf) <(score f32.llm) | apart 2e-5 0
}

@test "a quantised base takes its adapter in and keeps its types" {
    llm-quantize -q -t q8_0 "$tiny" q8.gguf
    llm-train -q --init q8.gguf --adapter lora -l 24 -b 2 -n 4 -o a.llm "$F/g.tok"
    llm-quantize -v -t keep --merge a.llm q8.gguf merged.gguf 2> note
    kl < note
    [[ $(wc -c < merged.gguf) == $(wc -c < q8.gguf) ]]
}

@test "what is stored whole goes into PEFT's folder, not into GGUF" {
    llm-train -q --init "$tiny" --adapter lora --also-train model.norm.weight -l 24 -b 2 -n 4 --precision f32 -o a.llm "$F/g.tok"
    llm-quantize -q -t keep a.llm folder
    jq -e '.modules_to_save == ["model.norm"]' folder/adapter_config.json
    same "$tiny" --adapter folder "$tiny" --adapter a.llm
    refused 69 "x.gguf: 'model.norm.weight': GGUF has no place" llm-quantize -q -t keep a.llm x.gguf
    llm-quantize -t f32 --merge a.llm "$tiny" merged.llm 2> note
    awk -v kl="$(kl < note)" 'BEGIN { exit !(kl >= 0 && kl < 1e-9) }'
}

@test "biases and parts of modules that are stored whole have the names by which PEFT finds them" {
    llm-train -q -c nano --set bias=true --set n_layer=1 --set n_embd=32 --set n_head=2 -l 24 -n 0 -T "$tiny/tokenizer.json" -o base.llm "$F/g.tok"
    llm-train -q --init base.llm --adapter lora --targets c_attn --also-train '*.bias' --also-train 'transformer.ln_f.*' -l 24 -b 2 -n 4 --precision f32 -o a.llm "$F/g.tok"
    llm-quantize -q -t keep a.llm folder
    jq -e '.bias == "all" and .modules_to_save == ["transformer.ln_f"]' folder/adapter_config.json
    tensors folder/adapter_model.safetensors > names
    grep -q '^base_model.model.transformer.h.0.attn.c_attn.base_layer.bias \[96\]' names
    grep -q '^base_model.model.transformer.h.0.ln_1.bias \[32\]' names
    same base.llm --adapter folder base.llm --adapter a.llm
    run -1 cmp <(score base.llm) <(score base.llm --adapter folder)
    # a module of which only the gain is stored: PEFT wants its bias, too
    llm-train -q --init base.llm --adapter lora --targets c_attn --also-train '*ln_1.weight' -l 24 -b 2 -n 4 --precision f32 -o b.llm "$F/g.tok"
    llm-quantize -q -t keep b.llm gains
    jq -e '.bias == "none" and .modules_to_save == ["transformer.h.0.ln_1"]' gains/adapter_config.json
    [[ $(tensors gains/adapter_model.safetensors | grep -c 'ln_1\.\(weight\|bias\) \[32\]') == 2 ]]
    same base.llm --adapter gains base.llm --adapter b.llm
}

@test "an embedding that is the head, too: PEFT's folder ties them, and one that does not is refused" {
    llm-train -q --init "$tiny" --adapter lora --also-train embed_tokens -l 24 -b 2 -n 4 --precision f32 -o a.llm "$F/g.tok"
    llm-quantize -q -t keep a.llm folder
    jq -e '.ensure_weight_tying and .modules_to_save == ["model.embed_tokens"]' folder/adapter_config.json
    assert_equal "$(tensors folder/adapter_model.safetensors | grep lm_head.weight | cut -d ' ' -f 2-)" \
        "$(tensors folder/adapter_model.safetensors | grep embed_tokens.weight | cut -d ' ' -f 2-)"
    same "$tiny" --adapter folder "$tiny" --adapter a.llm
    jq 'del(.ensure_weight_tying)' folder/adapter_config.json > config
    mv config folder/adapter_config.json
    refused 65 "lm_head.weight': expected a part of a llama" llm-infer -m "$tiny" --adapter folder x
    renamed folder lm_head.weight ''
    refused 69 "expected ensure_weight_tying and 'lm_head.weight' with 'model.embed_tokens.weight', which is" llm-infer -m "$tiny" --adapter folder x
    jq '.ensure_weight_tying = true' folder/adapter_config.json > config # as PEFT writes GPT-2's wte, whose head it leaves as it was
    mv config folder/adapter_config.json
    refused 69 "expected ensure_weight_tying and 'lm_head.weight' with 'model.embed_tokens.weight', which is" llm-infer -m "$tiny" --adapter folder x
}

@test "Mamba's projections are modules: all targets, named alone, to a folder and back, and as adapters named them before" {
    llm-train -q -c mamba --set hidden_size=32 --set num_hidden_layers=1 -l 24 -n 0 -T "$tiny/tokenizer.json" -o mamba.llm "$F/g.tok"
    llm-train -q --init mamba.llm --adapter lora -l 24 -b 2 -n 4 --precision f32 -o a.llm "$F/g.tok"
    llm-quantize -q -t keep a.llm folder
    jq -e '.target_modules == ["in_proj", "x_proj", "dt_proj", "out_proj"]' folder/adapter_config.json
    [[ $(tensors folder/adapter_model.safetensors | grep -c 'mixer\.[a-z]*_proj\.lora_[AB]\.weight') == 8 ]]
    same mamba.llm --adapter folder mamba.llm --adapter a.llm
    for half in A B; do renamed folder layers.0.mixer.x_proj.lora_$half.weight layers.0.mixer.x_proj.weight.lora_$half.weight; done
    same mamba.llm --adapter folder mamba.llm --adapter a.llm
    llm-train -q --init mamba.llm --adapter lora --targets x_proj -l 24 -b 2 -n 4 --precision f32 -o x.llm "$F/g.tok"
    llm-quantize -q -t keep x.llm one
    [[ $(tensors one/adapter_model.safetensors | grep -c lora_A) == 1 ]]
}

@test "heads have the names that PEFT has for them" {
    echo '{"model_type": "gpt_neox", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
           "max_position_embeddings": 64}' > neox.json
    llm-train -q -c neox.json -l 24 -n 0 -T "$tiny/tokenizer.json" -o neox.llm "$F/g.tok"
    llm-train -q --init neox.llm --adapter lora --targets embed_out -l 24 -b 2 -n 4 --precision f32 -o a.llm "$F/g.tok"
    llm-quantize -q -t keep a.llm folder
    jq -e '.target_modules == ["lm_head"]' folder/adapter_config.json
    [[ $(tensors folder/adapter_model.safetensors | grep -c '^base_model.model.lm_head.lora_[AB].weight') == 2 ]]
    same neox.llm --adapter folder neox.llm --adapter a.llm
    for half in A B; do renamed folder lm_head.lora_$half.weight embed_out.lora_$half.weight; done # with transformers 4
    same neox.llm --adapter folder neox.llm --adapter a.llm

    llm-train -q -c bert-mini --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 --objective mlm -l 24 -n 0 \
        -T "$tiny/tokenizer.json" -o bert.llm "$F/g.tok"
    llm-train -q --init bert.llm --objective mlm --adapter lora --also-train '*word_embeddings*' -l 24 -b 2 -n 4 --precision f32 -o b.llm "$F/g.tok"
    llm-quantize -q -t keep b.llm words
    jq -e '.ensure_weight_tying' words/adapter_config.json
    assert_equal "$(tensors words/adapter_model.safetensors | grep decoder.weight | cut -d ' ' -f 2-)" \
        "$(tensors words/adapter_model.safetensors | grep word_embeddings.weight | cut -d ' ' -f 2-)"
    for a in words b.llm; do llm-quantize -q -t f32 --merge $a bert.llm $a-merged.safetensors; done
    cmp words-merged.safetensors b.llm-merged.safetensors
}

# beside FOLDER BASE: the head of BASE (safetensors) is stored beside the folder's pair of the head
beside() {
    python3 - "$1/adapter_model.safetensors" "$2" <<'PY'
import json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    at = 8 + struct.unpack("<Q", data[:8])[0]
    return {k: (v, data[at + v["data_offsets"][0]:at + v["data_offsets"][1]]) for k, v in json.loads(data[8:at]).items() if k != "__metadata__"}
path, base = sys.argv[1:]
all = tensors(path) | {"base_model.model.lm_head.base_layer.weight": tensors(base)["lm_head.weight"]}
kept, body = {}, b""
for name, (v, part) in all.items():
    kept[name] = v | {"data_offsets": [len(body), len(body) + len(part)]}
    body += part
text = json.dumps(kept).encode()
open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
}

@test "a head that is adapted may have a matrix beside its pair, as PEFT stores it: the base's own says nothing, another stays beside the pair" {
    for seed in 1 2; do
        llm-train -q -c tiny --set tie_word_embeddings=false --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 -l 24 -n 0 \
            --seed $seed -T "$tiny/tokenizer.json" -o base$seed.llm "$F/g.tok"
        llm-quantize -q -t f32 base$seed.llm base$seed.safetensors
    done
    llm-train -q --init base1.llm --adapter lora --targets lm_head -l 24 -b 2 -n 4 --precision f32 -o a.llm "$F/g.tok"
    llm-quantize -q -t keep a.llm plain
    cp -r plain own
    beside own base1.safetensors
    same base1.llm --adapter own base1.llm --adapter a.llm
    same base1.llm --adapter own:0.5 base1.llm --adapter a.llm:0.5
    llm-quantize -q -t keep own again
    diff <(tensors again/adapter_model.safetensors) <(tensors plain/adapter_model.safetensors)
    jq -e '.modules_to_save == null' again/adapter_config.json

    cp -r plain other
    beside other base2.safetensors
    run ! same base1.llm --adapter other base1.llm --adapter a.llm
    llm-quantize -q -t keep other again
    diff <(tensors again/adapter_model.safetensors) <(tensors other/adapter_model.safetensors)
    jq -e '.modules_to_save == null and .target_modules == ["lm_head"]' again/adapter_config.json
}

@test "what cannot be written or merged: one line" {
    llm-quantize -q -t keep "$F/init.llm" a.gguf
    refused 65 "a.gguf: expected the path of its base" llm-quantize -t keep a.gguf b.llm
    refused 2 "expected -t f32, f16, bf16 or keep" llm-quantize -t q8_0 "$F/init.llm" folder
    refused 65 "expected an adapter (--base)" llm-quantize -t keep --base "$tiny" "$tiny" b.llm
    refused 2 "expected a file as IN" llm-quantize -t f32 --merge "$F/init.llm" - b.llm
    refused 65 "expected an adapter" llm-quantize -t f32 --merge "$tiny/model.safetensors" "$tiny" b.llm
    refused 65 "init.llm: expected the model that it was made for" llm-quantize -t f32 --merge "$F/init.llm" "$F/tiny.gguf" b.llm
    refused 73 "none/folder" llm-quantize -t keep "$F/init.llm" none/folder
}
