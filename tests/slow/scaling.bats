# Intervals of llm-bench scaling: of 600 data sets with noise of 0.1%, those of 95% hold the true exponents and the best split in 93% to 97%.
load ../helper

@test "intervals of 95% cover" {
    run -0 make -s -C "$ROOT" unit DEPS=no TESTS=tests/unit/measure/test_scaling.c LLM_SCALING_SETS=600
    assert_equal "$(grep -c 'intervals cover' <<< "$output")" 4
    while read -r _ hits _ sets _; do
        ((hits * 100 >= 93 * sets && hits * 100 <= 97 * sets)) || fail "$hits of $sets"
    done < <(grep 'intervals cover' <<< "$output")
}
