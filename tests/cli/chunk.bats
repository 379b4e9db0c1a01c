# llm-tokenize chunk: passages of documents, as long as tokens allow, ending where the text pauses.
load ../helper

setup() {
    TOK=$ROOT/tests/golden/tiny/tokenizer.json
    cat > notes.md <<'END'
# Garden

The cat played in the garden. It had a red ball! "Was it hers?" she asked.
Nobody knew.

## Tools

Run this, e.g. at night:

```
# no heading
first
second
```

### Spades

A spade. A fork.

## Weather
END
}

# holds DOCUMENT SIZE OVERLAP: what is promised of every passage in passages.jsonl
holds() {
    python3 - "$@" <<'END'
import json, sys
data = open(sys.argv[1], "rb").read()
size, overlap = int(sys.argv[2]), int(sys.argv[3])
rows = [json.loads(line) for line in open("passages.jsonl")]
assert rows
covered, last = bytearray(len(data)), (0, 0)
for r in rows:
    piece = data[r["begin"]:r["end"]]
    assert piece.decode("utf-8", "replace") == r["text"], r  # no character is cut
    assert 0 < r["tokens"] <= size, r
    assert r["begin"] > last[0] or r is rows[0], r
    assert r["end"] > last[1], r
    assert overlap or r["begin"] >= last[1], r
    assert r["text"].strip(), r
    covered[r["begin"]:r["end"]] = b"\1" * len(piece)
    last = (r["begin"], r["end"])
rest = bytes(b for b, c in zip(data, covered) if not c)
assert not rest.decode("utf-8", "replace").strip(), rest  # all of the text is in a passage
assert len({r["id"] for r in rows}) == len(rows)
END
}

# counted: the tokens of each passage are those that encode counts
counted() {
    jq -c '{text}' passages.jsonl | llm-tokenize encode -q -T "$TOK" --jsonl --text > ids
    paste -d ' ' <(jq .tokens passages.jsonl) <(awk '{ print NF }' ids) | awk '$1 != $2 { exit 1 }'
}

@test "passages cover the text, keep to the size, are counted alone and cut no character" {
    need_tool python3 jq
    python3 -c 'print("".join(chr(0x3042 + i * 7 % 80) + ("。" if i % 23 == 22 else "") for i in range(900)), end="")' > kana.txt
    head -c 20000 /dev/urandom | tr -dc 'a-z \n' | head -c 6000 > noise.txt
    cp "$ROOT/lib/token/chunk.c" code.c
    for file in notes.md kana.txt noise.txt code.c "$ROOT/README.md"; do
        for shape in "7 0" "64 0" "64 16" "64 63" "1000 100"; do
            set -- $shape
            llm-tokenize chunk -T "$TOK" --size "$1" --overlap "$2" "$file" > passages.jsonl
            holds "$file" "$1" "$2" || fail "$file $shape"
            counted || fail "$file $shape: tokens"
        done
    done
}

@test "passages end at sections, paragraphs, sentences; a block of code stays whole; headings" {
    need_tool jq
    llm-tokenize chunk -T "$TOK" --size 80 notes.md > passages.jsonl
    run -0 jq -r '.text | split("\n")[0]' passages.jsonl
    assert_output "# Garden
## Tools
### Spades"
    run -0 jq -c .headings passages.jsonl
    assert_output '["Garden"]
["Garden","Tools"]
["Garden","Tools","Spades"]'
    jq -e -s '.[1].text | contains("# no heading\nfirst\nsecond\n```")' passages.jsonl
    # as text it is cut elsewhere, and has no headings
    llm-tokenize chunk -T "$TOK" --size 80 --kind text notes.md | jq -e -s 'all(.headings == null)'
    # sentences, but none after an abbreviation
    printf 'One day there was a cat. She had a ball, e.g. a red one. Where is it? Gone.' > s.txt
    run -0 jq -r .text <(llm-tokenize chunk -T "$TOK" --size 20 s.txt)
    assert_output "One day there was a cat.
She had a ball, e.g. a red one.
Where is it? Gone."
    # what is repeated begins with a sentence
    llm-tokenize chunk -T "$TOK" --size 32 --overlap 20 s.txt > passages.jsonl
    jq -e -s '.[1].text | startswith("She had")' passages.jsonl
    # code: functions
    printf 'int one(void)\n{\n    return 1;\n}\n\nint two(void)\n{\n\n    return 2;\n}\n' > f.c
    run -0 jq -r '.text | split("\n")[0]' <(llm-tokenize chunk -T "$TOK" --size 40 f.c)
    assert_output "int one(void)
int two(void)"
}

@test "documents: lines of JSON, parts, standard input; ids; none" {
    need_tool jq
    printf '{"text": "a cat"}\n\n{"text": "a red ball"}\n' > d.jsonl
    run -0 jq -c '[.id, .source, .line, .text]' <(llm-tokenize chunk -T "$TOK" --jsonl d.jsonl)
    assert_output '["d.jsonl:1#0","d.jsonl",1,"a cat"]
["d.jsonl:3#0","d.jsonl",3,"a red ball"]'
    run -0 jq -c '[.id, .document, .begin, .end]' <(printf 'one;  two ' | llm-tokenize chunk -T "$TOK" --separator ';')
    assert_output '["standard input:1#0",1,0,3]
["standard input:2#0",2,2,5]'
    run -0 llm-tokenize chunk -T "$TOK" /dev/null
    assert_output ""
    run -0 llm-tokenize chunk -T "$TOK" <(printf ' \n\n\t')
    assert_output ""
}

@test "what is refused" {
    refused() {
        local status=$1 want=$2
        shift 2
        run "-$status" --separate-stderr "$@"
        assert_equal "${#stderr_lines[@]}" 1
        [[ $output == "" && $stderr == *"$want"* ]] || fail "$stderr"
    }
    printf 'ab\xe3\x81\x82' > wide.txt
    refused 65 "wide.txt: byte 2: a character of more than 1 tokens" llm-tokenize chunk -T "$TOK" --size 1 wide.txt
    refused 66 "absent.txt" llm-tokenize chunk -T "$TOK" absent.txt
    run -2 llm-tokenize chunk -T "$TOK" --size 8 --overlap 8 wide.txt
    assert_line --partial "--overlap: expected less than --size (8), found 8"
    run -2 llm-tokenize chunk wide.txt
    assert_line --partial "expected -T TOK"
}
