# No output may be the same file as an input or another output: every pair of paths of every program, in every spelling, before anything is opened.
load ../helper

# COMMAND: inputs: outputs. "operand" is what stands without an option; IN and OUT are those of llm-quantize.
commands() {
    cat << 'END'
llm-train: --init --tower --resume --tokenizer --adapter-init --val --reference --teacher --prompts --base operand: --output --keep-best --ema-output --log --coordcheck-png --rollout-log
llm-infer: --model --mmproj --tokenizer --draft --file --image --context-from --fim-prefix --fim-suffix --kv-in --knn --grammar --choices --json-schema: --output --kv-out --png --chat-log
llm-quantize: IN --calibrate --imatrix --measure --base: OUT --report --imatrix-out --factors
llm-tokenize train: operand: --output
llm-tokenize encode: --tokenizer operand: --output
llm-tokenize decode: --tokenizer operand: --output
llm-tokenize chunk: --tokenizer operand: --output
llm-tokenize image: --for --labels operand: --output
llm-tokenize info: --tokenizer: --output
llm-kvinspect summary: operand: --output
llm-kvinspect heads: operand --tokenizer: --output --png --svg
llm-kvinspect spectrum: operand: --output --png --svg
llm-kvinspect quant: operand: --output
llm-kvinspect evict: operand: --output --kv-out
llm-kvinspect slice: operand: --output
llm-kvinspect cat: operand: --output
llm-kvinspect size: operand: --output
llm-kvinspect export: operand: --output
llm-kvinspect attention: operand --tokenizer --image --for: --output --png --svg --html
llm-kvinspect diff: operand --tokenizer: --output --png --svg
llm-index build: operand: --output
llm-index add: operand: --output
llm-index delete: --ids: --output
llm-index search: --index operand: --output
llm-index stat: operand: --output
llm-index check: operand: --output
llm-bench speed: --model --against-program: --output
llm-bench train: : --output
llm-bench kernels: : --output
llm-bench comm: : --output
llm-bench cost: : --output
llm-bench comm: : --output
llm-bench quality: --model --base --against --base-logits --knn --tokenizer operand: --output
llm-bench eval: --model --tokenizer --labels --shots-from operand: --output --items
llm-bench steer: operand: --output
llm-bench dictionary: --model operand: --output
llm-bench plot: operand: --output
llm-bench scaling: operand: --output --plot
llm-bench zoo: --tokenizer --val operand: --output
llm-bench plot: operand: --output
END
}

# with COMMAND OPTION PATH OPTION PATH: sets $line to the command line, operands last.
with() {
    local -A of=([$2]=$3 [$4]=$5)
    local name
    read -ra line <<< "$1"
    for name in "${!of[@]}"; do [[ $name == --* ]] && line+=("$name" "${of[$name]}"); done
    if [[ $1 == llm-quantize ]]; then line+=(-t keep -- "${of[IN]-other-in}" "${of[OUT]-other-out}")
    elif [[ ${of[operand]-} ]]; then line+=(-- "${of[operand]}"); fi
}

# alias_refused COMMAND A PATH B PATH: status 2, one message, nothing printed.
alias_refused() {
    local got=0 said
    with "$@"
    said=$("${line[@]}" 2>&1 > printed < /dev/null) || got=$?
    [[ $got == 2 && $said == "${line[0]}"*": expected a file other than "* && ! -s printed ]] || fail "${line[*]}: status $got: $said"
    one_line "${said%$'\n'Try*}"
}

# exempt COMMAND A B: the pair may be one file.
exempt() {
    [[ "$1 $2 $3" == "llm-train --output --resume" || "$1 $2 $3" == "llm-quantize OUT IN" || "$1 $2 $3" == "llm-index add --output operand" ]]
}

# pair N COMMAND A B: an output and another path. The first pair of a program is tried in every spelling of one file, the others in one after another:
# the code that compares is the same for each.
pair() {
    local n=$1 spelling every=(file ./file sub/../file symbolic hard "$PWD/file" loop/file) new=(./new loop/new dangling)
    shift
    if ((n > 0)) || [[ ${SANITIZER-} ]]; then
        every=("${every[n % 7]}")
        new=("${new[n % 3]}")
    fi
    if exempt "$@"; then
        with "$1" "$2" file "$3" file
        run --separate-stderr "${line[@]}" < /dev/null
        [[ $stderr != *"expected a file other than"* && $(< file) == bytes ]] || fail "${line[*]}: $stderr"
        return
    fi
    for spelling in "${every[@]}"; do
        alias_refused "$1" "$2" file "$3" "$spelling"
    done
    for spelling in "${new[@]}"; do alias_refused "$1" "$2" "$spelling" "$3" new; done
    [[ $(< file) == bytes && $(echo * sub/*) == "dangling file hard loop printed sub symbolic sub/*" ]] || fail "${line[*]}: changed something"
}

setup() {
    echo bytes > file
    mkdir sub
    ln -s file symbolic
    ln file hard
    ln -s . loop
    ln -s new dangling
}

# all_pairs PROGRAM
all_pairs() {
    local command inputs outputs a b n=0
    while IFS=: read -r command inputs outputs; do
        [[ $command == "$1"* ]] || continue
        read -ra outputs <<< "$outputs"
        for a in "${!outputs[@]}"; do
            for b in $inputs "${outputs[@]:a+1}"; do
                pair $n "$command" "${outputs[a]}" "$b"
                n=$((n + 1))
            done
        done
    done < <(commands)
    echo "# $1: $n pairs" >&3
    ((n > 0))
}

@test "llm-train: no two of its paths are one file" { all_pairs llm-train; }
@test "llm-infer: no two of its paths are one file" { all_pairs llm-infer; }
@test "llm-quantize: no two of its paths are one file" { all_pairs llm-quantize; }
@test "llm-tokenize: no two of its paths are one file" { all_pairs llm-tokenize; }
@test "llm-index: no two of its paths are one file" { all_pairs llm-index; }
@test "llm-kvinspect: no two of its paths are one file" { all_pairs llm-kvinspect; }
@test "llm-bench: no two of its paths are one file" { all_pairs llm-bench; }

@test "every option that names a file is in the table of this test" {
    local program verb command known argument long
    for program in "$BIN"/llm-*; do
        program=${program##*/}
        [[ $program == *.* ]] && continue
        while read -r verb; do
            command="$program${verb:+ $verb}"
            known=$(commands | sed -n "s/^$command: //p")
            [[ -n $known ]] || fail "$command is not in the table"
            while read -r long argument; do
                # Presets, templates and tasks have names as well, some paths a strength behind them: what is opened is compared (below).
                [[ $long =~ ^--(config|chat-template|adapter|merge|steer|patch|splice)$ ]] && continue
                [[ ! $argument =~ ^(FILE|MODEL|TOK|DIR)([^A-Z]|$) || " $known " == *"$long"[\ :]* ]] || fail "$command $long"
            done < <($command --complete-options | awk -F '\t' '{ print $2, $3 }')
        done < <($program --complete-options | sed -n 's/^command\t//p' | grep . || echo)
    done
}

@test "devices are no files: /dev/null for several outputs, an input and an output" {
    llm-tokenize encode -T "$ROOT/tests/golden/tiny/tokenizer.json" -o /dev/null /dev/null
    run --separate-stderr llm-train --log /dev/null --ema-output /dev/null -o /dev/null /dev/null
    assert_equal "$status $stderr" "2 llm-train: expected one of -c CONFIG, --init MODEL, --resume FILE; found 0
Try 'llm-train --help'."
}

@test "standard output that is appended to an input, standard input that is the output" {
    sentences 20 > text
    cp text copy
    run -2 --separate-stderr bash -c 'llm-tokenize encode --text -T "$ROOT/tests/golden/tiny/tokenizer.json" text >> text'
    [[ $stderr == "llm-tokenize encode: standard output: expected a file other than operand text, found standard output"* ]]
    run -2 --separate-stderr bash -c 'llm-tokenize encode --text -T "$ROOT/tests/golden/tiny/tokenizer.json" -o text < text'
    assert_equal "$stderr" "llm-tokenize encode: -o: expected a file other than the input standard input, found text"
    cmp text copy
}

@test "what a program reads without its being named: files of a folder, a configuration, the data of a run, parts of a set" {
    local model=$ROOT/tests/golden/tiny
    cp -r "$model" folder
    chmod -R u+w folder
    run -2 --separate-stderr llm-infer -m folder -n 1 -o folder/config.json hello
    assert_equal "$stderr" "llm-infer: -o: expected a file other than the input folder/config.json, found folder/config.json"
    run -2 --separate-stderr llm-quantize -t q8_0 --report folder/model.safetensors folder out.llm
    [[ $stderr == *": --report: expected a file other than the input folder/model.safetensors, found folder/model.safetensors" ]]
    sentences 200 > text
    llm-tokenize encode -T folder/tokenizer.json -o t.tok text
    run -2 --separate-stderr llm-train -c folder/config.json -T folder/tokenizer.json -n 1 -o folder/config.json t.tok
    [[ $stderr == *": -o: expected a file other than the input folder/config.json, found folder/config.json" ]]
    diff -r "$model" folder
    llm-train -q -c nano -T folder/tokenizer.json -n 1 -b 1 -l 16 -o run.llm t.tok
    cp t.tok copy.tok
    run -2 --separate-stderr llm-train -q --resume run.llm -n 2 --log t.tok
    assert_equal "$stderr" "llm-train: --log: expected a file other than the input t.tok, found t.tok"
    cmp t.tok copy.tok
    run -2 --separate-stderr llm-train -q --resume run.llm -n 2 --ema .9 --ema-output ./run.llm
    [[ $stderr == "llm-train: --ema-output: expected a file other than "*" run.llm, found ./run.llm"* ]]
    run -2 --separate-stderr llm-quantize -q -t keep --split-max-tensors 100000 --report m-00001-of-00001.gguf folder m.gguf
    [[ $stderr == *": expected a file other than --report m-00001-of-00001.gguf, found m-00001-of-00001.gguf" ]]
    [[ $(head -c 4 m-00001-of-00001.gguf) == name ]] # still the report
}

@test "a run that is resumed and a model that is quantised in place are replaced" {
    sentences 200 > text
    llm-tokenize encode -T "$ROOT/tests/golden/tiny/tokenizer.json" -o t.tok text
    llm-train -q -c nano -T "$ROOT/tests/golden/tiny/tokenizer.json" -n 1 -b 1 -l 16 -o run.llm t.tok
    llm-train -q --resume run.llm -n 2 -o ./run.llm
    llm-train -q --resume run.llm -n 3
    llm-quantize -q -t q8_0 run.llm run.llm
    llm-infer -q -m run.llm -n 1 hello > /dev/null
}
