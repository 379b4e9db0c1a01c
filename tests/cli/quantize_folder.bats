# llm-quantize to folders that transformers reads: what is in them, and what its classes want otherwise than a .llm has it.
load ../helper

setup() { M=$ROOT/tests/golden/tiny; }

# made FAMILY [OPTION...]: a new model as folder/; KEYS: more of its configuration
made() {
    local of='{hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 300'
    rm -rf model.llm folder
    jq -n "{model_type: \"$1\"} + $of${KEYS:+, $KEYS}}" > config.json
    llm-train -q -c config.json "${@:2}" -T "$M/tokenizer.json" -n 0 -o model.llm
    llm-quantize -q -t f32 model.llm folder/
    llm-infer -m model.llm --precision f32 --score "Once upon a time" > a
    llm-infer -m folder --precision f32 --score "Once upon a time" | cmp - a
}

@test "a folder has weights alone in model.safetensors, and says the same; --to folder; one that exists is written into" {
    need_tool jq
    local header
    llm-quantize -q -t f32 "$M" model.llm
    llm-quantize -q -t f32 model.llm one/
    llm-quantize -q -t f32 --to folder model.llm two
    mkdir three
    llm-quantize -q -t f32 model.llm three
    for folder in two three; do diff -r one $folder; done
    llm-infer -m model.llm --precision f32 --score "Once upon a time" > a
    llm-infer -m one --precision f32 --score "Once upon a time" | cmp - a
    header=$(od -An -N8 -tu8 one/model.safetensors | tr -d ' ')
    tail -c +9 one/model.safetensors | head -c "$header" > header
    jq -e '.__metadata__.format == "pt" and ([keys[] | select(startswith("tokenizer"))] == [])' header
    # the family's own class would split texts by rules of its own
    jq -e '.tokenizer_class == "PreTrainedTokenizerFast"' one/tokenizer_config.json
    assert_equal "$(llm-tokenize info -T one/tokenizer.json | grep '^id')" "$(llm-tokenize info -T "$M/tokenizer.json" | grep '^id')"
}

@test "what transformers' classes have other defaults for, or want whole, is written so" {
    need_tool jq
    made gemma2 --set query_pre_attn_scalar=16
    grep -q '"query_pre_attn_scalar": *16,' folder/config.json
    made phi3
    jq -e 'has("pad_token_id") and .pad_token_id == null' folder/config.json
    made mamba
    grep -q '"expand": *2,' folder/config.json
    KEYS='state_size: 8, num_heads: 4, head_dim: 16, n_groups: 1' made mamba2
    jq -e '.time_step_limit == [0, {"__float__": "Infinity"}] and .expand == 2' folder/config.json
    # transformers' DeepSeek class has experts from the first layer on, unless the configuration says otherwise
    made deepseek_v2 --set n_routed_experts=4 --set num_experts_per_tok=2 --set moe_intermediate_size=16 --set first_k_dense_replace=1 \
        --set kv_lora_rank=16
    jq -e '.first_k_dense_replace == 1 and .n_shared_experts >= 1 and .n_routed_experts == 4' folder/config.json
    made deepseek_v2 --set n_routed_experts=null --set kv_lora_rank=16
    jq -e '.first_k_dense_replace == 2 and (has("n_routed_experts") | not)' folder/config.json
}

@test "the chat template and the tokens that end a text go along" {
    need_tool jq
    cp -r "$M" chat
    echo "{{ messages[0]['content'] }}" > chat/chat_template.jinja
    llm-quantize -q -t bf16 chat model.llm
    llm-quantize -q -t keep model.llm folder/
    [[ $(cat folder/chat_template.jinja) == "{{ messages[0]['content'] }}" ]]
    jq -e '.eos_token_id == 0' folder/generation_config.json
}

@test "quantised weights and standard output are refused, and nothing is written" {
    local expected="llm-quantize: folder/: a folder of Hugging Face's: expected"
    refused() { # WHAT OPTION...: before the model is read
        run -69 --separate-stderr llm-quantize -q "${@:2}" no-model.llm folder/
        assert_equal "$stderr" "$expected $1"
        [[ ! -e folder ]]
    }
    echo some text > text
    refused "f32, f16, bf16 or keep, found q8_0" -t q8_0 --method gptq --calibrate text
    refused "f32, f16, bf16 or keep, found q4_k" -t q4_k_m
    refused "f32, f16, bf16 or keep, found q5_0" -t f32 --tensor-type '*v_proj*=q5_0'
    refused "f32, f16, bf16 or keep, found q6_k" -t bf16 --output-tensor-type q6_k
    refused "f32, f16, bf16 or keep, found q8_0" -t bf16 --token-embedding-type q8_0
    refused "no --budget, whose types it does not take" --budget 4bpw --calibrate text
    refused "no --factors-only, whose types it does not take" -t f32 --rank 1 --factors fix.llm --factors-only
    llm-quantize -q -t q8_0 "$M" q8.llm
    run -69 --separate-stderr llm-quantize -q -t keep q8.llm folder/
    [[ $stderr == "llm-quantize: folder/: a folder of Hugging Face's: tensor '"*"': expected f32, f16 or bf16, found q8_0" ]]
    [[ ! -e folder ]]
    run -2 --separate-stderr llm-quantize -q -t f32 --to folder "$M" -
    [[ ${stderr_lines[0]} == "llm-quantize: --to folder: expected the name of a folder as OUT, found -" ]]
}

@test "a place that cannot be written to is refused before the model is read; no folder stays that was made for it" {
    echo file > file
    run -73 --separate-stderr llm-quantize -q -t f32 no-model.llm no/such/
    assert_equal "$stderr" "llm-quantize: no/such/: No such file or directory"
    run -73 --separate-stderr llm-quantize -q -t f32 --to folder no-model.llm file
    [[ $stderr == "llm-quantize: file"*": Not a directory" ]]
    mkdir -p taken/model.safetensors
    run -73 --separate-stderr llm-quantize -q -t f32 no-model.llm taken
    [[ $stderr == "llm-quantize: taken/model.safetensors: "* ]]
    run -66 llm-quantize -q -t f32 no-model.llm folder/
    [[ ! -e folder ]]
    mkdir empty
    run -66 llm-quantize -q -t f32 no-model.llm empty/
    [[ -d empty && -z $(ls -A empty) ]]
    run -74 --separate-stderr bash -c 'ulimit -f 4; llm-quantize -q -t f32 "$0" folder/' "$M"
    [[ ! -e folder ]]
    run -74 --separate-stderr bash -c 'ulimit -f 4; llm-quantize -q -t f32 "$0" empty/' "$M"
    [[ -d empty && -z $(ls -A empty) ]]
}

@test "n-grams are refused" {
    run -69 --separate-stderr llm-quantize -q -t f32 "$ROOT/tests/golden/ngram/toy.arpa" folder/
    assert_equal "$stderr" "llm-quantize: folder/: a folder of Hugging Face's: expected a network, found n-grams"
    [[ ! -e folder ]]
}

@test "a folder that holds an older model is written over; files that the new one has not stay, also if writing fails" {
    need_tool jq
    local name
    llm-quantize -q -t f32 "$M" wanted/
    made mamba
    [[ ! -e wanted/chat_template.jinja ]]
    echo old > folder/chat_template.jinja
    cp -r folder before
    run -74 --separate-stderr bash -c 'ulimit -f 4; llm-quantize -q -t f32 "$0" folder' "$M"
    diff -r before folder
    llm-quantize -q -t f32 "$M" folder
    for name in wanted/*; do cmp "$name" "folder/${name##*/}"; done
    assert_equal "$(cat folder/chat_template.jinja)" old
}
