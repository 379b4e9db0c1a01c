/* Attention's tile kernels; attention.h has the contracts. Written over units, so that FP32, rounded FP32 and pairs of BF16 share every loop. */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/simd/transpose.h"
#include "cpu/simd/philox.h"

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
/* Two floats, each a lane of its own, to one unit a lane. */
INLINE V pairs_across(V low, V high)
{
    const __m512i order = _mm512_setr_epi32(0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007, 0x180008, 0x190009,
                                            0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f);
    return v_from_bits(_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(high, low)));
}
#else
#define NATIVE ROUNDED
#define dot_pairs v_fma
INLINE V pairs_along(V low, V high)
{
    (void)high;
    return low;
}
#define pairs_across pairs_along
#endif

INLINE V as_unit(V x, enum form f) { return f == FLOATS ? x : v_round_bf16(x); }

INLINE int64_t at_least_0(int64_t n) { return n > 0 ? n : 0; }
INLINE int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
INLINE int64_t depth_units(int64_t depth, enum form f) { return f == PAIRS ? round_up(depth, 32) / 2 : depth; }

/* Numbers [i, i + VN) of a row of n of any of the types that are packed as they are, zeros beyond; rows of blocks have whole blocks. */
INLINE V numbers(const char *row, int64_t n, int64_t i, const enum llm_dtype type)
{
    size_t left = (size_t)at_least_0(n - i);
    if (!left) return v_zero();
    const uint16_t *halves = (const uint16_t *)(const void *)row + i;
    if (type == LLM_F32) return v_load_n((const float *)(const void *)row + i, left);
    if (type == LLM_F16) return left >= VN ? v_load_f16(halves) : v_load_f16_n(halves, left);
    if (type == LLM_BF16) return left >= VN ? v_load_bf16(halves) : v_load_bf16_n(halves, left);
    const char *block = row + i / 32 * (type == LLM_Q8_0 ? 34 : 18);
    V d = v_set1_f16((const uint16_t *)(const void *)block);
    if (type == LLM_Q8_0) return v_mul(v_load_i8((const int8_t *)block + 2 + i % 32), d);
    VI both = v_to_i32(v_load_i8((const int8_t *)block + 2 + i % 16)); /* Q4_0: element i % 16 and the one 16 after it */
    VI q = vi_and(i % 32 < 16 ? both : vi_shr(both, 4), vi_set1(15));
    return v_mul(v_from_i32(vi_sub(q, vi_set1(8))), d);
}

/* Bytes of n numbers. */
INLINE int64_t row_bytes(int64_t n, const enum llm_dtype type)
{
    return type == LLM_F32 ? n * 4 : type == LLM_Q8_0 ? n / 32 * 34 : type == LLM_Q4_0 ? n / 32 * 18 : n * 2;
}

/* Units [u, u + VN) of the row x of n numbers, zeros beyond. */
INLINE V row_units(const char *x, int64_t n, int64_t u, enum form f, const enum llm_dtype type)
{
    if (f != PAIRS) return as_unit(numbers(x, n, u, type), f);
    return pairs_along(numbers(x, n, 2 * u, type), numbers(x, n, 2 * u + VN, type));
}
/* Columns [c, c + VN) of unit u of the matrix x with `have` rows of so many bytes, the depth running down the rows. */
INLINE V column_units(const char *x, int64_t bytes, int64_t have, int64_t cols, int64_t u, int64_t c, enum form f, const enum llm_dtype type)
{
    if (c >= cols) return v_zero();
    if (f != PAIRS) return u < have ? as_unit(numbers(x + u * bytes, cols, c, type), f) : v_zero();
    V low = 2 * u < have ? numbers(x + 2 * u * bytes, cols, c, type) : v_zero();
    V high = 2 * u + 1 < have ? numbers(x + (2 * u + 1) * bytes, cols, c, type) : v_zero();
    return pairs_across(low, high);
}

INLINE void pack_a(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t rows, int64_t depth, enum form f)
{
    int64_t units = depth_units(depth, f);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t u = 0; u < units; u += VN)
            v_store_n(dst + r * ldd + u, row_units((const char *)(src + r * lds), depth, u, f, LLM_F32), (size_t)(units - u));
}

INLINE void pack_at(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t cols, int64_t depth, enum form f)
{
    int64_t units = depth_units(depth, f);
    for (int64_t u = 0; u < units; u += VN)
        for (int64_t c = 0; c < cols; c += VN) {
            V r[VN];
            for (int i = 0; i < VN; i++) r[i] = column_units((const char *)src, lds * 4, have, cols, u + i, c, f, LLM_F32);
            v_transpose(r);
            for (int i = 0; i < VN && c + i < cols; i++) v_store_n(dst + (c + i) * ldd + u, r[i], (size_t)(units - u));
        }
}

INLINE void pack_b(float *dst, int64_t ldd, const void *src, int64_t lds, int64_t have, int64_t cols, int64_t depth, enum form f,
                   const enum llm_dtype type)
{
    int64_t units = depth_units(depth, f);
    for (int64_t u = 0; u < units; u++)
        for (int64_t c = 0; c < ldd; c += VN) v_store(dst + u * ldd + c, column_units(src, row_bytes(lds, type), have, cols, u, c, f, type));
}

INLINE void pack_bt(float *dst, int64_t ldd, const void *src, int64_t lds, int64_t have, int64_t depth, enum form f, const enum llm_dtype type)
{
    const char *x = src;
    int64_t units = depth_units(depth, f);
    for (int64_t c = 0; c < ldd; c += VN)
        for (int64_t u = 0; u < units; u += VN) {
            V r[VN];
            for (int i = 0; i < VN; i++) r[i] = c + i < have ? row_units(x + (c + i) * row_bytes(lds, type), depth, u, f, type) : v_zero();
            v_transpose(r);
            for (int i = 0; i < VN && u + i < units; i++) v_store(dst + (u + i) * ldd + c, r[i]);
        }
}

#ifdef LLM_ISA_avx512bf16
static void pack_b_pairs(float *dst, int64_t ldd, const void *matrix, int64_t lds, int64_t have, int64_t cols, int64_t depth)
{
    const uint16_t *src = matrix;
    int64_t units = depth_units(depth, PAIRS);
    for (int64_t u = 0; u < units; u++)
        for (int64_t c = 0; c < ldd; c += VN) {
            M low = 2 * u < have ? m_first((size_t)at_least_0(cols - c)) : 0, high = 2 * u + 1 < have ? low : 0;
            const uint16_t *at = src + 2 * u * lds + c;
            VI a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(low, low ? at : src));
            VI b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(high, high ? at + lds : src));
            v_store(dst + u * ldd + c, v_from_bits(vi_or(a, vi_shl(b, 16))));
        }
}

static void pack_bt_pairs(float *dst, int64_t ldd, const void *matrix, int64_t lds, int64_t have, int64_t depth)
{
    const uint16_t *src = matrix;
    int64_t units = depth_units(depth, PAIRS);
    for (int64_t c = 0; c < ldd; c += VN)
        for (int64_t u = 0; u < units; u += VN) {
            int64_t n = at_least_0(depth - 2 * u);
            __mmask32 there = n >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1;
            V r[VN];
            for (int i = 0; i < VN; i++) {
                const uint16_t *at = c + i < have && there ? src + (c + i) * lds + 2 * u : src;
                r[i] = v_from_bits(_mm512_maskz_loadu_epi16(c + i < have ? there : 0, at));
            }
            v_transpose(r);
            for (int i = 0; i < VN && u + i < units; i++) v_store(dst + (u + i) * ldd + c, r[i]);
        }
}
#endif

static void keep(float *factors, const uint32_t key[2], const uint32_t counter[3], uint32_t channel, uint32_t drop, float kept, int64_t n)
{
    uint32_t draws[2 * LLM_PHILOX_DRAWS], first = channel % 4;
    llm_philox_draws(draws, channel / 4, key, counter);
    if (first + n > LLM_PHILOX_DRAWS) llm_philox_draws(draws + LLM_PHILOX_DRAWS, channel / 4 + LLM_PHILOX_BLOCKS, key, counter);
    for (int64_t i = 0; i < n; i++) factors[i] = draws[first + i] < drop ? 0 : kept;
}

static void decode(enum llm_dtype type, const void *in, float *out, int64_t n)
{
    if (type == LLM_BF16)
        for (int64_t i = 0; i < n; i += VN) v_store_n(out + i, numbers(in, n, i, LLM_BF16), (size_t)(n - i));
    else if (type == LLM_F16)
        for (int64_t i = 0; i < n; i += VN) v_store_n(out + i, numbers(in, n, i, LLM_F16), (size_t)(n - i));
    else if (type == LLM_Q8_0)
        for (int64_t i = 0; i < n; i += VN) v_store(out + i, numbers(in, n, i, LLM_Q8_0));
    else if (type == LLM_Q4_0)
        for (int64_t i = 0; i < n; i += VN) v_store(out + i, numbers(in, n, i, LLM_Q4_0));
    else
        llm_dtypes[type].decode(in, out, (size_t)n);
}

/* mr rows by nv vectors of the product, accumulators in registers. */
INLINE void product_block(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t units, bool accumulate,
                          const int mr, const int nv, enum form f)
{
    V acc[6][4];
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) acc[i][j] = accumulate ? v_load(c + i * ldc + j * VN) : v_zero();
#pragma GCC unroll 4
    for (int64_t u = 0; u < units; u++) {
        V column[4];
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) column[j] = v_in_register(v_load(b + u * ldb + j * VN));
#pragma GCC unroll 6
        for (int i = 0; i < mr; i++) {
            V x = v_set1(a[i * lda + u]);
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++) acc[i][j] = f == PAIRS ? dot_pairs(x, column[j], acc[i][j]) : v_fma(x, column[j], acc[i][j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) v_store(c + i * ldc + j * VN, acc[i][j]);
}

/* nv vectors of columns, all rows. */
INLINE void product_columns(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t m, int64_t units,
                            bool accumulate, const int nv, enum form f)
{
    int64_t i = 0;
    for (; i + 6 <= m; i += 6) product_block(c + i * ldc, ldc, a + i * lda, lda, b, ldb, units, accumulate, 6, nv, f);
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

/* e^x for x that is hardly above 0. Where the instruction set helps, below -87 (a subnormal result) it is 0. */
#if VN == 16
INLINE V exp_below(V x)
{
    const V shift = v_set1(0x1.8p23f);
    V n = v_sub(v_fma(x, v_set1(0x1.715476p0f), shift), shift); /* x / ln 2 to the nearest integer */
    V r = v_fnma(n, v_set1(0x1.7f7d1cp-20f), v_fnma(n, v_set1(0x1.62e4p-1f), x));
    V p = v_fma(v_set1(0.0013926376f), r, v_set1(0.00836333308f)); /* v_exp's polynomial */
    p = v_fma(p, r, v_set1(0.0416665535f));
    p = v_fma(p, r, v_set1(0.166665761f));
    p = v_fma(p, r, v_set1(0.5f));
    p = v_add(v_fma(p, v_mul(r, r), r), v_set1(1));
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, v_set1(-87), _CMP_NLT_UQ), p, n);
}
#else
#define exp_below v_exp
#endif

INLINE float exp_of(float x)
{
    float lanes[VN];
    v_store(lanes, v_exp(v_set1(x)));
    return lanes[0];
}

/* Lanes at..at + VN that lie in [first, last). */
INLINE M in_range(int at, int first, int last)
{
    V lane = v_add(v_iota(), v_set1((float)at));
    return m_and(v_le(v_set1((float)first), lane), v_lt(lane, v_set1((float)last)));
}

INLINE V capped(V x, float softcap) { return v_mul(v_set1(softcap), v_tanh(v_div(x, v_set1(softcap)))); }

/* VN or 2·VN neighbours in a row of 64 floats to units of form A, from lane j on. */
INLINE void store_units(float *row, int j, V low, V high, enum form f)
{
    if (f == PAIRS) {
        v_store(row + j / 2, pairs_along(low, high));
    } else {
        v_store(row + j, as_unit(low, f));
        v_store(row + j + VN, as_unit(high, f));
    }
}

INLINE V score(V s, float scale, float softcap, const float *bias)
{
    V x = v_mul(s, v_set1(scale));
    if (softcap > 0) x = capped(x, softcap);
    return bias ? v_add(x, v_load(bias)) : x;
}

/* The largest score of row r. Where products have to be more than multiplied, the scores take the place of s (unseen keys: -infinity). */
INLINE float row_top(const struct llm_attn_softmax *t, int r, bool plain)
{
    float *s = t->s + r * TILE;
    V most = v_set1(-INFINITY);
#pragma GCC unroll 4
    for (int j = 0; j < TILE; j += VN) {
        V x = v_load(s + j);
        if (!plain) {
            x = score(x, t->scale, t->softcap, t->bias ? t->bias + r * TILE + j : NULL);
            if (!t->full) {
                M seen = m_or(in_range(j, t->first[r], t->last[r]), in_range(j, 0, t->prefix));
                x = v_select(seen, x, v_set1(-INFINITY));
            }
            v_store(s + j, x);
        }
        most = v_max(most, x);
    }
    return plain ? v_hmax(most) * t->scale : v_hmax(most); /* rounding keeps order: the largest product makes the largest score */
}

/* p of row r; returns Σ e^(score - m). */
INLINE float row_probabilities(const struct llm_attn_softmax *t, int r, float factor, float m, const float *keep, enum form f)
{
    const float *s = t->s + r * TILE;
    float *p = t->p + r * (f == PAIRS ? TILE / 2 : TILE);
    V sum = v_zero();
#pragma GCC unroll 4
    for (int j = 0; j < TILE; j += 2 * VN) {
        V low = exp_below(v_sub(v_mul(v_load(s + j), v_set1(factor)), v_set1(m)));
        V high = exp_below(v_sub(v_mul(v_load(s + j + VN), v_set1(factor)), v_set1(m)));
        sum = v_add(v_add(sum, low), high);
        if (keep) {
            low = v_mul(low, v_load(keep + r * TILE + j));
            high = v_mul(high, v_load(keep + r * TILE + j + VN));
        }
        store_units(p, j, low, high, f);
    }
    return v_sum(sum);
}

INLINE void softmax(struct llm_attn_softmax *t, enum form f)
{
    const bool plain = t->full && t->softcap == 0 && !t->bias && t->scale > 0;
    const int rows = t->rows;
    float m[TILE], shrink[TILE], sum[TILE];
    for (int r = rows; r < TILE; r++) m[r] = shrink[r] = 0;
    if (plain)
        for (int r = 0; r < rows; r++) m[r] = row_top(t, r, true);
    else
        for (int r = 0; r < rows; r++) m[r] = row_top(t, r, false);
    for (int r = 0; r < rows; r++) {
        float top = m[r] > t->m[r] ? m[r] : t->m[r];
        m[r] = top == -INFINITY ? 0 : top; /* 0: nothing seen yet */
        shrink[r] = t->m[r] - m[r];
        t->m[r] = top;
    }
    for (int r = 0; r < rows; r += VN) v_store(shrink + r, exp_below(v_load(shrink + r)));
    const float factor = plain ? t->scale : 1;
    if (t->keep)
        for (int r = 0; r < rows; r++) sum[r] = row_probabilities(t, r, factor, m[r], t->keep, f);
    else
        for (int r = 0; r < rows; r++) sum[r] = row_probabilities(t, r, factor, m[r], NULL, f);
    for (int r = 0; r < rows; r++) {
        t->l[r] = t->l[r] * shrink[r] + sum[r];
        if (shrink[r] == 1) continue;
        float *o = t->o + r * t->ldo;
        for (int64_t c = 0; c < t->ldo; c += VN) v_store(o + c, v_mul(v_load(o + c), v_set1(shrink[r])));
    }
}

/* p·keep and the gradient of s for VN queries from lane j on of key r. `plain`: all are seen, and the scores are products multiplied. */
struct turned { V p, ds; };
INLINE struct turned turned(const struct llm_attn_back *t, int r, int j, bool plain)
{
    int at = r * TILE + j;
    V slope = v_set1(t->scale), s = v_load(t->s + at), x;
    x = plain ? v_mul(s, slope) : score(s, t->scale, t->softcap, t->bias ? t->bias + at : NULL);
    V p = v_mul(exp_below(v_sub(x, v_load(t->m + j))), v_load(t->inv_l + j)), dp = v_load(t->dp + at), kept = p;
    if (!plain && !t->full) kept = p = v_select(in_range(j, t->first[r], t->last[r]), p, v_zero());
    if (!plain && t->keep) {
        V keep = v_load(t->keep + at);
        dp = v_mul(dp, keep);
        kept = v_mul(p, keep);
    }
    V ds = v_mul(p, v_sub(dp, v_load(t->d + j)));
    if (!plain && t->d_score) v_store(t->d_score + at, ds);
    if (!plain && t->softcap > 0) {
        V y = v_tanh(v_div(v_mul(s, slope), v_set1(t->softcap)));
        slope = v_mul(slope, v_fnma(y, y, v_set1(1)));
    }
    return (struct turned){kept, v_mul(ds, slope)};
}

INLINE void back_rows(const struct llm_attn_back *t, enum form f, bool plain)
{
    const int units = f == PAIRS ? TILE / 2 : TILE;
    for (int r = 0; r < TILE; r += 2)
        for (int j = 0; j < TILE; j += 2 * VN) {
            struct turned x[2][2];
            for (int i = 0; i < 4; i++) x[i / 2][i % 2] = turned(t, r + i / 2, j + i % 2 * VN, plain);
            for (int i = 0; i < 2; i++) {
                store_units(t->p_a + (r + i) * units, j, x[i][0].p, x[i][1].p, f);
                store_units(t->ds_a + (r + i) * units, j, x[i][0].ds, x[i][1].ds, f);
            }
            for (int i = 0; f == PAIRS && i < 2; i++) v_store(t->ds_b + r / 2 * TILE + j + i * VN, pairs_across(x[0][i].ds, x[1][i].ds));
        }
}

INLINE void back(const struct llm_attn_back *t, enum form f)
{
    const struct llm_attn_back local = *t; /* nothing that is stored can change it */
    if (t->full && t->softcap == 0 && !t->bias && !t->keep && !t->d_score) back_rows(&local, f, true);
    else back_rows(&local, f, false);
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

static void add(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c += VN) {
            size_t n = (size_t)(cols - c);
            float *to = y + r * ldy + c;
            v_store_n(to, v_add(v_load_n(to, n), v_load_n(x + r * ldx + c, n)), n);
        }
}

static void add_turned(float *y, int64_t ldy, const float *x, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r += VN)
        for (int64_t c = 0; c < cols; c += VN) {
            size_t n = (size_t)(cols - c);
            V block[VN];
            for (int i = 0; i < VN; i++) block[i] = c + i < cols ? v_load(x + (c + i) * TILE + r) : v_zero();
            v_transpose(block);
            for (int i = 0; i < VN && r + i < rows; i++) {
                float *to = y + (r + i) * ldy + c;
                v_store_n(to, v_add(v_load_n(to, n), block[i]), n);
            }
        }
}

static void nothing(void) {}

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
        sum = v_fma(f == FLOATS ? a : v_round_bf16(a), b, sum);
    }
    return v_sum(sum);
}

/* Packing of a cache's numbers of one type. */
#define CACHED(name, f, which, type) \
    static void pack_b_##name##_##which(float *dst, int64_t ldd, const void *src, int64_t lds, int64_t have, int64_t cols, int64_t depth) \
    { pack_b(dst, ldd, src, lds, have, cols, depth, f, type); } \
    static void pack_bt_##name##_##which(float *dst, int64_t ldd, const void *src, int64_t lds, int64_t have, int64_t depth) \
    { pack_bt(dst, ldd, src, lds, have, depth, f, type); }
#define CACHED_TYPES(X, name, f) X(name, f, f16, LLM_F16) X(name, f, bf16, LLM_BF16) X(name, f, q8_0, LLM_Q8_0) X(name, f, q4_0, LLM_Q4_0)
CACHED_TYPES(CACHED, f32, FLOATS)
CACHED_TYPES(CACHED, bf16, NATIVE)
#define B_OF(name, f, which, type) [type] = pack_b_##name##_##which,
#define BT_OF(name, f, which, type) [type] = pack_bt_##name##_##which,

/* The functions of one form. */
#define FORM(name, f) \
    static void pack_a_##name(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t rows, int64_t depth) \
    { pack_a(dst, ldd, src, lds, rows, depth, f); } \
    static void pack_at_##name(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t cols, int64_t depth) \
    { pack_at(dst, ldd, src, lds, have, cols, depth, f); } \
    static void pack_b_##name(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t cols, int64_t depth) \
    { pack_b(dst, ldd, src, lds, have, cols, depth, f, LLM_F32); } \
    static void pack_bt_##name(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t depth) \
    { pack_bt(dst, ldd, src, lds, have, depth, f, LLM_F32); } \
    static void product_##name(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t m, int64_t n, \
                               int64_t units, bool accumulate) \
    { product(c, ldc, a, lda, b, ldb, m, n, units, accumulate, f); } \
    static void softmax_##name(struct llm_attn_softmax *t) { softmax(t, f); } \
    static void back_##name(const struct llm_attn_back *t) { back(t, f); } \
    static float dot_##name(const float *x, const float *y, int64_t n) { return dot(x, y, n, f); }
FORM(f32, FLOATS)
FORM(bf16, NATIVE)
#define MATH(name, numbers, multiple) \
    {.per_unit = numbers, .align = multiple, .begin = nothing, .end = nothing, .pack_a = pack_a_##name, .pack_at = pack_at_##name, \
     .pack_b = pack_b_##name, .pack_bt = pack_bt_##name, .product = product_##name, .softmax = softmax_##name, .back = back_##name, \
     .dot = dot_##name, .pack_b_of = {CACHED_TYPES(B_OF, name, )}, .pack_bt_of = {CACHED_TYPES(BT_OF, name, )}}

void KERNEL(llm_fill_attention)(struct llm_kernels *k)
{
    k->attention = (struct llm_attention_kernels){
        .math = {MATH(f32, 1, 1), MATH(bf16, NATIVE == PAIRS ? 2 : 1, NATIVE == PAIRS ? 16 : 1)}, 
        .merge = merge, .sink = sink, .keep = keep, .decode = decode, .add = add, .add_turned = add_turned};
#ifdef LLM_ISA_avx512bf16
    k->attention.math[1].pack_b_of[LLM_BF16] = pack_b_pairs;
    k->attention.math[1].pack_bt_of[LLM_BF16] = pack_bt_pairs;
#endif
}
