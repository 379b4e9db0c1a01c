# Keys of configurations: known, harmless, or refused by name; what transformers ignores of a family is ignored in its files.
load ../helper

export LLM_THREADS=1

setup_file() {
    sentences_tokens
    head -n 2 text > short
}

# The configuration of a small llama that transformers wrote, with more keys.
small() {
    printf '{"model_type": "llama", "vocab_size": 280, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32, "rope_theta": 10000.0, "torch_dtype": "bfloat16"%s}' "$1"
}

@test "an unknown key is refused by name with status 65; --force-config names it and goes on" {
    small ', "flux_capacitor": 1.21' > config.json
    run -65 --separate-stderr llm-bench cost config.json
    [ -z "$output" ]
    [[ $stderr == "llm-bench cost: config.json: flux_capacitor: expected "*"found 1.21"*"--force-config"* ]]
    [ "${#stderr_lines[@]}" -eq 1 ]
    run -0 --separate-stderr llm-bench cost --force-config config.json
    [[ $stderr == *"flux_capacitor: ignored (1.21)"* ]]
    forced=$output
    small '' > config.json
    run -0 --separate-stderr llm-bench cost config.json
    [ "$output" = "$forced" ]
}

@test "null and switches that are off are harmless" {
    small ', "flux_capacitor": null, "use_bidirectional_attention": false, "mlp_only_layers": [], "pruned_heads": {}, "clip_qkv": null' > config.json
    run -0 --separate-stderr llm-bench cost config.json
    [ -z "$stderr" ]
}

@test "all programs that read a model refuse an unknown key and take --force-config" {
    need_tool python3 # takes the metadata off
    small '' > config.json
    mkdir m
    llm-train -q -c config.json -T "$F/tok.json" --steps 1 -b 1 --context 8 -o m.llm "$F/data.tok"
    llm-quantize -t f32 --planes off m.llm m/model.safetensors
    python3 - <<'P'
import json, struct
b = open("m/model.safetensors", "rb").read()
n = struct.unpack("<Q", b[:8])[0]
h = json.loads(b[8:8 + n])
open("m/config.json", "w").write(json.dumps(dict(json.loads(h["__metadata__"]["llm.config"]), flux_capacitor=2)))
h["__metadata__"] = {"format": "pt"}
t = json.dumps(h).encode()
t += b" " * (-len(t) % 8)
open("m/model.safetensors", "wb").write(struct.pack("<Q", len(t)) + t + b[8 + n:])
P
    cp "$F/tok.json" m/tokenizer.json
    programs=("llm-infer -m m -n 1 a" "llm-quantize -t q8_0 m out.llm" "llm-bench quality -m m $F/short" "llm-bench cost m"
              "llm-bench speed -m m -p 4 -n 1 -r 1" "llm-train --init m --steps 1 -b 1 --context 8 -o new.llm $F/data.tok")
    for command in "${programs[@]}"; do
        run -65 --separate-stderr $command
        [[ $stderr == *"flux_capacitor: expected "* ]]
        run -0 --separate-stderr $command --force-config
        [[ $stderr == *"flux_capacitor: ignored (2)"* ]]
    done
}

@test "what transformers' llama ignores is ignored in every config.json, meant by --set and in models made with it" {
    small '' > plain.json
    small ', "partial_rotary_factor": 0.5, "sliding_window": 4' > own.json
    small ', "partial_rotary_factor": 0.5, "sliding_window": 4, "transformers_version": "5.0"' > theirs.json
    config() {
        llm-train -q "${@:2}" -c "$1" -T "$F/tok.json" --steps 1 -b 1 --context 8 -o x.llm "$F/data.tok"
        llm-quantize -t f32 --planes off x.llm x.safetensors
        head -c 20000 x.safetensors | strings -n 8 > strings
        grep -q rms_norm_eps strings
    }
    config plain.json
    run -1 grep -e partial_rotary_factor -e sliding_window strings
    config theirs.json
    run -1 grep -e partial_rotary_factor -e sliding_window strings
    config theirs.json --set partial_rotary_factor=0.5
    grep partial_rotary_factor strings
    cp x.llm half.llm
    config own.json
    run -1 grep -e partial_rotary_factor -e sliding_window strings
    run -0 --separate-stderr llm-train -c own.json --set vocab_size=280 --plan
    [[ $stderr == *"llm-train: warning: configuration: partial_rotary_factor: ignored, as transformers' llama ignores it"* ]]
    [[ $stderr == *"configuration: sliding_window: ignored, as transformers' llama ignores it"* ]]
    run -0 --separate-stderr llm-train -c theirs.json --set vocab_size=280 --plan
    [[ $stderr != *ignored* ]]
    # Phi-3 and StableLM have the key.
    sed 's/llama/phi3/' own.json > phi3.json
    config phi3.json
    grep partial_rotary_factor strings
    # A folder: the same weights with and without the key are the same model; the model made with it is another.
    config plain.json
    mkdir -p folder
    llm-quantize -q -t f32 --planes off x.llm folder/model.safetensors
    cp plain.json folder/config.json
    cp "$F/tok.json" folder/tokenizer.json
    llm-infer -q -m folder --score -f "$F/short" > without
    cp own.json folder/config.json
    run -0 --separate-stderr llm-infer -m folder --score -f "$F/short"
    diff <(echo "$output") without
    [[ $stderr == *"partial_rotary_factor: ignored"* ]]
    llm-infer -q -m x.llm --score -f "$F/short" | cmp - without
    run -1 cmp -s <(llm-infer -q -m half.llm --score -f "$F/short") without
}

@test "switches of families that change results: implemented, written and read again" {
    sizes='"vocab_size": 280, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
        "max_position_embeddings": 32, "head_dim": 16'
    while IFS='|' read -r type common switch; do
        for with in '' "$switch"; do
            printf '{"model_type": "%s", %s%s}' "$type" "$common" "$with" > config.json
            llm-train -q -c config.json -T "$F/tok.json" --steps 2 -b 1 --context 16 -o "m${with:+2}.llm" "$F/data.tok"
            llm-infer -m "m${with:+2}.llm" --precision f32 --score -f "$F/short" -b 5 > "score${with:+2}"
            llm-infer -m "m${with:+2}.llm" --precision f32 --score -f "$F/short" > whole
            cmp whole "score${with:+2}"
        done
        run -1 cmp -s score score2
        same_by_threads llm-train -q -c config.json -T "$F/tok.json" -n 2 -b 4 -l 16 "$F/data.tok"
        same_steps llm-train -q -c config.json -T "$F/tok.json" -n 2 -b 1 --accumulate 4 -l 16 "$F/data.tok"
        [[ $type == mamba2 || $type == qwen3_moe ]] || # whose gradients are too small here for differences; the ops have their own checks
            llm-train -q -c config.json -T "$F/tok.json" -n 1 -b 2 -l 16 --precision f32 --gradcheck "$F/data.tok" > checked
        llm-quantize -t f32 --planes off m2.llm m2.safetensors
        llm-infer -m m2.safetensors --precision f32 --score -f "$F/short" | cmp - score2
    done <<EOF
gpt2|"vocab_size": 280, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32|, "scale_attn_by_inverse_layer_idx": true
gpt2|"vocab_size": 280, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32|, "scale_attn_weights": false
stablelm|${sizes//$'\n'/}|, "use_parallel_residual": true
stablelm|${sizes//$'\n'/}, "initializer_range": 0.2|, "qk_layernorm": true
mamba|"vocab_size": 280, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "initializer_range": 0.02|, "hidden_act": "gelu"
mamba2|"vocab_size": 280, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "num_heads": 4, "head_dim": 16, "n_groups": 1, "initializer_range": 0.02|, "hidden_act": "gelu"
qwen3_moe|${sizes//$'\n'/}, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16|, "use_sliding_window": true, "sliding_window": 3
qwen3_moe|${sizes//$'\n'/}, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16|, "mlp_only_layers": [1]
EOF
}

@test "a gemma3_text whose tokens see both ways embeds texts, and continues none" {
    llm-tokenize train --vocab-size 280 --special '<mask>' -o mask.json "$F/text"
    llm-tokenize encode -T mask.json --lines -o mask.tok "$F/text"
    printf '{"model_type": "gemma3_text", "vocab_size": 280, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 32, "sliding_window": 4,
        "use_bidirectional_attention": true, "query_pre_attn_scalar": 16}' > config.json
    llm-train -q -c config.json -T mask.json --objective mlm --steps 2 -b 2 --context 16 -o m.llm mask.tok
    llm-infer -m m.llm --embed --jsonl -o v.jsonl < <(printf '%s\n' '{"prompt": "a text"}')
    [ -s v.jsonl ]
    run -69 --separate-stderr llm-infer -m m.llm -n 1 a
    [[ $stderr == *"expected a model that predicts the next token"* ]]
    run -69 --separate-stderr llm-quantize -t keep m.llm m.gguf
    [[ $stderr == *"use_bidirectional_attention: GGUF cannot say this"* ]]
}
