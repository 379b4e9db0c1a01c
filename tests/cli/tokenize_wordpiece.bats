# llm-tokenize train --model wordpiece: the vocabularies of Hugging Face's trainer (tests/oracle/wordpiece.py), and what they encode.
load ../helper

golden=$ROOT/tests/golden/wordpiece

setup() {
    awk '{ for (k = 0; k < $1; k++) printf "%s ", $2; print "" }' "$golden/words" > text
}

# The vocabulary of a tokenizer.json, sorted.
tokens() {
    sed -n '/^    "vocab": {/,/^    }/s/^ *"\(.*\)": [0-9]*,\{0,1\}$/\1/p' "$1" | LC_ALL=C sort
}

@test "the vocabularies are those of Hugging Face's trainer" {
    for file in "$golden"/*cased-*; do
        name=${file##*/}
        cased=
        [[ $name == uncased-* ]] || cased=--cased
        llm-tokenize train -q --model wordpiece $cased --vocab-size "${name#*-}" -o tok.json text
        diff <(tokens tok.json) "$file"
    done
}

@test "words are encoded, unknown ones too, and come back; the post-processor adds [CLS] and [SEP]" {
    llm-tokenize train -q --model wordpiece --vocab-size 120 --special '<x>' -o tok.json text
    run -0 llm-tokenize info -T tok.json
    assert_line $'type\twordpiece'
    run -0 llm-tokenize encode -T tok.json --text --add-special <<< 'The cats 秘'
    [[ $output == '2 '*' 1 3' ]]
    run -0 bash -c 'llm-tokenize encode -T tok.json --text <<< "The cats sat!" | llm-tokenize decode -T tok.json'
    assert_output 'the cats sat!'
    run -0 llm-tokenize encode -T tok.json --text --special <<< '<x>'
    assert_output 5
}

@test "any number of threads gives the same file; too small a vocabulary and --cased without it are usage errors" {
    for _ in {1..100}; do cat text "$ROOT/README.md"; done > corpus.txt
    for j in 1 2 3; do llm-tokenize train -q -j $j --model wordpiece --vocab-size 500 -o $j.json corpus.txt; done
    cmp 1.json 2.json
    cmp 1.json 3.json
    run -2 --separate-stderr llm-tokenize train --model wordpiece --vocab-size 30 text
    [[ $stderr == *'a vocabulary of 30:'* ]]
    run -2 llm-tokenize train --cased text
}

@test "options before the command are said to be so" {
    run -2 --separate-stderr llm-tokenize -T tok.json encode
    [[ $stderr == *'expected the command before its options: llm-tokenize encode -T'* ]]
}

@test "the date of a template is the one that is given" {
    printf '{"messages": [{"role": "user", "content": "hi"}]}\n' > talk.jsonl
    printf '%s' '{{ messages[0].content }}{{ strftime_now("%d.%m.%Y") }}' > template
    llm-tokenize train -q --model byte -o tok.json < /dev/null
    llm-tokenize encode --chat --chat-template template --date 2024-07-26 -T tok.json talk.jsonl | llm-tokenize decode -T tok.json > out
    [[ $(< out) == hi26.07.2024 ]]
    llm-tokenize encode --chat --chat-template template --date today -T tok.json talk.jsonl > /dev/null
    run -65 --separate-stderr llm-tokenize encode --chat --chat-template template -T tok.json talk.jsonl
    [[ $stderr == *"'strftime_now' is undefined"* ]]
    run -2 llm-tokenize encode --chat --chat-template template --date tomorrow -T tok.json talk.jsonl
    run -2 llm-tokenize encode --date today -T tok.json talk.jsonl
}
