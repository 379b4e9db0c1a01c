# Completion of the llmutils in bash. The programs say what they offer (`llm-x [COMMAND] --complete-options`): nothing is listed twice.
# Installed under each program's name, so that it is loaded when one is first completed; or: source man/completion.bash

# Lines "-x<TAB>--long<TAB>ARGUMENT<TAB>help<TAB>words", "command<TAB>name" and "operand<TAB><TAB>words"; no answer is no completion.
_llmutils_offers() {
    "$@" --complete-options 2> /dev/null < /dev/null
}

# The argument that option $1 takes among the offers in $2: "", "N", "FILE", "a|b|c" …; status 1 when there is no such option.
_llmutils_argument() {
    awk -F'\t' -v option="$1" '$1 == option || $2 == option { print $3; found = 1; exit } END { exit !found }' <<< "$2"
}

# The words "a|b|c" that the argument of option $1 may be besides (presets, chat templates); of the operands where $1 is "operand".
_llmutils_words() {
    awk -F'\t' -v option="$1" 'option == "operand" && $1 == option { print $3; exit } $1 == option || $2 == option { print $5; exit }' <<< "$2"
}

# Completes an argument of kind $1, or one of the words $3, that begins with $2.
_llmutils_complete_argument() {
    local -a words
    case $1 in
    FILE | MODEL | CONFIG | TOK | *FILE*) mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    *[[:lower:]]*) mapfile -t COMPREPLY < <(compgen -W "${1//|/ }" -- "$2") ;;
    *) COMPREPLY=() ;;
    esac
    if [[ -n $3 ]]; then
        mapfile -t words < <(compgen -W "${3//|/ }" -- "$2")
        COMPREPLY+=("${words[@]}")
    fi
}

_llmutils() {
    local program=$1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command='' offers kind i
    local -a commands words
    COMPREPLY=()
    offers=$(_llmutils_offers "$program")
    mapfile -t commands < <(awk -F'\t' '$1 == "command" { print $2 }' <<< "$offers")
    if ((${#commands[@]})); then
        for ((i = 1; i < COMP_CWORD; i++)); do
            [[ " ${commands[*]} " != *" ${COMP_WORDS[i]} "* ]] || { command=${COMP_WORDS[i]}; break; }
        done
        if [[ -n $command ]]; then
            offers=$(_llmutils_offers "$program" "$command")
        elif ((COMP_CWORD == 1)) && [[ $word != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "${commands[*]}" -- "$word")
            return
        fi
    fi
    # bash breaks --option=value at the equals sign
    if [[ $word == '=' ]]; then
        kind=$(_llmutils_argument "$before" "$offers") && _llmutils_complete_argument "$kind" '' "$(_llmutils_words "$before" "$offers")"
    elif [[ $before == '=' ]] && ((COMP_CWORD >= 2)); then
        before=${COMP_WORDS[COMP_CWORD - 2]}
        kind=$(_llmutils_argument "$before" "$offers") && _llmutils_complete_argument "$kind" "$word" "$(_llmutils_words "$before" "$offers")"
    elif [[ $before == -?* ]] && kind=$(_llmutils_argument "$before" "$offers") && [[ -n $kind ]]; then
        _llmutils_complete_argument "$kind" "$word" "$(_llmutils_words "$before" "$offers")"
    elif [[ $word == -* ]]; then
        mapfile -t words < <(awk -F'\t' '$1 != "command" && $1 != "operand" { if ($1 != "") print $1; if ($2 != "") print $2 }' <<< "$offers")
        mapfile -t COMPREPLY < <(compgen -W "${words[*]}" -- "$word")
    else
        _llmutils_complete_argument FILE "$word" "$(_llmutils_words operand "$offers")"
    fi
    # names of files: slash after folders, quoting
    [[ ${kind-} == *'|'* || $word == -* ]] || compopt -o filenames 2> /dev/null || true
}
complete -F _llmutils llm-tokenize llm-train llm-infer llm-quantize llm-bench llm-kvinspect llm-index
