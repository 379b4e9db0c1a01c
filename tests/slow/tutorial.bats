# The commands of llmutils(7) as they stand, and what the page says that its studies find.
load ../helper
load ../tutorial

@test "every command of llmutils(7) works, and its studies find what the page says" {
    local n whole rest who bound written
    tutorial_texts
    tutorial_run
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
}
