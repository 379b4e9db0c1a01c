# Bad input: the right status, one line, nothing half done.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    P='Once upon a time'
}

@test "misuse is status 2" {
    refused 2 'expected a model' llm-infer "$P"
    refused 2 'standard input cannot be two inputs' llm-infer -m -
    refused 2 'standard input cannot be two inputs' llm-infer -m - --jsonl
    refused 2 'standard input cannot be two inputs' llm-infer -m - --kv-in -
    refused 2 'one owner' llm-infer -m "$M" --score --logits "$P"
    refused 2 'one owner' llm-infer -m "$M" --score --kv-out - "$P"
    refused 2 'one owner' llm-infer -m "$M" --embed --logits -o x "$P"
    refused 2 'expected one prompt' llm-infer -m "$M" Once upon
    refused 2 'expected one prompt' llm-infer -m "$M" -f x "$P"
    refused 2 '--jsonl does not go with' llm-infer -m "$M" --jsonl --logits
    refused 2 '--samples goes with' llm-infer -m "$M" --samples 2 --score "$P"
    refused 2 '--trace-queries goes with' llm-infer -m "$M" --trace-queries 2 "$P"
    refused 2 '--kv-keep goes with' llm-infer -m "$M" --kv-keep 2 "$P"
    refused 2 '--threads' llm-infer -m "$M" -j 0 "$P"
    refused 2 '--threads' llm-infer -m "$M" -j two "$P"
    refused 2 '--temp' llm-infer -m "$M" --temp=-1 "$P"
    refused 2 '--temp' llm-infer -m "$M" --temp nan "$P"
    refused 2 '--top-p' llm-infer -m "$M" --top-p 1.5 "$P"
    refused 2 '--top-k' llm-infer -m "$M" --top-k=-1 "$P"
    refused 2 '--tokens' llm-infer -m "$M" -n=-2 "$P"
    refused 2 '--samples' llm-infer -m "$M" --samples 0 "$P"
    refused 2 '--stop' llm-infer -m "$M" --stop '' "$P"
    refused 2 '--precision' llm-infer -m "$M" --precision f8 "$P"
    refused 2 '--logit-bias' llm-infer -m "$M" --logit-bias 5 "$P"
    refused 2 'logit-bias: expected a token id below 300' llm-infer -m "$M" --logit-bias 300+1 "$P"
    refused 2 'unknown' llm-infer -m "$M" --no-such "$P"
}

@test "models that are missing, empty, cut, changed" {
    llm-quantize -q -t f16 "$M" m.llm
    llm-quantize -q -t f16 "$M" m.safetensors
    refused 66 'No such file' llm-infer -m absent.llm "$P"
    : > empty
    refused 65 empty llm-infer -m empty "$P"
    mkdir folder
    refused 66 'config.json' llm-infer -m folder "$P"
    echo 'not a model at all, but text' > text
    refused 65 text llm-infer -m text "$P"
    size=$(stat -c %s m.llm)
    for cut in 1 7 60 $((size / 2)) $((size - 1)); do
        head -c "$cut" m.llm > cut.llm
        refused 65 cut.llm llm-infer -m cut.llm "$P"
    done
    size=$(stat -c %s m.safetensors)
    for cut in 1 7 8 100 $((size / 2)) $((size - 1)); do
        head -c "$cut" m.safetensors > cut.safetensors
        refused 65 cut.safetensors llm-infer -m cut.safetensors "$P"
    done
    # a flipped byte in every part of the packed file
    size=$(stat -c %s m.llm)
    for at in 2 200 $((size / 2)) $((size - 3)); do
        cp m.llm flipped.llm
        byte=$(od -An -tu1 -j "$at" -N 1 m.llm)
        printf "\\x$(printf %02x $((byte ^ 16)))" | dd of=flipped.llm bs=1 seek="$at" conv=notrunc status=none
        refused 65 flipped.llm llm-infer -m flipped.llm "$P"
    done
    printf '\xff\xff\xff\xff\xff\xff\xff\x7f{}' > huge.safetensors
    refused 65 huge.safetensors llm-infer -m huge.safetensors "$P"
}

@test "what is no model and what is no cache is named for what it is" {
    printf 'the cat' | llm-tokenize encode -T "$M/tokenizer.json" -o c.tok
    llm-infer -m "$M" -n 0 --kv-out c.kv "$P"
    llm-quantize -q -t f16 "$M" m.llm
    refused 65 "c.tok: expected a checkpoint (.llm), safetensors or GGUF, found a tensor message of kind 'tokens'" llm-infer -m c.tok "$P"
    refused 65 "c.kv: expected a checkpoint (.llm), safetensors or GGUF, found a tensor message of kind 'kvcache'" llm-infer -m c.kv "$P"
    refused 65 "standard input: expected a checkpoint (.llm), safetensors or GGUF, found a tensor message of kind 'tokens'" \
        bash -c 'llm-infer -m - "$0" < c.tok' "$P"
    refused 65 "c.tok: expected a KV cache, found a tensor message of kind 'tokens'" llm-infer -m "$M" --kv-in c.tok "$P"
    refused 65 "m.llm: expected a KV cache, found a checkpoint (.llm)" llm-infer -m "$M" --kv-in m.llm "$P"
    refused 65 "c.kv: expected a" llm-infer -m "$M" -T c.kv "$P"
}

@test "a configuration that disagrees with the tensors" {
    mkdir m
    cp "$M"/* m/
    sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' m/config.json
    refused 65 'model.layers.2' llm-infer -m m "$P"
    sed -i 's/"num_hidden_layers": 3/"num_hidden_layers": 1/' m/config.json
    refused 65 'model.layers.1' llm-infer -m m "$P"
    sed -i 's/"num_hidden_layers": 1/"num_hidden_layers": 2/; s/"vocab_size": 300/"vocab_size": 301/' m/config.json
    refused 65 'embed_tokens' llm-infer -m m "$P"
    sed -i 's/"vocab_size": 301/"vocab_size": 300/; s/"model_type": "llama"/"model_type": "lama"/' m/config.json
    refused 65 'lama' llm-infer -m m "$P"
    echo '{' > m/config.json
    refused 65 'config.json' llm-infer -m m "$P"
}

@test "folders of several files: a bad index, files that lack, tensors that come twice" {
    cp -r "$ROOT/tests/golden/gpt2-shards" m
    index=m/model.safetensors.index.json
    cp $index good
    for change in 's/"weight_map"/"weight_mop"/' 's/: "model-00002-of-00004.safetensors"/: 2/' 's/"model-00002/"..\/model-00002/' \
        's/"model-00002[^"]*"/""/' 's/"model-00002[^"]*"/"."/' 's/{/[/'; do
        sed "$change" good > $index
        cmp -s good $index && fail "nothing changed by $change"
        refused 65 'm/model.safetensors.index.json: ' llm-infer -m m --ids 1
    done
    sed 's/model-00002-of/model-00007-of/' good > $index
    refused 66 'm/model-00007-of-00004.safetensors: No such file' llm-infer -m m --ids 1
    sed 's/model-00002-of/model-00001-of/' good > $index
    refused 65 "m/model.safetensors.index.json: tensor 'transformer.h." llm-infer -m m --ids 1
    cp good $index
    cp m/model-00002-of-00004.safetensors m/again.safetensors
    sed 's/"model-00003[^"]*"/"again.safetensors"/' good > $index
    refused 65 'expected once, found in m/model-00002-of-00004.safetensors and in m/again.safetensors' llm-infer -m m --ids 1
    cp good $index
    head -c 5000 m/model-00003-of-00004.safetensors > cut
    cp cut m/model-00003-of-00004.safetensors
    refused 65 'm/model-00003-of-00004.safetensors' llm-infer -m m --ids 1
}

@test "prompts that are too long, not ids, beyond the vocabulary, without a tokenizer" {
    refused 65 'at most 256 tokens (the context), found 257' llm-infer -m "$M" --ids "$(seq -s ' ' 1 257)"
    refused 65 'at most 4 tokens' llm-infer -m "$M" -c 4 --ids "1 2 3 4 5"
    refused 65 'below 300' llm-infer -m "$M" --ids "1 2 300"
    refused 65 'expected a token id' llm-infer -m "$M" --ids "1 2 -3"
    refused 65 'expected a token id' llm-infer -m "$M" --ids "1 two"
    refused 65 'expected a token id' llm-infer -m "$M" --ids "99999999999999999999"
    refused 66 'No such file' llm-infer -m "$M" -f absent
    mkdir m
    cp "$M"/config.json "$M"/model.safetensors m/
    refused 65 'no tokenizer' llm-infer -m m "$P"
    run -0 llm-infer -m m -T "$M/tokenizer.json" -n 5 "$P"
    refused 65 'wrong.json' bash -c 'echo {} > wrong.json; llm-infer -m m -T wrong.json x'
}

@test "text that is not UTF-8, and NUL, pass through" {
    printf 'a\0b\xff\xfe' | llm-infer -m "$M" -n 3 > out
    [[ -s out ]]
}

@test "outputs that cannot be written" {
    refused 74 '' bash -c 'llm-infer -m "$0" "$1" > /dev/full' "$M" "$P"
    refused 74 '' bash -c 'llm-infer -m "$0" --score "$1" > /dev/full' "$M" "$P"
    refused 74 '' bash -c 'llm-infer -m "$0" --logits "$1" > /dev/full' "$M" "$P"
    refused 74 '' bash -c 'llm-infer -m "$0" --kv-out - "$1" > /dev/full' "$M" "$P"
    refused 74 '' bash -c 'llm-infer -m "$0" --jsonl <<< "{\"prompt\": \"a\"}" > /dev/full' "$M"
    refused 74 '' bash -c 'llm-infer -m "$0" "$1" >&-' "$M" "$P"
    refused 73 'absent/x' llm-infer -m "$M" -o absent/x "$P"
    refused 73 'absent/x' llm-infer -m "$M" -n 0 --kv-out absent/x "$P"
    refused 73 'absent/x' llm-infer -m "$M" -n 2 --kv-out absent/x "$P" # before there is text
    echo kept > target
    refused 65 'at most' llm-infer -m "$M" -c 2 -o target --score "$P" --kv-out c.kv
    [[ $(< target) == kept && ! -e c.kv ]]
    refused 65 'at most' llm-infer -m "$M" -c 2 -o target "$P"
    [[ $(< target) == kept ]]
}

@test "--jsonl: a bad line is answered with its id and the error, the others as without it; status 65 names the first" {
    cat > lines << 'END'
{"id": "first", "prompt": "a"}

{"id": "second", "prompt": 7}
{"id": "third", "prompt": "c"}
{
{"id": {"a": [1]}, "prompt": "b", "top_p": 7}
{"id": "last", "prompt": "b"}
END
    grep -E 'first|third|last' lines | llm-infer -m "$M" -n 3 --no-timings --jsonl > good
    for how in '--parallel 1' '--parallel 16' '-b 3 --samples 1'; do
        run -65 --separate-stderr llm-infer -m "$M" -q -n 3 --no-timings $how --jsonl lines
        assert_equal "$stderr" 'llm-infer: lines: 3 of 6 lines cannot be used, the first: line 3: expected "prompt" (a string) or "ids" (a list)'
        assert_equal "$(jq -c .id <<< "$output")" $'"first"\n"second"\n"third"\n5\n{"a":[1]}\n"last"'
        assert_equal "$(grep -v '"error"' <<< "$output")" "$(< good)"
        assert_equal "${lines[1]}" '{"id":"second","error":"expected \"prompt\" (a string) or \"ids\" (a list)"}'
        [[ ${lines[3]} == '{"id":5,"error":"JSON: line 1, column '* && ${lines[4]} == '{"id":{"a":[1]},"error":"'*top*p* ]]
    done
    run -65 llm-infer -q -m "$M" -n 3 --no-timings -o out --jsonl lines # a file is complete, too
    assert_equal "$(grep -v '"error"' out)" "$(< good)"
    assert_equal "$(wc -l < out)" 6
    for line in '{' '[1]' '{}' '{"prompt": "a", "ids": [1]}' '{"ids": [300]}' '{"ids": ["a"]}' '{"prompt": "a", "top_p": 7}' \
        '{"prompt": "a", "max_tokens": "many"}' '{"prompt": "a", "stop": [""]}' '{"prompt": "a", "stop": 3}' '{"prompt": "a", "prompt": "b"}'; do
        run -65 --separate-stderr llm-infer -m "$M" -q -n 3 --jsonl <<< "$line"
        [[ $output == '{"id":1,"error":"'*'"}' ]]
        one_line "$output"
        one_line "$stderr"
        [[ $stderr == 'llm-infer: standard input: line 1: '* ]] || fail "$stderr"
    done
    run -65 --separate-stderr llm-infer -m "$M" --jsonl <<< "{\"id\": \"long\", \"ids\": [$(seq -s , 1 257)]}"
    [[ $stderr == *'line 1: prompt: expected at most 256 tokens (the context), found 257' && $output == '{"id":"long","error":"prompt: expected at most 256 '* ]]
    run -65 llm-infer -q -m "$M" -n 1 --jsonl < <(printf '%.0s{\n' {1..9000}) # more than are kept
    assert_equal "${#lines[@]}" 9001
}

@test "--jsonl: a bad line is answered before the next one comes" {
    mkfifo in out
    llm-infer -q -m "$M" -n 2 --jsonl < in > out 2> err &
    exec 7> in 8< out
    echo '{"id": 1}' >&7
    read -r -t 60 line <&8
    [[ $line == '{"id":1,"error":'* ]]
    echo '{"id": 2, "prompt": "a"}' >&7
    read -r -t 60 line <&8
    [[ $line == '{"id":2,"text":'* ]]
    exec 7>&-
    wait $! || assert_equal $? 65
}

@test "--jsonl: an empty prompt begins as the empty operand does" {
    llm-infer -m "$M" -n 8 --ids '' > operand
    for line in '{"prompt": ""}' '{"ids": []}'; do
        llm-infer -m "$M" -n 8 --ids --jsonl <<< "$line" | jq -r '.ids | map(tostring) | join(" ")' | cmp - operand
    done
    bos=$(jq '.bos_token_id // .eos_token_id' "$M/config.json")
    llm-infer -m "$M" --embed --jsonl <<< '{"prompt": ""}' > empty
    llm-infer -m "$M" --embed --jsonl <<< "{\"ids\": [$bos]}" | cmp - empty
}

@test "caches of another model, cut, changed, with gaps" {
    llm-infer -m "$M" -n 0 --kv-out good.kv --ids "1 2 3 4 5"
    llm-quantize -q -t f16 "$M" other.llm
    refused 65 'expected a cache of this model' llm-infer -m other.llm --kv-in good.kv
    refused 66 'No such file' llm-infer -m "$M" --kv-in absent.kv
    refused 65 'cut.kv' bash -c 'head -c 300 good.kv > cut.kv; llm-infer -m "$0" --kv-in cut.kv' "$M"
    refused 65 'cut.kv' bash -c 'head -c -3 good.kv > cut.kv; llm-infer -m "$0" --kv-in cut.kv' "$M"
    refused 65 'expected a KV cache' llm-infer -m "$M" --kv-in "$M/model.safetensors"
    refused 65 'at most 5' llm-infer -m "$M" --kv-in good.kv --kv-keep 6
    refused 65 'found 257' llm-infer -m "$M" --kv-in good.kv --ids "$(seq -s ' ' 1 252)"
    sed 's/"layers.1.v"/"layers.7.v"/' good.kv > missing.kv
    refused 65 'missing.kv: expected 4 tensors of 2 layers, found 3' llm-infer -m "$M" --kv-in missing.kv
    sed 's/\[5,1,32\]/[1,5,32]/' good.kv > shape.kv
    refused 65 'shape.kv' llm-infer -m "$M" --kv-in shape.kv
    llm-infer -m "$M" --cache-type q4_0 -n 0 --kv-out q4.kv --ids "1 2 3 4 5"
    sed 's/\[5,1,32\]/[5,1,31]/' q4.kv > block.kv
    refused 65 'block.kv' llm-infer -m "$M" --kv-in block.kv
    sed 's/q4_0/q8_0/' q4.kv > longer.kv
    refused 65 'longer.kv' llm-infer -m "$M" --kv-in longer.kv
    refused 65 'q4.kv' bash -c 'head -c -3 q4.kv > cut-q4.kv; llm-infer -m "$0" --kv-in cut-q4.kv' "$M"
}
