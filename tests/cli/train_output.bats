# What llm-train writes its model as: the end of the file's name decides, or --to.
load ../helper
export LLM_THREADS=1

setup_file() { sentences_tokens; }

setup() {
    new=(llm-train -q -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 -l 24 -n 4 -T "$F/tok.json" --val .1 --eval-every 2 "$F/data.tok")
}

@test "-o model.safetensors is a safetensors file of the model alone, as llm-quantize -t keep makes it of the run" {
    "${new[@]}" -o model.llm
    "${new[@]}" -o model.safetensors
    llm-quantize -q -t keep model.llm kept.safetensors
    cmp model.safetensors kept.safetensors
    "${new[@]}" --to safetensors -o unpacked
    cmp unpacked kept.safetensors
    "${new[@]}" --to safetensors -o - | cmp - kept.safetensors
    "${new[@]}" --to llm -o packed.safetensors
    cmp packed.safetensors model.llm
    llm-infer -m model.safetensors --logits "the red cat" > one
    llm-infer -m model.llm --logits "the red cat" | cmp - one
}

@test "other programs read it: torch's safetensors" {
    python3 -c 'import safetensors.torch' 2> /dev/null || skip "no Python with torch and safetensors"
    "${new[@]}" -o model.safetensors
    python3 -c 'import safetensors.torch as s; t = s.load_file("model.safetensors"); assert len(t["transformer.wte.weight"]) > 0'
}

@test "--keep-best and --ema-output go by their own names" {
    "${new[@]}" --ema .5 --keep-best best.safetensors --ema-output mean.safetensors -o model.llm
    "${new[@]}" --ema .5 --keep-best best.llm --ema-output mean.llm -o other.llm
    cmp model.llm other.llm
    for name in best mean; do
        llm-quantize -q -t keep $name.llm kept.safetensors
        cmp $name.safetensors kept.safetensors
    done
}

@test "what a safetensors file cannot hold is refused: --save-every, going on" {
    run -2 --separate-stderr "${new[@]}" --save-every 2 -o model.safetensors
    assert_equal "${stderr_lines[0]}" "llm-train: --save-every: expected -o FILE.llm: safetensors have the model alone, and nothing to resume"
    "${new[@]}" -o model.llm
    run -2 --separate-stderr llm-train -q --resume model.llm -n 6 -o model.safetensors
    [[ ${stderr_lines[0]} == "llm-train: --resume: expected -o FILE.llm, or no -o: safetensors have the model alone;"* ]]
    "${new[@]}" -o model.safetensors
    run -65 --separate-stderr llm-train -q --resume model.safetensors -n 6
    [[ $stderr == *"model.safetensors: expected a training state, found a model alone; --init begins from its weights" ]]
}

@test "arpa and GGUF are refused before anything is trained" {
    for o in "-o model.arpa" "--to arpa -o model" "--keep-best best.arpa -o model.llm"; do
        run -2 --separate-stderr "${new[@]}" $o
        [[ ${stderr_lines[0]} == *": expected llm or safetensors: arpa is text of n-grams (--objective ngram)" ]]
    done
    for o in "-o model.gguf" "--ema .9 --ema-output mean.gguf -o model.llm"; do
        run -2 --separate-stderr "${new[@]}" $o
        [[ ${stderr_lines[0]} == *".gguf: expected llm or safetensors: llm-quantize makes GGUF of them" ]]
    done
    assert_not_exists model.arpa
    assert_not_exists model.gguf
}

@test "a run that a signal ends leaves the model of its last complete step" {
    local pid status=0
    mkfifo fifo
    llm-train -q -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 -l 24 -n 100000 -T "$F/tok.json" --log fifo -o model.safetensors \
        "$F/data.tok" &
    pid=$!
    { head -n 3 > seen; kill -TERM $pid; cat > rest; } < fifo
    wait $pid || status=$?
    assert_equal $status 143
    llm-infer -m model.safetensors -n 3 "the" > /dev/null
}
