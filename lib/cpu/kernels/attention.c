/* Attention's tile kernels; attention.h has the contracts. Written over units, so that FP32, rounded FP32 and pairs of BF16 share every loop. */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/simd.h"

#define TILE LLM_ATTN_TILE
#define INLINE static inline __attribute__((always_inline))

/* How numbers stand in units. */
enum form { FLOATS, ROUNDED, PAIRS };

#ifdef LLM_ISA_avx512bf16
#define NATIVE PAIRS
INLINE V dot_pairs(V a, V b, V c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)v_bits(a), (__m512bh)v_bits(b));
}
/* 32 floats to 16 units along a row. */
INLINE V pairs_along(V low, V high)
{
    return v_from_bits((__m512i)_mm512_cvtne2ps_pbh(high, low));
}
#else
#define NATIVE ROUNDED
#define dot_pairs v_fma
INLINE V pairs_along(V low, V high)
{
    (void)high;
    return low;
}
#endif

/* To the nearest BF16, as float; NaN stays. */
INLINE V round_bf16(V x)
{
    VI u = v_bits(x), odd = vi_and(vi_shr(u, 16), vi_set1(1));
    VI r = vi_and(vi_add(u, vi_add(odd, vi_set1(0x7fff))), vi_set1((int32_t)0xffff0000u));
    return v_select(v_eq(x, x), v_from_bits(r), x);
}
/* Two floats, each a lane of its own, to one unit a lane. */
INLINE V pairs_across(V low, V high)
{
    VI top = v_bits(round_bf16(high));
    return v_from_bits(vi_or(vi_shr(v_bits(round_bf16(low)), 16), vi_and(top, vi_set1((int32_t)0xffff0000u))));
}
INLINE V as_unit(V x, enum form f) { return f == FLOATS ? x : round_bf16(x); }

/* Row i of r becomes column i. */
#if VN == 16
INLINE void transpose(V r[VN])
{
    V t[VN];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    for (int j = 0; j < 4; j++) {
        V a = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88), b = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd);
        V c = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88), d = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
        t[j] = _mm512_shuffle_f32x4(a, c, 0x88);
        t[4 + j] = _mm512_shuffle_f32x4(b, d, 0x88);
        t[8 + j] = _mm512_shuffle_f32x4(a, c, 0xdd);
        t[12 + j] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
    for (int i = 0; i < VN; i++) r[i] = t[i];
}
#else
INLINE void transpose(V r[VN])
{
    float t[VN][VN], column[VN];
    for (int i = 0; i < VN; i++) v_store(t[i], r[i]);
    for (int i = 0; i < VN; i++) {
        for (int j = 0; j < VN; j++) column[j] = t[j][i];
        r[i] = v_load(column);
    }
}
#endif

INLINE int64_t at_least_0(int64_t n) { return n > 0 ? n : 0; }
INLINE int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
INLINE int64_t depth_units(int64_t depth, enum form f) { return f == PAIRS ? round_up(depth, 32) / 2 : depth; }

/* Units [u, u + VN) of the row x of n numbers, zeros beyond. */
INLINE V row_units(const float *x, int64_t n, int64_t u, enum form f)
{
    if (f != PAIRS) return as_unit(v_load_n(x + (u < n ? u : 0), (size_t)at_least_0(n - u)), f);
    int64_t at = 2 * u;
    V low = v_load_n(x + (at < n ? at : 0), (size_t)at_least_0(n - at));
    at += VN;
    return pairs_along(low, v_load_n(x + (at < n ? at : 0), (size_t)at_least_0(n - at)));
}
/* Columns [c, c + VN) of unit u of the matrix x with `have` rows, the depth running down the rows. */
INLINE V column_units(const float *x, int64_t ld, int64_t have, int64_t cols, int64_t u, int64_t c, enum form f)
{
    size_t n = (size_t)at_least_0(cols - c);
    if (!n) return v_zero();
    if (f != PAIRS) return u < have ? as_unit(v_load_n(x + u * ld + c, n), f) : v_zero();
    V low = 2 * u < have ? v_load_n(x + 2 * u * ld + c, n) : v_zero();
    V high = 2 * u + 1 < have ? v_load_n(x + (2 * u + 1) * ld + c, n) : v_zero();
    return pairs_across(low, high);
}

INLINE void pack_a(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t rows, int64_t depth, enum form f)
{
    int64_t units = depth_units(depth, f);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t u = 0; u < units; u += VN)
            v_store_n(dst + r * ldd + u, row_units(src + r * lds, depth, u, f), (size_t)(units - u));
}

INLINE void pack_at(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t cols, int64_t depth, enum form f)
{
    int64_t units = depth_units(depth, f);
    for (int64_t u = 0; u < units; u += VN)
        for (int64_t c = 0; c < cols; c += VN) {
            V r[VN];
            for (int i = 0; i < VN; i++) r[i] = column_units(src, lds, have, cols, u + i, c, f);
            transpose(r);
            for (int i = 0; i < VN && c + i < cols; i++) v_store_n(dst + (c + i) * ldd + u, r[i], (size_t)(units - u));
        }
}

INLINE void pack_b(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t cols, int64_t depth, enum form f)
{
    int64_t units = depth_units(depth, f);
    for (int64_t u = 0; u < units; u++)
        for (int64_t c = 0; c < ldd; c += VN) v_store(dst + u * ldd + c, column_units(src, lds, have, cols, u, c, f));
}

INLINE void pack_bt(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t depth, enum form f)
{
    int64_t units = depth_units(depth, f);
    for (int64_t c = 0; c < ldd; c += VN)
        for (int64_t u = 0; u < units; u += VN) {
            V r[VN];
            for (int i = 0; i < VN; i++) r[i] = c + i < have ? row_units(src + (c + i) * lds, depth, u, f) : v_zero();
            transpose(r);
            for (int i = 0; i < VN && u + i < units; i++) v_store(dst + (u + i) * ldd + c, r[i]);
        }
}

/* mr rows by nv vectors of the product, accumulators in registers. */
INLINE void product_block(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t units, bool accumulate,
                          const int mr, const int nv, enum form f)
{
    V acc[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) acc[i][j] = accumulate ? v_load(c + i * ldc + j * VN) : v_zero();
    for (int64_t u = 0; u < units; u++) {
        V column[4];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) column[j] = v_load(b + u * ldb + j * VN);
#pragma GCC unroll 4
        for (int i = 0; i < mr; i++) {
            V x = v_set1(a[i * lda + u]);
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++) acc[i][j] = f == PAIRS ? dot_pairs(x, column[j], acc[i][j]) : v_fma(x, column[j], acc[i][j]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) v_store(c + i * ldc + j * VN, acc[i][j]);
}

/* nv vectors of columns, all rows. */
INLINE void product_columns(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t m, int64_t units,
                            bool accumulate, const int nv, enum form f)
{
    int64_t i = 0;
    for (; i + 4 <= m; i += 4) product_block(c + i * ldc, ldc, a + i * lda, lda, b, ldb, units, accumulate, 4, nv, f);
    for (; i < m; i++) product_block(c + i * ldc, ldc, a + i * lda, lda, b, ldb, units, accumulate, 1, nv, f);
}

INLINE void product(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t m, int64_t n, int64_t units,
                    bool accumulate, enum form f)
{
    const int wide = VN == 8 ? 2 : 4;
    int64_t j = 0;
    for (; j + wide * VN <= n; j += wide * VN) product_columns(c + j, ldc, a, lda, b + j, ldb, m, units, accumulate, wide, f);
    for (; j < n; j += VN) product_columns(c + j, ldc, a, lda, b + j, ldb, m, units, accumulate, 1, f);
}

/* Lanes at..at + VN that lie in [first, last). */
INLINE M in_range(int at, int first, int last)
{
    V lane = v_add(v_iota(), v_set1((float)at));
    return m_and(v_le(v_set1((float)first), lane), v_lt(lane, v_set1((float)last)));
}

INLINE V score_of(V s, float scale, float softcap)
{
    V x = v_mul(s, v_set1(scale));
    return softcap > 0 ? v_mul(v_set1(softcap), v_tanh(v_div(x, v_set1(softcap)))) : x;
}

/* Scores of one row in place of s; returns the largest. */
INLINE V row_scores(const struct llm_attn_softmax *t, int r)
{
    float *s = t->s + r * TILE;
    V most = v_set1(-INFINITY);
    for (int j = 0; j < TILE; j += VN) {
        V x = score_of(v_load(s + j), t->scale, t->softcap);
        if (t->bias) x = v_add(x, v_load(t->bias + r * TILE + j));
        if (!t->full) {
            M seen = m_or(in_range(j, t->first[r], t->last[r]), in_range(j, 0, t->prefix));
            x = v_select(seen, x, v_set1(-INFINITY));
        }
        v_store(s + j, x);
        most = v_max(most, x);
    }
    return most;
}

/* 64 floats to a row of form A. */
INLINE void store_row(float *dst, const float *x, enum form f)
{
    for (int u = 0; u < (f == PAIRS ? TILE / 2 : TILE); u += VN) v_store(dst + u, row_units(x, TILE, u, f));
}

INLINE float exp_of(float x)
{
    float lanes[VN];
    v_store(lanes, v_exp(v_set1(x)));
    return lanes[0];
}

INLINE void softmax(struct llm_attn_softmax *t, enum form f)
{
    const int units = f == PAIRS ? TILE / 2 : TILE;
    for (int r = 0; r < t->rows; r++) {
        float *s = t->s + r * TILE, *o = t->o + r * t->ldo;
        float top = v_hmax(row_scores(t, r)), m = t->m[r] > top ? t->m[r] : top;
        if (m == -INFINITY) { /* nothing seen yet */
            for (int u = 0; u < units; u += VN) v_store(t->p + r * units + u, v_zero());
            continue;
        }
        V sum = v_zero();
        for (int j = 0; j < TILE; j += VN) {
            V p = v_exp(v_sub(v_load(s + j), v_set1(m)));
            sum = v_add(sum, p);
            v_store(s + j, t->keep ? v_mul(p, v_load(t->keep + r * TILE + j)) : p);
        }
        store_row(t->p + r * units, s, f);
        float shrink = t->m[r] == m ? 1 : exp_of(t->m[r] - m);
        if (shrink != 1)
            for (int64_t c = 0; c < t->ldo; c += VN) v_store(o + c, v_mul(v_load(o + c), v_set1(shrink)));
        t->l[r] = t->l[r] * shrink + v_sum(sum);
        t->m[r] = m;
    }
}

/* One key's row of probabilities and gradients, as floats. */
INLINE void back_row(const struct llm_attn_back *t, int r, float *p_out, float *ds_out)
{
    for (int j = 0; j < TILE; j += VN) {
        V capped = score_of(v_load(t->s + r * TILE + j), t->scale, t->softcap), x = capped;
        if (t->bias) x = v_add(x, v_load(t->bias + r * TILE + j));
        V p = v_mul(v_exp(v_sub(x, v_load(t->m + j))), v_load(t->inv_l + j)), dp = v_load(t->dp + r * TILE + j);
        if (!t->full) p = v_select(in_range(j, t->first[r], t->last[r]), p, v_zero());
        V keep = t->keep ? v_load(t->keep + r * TILE + j) : v_set1(1);
        V ds = v_mul(p, v_sub(v_mul(dp, keep), v_load(t->d + j)));
        if (t->d_score) v_store(t->d_score + r * TILE + j, ds);
        if (t->softcap > 0) {
            V slope = v_div(capped, v_set1(t->softcap));
            ds = v_mul(ds, v_fnma(slope, slope, v_set1(1)));
        }
        v_store(p_out + j, v_mul(p, keep));
        v_store(ds_out + j, v_mul(ds, v_set1(t->scale)));
    }
}

INLINE void back(const struct llm_attn_back *t, enum form f)
{
    const int units = f == PAIRS ? TILE / 2 : TILE;
    for (int r = 0; r < TILE; r += 2) {
        float p[2][TILE], ds[2][TILE];
        for (int i = 0; i < 2; i++) {
            back_row(t, r + i, p[i], ds[i]);
            store_row(t->p_a + (r + i) * units, p[i], f);
            store_row(t->ds_a + (r + i) * units, ds[i], f);
        }
        if (f == PAIRS)
            for (int j = 0; j < TILE; j += VN) v_store(t->ds_b + r / 2 * TILE + j, pairs_across(v_load(ds[0] + j), v_load(ds[1] + j)));
    }
}

static void merge(float *m, float *l, float *o, const float *m2, const float *l2, const float *o2, int64_t n)
{
    float top = *m > *m2 ? *m : *m2;
    if (top == -INFINITY) return;
    float a = exp_of(*m - top), b = exp_of(*m2 - top);
    for (int64_t c = 0; c < n; c += VN) v_store(o + c, v_add(v_mul(v_load(o + c), v_set1(a)), v_mul(v_load(o2 + c), v_set1(b))));
    *l = *l * a + *l2 * b;
    *m = top;
}

static void sink(float *m, float *l, float *o, float logit, int64_t n)
{
    float top = *m > logit ? *m : logit;
    if (top == -INFINITY) return;
    float shrink = exp_of(*m - top);
    for (int64_t c = 0; c < n; c += VN) v_store(o + c, v_mul(v_load(o + c), v_set1(shrink)));
    *l = *l * shrink + exp_of(logit - top);
    *m = top;
}

INLINE float dot(const float *x, const float *y, int64_t n, enum form f)
{
    V sum = v_zero();
    for (int64_t i = 0; i < n; i += VN) {
        V a = v_load_n(x + i, (size_t)(n - i)), b = v_load_n(y + i, (size_t)(n - i));
        sum = v_fma(f == FLOATS ? a : round_bf16(a), b, sum);
    }
    return v_sum(sum);
}

/* The functions of one form. */
#define FORM(name, f) \
    static void pack_a_##name(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t rows, int64_t depth) \
    { pack_a(dst, ldd, src, lds, rows, depth, f); } \
    static void pack_at_##name(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t cols, int64_t depth) \
    { pack_at(dst, ldd, src, lds, have, cols, depth, f); } \
    static void pack_b_##name(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t cols, int64_t depth) \
    { pack_b(dst, ldd, src, lds, have, cols, depth, f); } \
    static void pack_bt_##name(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t depth) \
    { pack_bt(dst, ldd, src, lds, have, depth, f); } \
    static void product_##name(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t m, int64_t n, \
                               int64_t units, bool accumulate) \
    { product(c, ldc, a, lda, b, ldb, m, n, units, accumulate, f); } \
    static void softmax_##name(struct llm_attn_softmax *t) { softmax(t, f); } \
    static void back_##name(const struct llm_attn_back *t) { back(t, f); } \
    static float dot_##name(const float *x, const float *y, int64_t n) { return dot(x, y, n, f); }
FORM(f32, FLOATS)
FORM(bf16, NATIVE)
#define MATH(name, numbers, multiple) \
    {.per_unit = numbers, .align = multiple, .pack_a = pack_a_##name, .pack_at = pack_at_##name, .pack_b = pack_b_##name, \
     .pack_bt = pack_bt_##name, .product = product_##name, .softmax = softmax_##name, .back = back_##name, .dot = dot_##name}

void KERNEL(llm_fill_attention)(struct llm_kernels *k)
{
    k->attention = (struct llm_attention_kernels){
        .math = {MATH(f32, 1, 1), MATH(bf16, NATIVE == PAIRS ? 2 : 1, NATIVE == PAIRS ? 16 : 1)}, 
        .merge = merge, .sink = sink};
}
