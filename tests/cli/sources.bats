# Answers from sources: llm-infer --chat --context-from, and which citations it finds in an answer.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    # The template writes an empty prompt's end; the answer is forced, so that what it cites is known.
    printf '%s' '{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}|{% endfor %}{% endif %}{% endfor %}' > t.jinja
    CHAT=(llm-infer -m "$M" -j 1 --chat --chat-template t.jinja --temp 0 -c 4096)
    printf '%s\n' '{"id": "a#1", "text": "Cats sleep."}' '{"id": 7, "text": "Dogs run.\nFar."}' '{"id": "x, y]", "text": "é"}' > sources.jsonl
}

# answer TEXT [OPTION...]: a turn whose answer is TEXT.
answer() {
    printf '%s\n' "$1" > only
    "${CHAT[@]}" --choices only --context-from sources.jsonl "${@:2}" 'Who sleeps?'
}

@test "--context-from: the prompt is that of a conversation that says the sources itself" {
    printf '%s\n' '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "Who?"}, {"role": "user", "content": "Why?"}]}' > q
    said='Sources:\n\n[a#1]\nCats sleep.\n\n[7]\nDogs run.\nFar.\n\n[x, y]]\né\n\nAnswer from these sources. After each statement, cite its source by its id in brackets, like [a#1].\n\n'
    printf '%s\n' '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "'"$said"'Who?"}, {"role": "user", "content": "Why?"}]}' > whole
    "${CHAT[@]}" --jsonl --no-timings -n 8 whole > expected
    "${CHAT[@]}" --jsonl --no-timings -n 8 --context-from sources.jsonl q > got
    "${CHAT[@]}" --jsonl --no-timings -n 8 --context-from - q < sources.jsonl | cmp - got
    "${CHAT[@]}" --jsonl --no-timings -n 8 q > without
    run ! cmp -s expected without
    cmp <(jq -c 'del(.citations, .unknown_citations)' got) <(jq -c . expected)
    printf '%s\n' '{"messages": [{"role": "user", "content": [{"type": "text", "text": "Who?"}]}]}' > parts
    printf '%s\n' '{"messages": [{"role": "user", "content": [{"type": "text", "text": "'"$said"'"}, {"type": "text", "text": "Who?"}]}]}' > whole
    cmp <("${CHAT[@]}" --jsonl --no-timings -n 8 --context-from sources.jsonl parts | jq -c 'del(.citations)') \
        <("${CHAT[@]}" --jsonl --no-timings -n 8 whole | jq -c .)
}

@test "--context-from: citations are found, and those of no source said: a warning, status 1, the answer whole" {
    run -0 --separate-stderr answer 'They do [a#1], and [7; a#1].' -v
    [[ $output == 'They do [a#1], and [7; a#1].' ]]
    [[ $stderr == *"cites a#1"*"cites 7"* && $stderr != *"none of the sources"* ]]
    run -0 --separate-stderr answer 'No [link](7b), no [ ], [x, y]].'
    [[ $stderr != *cites* ]]
    run -1 --separate-stderr answer 'Yes [a#1], [8], [7, a#2].'
    [[ $output == 'Yes [a#1], [8], [7, a#2].' ]]
    [[ $stderr == *"the answer cites '8', which is none of the sources"*"cites 'a#2'"*"llm-infer: an answer cites '8', which is no id in sources.jsonl" ]]
    run -0 --separate-stderr answer '<think>maybe [8]</think>Yes [7].'
    [[ $stderr != *cites* ]]
}

@test "--context-from --jsonl: citations are members of the answer" {
    printf '%s\n' 'See [7] and [nine].' > only
    printf '%s\n' '{"id": "q", "messages": [{"role": "user", "content": "Who?"}]}' > q
    run -1 --separate-stderr "${CHAT[@]}" --jsonl --no-timings --choices only --context-from sources.jsonl q
    assert_equal "$(jq -c '[.id, .message.content, .citations, .unknown_citations]' <<< "$output")" \
        '["q","See [7] and [nine].",["7"],["nine"]]'
    [[ $stderr == *"llm-infer: an answer cites 'nine', which is no id in sources.jsonl" ]]
}

@test "--context-from: the log has what was said, and later turns keep the sources" {
    printf '%s\n' 'Who?' 'Why?' > turns
    "${CHAT[@]}" -q -n 3 --lines -f turns --context-from sources.jsonl --chat-log log.jsonl > said
    assert_equal "$(jq -r '.messages[0].content' log.jsonl)" 'Who?'
    run ! cmp -s said <("${CHAT[@]}" -q -n 3 --lines -f turns)
}

@test "--context-from: bad sources and wrong use" {
    refused() { run "-$1" --separate-stderr "${@:3}"; [[ $stderr == *"$2"* && -z $output ]]; }
    : > empty
    refused 65 "empty: expected sources, found none" "${CHAT[@]}" --context-from empty x
    printf '%s\n' '{"id": "a", "text": "x"}' '{"id": "a", "text": "y"}' > twice
    refused 65 "twice: line 2: id 'a': it came before" "${CHAT[@]}" --context-from twice x
    for line in '[]' '{"text": "x"}' '{"id": "a"}' '{"id": 1.5, "text": "x"}' '{"id": "a\nb", "text": "x"}' '{"id": "", "text": "x"}'; do
        printf '%s\n' "$line" > bad
        refused 65 'bad: line 1: expected an object with "id" (a text of one line, or an integer) and "text"' "${CHAT[@]}" --context-from bad x
    done
    printf '{' > bad
    refused 65 "bad: line 1: " "${CHAT[@]}" --context-from bad x
    refused 66 "nowhere" "${CHAT[@]}" --context-from nowhere x
    refused 2 "--context-from goes with --chat" llm-infer -m "$M" --context-from sources.jsonl x
    refused 2 "standard input cannot be two inputs at once" "${CHAT[@]}" --context-from -
    head -c 20000 /dev/zero | tr '\0' x | sed 's/^/{"id": 1, "text": "/;s/$/"}/' > long
    refused 65 "context" "${CHAT[@]}" --context-from long x
}

@test "llm-index search --format context | llm-infer --chat --context-from -" {
    printf '%s\n' '{"id": "p", "text": "the cat sleeps", "embedding": [1, 0]}' '{"id": "q", "text": "the dog runs", "embedding": [0, 1]}' \
        | llm-index build notes.idx
    printf '%s\n' 'It sleeps [p].' > only
    run -0 --separate-stderr bash -c 'llm-index search notes.idx -k 1 --by words --query "cat" --format context \
        | "$@" -v --choices only --context-from - "Who?"' bash "${CHAT[@]}"
    [[ $output == 'It sleeps [p].' && $stderr == *"cites p"* ]]
}
