# llm-bench comm: messages between ranks.
load ../helper
load ../mpi

@test "each collective call has its sizes, and a latency and a bandwidth" {
    need_mpi
    ranks 3 llm-bench comm --largest 64K --json > out
    local names=(message broadcast gather scatter all_to_all barrier)
    for name in "${names[@]}"; do
        jq -es --arg name "$name" '[.[] | select(.collective == $name and .latency_seconds)] | length == 1 and .[0].ranks == 3' out
    done
    jq -es '[.[] | select(.collective == "gather" and .seconds)] | map(.bytes) == [8, 64, 512, 4096, 32768] and all(.[]; .seconds > 0)' out
    ranks 2 llm-bench comm --largest 8 --table fits > fits
    assert_equal "$(wc -l < fits)" 7
}

@test "alone it says what it needs; a full disk is status 74, once" {
    run -2 --separate-stderr llm-bench comm
    assert_equal "${stderr_lines[0]}" "llm-bench comm: expected a launcher of at least two ranks: mpirun -n 2 llm-bench comm"
    need_mpi
    run -74 --separate-stderr ranks 2 llm-bench comm --largest 8 -o /dev/full
    [[ $stderr =~ ^"llm-bench comm: rank 0 ("[^\)]*"): /dev/full: "[^$'\n']*$ ]]
}
