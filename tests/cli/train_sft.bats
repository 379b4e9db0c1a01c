# Supervised fine-tuning on conversations.
load ../helper
export LLM_THREADS=1

setup_file() {
    # sums of two digits, asked and answered
    for ((i = 0; i < 40; i++)); do
        a=$((i % 5)) b=$((i * 7 % 5))
        printf '{"messages": [{"role": "user", "content": "%d+%d"}, {"role": "assistant", "content": "%d"}]}\n' $a $b $((a + b))
    done > sums.jsonl
    llm-tokenize train --model byte --special '<|im_start|>' --special '<|im_end|>' --special '</s>' -o tok.json /dev/null
    export F=$PWD
}

setup() {
    shape=(-c tiny --set num_hidden_layers=2 --set hidden_size=64 --set intermediate_size=96 --set num_attention_heads=4)
    new=(llm-train -q "${shape[@]}" -l 64 -T "$F/tok.json" --objective sft --chat-template chatml)
    two='{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"},'
    two+='{"role": "user", "content": "d"}, {"role": "assistant", "content": "e"}]}'
}

@test "the assistant's turns and their ends are learned, in every turn, and nothing else" {
    echo "$two" > c.jsonl
    run -0 "${new[@]}" -l 200 --show 1 c.jsonl
    assert_output "[<|im_start|>user
a<|im_end|>
<|im_start|>assistant
]bc<|im_end|>[
<|im_start|>user
d<|im_end|>
<|im_start|>assistant
]e<|im_end|>"
}

@test "a prompt and a completion: the completion alone is learned, of texts without a template" {
    echo '{"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}, {"role": "user", "content": "d"}],
        "completion": [{"role": "assistant", "content": "e"}]}' | jq -c . > c.jsonl
    run -0 "${new[@]}" -l 200 --show 1 c.jsonl
    assert_output "[<|im_start|>user
a<|im_end|>
<|im_start|>assistant
bc<|im_end|>
<|im_start|>user
d<|im_end|>
<|im_start|>assistant
]e<|im_end|>"
    echo '{"prompt": "a", "completion": "e"}' > c.jsonl
    run -0 llm-train -q "${shape[@]}" -l 64 -T "$F/tok.json" --objective sft --show 1 c.jsonl
    assert_output "[a]e</s>"
    echo '{"prompt": "a", "completion": [{"role": "assistant", "content": "e"}]}' > c.jsonl
    run -0 "${new[@]}" -l 200 --show 1 c.jsonl
    assert_output "[<|im_start|>user
a<|im_end|>
<|im_start|>assistant
]e<|im_end|>"
    # a message is one of a list; a null is nothing
    "${new[@]}" -l 200 --show 1 <(jq -c '.prompt = {role: "user", content: .prompt} | .messages = null' c.jsonl) | cmp - <(printf '%s\n' "$output")
    for wrong in '.prompt = 3' '.completion = 5'; do
        jq -c "$wrong" c.jsonl > wrong.jsonl
        run -65 --separate-stderr "${new[@]}" -o x.llm wrong.jsonl
        [[ $stderr == *'line 1: expected a text, a message or messages as '* ]]
    done
    # other members may be numbers that C has no integers for
    sed 's/{"prompt"/{"hash": 18446744073709551615, "prompt"/' c.jsonl > hash.jsonl
    run ! cmp -s c.jsonl hash.jsonl
    run -0 "${new[@]}" -l 200 --show 1 c.jsonl
    "${new[@]}" -l 200 --show 1 hash.jsonl | cmp - <(printf '%s\n' "$output")
    # messages go before them; a prompt alone is no conversation
    jq -nc '{prompt: "x", completion: "y", messages: [{role: "user", content: "a"}, {role: "assistant", content: "e"}]}' > c.jsonl
    run -0 "${new[@]}" -l 200 --show 1 c.jsonl
    assert_line "]e<|im_end|>"
    echo '{"prompt": "a"}' > c.jsonl
    run -65 --separate-stderr "${new[@]}" -o x.llm c.jsonl
    [[ $stderr =~ "expected an object with 'messages', an array (--map names other fields), or with 'prompt' and 'completion'"$ ]]
}

@test "every built-in template and every template of ../shared/data has a mask over the reply" {
    echo '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there."}]}' > c.jsonl
    mapfile -t names < <(llm-tokenize encode --complete-options | awk -F'\t' '$2 == "--chat-template" { gsub(/\|/, "\n", $5); print $5 }')
    (( ${#names[@]} > 3 ))
    local learned=0
    for t in "${names[@]}" "$SHARED"/data/chat-templates/*.jinja; do
        [[ -e $t || $t != */* ]] || continue
        run --separate-stderr llm-train -q "${shape[@]}" -l 8192 -T "$F/tok.json" --objective sft --chat-template "$t" --show 1 c.jsonl
        if [[ $status == 65 && $t == */* && $stderr =~ ": template: line "[0-9]+": " ]]; then continue; fi # it wants tools or tokens by name
        tr '\n' ' ' <<< "$output" | grep -qE '\][^][]*Hello there\.[^][]*$' || fail "$t: $output"
        learned=$((learned + 1))
    done
    (( learned >= ${#names[@]} ))
    [[ ! -d $SHARED/data/chat-templates ]] || (( learned >= ${#names[@]} + 14 ))
}

@test "packed conversations do not see each other: the loss is that of rows of one" {
    "${new[@]}" -l 200 -b 8 -n 1 --lr 0 --precision f32 --order sequential --packing no --log no.jsonl -o a.llm <(head -n 8 "$F/sums.jsonl")
    "${new[@]}" -l 200 -b 1 -n 1 --lr 0 --precision f32 --order sequential --log yes.jsonl -o b.llm <(head -n 8 "$F/sums.jsonl")
    jq -s 'if (.[0].loss - .[1].loss | fabs) < 2e-6 and .[0].tokens == .[1].tokens then 1 else error(tostring) end' no.jsonl yes.jsonl
    "${new[@]}" -l 200 -b 1 -n 1 --lr 0 --precision f32 --order sequential --cross-document --log cross.jsonl -o b.llm <(head -n 8 "$F/sums.jsonl")
    run -1 jq -s -e '.[0].loss == .[1].loss' yes.jsonl cross.jsonl
}

@test "the weight of a turn multiplies its loss; a weight of 0 is not learned" {
    first='{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"'
    second='{"role": "user", "content": "d"}, {"role": "assistant", "content": "ef"'
    echo "{\"messages\": [$first}, $second, \"loss_weight\": 0}]}" > zero.jsonl
    echo "{\"messages\": [$first}]}" > alone.jsonl
    echo "{\"messages\": [$first, \"loss_weight\": 3}, $second}]}" > three.jsonl
    echo "{\"messages\": [$first}, $second}]}" > both.jsonl
    one=("${new[@]}" -l 200 -b 1 -n 1 --lr 0 --precision f32)
    for f in zero alone three both; do "${one[@]}" --log $f.log -o x.llm $f.jsonl; done
    jq -s -e '(.[0].loss - .[1].loss | fabs) < 1e-6 and .[0].tokens == 3' zero.log alone.log
    # both = (3 first + 3 second) / 6, three = (9 first + 3 second) / 12
    jq -s -e '.[2].tokens == 6 and ((.[0].loss + (2 * .[2].loss - .[0].loss) / 3) * 3 / 4 - .[1].loss | fabs) < 1e-6' alone.log three.log both.log
}

@test "alpaca, sharegpt and named fields are the same conversations" {
    echo '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q\nmore"}, {"role": "assistant", "content": "r"}]}' > m.jsonl
    echo '{"instruction": "q", "input": "more", "output": "r", "system": "s"}' > alpaca.jsonl
    echo '{"conversations": [{"from": "human", "value": "q\nmore"}, {"from": "gpt", "value": "r"}], "system": "s"}' > sharegpt.jsonl
    echo '{"ask": "q\nmore", "say": "r", "system": "s"}' > own.jsonl
    echo '{"turns": [{"who": "system", "what": [{"type": "text", "value": "s"}]},
        {"who": "user", "what": "q\nmore"}, {"who": "assistant", "what": "r"}]}' | tr -d '\n' > named.jsonl
    "${new[@]}" -l 200 --show 1 m.jsonl > want
    "${new[@]}" -l 200 --show 1 --map alpaca alpaca.jsonl | cmp - want
    "${new[@]}" -l 200 --show 1 --map sharegpt sharegpt.jsonl | cmp - want
    "${new[@]}" -l 200 --show 1 --map instruction=ask,output=say,system=system own.jsonl | cmp - want
    "${new[@]}" -l 200 --show 1 --map messages=turns,role=who,content=what named.jsonl | cmp - want
}

@test "a message's other fields reach the template: reasoning, names, calls of tools, by any name of its role and content" {
    cat > t.jinja <<'END'
{% for m in messages %}{{ m.role }} {{ m.name }}: {% if m.role == 'assistant' %}{% generation %}<{{ m.reasoning_content }}>{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}
{% endgeneration %}{% else %}{{ m.content }}
{% endif %}{% endfor %}
END
    jq -nc '{messages: [{role: "user", name: "Ann", content: "1+2"}, {role: "assistant", reasoning_content: "hm", content: "I add.",
        tool_calls: [{function: {name: "add"}}]}, {role: "tool", name: "add", content: "3"}, {role: "assistant", reasoning: "so", content: "3"}]}' > m.jsonl
    jq -c '{conversations: [.messages[] | .from = .role | .value = .content | del(.role, .content)]}' m.jsonl > sharegpt.jsonl
    show=(llm-train -q "${shape[@]}" -l 200 -T "$F/tok.json" --objective sft --chat-template t.jinja --show 1)
    run -0 "${show[@]}" m.jsonl
    assert_output "[user Ann: 1+2
assistant : ]<hm>I add.add[tool add: 3
assistant : ]<so>3"
    "${show[@]}" --map sharegpt sharegpt.jsonl | cmp - <(echo "$output")
}

@test "lines that cannot be learned are counted, or refused by --strict" {
    { echo "$two"; echo '{"messages": [{"role": "user", "content": "a"}]}'; echo '{"messages": [{"role": "wizard", "content": "a"}]}'
      jq -nc '{messages: [{role: "user", content: ("long " * 99)}, {role: "assistant", content: "b"}]}'; } > c.jsonl
    run -0 --separate-stderr llm-train "${shape[@]}" -l 120 -T "$F/tok.json" --objective sft --chat-template chatml --show 1 c.jsonl
    local why="llm-train: 3 of 4 lines are not learned: 1 without a token that counts, 1 longer than --context 120, 1 with an unknown role"
    assert_equal "$stderr" "$why"
    for i in 2 3 4; do
        run -65 --separate-stderr "${new[@]}" -l 120 --strict -o x.llm <(sed -n ${i}p c.jsonl)
        assert_equal "$(wc -l <<< "$stderr")" 1
    done
    [[ $stderr =~ "line 1: expected at most 121 tokens (--context), found "[0-9]+$ ]]
    run -65 --separate-stderr "${new[@]}" -o x.llm <(sed -n 2p c.jsonl)
    [[ $stderr =~ "found none among 1: 1 without a token that counts, 0 longer than --context "[0-9]+", 0 with an unknown role"$ ]]
    assert_equal "$(wc -l <<< "$stderr")" 1
    run -65 --separate-stderr "${new[@]}" -o x.llm <(echo '{"messages": 3}')
    [[ $stderr =~ "line 1: expected an object with 'messages', an array (--map names other fields), or with 'prompt' and 'completion'"$ ]]
    run -65 --separate-stderr "${new[@]}" -o x.llm <(echo '{"messages": [')
    [[ $stderr =~ "line 1: " ]]
    run -2 --separate-stderr "${new[@]}" --map fields -o x.llm c.jsonl
    [[ $stderr =~ "--map: expected messages, sharegpt, alpaca or KEY=FIELD" ]]
    run -65 --separate-stderr llm-train "${shape[@]}" -T "$F/tok.json" --objective sft -o x.llm c.jsonl
    [[ $stderr =~ "--chat-template: " ]]
    [[ ! -e x.llm ]]
}

@test "the same bytes by any threads, any passes of a step, and after an interruption, whose model brings its template" {
    same_by_threads "${new[@]}" -n 6 -b 4 "$F/sums.jsonl"
    same_steps "${new[@]}" -n 6 -b 1 --accumulate 4 "$F/sums.jsonl"
    cp "$F/sums.jsonl" sums.jsonl
    same_when_resumed 3 "${new[@]}" -b 4 --val .2 --eval-every 2 sums.jsonl
    # a token stream of the same conversations has the same masks
    llm-tokenize encode -T "$F/tok.json" --chat --chat-template chatml sums.jsonl > sums.tok
    "${new[@]}" -n 3 -b 4 --packing no --log lines.jsonl -o a.llm sums.jsonl
    "${new[@]}" -n 3 -b 4 --log stream.jsonl -o b.llm sums.tok
    cmp <(hashes lines.jsonl) <(hashes stream.jsonl)
}

@test "a plan needs no conversations" {
    llm-train -c tiny --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -T "$F/tok.json" -l 64 -b 2 \
        --objective sft --plan > plan
    [[ $(grep -c '^activation_bytes' plan) == 1 ]]
}

@test "sums that were wrong are right afterwards" {
    without_sanitizer "${new[@]}" -n 300 -b 8 --lr 5e-3 -o m.llm "$F/sums.jsonl"
    run -0 llm-infer -m m.llm --temp 0 --chat '3+1'
    assert_output 4
    run -0 llm-infer -m m.llm --temp 0 --chat '4+3'
    assert_output 7
}
