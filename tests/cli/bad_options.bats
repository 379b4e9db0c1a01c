# Nonsense values for every numeric option of every program and command, as --complete-options lists them.
load ../helper

# sane OPTION VALUE: what looks like nonsense and is documented (-1: all, or until the context is full; penalties and rewards of either sign, rewards
# of any size).
sane() {
    case "$1 $2" in
    '--tokens -1' | '--repeat-last-n -1' | '--dry-penalty-last-n -1' | '--presence-penalty -1' | '--frequency-penalty -1' | '--reward-fallback '[-9]*) return 0 ;;
    esac
    return 1
}

# One line a command: with its options, then what follows the option under test. Every numeric option is tried in front of it.
commands() {
    cat << 'EOF'
llm-train|-c nano -T M/tokenizer.json -n 1 -o out|t.txt
llm-infer|-m M -n 0|once
llm-quantize|-t f16|M out
llm-tokenize encode|-T M/tokenizer.json -o out|t.txt
llm-tokenize train|-o out|t.txt
llm-tokenize decode|-T M/tokenizer.json -o out|c.tok
llm-tokenize chunk|-T M/tokenizer.json -o out|t.txt
llm-bench speed|-m M -o out|
llm-bench train|-c nano -o out|
llm-bench kernels|-o out|
llm-bench cost|-o out|nano
llm-bench quality|-m M -o out|t.txt
llm-index build|-o out|rows.jsonl
llm-index search|-o out -x x.idx|rows.jsonl
llm-kvinspect heads|-o out|c.kv
llm-kvinspect spectrum|-o out|c.kv
llm-kvinspect quant|-o out|c.kv
llm-kvinspect evict|-o out|c.kv
llm-kvinspect slice|-o out|c.kv
llm-kvinspect diff|-o out|c.kv c.kv
EOF
}

setup() {
    ln -s "$ROOT/tests/golden/tiny" M
    echo 'the cat sat on the mat' > t.txt
    llm-tokenize encode -T M/tokenizer.json -o c.tok t.txt
    llm-infer -m M -n 0 --kv-out c.kv once
    echo '{"id": 1, "embedding": [1, 2]}' > rows.jsonl
    llm-index build -o x.idx rows.jsonl
}

# refuse_each VALUE: every numeric option refuses VALUE: status 2, its name in the one line, no output.
refuse_each() {
    local value=$1 command first last option tried=0 line
    while IFS='|' read -r command first last; do
        while IFS= read -r option; do
            sane "$option" "$value" && continue
            tried=$((tried + 1))
            # shellcheck disable=SC2086  # words of the table
            run -2 --separate-stderr $command $first "$option=$value" $last < /dev/null
            line=${stderr%$'\n'Try *}
            one_line "$line"
            [[ -z $output && $line == llm-* && $line == *"$option"* ]] || fail "$command $option='$value': $output $stderr"
            [[ ! -e out ]] || fail "$command $option='$value' left an output"
        done < <($command --complete-options | awk -F '\t' '$3 ~ /^(N|N,\.\.\.|X|P|K|D|T|S|RATE|NORM)$/ { print $2 }')
    done < <(commands)
    ((tried > 50)) || fail "only $tried options were found"
    nothing_left
}

@test "numeric options refuse an empty value" {
    refuse_each ''
}

@test "numeric options refuse words, and numbers with something behind them" {
    refuse_each abc
    refuse_each 5x
}

@test "numeric options refuse negative numbers, unless those mean something" {
    refuse_each -1
}

@test "numeric options refuse what is no finite number" {
    refuse_each 1e999
    refuse_each nan
}

@test "numeric options refuse numbers beyond 64 bits" {
    refuse_each 99999999999999999999
}
