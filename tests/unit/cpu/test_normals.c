/* Normal random numbers of every instruction set: the bits of llm_rng_normal, also where approximations are not enough (about one in a million). */
#include "isas.h"
#include "base/rng.h"

static void numbers(void **state)
{
    enum { ROWS = 64, MOST = 32768 };
    static float want[ROWS][MOST];
    (void)state;
    for (uint32_t row = 0; row < ROWS; row++) {
        const struct llm_rng r = llm_rng_at(7, row, LLM_RNG_TEST, 3, row, 5);
        for (uint32_t i = 0; i < MOST; i++) want[row][i] = llm_rng_normal(&r, i);
    }
    FOR_EACH_ISA(isa)
        for (uint32_t row = 0; row < ROWS; row++) {
            const struct llm_rng r = llm_rng_at(7, row, LLM_RNG_TEST, 3, row, 5);
            const int64_t n = row < 40 ? (int64_t)row : MOST;
            float *x = guarded((size_t)n * sizeof *x);
            llm_k.normals.normals(x, n, r.key, r.counter);
            assert_memory_equal(x, want[row], (size_t)n * sizeof *x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
