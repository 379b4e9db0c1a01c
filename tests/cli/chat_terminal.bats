# llm-infer --chat on a terminal: banner, prompts, editing, messages of several lines, commands.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    export CHAT="llm-infer -m $M -j 1 --chat --chat-template chatml --temp 0 -n 4"
}

# talk TYPED [OPTION]...: what a terminal of type xterm (or $TERMINAL) shows of a conversation in which TYPED, a literal a line, is typed
talk() {
    local typed=$1
    shift
    need_tool python3
    printf '%s\n' "$typed" > typed
    # shellcheck disable=SC2086
    TERM=${TERMINAL:-xterm} run timeout 200 python3 "$ROOT/tests/cli/chat_terminal.py" typed $CHAT "$@"
    [[ $status == 0 ]] || fail "$output"
}

# needs_editing: skips where the programs were built without libedit.
needs_editing() {
    ldd "$BIN/llm-infer" | grep -q libedit || skip "built without libedit"
}

@test "plain lines: banner, prompts, an answer, /exit; nothing on standard error of it with -q but prompts" {
    need_tool script
    printf 'Once upon\n/exit\n' > typed
    TERM=dumb run -0 script -qec "$CHAT" /dev/null < typed
    [[ $output == *"llm-infer: $M (llama), a context of 256 tokens"* ]]
    [[ $output == *"/exit"*"leaves"* && $output == *"> "* && $output == *"stopped after 4 tokens; /set tokens=N allows more"* ]]
    TERM=dumb run -0 script -qec "$CHAT -q" /dev/null < typed
    [[ $output != *"a context of"* && $output == *"> "* ]]
    # standard output has the answers alone
    TERM=dumb run -0 script -qec "$CHAT > answers" /dev/null < typed
    run -0 wc -l < answers
    assert_output 1
}

@test "a message is answered as by --chat MESSAGE; lines that end in a backslash, and those within \"\"\", are one message" {
    talk '"Once \\\r"
"upon\r"
"/save a.json\r"
"/reset\r"
"\"\"\"Once \r"
"upon\"\"\"\r"
"/save b.json\r"
"/reset\r"
"\"\"\"\r"
"Once \r"
"upon\r"
"\"\"\"\r"
"/save c.json\r"
"/exit\r"'
    cmp a.json b.json
    jq -e '.messages | length == 2' a.json
    jq -je '.messages[0].content' a.json | cmp - <(printf 'Once \nupon')
    jq -je '.messages[0].content' c.json | cmp - <(printf 'Once \nupon\n')
    $CHAT $'Once \nupon' > answer
    printf '%s\n' "$output" | grep -aqF "$(iconv -c -f utf-8 -t utf-8 answer | tr -d '\r' | head -c 3)"
}

@test "lines are edited and recalled; a paste of several lines is one message; Ctrl-C drops what is typed, and leaves where nothing is" {
    needs_editing
    talk '"Oncx\x7fe upon\r"
"\x1b[A!\r"
"dropped"
wait 7
"\x03"
"\x1b[200~one\ntwo\rthree\t\x1b[201~"
wait 20
" end\r"
"/save a.json\r"
"\x04"'
    [[ $output == *"status 0" ]]
    jq -c '[.messages[] | select(.role == "user") | .content]' a.json > found
    assert_equal "$(cat found)" '["Once upon","Once upon!","one\ntwo\nthree  end"]'
    talk '"\x03"'
    [[ $output == *"signal 2" ]]
}

@test "commands: system, undo, regen, set, reset, save, load; two slashes begin a message with one" {
    talk '"/system Be kind.\r"
"Once\r"
"upon\r"
"/undo\r"
"/save a.json\r"
"/regen\r"
"/save b.json\r"
"/set temp=1\r"
"/regen\r"
"/save c.json\r"
"/reset\r"
"/save d.json\r"
"/load a.json\r"
"/save e.json\r"
"//slash\r"
"/etc/x y\r"
"/save f.json\r"
"/quit\r"'
    assert_equal "$(jq -c '[.messages[].role]' a.json)" '["system","user","assistant"]'
    cmp a.json b.json # at temperature 0 the seed changes nothing
    run -1 cmp -s a.json c.json
    assert_equal "$(cat d.json)" '{"messages":[{"role":"system","content":"Be kind."}]}'
    cmp a.json e.json
    assert_equal "$(jq -c '[.messages[] | select(.role == "user") | .content]' f.json)" '["Once","/slash","/etc/x y"]'
    $CHAT --jsonl --no-timings a.json > again.jsonl
    llm-tokenize encode -q -T "$M/tokenizer.json" --chat --chat-template chatml a.json > a.tok
}

@test "commands say what they did and what is wrong" {
    talk '"/undo\r"
"/regen\r"
"/stats\r"
"/help\r"
"/set\r"
"/nix\r"
"/exit now\r"
"/load nosuch.json\r"
"/set temp=x\r"
"/set nix=1\r"
"/set tokens=0\r"
"/set seed=-1\r"
"/set temperature=0.25\r"
"/set top_p=0.5\r"
"/set max_tokens=7\r"
"/set\r"
"/save -\r"
"/save\r"
"/system\r"
"/exit\r"'
    local want shown=$output
    for want in '/undo: expected a message to take back, found none' '/regen: expected an answer, found none' 'cache: 0 tokens, of a context of 256' \
        '/reset .* begin a new conversation' 'temp=0 top-k=40 .* tokens=4' '/nix: no such command' "/exit takes no argument, found 'now'" \
        'llm-infer: nosuch.json: No such file' "/set temp: expected a number, found 'x'" "no setting of this name: 'nix'" \
        "/set tokens: expected a number of tokens, or -1, found '0'" \
        "/set seed: expected a number of at least 0, found '-1'" 'temp=0.25 top-k=40 top-p=0.5 .* tokens=7' "/save: expected a file, found '-'" '/save: expected FILE' \
        'There is no system message'; do
        run -0 grep -a -e "$want" <<< "$shown"
    done
}

@test "/regen that gets no answer leaves the one that was there" {
    talk "\"Once\\r\"
\"/save a.json\\r\"
\"/system $(printf 'be kind %.0s' {1..40})\\r\"
\"/regen\\r\"
\"/save b.json\\r\"
\"/exit\\r\"" -c 64
    [[ $output == *"llm-infer: prompt: expected at most 64 tokens (the context), found "* ]]
    assert_equal "$(jq -c '.messages[1:]' b.json)" "$(jq -c '.messages' a.json)"
}

@test "a message that does not fit the context is named and taken back; the talk goes on" {
    talk '"Once upon a time there was a message that is much too long to fit a context of so few\r"
"Once\r"
"/save a.json\r"
"/exit\r"' -c 64
    [[ $output == *"llm-infer: prompt: expected at most 64 tokens (the context), found "* ]]
    assert_equal "$(jq -c '[.messages[].role]' a.json)" '["user","assistant"]'
}
