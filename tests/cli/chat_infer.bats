# Conversations: llm-infer --chat, turn by turn and with --jsonl.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    CHAT=(llm-infer -m "$M" -j 2 --chat --chat-template chatml)
}

# same TEMPLATE OPTION...: the turns in turns.txt are answered as by runs that read the conversation from its beginning, each turn by a run of its own.
same() {
    python3 - llm-infer -m "$M" -j 2 --chat --chat-template "$@" <<'P'
import json, re, subprocess, sys
def run(*options, **more):
    return subprocess.run(sys.argv[1:] + [*options], capture_output=True, check=True, **more).stdout
def shown(text):  # bytes that are no UTF-8 are U+FFFD in a message
    return re.sub("\ufffd+", "?", text)
messages, whole = [], ""
for turn in open("turns.txt", encoding="utf-8").read().splitlines():
    messages.append({"role": "user", "content": turn})
    messages.append(json.loads(run("--jsonl", input=json.dumps({"messages": messages}).encode()))["message"])
    whole += messages[-1]["content"] + "\n"
kept = run("--lines", "-f", "turns.txt").decode(errors="replace")
if shown(kept) != shown(whole):
    sys.exit(f"in turns: {kept!r}, each from the beginning: {whole!r}")
P
}

@test "--chat: what a turn says is what the whole conversation read at once makes, though the cache is kept between turns" {
    need_tool python3
    printf '%s\n' 'Once' 'é a' 'time' > turns.txt
    for options in '--temp 0' '--temp 1 --seed 3' '--temp 1 --precision f32 -b 7'; do
        # shellcheck disable=SC2086
        run -0 same chatml $options -n 6
    done
}

@test "--chat: only what is new is read" {
    printf '%s\n' 'Once upon' 'a time' 'there was' > turns.txt
    run -0 --separate-stderr "${CHAT[@]}" -v --temp 0 -n 6 --lines -f turns.txt
    local -a kept
    mapfile -t kept < <(sed -n 's/^llm-infer: \([0-9]*\) tokens kept, \([0-9]*\) read.*/\1 \2/p' <<< "$stderr")
    [[ ${#kept[@]} == 3 ]]
    read -r k0 n0 <<< "${kept[0]}"
    read -r k1 n1 <<< "${kept[1]}"
    read -r k2 n2 <<< "${kept[2]}"
    [[ $k0 == 0 ]]
    ((k1 >= n0 && k2 >= k1 + n1))
    ((n2 > 0))
}

@test "--chat: a template that writes earlier turns anew keeps what is still the same" {
    need_tool python3
    printf '%s\n' 'Once upon' 'a time' 'there was' > turns.txt
    # The number of messages first: nothing stays. A last turn marked: the tokens before the mark stay. The last two messages alone.
    printf '%s' '{{ messages|length }} {% for m in messages %}{{ m.content }} {% endfor %}' > number.jinja
    printf '%s' '{% for m in messages %}{% if loop.last %}* {% endif %}{{ m.content }} {% endfor %}' > mark.jinja
    printf '%s' '{% for m in messages[-2:] %}{{ m.content }} {% endfor %}' > last.jinja
    for t in number mark last; do
        run -0 same $t.jinja --temp 1 -n 6
    done
}

@test "--chat --jsonl: conversations are worked on together; answers, members and options as with prompts" {
    for ((k = 0; k < 9; k++)); do
        printf '{"id": "c%d", "messages": [{"role": "user", "content": "Once %d"}], "max_tokens": %d, "note": [%d]}\n' $k $k $((k + 1)) $k
    done > talks.jsonl
    "${CHAT[@]}" --jsonl --no-timings --temp 1 talks.jsonl > all.jsonl
    "${CHAT[@]}" --jsonl --no-timings --temp 1 --parallel 1 -f talks.jsonl > one.jsonl
    "${CHAT[@]}" --jsonl --no-timings --temp 1 --parallel 3 -b 5 < talks.jsonl > three.jsonl
    cmp all.jsonl one.jsonl
    cmp all.jsonl three.jsonl
    run -0 grep -c '^{"id": *"c[0-9]", *"note": *\[[0-9]\], *"message": *{"role": *"assistant", *"content": *".*"}, *"finish_reason"' all.jsonl
    assert_output 9
    run -0 --separate-stderr "${CHAT[@]}" --jsonl --samples 3 --temp 1 -n 2 <<< '{"messages": [{"role": "user", "content": "Once"}]}'
    [[ ${#lines[@]} == 3 && ${lines[2]} == *'"sample":'*2* ]]
}

@test "--chat --jsonl: --system where a conversation has no system; tools reach the template" {
    printf '%s' '{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}{% if tools %}{{ tools[0] }}{% endif %}' > t.jinja
    ask() { llm-infer -m "$M" -j 1 --chat --chat-template t.jinja --jsonl --no-timings -n 0 "$@" | sed 's/.*"prompt_tokens": *\([0-9]*\).*/\1/'; }
    plain=$(ask <<< '{"messages": [{"role": "user", "content": "x"}]}')
    own=$(ask --system 'be kind' <<< '{"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "x"}]}')
    given=$(ask --system 'be kind' <<< '{"messages": [{"role": "user", "content": "x"}]}')
    tools=$(ask <<< '{"messages": [{"role": "user", "content": "x"}], "tools": ["abc"]}')
    ((plain < given && plain < tools))
    [[ $own == "$given" ]]
}

@test "--chat: the turn's end token ends the answer and is not part of it" {
    llm-tokenize train -q --model byte --special '<|im_start|>' --special '<|im_end|>' -o tok.json /dev/null
    id=$(llm-tokenize encode -T tok.json --special --text <<< '<|im_end|>' | grep -o '^[0-9]*')
    run -0 --separate-stderr "${CHAT[@]}" -T tok.json --jsonl --temp 0 --logit-bias "$id+1000" <<< '{"messages": [{"role": "user", "content": "x"}]}'
    [[ $output == *'"content":""'*'"finish_reason":"stop"'*'"completion_tokens":0,'* ]]
}

@test "--chat: a token that models end turns with ends the answer though the template does not write it" {
    llm-tokenize train -q --model byte --special '<|im_start|>' --special '<|im_end|>' -o tok.json /dev/null
    id=$(llm-tokenize encode -T tok.json --special --text <<< '<|im_end|>' | grep -o '^[0-9]*')
    printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}' > t.jinja
    run -0 --separate-stderr llm-infer -m "$M" -j 1 -T tok.json --chat --chat-template t.jinja --jsonl --temp 0 -n 9 --logit-bias "$id+1000" \
        <<< '{"messages": [{"role": "user", "content": "x"}]}'
    [[ $output == *'"content":""'*'"finish_reason":"stop"'*'"completion_tokens":0,'* ]]
}

@test "--chat: what is wrong is said, behind the answers that came before" {
    printf '%s\n' '{"messages": [{"role": "user", "content": "Once"}]}' '{"prompt": "x"}' > bad.jsonl
    run -65 --separate-stderr "${CHAT[@]}" -q --jsonl --temp 0 -n 2 bad.jsonl
    [[ ${#lines[@]} == 2 && ${lines[0]} == *'"message"'* && ${lines[1]} == '{"id":2,"error":"expected an object with \"messages\", an array"}' ]]
    [[ $stderr == 'llm-infer: bad.jsonl: line 2: expected an object with "messages", an array' ]]
    run -65 --separate-stderr "${CHAT[@]}" --jsonl <<< '{"messages": [{"role": "user", "content": "x"}], "tools": 1}'
    [[ $stderr == *'line 1: "tools": expected an array' ]]
    run -65 --separate-stderr llm-infer -m "$M" --chat <<< 'Once'
    [[ $stderr == *"it comes without a chat template: name one with --chat-template" ]]
    run -65 --separate-stderr "${CHAT[@]}" --lines -c 8 <<< 'Once upon a time there was a very long turn indeed'
    [[ $stderr == *"standard input: line 1: prompt: expected at most 8 tokens (the context), found "* ]]
    run -65 --separate-stderr "${CHAT[@]}" --lines < <(printf 'a\377b\n')
    [[ $stderr == *"line 1: expected UTF-8" ]]
    run -2 llm-infer -m "$M" --chat --ids
    run -2 llm-infer -m "$M" --lines 'a prompt'
    run -2 "${CHAT[@]}" --lines 'a message'
    run -2 llm-infer -m "$M" --chat --samples 2
    run -2 llm-infer -m "$M" --chat --score
    run -2 llm-infer -m "$M" --system x hello
}

@test "--chat: a signal ends the program where its turns come from a pipe" {
    mkfifo turns
    exec 7<> turns
    printf 'Once upon\n' >&7
    env --default-signal=INT "${CHAT[@]}" --lines --temp 0 -n -1 -c 1M --ignore-eos < turns > answer &
    filled answer $!
    kill -INT $!
    ends_by 130 $!
    exec 7<&-
}

@test "--chat: a pipe, a file and an operand are one message, with its lines; --lines makes a turn of each" {
    printf 'Once\n\nupon\n\n' > text
    json() { jq -Rsc '{messages: [{role: "user", content: .}]}'; }
    printf 'Once\n\nupon' | json | "${CHAT[@]}" --jsonl --temp 0 -n 6 > whole.jsonl
    "${CHAT[@]}" --temp 0 -n 6 < text > piped
    "${CHAT[@]}" --temp 0 -n 6 -f text > named
    "${CHAT[@]}" --temp 0 -n 6 $'Once\n\nupon' > operand
    cmp piped named
    cmp piped operand
    jq -r .message.content whole.jsonl | LC_ALL=C tr -cd 'a-zA-Z\n' > words # bytes that are no UTF-8 are U+FFFD in JSON
    LC_ALL=C tr -cd 'a-zA-Z\n' < piped | cmp - words
    run -0 --separate-stderr "${CHAT[@]}" -v --temp 0 -n 3 -f text
    [[ $(grep -c 'tokens kept' <<< "$stderr") == 1 ]]
    run -0 --separate-stderr "${CHAT[@]}" -v --temp 0 -n 3 --lines -f text
    [[ $(grep -c 'tokens kept' <<< "$stderr") == 2 ]]
    run -65 --separate-stderr "${CHAT[@]}" < /dev/null
    assert_equal "$stderr" "llm-infer: standard input: expected a message, found nothing"
    run -65 --separate-stderr "${CHAT[@]}" -c 8 'Once upon a time there was a very long turn indeed'
    [[ $stderr == "llm-infer: prompt: expected at most 8 tokens (the context), found "* ]]
}

@test "--chat: content may be a list of text parts, joined by newlines unless the template takes lists; other parts are refused" {
    parts='{"messages": [{"role": "user", "content": [{"type": "text", "text": "Once"}, {"type": "text", "text": "upon"}]}]}'
    text='{"messages": [{"role": "user", "content": "Once\nupon"}]}'
    printf '%s' '{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}' \
        > lists.jinja
    ask() { llm-infer -m "$M" -j 1 --chat --chat-template "$1" --jsonl --no-timings --temp 0 -n 4 <<< "$2"; }
    cmp <(ask chatml "$parts") <(ask chatml "$text")
    cmp <(ask lists.jinja "$parts") <(ask lists.jinja '{"messages": [{"role": "user", "content": "[Once][upon]"}]}')
    llm-tokenize encode -T "$M/tokenizer.json" --chat --chat-template chatml --text <<< "$parts" > a
    llm-tokenize encode -T "$M/tokenizer.json" --chat --chat-template chatml --text <<< "$text" | cmp - a
    image='{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "x"}}]}]}'
    for template in chatml lists.jinja; do
        run ask $template "$image"
        [[ $output == *'"messages": element 0: "content": element 1: expected a part {"type": "text", "text": ...}'* ]]
    done
}

@test "a model with a chat template that answers a plain prompt with nothing: a hint, once" {
    cp -r "$M" chatty
    eos=$(jq .eos_token_id "$M/config.json")
    run -0 --separate-stderr llm-infer -m chatty -j 1 --temp 0 --logit-bias "$eos+1000" "Once"
    [[ $stderr != *--chat* ]]
    printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}' > chatty/chat_template.jinja
    run -0 --separate-stderr llm-infer -m chatty -j 1 --temp 0 --samples 2 --logit-bias "$eos+1000" "Once"
    assert_equal "$stderr" "llm-infer: the model ended its text at once; it has a chat template, so it may expect --chat"
    run -0 --separate-stderr llm-infer -m chatty -q -j 1 --temp 0 --logit-bias "$eos+1000" "Once"
    [[ -z $stderr ]]
    run -0 --separate-stderr llm-infer -m chatty -j 1 --temp 0 -n 3 "Once"
    [[ -z $stderr ]]
}

@test "--chat: at a terminal Ctrl-C ends the answer, whose cache the next turn has, and the program when it waits for a turn" {
    need_tool python3
    cat > terminal.py <<'P'
import os, pty, re, select, signal, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
seen = b""
def until(enough, what):
    global seen
    end = time.time() + 1000
    while not enough(seen):
        if not select.select([fd], [], [], max(0, end - time.time()))[0]:
            sys.exit(f"{what}: waited in vain behind {seen[-200:]!r}")
        try:
            seen += os.read(fd, 65536)
        except OSError:
            sys.exit(f"{what}: it ended behind {seen[-200:]!r}")
until(lambda s: s.endswith(b"> "), "a prompt")
for turn in (b"Once upon\n", b"a time\n"):
    seen = b""
    os.write(fd, turn)
    until(lambda s: len(s) > 200, "an answer")
    os.write(fd, b"\x03")
    until(lambda s: s.endswith(b"> ") and not select.select([fd], [], [], .5)[0], "its end and a prompt")
    seen = b""
    os.write(fd, b"/stats\n")
    until(lambda s: s.endswith(b"> ") and b"made in" in s, "the counts of the last answer")
    cache, kept, made = (int(re.search(what, seen)[1]) for what in (rb"cache: (\d+) tokens", rb"(\d+) tokens kept", rb"(\d+) made"))
    if cache < made or made == 0 or b"(0.0 a second)" in seen or (kept == 0) != (turn == b"Once upon\n"):
        sys.exit(f"after {turn!r}: {seen!r}")
os.write(fd, b"\x03")
_, status = os.waitpid(pid, 0)
sys.exit(0 if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT else f"status {status}")
P
    run -0 timeout 2000 python3 terminal.py "${CHAT[@]}" --temp 1 -n -1 -c 1M --ignore-eos
}
