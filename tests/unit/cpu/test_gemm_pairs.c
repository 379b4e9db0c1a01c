/* Products of pairs of BF16 by FMAs: the bits of the dot product's instruction, whatever the numbers. */
#include "isas.h"
#include "cpu/kernels/pairs.h"

#if defined __x86_64__

enum numbers { USUAL, SMALL, ANY };

/* BF16: of magnitudes about 1; whose products are subnormal, or are so themselves; any that are numbers, infinities too. */
static uint16_t number(enum numbers kind, uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint16_t bits = (uint16_t)(*state >> 40), sign = bits & 0x8000, digits = bits & 0x7f;
    const unsigned r = (unsigned)(*state >> 56);
    switch (kind) {
    case USUAL: return (uint16_t)(sign | digits | (120 + r % 8) << 7);
    case SMALL: return (uint16_t)(sign | digits | (r % 8 ? 58 + r % 12 : 0) << 7);
    default: return (bits & 0x7f80) == 0x7f80 ? (uint16_t)(bits & 0xff80) : bits;
    }
}

static uint16_t *panels(int64_t lines, int64_t k, enum numbers kind, uint64_t seed)
{
    const size_t n = (size_t)((lines + 15) / 16 * 16 * ((k + 31) / 32 * 32));
    uint16_t *p = aligned_alloc(64, n * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) p[i] = number(kind, &seed);
    return p;
}

static void same(int64_t m, int64_t n, int64_t k, enum numbers kind, bool bias, bool add)
{
    uint16_t *a = panels(m, k, kind, 1), *b = panels(n, k, kind, 2);
    const int64_t ldc = n + 3;
    float *dots = malloc((size_t)(m * ldc) * sizeof *dots), *fmas = malloc((size_t)(m * ldc) * sizeof *fmas), *c = malloc((size_t)n * sizeof *c);
    uint64_t seed = 3;
    int64_t subnormal = 0, infinite = 0;
    assert_true(dots && fmas && c);
    for (int64_t i = 0; i < m * ldc; i++) dots[i] = fmas[i] = noise(&seed) * (kind == SMALL ? 0x1p-127f : 1);
    for (int64_t i = 0; i < n; i++) c[i] = noise(&seed) * (kind == SMALL ? 0x1p-128f : 1);
    struct llm_gemm_job job = {.a = a, .lda = k, .b = b, .m = m, .n = n, .k = k, .c = dots, .ldc = ldc, .bias = bias ? c : NULL, .add = add};
    llm_gemm_pairs_by_dots(&job);
    job.c = fmas;
    llm_gemm_pairs_by_fmas(&job);
    for (int64_t i = 0; i < m * ldc; i++) {
        subnormal += fpclassify(dots[i]) == FP_SUBNORMAL;
        infinite += isinf(dots[i]) != 0;
        if (isnan(dots[i]) && isnan(fmas[i])) continue;
        if (memcmp(&dots[i], &fmas[i], sizeof *dots) != 0)
            fail_msg("%lld x %lld x %lld, numbers of kind %d, element %lld: %a and %a", (long long)m, (long long)n, (long long)k, kind, (long long)i,
                     (double)dots[i], (double)fmas[i]);
    }
    if (kind == SMALL && (bias || add)) assert_true(subnormal > 0); /* after the product, additions keep them */
    if (kind == ANY) assert_true(k > 1000 || infinite > 0);
    free(a);
    free(b);
    free(dots);
    free(fmas);
    free(c);
}

static void test_bits(void **state)
{
    (void)state;
    const struct llm_isa *isa = llm_isas;
    while (isa->name && strcmp(isa->name, "avx512bf16") != 0) isa++;
    if (!isa->usable()) skip();
    for (int64_t m = 1; m <= 14; m++) same(m, 40, 70, USUAL, m % 2, m % 3 == 0);
    for (int kind = USUAL; kind <= ANY; kind++) {
        same(29, 70, 100, kind, true, false);
        same(29, 70, 3, kind, false, true);
        same(12, 33, 1000, kind, false, false);
        same(30, 17, 7000, kind, true, true);
        same(30, 40, 1700, kind, true, false);
    }
}
#else
static void test_bits(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
