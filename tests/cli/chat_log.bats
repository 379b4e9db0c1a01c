# llm-infer --chat: conversations that outgrow the context, logs of conversations, thoughts.
load ../helper
export LLM_THREADS=1

setup() {
    M=$ROOT/tests/golden/tiny
    CHAT=(llm-infer -m "$M" --chat --chat-template chatml -n 6 --temp 1)
}

@test "--shift: whole turns are forgotten, the oldest first; answers are those of the conversation that is left" {
    for ((k = 0; k < 12; k++)); do echo "Once upon a time $k"; done > turns
    run -65 --separate-stderr "${CHAT[@]}" -q -c 200 --lines -f turns
    [[ $stderr == *"turns: line "*": prompt: expected at most 200 tokens (the context), found "* ]]
    run -0 --separate-stderr "${CHAT[@]}" -c 200 --shift --lines --system 'be kind' --chat-log log.jsonl -f turns
    [[ $stderr == *"llm-infer: the context is full: 1 of the oldest turns is forgotten"* ]]
    assert_equal "$(jq -r '.messages[0] | [.role, .content] | join(" ")' log.jsonl)" 'system be kind'
    assert_equal "$(jq -r '.messages[-2].content' log.jsonl)" 'Once upon a time 11'
    jq -e '[.messages[1:][].role] | length >= 4 and . == ([range(length)] | map(if . % 2 == 0 then "user" else "assistant" end))' log.jsonl
    # the last answer is what the conversation that is left makes
    jq -c '{messages: .messages[:-1]}' log.jsonl | "${CHAT[@]}" -q -c 200 --jsonl | jq -c '.message' | cmp - <(jq -c '.messages[-1]' log.jsonl)
    refused 2 "--shift and --chat-log go with --chat, and not with --jsonl" "${CHAT[@]}" --jsonl --shift x
}

@test "--chat-log: a line for each conversation, appended; what llm-tokenize and --jsonl read" {
    "${CHAT[@]}" -q --chat-log log.jsonl 'Once' > first
    printf '%s\n' 'upon' 'a time' | "${CHAT[@]}" -q --lines --chat-log log.jsonl > second
    assert_equal "$(jq -c '[.messages[].role]' log.jsonl)" '["user","assistant"]
["user","assistant","user","assistant"]'
    llm-tokenize encode -q -T "$M" --chat --chat-template chatml -o log.tok log.jsonl
    printf '{"messages": [' >> log.jsonl # a torn line of somebody else's stays: it is appended to as it is
    refused 2 "--chat-log: expected a file, found '-'" "${CHAT[@]}" --chat-log - x
    refused 2 "go with --chat" llm-infer -m "$M" --chat-log f x
    run -0 "${CHAT[@]}" -q -n 0 --chat-log empty.jsonl 'Once'
    run -73 --separate-stderr "${CHAT[@]}" -q --chat-log nowhere/f 'Once'
    one_line "$stderr"
}

@test "thoughts are dimmed on a terminal, and nowhere else, nor with NO_COLOR" {
    need_tool script
    local c="llm-infer -m $M -q --chat --chat-template chatml -n 40 --regex '<think>ab</think>c' x"
    bash -c "$c" > plain
    assert_equal "$(cat plain)" '<think>ab</think>c'
    TERM=xterm script -qec "$c" /dev/null < /dev/null > shown
    assert_equal "$(tr -d '\r' < shown)" $'<think>\e[2mab</think>\e[0mc'
    NO_COLOR=1 TERM=xterm script -qec "$c" /dev/null < /dev/null | tr -d '\r' | cmp - plain
    TERM=dumb script -qec "$c" /dev/null < /dev/null | tr -d '\r' | cmp - plain
    TERM=xterm script -qec "$c > file" /dev/null < /dev/null
    cmp file plain
    # a template may begin the thought
    printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}<think>{{ "\n" }}' > t.jinja
    local begun="llm-infer -m $M -q --chat --chat-template t.jinja -n 40 --regex 'ab</think>c' x"
    TERM=xterm script -qec "$begun" /dev/null < /dev/null > shown
    assert_equal "$(tr -d '\r' < shown)" $'\e[2mab</think>\e[0mc'
    NO_COLOR=1 TERM=xterm script -qec "$begun" /dev/null < /dev/null > shown
    assert_equal "$(tr -d '\r' < shown)" 'ab</think>c'
    # a thought that is cut leaves the terminal as it was
    TERM=xterm script -qec "${c/-n 40/-n 4}" /dev/null < /dev/null | tr -d '\r\n' > shown
    [[ $(cat shown) != *$'\e[2m'* || $(cat shown) == *$'\e[0m' ]]
}

@test "--no-think reaches the template" {
    printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking is defined and not enable_thinking %}NO THOUGHT{% endif %}' > t.jinja
    local c=(llm-infer -m "$M" -q --chat --chat-template t.jinja --jsonl --no-timings -n 0)
    local with without
    with=$("${c[@]}" <<< '{"messages": [{"role": "user", "content": "x"}]}' | jq .prompt_tokens)
    without=$("${c[@]}" --no-think <<< '{"messages": [{"role": "user", "content": "x"}]}' | jq .prompt_tokens)
    ((without > with))
    # so do a line's own variables, which stand above the option, in both forms of lines
    local line='{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"enable_thinking": false}}'
    [[ $("${c[@]}" <<< "$line" | jq .prompt_tokens) == "$without" && $("${c[@]}" --no-think <<< "${line/false/true}" | jq .prompt_tokens) == "$with" ]]
    line='{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": '"$line"'}'
    [[ $("${c[@]}" <<< "$line" | jq .response.body.usage.prompt_tokens) == "$without" ]]
    run -65 "${c[@]}" <<< '{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": "x"}'
    [[ $(head -1 <<< "$output") == *'\"chat_template_kwargs\": expected an object'* ]]
    refused 2 "--no-think goes with --chat" llm-infer -m "$M" --no-think x
}
