# llm-tokenize: other people's tokenizers, good and bad.
load ../helper

# tok JSON: a tokenizer.json around a tiny byte-level model; arguments replace its parts.
tok() {
    printf '{"added_tokens": %s, "normalizer": %s, "pre_tokenizer": %s, "post_processor": %s, "decoder": %s, "model": %s}' \
        "${added-[]}" "${normalizer-null}" "${pre-{\"type\": \"ByteLevel\", \"add_prefix_space\": false\}}" "${post-null}" "${decoder-null}" \
        "${model-{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"Ġ\": 3\}, \"merges\": [\"a b\"]\}}"
}

# refused STATUS WORDS: encode with tok.json ends so, in one line that has these words.
refused() {
    run "-$1" --separate-stderr llm-tokenize encode -T tok.json --text <<< a
    one_line "$stderr"
    [[ $stderr == *"$2"* ]] || fail "expected '$2' in: $stderr"
}

@test "the tiny model itself works" {
    tok > tok.json
    [[ $(printf 'ab ba' | llm-tokenize encode -T tok.json --text) == "2 3 1 0" ]]
    run -65 --separate-stderr llm-tokenize encode -T tok.json --text <<< c
    assert_equal "$stderr" "llm-tokenize encode: standard input: byte 0x63 has no token in this vocabulary"
}

@test "components that are not supported are refused by name" {
    normalizer='{"type": "Lowercase"}' tok > tok.json
    refused 69 "normalizer 'Lowercase' is not supported"
    pre='{"type": "Metaspace"}' tok > tok.json
    refused 69 "pre_tokenizer 'Metaspace' is not supported"
    post='{"type": "Frob"}' tok > tok.json
    refused 69 "post_processor 'Frob' is not supported"
    decoder='{"type": "WordPiece"}' tok > tok.json
    refused 69 "decoder 'WordPiece' is not supported"
    model='{"type": "Unigram", "vocab": []}' tok > tok.json
    refused 69 "model 'Unigram' is not supported"
    model='{"type": "BPE", "vocab": {"a": 0}, "merges": [], "byte_fallback": true}' tok > tok.json
    refused 69 "'byte_fallback' is not supported"
    added='[{"id": 9, "content": "x", "lstrip": true}]' tok > tok.json
    refused 69 "'lstrip' is not supported"
    pre='{"type": "Split", "pattern": {"Regex": "x"}, "behavior": "MergedWithNext", "invert": false}' tok > tok.json
    refused 69 "MergedWithNext"
}

@test "malformed tokenizers: 65, one line" {
    echo '{' > tok.json;                                                                  refused 65 tok.json
    echo '{}' > tok.json;                                                                 refused 65 tok.json
    echo '{"model": {"type": "BPE"}, "model": {}}' > tok.json;                            refused 65 tok.json
    echo '[1]' > tok.json;                                                                refused 65 tok.json
    : > tok.json;                                                                         refused 65 tok.json
    model='{"type": "BPE", "vocab": {"a": 0}}' tok > tok.json;                            refused 65 merges
    model='{"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}' tok > tok.json;      refused 65 "given twice"
    model='{"type": "BPE", "vocab": {"a": -1}, "merges": []}' tok > tok.json;             refused 65 "token id -1"
    model='{"type": "BPE", "vocab": {"a": 9999999}, "merges": []}' tok > tok.json;        refused 65 "token id 9999999"
    model='{"type": "BPE", "vocab": {"a": 1.5}, "merges": []}' tok > tok.json;            refused 65 integer
    model='{"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}' tok > tok.json;         refused 65 "'b' is not in the vocabulary"
    model='{"type": "BPE", "vocab": {"a": 0}, "merges": ["ab"]}' tok > tok.json;          refused 65 "merges[0]"
    model='{"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}' tok > tok.json;         refused 65 "merges[0]"
    model='{"type": "BPE", "vocab": {}, "merges": []}' tok > tok.json;                    refused 65 empty
    added='[{"id": 0}]' tok > tok.json;                                                   refused 65 "added_tokens[0]"
    added='[{"id": 2, "content": "x"}]' tok > tok.json;                                   refused 65 "token id 2 is 'ab' in the vocabulary and 'x'"
    added='[{"content": "x"}]' tok > tok.json;                                            refused 65 "added_tokens[0]"
    pre='{"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}' tok > tok.json; refused 65 "split pattern"
    post='{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {}}' tok > tok.json; refused 65 "'x'"
    post='{"type": "BertProcessing", "cls": ["x", 77], "sep": ["y", 0]}' tok > tok.json;  refused 65 "id 77"
}

@test "rank files: unknown ones need a pattern; bad lines are named" {
    printf 'YQ== 0\nYg== 1\nYWI= 2\n' > ranks
    run -65 --separate-stderr llm-tokenize encode -T ranks --text <<< ab
    one_line "$stderr"
    [[ $stderr == *"--pattern"* ]]
    [[ $(printf 'abba' | llm-tokenize encode -T ranks --pattern gpt2 --text) == "2 1 0" ]]
    [[ $(printf 'abba' | llm-tokenize encode -T ranks --pattern '.' --text) == "0 1 1 0" ]]
    printf 'YQ== 0\nYg=\n' > ranks
    run -65 --separate-stderr llm-tokenize encode -T ranks --pattern gpt2 --text <<< ab
    [[ $stderr == *"line 2"* ]]
    printf 'YQ== 0\nYg== 1\nYQ== 2\n' > ranks
    run -65 --separate-stderr llm-tokenize encode -T ranks --pattern gpt2 --text <<< ab
    assert_equal "$stderr" "llm-tokenize encode: ranks: ranks 0 and 2 have the same bytes"
    printf 'YQ== 0\nYg== 99999999999999999999\n' > ranks
    run -65 --separate-stderr llm-tokenize encode -T ranks --pattern gpt2 --text <<< ab
    one_line "$stderr"
}

@test "NFC: what combines is combined, also across reads; added tokens stay" {
    normalizer='{"type": "NFC"}' model='{"type": "BPE", "vocab": {"Ã": 0, "©": 1, "e": 2, "Ì": 3, "ģ": 4}, "merges": []}' tok > tok.json
    [[ $(printf 'e\xcc\x81' | llm-tokenize encode -T tok.json --text) == "0 1" ]]
    [[ $({ printf 'e'; sleep 0.1; printf '\xcc'; sleep 0.1; printf '\x81'; } | llm-tokenize encode -T tok.json --text) == "0 1" ]]
}

@test "published tokenizers: identities, sizes, known special tokens" {
    need_shared tokenizers
    dir=$SHARED/data/tokenizers
    id() { llm-tokenize info -T "$1" | sed -n 's/^id\t//p'; }
    a=$(id "$dir/gpt2/tokenizer.json")
    [[ $(id "$dir/tiktoken/r50k_base.tiktoken") == "$a" && $(id "$dir/gpt2/encoder.json") == "$a" ]]
    run -0 llm-tokenize info -T "$dir/tiktoken/cl100k_base.tiktoken"
    assert_line $'vocab_size\t100277'
    assert_line $'eos\t100257'
}

@test "training is that of Hugging Face's trainer and of CS336's reference" {
    need_shared bpe-train
    dir=$SHARED/data
    merges() { sed -n '/"merges"/,$p' "$1" | sed -n 's/^      "\(.*\)",\{0,1\}$/\1/p' | sed 's/\\"/"/g; s/\\\\/\\/g'; }
    llm-tokenize train -q --vocab-size 500 --special '<|endoftext|>' --ties lexical "$dir/bpe-train/corpus.en" > tok.json
    cmp <(merges tok.json) "$dir/bpe-train/train-bpe-reference-merges.txt"
    need_tool jq
    llm-tokenize train -q --vocab-size 30000 --min-frequency 1 --alphabet seen --lines "$dir/corpora/tinyshakespeare.txt" > tok.json
    golden=$dir/bpe-train/hf-bytelevel-bpe-tinyshakespeare.tokenizer.json
    [[ $(merges tok.json | wc -l) == 21271 ]]
    cmp <(merges tok.json) <(jq -r '.model.merges[] | if type == "array" then join(" ") else . end' "$golden")
    cmp <(jq -cS .model.vocab tok.json) <(jq -cS .model.vocab "$golden")
}

@test "info --export: a rank file as tokenizer.json is the same tokenizer" {
    printf 'YQ== 0\nYg== 1\nYWI= 2\nYmE= 3\nYWJh 4\n' > ranks
    for pattern in gpt2 llama3 cl100k qwen2 o200k '[ab]{1,2}|.'; do
        llm-tokenize info -T ranks --pattern "$pattern" --export > tok.json
        run -0 diff <(llm-tokenize info -T ranks --pattern "$pattern") <(llm-tokenize info -T tok.json)
        [[ $(printf 'abaab' | llm-tokenize encode -T tok.json --text) == $(printf 'abaab' | llm-tokenize encode -T ranks --pattern "$pattern" --text) ]]
    done
    need_shared tokenizers
    dir=$SHARED/data/tokenizers
    llm-tokenize info -T "$dir/tiktoken/cl100k_base.tiktoken" --export > tok.json
    run -0 diff <(llm-tokenize info -T "$dir/tiktoken/cl100k_base.tiktoken") <(llm-tokenize info -T tok.json)
}
