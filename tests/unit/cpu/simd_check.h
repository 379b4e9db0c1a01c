/* cpu/simd.h on one instruction set: test_simd_<isa>.c sets the compiler's target and LLM_ISA_<isa>, then includes this. */
#include "isas.h"
#include "cpu/simd.h"

enum { MOST = 16 };

static void test_memory(void **state)
{
    (void)state;
    for (size_t n = 0; n <= VN + 2; n++) {
        size_t here = n < VN ? n : VN;
        float *x = guarded((here + (here == 0)) * sizeof *x), lanes[MOST], *in = here ? x : x + 1;
        int32_t *words = guarded((here + (here == 0)) * sizeof *words), word_lanes[MOST];
        uint16_t *h = guarded((here + (here == 0)) * sizeof *h);
        int8_t *b = guarded(here + (here == 0));
        for (size_t i = 0; i < here; i++) in[i] = (float)(i + 1);
        v_store(lanes, v_load_n(in, n));
        for (size_t i = 0; i < VN; i++) assert_true(lanes[i] == (i < here ? (float)(i + 1) : 0));
        v_store_n(in, v_add(v_load_n(in, n), v_set1(1)), n);
        for (size_t i = 0; i < here; i++) assert_true(in[i] == (float)(i + 2));
        for (size_t i = 0; i < here; i++) words[i] = -(int32_t)i;
        vi_store(word_lanes, vi_load_n(here ? words : words + 1, n));
        for (size_t i = 0; i < VN; i++) assert_int_equal(word_lanes[i], i < here ? -(int32_t)i : 0);
        uint16_t *halves = here ? h : h + 1;
        v_store_bf16_n(halves, v_load_n(in, n), n);
        v_store(lanes, v_load_bf16_n(halves, n));
        for (size_t i = 0; i < VN; i++) assert_true(lanes[i] == (i < here ? (float)(i + 2) : 0));
        v_store_f16_n(halves, v_load_n(in, n), n);
        v_store(lanes, v_load_f16_n(halves, n));
        for (size_t i = 0; i < VN; i++) assert_true(lanes[i] == (i < here ? (float)(i + 2) : 0));
        for (size_t i = 0; i < here; i++) b[i] = (int8_t)(-128 + (int)i);
        v_store(lanes, v_load_i8_n(here ? b : b + 1, n));
        for (size_t i = 0; i < VN; i++) assert_true(lanes[i] == (i < here ? (float)(-128 + (int)i) : 0));
    }
}

#define LANES(expression)                                                          \
    do {                                                                           \
        v_store(got, expression);                                                  \
    } while (0)
#define EACH(want)                                                                                           \
    for (int i = 0; i < VN; i++)                                                                             \
        if (!(got[i] == (want))) fail_msg("line %d, lane %d: expected %g, found %g", __LINE__, i, (double)(want), (double)got[i])

static void test_arithmetic(void **state)
{
    float x[MOST], y[MOST], z[MOST], got[MOST];
    uint64_t seed = 1;
    (void)state;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < VN; i++) {
            x[i] = noise(&seed) * 100;
            y[i] = noise(&seed) * 100;
            z[i] = round % 2 ? noise(&seed) : x[i];
        }
        V a = v_load(x), b = v_load(y), c = v_load(z);
        LANES(v_add(a, b)); EACH(x[i] + y[i]);
        LANES(v_sub(a, b)); EACH(x[i] - y[i]);
        LANES(v_mul(a, b)); EACH(x[i] * y[i]);
        LANES(v_div(a, b)); EACH(x[i] / y[i]);
        LANES(v_sqrt(v_abs(a))); EACH(sqrtf(fabsf(x[i])));
        LANES(v_max(a, b)); EACH(x[i] > y[i] ? x[i] : y[i]);
        LANES(v_min(a, b)); EACH(x[i] < y[i] ? x[i] : y[i]);
        LANES(v_round(a)); EACH(rintf(x[i]));
        LANES(v_neg(a)); EACH(-x[i]);
        LANES(v_copysign(a, b)); EACH(copysignf(x[i], y[i]));
        LANES(v_from_i32(v_to_i32(a))); EACH(rintf(x[i]));
        LANES(v_select(v_lt(a, c), a, b)); EACH(x[i] < z[i] ? x[i] : y[i]);
        LANES(v_select(v_le(a, c), a, b)); EACH(x[i] <= z[i] ? x[i] : y[i]);
        LANES(v_select(v_eq(a, c), a, b)); EACH(x[i] == z[i] ? x[i] : y[i]);
        LANES(v_select(m_not(m_and(v_lt(a, c), v_lt(b, c))), a, b)); EACH(!(x[i] < z[i] && y[i] < z[i]) ? x[i] : y[i]);
        LANES(v_select(m_or(v_lt(a, c), v_lt(b, c)), a, b)); EACH(x[i] < z[i] || y[i] < z[i] ? x[i] : y[i]);
#ifdef LLM_ISA_scalar
        LANES(v_fma(a, b, c)); EACH(x[i] * y[i] + z[i]);
        LANES(v_fnma(a, b, c)); EACH(z[i] - x[i] * y[i]);
#else
        LANES(v_fma(a, b, c)); EACH(fmaf(x[i], y[i], z[i]));
        LANES(v_fnma(a, b, c)); EACH(fmaf(-x[i], y[i], z[i]));
#endif
        float tree[MOST], top = x[0];
        memcpy(tree, x, sizeof tree);
        for (int half = VN / 2; half; half /= 2)
            for (int i = 0; i < half; i++) tree[i] += tree[i + half];
        for (int i = 0; i < VN; i++) top = fmaxf(top, x[i]);
        assert_true(v_sum(a) == tree[0]);
        assert_true(v_hmax(a) == top);
        assert_true(m_any(v_lt(a, v_set1(1000))) && !m_any(v_lt(v_set1(1000), a)));
    }
    LANES(v_iota()); EACH((float)i);
    LANES(v_from_i32(vi_iota())); EACH((float)i);
    for (size_t n = 0; n <= VN + 1; n++) {
        LANES(v_select(m_first(n), v_set1(1), v_zero()));
        EACH((size_t)i < n ? 1 : 0);
    }
    LANES(v_max(v_set1(NAN), v_set1(1))); EACH(1);
    LANES(v_min(v_set1(NAN), v_set1(1))); EACH(1);
    LANES(v_max(v_set1(1), v_set1(NAN)));
    assert_true(isnan(got[0]));
}

static void test_integers(void **state)
{
    static const int32_t some[] = {0, 1, -1, 7, -8, 0x7fffffff, INT32_MIN, 0x12345678};
    int32_t got[MOST];
    (void)state;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) {
            VI a = vi_set1(some[i]), b = vi_set1(some[j]);
            uint32_t x = (uint32_t)some[i], y = (uint32_t)some[j];
#define IS(expression, want)                       \
    vi_store(got, expression);                     \
    assert_int_equal((uint32_t)got[VN - 1], want)
            IS(vi_add(a, b), x + y);
            IS(vi_sub(a, b), x - y);
            IS(vi_mul(a, b), x * y);
            IS(vi_and(a, b), x & y);
            IS(vi_or(a, b), x | y);
            IS(vi_xor(a, b), x ^ y);
            IS(vi_shl(a, 3), x << 3);
            IS(vi_shr(a, 3), x >> 3);
            IS(vi_sar(a, 3), (uint32_t)(some[i] >> 3));
            IS(vi_select(vi_lt(a, b), a, b), some[i] < some[j] ? x : y);
            IS(vi_select(vi_eq(a, b), vi_set1(5), b), x == y ? 5 : y);
        }
}

static void test_halves(void **state)
{
    uint16_t in[MOST] = {0}, out[MOST] = {0};
    uint64_t seed = 3;
    float x[MOST] = {0};
    (void)state;
    for (unsigned c = 0; c < 65536; c++) {
        float y[MOST];
        in[VN - 1] = (uint16_t)c;
        v_store(y, v_load_bf16(in));
        v_store_bf16(out, v_load(y));
        assert_int_equal(out[VN - 1], llm_bf16_encode(llm_bf16_decode((uint16_t)c)));
        v_store(y, v_load_f16(in));
        assert_int_equal(llm_float_bits(y[VN - 1]), llm_float_bits(llm_f16_decode((uint16_t)c)));
        v_store(y, v_set1_f16(in));
        assert_int_equal(llm_float_bits(y[0]), llm_float_bits(y[VN - 1]));
        assert_int_equal(llm_float_bits(y[0]), llm_float_bits(llm_f16_decode(in[0])));
        v_store(y, v_load_f16(in));
        v_store_f16(out, v_load(y));
        assert_int_equal(out[VN - 1], llm_f16_encode(y[VN - 1]));
        noise(&seed);
        x[VN - 1] = llm_bits_float((uint32_t)(seed >> 32)); /* any bits at all */
        v_store_bf16(out, v_load(x));
        assert_int_equal(out[VN - 1], llm_bf16_encode(x[VN - 1]));
        v_store_f16(out, v_load(x));
        assert_int_equal(out[VN - 1], llm_f16_encode(x[VN - 1]));
    }
}

/* The largest error over [low, high] in units of the last place of the exact value. */
static double error_of(V (*f)(V), double (*exact)(double), float low, float high)
{
    double worst = 0;
    for (int i = 0; i <= 60000; i += VN) {
        float x[MOST], y[MOST];
        for (int j = 0; j < VN; j++) x[j] = low + (high - low) * (float)(i + j) / 60000;
        v_store(y, f(v_load(x)));
        for (int j = 0; j < VN; j++) {
            double want = exact(x[j]);
            float size = fabsf((float)want);
            double unit = (double)nextafterf(size, INFINITY) - size, error = fabs(y[j] - want) / unit;
            if (size < INFINITY && error > worst) worst = error;
        }
    }
    return worst;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static V v_exp_(V x) { return v_exp(x); }
static V v_exp_low_(V x) { return v_exp_low(x); }
static V v_tanh_(V x) { return v_tanh(x); }
static V v_erf_(V x) { return v_erf(x); }
static V v_sigmoid_(V x) { return v_sigmoid(x); }

static void test_functions(void **state)
{
    float got[MOST];
    (void)state;
    assert_true(error_of(v_exp_, exp, -104, 88.72f) < 1.5);
    assert_true(error_of(v_exp_, exp, -1, 1) < 1.5);
#ifndef LLM_ISA_scalar /* without FMA it is less exact, and is not used */
    assert_true(error_of(v_exp_low_, exp, -86.9f, -20) < 5);
    assert_true(error_of(v_exp_low_, exp, -20, 0.5f) < 2.5);
#endif
    assert_true(error_of(v_sigmoid_, sigmoid, -104, 60) < 3);
    assert_true(error_of(v_sigmoid_, sigmoid, -8, 8) < 3);
    assert_true(error_of(v_tanh_, tanh, -12, 12) < 2);
    assert_true(error_of(v_tanh_, tanh, -0.7f, 0.7f) < 2);
    assert_true(error_of(v_tanh_, tanh, -1e-20f, 1e-20f) < 1);
    assert_true(error_of(v_erf_, erf, -5, 5) < 2);
    assert_true(error_of(v_erf_, erf, -1.1f, 1.1f) < 2);
    assert_true(error_of(v_erf_, erf, -1e-20f, 1e-20f) < 1);
#define AT(f, x, want) LANES(f(v_set1(x))); EACH(want)
    AT(v_exp, 0, 1);
    AT(v_exp, -INFINITY, 0);
    AT(v_exp, -104, 0);
    AT(v_exp, -1e30f, 0);
    AT(v_exp, 88.73f, INFINITY);
    AT(v_exp, INFINITY, INFINITY);
    AT(v_exp_low, 0, 1);
    AT(v_exp_low, -87.75f, 0);
    AT(v_exp_low, -1e30f, 0);
    AT(v_exp_low, -INFINITY, 0);
    AT(v_sigmoid, -INFINITY, 0);
    AT(v_sigmoid, INFINITY, 1);
    AT(v_tanh, INFINITY, 1);
    AT(v_tanh, -INFINITY, -1);
    AT(v_erf, INFINITY, 1);
    AT(v_erf, -INFINITY, -1);
    V (*const all[])(V) = {v_exp_, v_exp_low_, v_sigmoid_, v_tanh_, v_erf_};
    for (int i = 0; i < 5; i++) {
        v_store(got, all[i](v_set1(NAN)));
        assert_true(isnan(got[0]) && isnan(got[VN - 1]));
    }
    LANES(v_tanh(v_set1(-0.0f)));
    assert_true(signbit(got[0]));
}

/* x ≤ 127 goes in an integer and the rest, and 2^x with it; 1 + rest stands for 2^rest here. */
static void test_split(void **state)
{
    const float xs[] = {0, -1, 3, .25f, -.25f, -.75f, 1.5f, -2.5f, 126.25f, -126.75f, -148, -149, -1e-20f, -0x1p-149f};
    const float far[] = {-151, -1e6f, -3e38f, -INFINITY};
    float got[MOST];
    V n, f;
    (void)state;
    for (size_t k = 0; k < sizeof xs / sizeof *xs; k++) {
        float whole = rintf(xs[k]), rest = xs[k] - whole;
        f = v_split(v_set1(xs[k]), &n);
        LANES(n); EACH(whole);
        LANES(f); EACH(rest);
        LANES(v_scale(v_add(v_set1(1), f), n)); EACH(ldexpf(1 + rest, (int)whole));
    }
    for (size_t k = 0; k < sizeof far / sizeof *far; k++) {
        f = v_split(v_set1(far[k]), &n);
        LANES(v_scale(v_add(v_set1(1), f), n)); EACH(0);
    }
}

static int simd_main(const char *isa)
{
    for (const struct llm_isa *i = llm_isas; i->name; i++)
        if (strcmp(i->name, isa) == 0 && i->usable()) {
            const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory), cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_integers),
                                               cmocka_unit_test(test_halves), cmocka_unit_test(test_functions),
                                               cmocka_unit_test(test_split)};
            return cmocka_run_group_tests_name(isa, tests, NULL, NULL);
        }
    printf("1..0 # SKIP this machine has no %s\n", isa);
    return 0;
}
