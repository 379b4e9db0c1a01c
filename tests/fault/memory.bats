# Memory is bounded by the input: at most twice its bytes and 32 MB, and no input without an end fills it.
load ../helper

setup_file() {
    [[ -z ${SANITIZER-} ]] || return 0
    memory_meter
    sentences_tokens
}

setup() {
    need_plain_memory
    M=$ROOT/tests/golden/tiny
}

# letters BYTES: that many letters without a space, the same at each call.
letters() {
    seq 1000000 | tr '0-9\n' 'a-k' | head -c "$1"
}

# prose MB: that many million bytes of sentences on one line.
prose() {
    sentences 100000 | tr '\n' ' ' | head -c 2000000 > part
    for ((i = 0; i < $1; i += 2)); do cat part; done
}

@test "a line of JSON of 24 MB: twice its bytes and 32 MB; the ids of the plain text" {
    prose 24 > text
    { printf '{"id": 1, "text": "'; cat text; printf '"}\n{"text": "the cat"}\n'; } > lines
    for j in 1 2; do
        within 80 llm-tokenize encode -T "$F/tok.json" -j $j --jsonl -o lines.tok lines
        { cat text; } | llm-tokenize encode -T "$F/tok.json" -o text.tok
        llm-tokenize encode -T "$F/tok.json" -o both.tok text <(printf 'the cat')
        cmp lines.tok both.tok
    done
    within 80 llm-tokenize train -q --vocab-size 300 --jsonl -o a.json lines
}

@test "a line of 24 MB of --pair, --label and --tsv: the same bound; the ids of the plain texts" {
    prose 12 > text
    { printf '{"q": "'; cat text; printf '", "a": "the cat", "c": "'; printf 'x","r": "'; cat text; printf '"}\n'; } > lines
    { cat text; printf '\t'; cat text; printf '\tx\n'; } > lines.tsv
    paste -d ' ' <(llm-tokenize encode -T "$F/tok.json" --text text) <(printf 'the cat' | llm-tokenize encode -T "$F/tok.json" --text) > wanted
    within 80 llm-tokenize encode -T "$F/tok.json" -j 2 --text --pair q,a -o ids lines
    cmp ids wanted
    within 80 llm-tokenize encode -T "$F/tok.json" -j 2 --pair q,r -o pair.tok lines
    within 80 llm-tokenize encode -T "$F/tok.json" -j 2 --tsv --pair 1,2 -o tsv.tok lines.tsv
    cmp pair.tok tsv.tok
    within 80 llm-tokenize encode -T "$F/tok.json" -j 2 --label c --field r -o label.tok lines
    llm-tokenize decode -T "$F/tok.json" label.tok | cmp - text
}

@test "a conversation of 24 MB: the same bound, by templates that mark the assistant's text and by others" {
    { prose 12; printf 'cat'; } > text
    { printf '{"messages": [{"role": "user", "content": "'; cat text; printf '"}, {"role": "assistant", "content": "'; cat text; printf 'cat"}]}\n'; } > lines
    { printf '<|im_start|>user\n'; cat text; printf '<|im_end|>\n<|im_start|>assistant\n'; cat text; printf 'cat<|im_end|>\n'; } > rendered
    printf '%s' "{% for m in messages %}{{ '<|im_start|>' + m.role + '
' + m.content + '<|im_end|>
' }}{% endfor %}" > t.jinja
    # As Llama 3's template: a turn is put together in a variable before it is printed.
    printf '%s' "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|im_start|>' + message['role'] + '
'+ message['content'] | trim + '<|im_end|>
' %}{% if loop.index0 == 0 %}{% set content = '' + content %}{% endif %}{{ content }}{% endfor %}" > llama3.jinja
    for template in chatml t.jinja llama3.jinja; do
        within 80 llm-tokenize encode -T "$F/tok.json" -j 2 --chat --chat-template $template -o chat.tok lines
        llm-tokenize decode -T "$F/tok.json" chat.tok | cmp - rendered
        [[ $(llm-tokenize encode -T "$F/tok.json" --chat --chat-template $template --count lines) == $(llm-tokenize encode -T "$F/tok.json" --count rendered) ]]
    done
}

@test "a word of 4 MB: twice its bytes and 32 MB; the ids of its merges" {
    letters 4000000 > word
    within 40 llm-tokenize encode -T "$F/tok.json" -j 2 -o word.tok word
    llm-tokenize decode -T "$F/tok.json" word.tok | cmp - word
}

@test "normalisers may make 32 times the bytes of a text, and not more" {
    local a
    printf -v a 'a%.0s' {1..1000}
    jq --arg a "$a" '.normalizer = {type: "Sequence", normalizers: [range(6) | {type: "Replace", pattern: {String: "a"}, content: $a}]}' "$F/tok.json" > big.json
    run -65 --separate-stderr within 40 llm-tokenize encode -T big.json <(printf aa)
    one_line "$stderr"
    [[ $stderr == *"normalizer Replace: expected at most 32 times the bytes of the text and 1024 more, found more" ]]
    jq --arg a "${a:0:30}" '.normalizer = {type: "Replace", pattern: {String: "a"}, content: $a}' "$F/tok.json" > small.json
    printf 'abab%.0s' {1..1000} | llm-tokenize encode -T small.json --text > ids
    llm-tokenize decode -T small.json ids | cmp - <(printf 'abab%.0s' {1..1000} | sed "s/a/${a:0:30}/g")
}

@test "llm-infer: input without an end is refused" {
    for how in '' --ids --embed '--chat --chat-template chatml' '--chat --lines --chat-template chatml'; do
        run -65 --separate-stderr within 80 llm-infer -m "$M" $how -f /dev/zero
        [[ -z $output && $stderr == *"llm-infer: /dev/zero: "*"expected at most "*" bytes"*", found more" ]] || fail "$stderr"
    done
}

@test "llm-infer --jsonl: a line that is too long is refused, and those after it are answered" {
    { printf '{"prompt": "a", "id": 1}\n'; head -c 60000000 /dev/zero; printf '\n{"prompt": "b", "id": 3}\n'; head -c 60000000 /dev/zero; } > lines
    run -65 --separate-stderr within 80 llm-infer -m "$M" -n 2 --jsonl lines
    assert_equal "$(jq -c .id <<< "$output")" $'1\n2\n3\n4'
    [[ ${stderr_lines[-1]} == 'llm-infer: lines: 2 of 4 lines cannot be used, the first: line 2: expected at most '*' bytes, found more' ]]
    run -65 --separate-stderr within 80 llm-infer -m "$M" --embed --jsonl lines
    assert_equal "$(jq -c .id <<< "$output")" $'1\n2\n3\n4'
}

# unigram, characters: tokenizers of few pieces that have long words in common with none; digits and capitals are unknown to them.
unigram() {
    jq -n '{version: "1.0", pre_tokenizer: {type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: true}, decoder: {type: "Metaspace", replacement: "▁"},
        model: {type: "Unigram", unk_id: 0, vocab: [["<unk>", 0], ["▁", -3], ["a", -2], ["b", -2.1], ["c", -2.2], ["d", -3], ["e", -3], ["f", -3], ["g", -3],
        ["h", -3], ["i", -3], ["j", -3], ["k", -3], ["ab", -3.1], ["abc", -4], ["aa", -3.9], ["aaa", -5.7], ["bcd", -5], ["ka", -4.4]]}}' > unigram.json
}

characters() {
    jq -n '{version: "1.0", model: {type: "BPE", unk_token: "<unk>", fuse_unk: true, vocab: {"<unk>": 0, a: 1, b: 2, c: 3, d: 4, e: 5, f: 6, g: 7, h: 8, i: 9, j: 10, k: 11,
        ab: 12, abc: 13, aa: 14, aaaa: 15, cd: 16, bcd: 17}, merges: [["a", "a"], ["aa", "aa"], ["c", "d"], ["a", "b"], ["ab", "c"], ["b", "cd"]]}}' > characters.json
}

@test "a word of 16 MB under Unigram and under BPE of characters: twice its bytes and 32 MB" {
    unigram
    characters
    letters 16000000 > word
    head -c 16000000 /dev/zero | tr '\0' a > one
    for tok in unigram characters; do
        for text in word one; do
            within 64 llm-tokenize encode -T $tok.json -j 2 -o $text.tok $text
            [[ $tok == characters ]] || llm-tokenize decode -T $tok.json $text.tok | cmp - $text
        done
    done
}
