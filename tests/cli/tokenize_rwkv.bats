# llm-tokenize: RWKV's vocabulary files.
load ../helper

setup_vocabulary() {
    printf '%s\n' "1 'a' 1" "2 'b' 1" "3 ' ' 1" "4 'ab' 2" "5 'abb' 3" "6 \" a\" 2" "7 b'\\xff' 1" "8 'é' 2" "9 '\\n' 1" > vocab.txt
}

refused() {
    run -65 --separate-stderr llm-tokenize encode -T vocab.txt --text <<< a
    one_line "$stderr"
    assert_equal "$stderr" "llm-tokenize encode: vocab.txt: $1"
}

@test "a file is recognised; the longest token is taken; any bytes come back" {
    setup_vocabulary
    [[ $(printf 'abbab aé\377' | llm-tokenize encode -T vocab.txt --text) == "5 4 6 8 7" ]]
    [[ $({ printf 'ab'; sleep 0.1; printf 'b'; } | llm-tokenize encode -T vocab.txt --text) == "5" ]]
    [[ $(llm-tokenize decode -T vocab.txt --text <<< "5 4 6 8 0" && echo .) == $'abbab aé<|rwkv_tokenizer_end_of_text|>.' ]]
    [[ $(printf 'a<|rwkv_tokenizer_end_of_text|>' | llm-tokenize encode -T <(cat vocab.txt; printf "%s\n" "10 '<' 1") --text 2>&1) == *"0x7C has no token"* ]]
    [[ $(printf 'a<|rwkv_tokenizer_end_of_text|>' | llm-tokenize encode -T vocab.txt --special --text) == "1 0" ]]
    run -65 --separate-stderr llm-tokenize encode -T vocab.txt --text <<< ac
    assert_equal "$stderr" "llm-tokenize encode: standard input: byte 0x63 has no token in this vocabulary"
    run -0 llm-tokenize info -T vocab.txt
    assert_line $'type\tgreedy'
    assert_line $'vocab_size\t10'
    assert_line $'eos\t0'
}

@test "the exported tokenizer.json is the same tokenizer" {
    setup_vocabulary
    llm-tokenize info -T vocab.txt --export > tok.json
    run -0 diff <(llm-tokenize info -T vocab.txt) <(llm-tokenize info -T tok.json)
    cmp <(printf 'abbab a\377é' | llm-tokenize encode -T vocab.txt) <(printf 'abbab a\377é' | llm-tokenize encode -T tok.json)
}

@test "bad lines are named" {
    printf "1 'a' 1\n2 b 1\n" > vocab.txt;      refused "line 2: expected an id, a text in quotes as Python writes it, and its length in bytes"
    printf "1 'a' 1\n2 'b 1\n" > vocab.txt;     refused "line 2: expected an id, a text in quotes as Python writes it, and its length in bytes"
    printf "1 'a' 1\n2 'bb' 1\n" > vocab.txt;   refused "line 2: a text of 2 bytes, expected 1"
    printf "1 'a' 1\n1 'b' 1\n" > vocab.txt;    refused "line 2: token id 1 is given twice"
    printf "1 'a' 1\n3 'b' 1\n" > vocab.txt;    refused "token id 2 is missing"
    printf "1 'a' 1\n4294967297 'b' 1\n" > vocab.txt; refused "line 2: an id beyond 32 bits"
    printf "1 'a' 1\n2 b'a' 1\n" > vocab.txt;   refused "tokens 1 and 2 have the same bytes"
}

@test "RWKV World: ids of a sample, cut anywhere, are those of the whole" {
    need_shared tokenizers/rwkv-world
    vocab=$SHARED/data/tokenizers/rwkv-world/rwkv_vocab_v20230424.txt
    llm-tokenize encode -T "$vocab" --text "$SHARED/data/corpora/tinyshakespeare.txt" > whole
    llm-tokenize decode -T "$vocab" --text whole > back
    cmp back "$SHARED/data/corpora/tinyshakespeare.txt"
    llm-tokenize info -T "$vocab" --export > tok.json
    llm-tokenize encode -T tok.json --text "$SHARED/data/corpora/tinyshakespeare.txt" | cmp - whole
    [[ $(llm-tokenize encode -T "$vocab" --text <<< "The quick brown fox") == "$(llm-tokenize encode -T tok.json --text <<< "The quick brown fox")" ]]
}
