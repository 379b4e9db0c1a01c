# llm-infer --chat --jsonl: calls of tools: demanded or chosen by the model, as the tools' schemas allow, read into OpenAI's form.
load ../helper
export LLM_THREADS=1

# A model whose last token is a mark of calls, and templates that show how calls are written. None prints the time: two runs see different seconds.
setup() {
    cp -r "$ROOT/tests/golden/tiny" m
    printf '%s' "{% for m in messages %}<|im_start|>{{ m.role }}{% for c in m.tool_calls %}<tool_call>
{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}</tool_call>{% endfor %}{{ m.content or '' }}{% endfor %}<|im_start|>" > hermes.jinja
    printf '%s' "{% for m in messages %}[INST]{{ m.content }}{% endfor %}{# [TOOL_CALLS] #}" > mistral.jinja
    printf '%s' '{% for m in messages %}<|start_header_id|>{{ m.content }}{% endfor %}{# {"name": , "parameters": } #}' > llama3.jinja
    printf '%s' '{% for m in messages %}<function={{ m.content }}</function>{% endfor %}' > functionary.jinja
    printf '%s' "{% for m in messages %}{{ '>>>all\n' + m.content }}{% endfor %}{# >>>\${recipient} #}>>>" > functionary32.jinja
    printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}{# <|START_ACTION|> "tool_name" #}' > command-r7b.jinja
    printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}{# Action:\n```json "tool_name" #}' > command-r.jinja
    printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}{{ functions[:9] }} functools[ {{ datetime[:0] }}' > firefunction.jinja
    printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}' > none.jinja
    TOOLS='[{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]},
        "days": {"$ref": "#/$defs/n"}}, "required": ["city"], "additionalProperties": false, "$defs": {"n": {"type": "integer", "minimum": 2, "maximum": 9}}}}},
        {"type": "function", "function": {"name": "now", "parameters": {"additionalProperties": false}}}]'
}

# mark TEXT SPECIAL: the last token of the vocabulary is this mark.
mark() {
    local last
    last=$(jq -r '.model.vocab | to_entries[] | select(.value == 299) | .key' "$ROOT/tests/golden/tiny/tokenizer.json")
    jq -c --arg t "$1" --argjson special "$2" --arg last "$last" 'del(.model.vocab[$last]) | .model.merges |= map(select(((if type == "array" then join("") else
        gsub(" "; "") end)) != $last)) | .added_tokens += [.added_tokens[0] + {id: 299, content: $t, special: $special}]' \
        "$ROOT/tests/golden/tiny/tokenizer.json" > m/tokenizer.json
}

line() {
    jq -nc --argjson tools "$TOOLS" --argjson more "$1" '{messages: [{role: "user", content: "Weather?"}], tools: $tools} + $more'
}

ask() {
    llm-infer -m m -q --chat --jsonl --no-timings -n 160 --chat-template "$@"
}

is_call='.finish_reason == "tool_calls" and .message.content == null and (.message.tool_calls | length >= 1 and all(.type == "function" and (.id | length) == 9
    and (.function | (.name == "now" or (.name == "get_weather" and (.arguments | fromjson | (.city | IN("Paris", "Rome")) and
    (.days == null or (.days >= 2 and .days <= 9)) and (keys - ["city", "days"]) == []))))))'

@test "tool_choice required: every answer is a call that the schema allows, in every form" {
    need_tool jq
    for form in hermes mistral llama3 functionary functionary32 command-r command-r7b firefunction; do
        line '{"tool_choice": "required", "samples": 8, "temp": 1.5, "parallel_tool_calls": false}' | ask $form.jinja > got
        jq -e "$is_call" got
        TOOLS=$(jq -c 'map(.function)' <<< "$TOOLS") line '{"tool_choice": "required", "samples": 2, "parallel_tool_calls": false}' | ask $form.jinja > flat
        jq -e "$is_call" flat
        line '{"tool_choice": {"type": "function", "function": {"name": "get_weather"}}, "samples": 6, "temp": 1.5, "parallel_tool_calls": false}' |
            ask $form.jinja > got
        [[ $(jq -c "[(.message.tool_calls | length), ($is_call)]" got | sort | uniq -c | tr -s ' ') == ' 6 [1,true]' ]]
        # the same bytes in other company
        line '{"tool_choice": {"type": "function", "function": {"name": "get_weather"}}, "samples": 6, "temp": 1.5, "parallel_tool_calls": false}' |
            ask $form.jinja --parallel 2 -b 9 --no-sharing | cmp - got
    done
}

@test "tool_choice auto: the text is free until the mark of a call, and then as the schemas allow" {
    need_tool jq
    mark '<tool_call>' false
    line '{"logit_bias": {"299": 100}, "parallel_tool_calls": false, "temp": 1, "samples": 4, "tools": '"$(jq -c '.[:1]' <<< "$TOOLS")"'}' | ask hermes.jinja > got
    [[ $(jq -c "[(.message.tool_calls | length), ($is_call)]" got | sort | uniq -c | tr -s ' ') == ' 4 [1,true]' ]]
    # a call that is demanded and cut is a text, with the mark that stood in the prompt
    line '{"tool_choice": "required", "tokens": 4}' | ask hermes.jinja |
        jq -e '.finish_reason == "length" and (.message | has("tool_calls") | not) and (.message.content | startswith("<tool_call>"))'
    # with none, or under another template, it is a text
    line '{"logit_bias": {"299": 100}, "tool_choice": "none", "tokens": 4}' | ask hermes.jinja |
        jq -e '.finish_reason == "length" and .message == {role: "assistant", content: "<tool_call><tool_call><tool_call><tool_call>"}'
    line '{"logit_bias": {"299": 100}, "tokens": 4}' | ask none.jinja | jq -e '.message | has("tool_calls") | not'
    # and without a mark
    line '{"tokens": 9, "logit_bias": {"299": -100}}' | ask hermes.jinja | jq -e '.message | (.content | type) == "string" and (has("tool_calls") | not)'
    # a mark that is a special token, which prints nothing
    mark '[TOOL_CALLS]' true
    line '{"logit_bias": {"299": 100}, "parallel_tool_calls": false, "temp": 1, "samples": 4, "tools": '"$(jq -c '.[:1]' <<< "$TOOLS")"'}' | ask mistral.jinja > got
    [[ $(jq -c "[(.message.tool_calls | length), ($is_call)]" got | sort | uniq -c | tr -s ' ') == ' 4 [1,true]' ]]
}

@test "a template whose prompt ends in the mark of Functionary 3.2: the answer says whom it is for" {
    need_tool jq
    mark $'all\n' false
    line '{"logit_bias": {"299": 100}, "tokens": 4}' | ask functionary32.jinja |
        jq -e '.finish_reason == "length" and .message == {role: "assistant", content: "all\nall\nall\n"}'
    # a call that the model begins at once
    mark $'now\n{}' false
    line '{"logit_bias": {"299": 100}, "tokens": 1}' | ask functionary32.jinja |
        jq -e '.finish_reason == "tool_calls" and .message.content == null and (.message.tool_calls | length == 1 and .[0].function == {name: "now", arguments: "{}"})'
    # without tools, or where none may be called, the prompt says that the answer is for all
    mark $'all\n' false
    local plain='{"messages": [{"role": "user", "content": "Weather?"}], "tokens": 4}'
    ask functionary32.jinja <<< "$plain" > got
    line '{"tool_choice": "none", "tokens": 4}' | ask functionary32.jinja | cmp - got
    printf '%s' "{% for m in messages %}{{ '>>>all\n' + m.content }}{% endfor %}{{ '>>>all\n' }}" > all.jinja
    ask all.jinja <<< "$plain" | cmp - got
    llm-infer -m m -q --chat --chat-template functionary32.jinja -n 4 'Weather?' > got
    llm-infer -m m -q --chat --chat-template all.jinja -n 4 'Weather?' | cmp - got
    # one that is demanded and cut is a text, without a second mark
    mark $'now\n{}' false
    line '{"tool_choice": "required", "tokens": 1}' | ask functionary32.jinja | jq -e '.message.content | startswith(">>>") | not'
}

@test "OpenAI's lines: calls in their form; earlier calls and results go to the template" {
    need_tool jq
    jq -nc --argjson tools "$TOOLS" '{custom_id: "a", body: {model: "m", max_tokens: 160, tools: $tools, parallel_tool_calls: false, tool_choice: {type: "function",
        function: {name: "get_weather"}}, messages: [{role: "user", content: "Weather?"}]}}' | ask hermes.jinja > got
    jq -e '.response.body.choices[0] | '"$is_call" got
    # the answer, and what the tool said, are messages; the arguments, a text, are what the template writes of an object
    jq -c '{messages: [{role: "user", content: "Weather?"}, (.response.body.choices[0].message | .tool_calls[0].function.arguments = "{\"city\": \"Rome\"}"),
        {role: "tool", content: "rain"}], tokens: 5}' got > next.jsonl
    ask hermes.jinja next.jsonl > text
    jq -c '.messages[1].tool_calls[0].function.arguments |= fromjson' next.jsonl | ask hermes.jinja | cmp - text
}

@test "a message whose content is null beside calls is an empty text for templates that expect one" {
    need_tool jq
    printf '%s' '{% for m in messages %}{{ m.content + "|" }}{% endfor %}' > plus.jinja
    jq -nc '{messages: [{role: "user", content: "a"}, {role: "assistant", content: null, tool_calls: [{type: "function", function: {name: "f", arguments: "{}"}}]},
        {role: "tool", content: "b"}], tokens: 3}' > null.jsonl
    ask plus.jinja null.jsonl > got
    jq -c '.messages[1].content = ""' null.jsonl | ask plus.jinja | cmp - got
    # a template that tells null apart gets it
    printf '%s' '{% for m in messages %}{% if m.content is none %}none{% endif %}{{ m.content or "" }}|{% endfor %}' > told.jinja
    run -1 cmp -s <(ask told.jinja null.jsonl) <(jq -c '.messages[1].content = ""' null.jsonl | ask told.jinja)
    # what fails in both forms is told of the first
    printf '%s' '{% for m in messages %}{{ raise_exception("no " ~ m.content) if not m.content }}{% endfor %}x' > fails.jinja
    run -65 --separate-stderr ask fails.jinja null.jsonl
    assert_equal "$output" '{"id":1,"error":"template: line 1: no None"}'
}

@test "tools that the template does not show to the model: a warning, once" {
    need_tool jq
    { line '{"tokens": 2}'; line '{"tokens": 2}'; line '{"tokens": 2, "tools": []}'; } > in.jsonl
    run -0 --separate-stderr llm-infer -m m --chat --jsonl --no-timings --chat-template none.jinja in.jsonl
    assert_equal "$(grep -c 'shows no tools' <<< "$stderr")" 1
    tail -n 1 in.jsonl > none.jsonl
    run -0 --separate-stderr llm-infer -m m --chat --jsonl --no-timings --chat-template none.jinja none.jsonl
    [[ $stderr != *"shows no tools"* ]]
}

@test "what cannot be: status 65, by name, and the other lines are answered" {
    need_tool jq
    {
        line '{"tool_choice": "sometimes"}'
        line '{"tool_choice": {"function": {"name": "gone"}}}'
        line '{"tool_choice": "required", "regex": "a"}'
        line '{"tools": [{"function": {"name": "f", "parameters": {"properties": {"a": {"uniqueItems": true}}}}}]}'
        line '{"tools": [{"type": "function"}]}'
        line '{"tools": null, "tool_choice": "required"}'
        line '{"tools": 3}'
        line '{"tools": ["f"]}'
        line '{"tools": [{"type": "custom", "custom": {"name": "f"}}]}'
        line '{"tools": [{"type": 1, "function": {"name": "f"}}]}'
        line '{"tool_choice": {"type": "allowed_tools", "function": {"name": "now"}}}'
        line '{"regex": "[a-c]+", "tokens": 3}'
    } > in.jsonl
    run -65 --separate-stderr ask hermes.jinja in.jsonl
    assert_equal "$(jq -r 'select(.error).error' <<< "$output")" '"tool_choice": expected "auto", "none", "required" or an object with "function" and its "name"
"tool_choice": no tool is named '"'gone'"'
"tool_choice": expected no other constraint beside it
"tools": f: uniqueItems is not supported
"tools": expected "function" with "name"
"tool_choice": expected "tools" beside it
"tools": expected an array
"tools": expected "function" with "name"
"tools": "type": expected "function", found "custom", which is not supported
"tools": "type": expected "function"
"tool_choice": "type": expected "function", found "allowed_tools", which is not supported'
    [[ $(jq -r 'select(.message).message.content' <<< "$output") =~ ^[a-c]+$ ]]
    line '{"tool_choice": "required"}' > one.jsonl
    run -65 --separate-stderr ask none.jinja one.jsonl
    [[ $output == *'"error":"\"tool_choice\": the chat template shows no form of calls that is known'* ]]
}

@test "firefunction-v2's template gets the tools as a text and the date, from whoever renders it" {
    need_tool jq
    llm-tokenize train -q --model byte -o tok.json < /dev/null
    printf '%s' "{{ messages[0].content + functions + ' functools[ ' + datetime }}" > firefunction.jinja
    line '{}' > talk.jsonl
    rendered() { llm-tokenize encode --chat --chat-template firefunction.jinja --date 2024-07-26 -T tok.json "$1" | llm-tokenize decode -T tok.json; }
    [[ $(rendered talk.jsonl) == "Weather?$(jq --indent 2 .tools talk.jsonl) functools[ Jul 26 2024 "??:??:??" GMT" ]]
    jq -c 'del(.tools)' talk.jsonl > bare.jsonl
    [[ $(rendered bare.jsonl) == 'Weather? functools[ Jul 26 2024 '??:??:??' GMT' ]]
    run -65 --separate-stderr llm-tokenize encode --chat --chat-template firefunction.jinja -T tok.json talk.jsonl
    [[ $stderr == *"'datetime' is undefined"* ]]
}
