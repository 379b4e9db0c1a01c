/* Elementary functions on vectors. Part of cpu/simd.h. Polynomials are Chebyshev fits to the functions in 40 digits; the errors given are the
 * largest found by tests/unit/cpu/simd_check.h, which sweeps each function against double. */
#ifndef LLM_CPU_SIMD_MATH_H
#define LLM_CPU_SIMD_MATH_H

static inline V v_abs(V a) { return v_from_bits(vi_and(v_bits(a), vi_set1(0x7fffffff))); }
static inline V v_neg(V a) { return v_from_bits(vi_xor(v_bits(a), vi_set1(INT32_MIN))); }
/* The size of a with the sign of b. */
static inline V v_copysign(V a, V b)
{
    VI sign = vi_set1(INT32_MIN);
    return v_from_bits(vi_or(v_bits(v_abs(a)), vi_and(v_bits(b), sign)));
}
#ifndef LLM_SIMD_HAS_SUMS
static inline void v_sums(float *out, const V *x, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = v_sum(x[i]);
}
#endif

#ifndef LLM_SIMD_HAS_SCALE
/* Through two powers so that subnormal results round once. */
static inline V v_scale(V x, V n)
{
    const V shift = v_set1(0x1.8p23f);
    VI whole = vi_sub(v_bits(v_add(n, shift)), v_bits(shift)), half = vi_sar(whole, 1), bias = vi_set1(127);
    x = v_mul(x, v_from_bits(vi_shl(vi_add(half, bias), 23)));
    return v_mul(x, v_from_bits(vi_shl(vi_add(vi_sub(whole, half), bias), 23)));
}
static inline V v_split(V x, V *n)
{
    const V shift = v_set1(0x1.8p23f);
    x = v_max(v_set1(-150), x);
    *n = v_sub(v_add(x, shift), shift);
    return v_sub(x, *n);
}
#endif

/* e^x within 1.5 ulp; 0 below -103.97, infinity above 88.72, NaN for NaN. */
static inline V v_exp(V x)
{
    const V shift = v_set1(0x1.8p23f);
    x = v_max(v_set1(-105), v_min(v_set1(89), x));
    V n = v_sub(v_fma(x, v_set1(0x1.715476p0f), shift), shift); /* x / ln 2 to the nearest integer */
    V r = v_fnma(n, v_set1(0x1.62e4p-1f), x); /* ln 2 in two parts; n times the first is exact */
    r = v_fnma(n, v_set1(0x1.7f7d1cp-20f), r);
    V p = v_set1(0.0013926376f);
    p = v_fma(p, r, v_set1(0.00836333308f));
    p = v_fma(p, r, v_set1(0.0416665535f));
    p = v_fma(p, r, v_set1(0.166665761f));
    p = v_fma(p, r, v_set1(0.5f));
    p = v_add(v_fma(p, v_mul(r, r), r), v_set1(1));
    return v_scale(p, n);
}

/* e^x for x ≤ 88, in half of the instructions of v_exp: with FMA within 5 ulp (2.5 above -20), 0 below -87.7, exactly 1 at 0, NaN for NaN.
 * Between -87.7 and -87 the result may be 0. */
static inline V v_exp_low(V x)
{
    const V shift = v_set1(0x1.8p23f + 127); /* leaves n + 127 in the lowest bits: shifted, they are the float 2^n */
    x = v_max(v_set1(-88), x);
    V t = v_fma(x, v_set1(0x1.715476p0f), shift), r = v_fnma(v_sub(t, shift), v_set1(0x1.62e43p-1f), x);
    V p = v_fma(v_set1(0.008290272f), r, v_set1(0.04189816f));
    p = v_fma(p, r, v_set1(0.16667639f));
    p = v_fma(p, r, v_set1(0.49999148f));
    p = v_fma(p, r, v_set1(0.9999997f));
    p = v_fma(p, r, v_set1(1));
    return v_mul(p, v_from_bits(vi_shl(v_bits(t), 23)));
}

/* 1 / (1 + e^-x) within 3 ulp, subnormal results included. */
static inline V v_sigmoid(V x)
{
    V e = v_exp(v_neg(v_abs(x)));
    V top = v_select(v_lt(x, v_zero()), e, v_set1(1));
    V y = v_div(top, v_add(v_set1(1), e));
    return v_select(v_eq(x, x), y, x);
}

/* tanh within 2 ulp. */
static inline V v_tanh(V x)
{
    V a = v_abs(x), s = v_mul(x, x);
    V p = v_set1(-0.0060451651f);
    p = v_fma(p, s, v_set1(0.0209613291f));
    p = v_fma(p, s, v_set1(-0.0538432632f));
    p = v_fma(p, s, v_set1(0.133327188f));
    p = v_fma(p, s, v_set1(-0.333333284f));
    V small = v_fma(v_mul(p, s), x, x);
    V e = v_exp(v_add(a, a));
    V large = v_sub(v_set1(1), v_div(v_set1(2), v_add(e, v_set1(1))));
    return v_copysign(v_select(v_lt(v_set1(0.625f), a), large, small), x);
}

/* The error function within 2 ulp: x·P(x²) up to 1, from there 1 - e^-Q(|x|) with Q = -ln erfc. */
static inline V v_erf(V x)
{
    V a = v_min(v_set1(4), v_abs(x)), s = v_mul(x, x);
    V p = v_set1(7.87587506e-05f);
    p = v_fma(p, s, v_set1(-0.000801686429f));
    p = v_fma(p, s, v_set1(0.00518908742f));
    p = v_fma(p, s, v_set1(-0.026854212f));
    p = v_fma(p, s, v_set1(0.112835947f));
    p = v_fma(p, s, v_set1(-0.376126267f));
    p = v_fma(p, s, v_set1(0.128379166f));
    V small = v_fma(p, x, x);
    V q = v_set1(-1.63993802e-06f);
    q = v_fma(q, a, v_set1(4.61129139e-05f));
    q = v_fma(q, a, v_set1(-0.000597264433f));
    q = v_fma(q, a, v_set1(0.00476171724f));
    q = v_fma(q, a, v_set1(-0.0264270438f));
    q = v_fma(q, a, v_set1(0.110090197f));
    q = v_fma(q, a, v_set1(0.6318157f));
    q = v_fma(q, a, v_set1(1.1302392f));
    q = v_fma(q, a, v_set1(-0.000321471026f));
    V large = v_sub(v_set1(1), v_exp(v_neg(q)));
    return v_select(v_lt(v_set1(1), a), v_copysign(large, x), small);
}

/* To the nearest BF16, as float; NaN stays. */
static inline V v_round_bf16(V x)
{
    VI u = v_bits(x), odd = vi_and(vi_shr(u, 16), vi_set1(1));
    VI r = vi_and(vi_add(u, vi_add(odd, vi_set1(0x7fff))), vi_set1((int32_t)0xffff0000u));
    return v_select(v_eq(x, x), v_from_bits(r), x);
}

#endif
