# GGUF written: our reader gives the same tokens and text, blocks go through bit for bit, and what GGUF cannot say is refused.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    P='Once upon a time there was a red cat.'
}

score() {
    llm-infer -m "$1" --precision f32 --score "$P" | cut -f3
}

@test "a folder as GGUF: the same ids, log-probabilities and text, from a file and through a pipe" {
    llm-quantize -q -t keep "$M" m.gguf
    [[ $(head -c 8 m.gguf | od -An -tx1 | tr -d ' ') == 4747554603000000 ]]
    score "$M" > whole
    score m.gguf > written
    near_lines written whole 1e-4
    for text in "$P" '' $'  two\n\nlines\t\xc3\xa9 \xff 123'; do
        printf %s "$text" | llm-tokenize encode -T "$M/tokenizer.json" --text > ids
        printf %s "$text" | llm-tokenize encode -T m.gguf --text | cmp - ids
    done
    llm-infer -q -m "$M" --precision f32 --temp 0 -n 30 "$P" > text
    [[ -s text ]]
    llm-infer -q -m m.gguf --precision f32 --temp 0 -n 30 "$P" | cmp - text
    llm-quantize -q -t keep --to gguf "$M" - > piped.gguf
    cmp m.gguf piped.gguf
    llm-infer -q -m - --precision f32 --temp 0 -n 30 "$P" < m.gguf | cmp - text
    llm-quantize -q -j 3 -t keep "$M" three.gguf
    cmp m.gguf three.gguf
}

@test "blocks and numbers go through GGUF, .llm and GGUF again bit for bit" {
    local type
    for type in keep f16 bf16 q8_0 q4_0; do
        llm-quantize -q -t $type "$M" one.gguf
        llm-quantize -q -t keep one.gguf one.llm
        llm-quantize -q -t keep one.llm two.gguf
        cmp one.gguf two.gguf
        score one.gguf > a
        score one.llm | cmp - a
        # the same blocks as without GGUF, in other rows
        llm-quantize -q -t $type "$M" direct.llm
        score direct.llm > b
        near_lines b a 1e-3
    done
    rm one.llm two.gguf
}

@test "fused projections whose rows other files have head by head come back from GGUF in that order; their adapters too" {
    seq 1 100 > text
    llm-tokenize train --model byte -o tok.json text
    echo '{"model_type": "gpt_neox", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
           "max_position_embeddings": 64, "initializer_range": 0.3}' > c.json
    llm-train -q -c c.json -T tok.json -n 0 -o neox.llm
    llm-quantize -q -t keep neox.llm neox.gguf
    llm-quantize -q -t keep neox.gguf back.llm
    llm-infer -q -m neox.llm --precision f32 --score 1234567 > want
    for model in neox.gguf back.llm; do llm-infer -q -m $model --precision f32 --score 1234567 | cmp - want; done
    llm-tokenize encode -T tok.json -o g.tok text
    llm-train -q --init neox.llm --adapter lora --targets query_key_value -l 24 -b 2 -n 4 --precision f32 -o a.llm g.tok
    llm-quantize -q -t keep a.llm folder
    llm-infer -q -m neox.llm --adapter a.llm --precision f32 --score 1234567 > want
    for model in neox.gguf back.llm; do llm-infer -q -m $model --adapter folder --precision f32 --score 1234567 | cmp - want; done
}

@test "a folder of Hugging Face's made from GGUF is the one that the model itself makes: rows of queries and keys by halves, a window is Mistral's" {
    local family keys='"vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "rope_theta": 300, "tie_word_embeddings": false, "bos_token_id": null, "eos_token_id": null'
    seq 1 100 > text
    llm-tokenize train --model byte -o tok.json text
    for family in 'llama", "attention_bias": true, "x": "' 'mistral", "sliding_window": 16, "x": "' 'mixtral", "num_local_experts": 2, "x": "'; do
        rm -rf direct back
        echo "{\"model_type\": \"$family\", $keys}" > c.json
        llm-train -q --force-config -c c.json -T tok.json -n 0 -o m.llm
        llm-quantize -q -t f32 m.llm direct/
        llm-quantize -q -t f32 m.llm m.gguf
        llm-quantize -q -t keep m.gguf back/
        cmp direct/model.safetensors back/model.safetensors
        for key in model_type architectures sliding_window attention_bias rope_pairing; do
            assert_equal "$(jq -c .$key back/config.json)" "$(jq -c .$key direct/config.json)"
        done
    done
}

@test "a SentencePiece vocabulary and a foreign model come back" {
    need_shared models/stories260K/stories260K-f32.gguf
    S=$SHARED/data/models/stories260K/stories260K-f32.gguf
    llm-quantize -q -t keep "$S" one.gguf
    llm-quantize -q -t keep one.gguf one.llm
    llm-quantize -q -t keep one.llm two.gguf
    cmp one.gguf two.gguf
    llm-tokenize info --json -T "$S" | jq -r .id > id
    llm-tokenize info --json -T one.gguf | jq -r .id | cmp - id
    llm-infer -q -m "$S" --precision f32 --temp 0 -n 40 "Once upon a time" > text
    llm-infer -q -m one.gguf --precision f32 --temp 0 -n 40 "Once upon a time" | cmp - text
    llm-infer -q -m one.llm --precision f32 --temp 0 -n 40 "Once upon a time" | cmp - text
}

@test "tokenizers of every kind come back from GGUF with their ids" {
    need_shared tokenizers/bert/tokenizer.json
    need_tool jq python3
    local t text=$'Hello, world! It\'s 1234567 o\'clock.\n\n  na\xc3\xafve caf\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87'
    for t in bert/tokenizer.json gpt2/tokenizer.json llama3/tokenizer.json mistral-v1-hf/tokenizer.json llama2/tokenizer.model \
        sentencepiece-test/test_model.model; do
        rm -rf m && mkdir m
        vocab=$(($(llm-tokenize info --json -T "$SHARED/data/tokenizers/$t" | jq .vocab_size) + 5))
        printf '{"model_type": "llama", "vocab_size": %d, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 1, "tie_word_embeddings": true, "bos_token_id": null, "eos_token_id": null}' "$vocab" > m/config.json
        python3 - "$vocab" << 'END'
import json, struct, sys
shapes = {"model.embed_tokens": [int(sys.argv[1]), 32], "model.norm": [32]}
for n in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
    shapes["model.layers.0." + n] = [32, 32]
shapes["model.layers.0.input_layernorm"] = shapes["model.layers.0.post_attention_layernorm"] = [32]
head, at = {}, 0
for n, s in shapes.items():
    size = 2 * s[0] * (s[1] if len(s) > 1 else 1)
    head[n + ".weight"] = {"dtype": "BF16", "shape": s, "data_offsets": [at, at + size]}
    at += size
text = json.dumps(head).encode()
open("m/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + bytes(at))
END
        cp "$SHARED/data/tokenizers/$t" m/tokenizer."${t##*.}"
        llm-quantize -q -t keep m m.gguf
        printf %s "$text" | llm-tokenize encode --add-special --text -T "$SHARED/data/tokenizers/$t" > ids
        printf %s "$text" | llm-tokenize encode --add-special --text -T m.gguf | cmp - ids
        [[ $(llm-tokenize info --json -T m.gguf | jq .vocab_size) == $((vocab - 5)) ]]
    done
}

@test "what GGUF cannot say is refused by name, and the target stays as it was" {
    need_tool jq
    local key
    echo kept > out.gguf
    cp -r "$M" m
    chmod -R u+w m
    for key in '"embedding_scale": 3' '"rope_scaling": {"rope_type": "dynamic", "factor": 2}'; do
        jq ". + {$key}" "$M/config.json" > m/config.json
        name=${key%%:*}
        refused 69 "${name//\"/}: GGUF cannot say this of a model of type 'llama'" llm-quantize -q -t keep m out.gguf
    done
    llm-train -q -c "$M/config.json" --set logit_scale=0.5 -T "$M" -n 0 -o scaled.llm
    refused 69 "logit_scale: GGUF cannot say this of a model of type 'llama'" llm-quantize -q -t keep scaled.llm out.gguf
    printf 'abc\n' | llm-tokenize train --model char -o m/tokenizer.json
    cp "$M/config.json" m/config.json
    refused 69 'the tokenizer: GGUF has none of single characters' llm-quantize -q -t keep m out.gguf
    [[ $(< out.gguf) == kept ]]
}

@test "llama.cpp's tensors: a head where it wants one beside a tied embedding; biases that it does not read are refused" {
    local family key kv small='"vocab_size": 256, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2'
    seq 1 100 > text
    llm-tokenize train --model byte -o tok.json text
    for family in olmo2 stablelm gpt_neox gemma2; do
        kv=', "num_key_value_heads": 1'
        [[ $family != gpt_neox ]] || kv=
        echo "{\"model_type\": \"$family\", $small$kv, \"tie_word_embeddings\": true}" > c.json
        llm-train -q -c c.json -T tok.json -n 0 -o tied.llm
        llm-quantize -q -t f32 tied.llm tied.gguf
        [[ $(LC_ALL=C grep -ac '[^_]output[.]weight' tied.gguf) == $([[ $family == gemma2 ]] && echo 0 || echo 1) ]]
        llm-infer -q -m tied.llm --precision f32 --score -f text | cut -f3 > want
        llm-infer -q -m tied.gguf --precision f32 --score -f text | cut -f3 > got
        near_lines got want 1e-4
    done
    for key in 'olmo2 "attention_bias": true' 'qwen3 "attention_bias": true' 'smollm3 "mlp_bias": true' 'gpt_neox "attention_bias": false' \
        'gemma2 "tie_word_embeddings": false'; do
        family=${key%% *}
        kv=', "num_key_value_heads": 1'
        [[ $family != gpt_neox ]] || kv=
        echo "{\"model_type\": \"$family\", $small$kv, ${key#* }}" > c.json
        llm-train -q -c c.json -T tok.json -n 0 -o m.llm
        key=${key#*\"}
        refused 69 "${key%%\"*}: GGUF cannot say this of a model of type '$family'" llm-quantize -q -t f32 m.llm m.gguf
    done
    # what it does not look at is said
    said() { # CONFIG MESSAGE...: of a model with `small` and these keys
        local message
        echo "{$small, $1}" > c.json
        llm-train -q -c c.json -T tok.json -n 0 -o m.llm
        run -0 --separate-stderr llm-quantize -t f32 m.llm m.gguf
        for message in "${@:2}"; do
            [[ $stderr == *"$message"* ]] || fail "$stderr"
        done
    }
    kv='"sliding_window": 8, "num_key_value_heads": 1, "max_position_embeddings": 64, "rms_norm_eps": 1e-6'
    key='"rope_parameters": {"rope_type": "yarn", "factor": 2, "beta_slow": 2, "original_max_position_embeddings": 32}'
    said "\"model_type\": \"mistral\", $kv, $key" \
        "sliding_window: llama.cpp has none for a model of type 'mistral': it differs from the 9-th token on" \
        "rope_scaling: llama.cpp takes 32 and 1 as beta_fast and beta_slow"
    kv='"num_key_value_heads": 1, "max_position_embeddings": 64, "rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1'
    said "\"model_type\": \"qwen2\", $kv, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 32}" \
        "rope_scaling: llama.cpp does not load a model of type 'qwen2' with factors of rotary frequencies"
    latent='"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "moe_intermediate_size": 16, "first_k_dense_replace": 0'
    key='"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "topk_method": "group_limited_greedy", "q_lora_rank": 8'
    said "\"model_type\": \"deepseek_v2\", $latent, $key" \
        "topk_method: llama.cpp chooses groups of experts by their two best, and a model of type 'deepseek_v2' by the best one"
    # groups that are all chosen are one group: llama.cpp ends itself at other numbers
    key='"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 2, "rope_scaling": {"rope_type": "linear", "factor": 4}'
    said "\"model_type\": \"deepseek_v3\", $latent, $key, \"q_lora_rank\": null" \
        "rope_scaling: llama.cpp multiplies attention scores of a model of type 'deepseek_v3' by 1.29648," \
        "q_lora_rank: llama.cpp loads a model of type 'deepseek_v3' without it only with 26 or 27 layers"
    LC_ALL=C grep -aqP 'expert_group_count\x04\x00\x00\x00\x01\x00\x00\x00' m.gguf
    llm-infer -q -m m.llm --precision f32 --score abcdefgh | cut -f3 > want
    llm-infer -q -m m.gguf -T tok.json --precision f32 --score abcdefgh | cut -f3 > got
    near_lines got want 1e-4
}

@test "outputs that cannot be written" {
    refused 74 '' bash -c 'llm-quantize -q -t f16 --to gguf "$0" - > /dev/full' "$M"
    refused 73 'absent/m.gguf' llm-quantize -q -t f16 "$M" absent/m.gguf
    refused 74 '' bash -c 'ulimit -f 8; llm-quantize -q -t f32 "$0" big.gguf' "$M"
    [[ ! -e big.gguf ]]
}
