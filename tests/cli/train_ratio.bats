# The ratio of the policy's probabilities now and when it drew a token is exactly 1 before the first update, in every architecture; what makes it
# another is refused by name. llm-train itself checks each token (reinforce.c, check_ratio), so that a run that ends well is the proof.
load ../helper
export LLM_THREADS=1

setup() {
    need_tool jq
    printf '%s\n' '{"ids": [3, 9, 14]}' '{"ids": [5]}' '{"ids": [7, 7, 8, 2, 6, 11, 4, 9, 3, 1, 20, 5, 2, 9, 9, 4, 3]}' '{"ids": [1, 12]}' > prompts
}

# configuration FILE: that of a golden
configuration() {
    local n
    n=$(head -c 8 "$1" | od -An -tu8)
    tail -c +9 "$1" | head -c $((n)) | jq -r .__metadata__.config
}

# one CONFIG OPTION...: two iterations, in steps of a half of the completions each
one() {
    llm-train -q --objective grpo -c "$1" --set vocab_size=280 -o o.llm -l 32 -b 4 --lr 1e-2 --prompts prompts --samples 2 --tokens 24 --iterations 2 \
        --reward 'jq ".ids | add / 1000"' "${@:2}"
}

@test "every family of decoders, in both precisions" {
    n=0
    for file in "$ROOT"/tests/golden/families/*.safetensors; do
        name=$(basename "$file" .safetensors)
        case $name in bert* | t5* | deepseek* | *-[!dw]*) continue ;; esac # of variants those of windows and of rotary scaling
        configuration "$file" > "$name.json"
        precision=bf16
        ((n++ % 4)) || precision=f32
        one "$name.json" --dropout 0 --precision $precision --log "$name.log" || fail "$name"
        jq -se 'length == 4 and .[0].ratio == 1 and .[1].ratio != 1 and .[2].ratio == 1' "$name.log"
    done
    ((n >= 18))
}

@test "dropout and latent attention are refused by name, not found out by a ratio" {
    configuration "$ROOT/tests/golden/families/gpt2.safetensors" > gpt2.json
    run -2 --separate-stderr one gpt2.json
    [[ $stderr == *'expected --dropout 0'*'found 0.1'* ]]
    one gpt2.json --off-policy
    configuration "$ROOT/tests/golden/families/deepseek_v2.safetensors" > mla.json
    run -69 --separate-stderr one mla.json
    [[ $stderr == *'latent attention (MLA)'*'--off-policy'* ]]
    run -69 --separate-stderr one mla.json --off-policy
    [[ $stderr == *'--prompts: latent attention'* ]]
}
