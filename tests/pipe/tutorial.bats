# llmutils(7) is a tutorial: its commands run as they stand, one after another, in a folder with two texts.
load ../helper

setup_file() {
    cc -O1 -o stories "$ROOT/tests/demo/stories.c"
    ./stories 60000 > corpus.txt
    ./stories 3000 2 > held-out.txt
    rm stories
}

@test "every command of llmutils(7) works, in the order of the page" {
    local block blocks n=0
    [[ -z ${SANITIZER-} ]] || skip "its training takes too long under $SANITIZER"
    cd "$BATS_FILE_TMPDIR"
    command -v zstd > /dev/null || skip "zstd is not installed"
    manual_blocks llmutils.7
    [[ ${#blocks[@]} -ge 12 ]]
    for block in "${blocks[@]}"; do
        echo "$block"
        run -0 --separate-stderr bash -e -o pipefail -c "$block"
        n=$((n + 1))
        printf '%s\n' "$output" > "output.$n"
    done
    # what it says of some of them
    [[ -s model.llm && -s model-q8.llm && -s heads.png ]]
    [[ $(wc -l < log.jsonl) == 40 ]]
    [[ $(cat output.* | grep -c '"id":') == 6 ]]
    local whole rest who bound written
    for ((n = 0; n < ${#blocks[@]}; n++)); do # the study: before, and without the heads that copy, others, the one that they need
        case ${blocks[n]} in
        *'> again.sh'*) whole=$(cat output.$((n + 1))) ;;
        *'again.sh $(cat'*) mapfile -t rest < output.$((n + 1)) ;;
        *'sh who.sh "$(cat'*) mapfile -t who < output.$((n + 1)) ;; # the study of the pronoun: she, he; where he turns the answer; what writes it
        *'--patch he.act'*) bound=$(awk '{ print $(NF - 1) }' output.$((n + 1)) | tr '\n' ' ') ;;
        *"--attribute ' anna'"*) written=$(awk -F'\t' '$6 == "layers.1.mlp.output" { part = $7 } $6 == "logit" { print part / $7 }' output.$((n + 1))) ;;
        *'--patch m.act'*) [[ $(awk -F'\t' '$4 == 1 { print $6 }' output.$((n + 1)) | tr '\n' ' ') == "j m " ]] ;;
        esac
    done
    awk -v w="$whole" -v i="${rest[0]}" -v o="${rest[1]}" -v p="${rest[2]}" 'BEGIN { exit !(w > -1 && i < -2.5 && o > i + 1 && p < w - 1) }' ||
        fail "whole $whole, without ${rest[*]}"
    [[ ${who[0]} == $' anna\t0.9'* && ${who[1]} == $' otto\t0.9'* ]]
    [[ $bound == "anna anna anna otto anna anna anna anna anna anna anna otto " ]]
    awk -v w="$written" 'BEGIN { exit !(w > 0.5) }'
    [[ -s teller-peft/adapter_model.safetensors && -s teller.gguf && -s taught.llm ]]
}

@test "every program and page of the package is named in it" {
    local source name
    for source in "$ROOT"/bin/llm-*.c; do
        name=$(basename "$source" .c)
        grep -q "^\.Xr $name 1" "$ROOT/man/llmutils.7"
        grep -q '^\.Xr llmutils 7' "$ROOT/man/$name.1"
    done
}
