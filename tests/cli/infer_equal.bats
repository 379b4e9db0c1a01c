# The same bits, whatever the batch, the threads, the cache file or the pipe.
load ../helper

setup_file() {
    export M=$ROOT/tests/golden/tiny
    # longer than two tiles of keys, and than a pass
    P=$(for i in {1..14}; do printf '%s ' 'Once upon a time there was a red cat.'; done)
    export P
}

# in_types COMMAND...: runs it with $PRECISION f32 and bf16, of F32 and Q8_0 weights
in_types() {
    llm-quantize -q -t f32 "$M" f32.llm
    llm-quantize -q -t q8_0 "$M" q8_0.llm
    for MODEL in "$M" f32.llm q8_0.llm; do
        for PRECISION in f32 bf16; do
            "$@" || return 1
        done
    done
}

prefill() {
    llm-infer -m "$MODEL" --precision $PRECISION --logits "$P" > whole
    for b in 1 7 64 65; do
        llm-infer -m "$MODEL" --precision $PRECISION --logits -b $b "$P" | cmp - whole || return 1
    done
    llm-infer -m "$MODEL" --precision $PRECISION --logits -j 1 "$P" | cmp - whole || return 1
    llm-infer -m "$MODEL" --precision $PRECISION --logits -j 3 "$P" | cmp - whole
}
@test "logits of prefill = token by token = any batch = any threads" {
    in_types prefill
}

batch() {
    printf '{"prompt": "%s"}\n' 'The cat' 'Once' "$P" 'She liked the ball in the garden' 'Where' 'a' 'b' 'c' > prompts
    llm-infer -m "$MODEL" --precision $PRECISION --jsonl --no-timings -n 20 prompts > together
    llm-infer -m "$MODEL" --precision $PRECISION --jsonl --no-timings -n 20 --parallel 3 -b 16 -j 1 prompts | cmp - together || return 1
    number=0
    while read -r line; do
        number=$((number + 1))
        llm-infer -m "$MODEL" --precision $PRECISION --jsonl --no-timings -n 20 <<< "${line/\{/\{\"id\": $number, }"
    done < prompts | cmp - together
}
@test "completions are the same alone and in any company" {
    in_types batch
}

resume() {
    llm-infer -m "$MODEL" --precision $PRECISION -n 30 "$P" > straight
    llm-infer -m "$MODEL" --precision $PRECISION -n 0 --kv-out prompt.kv "$P"
    llm-infer -m "$MODEL" --precision $PRECISION -n 30 --kv-in prompt.kv | cmp - straight || return 1
    # a prompt in two halves, the cache through a pipe
    llm-infer -m "$MODEL" --precision $PRECISION --kv-out - "${P:0:100}" |
        llm-infer -m "$MODEL" --precision $PRECISION --kv-in - --kv-out both.kv -n 0 "${P:100}"
    llm-kvinspect export --tensor ids prompt.kv > a.npy
    llm-kvinspect export --tensor ids both.kv > b.npy
    if cmp -s a.npy b.npy; then cmp prompt.kv both.kv || return 1; fi
    # on and on, with what was generated
    llm-infer -m "$MODEL" --precision $PRECISION --ids -n 30 "1 2 3" > straight
    llm-infer -m "$MODEL" --precision $PRECISION --ids -n 17 --kv-out part.kv "1 2 3" > first
    llm-infer -m "$MODEL" --precision $PRECISION --ids -n 13 --kv-in part.kv > second
    paste -d' ' first second | cmp - straight || return 1
    # from the middle of a cache
    llm-infer -m "$MODEL" --precision $PRECISION --ids -n 12 --kv-in part.kv --kv-keep 3 "$(cut -d' ' -f1-18 straight)" > third
    cmp <(cut -d' ' -f19-30 straight) third
}
@test "resumed from a saved cache = straight" {
    in_types resume
}

@test "scores behind a saved cache = scores of the whole" {
    llm-infer -m "$M" --score --ids "$(seq -s ' ' 1 150)" | tail -n 50 > whole
    llm-infer -m "$M" --kv-out c.kv --ids -n 0 "$(seq -s ' ' 1 100)"
    llm-infer -m "$M" --kv-in c.kv --score --ids "$(seq -s ' ' 101 150)" | cmp - whole
}

@test "samples that share a cache = samples alone; F32 and F16 caches hold what they say" {
    llm-infer -m "$M" --ids -n 10 --samples 4 "$(seq -s ' ' 1 130)" > shared
    llm-infer -m "$M" --ids -n 10 --samples 4 --parallel 1 -b 9 "$(seq -s ' ' 1 130)" | cmp - shared
    for type in f32 f16 bf16 q8_0 q4_0 q8_0,q4_0 0:f32,bf16/1:q8_0,f16 q4_0_rot 0:q8_0_rot,bf16/1:q4_0_rot; do
        llm-infer -m "$M" --cache-type $type --kv-out "${type//\//_}.kv" --ids -n 0 "$(seq -s ' ' 1 130)"
        [[ $(llm-kvinspect "${type//\//_}.kv" | awk '$1 == "type" {print $2}') == "$type" ]]
        run -0 llm-infer -m "$M" --cache-type $type --ids -n 10 --kv-in "${type//\//_}.kv"
        assert_output "$(llm-infer -m "$M" --cache-type $type --ids -n 10 "$(seq -s ' ' 1 130)")"
        llm-infer -m "$M" --cache-type $type --ids -n 10 --samples 2 "$(seq -s ' ' 1 70) 7 8 9" > alone
        llm-infer -m "$M" --cache-type $type --ids -n 10 --samples 2 --kv-in "${type//\//_}.kv" --kv-keep 70 "7 8 9" | cmp - alone
    done
}

@test "every instruction set agrees with itself" {
    for isa in scalar avx2 avx512 avx512bf16 amx; do
        LLM_ISA=$isa llm-infer -m "$M" --plan > /dev/null 2>&1 || continue
        LLM_ISA=$isa llm-infer -m "$M" --logits "$P" > whole
        LLM_ISA=$isa llm-infer -m "$M" --logits -b 5 -j 1 "$P" | cmp - whole
    done
}

@test "dot products of bytes (VNNI) change no bits" {
    for pair in avx2:avxvnni avx512:avx512vnni; do
        LLM_ISA=${pair#*:} llm-infer -m "$M" --plan > /dev/null 2>&1 || continue
        for type in q8_0 q4_1 q5_0; do
            llm-quantize -q -t $type "$M" $type.llm
            for b in 1 64; do
                LLM_ISA=${pair%:*} llm-infer -m $type.llm --logits -b $b "$P" > without
                LLM_ISA=${pair#*:} llm-infer -m $type.llm --logits -b $b "$P" | cmp - without
            done
        done
    done
}
