# llm-tokenize: what it promises, on its own.
load ../helper

setup() {
    printf 'the cat sat on the mat, the rat sat on the cat\n\nThat is the end of it.\n' > corpus.txt
}

# tok.json: a small tokenizer with two special tokens; eos is known by its name.
make_tok() {
    llm-tokenize train -q --vocab-size 290 --special '<|endoftext|>' --special '<s>' -o tok.json corpus.txt
}

@test "train, encode, decode: the text comes back" {
    make_tok
    llm-tokenize encode -T tok.json corpus.txt > corpus.tok
    llm-tokenize decode -T tok.json corpus.tok > back.txt
    cmp corpus.txt back.txt
    llm-tokenize encode -T tok.json --text < corpus.txt | llm-tokenize decode -T tok.json > back.txt
    cmp corpus.txt back.txt
}

@test "any bytes come back, NULs and all, from bpe and byte" {
    make_tok
    llm-tokenize train -q --model byte < /dev/null > byte.json
    head -c 100000 "$BIN/llm-tokenize" > any
    for tok in tok.json byte.json; do
        llm-tokenize encode -T "$tok" any | llm-tokenize decode -T "$tok" > back
        cmp any back
    done
}

@test "the commands of the manual's EXAMPLES run" {
    printf '{"text": "the cat"}\n{"text": "the mat"}\n' > data.jsonl
    # what the examples of pictures read
    mkdir clip-vit-base-patch32
    cp "$ROOT/tests/golden/image/clip.json" clip-vit-base-patch32/preprocessor_config.json
    cp "$ROOT/tests/golden/image/rgb.png" a.png
    cp "$ROOT/tests/golden/image/rgb.jpg" b.jpg
    printf '\0\0\x08\x03\0\0\0\x01\0\0\0\x01\0\0\0\x02..' > pictures.idx
    printf '\0\0\x08\x01\0\0\0\x01.' > classes.idx
    mapfile -t lines < <(awk '/^\.Sh EXAMPLES/ { on = 1 } /^\.Sh SEE/ { on = 0 } on && /^\.Bd/ { code = 1; next } /^\.Ed/ { code = 0 } on && code' \
        "$ROOT/man/llm-tokenize.1" | sed 's/\\e/\\/g')
    ((${#lines[@]} >= 7))
    for line in "${lines[@]}"; do
        run -0 bash -o pipefail -c "$line"
    done
}

@test "special tokens in the text count only with --special" {
    make_tok
    printf 'a<|endoftext|>b' > in
    run -0 --separate-stderr llm-tokenize encode -T tok.json --text --special in
    [[ $output =~ ^[0-9]+" 0 "[0-9]+$ ]]
    plain=$(llm-tokenize encode -T tok.json --text in)
    [[ " $plain " != *" 0 "* ]]
    llm-tokenize encode -T tok.json --special in | llm-tokenize decode -T tok.json --skip-special > out
    [[ $(cat out) == ab ]]
}

@test "special tokens stand in the vocabulary too: Hugging Face's library would number them anew" {
    make_tok
    grep -q '^      "<|endoftext|>": 0,$' tok.json
    grep -q '^      "<s>": 1,$' tok.json
    # but not where the model would make them
    llm-tokenize train -q --vocab-size 290 --special '#' -o own.json corpus.txt
    run ! grep -q '^      "#": 0,$' own.json
    [[ $(printf 'a#' | llm-tokenize encode -T own.json --text) != *" 0" ]]
    [[ $(printf 'a#' | llm-tokenize encode -T own.json --text --special) == *" 0" ]]
}

@test "--append-eos ends each document; --add-special follows the post-processor" {
    make_tok
    run -0 llm-tokenize encode -T tok.json --text --append-eos --lines corpus.txt
    ((${#lines[@]} == 3))
    for line in "${lines[@]}"; do [[ $line == *" 0" ]]; done
    post='{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [1]}}}'
    sed "s|\"post_processor\": null|\"post_processor\": $post|" tok.json > bos.json
    run -0 llm-tokenize encode -T bos.json --text --add-special corpus.txt
    [[ $output == "1 "* ]]
    run -0 llm-tokenize encode -T bos.json --text corpus.txt
    [[ $output != "1 "* ]]
}

@test "documents: files, separators, lines, lines of JSON" {
    make_tok
    printf 'one--two--' > a
    printf 'three' > b
    count() { llm-tokenize encode -T tok.json --text "$@" | wc -l; }
    [[ $(count a b) == 2 ]]
    [[ $(count --separator -- a b) == 3 ]]
    [[ $(printf 'x\n\ny\n' | count --separator '\n\n') == 2 ]]
    [[ $(printf 'x\ny\nz' | count --lines) == 3 ]]
    printf '{"t": "x", "n": 1}\n\n{"t": "y\\u0000"}' > j
    [[ $(count --jsonl --field t j) == 2 ]]
    [[ $(llm-tokenize encode -T tok.json --separator -- a | llm-tokenize decode -T tok.json --separator '|') == 'one|two|' ]]
}

@test "--count counts" {
    make_tok
    ids=$(llm-tokenize encode -T tok.json --text corpus.txt | wc -w)
    [[ $(llm-tokenize encode -T tok.json --count corpus.txt) == "$ids" ]]
    [[ $(llm-tokenize encode -T tok.json --count < /dev/null) == 0 ]]
}

@test "the ids do not depend on the number of threads, nor does training" {
    seq 4000 | awk '{ print "line " $1 " of the text: " $1 * 7919 % 1000 " cats" }' > long.txt
    cat long.txt{,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,} > longer.txt
    for j in 1 2 5; do
        llm-tokenize train -q -j $j --vocab-size 400 long.txt > tok$j.json
        llm-tokenize encode -j $j -T tok1.json longer.txt > $j.tok
        cmp tok1.json tok$j.json
        cmp 1.tok $j.tok
    done
    LLM_THREADS=3 llm-tokenize encode -T tok1.json longer.txt | cmp - 1.tok
}

@test "invalid UTF-8 passes; --strict names the byte" {
    make_tok
    printf 'ab\xffcd' > bad
    llm-tokenize encode -T tok.json bad | llm-tokenize decode -T tok.json | cmp - bad
    run -65 --separate-stderr llm-tokenize encode -T tok.json --strict -o out.tok bad
    assert_equal "$stderr" "llm-tokenize encode: bad: byte 2: expected UTF-8, found 0xFF"
    assert_not_exist out.tok
    nothing_left
}

@test "char: an id for each character in order; others are refused by name" {
    printf 'hello' | llm-tokenize train --model char > char.json
    [[ $(printf 'hole' | llm-tokenize encode -T char.json --text) == "1 3 2 0" ]]
    run -65 --separate-stderr llm-tokenize encode -T char.json --text <<< 'hello'
    one_line "$stderr"
    [[ $stderr == *"U+000A"* ]]
    run -0 llm-tokenize info -T char.json
    assert_line $'type\tchar'
}

@test "info: lines, JSON, the vocabulary" {
    make_tok
    run -0 llm-tokenize info -T tok.json
    assert_line $'type\tbpe'
    assert_line $'eos\t0'
    assert_line $'special\t1\t"<s>"'
    id=$(llm-tokenize info -T tok.json | awk -F'\t' '$1 == "id" { print $2 }')
    [[ $id =~ ^[0-9a-f]{64}$ ]]
    [[ $(llm-tokenize info -T tok.json --json) == *"\"id\": \"$id\""* ]]
    size=$(llm-tokenize info -T tok.json | awk -F'\t' '$1 == "vocab_size" { print $2 }')
    [[ $(llm-tokenize info -T tok.json --vocab | wc -l) == "$size" ]]
}

@test "info in every form: tables on a terminal, lines without headings in a pipe" {
    need_tool jq
    make_tok
    llm-tokenize info -T tok.json > tsv
    llm-tokenize info -T tok.json --format aligned > aligned
    assert_equal "$(sed -n 1p aligned | tr -s ' ')" 'key value'
    grep -qE '^special +1 +"<s>"$' aligned
    script -qec "llm-tokenize info -T tok.json" /dev/null < /dev/null | tr -d '\r' | cmp - aligned
    llm-tokenize info -T tok.json --format json | cmp - <(llm-tokenize info -T tok.json --json)
    llm-tokenize info -T tok.json --vocab --json | jq -r '[.id, .kind, (.text | tojson)] | @tsv' > json
    llm-tokenize info -T tok.json --vocab | head -n 5 | cut -f 1,2 | cmp - <(head -n 5 json | cut -f 1,2)
    [[ $(llm-tokenize info -T tok.json --vocab --format csv | head -n 1) == $'id,kind,text\r' ]]
    refused 2 'expected neither --json nor --format' llm-tokenize info -T tok.json --export --json
}

@test "a stream made with another tokenizer is refused" {
    make_tok
    llm-tokenize train -q --vocab-size 270 corpus.txt > other.json
    llm-tokenize encode -T tok.json corpus.txt > corpus.tok
    run -65 --separate-stderr llm-tokenize decode -T other.json corpus.tok
    one_line "$stderr"
    [[ $stderr == *"another tokenizer"* ]]
}

@test "a file of another kind is named for what it is: 65, one line" {
    make_tok
    local golden=$ROOT/tests/golden/formats file found
    printf 'GGUF\3\0\0\0\0\0\0\0' > x.gguf
    printf '\050\265\057\375aaaa' > x.zst
    printf 'a\0b' > bytes
    : > empty
    while IFS=$'\t' read -r file found; do
        for command in "decode -T tok.json" "info -T"; do
            # shellcheck disable=SC2086  # words
            run -65 --separate-stderr llm-tokenize $command "$file"
            one_line "$stderr"
            [[ $stderr == "llm-tokenize ${command%% *}: $file: expected "*", found $found" ]] || fail "$command: $stderr"
        done
    done <<END
x.zst	zstd data
bytes	data of an unknown kind
empty	an empty file
END
    run -65 --separate-stderr llm-tokenize decode -T tok.json x.gguf
    [[ $stderr == *"found a GGUF file" ]]
    run -65 --separate-stderr llm-tokenize info -T x.gguf
    one_line "$stderr"
    run -65 --separate-stderr llm-tokenize info -T "$golden/tokens.tok"
    [[ $stderr == *"found a tensor message of kind 'tokens'" ]]
    run -65 --separate-stderr llm-tokenize info -T corpus.txt
    [[ $stderr == *"found text" ]]
    run -65 --separate-stderr llm-tokenize decode -T tok.json tok.json
    [[ $stderr == *"found JSON" ]]
    run -65 --separate-stderr llm-tokenize decode -T tok.json "$golden/checkpoint.llm"
    [[ $stderr == *"found a checkpoint (.llm)" ]]
    run -65 --separate-stderr llm-tokenize decode -T tok.json "$golden/cache.kv"
    [[ $stderr == *"expected a message of kind 'tokens', found 'kvcache'" ]]
    # no ids at all are an empty text only when it is said that they are ids
    run -0 llm-tokenize decode -T tok.json --text empty
    [[ -z $output ]]
}

@test "training on nothing is no tokenizer; a bad pattern is a usage error" {
    : > empty
    for model in bpe char; do
        run -65 --separate-stderr llm-tokenize train --model $model -o tok.json empty
        assert_equal "$stderr" "llm-tokenize train: empty: expected text to train on, found none"
        run -65 --separate-stderr bash -c 'llm-tokenize train --model "$0" --jsonl > out < /dev/null' $model
        assert_equal "$stderr" "llm-tokenize train: standard input: expected text to train on, found none"
        [[ ! -s out && ! -e tok.json ]]
    done
    run -2 --separate-stderr llm-tokenize train --pattern '(' -o tok.json corpus.txt
    assert_equal "$stderr" "llm-tokenize train: --pattern: split pattern '(': missing closing parenthesis"
    run -2 --separate-stderr llm-tokenize train --vocab-size 99999999999 corpus.txt
    [[ $stderr == *"from 1 to 16777216, found"* ]]
}

@test "an id beyond the vocabulary is refused, naming its place" {
    make_tok
    run -65 --separate-stderr llm-tokenize decode -T tok.json <<< '5 6 100000'
    assert_equal "$stderr" "llm-tokenize decode: standard input: token 2: id 100000 is not in the vocabulary of $(llm-tokenize info -T tok.json | sed -n 's/^vocab_size\t//p')"
    run -65 --separate-stderr llm-tokenize decode -T tok.json <<< '5 99999999999'
    run -65 --separate-stderr llm-tokenize decode -T tok.json <<< '5 -1'
    run -65 --separate-stderr llm-tokenize decode -T tok.json <<< '5 x'
    assert_equal "$stderr" "llm-tokenize decode: standard input: byte 2: expected ids in decimal, found 0x78"
}

@test "a cut token stream is refused" {
    make_tok
    llm-tokenize encode -T tok.json corpus.txt > corpus.tok
    for n in 4 40 400 $(($(stat -c %s corpus.tok) - 3)); do
        head -c "$n" corpus.tok > cut.tok
        run -65 --separate-stderr llm-tokenize decode -T tok.json cut.tok
        one_line "$stderr"
    done
}

@test "inputs that are not there: 66" {
    make_tok
    mkdir folder
    run -66 --separate-stderr llm-tokenize encode -T tok.json absent.txt
    one_line "$stderr"
    run -66 --separate-stderr llm-tokenize encode -T tok.json folder
    one_line "$stderr"
    run -66 --separate-stderr llm-tokenize encode -T absent.json corpus.txt
    one_line "$stderr"
    run -66 --separate-stderr llm-tokenize encode -T folder corpus.txt
    one_line "$stderr"
    run -66 --separate-stderr llm-tokenize train folder
    one_line "$stderr"
}

@test "misuse: 2" {
    make_tok
    run -2 --separate-stderr llm-tokenize
    run -2 --separate-stderr llm-tokenize frob
    run -2 --separate-stderr llm-tokenize encode corpus.txt
    run -2 --separate-stderr llm-tokenize encode -T tok.json -j 0 corpus.txt
    run -2 --separate-stderr llm-tokenize encode -T tok.json -j x corpus.txt
    run -2 --separate-stderr llm-tokenize encode -T tok.json --text --count corpus.txt
    run -2 --separate-stderr llm-tokenize encode -T tok.json --jsonl --lines corpus.txt
    run -2 --separate-stderr llm-tokenize encode -T tok.json --separator '\q' corpus.txt
    run -2 --separate-stderr llm-tokenize encode -T - -
    run -2 --separate-stderr llm-tokenize encode -T tok.json - -
    run -2 --separate-stderr llm-tokenize train --vocab-size 10 corpus.txt
    run -2 --separate-stderr llm-tokenize train --vocab-size 0 corpus.txt
    run -2 --separate-stderr llm-tokenize train --special a --special a corpus.txt
    run -2 --separate-stderr llm-tokenize info -T tok.json extra
    LLM_THREADS=zero run -2 --separate-stderr llm-tokenize encode -T tok.json corpus.txt
}

@test "a full disk is 74, a read-only folder 73, and no half output stays" {
    make_tok
    run -74 --separate-stderr bash -c 'llm-tokenize encode -T tok.json corpus.txt > /dev/full'
    run -74 --separate-stderr bash -c 'llm-tokenize decode -T tok.json <<< "5 6 7" > /dev/full'
    run -74 --separate-stderr bash -c 'llm-tokenize train corpus.txt > /dev/full'
    run -74 --separate-stderr bash -c 'llm-tokenize info -T tok.json > /dev/full'
    run -74 --separate-stderr bash -c 'ulimit -f 1; llm-tokenize train -q -o big.json corpus.txt'
    assert_not_exist big.json
    run -73 --separate-stderr llm-tokenize train -o absent/tok.json corpus.txt
    one_line "$stderr"
    nothing_left
}

@test "a reader that leaves early is no error message; a closed stdout is 74" {
    make_tok
    seq -f 'the cat sat on the mat %.0f' 20000 > long.txt
    run bash -c 'set -o pipefail; llm-tokenize encode -T tok.json --text --lines long.txt | head -n 1 > /dev/null'
    [[ $status == 141 && -z $output ]]
    run -74 --separate-stderr bash -c 'llm-tokenize encode -T tok.json --text corpus.txt >&-'
}

@test "SIGTERM: death by the signal, no output" {
    make_tok
    mkfifo in
    llm-tokenize encode -T tok.json -o out.tok in 3>&- &
    pid=$!
    exec 9> in
    echo some text >&9
    sleep 0.3
    kill -TERM "$pid"
    ends_by 143 "$pid"
    exec 9>&-
    assert_not_exist out.tok
    nothing_left
}

@test "JSON lines: bad ones are named by file and line" {
    make_tok
    printf '{"text": "a"}\n{"text": 1}\n' > j
    run -65 --separate-stderr llm-tokenize encode -T tok.json --jsonl j
    assert_equal "$stderr" "llm-tokenize encode: j: line 2: field 'text': expected a string, found something else"
    printf '{"text": "a"}\n{"tex' > j
    run -65 --separate-stderr llm-tokenize encode -T tok.json --jsonl j
    one_line "$stderr"
    [[ $stderr == "llm-tokenize encode: j: line 2: "* ]]
}

@test "text of one letter without end takes no more than its length" {
    make_tok
    head -c 3000000 /dev/zero | tr '\0' a > run.txt
    llm-tokenize encode -T tok.json run.txt | llm-tokenize decode -T tok.json | cmp - run.txt
}

@test "a long stream of text takes constant memory" {
    need_plain_memory
    make_tok
    run -0 bash -c 'ulimit -v 400000; yes "the cat sat on the mat" | head -c 200000000 | llm-tokenize encode -j 2 -T tok.json --count'
    ((output > 1000000))
}

@test "train --model unigram: pieces of words, every character, a tokenizer that comes back as it was" {
    for i in $(seq 200); do echo "the cat sat on the mat and the rat ran to the hat $((i % 7))"; done > lines.txt
    llm-tokenize train -q --model unigram --vocab-size 40 --lines --special '<sep>' -o uni.json lines.txt
    run -0 llm-tokenize info -T uni.json
    assert_line $'type\tunigram'
    assert_line $'special\t0\t"<unk>"'
    assert_line $'special\t3\t"<sep>"'
    run -0 llm-tokenize info -T uni.json --vocab
    assert_line --regexp $'\ttoken\t" t'
    llm-tokenize encode -T uni.json --lines lines.txt | llm-tokenize decode -T uni.json --separator '\n' | cmp - lines.txt
    [[ $(printf 'the cat' | llm-tokenize encode -T uni.json --count) -lt 8 ]]
    llm-tokenize info -T uni.json --export > again.json
    cmp uni.json again.json
    # the same whatever the threads
    llm-tokenize train -q -j 3 --model unigram --vocab-size 40 --lines --special '<sep>' -o three.json lines.txt
    cmp uni.json three.json
    run -2 --separate-stderr llm-tokenize train --model unigram --vocab-size 3 lines.txt
    one_line "$stderr"
    run -65 --separate-stderr llm-tokenize train --model unigram --vocab-size 9 lines.txt
    [[ $stderr == *"characters: the vocabulary has room for 6"* ]]
    echo '  ' > blank
    run -65 --separate-stderr llm-tokenize train --model unigram --vocab-size 40 blank
    [[ $stderr == *"the text has no words"* ]]
}

@test "an empty file is no document: it writes nothing, a document without text is an empty line" {
    sentences 20 > text
    llm-tokenize train -q --vocab-size 270 -o tok.json text
    : > empty
    run -0 --separate-stderr llm-tokenize encode -T tok.json --text empty
    [[ -z $output ]]
    assert_equal "$(llm-tokenize encode -T tok.json --text text empty text | wc -l)" 2
    assert_equal "$(llm-tokenize encode -T tok.json --count < /dev/null)" 0
    echo '{"text": ""}' | llm-tokenize encode -T tok.json --text --jsonl | cmp - <(echo)
    # another member may be a number that C has no integers for
    printf a | llm-tokenize encode -T tok.json --text > want
    echo '{"text": "a", "hash": 18446744073709551615}' | llm-tokenize encode -T tok.json --text --jsonl | cmp - want
    cmp <(llm-tokenize encode -T tok.json text empty) <(llm-tokenize encode -T tok.json text)
}

@test "-T with tokens or a cache: the message says that a tokenizer is expected" {
    sentences 20 > text
    llm-tokenize train -q --vocab-size 270 -o tok.json text
    llm-tokenize encode -T tok.json -o text.tok text
    refused 65 "text.tok: expected a tokenizer (tokenizer.json, tiktoken ranks, SentencePiece's .model, RWKV's vocabulary or a checkpoint), found a tensor message of kind 'tokens'" \
        llm-tokenize encode -T text.tok text
    refused 65 "text.tok: expected a tokenizer (" llm-infer -m "$ROOT/tests/golden/tiny" -T text.tok hi
}
