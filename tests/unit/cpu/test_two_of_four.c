/* Types that store two of each four: which two; products have the bits of those of the dense type with the same values, for any number of rows. */
#include "isas.h"
#include "cpu/matmul.h"

static const struct pair { enum llm_dtype sparse, dense; } pairs[] = {{LLM_Q8_0_2OF4, LLM_Q8_0}, {LLM_BF16_2OF4, LLM_BF16}};

static void the_two_largest_stay(void **state)
{
    static const struct { float in[4], out[4]; } cases[] = {
        {{1, 2, 3, 4}, {0, 0, 3, 4}}, {{-4, 3, 2, 1}, {-4, 3, 0, 0}}, {{1, -2, 0.5f, 2}, {0, -2, 0, 2}}, {{2, 2, 2, 2}, {2, 2, 0, 0}},
        {{0, 0, 0, 3}, {0, 0, 0, 3}}, {{0, 1, 1, 1}, {0, 1, 1, 0}},   {{4, 1, 2, 0}, {4, 0, 2, 0}},        {{3, 0, 0, -3}, {3, 0, 0, -3}}};
    (void)state;
    for (size_t p = 0; p < 2; p++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            float x[32] = {0}, y[32];
            unsigned char block[64];
            memcpy(x + 12, cases[i].in, sizeof cases[i].in);
            x[31] = 127; /* with a scale of 1 integers are exact; halves are not met */
            x[14] = x[14] == 0.5f ? 0 : x[14];
            llm_dtypes[pairs[p].sparse].encode(x, block, 32);
            llm_dtypes[pairs[p].sparse].decode(block, y, 32);
            assert_memory_equal(y + 12, cases[i].out, sizeof cases[i].out);
            assert_true(y[31] == 127 && y[0] == 0 && y[30] == 0);
        }
    float x[32] = {1, 5, NAN, 7}, y[32];
    unsigned char block[64];
    llm_dtypes[LLM_BF16_2OF4].encode(x, block, 32);
    llm_dtypes[LLM_BF16_2OF4].decode(block, y, 32);
    assert_true(y[0] == 0 && y[1] == 0 && isnan(y[2]) && y[3] == 7);
}

/* Three products by each weight: its panels are made by the second. */
static void same_products(int64_t m, int64_t n, int64_t k, const struct pair *p, bool accumulate, bool bias)
{
    float *x = noisy((size_t)(m * k), 1), *w = noisy((size_t)(n * k), 2), *b = noisy((size_t)n, 3), *before = noisy((size_t)(m * n), 4);
    float *y[2] = {noisy((size_t)(m * n), 5), noisy((size_t)(m * n), 6)};
    const enum llm_dtype types[2] = {p->sparse, p->dense};
    struct llm_weight weights[2];
    struct llm_err e = {0};
    for (int i = 0; i < 2; i++) {
        void *data = guarded(llm_dtype_bytes(types[i], (uint64_t)(n * k)));
        llm_dtypes[types[i]].encode(w, data, (size_t)(n * k));
        if (i == 0) llm_dtypes[types[i]].decode(data, w, (size_t)(n * k)); /* the dense type gets what is left */
        weights[i] = (struct llm_weight){.data = data, .dtype = types[i], .n = n, .k = k};
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++) {
            struct llm_matmul a = {.m = m, .x = x, .ldx = k, .y = y[i], .ldy = n, .bias = bias ? b : NULL, .accumulate = accumulate,
                                   .compute = LLM_COMPUTE_BF16, .inference = true};
            memcpy(y[i], before, (size_t)(m * n) * sizeof *before);
            assert_int_equal(llm_matmul(&a, &weights[i], &e), 0);
        }
        if (memcmp(y[0], y[1], (size_t)(m * n) * sizeof *before) != 0)
            fail_msg("%s %s: %d x %d x %d differs (round %d)", llm_k.isa, llm_dtypes[p->sparse].name, (int)m, (int)n, (int)k, round);
    }
    for (int i = 0; i < 2; i++) llm_weight_release(&weights[i]);
}

static void products_are_those_of_the_dense_type(void **state)
{
    static const int64_t sizes[][2] = {{1, 32}, {16, 64}, {17, 96}, {63, 800}, {64, 768}, {130, 1600}};
    (void)state;
    FOR_EACH_ISA(isa)
        for (size_t p = 0; p < 2; p++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int64_t m = 1; m <= 34; m = m < 10 ? m + 1 : m + 8)
                    same_products(m, sizes[s][0], sizes[s][1], &pairs[p], (m + (int64_t)s) % 3 == 1, (m + (int64_t)s) % 2 == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_two_largest_stay), cmocka_unit_test(products_are_those_of_the_dense_type)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
