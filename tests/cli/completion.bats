# Completion in bash offers what the programs have, and nothing else.
load ../helper

setup() {
    # shellcheck source=/dev/null
    source "$ROOT/man/completion.bash"
    mkdir folder
    touch file.txt
}

# completes WORD...: what is offered for the last word, one a line, sorted
completes() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _llmutils "$1" "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
    output=$(printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort)
}

@test "commands of a program, also half typed" {
    completes llm-bench ''
    assert_equal "$output" $'comm\ncost\ndictionary\neval\nkernels\nplot\nquality\nscaling\nspeed\nsteer\ntrain\nzoo'
    completes llm-tokenize en
    assert_equal "$output" encode
}

@test "every option of every program and command" {
    local source name command
    for source in "$ROOT"/bin/llm-*.c; do
        name=$(basename "$source" .c)
        while read -r command; do
            # shellcheck disable=SC2086  # no command is no word
            completes "$name" $command --
            assert_equal "$output" "$("$name" $command --complete-options | cut -f 2 | grep -e '^--' | LC_ALL=C sort)"
            [[ -z $command && $name != llm-@(train|infer|quantize) || $output == *--help*--version* ]]
        done < <(echo; "$name" --complete-options | awk -F'\t' '$1 == "command" { print $2 }')
    done
}

@test "values of options that take one of a few, with and without an equals sign" {
    completes llm-quantize -t ''
    [[ $output == *q8_0* && $output == *bf16* ]]
    completes llm-bench cost --table = t
    assert_equal "$output" totals
    completes llm-bench cost --table =
    assert_equal "$output" $'all\nparts\ntotals'
    completes llm-train --schedule co
    assert_equal "$output" $'constant\ncosine'
}

@test "presets, chat templates, types, objectives, patterns: words beside files, or alone" {
    completes llm-train -c n
    assert_equal "$output" nano
    completes llm-train --config = bert
    assert_equal "$output" bert-mini
    completes llm-train -c f
    assert_equal "$output" $'file.txt\nfolder'
    completes llm-bench cost t
    assert_equal "$output" $'t5-mini\ntiny'
    completes llm-infer --chat-template ch
    assert_equal "$output" chatml
    completes llm-tokenize encode --chat-template f
    assert_equal "$output" $'file.txt\nfolder'
    completes llm-tokenize encode --chat-template z
    assert_equal "$output" zephyr
    completes llm-tokenize train --pattern l
    assert_equal "$output" llama3
    completes llm-train --objective c
    assert_equal "$output" $'classify\ncontrastive'
    completes llm-train --optimizer ad
    assert_equal "$output" $'adagrad\nadam\nadamw'
    completes llm-train --order r
    assert_equal "$output" random
    completes llm-infer --cache-type q
    assert_equal "$output" $'q4_0\nq4_0_rot\nq8_0\nq8_0_rot'
}

@test "files for operands and for options that take one; nothing for numbers" {
    completes llm-infer -m f
    assert_equal "$output" $'file.txt\nfolder'
    completes llm-train -o fi
    assert_equal "$output" file.txt
    completes llm-bench quality -m model.llm fi
    assert_equal "$output" file.txt
    completes llm-infer -n ''
    assert_equal "$output" ""
}

@test "it is registered for every program, and bash alone can load it" {
    local source
    for source in "$ROOT"/bin/llm-*.c; do
        run -0 bash --norc -c 'source "$0" && complete -p "$1"' "$ROOT/man/completion.bash" "$(basename "$source" .c)"
        assert_output --partial "-F _llmutils"
    done
}
