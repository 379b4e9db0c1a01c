# llm-train --key names a result by what determines it; --sweep prints commands that a shell, parallel and make can run.
load ../helper

setup() {
    T=$ROOT/tests/golden/tiny
    seq 400 > text.txt
    llm-tokenize encode -T "$T/tokenizer.json" text.txt > data.tok
    base=(llm-train -q -c nano -T "$T/tokenizer.json" -n 2 -b 2 -l 16 -o out.llm)
}

key() {
    "${base[@]}" --key "$@" data.tok
}

# What does not change a result, as the manual says. All other options do.
neutral=' accumulate batch checkpoint-every parallel reward-jobs memory ngram-bar save-every hash-every shard snapshot snapshot-every rank-timeout profile sweep sweep-format key threads quiet verbose
 rollout-log keep-best ema-output log coordcheck-png output '

# Companions without which an option is refused, also of the key that it is compared with.
declare -gA also=([mup]='--base-width 8' [base-head-dim]='--mup --base-width 8' [coordcheck-png]='--coordcheck 8' [rank]='-' [alpha]='-'
    [rslora]='-' [dora]='-' [targets]='-' [adapter-dropout]='-' [also-train]='-' [adapter-init]='-' [base-width]="--mup")

@test "--key: every option of the table changes it, but those that are neutral" {
    local letter long arg rest first second name changed tested=0
    cp data.tok one
    head -c 1000 text.txt > two
    refute [ "$(key)" == "$(key --lr 2e-3)" ]
    while IFS=$'\x1f' read -r letter long arg rest; do
        name=${long#--}
        [[ " sweep sweep-format key help version resume init adapter config output ema-output threads quiet verbose batch accumulate " != *" $name "* ]] || continue
        local with=${also[$name]-}
        if [[ $with == - ]]; then with="--init $T --adapter lora"; fi
        pairs=("$arg")
        [[ $arg == *'|'* && $arg != FILE* && $arg != NAME* && $arg != ORDER* ]] && pairs=("${arg%%|*} ${arg##*|}")
        [[ $arg == FILE* || $arg == MODEL ]] && pairs=("one two")
        [[ $name == set ]] && pairs=("n_layer=1 n_layer=2")
        [[ $name == activations ]] && pairs=("int8 top=.1")
        [[ $name == order ]] && pairs=("random sequential")
        [[ -n $arg && ${pairs[0]} != *' '* ]] && pairs=("2 3" ".25 .5" "300000 400000" "0 1" "a b")
        [[ -n $arg ]] || pairs=("")
        files=(data.tok)
        if [[ " prompts reward iterations lag redraw rollout-log " == *" $name "* ]]; then files=() with="--objective grpo"; fi
        [[ " prompts " == *" $name "* ]] && with+=" --reward cat --iterations 1"
        [[ " reward " == *" $name "* ]] && with+=" --prompts one --iterations 1"
        [[ " iterations " == *" $name "* ]] && with+=" --prompts one --reward cat"
        [[ " lag redraw rollout-log " == *" $name "* ]] && with+=" --prompts one --reward cat --iterations 1"
        [[ $name == lag ]] && with+=" --rollout-log r"
        [[ $name == to ]] && pairs=("llm safetensors")
        [[ $name == shard ]] && pairs=("dp=1 zero=0")
        [[ $name == *-log ]] && pairs=("r s")
        changed= whys=
        for pair in "${pairs[@]}"; do
            IFS=" " read -r first second <<< "$pair"
            command=("${base[@]}")
            [[ ${also[$name]-} == - ]] && command=(llm-train -q -n 2 -o out.llm)
            if [[ -n $arg ]]; then
                before=$("${command[@]}" $with "$long=$first" --key "${files[@]}" 2> why) || { whys+=$(cat why); continue; }
                after=$("${command[@]}" $with "$long=$second" --key "${files[@]}" 2> why) || { whys+=$(cat why); continue; }
            elif [[ $name == mup ]]; then
                before=$(key) after=$(key --mup --base-width 8)
            else
                before=$("${command[@]}" $with --key "${files[@]}" 2> why) && after=$("${command[@]}" $with "$long" --key "${files[@]}" 2> why) || { whys+=$(cat why); continue; }
            fi
            [[ $before != "$after" ]] && changed=yes || changed=no
            break
        done
        [[ -n $changed ]] || fail "$long $arg: no value of $(declare -p pairs) is taken: $whys"
        [[ $neutral == *" $name "* ]] && wanted=no || wanted=yes
        [[ $changed == "$wanted" ]] || fail "$long: expected a change of the key: $wanted; found: $changed"
        ((++tested))
    done < <(llm-train --complete-options | tr '\t' '\037')
    ((tested > 90)) || fail "$tested options"
}

@test "--key: contents of inputs count, not their names; values, not how they are written; rows of a step, not their division" {
    local k
    k=$(key)
    [[ $k =~ ^[0-9a-f]{16}$ ]]
    assert_equal "$(key --lr 1e-3)" "$k" # the default
    assert_equal "$(key --lr .002)" "$(key --learning-rate=2e-3)"
    assert_equal "$(key -j 1 -v --log log.jsonl --save-every 1)" "$k"
    assert_equal "$("${base[@]}" -o other.llm --key data.tok)" "$k"
    refute [ "$("${base[@]}" -o other.safetensors --key data.tok)" == "$k" ]
    assert_equal "$(key -b 1 --accumulate 2)" "$k"
    refute [ "$(key -b 1)" == "$k" ]
    cp data.tok copy.tok
    assert_equal "$("${base[@]}" --key copy.tok)" "$k"
    refute [ "$("${base[@]}" --key data.tok copy.tok)" == "$k" ]
    llm-tokenize encode -T "$T/tokenizer.json" <(seq 401) > data.tok
    refute [ "$(key)" == "$k" ]
    refute [ "$(LLM_ISA=scalar key)" == "$(key)" ]
    # a configuration in a file, a model in a folder
    cp "$T/config.json" a.json
    cp a.json b.json
    assert_equal "$(llm-train -c a.json -n 1 -o x.llm --key data.tok)" "$(llm-train -c b.json -n 1 -o x.llm --key data.tok)"
    sed -i 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 9/' b.json
    refute [ "$(llm-train -c a.json -n 1 -o x.llm --key data.tok)" == "$(llm-train -c b.json -n 1 -o x.llm --key data.tok)" ]
    cp -r "$T" m
    k=$(llm-train --init m -n 1 -o x.llm --key data.tok)
    assert_equal "$(llm-train --init "$T" -n 1 -o x.llm --key data.tok)" "$k"
    refute [ "$(llm-train --init m --adapter lora -n 1 -o x.llm --key data.tok)" == "$k" ]
    touch m/new
    refute [ "$(llm-train --init m -n 1 -o x.llm --key data.tok)" == "$k" ]
    # all parts of a set
    cp data.tok m-00001-of-00002.gguf
    cp data.tok m-00002-of-00002.gguf
    k=$(llm-train --init m-00001-of-00002.gguf -n 1 -o x.llm --key data.tok)
    echo >> m-00002-of-00002.gguf
    refute [ "$(llm-train --init m-00001-of-00002.gguf -n 1 -o x.llm --key data.tok)" == "$k" ]
    [[ ! -e out.llm && ! -e x.llm ]]
    refused 2 'expected a file, whose contents are part of the key; found standard input' "${base[@]}" --key -
    refused 66 absent "${base[@]}" --key absent
    refused 2 'expected one of -c' llm-train --key data.tok
    run -74 --separate-stderr bash -c '"$@" > /dev/full' - "${base[@]}" --key data.tok
}

@test "--sweep: a command for each combination, with names by the values; the commands run" {
    run -0 "${base[@]}" --sweep lr=1e-3,2e-3 --sweep n_layer=1,2 --log logs/run.jsonl data.tok
    assert_line -n 0 "llm-train --quiet --config=nano --tokenizer=$T/tokenizer.json --steps=2 --batch=2 --context=16 --log=logs/run-lr_1e-3-n_layer_1.jsonl\
 --lr=1e-3 --set=n_layer=1 -o out-lr_1e-3-n_layer_1.llm data.tok"
    assert_equal "${#lines[@]}" 4
    assert_equal "$(printf '%s\n' "${lines[@]}" | sed 's/.* -o out-//; s/\.llm.*//' | xargs)" \
        'lr_1e-3-n_layer_1 lr_1e-3-n_layer_2 lr_2e-3-n_layer_1 lr_2e-3-n_layer_2'
    mkdir logs
    bash -e <<< "$output"
    assert_equal "$(ls logs | wc -l) $(ls out-*.llm | wc -l)" '4 4'
    "${base[@]}" --lr 2e-3 --set n_layer=2 -o one.llm data.tok
    cmp one.llm out-lr_2e-3-n_layer_2.llm
    # without --log, a log beside each output; short options, operands that look like options, --keep-best
    cp data.tok -- -d.tok
    run -0 llm-train -qc nano -n2 --sweep precision=bf16 --keep-best best.llm -oout.llm -- -d.tok
    assert_output 'llm-train --quiet --config=nano --steps=2 --keep-best=best-precision_bf16.llm --precision=bf16 -o out-precision_bf16.llm --log=out-precision_bf16.jsonl -- -d.tok'
}

@test "--sweep: words that a shell would split or expand come through it" {
    local words=("it's" 'a b' '$HOME' '*' '"q"' '\x' ';' '#' '')
    for what in "${words[@]}"; do
        run -0 llm-train -c nano -o out.llm --train "$what" --sweep lr=1 data.tok
        bash -c "printf '%s\0' ${output#llm-train }" > found
        tr '\0' '\n' < found | grep -Fqx -e "--train=$what"
    done
    cp data.tok "da ta.tok"
    "${base[@]}" --sweep seed=1 "da ta.tok" | bash -e
    [[ -s out-seed_1.llm ]]
}

@test "--sweep-format make: rules that make again what has changed, and nothing else" {
    need_tool make
    unset MAKEFLAGS MAKELEVEL # of the make that runs the tests
    "${base[@]}" --sweep lr=1e-3,2e-3 --sweep-format make data.tok > sweep.mk
    make -s -f sweep.mk -j2 sweep
    [[ -s out-lr_1e-3.llm && -s out-lr_2e-3.llm ]]
    run -0 make -f sweep.mk sweep
    refute_output --partial '--lr=1e-3 -o'
    touch data.tok # the contents are the same
    run -0 make -f sweep.mk sweep
    refute_output --partial '-o out-'
    sed 's/--lr=1e-3/--lr=3e-3/' sweep.mk > other.mk
    run -0 make -f other.mk sweep
    assert_line --partial "--lr=3e-3 -o"
    refute_line --partial "--lr=2e-3 -o"
    "${base[@]}" --train 'x$y' --sweep lr=1 --sweep-format make data.tok > dollar.mk
    make -f dollar.mk -n sweep | grep -F -e "'--train=x\$y'"
}

@test "--sweep: mistakes" {
    refused 2 "--sweep: expected NAME=VALUE,..., found 'lr'" "${base[@]}" --sweep lr data.tok
    refused 2 "--sweep: expected NAME=VALUE,..., found 'lr='" "${base[@]}" --sweep lr= data.tok
    refused 2 "commas between" "${base[@]}" --sweep lr=1,,2 data.tok
    refused 2 "--lr: expected a number" "${base[@]}" --sweep lr=1,x data.tok
    refused 2 "'lr' is there twice" "${base[@]}" --sweep lr=1 --sweep learning-rate=2 data.tok
    refused 2 "found 'mup'" "${base[@]}" --sweep mup=1 data.tok
    refused 2 "found 'log'" "${base[@]}" --sweep log=1 data.tok
    refused 2 "found 'out-lr_1.llm' twice" "${base[@]}" --sweep lr=1,1 data.tok
    refused 2 "expected -o" llm-train -c nano --sweep lr=1 data.tok
    refused 2 "found standard output" "${base[@]}" -o - --sweep lr=1 data.tok
    refused 2 "found 'hidden'" llm-train --init "$T" -o out.llm --sweep hidden=1 data.tok
    refused 2 "line break" "${base[@]}" --sweep lr=1 $'a\nb'
    refused 2 "expected names of letters" "${base[@]}" -o 'a b.llm' --sweep lr=1 --sweep-format make data.tok
    run ! --separate-stderr "${base[@]}" --sweep n_layr=1 data.tok
    [[ $stderr == *n_layr* && -z $output ]]
    run -74 --separate-stderr bash -c '"$@" > /dev/full' - "${base[@]}" --sweep lr=1 data.tok
    [[ ! -e out.llm && -z $(ls | grep out-) ]]
}
