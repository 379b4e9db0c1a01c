# The README's commands run word for word in a fresh folder with the programs in bin/.
load ../helper

@test "the commands of the README work as they stand, and its model has learned something" {
    readme_commands > commands.sh
    readme_run
    awk -F'\t' '$1 == "held-out.txt" && NF == 9 { good = $6 < 10 } END { exit !good }' <<< "$output" || fail "$output"
    [[ $output == *"Once upon a time"* && $(grep -c $'^2\t' <<< "$output") == 4 ]]
}
