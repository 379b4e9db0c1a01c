# llm-tokenize: a folder with tokenizer.model and tokenizer_config.json.
load ../helper

golden=$BATS_TEST_DIRNAME/../golden/sentencepiece

# folder MODEL [CONFIG]
folder() {
    rm -rf folder
    mkdir folder
    cp "$golden/$1.model" folder/tokenizer.model
    [[ $# -lt 2 ]] || echo "$2" > folder/tokenizer_config.json
}

refused() {
    run -65 --separate-stderr llm-tokenize encode -T folder --text <<< a
    one_line "$stderr"
    [[ $stderr == *"$1"* ]] || fail "expected '$1' in: $stderr"
}

ids() { printf "$1" | llm-tokenize encode -T folder --text "${@:2}"; }

@test "without a configuration it is the model" {
    folder bpe
    run -0 diff <(llm-tokenize info -T folder) <(llm-tokenize info -T "$golden/bpe.model")
    [[ $(ids 'a test' --add-special) == $(ids 'a test') ]]
}

@test "tokens around documents: add_bos_token and add_eos_token, or what the class does" {
    folder bpe
    plain=$(ids 'a test')
    folder bpe '{"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>"}'
    [[ $(ids 'a test' --add-special) == "1 $plain" && $(ids 'a test') == "$plain" ]]
    folder bpe '{"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "add_eos_token": true}'
    [[ $(ids 'a test' --add-special) == "$plain 2" ]]
    folder bpe '{"tokenizer_class": "T5Tokenizer", "eos_token": {"content": "<s>"}}'
    [[ $(ids 'a test' --add-special) == "$plain 1" ]]
    run -0 llm-tokenize info -T folder
    assert_line $'eos\t1'
    folder bpe '{"tokenizer_class": 3}'
    refused "tokenizer_class"
}

@test "added_tokens_decoder: tokens beside those of the model" {
    for model in bpe unigram; do
        folder "$model"
        size=$(llm-tokenize info -T folder | sed -n 's/^vocab_size\t//p')
        folder "$model" '{"added_tokens_decoder": {"1": {"content": "<s>", "special": true}, "'"$size"'": {"content": "<|go|>", "special": true},
            "'$((size + 1))'": {"content": "qq", "lstrip": true}}}'
        [[ $(ids '<|go|>' --special) == "$size" ]]
        [[ $(ids '<|go|>') != "$size" ]]
        [[ $(ids ' qq') == "$((size + 1))" ]]
        llm-tokenize info -T folder --export > tok.json
        run -0 diff <(llm-tokenize info -T folder) <(llm-tokenize info -T tok.json)
        [[ $(printf '<|go|>a qq' | llm-tokenize encode -T tok.json --text --special) == "$(ids '<|go|>a qq' --special)" ]]
    done
    folder bpe '{"added_tokens_decoder": {"1": {"content": "<x>"}}}'
    refused "added_tokens_decoder: '1': token id 1 is '<s>' in the model and '<x>' here"
    folder bpe '{"added_tokens_decoder": {"400": {"content": "<x>"}}}'
    refused "added_tokens_decoder: '400': token id 400"
    folder unigram '{"added_tokens_decoder": {"64": {"content": "<x>"}, "65": {"content": "<y>"}}}'
    refused "added_tokens_decoder: '65': token id 65"
    folder unigram '{"added_tokens_decoder": {"1": {"content": "<s>"}, "64": {"content": "<x>"}}}'
    refused "added_tokens_decoder: token id 63 is missing"
    folder bpe '{"added_tokens_decoder": {"x": {"content": "<x>"}}}'
    refused "added_tokens_decoder: 'x': expected an id"
    folder bpe '{"added_tokens_decoder": {"340": {}}}'
    refused "added_tokens_decoder: '340': expected a content"
    folder bpe '{"added_tokens_decoder": []}'
    refused "added_tokens_decoder: expected an object"
}

@test "a tokenizer.model may be ranks; a folder without a tokenizer says what is expected" {
    mkdir folder
    printf 'YQ== 0\nYg== 1\nYWI= 2\n' > folder/tokenizer.model
    [[ $(ids abba --pattern gpt2) == "2 1 0" ]]
    rm folder/tokenizer.model
    run -66 --separate-stderr llm-tokenize encode -T folder --text <<< a
    [[ $stderr == *"tokenizer.model"* ]]
}
