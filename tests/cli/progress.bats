# Messages beside a progress bar on a terminal.
load ../helper

setup_file() {
    sentences_tokens
}

# on_terminal COMMAND: runs it with a terminal as standard output and error; what appears there is in the file shown.
on_terminal() {
    script -qec "stty cols ${COLUMNS_WANTED:-120} && $1" /dev/null < /dev/null > shown
}

@test "a message erases the progress bar, which is drawn again below it" {
    need_tool script
    on_terminal "llm-train -c nano -T $F/tok.json -n 4 -l 8 -b 2 --val .2 --eval-every 1 -o m.llm $F/data.tok"
    # the line of each later validation begins with the code that erases, and a bar follows its end
    tr '\r' '@' < shown > codes
    run -0 grep -c $'@\e\\[Kllm-train: step [234]: ' codes
    ((output >= 2))
    run -0 grep -c $'^@train \\[' codes
    # no message shares its line with a bar that was not erased
    run -1 grep $'\\]. [^\e]*llm-train: ' codes
    # at the end the bar is gone
    run -0 grep -c $'@\e\\[Kllm-train: 4 steps' codes
}

@test "an error erases the progress bar" {
    need_tool script
    run on_terminal "ulimit -f 1; llm-train -c nano -T $F/tok.json -n 90 -l 8 -b 2 --log log -o m.llm $F/data.tok"
    run -0 grep -c $'\r\e\\[Kllm-train: .*: File too large' shown
    run -0 grep -c $'\rtrain \\[' shown
}

@test "the bar keeps within the width of the terminal" {
    need_tool script
    COLUMNS_WANTED=40 on_terminal "llm-train -c nano -T $F/tok.json -n 4 -l 8 -b 2 -o m.llm $F/data.tok"
    run -0 awk 'BEGIN { RS = "\r" } /^train / { n++; sub(/\033.*/, ""); if (length($0) > 39) { print length($0); bad = 1 } } END { exit bad || n == 0 }' shown
}

@test "fine-tuning on less data than the model's context: the context is what the data has, and it is said; --context that is too long is named" {
    llm-train -q -c nano -T "$F/tok.json" -n 0 -o base.llm "$F/data.tok"
    head -n 3 "$F/text" | llm-tokenize encode -q -T "$F/tok.json" -o short.tok -
    n=$(llm-tokenize encode -q -T "$F/tok.json" --text <(head -n 3 "$F/text") | wc -w)
    run -0 --separate-stderr llm-train --init base.llm -n 2 -b 2 -o tuned.llm short.tok
    [[ ${stderr_lines[0]} =~ ^"llm-train: --context "([0-9]+)": the training data has "([0-9]+)" tokens, the model's context is "[0-9]+$ ]]
    ((BASH_REMATCH[1] == BASH_REMATCH[2] - 1 && BASH_REMATCH[2] >= n))
    context=${BASH_REMATCH[1]}
    llm-train -q --init base.llm -n 2 -b 2 -l "$context" -o given.llm short.tok
    cmp tuned.llm given.llm
    # enough data: nothing is said, and the context stays the model's
    run -0 --separate-stderr llm-train --init base.llm -n 1 -b 1 -o tuned.llm "$F/data.tok"
    [[ $stderr != *--context* ]]
    run -65 --separate-stderr llm-train -c nano -T "$F/tok.json" -n 2 -l 1000 -o tuned.llm short.tok
    [[ $stderr == *"expected more than one context of 1000 tokens (--context), found "* ]]
}

@test "--embed with a decoder warns once; not with -q, nor a model that says how it embeds" {
    M=$ROOT/tests/golden/tiny
    printf '{"prompt": "a"}\n%.0s' 1 2 3 > three.jsonl
    run -0 --separate-stderr llm-infer -m "$M" --embed --jsonl three.jsonl
    [[ $(grep -c 'warning: .*tiny: a decoder' <<< "$stderr") == 1 ]]
    run -0 --separate-stderr llm-infer -q -m "$M" --embed --jsonl three.jsonl
    [[ -z $stderr ]]
    run -0 --separate-stderr llm-infer -m "$ROOT/tests/golden/tiny-bert" --embed --jsonl three.jsonl
    [[ $stderr != *warning* ]]
}
