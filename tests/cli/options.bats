# Options as people write them: other names, abbreviations, slips, options of other tools.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    P='Once upon a time there was a red cat.'
}

@test "an unknown option names the nearest, whatever the slip" {
    refused 2 "unknown option '--tmep' (did you mean --temp?)" llm-infer -m "$M" --tmep 1 x
    refused 2 "unknown option '--tok_k' (did you mean --top-k?)" llm-infer -m "$M" --tok_k=1 x
    refused 2 "unknown option '--pecision' (did you mean --precision?)" llm-infer -m "$M" --pecision f32 x
    refused 2 "unknown option '--temprature' (did you mean --temp?)" llm-infer -m "$M" --temprature 1 x # by way of --temperature
    refused 2 "unknown option '--vebrose' (did you mean --verbose?)" llm-kvinspect summary --vebrose x
    refused 2 "unknown option '--xylophone'" llm-infer -m "$M" --xylophone x
    [[ $stderr != *'did you mean'* ]]
    refused 2 "unknown option '-Z' in '-qZ'" llm-infer -qZ
    refused 2 "unknown option '-Z'" llm-infer -Z
    refused 2 "unknown option '-é' in '-qé'" llm-infer -qé # a whole character
    refused 2 "unknown option '-\\\\xff' in '-q\\\\xff'" llm-infer $'-q\xff'
}

@test "values: negative numbers, attached, after '=', in bundles of letters, after operands, the last one given" {
    local spelling
    llm-infer -q -m "$M" -n 4 "$P" > four
    for spelling in '-n4' '--tokens=4' '--tokens 4' '-qn4' '-qn 4' '-n 9 -n 4' '-n +4'; do llm-infer -q -m "$M" $spelling "$P" | cmp - four; done
    POSIXLY_CORRECT=1 llm-infer "$P" -qm "$M" -n 4 | cmp - four
    llm-infer -q -m "$M" -- "-n 4" > minus # after "--" nothing is an option
    llm-infer -q -m "$M" -n -1 "$P" > all
    for spelling in '-n-1' '--tokens=-1' '--tokens -1' '-qn-1'; do llm-infer -q -m "$M" $spelling "$P" | cmp - all; done
    refused 2 "--temp: expected a number from 0 to 1000000, found '-1'" llm-infer -m "$M" --temp -1 x
    refused 2 "--threads: expected an integer from 1 to 256, found '2q'" llm-infer -m "$M" -j2q x
    refused 2 "option '--no-ti' (--no-timings) takes no argument, found '-1'" llm-infer -m "$M" --no-ti=-1 x
    refused 2 "option '--quiet' takes no argument, found 'yes'" llm-infer -m "$M" --quiet=yes x
}

@test "the empty name of a file is a mistake of the command line" {
    refused 2 "--model: expected the name of a file, found ''" llm-infer -m "" x
    refused 2 "--output: expected the name of a file, found ''" llm-train -c nano -o ""
    refused 2 "operand 1: expected the name of a file, found ''" llm-kvinspect ""
    refused 2 "operand 2: expected the name of a file, found ''" llm-quantize -t q8_0 "$M" ""
}

@test "an ambiguous option lists the candidates; an abbreviation that is not ambiguous is taken" {
    refused 2 "option '--top-' is ambiguous: --top-n-sigma, --top-k, --top-p" llm-infer -m "$M" --top- 1 x
    refused 2 "option '--to' is ambiguous: --tokenizer, --top, --tokens, --top-n-sigma, --top-k, --top-p" llm-infer -m "$M" --to 1 x
    refused 2 "option '--top_' is ambiguous: --top-n-sigma, --top-k, --top-p" llm-infer -m "$M" --top_=1 x
    llm-infer -m "$M" --temp 0 -n 5 "$P" > a
    llm-infer -m "$M" --tempera 0 --tokens 5 "$P" > b
    cmp a b
}

@test "a choice, a command and a preset suggest the nearest" {
    refused 2 "--schedule: expected one of cosine|linear|constant|wsd, found 'cosin' (did you mean cosine?)" llm-train --schedule cosin
    refused 2 "found 'adamm' (did you mean adamw or adam?)" llm-train --optimizer adamm
    refused 2 "--cache-type: expected one of f32|f16|bf16|q8_0|q4_0|q8_0_rot|q4_0_rot, found 'q8-1' (did you mean q8_0?)" llm-infer --cache-type q8-1
    refused 2 "unknown command 'encoed' (did you mean encode?)" llm-tokenize encoed
    sentences_tokens
    refused 66 "(did you mean nano?)" llm-train -c naon -o m.llm data.tok
    refused 66 "(did you mean tiny?)" llm-train -c tni -T tok.json -o m.llm data.tok
    refused 66 "(did you mean t5-mini?)" llm-bench cost t5mini
    refused 2 "--set: unknown key 'hiden_size' (did you mean hidden_size?); llama has: " llm-train -c tiny --set hiden_size=64 --plan
}

@test "everything that takes a name from a table suggests the nearest" {
    sentences_tokens
    llm-train -q -c tiny --set num_hidden_layers=1 --set hidden_size=32 -T tok.json -n 0 -l 16 -o m.llm data.tok
    refused 2 "found 'q4km' (did you mean q4_k_m?)" llm-quantize -t q4km m.llm o.llm
    refused 2 "found 'foo=q4k' (did you mean q4_k?)" llm-quantize -t q8_0 --tensor-type foo=q4k m.llm o.llm
    refused 2 "found 'gpqt' (did you mean gptq?)" llm-quantize -t q8_0 --method gpqt m.llm o.llm
    refused 2 "found 'dpoo' (did you mean dpo?)" llm-train --objective dpoo data.tok
    refused 2 "found 'mun' (did you mean muon?)" llm-train --optimizer mun data.tok
    refused 2 "found 'lor' (did you mean lora?)" llm-train --init m.llm --adapter lor -o a.llm data.tok
    refused 2 "found 'q_porj' (did you mean q_proj?)" llm-train --init m.llm --adapter lora --targets q_porj -o a.llm data.tok
    refused 2 "found 'embed_tokns' (did you mean embed_tokens?)" llm-train --init m.llm --adapter lora --also-train embed_tokns -o a.llm data.tok
    refused 2 "hidden_act: expected one of gelu, gelu_new, relu, silu, sigmoid, tanh, relu2, quick_gelu, linear; found 'sliu' (did you mean silu?)" \
        llm-train -c tiny --set hidden_act=sliu --plan
    refused 2 "position_embedding: expected one of rope, learned, sinusoidal, none, buckets; found 'ropo' (did you mean rope?)" \
        llm-train -c tiny --set position_embedding=ropo --plan
    echo '{"model_type": "lama"}' > config.json
    refused 65 "found 'lama' (did you mean llama?)" llm-train -c config.json -T tok.json -o a.llm data.tok
    refused 66 "no built-in chat template of that name (did you mean chatml?)" llm-tokenize encode -T tok.json --chat --chat-template chatlm text
    refused 66 "no built-in chat template of that name (did you mean llama3?)" llm-infer -m m.llm --chat --chat-template lama3 hi
    refused 2 "task 'helaswag': expected a file or a built-in task (did you mean hellaswag?)" llm-bench eval -m m.llm --task helaswag data
    refused 2 "found 'gtp2' (did you mean gpt2?)" llm-bench zoo -T tok.json --only gtp2 text
    refused 2 "(did you mean layers.0.residual.after?)" llm-infer -m m.llm --export layers.0.residul.after x
    refused 2 "found 'bqe' (did you mean bpe?)" llm-tokenize train --model bqe text
    refused 2 "found 'men' (did you mean mean?)" llm-infer -m m.llm --embed --pooling men x
    LLM_ISA=avx52 refused 2 "LLM_ISA: expected one of " llm-infer -m m.llm x
    [[ $stderr == *"found 'avx52' (did you mean avx"*"?)" ]]
    run -65 llm-infer -m m.llm --jsonl <<< '{"promt": "a"}'
    [[ $output == *', found \"promt\" (did you mean prompt?)'* ]]
}

@test "names that hands know: the same bytes as by the names of the manual" {
    llm-infer -m "$M" --temp 0.7 --tokens 6 --context 64 --top-k 5 --seed 3 -j 1 "$P" > a
    llm-infer -m "$M" --temperature 0.7 --max-tokens 6 --ctx-size 64 --top_k 5 -s 3 -t 1 --prompt "$P" | cmp - a
    llm-infer -m "$M" --temperature=0.7 --max_tokens=6 --ctx_size=64 --top_k=5 --seed=3 -p "$P" | cmp - a
    sentences_tokens
    llm-train -q -c nano -T tok.json --lr 1e-3 --steps 2 --batch 2 --context 16 --accumulate 2 -o a.llm data.tok
    llm-train -q -c nano -T tok.json --learning-rate 1e-3 --max_steps 2 --batch-size 2 --block_size 16 --gradient_accumulation_steps=2 -o b.llm data.tok
    cmp a.llm b.llm
}

@test "one prompt: -p and an operand, or -f, are two" {
    refused 2 "expected one prompt, found -p and an operand 'y'" llm-infer -m "$M" -p x y
    refused 2 'expected one prompt' llm-infer -m "$M" -p x -f y
    refused 2 'expected no -p' llm-infer -m "$M" -p x --jsonl
}

@test "options of other tools: what there is instead" {
    refused 2 'there is no --n-gpu-layers here: computing is done on CPUs' llm-infer -m "$M" --n-gpu-layers 99 x
    refused 2 'there is no --n-gpu-layers here' llm-infer -m "$M" --n_gpu_layers=99 x
    refused 2 'there is no -ngl here: computing is done on CPUs' llm-infer -m "$M" -ngl 99 x
    refused 2 'there is no --server here: nothing listens on a network; --jsonl' llm-infer --server
    refused 2 'there is no --mlock here' llm-infer -m "$M" --mlock x
    refused 2 'there is no --vocab-size here: the configuration says it' llm-train -c nano --vocab-size 100
    refused 2 'there is no --input here: files are operands' llm-tokenize train --input=x --model_prefix=m
    refused 2 'there is no -o here: the output is the second operand' llm-quantize -t q8_0 in -o out
    refused 2 'there is no --ubatch-size here' llm-bench speed --ubatch-size 3
    refused 2 'there is no -m here: a saved cache is enough: llm-infer -m MODEL --kv-out FILE' llm-kvinspect -m model.llm
    refused 2 'there is no --cache-type-k here: llm-infer --cache-type' llm-kvinspect heads --cache_type_k=q8_0 x.kv
}

@test "options of other tools do not hide options of the program" {
    local source program command word tried=0
    for source in "$ROOT"/bin/llm-*.c; do
        program=$(basename "$source" .c)
        while read -r command; do
            while read -r word; do
                # shellcheck disable=SC2086  # no command is no word
                run -2 --separate-stderr "$program" $command "$word"
                [[ $stderr == *"there is no $word here: "* ]] || fail "$program $command $word: $stderr"
                tried=$((tried + 1))
            done < <("$program" $command --complete-aliases | awk -F'\t' '$1 == "foreign" { print $2 }')
        done < <("$program" --complete-options | awk -F'\t' '$1 == "command" { print $2; found = 1 } END { if (!found) print "" }')
    done
    ((tried >= 100)) || fail "only $tried options were tried"
}

@test "a flag with a value, an option without one" {
    refused 2 "option '--jsonl' takes no argument, found '1'" llm-infer --jsonl=1
    refused 2 "option '--temp' needs an argument" llm-infer --temp
    refused 2 "option '-n' needs an argument" llm-infer -n
}

@test "operands and options in any order; -- ends the options" {
    llm-infer -m "$M" --temp 0 -n 5 -- "$P" > a
    llm-infer "$P" --temp 0 -m "$M" -n5 | cmp - a
    llm-infer -m "$M" --temp 0 -n 5 -- "-x" > b
    [[ -s b ]]
    sentences_tokens
    llm-train data.tok -q -c nano -T tok.json -n 1 -b 2 -l 16 -o a.llm
    llm-train -q --resume a.llm -n 2 -- data.tok
    llm-train -q data.tok -n 2 -c nano --schedule constant -T tok.json -b 2 -l 16 -o b.llm
    [[ -s b.llm ]]
}

@test "a model without -m, and a folder that is no model's, are told apart" {
    refused 2 'expected -m before the model: llm-infer -m model.gguf' llm-infer model.gguf hi
    refused 2 "expected -m before the model: llm-infer -m $M" llm-infer "$M" hi
    refused 2 'expected a model (-m MODEL)' llm-infer hi
    mkdir empty
    refused 66 "empty: expected a model's folder (config.json, tokenizer.json and model.safetensors" llm-infer -m empty hi
    refused 66 "empty: expected a model's folder (config.json" llm-bench cost empty
}

@test "epochs: as many steps as the windows of the data need" {
    need_tool jq
    sentences_tokens
    tokens=$(llm-tokenize encode -T tok.json --lines --count text)
    steps=$(((((tokens - 1) / 32 * 3 + 1) / 2 + 3) / 4)) # 1.5 passes of windows of 32 tokens, 4 a step
    llm-train -q -c nano -T tok.json --epochs 1.5 -b 2 --accumulate 2 -l 32 --schedule constant --log a.jsonl -o a.llm data.tok
    [[ $(jq -r .step a.jsonl | tail -n 1) == "$steps" ]]
    llm-train -q -c nano -T tok.json --steps "$steps" -b 2 --accumulate 2 -l 32 --schedule constant -o b.llm data.tok
    cmp a.llm b.llm
    refused 2 '--epochs: expected data that can be read again' llm-train -c nano -T tok.json --epochs 1 --stream -l 16 -o c.llm data.tok
    refused 2 'expected --steps, found --epochs' llm-train -c nano -T tok.json --epochs 1 --plan
}

@test "JSON Lines take the names of the command line, both spellings and the other names" {
    need_tool jq
    local line
    echo '{"prompt": "the cat", "tokens": 4, "temp": 0.5, "top_k": 3, "seed": 9}' | llm-infer -m "$M" --jsonl --no-timings > a
    for line in '{"prompt": "the cat", "max_tokens": 4, "temperature": 0.5, "top-k": 3, "seed": 9}' \
        '{"prompt": "the cat", "max-new-tokens": 4, "temp": 0.5, "top-k": 3, "seed": 9, "repeat-last-n": 64, "ignore_eos": null}'; do
        llm-infer -m "$M" --jsonl --no-timings <<< "$line" | cmp - a
    done
    [[ $(jq -c keys a) == '["completion_tokens","finish_reason","id","prompt_tokens","text"]' ]]
}

@test "control characters and bytes that are not UTF-8 in names are escaped in messages" {
    run -66 --separate-stderr llm-infer -m $'a\e[31m\n\xff\xc3' x
    assert_equal "$stderr" 'llm-infer: a\x1b[31m\n\xff\xc3: No such file or directory'
    run -66 --separate-stderr llm-infer -m $'träger\u009b\u202e.llm' x
    assert_equal "$stderr" 'llm-infer: träger\xc2\x9b\xe2\x80\xae.llm: No such file or directory'
    run -2 --separate-stderr llm-infer $'--a\nb'
    [[ $stderr == "llm-infer: unknown option '--a\nb'"$'\n'* ]]
    # notes as well as errors
    cp -r "$M" $'m\e'
    run -0 --separate-stderr llm-infer -v -n 1 -m $'m\e' "$P"
    [[ $stderr != *$'\e'* ]]
}

@test "an error in a normaliser's pattern is named as one" {
    need_tool jq
    jq '.normalizer = {"type": "Replace", "pattern": {"Regex": "(a"}, "content": "b"}' "$M/tokenizer.json" > t.json
    refused 65 "pattern of the normaliser Replace '(a'" llm-tokenize encode -T t.json --text "$ROOT/README.md"
    [[ $stderr != *split* ]]
}

@test "bytes that are not UTF-8: U+FFFD on a terminal, as they are in a pipe" {
    need_tool script
    llm-tokenize train --model byte -o bytes.json < /dev/null
    llm-tokenize encode -T bytes.json -o d.tok "$ROOT/LICENSE"
    llm-train -q -c nano -T bytes.json --steps 0 -o m.llm d.tok
    llm-infer -m m.llm --temp 2 --top-k 0 --top-p 1 --min-p 0 -n 200 --ignore-eos x > pipe
    run ! iconv -f utf-8 -t utf-8 -o /dev/null pipe
    script -qec "stty -opost; llm-infer -q -m m.llm --temp 2 --top-k 0 --top-p 1 --min-p 0 -n 200 --ignore-eos x" /dev/null < /dev/null > terminal
    iconv -f utf-8 -t utf-8 terminal > /dev/null
    grep -q $'\xEF\xBF\xBD' terminal
    # what is UTF-8 stays
    LC_ALL=C tr -cd 'a-zA-Z' < pipe > a
    LC_ALL=C tr -cd 'a-zA-Z' < terminal > b
    cmp a b
    llm-tokenize encode -T bytes.json --text pipe > ids
    script -qec "stty -opost; llm-tokenize decode -T bytes.json ids" /dev/null < /dev/null > terminal
    iconv -f utf-8 -t utf-8 terminal > /dev/null
    llm-tokenize decode -T bytes.json ids | cmp - pipe
}

@test "sampling options: the help, the manual's section and its members of JSON Lines name the same, in the same order" {
    local options name
    options=$(llm-infer --help=all | awk '/^Choosing tokens/ { on = 1; next } /^$/ { on = 0 } on { sub(/=.*/, "", $1); print substr($1, 3) }')
    [[ $(wc -l <<< "$options") -ge 10 ]]
    assert_equal "$options" "$(awk '/^\.Ss Choosing tokens/ { on = 1; next } /^\.Ss/ { on = 0 } on && /^\.It Fl -/ { print substr($3, 2) }' \
        "$ROOT/man/llm-infer.1" | grep -vx seed)"
    while read -r name; do
        awk '/^\.Ss JSON Lines/ { on = 1; next } /^\.Ss/ { on = 0 } on' "$ROOT/man/llm-infer.1" | grep -qE "^\.Sq ${name//-/_}( |$)" \
            || fail "JSON Lines in llm-infer(1): missing: ${name//-/_}"
        # null: as the command line says
        run -0 llm-infer -m "$M" --jsonl --no-timings -n 2 <<< "{\"prompt\": \"a\", \"${name//-/_}\": null}"
        [[ $name == logit-bias || $output != *"$name"* && $output != *"${name//-/_}"* ]]
    done <<< "$options"
}

@test "logit biases of a line: texts or an object, in place of those of the command line" {
    need_tool jq
    # of a vocabulary of 300 the only tokens allowed
    printf '%s\n' '{"ids": [70], "logit_bias": {"65": 1000}}' '{"ids": [70], "logit-bias": ["65+1000"]}' '{"ids": [70], "logit_bias": "65+1000"}' \
        '{"ids": [70]}' | llm-infer -m "$M" --jsonl --ids --temp 0 -n 3 --logit-bias 66+1000 --no-timings 2> err > out || { cat err; false; }
    [[ $(jq -c .ids out) == $'[65,65,65]\n[65,65,65]\n[65,65,65]\n[66,66,66]' ]]
    for bad in '{"x": 1}' '[5]' '"65"' 7 '{"65": "y"}'; do
        run -65 --separate-stderr llm-infer -m "$M" --jsonl -n 1 <<< "{\"prompt\": \"a\", \"logit_bias\": $bad}"
        [[ $output$stderr == *logit_bias* ]]
    done
}

@test "--pair --append-eos ends the target once, in text as in token streams" {
    echo '{"q": "Hi", "a": "you"}' > pair
    llm-tokenize encode -T "$M" --pair q,a --append-eos --text pair > ids
    llm-tokenize encode -T "$M" --pair q,a --append-eos --count pair > count
    assert_equal "$(wc -w < ids)" "$(llm-tokenize encode -T "$M" --pair q,a --text pair | wc -w | xargs expr 1 +)"
    assert_equal "$(< count)" "$(wc -w < ids)"
}

@test "a slip in a command of llm-kvinspect, and a model where a configuration is expected" {
    refused 2 "unknown command 'sumary' (did you mean summary?)" llm-kvinspect sumary cache.kv
    refused 66 "cache.kv: No such file or directory" llm-kvinspect cache.kv
    refused 65 "expected a preset or a config.json (--init begins with a model), found a checkpoint (.llm)" \
        llm-train -c "$ROOT/tests/golden/formats/checkpoint.llm" --steps 1 -o out.llm "$ROOT/tests/golden/formats/tokens.tok"
}
