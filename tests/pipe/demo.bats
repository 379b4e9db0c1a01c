# The demo, with next to no training: every command of it works, on its own text and on others'.
load ../helper

setup_file() {
    cc -O1 -o stories "$ROOT/tests/demo/stories.c"
}

setup() {
    export STORIES=$BATS_FILE_TMPDIR/stories FOLDER=$PWD/demo STEPS=3 BYTES=200000
}

@test "the demo runs to its end and prints each command before its output" {
    run -0 "$ROOT/tests/demo/run"
    local command
    for command in stories llm-tokenize llm-train llm-quantize "llm-bench quality" "llm-bench speed" llm-infer; do
        [[ $output == *$'\n'"$ "*"$command "* ]] || fail "no $command"
    done
    [[ $output == *"llm-kvinspect heads"* && $output == *"Long ago, there was a shy bear named Otto"* ]]
    assert_file_exists demo/model-q8.llm
}

@test "its text is the same every time, and the length that is asked for" {
    "$STORIES" 50000 > a
    "$STORIES" 50000 | cmp - a
    "$STORIES" 50000 2 > b
    run ! cmp -s a b
    [[ $(wc -c < a) -ge 49000 && $(wc -c < a) -le 52000 ]]
    head -c 40000 a | cmp - <("$STORIES" 40000 | head -c 40000) || fail "a shorter text is the beginning of a longer one"
}

@test "any text will do: a name with blanks and quotes, lines like options, bytes that are not UTF-8" {
    { printf -- "--temp is it's \$HOME\n\xff\xfe\n"; seq 1 6000; printf -- "-n 5 'quoted' \$(false) \`x\`\n%.0s" {1..200}; } > "it's a text.txt"
    run -0 "$ROOT/tests/demo/run" "it's a text.txt"
    [[ $(cat demo/corpus.txt demo/held-out.txt | cmp - "it's a text.txt" && echo same) == same ]]
}

@test "what is no text, or too little, is refused in one line" {
    run -66 --separate-stderr "$ROOT/tests/demo/run" absent.txt
    assert_equal "$stderr" "demo: absent.txt: expected a readable file"
    run -66 --separate-stderr "$ROOT/tests/demo/run" .
    echo little > little.txt
    run -65 --separate-stderr "$ROOT/tests/demo/run" little.txt
    one_line "$stderr"
    [[ ! -e demo ]]
}

@test "without STEPS it measures its speed, and takes as many steps as fit" {
    [[ -z ${SANITIZER-} ]] || skip "its steps take too long under $SANITIZER"
    unset STEPS
    export SECONDS_OF_TRAINING=.1
    run -0 "$ROOT/tests/demo/run"
    [[ $output =~ $'\n# '[0-9.e-]+' s a step: 20 steps'$'\n' && $output == *"llm-train: 20 steps, loss "* ]] || fail "$output"
}

@test "demo-teach runs to its end: sums, a judge, practice, and the share of right sums before and after" {
    need_tool jq
    FOLDER=$PWD/teach STEPS=3 ITERATIONS=2 run -0 "$ROOT/tests/demo/teach"
    [[ $output == *"iterations 1"* || -s teach/practice.log ]]
    [[ ${lines[-1]} =~ ^"held-out sums right: before "[0-9.]+"%, after "[0-9.]+"%"$ ]]
    [[ $(jq -s length teach/practice.log) == 2 ]]
    # No held-out sum is among those that are learned from or practised.
    jq -r .text teach/sft.jsonl | sed 's/=.*/=/' > seen
    jq -r .prompt teach/practice.jsonl >> seen
    [[ $(wc -l < seen) == 8500 && $(jq -r .prompt teach/held-out.jsonl | grep -cxFf seen) == 0 ]]
}
