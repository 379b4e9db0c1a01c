# llmutils(7) is a tutorial: its commands run one after another in a folder with two texts.

tutorial_texts() {
    cc -O1 -o stories "$ROOT/tests/demo/stories.c"
    ./stories 60000 > corpus.txt
    ./stories 3000 2 > held-out.txt
    rm stories
}

# tutorial_run [SED]: every command, changed by a script of sed; blocks[i] wrote output.(i + 1). What the page says of the files that they leave.
tutorial_run() {
    local block n=0
    need_tool zstd
    manual_blocks llmutils.7
    [[ ${#blocks[@]} -ge 12 ]]
    for block in "${blocks[@]}"; do
        echo "$block"
        run -0 --separate-stderr bash -e -o pipefail -c "$(sed "${1-}" <<< "$block")"
        n=$((n + 1))
        printf '%s\n' "$output" > "output.$n"
    done
    [[ -s model.llm && -s model-q8.llm && -s heads.png ]]
    [[ $(wc -l < log.jsonl) == 40 ]]
    [[ $(cat output.* | grep -c '"id":') == 6 ]]
    [[ -s teller-peft/adapter_model.safetensors && -s teller.gguf && -s taught.llm ]]
}
