# llm-infer --jsonl: lines of OpenAI's batches, and log-probabilities of what is generated.
load ../helper
export LLM_THREADS=1

setup() {
    M=$ROOT/tests/golden/tiny
    O=(llm-infer -m "$M" -q --chat --chat-template chatml --jsonl --no-timings)
}

# request ID BODY: a line of a batch, of messages or of a text.
request() {
    jq -nc --arg id "$1" --argjson body "$2" \
        '{custom_id: $id, method: "POST", url: (if $body.messages then "/v1/chat/completions" else "/v1/completions" end), body: $body}'
}

@test "requests of messages and of texts are answered as lines of ours, in OpenAI's form" {
    {
        request a '{"model": "m", "messages": [{"role": "user", "content": "Once"}], "max_tokens": 7, "temperature": 1.1, "top_p": 0.9, "n": 2, "seed": 4}'
        request b '{"prompt": "Once upon", "max_completion_tokens": 5, "presence_penalty": 0.5, "logit_bias": {"42": 3}, "top_k": 5, "stop": ["zz"]}'
        request c '{"prompt": [5, 6, 7], "max_tokens": 3, "repeat_penalty": 1.5, "stream": false, "user": "u", "response_format": {"type": "text"}}'
        echo '{"id": "d", "messages": [{"role": "user", "content": "time"}], "tokens": 4}'
    } > in.jsonl
    {
        echo '{"id": "a", "messages": [{"role": "user", "content": "Once"}], "tokens": 7, "temp": 1.1, "top_p": 0.9, "samples": 2, "seed": 4}'
        echo '{"id": "d", "messages": [{"role": "user", "content": "time"}], "tokens": 4}'
    } | "${O[@]}" > chats
    {
        echo '{"id": "b", "prompt": "Once upon", "tokens": 5, "presence_penalty": 0.5, "logit_bias": {"42": 3}, "top_k": 5, "stop": ["zz"]}'
        echo '{"id": "c", "ids": [5, 6, 7], "tokens": 3, "repeat_penalty": 1.5}'
    } | llm-infer -m "$M" -q --jsonl --no-timings > texts
    "${O[@]}" in.jsonl > out
    jq -c 'select(.id == "d")' out | cmp - <(jq -c 'select(.id == "d")' chats)
    jq -se '.[0].custom_id == "a" and (.[0].id | startswith("batch_req_")) and .[0].error == null and .[0].response.status_code == 200' out
    jq -c 'select(.custom_id == "a").response.body.choices[].message' out | cmp - <(jq -c 'select(.id == "a").message' chats)
    jq -c 'select(.custom_id == "b" or .custom_id == "c").response.body.choices[0].text' out | cmp - <(jq -c .text texts)
    jq -se '.[0].response.body | .model == "m" and .object == "chat.completion" and (.choices | map(.index)) == [0, 1] and .choices[0].logprobs == null
            and .usage.total_tokens == .usage.prompt_tokens + .usage.completion_tokens and (.choices | all(.finish_reason | IN("stop", "length")))' out
    jq -se '.[1].response.body.object == "text_completion"' out
    # a kill between, parts, another order: the same lines
    "${O[@]}" --resume -o all.jsonl in.jsonl
    head -n 2 all.jsonl > part.jsonl
    printf '{"id":"batch_req_' >> part.jsonl
    "${O[@]}" --resume -o part.jsonl in.jsonl
    cmp part.jsonl all.jsonl
    tac in.jsonl | "${O[@]}" --unordered | sort | cmp - <(sort out)
}

@test "what a request asks for and cannot have is refused by name, the others are answered" {
    {
        request a '{"prompt": "Once", "functions": []}'
        request b '{"prompt": ["Once", "upon"]}'
        request c '{"prompt": "Once", "response_format": {"type": "xml"}}'
        request d '{"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"}'
        request e '{"prompt": "Once", "max_tokens": 2, "echo": false, "suffix": null, "functions": null, "n": null}'
        request f '{"prompt": "Once", "temperature": "hot"}'
        echo '{"custom_id": "g", "body": 3}'
    } > in.jsonl
    run -65 --separate-stderr "${O[@]}" in.jsonl
    assert_equal "$(jq -c '[.custom_id, .error.message]' <<< "$output" | grep -v '"[cef]"')" '["a","\"body\": \"functions\" is not understood"]
["b","\"prompt\": expected a string or a list of token ids"]
["d","\"tool_choice\": expected \"tools\" beside it"]
["g","\"body\": expected an object"]'
    jq -se '(.[2].error.message | contains("json_schema")) and .[4].error == null and .[4].response.body.usage.completion_tokens <= 2 and .[5].response == null and .[5].error.code == "invalid_request"' <<< "$output"
}

@test "response_format: the message is such a document" {
    request a '{"messages": [{"role": "user", "content": "x"}], "max_tokens": 60, "response_format": {"type": "json_schema", "json_schema":
        {"name": "n", "schema": {"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"], "additionalProperties": false}}}}' > in.jsonl
    "${O[@]}" in.jsonl | jq -e '.response.body.choices[0] | .finish_reason == "stop" and (.message.content | fromjson | .a | IN(1, 22))'
}

@test "--logprobs: those of --score, whatever the sampling; the most likely tokens first" {
    llm-infer -m "$M" -q --jsonl --no-timings --precision f32 --logprobs 3 -n 8 --temp 1.3 --top-k 5 --repeat-penalty 1.3 --ignore-eos --ids \
        <<< '{"ids": [5, 6, 7]}' > out
    jq -e '.logprobs.content | length == 8 and all(.top_logprobs | length == 3 and .[0].logprob >= .[1].logprob and .[1].logprob >= .[2].logprob)' out
    jq -e '. as $o | [.logprobs.content[].id] == $o.ids' out
    llm-infer -m "$M" -q --precision f32 --score --ids "5 6 7 $(jq -r '.ids | map(tostring) | join(" ")' out)" | tail -n 8 | cut -f1,3 > score
    jq -r '.logprobs.content[] | [.id, .logprob] | @tsv' out > said
    paste score said | awk '{ d = $2 - $4; if ($1 != $3 || d * d > 1e-9) { print; bad = 1 } } END { exit bad || NR != 8 }'
    # samples of a prompt find the same tokens as likely, whichever each of them takes
    llm-infer -m "$M" -q --jsonl --no-timings --logprobs 5 -n 1 --temp 3 --top-k 0 --samples 9 <<< '{"prompt": "Once upon a"}' > out
    assert_equal "$(jq -c '.logprobs.content[0] | [.top_logprobs[] | [.id, .logprob]]' out | sort -u | wc -l)" 1
    assert_equal "$(jq '.logprobs.content[0].id' out | sort -u | wc -l | awk '{print ($1 > 2)}')" 1
    # the choice at temperature 0 is the first of the most likely
    llm-infer -m "$M" -q --jsonl --no-timings --temp 0 -n 6 <<< '{"prompt": "Once", "logprobs": 1}' |
        jq -e '.logprobs.content | length > 0 and all(.id == .top_logprobs[0].id and .logprob == .top_logprobs[0].logprob and (.token | type) == "string")'
    llm-infer -m "$M" -q --jsonl --no-timings -n 3 --logprobs 0 <<< '{"prompt": "Once"}' | jq -e '.logprobs.content | all(.top_logprobs == [])'
    run -0 "${O[@]}" <<< "$(request a '{"prompt": "Once", "max_tokens": 2, "logprobs": 2, "ignore_eos": true}')"
    jq -e '.response.body.choices[0].logprobs | .content == null and (.tokens | length) == 2 and (.token_logprobs | length) == 2
        and (.top_logprobs | length == 2 and all(length == 2)) and (.text_offset | length == 2 and .[0] == 0)' <<< "$output"
    llm-infer -m "$M" -q --jsonl --no-timings <<< '{"id": "a", "prompt": "Once", "max_tokens": 2, "logprobs": 2, "ignore_eos": true}' |
        jq -c '.logprobs.content | [map(.logprob), map(.top_logprobs | map(.logprob) | sort)]' |
        cmp - <(jq -c '.response.body.choices[0].logprobs | [.token_logprobs, (.top_logprobs | map([.[]] | sort))]' <<< "$output")
    # tokens of the text, and how many characters stand before each; what is no character has the name of its bytes
    printf '%s\n' '{"custom_id": "a", "body": {"prompt": "The cat", "max_tokens": 12, "logprobs": 1, "regex": "(é|cat| )*", "ignore_eos": true, "temperature": 1}}' |
        "${O[@]}" > out
    jq -e '.response.body.choices[0] | .text as $t | .logprobs | . as $l | [range(.tokens | length)] | all(. as $i | $l.tokens[$i] as $k
        | if $k | startswith("bytes:") then true else $t[$l.text_offset[$i]:][:($k | length)] == $k end)' out
    jq -e '.response.body.choices[0].logprobs.tokens | all(contains("\uFFFD") | not)' out
    run -0 "${O[@]}" <<< "$(request a '{"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "logprobs": true, "top_logprobs": 1}')"
    jq -e '.response.body.choices[0].logprobs.content | all(.top_logprobs | length == 1)' <<< "$output"
    refused 2 "--logprobs goes with --jsonl" llm-infer -m "$M" --logprobs 1 x
    refused 2 "--logprobs goes with --jsonl, and not with --rollout" llm-infer -m "$M" --jsonl --rollout --logprobs 1 x
}

@test "every step of sampling may be said by a line" {
    local steps='"dry_multiplier": 1, "dry_base": 1.5, "dry_allowed_length": 1, "dry_penalty_last_n": 50, "top_n_sigma": 1.5, "xtc_probability": 0.5'
    steps+=', "xtc_threshold": 0.05, "temp": 0.9, "dynatemp_range": 0.3, "dynatemp_exp": 2, "adaptive_target": 0.2, "adaptive_decay": 0.5'
    llm-infer -m "$M" -q --jsonl --no-timings -n 30 <<< '{"prompt": "Once", '"$steps"'}' > lines
    # shellcheck disable=SC2046
    llm-infer -m "$M" -q --jsonl --no-timings -n 30 $(jq -r "to_entries[] | \"--\(.key | gsub(\"_\"; \"-\"))=\(.value)\"" <<< "{$steps}") \
        <<< '{"prompt": "Once"}' | cmp - lines
    llm-infer -m "$M" -q --jsonl --no-timings -n 30 <<< '{"prompt": "Once"}' > plain
    run -1 cmp -s plain lines
    llm-infer -m "$M" -q --jsonl --no-timings -n 30 --mirostat 2 --mirostat-ent 1 <<< '{"prompt": "Once"}' > options
    llm-infer -m "$M" -q --jsonl --no-timings -n 30 <<< '{"prompt": "Once", "mirostat": 2, "mirostat_ent": 1}' | cmp - options
    run -1 cmp -s plain options
    # what ends a repetition of DRY: a text, several, none
    local dry='"dry_multiplier": 2, "dry_allowed_length": 1' from
    for from in '"e"' '["e", "t"]' '[]' '"none"' '"\u0007\u0007"'; do
        mapfile -t texts < <(jq -r 'if type == "string" then . elif . == [] then "none" else .[] end' <<< "$from")
        llm-infer -m "$M" -q --jsonl --no-timings -n 60 --temp 0 "${texts[@]/#/--dry-sequence-breaker=}" <<< '{"prompt": "Once", '"$dry"'}' > options
        llm-infer -m "$M" -q --jsonl --no-timings -n 60 --temp 0 <<< '{"prompt": "Once", "dry_sequence_breaker": '"$from, $dry}" | cmp - options
        llm-infer -m "$M" -q --jsonl --no-timings -n 60 --temp 0 --dry-sequence-breaker x <<< '{"prompt": "Once", "dry_sequence_breakers": '"$from, $dry}" |
            cmp - options
        sort -u options >> all
        [[ $from != '"none"' ]] || cp options none
    done
    run -1 cmp -s none options # the last one is of two tokens
    [[ $(sort -u all | wc -l) -ge 2 ]]
    run -65 --separate-stderr llm-infer -m "$M" -q --jsonl <<< '{"prompt": "Once", "dry_sequence_breaker": ["a", ""]}'
    assert_equal "$output" '{"id":1,"error":"\"dry_sequence_breaker\": expected strings that are not empty, without NUL"}'
    request a '{"prompt": "Once", "max_tokens": 2, "dry_sequence_breakers": ["a"]}' | llm-infer -m "$M" -q --jsonl | jq -e '.error == null'
    # what was drawn from is said in rollouts
    llm-infer -m "$M" -q --jsonl --rollout -n 3 --xtc-probability 0.5 <<< '{"prompt": "Once"}' | jq -e '.sampling.xtc_probability == 0.5'
    refused 2 "--dry-sequence-breaker: expected a text that is not empty" llm-infer -m "$M" --dry-sequence-breaker= x
    refused 2 "--dry-base: expected a number from 1 to" llm-infer -m "$M" --dry-base 0.5 x
}
