# What a text must be: --grammar, --regex, --choices, --json-schema, --json-object, and the same of lines.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    printf 'red\r\ngreen\n\nblue\n' > colours
    printf 'root ::= "(" root ")" root | [a-f]?\n' > nested.gbnf
}

@test "--regex: every sample matches, at every temperature" {
    for options in '--temp 0' '--temp 1.5 --top-k 0' '--repeat-penalty 1.5 --seed 3'; do
        # shellcheck disable=SC2086  # options are words
        llm-infer -m "$M" --regex '[0-9]{2}(-[a-z]{1,3})?' --samples 4 $options "The cat" | grep . > got
        [[ $(grep -cxE '[0-9]{2}(-[a-z]{1,3})?' got) == 4 ]]
    done
}

@test "--choices: one of the lines, and nothing else" {
    llm-infer -m "$M" --choices colours --samples 8 --temp 2 --top-k 0 "The cat" | grep . > got
    [[ $(grep -cxE 'red|green|blue' got) == 8 ]]
    [[ $(sort -u got | wc -l) -gt 1 ]]
}

@test "--grammar: recursion closes what it opens; the end comes where the text is complete" {
    llm-infer -m "$M" --grammar nested.gbnf --jsonl --no-timings -n 300 --samples 6 --temp 1 <<< '{"prompt": "The cat"}' > got
    jq -r 'select(.finish_reason == "stop") | .text' got > texts
    [[ -s texts ]]
    while IFS= read -r text; do
        while [[ $text == *'()'* || $text =~ [a-f] ]]; do
            text=${text//[a-f]/}
            text=${text//()/}
        done
        [[ -z $text ]]
    done < texts
}

@test "--grammar in Lark's form: ignored spaces, common terminals, the same bytes by an option and a line; what is not supported is named" {
    need_tool jq
    printf '%s\n' '%import common (INT, WS_INLINE)' '%ignore WS_INLINE' '?start: start "+" part -> add' '    | part' 'part: INT | "(" start ")"' > sum.lark
    llm-infer -m "$M" --grammar sum.lark --jsonl --no-timings -n 12 --samples 24 --temp 2 --top-k 0 --top-p 1 --min-p 0 <<< '{"prompt": "The cat"}' > got
    jq -r 'select(.finish_reason == "stop") | .text' got > texts
    [[ $(grep -c . texts) -gt 3 ]]
    while IFS= read -r text; do
        [[ $text =~ ^[0-9()+\ $'\t']+$ ]] || fail "$text"
        (( text + 1 )) || fail "$text"
    done < <(sed 's/\<0\+\([0-9]\)/\1/g' texts)
    jq -cn --rawfile g sum.lark '{prompt: "The cat", grammar: $g}' |
        llm-infer -m "$M" --jsonl --no-timings -n 12 --samples 24 --temp 2 --top-k 0 --top-p 1 --min-p 0 | cmp - got
    echo 'start: "a" <|end|>' > token.lark
    run -65 --separate-stderr llm-infer -m "$M" --grammar token.lark x
    [[ $stderr == "llm-infer: token.lark: line 1: a special token (<…>) is not supported" && -z $output ]]
}

@test "lines bring their own, alone or instead of the option; the result is the same in any company and with any threads" {
    need_tool jq
    for i in {1..12}; do
        printf '{"prompt":"The cat %d","tokens":20,"regex":"[a-z]+ %d"}\n' "$i" "$i"
        printf '{"prompt":"The cat %d","tokens":20,"choices":["up %d","down %d"]}\n' "$i" "$i" "$i"
        printf '{"prompt":"The cat %d","tokens":20,"grammar":"root ::= \\"a\\" root | \\"%d\\""}\n{"prompt":"She","tokens":9,"regex":null}\n{"prompt":"She"}\n' "$i" "$i"
    done > in.jsonl
    llm-infer -m "$M" --jsonl --no-timings --parallel 1 -j 1 --regex 'He (is|was)\.' in.jsonl > one
    llm-infer -m "$M" --jsonl --no-timings --parallel 16 -j 2 --regex 'He (is|was)\.' in.jsonl | cmp - one
    jq -r 'select(.finish_reason == "stop") | .text' one > texts
    grep -qxE '(up|down) 7' texts
    grep -qxE 'a*7' texts
    [[ $(grep -cxE 'He (is|was)\.' texts) == 12 ]]
    [[ $(jq -r 'select(.id % 5 == 4) | .text' one | grep -cE '^He (is|was)\.$') == 0 ]]
}

@test "--json-schema and --json-object: JSON that has what the schema demands" {
    need_tool jq
    echo '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 40}, "s": {"enum": ["on", "off"]}},
           "required": ["n", "s"], "additionalProperties": false}' > schema.json
    llm-infer -m "$M" --json-schema schema.json --jsonl --no-timings --samples 12 -n 300 --temp 1 <<< '{"prompt": "The cat"}' > got
    jq -r 'select(.finish_reason == "stop") | .text' got > texts
    [[ -s texts ]]
    [[ $(jq -s 'all(.n >= 3 and .n <= 40 and (.s == "on" or .s == "off") and (keys == ["n", "s"]))' texts) == true ]]
    llm-infer -m "$M" --json-object --temp 0 -n 400 --logit-bias "$(jq '.model.vocab["}"]' "$M/tokenizer.json")+40" "The cat" > object
    [[ $(jq type object) == '"object"' ]]
    printf '%s\n' '{"prompt":"x","response_format":{"type":"json_schema","json_schema":{"schema":{"const":[1,"a"]}}}}' \
        '{"prompt":"x","json_schema":{"enum":[null]}}' '{"prompt":"x","tokens":3,"response_format":{"type":"text"}}' \
        '{"prompt":"x","response_format":{"type":"xml"}}' '{"prompt":"x","response_format":{"type":"json_schema"}}' \
        '{"prompt":"x","response_format":{"type":"json_schema","json_schema":{"name":"n"}}}' \
        '{"prompt":"x","response_format":{"type":"json_schema","json_schema":{"strict":true}}}' \
        '{"prompt":"x","response_format":{"type":"json_schema","json_schema":{}}}' > in.jsonl
    run -65 --separate-stderr llm-infer -m "$M" --jsonl --no-timings --json-object in.jsonl
    [[ $(jq -c '.text | fromjson' <<< "${lines[0]}") == '[1,"a"]' ]]
    [[ ${lines[1]} == *'"text":"null","finish_reason":"stop"'* ]]
    [[ $(jq -r .finish_reason <<< "${lines[2]}") == length ]]
    [[ ${lines[3]} == *'"error":"\"response_format\": expected \"type\"'* ]]
    for i in 4 5 6 7; do
        [[ ${lines[i]} == *'"error":"\"response_format\": expected \"json_schema\"'*', found none"'* ]]
    done
}

@test "a keyword that is not supported: status 65 and its name, before any token" {
    echo '{"properties": {"a": {"uniqueItems": true}}}' > unique.json
    run -65 --separate-stderr llm-infer -m "$M" --json-schema unique.json x
    [[ $stderr == "llm-infer: unique.json: uniqueItems is not supported" && -z $output ]]
    echo '{"properties": {"x": {"not": {"type": "array", "items": {"type": "object", "propertyNames": {"pattern": "^a"}}}}}, "required": ["x"]}' > not.json
    run -65 --separate-stderr llm-infer -m "$M" --json-schema not.json x
    [[ $stderr == "llm-infer: not.json: propertyNames within not, oneOf or if is not supported" && -z $output ]]
    echo '{"pattern": "a\\b"}' > pattern.json
    run -65 --separate-stderr llm-infer -m "$M" --json-schema pattern.json x
    [[ $stderr == "llm-infer: pattern.json: pattern 'a\\b': character 4: word boundaries are not supported" ]]
}

@test "a size that is no integer from 0, and what is required but is no list: status 65 and the keyword, not a schema without it" {
    local k
    for k in minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains; do
        echo "{\"properties\": {\"a\": {\"$k\": -1}}}" > size.json
        refused 65 "size.json: $k: expected an integer of at least 0" llm-infer -m "$M" --json-schema size.json x
        echo "{\"$k\": 1.5}" > size.json
        refused 65 "size.json: $k: expected an integer of at least 0" llm-infer -m "$M" --json-schema size.json x
    done
    echo '{"type": "string", "pattern": "^a*$", "minLength": 2.0, "maxLength": 2}' > size.json
    llm-infer -m "$M" --json-schema size.json -n 40 x > got
    jq -se '.[0] | length == 2' got
    echo '{"required": "a"}' > required.json
    refused 65 "required.json: required: expected another type of value" llm-infer -m "$M" --json-schema required.json x
}

@test "files as Windows writes them: a byte order mark and lines that end in CR LF" {
    printf '\xef\xbb\xbfred\r\n' > colours
    assert_equal "$(llm-infer -m "$M" --choices colours x)" red
    printf '\xef\xbb\xbfroot ::= "a" b\r\nb ::= "b"\r\n' > a.gbnf
    assert_equal "$(llm-infer -m "$M" --grammar a.gbnf x)" ab
    printf '\xef\xbb\xbfstart: "a" b\r\nb: "b"\r\n' > a.lark
    assert_equal "$(llm-infer -m "$M" --grammar a.lark x)" ab
    printf '\xef\xbb\xbf{"const": null}\r\n' > a.json
    assert_equal "$(llm-infer -m "$M" --json-schema a.json x)" null
}

@test "lines: json_object, names with dashes, vLLM's names; they are options, no members to pass on" {
    printf '{"prompt": "x", %s}\n' '"json_object": true' '"json-object": false, "tokens": 2' '"json-schema": {"const": null}' \
        '"guided_regex": "ab"' '"guided_choice": ["ab"]' '"guided_json": {"const": true}' '"guided_grammar": "root ::= \"ab\""' \
        '"json_object": 1' '"guided_regex": "a", "regex": "a"' > in.jsonl
    run -65 --separate-stderr llm-infer -m "$M" --jsonl --no-timings --regex zz -n 400 --logit-bias "$(jq '.model.vocab["}"]' "$M/tokenizer.json")+40" in.jsonl
    assert_equal "$(jq -c '.text // .error' <<< "$output" | sed -n '3,$p' | tr '\n' ' ')" \
        '"null" "ab" "ab" "true" "ab" "\"json_object\": expected true or false" "expected one of \"regex\" and \"guided_regex\"" '
    [[ ${lines[0]} != *json_object* && $(jq '.text | fromjson | type' <<< "${lines[0]}") == '"object"' ]]
    [[ ${lines[1]} != *json-object* && $(jq -r .text <<< "${lines[1]}") != zz ]]
    jq -nc '{custom_id: "a", body: {prompt: "x", guided_choice: ["ab"]}}' | llm-infer -m "$M" --jsonl |
        jq -e '.response.body.choices[0].text == "ab"'
}

@test "drafts and rollouts keep to it" {
    llm-infer -m "$M" --jsonl --rollout --regex '[0-9]{3}' <<< '{"prompt": "The cat"}' > got
    [[ $(jq '.ids | length' got) -ge 2 ]]
    [[ $(jq -r '.text // .completion // empty' got | grep -cvxE '[0-9]{3}') == 0 ]]
}

@test "what cannot be read is status 65, and names file and line" {
    printf 'root ::= a\na ::= a "x" | "y"\n' > left.gbnf
    run -65 --separate-stderr llm-infer -m "$M" --grammar left.gbnf x
    [[ $stderr == "llm-infer: left.gbnf: line 2: rule 'a' begins with itself (left recursion): write it as a repetition" && -z $output ]]
    run -65 --separate-stderr llm-infer -m "$M" --regex '(a' x
    [[ $stderr == "llm-infer: --regex: character 3: expected ) at the end of a group" ]]
    : > empty
    run -65 --separate-stderr llm-infer -m "$M" --choices empty x
    [[ $stderr == "llm-infer: empty: expected choices"* ]]
    run -66 llm-infer -m "$M" --grammar missing.gbnf x
    run -2 llm-infer -m "$M" --regex a --choices colours x
    run -65 --separate-stderr llm-infer -m "$M" --jsonl --no-timings <<< '{"prompt":"x","regex":"(a"}
{"prompt":"x","regex":"a","choices":["b"]}
{"prompt":"x","tokens":2}'
    [[ ${lines[0]} == '{"id":1,"error":"\"regex\": character 3: expected ) at the end of a group"}' ]]
    [[ ${lines[1]} == '{"id":2,"error":"expected one of \"regex\" and \"choices\""}' ]]
    [[ ${lines[2]} == '{"id":3,"text":'* ]]
}

@test "what leaves no choice is drafted by tokenizers that put a space before a text, too" {
    local char=$ROOT/tests/golden/sentencepiece/char.model
    yes "the red balls and the cat" | head -n 40 | llm-tokenize encode -q -T "$char" -o data.tok
    llm-train -q -c nano --set n_layer=1 --set n_embd=32 --set n_head=2 -l 64 -n 0 -T "$char" -o m.llm data.tok
    llm-infer -m m.llm -q --jsonl --temp 0 --regex hatedcannoteer <<< '{"prompt": "the"}' > got
    jq -e '.text == "hatedcannoteer"' got
    jq -e '.timings | .draft_n_accepted > 5 and .draft_n_accepted <= .draft_n' got
    llm-infer -m m.llm -q --jsonl --temp 0 --regex hatedcannoteer --draft-max 0 <<< '{"prompt": "the"}' | jq .text | diff - <(jq .text got)
}

@test "what leaves no choice is drafted: the same bytes as without drafts, in any company" {
    need_tool jq
    echo '{"type": "object", "properties": {"the small cats": {"enum": ["once upon a time", "never"]}, "number of dogs": {"type": "integer"}},
           "required": ["the small cats", "number of dogs"], "additionalProperties": false}' > schema.json
    for i in {1..6}; do printf '{"prompt": "The cat %d", "samples": %d}\n' $i $((i % 3 + 1)); done > in.jsonl
    for how in '--temp 0' '--temp 1.2 --top-k 0' '--temp 1 --repeat-penalty 1.4 --mirostat 2' '--temp 0.7 -n 13'; do
        # shellcheck disable=SC2086  # options are words
        for more in '' '--parallel 1' '-b 5 --parallel 3 -j 2' '--draft-ngram'; do
            llm-infer -m "$M" -q --jsonl --no-timings --json-schema schema.json $how in.jsonl --draft-max 0 > want
            llm-infer -m "$M" -q --jsonl --no-timings --json-schema schema.json $how in.jsonl $more | cmp - want
        done
    done
    llm-infer -m "$M" -q --jsonl --json-schema schema.json --temp 1 in.jsonl > got
    jq -se 'map(.timings.draft_n_accepted // 0) | add > 0' got
    llm-infer -m "$M" -q --jsonl --json-schema schema.json --temp 1 --draft-max 0 in.jsonl | jq -se 'all(.timings | has("draft_n") | not)'
}

@test "a regex that fails while it is written fails its line alone; one that fails at the first byte is refused before any token" {
    need_tool jq
    long=$(printf 'x?y?%.0s' {1..600})
    run -65 --separate-stderr llm-infer -m "$M" --regex "$long" x
    [[ $stderr == *'rules are nested more than 1000 deep' && -z $output ]]
    printf '{"id": %d, "prompt": "She", "regex": "%s", "temp": 0, "tokens": 4}\n' 1 '[ab]{3}' 2 "a$long" 3 "[c-d]{2}" > in.jsonl
    run -65 --separate-stderr llm-infer -m "$M" --jsonl --no-timings in.jsonl
    assert_equal "$(jq -c '[.id, .error, (.text | length)]' <<< "$output" | tr '\n' ' ')" '[1,null,3] [2,"rules are nested more than 1000 deep",0] [3,null,2] '
    # a completion that fails leaves those beside it, and later ones, what they are alone
    printf '{"id": 1, "prompt": "She", "regex": "0qz%s|[1-9][0-9]{9}", "temp": 2, "seed": 1, "samples": 16, "tokens": 12}\n' "$long" > in.jsonl
    run -65 --separate-stderr llm-infer -m "$M" --jsonl --no-timings --parallel 1 in.jsonl
    local alone=$output
    jq -es '(map(select(.error)) | length | . > 0 and . < 8) and (map(select(.text)) | length > 8 and all(.text | test("^[1-9][0-9]{9}$")))' <<< "$alone"
    run -65 --separate-stderr llm-infer -m "$M" --jsonl --no-timings --parallel 16 -j 2 in.jsonl
    assert_equal "$output" "$alone"
    # so does a line that asks for too much before it is begun
    printf '{"id": "%s", "prompt": "She", "json_schema": {"enum": [%s]}, "temp": 0, "tokens": 4}\n' 1 '"a"' 2 \
        "$(awk 'BEGIN { srand(1); for (i = 0; i < 14000; i++) { s = i; while (length(s) < 95) s = s sprintf("%06d", rand() * 1e6); printf "%s\"%s\"", i ? "," : "", s } }')" > in.jsonl
    run -65 --separate-stderr llm-infer -m "$M" -q --jsonl --no-timings in.jsonl
    assert_equal "$(jq -r '[.id, .error] | @tsv' <<< "$output" | cut -c1-30 | tr '\n' ' ')" $'1\t 2\t"json_schema": the constrain '
}
