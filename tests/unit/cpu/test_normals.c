/* Normal random numbers of every instruction set: the bits of llm_rng_normal, also where approximations are not enough. */
#include "isas.h"
#include "base/rng.h"

static void numbers(void **state)
{
    enum { ROWS = 64, MAX = 32768 };
    static float want[ROWS][MAX];
    (void)state;
    for (uint32_t row = 0; row < ROWS; row++) {
        const struct llm_rng r = llm_rng_at(7, row, LLM_RNG_TEST, 3, row, 5);
        for (uint32_t i = 0; i < MAX; i++) want[row][i] = llm_rng_normal(&r, i);
    }
    FOR_EACH_ISA(isa)
        for (uint32_t row = 0; row < ROWS; row++) {
            const struct llm_rng r = llm_rng_at(7, row, LLM_RNG_TEST, 3, row, 5);
            const int64_t n = row < 40 ? (int64_t)row : MAX;
            float *x = guarded((size_t)n * sizeof *x);
            llm_k.normals.normals(x, n, r.key, r.counter);
            assert_memory_equal(x, want[row], (size_t)n * sizeof *x);
        }
}

/* Numbers so near the middle of two floats that the approximation rounds to the wrong one. */
static void middles(void **state)
{
    static const struct { uint64_t seed; uint32_t row, channel; } found[] = {{2, 44, 23408}, {3, 62, 2572}, {6, 58, 15702}, {10, 40, 8530},
                                                                              {20, 53, 583}, {20, 55, 20768}};
    (void)state;
    FOR_EACH_ISA(isa)
        for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
            const struct llm_rng r = llm_rng_at(found[i].seed, found[i].row, LLM_RNG_TEST, 3, found[i].row, 5);
            const float want = llm_rng_normal(&r, found[i].channel);
            float *x = guarded(((size_t)found[i].channel + 1) * sizeof *x);
            llm_k.normals.normals(x, (int64_t)found[i].channel + 1, r.key, r.counter);
            assert_memory_equal(x + found[i].channel, &want, sizeof want);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(middles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
