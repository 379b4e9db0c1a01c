# A hundred steps are the same bytes at 1 to 4 threads: models with the parts of GPT-2 and of Llama, BF16 and FP32, one and several passes a step.
load ../helper

setup_file() {
    llm-tokenize train --model byte -o byte.json /dev/null
    seq 40000 | llm-tokenize encode -T byte.json -o data.tok
    export F=$PWD
}

# same OPTION...: the same checkpoint at every number of threads
same() {
    local j
    for j in 1 2 3 4; do
        llm-train -q -j $j -n 100 -T "$F/byte.json" -o $j.llm "$@" "$F/data.tok"
        cmp 1.llm $j.llm
    done
}

@test "GPT-2's parts, BF16" {
    same -c nano --set n_layer=3 --set n_embd=192 --set n_head=3 -b 4 -l 128
}

@test "GPT-2's parts, FP32, three passes a step" {
    same -c nano --set n_layer=2 --set n_embd=96 --set n_head=3 -b 2 -l 96 --accumulate 3 --precision f32
}

@test "Llama's parts, a row longer than a block of the order, a tied table" {
    same -c tiny --set num_hidden_layers=2 --set hidden_size=96 --set intermediate_size=256 --set tie_word_embeddings=true -b 2 -l 320
}
