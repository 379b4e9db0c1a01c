/* Attention's tile kernels; attention.h has the contracts. Written over units, so that FP32, rounded FP32 and pairs of BF16 share every loop. */
#include <math.h>
#include "cpu/kernels/attention_few.h"
#include "cpu/kernels/pairs.h"
#include "cpu/simd/philox.h"

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

enum { ROWS = 6, WIDE = VN == 8 ? 2 : 4 }; /* rows and vectors of columns of a block of a product */

/* mr rows by nv vectors of the product, accumulators in registers. */
INLINE void product_block(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t units, bool accumulate,
                          const int mr, const int nv, enum form f)
{
    V acc[ROWS][8];
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++) acc[i][j] = accumulate ? v_load(c + i * ldc + j * VN) : v_zero();
#pragma GCC unroll 4
    for (int64_t u = 0; u < units; u++) {
        V column[8];
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++) column[j] = v_in_register(v_load(b + u * ldb + j * VN));
#pragma GCC unroll 6
        for (int i = 0; i < mr; i++) {
            V x = v_set1(a[i * lda + u]);
#pragma GCC unroll 8
            for (int j = 0; j < nv; j++) acc[i][j] = f == PAIRS ? dot_pairs(x, column[j], acc[i][j]) : v_fma(x, column[j], acc[i][j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++) v_store(c + i * ldc + j * VN, acc[i][j]);
}

/* Columns [j, n) for the rows of one block; nv vectors of columns at a time, then `wide`, then one. */
INLINE void product_rows(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t n, int64_t units,
                         bool accumulate, const int mr, const int nv, enum form f)
{
    int64_t j = 0;
    for (; j + nv * VN <= n; j += nv * VN) product_block(c + j, ldc, a, lda, b + j, ldb, units, accumulate, mr, nv, f);
    for (; nv > WIDE && j + WIDE * VN <= n; j += WIDE * VN) product_block(c + j, ldc, a, lda, b + j, ldb, units, accumulate, mr, WIDE, f);
    for (; j < n; j += VN) product_block(c + j, ldc, a, lda, b + j, ldb, units, accumulate, mr, 1, f);
}

/* The rows from a multiple of ROWS on. Few rows take more columns at a time: eight chains of additions keep both multipliers busy. */
INLINE void product_rest(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t m, int64_t n, int64_t units,
                         bool accumulate, enum form f)
{
    switch (m) {
    case 1: product_rows(c, ldc, a, lda, b, ldb, n, units, accumulate, 1, VN == 8 ? 8 : WIDE, f); break;
    case 2: product_rows(c, ldc, a, lda, b, ldb, n, units, accumulate, 2, 4, f); break;
    case 3: product_rows(c, ldc, a, lda, b, ldb, n, units, accumulate, 3, 4, f); break;
    case 4: product_rows(c, ldc, a, lda, b, ldb, n, units, accumulate, 4, WIDE, f); break;
    case 5: product_rows(c, ldc, a, lda, b, ldb, n, units, accumulate, 5, WIDE, f); break;
    default: break;
    }
}

INLINE void product(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t m, int64_t n, int64_t units,
                    bool accumulate, enum form f)
{
    const int64_t rows = m / ROWS * ROWS;
    int64_t j = 0;
    for (; j + WIDE * VN <= n; j += WIDE * VN)
        for (int64_t i = 0; i < rows; i += ROWS)
            product_block(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, units, accumulate, ROWS, WIDE, f);
    for (; WIDE > 2 && j + 2 * VN <= n; j += 2 * VN)
        for (int64_t i = 0; i < rows; i += ROWS) product_block(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, units, accumulate, ROWS, 2, f);
    for (; j < n; j += VN)
        for (int64_t i = 0; i < rows; i += ROWS) product_block(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, units, accumulate, ROWS, 1, f);
    product_rest(c + rows * ldc, ldc, a + rows * lda, lda, b, ldb, m - rows, n, units, accumulate, f);
}

/* e^x for x that is hardly above 0. The scalar build has the exact one: results of other instruction sets are compared with it. */
#if VN == 1
#define exp_below v_exp
#else
#define exp_below v_exp_low
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

/* Kinds of tiles that have code of their own. PLAIN: all keys are seen, and a score is a product times a scale above 0. MASKED: as PLAIN, but some
 * keys are not seen. ANY: all others. PLAIN and MASKED compute the same bits from a key that is seen. */
enum kind { PLAIN, MASKED, ANY };

INLINE M seen_keys(const struct llm_attn_softmax *t, int r, int j)
{
    M seen = in_range(j, t->first[r], t->last[r]);
    return t->prefix > 0 ? m_or(seen, in_range(j, 0, t->prefix)) : seen;
}

/* The largest score of row r in some lane; of PLAIN and MASKED the largest product. ANY: scores take the place of s. Unseen keys become -infinity. */
INLINE V row_top(const struct llm_attn_softmax *t, int r, const int keys, const enum kind kind)
{
    float *s = t->s + r * TILE;
    V top = v_set1(-INFINITY);
#pragma GCC unroll 4
    for (int j = 0; j < keys; j += VN) {
        V x = v_load(s + j);
        if (kind == ANY) x = score(x, t->scale, t->softcap, t->bias ? t->bias + r * TILE + j : NULL);
        if (kind == MASKED || (kind == ANY && !t->full)) x = v_select(seen_keys(t, r, j), x, v_set1(-INFINITY));
        if (kind != PLAIN) v_store(s + j, x);
        top = v_max(top, x);
    }
    return top;
}

/* p of row r; returns Σ e^(score - m) in lanes. */
INLINE V row_probabilities(const struct llm_attn_softmax *t, int r, const int keys, V factor, V m, const float *keep, enum form f)
{
    const float *s = t->s + r * TILE;
    float *p = t->p + r * (f == PAIRS ? TILE / 2 : TILE);
    V sum = v_zero();
#pragma GCC unroll 4
    for (int j = 0; j < keys; j += 2 * VN) {
        V low = exp_below(v_sub(v_mul(v_load(s + j), factor), m));
        V high = exp_below(v_sub(v_mul(v_load(s + j + VN), factor), m));
        sum = v_add(v_add(sum, low), high);
        if (keep) {
            low = v_mul(low, v_load(keep + r * TILE + j));
            high = v_mul(high, v_load(keep + r * TILE + j + VN));
        }
        store_units(p, j, low, high, f);
    }
    return sum;
}

/* v_sum of each of VN vectors, in its order. */
INLINE V sums_of(V x[VN])
{
    v_transpose(x);
    for (int half = VN / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] = v_add(x[i], x[i + half]);
    return x[0];
}

/* v_hmax of each of VN vectors. */
INLINE V tops_of(V x[VN])
{
    v_transpose(x);
    for (int half = VN / 2; half; half /= 2)
        for (int i = 0; i < half; i++) x[i] = v_max(x[i], x[i + half]);
    return x[0];
}

/* Of each row: m, or 0 while no key was seen; e^(old m - m); Σ e^(score - m) in lanes. */
struct softmax_state { float m[TILE + VN], shrink[TILE + VN], sum[TILE + VN][VN]; };

/* Maxima of VN rows, or of the last `rows`, from row r0 on: they are the lanes of a vector. */
INLINE void softmax_tops(struct llm_attn_softmax *t, struct softmax_state *w, int r0, int rows, const int keys, const enum kind kind)
{
    V x[VN];
    for (int i = 0; i < VN; i++) x[i] = i < rows ? row_top(t, r0 + i, keys, kind) : v_set1(-INFINITY);
    V top = tops_of(x), old = v_load_n(t->m + r0, (size_t)rows);
    if (kind != ANY) top = v_mul(top, v_set1(t->scale)); /* rounding keeps order: the largest product makes the largest score */
    top = v_max(top, old);
    v_store_n(t->m + r0, top, (size_t)rows);
    top = v_select(v_eq(top, v_set1(-INFINITY)), v_zero(), top); /* nothing seen yet */
    v_store(w->m + r0, top);
    v_store(w->shrink + r0, exp_below(v_sub(old, top)));
}

/* Sums of these rows, and their part of o. */
INLINE void softmax_sums(struct llm_attn_softmax *t, struct softmax_state *w, int r0, int rows)
{
    V x[VN], l = v_load_n(t->l + r0, (size_t)rows), shrink = v_load(w->shrink + r0);
    for (int i = 0; i < VN; i++) x[i] = v_load(w->sum[r0 + i]);
    v_store_n(t->l + r0, v_add(v_mul(l, shrink), sums_of(x)), (size_t)rows);
    if (!m_any(m_not(v_eq(shrink, v_set1(1))))) return;
    for (int r = r0; r < r0 + rows; r++) {
        float *o = t->o + r * t->ldo;
        for (int64_t c = 0; w->shrink[r] != 1 && c < t->ldo; c += VN) v_store(o + c, v_mul(v_load(o + c), v_set1(w->shrink[r])));
    }
}

INLINE void softmax_tile(struct llm_attn_softmax *t, const int keys, const enum kind kind, enum form f)
{
    struct softmax_state w;
    const int rows = t->rows;
    const V factor = v_set1(kind == ANY ? 1 : t->scale);
    for (int r = 0; r < rows; r += VN) softmax_tops(t, &w, r, rows - r < VN ? rows - r : VN, keys, kind);
    for (int r = 0; r < rows; r++) {
        V m = v_set1(w.m[r]);
        if (kind == ANY && t->keep) v_store(w.sum[r], row_probabilities(t, r, keys, factor, m, t->keep, f));
        else v_store(w.sum[r], row_probabilities(t, r, keys, factor, m, NULL, f));
    }
    for (int r = rows; r % VN; r++) v_store(w.sum[r], v_zero());
    for (int r = 0; r < rows; r += VN) softmax_sums(t, &w, r, rows - r < VN ? rows - r : VN);
}

INLINE void softmax(struct llm_attn_softmax *t, enum form f)
{
    const bool only_scaled = t->softcap == 0 && !t->bias && t->scale > 0 && !t->keep;
    struct llm_attn_softmax local = *t; /* nothing that is stored can change it */
    const int keys = (t->keys + 2 * VN - 1) / (2 * VN) * 2 * VN;
    if (t->keys < TILE && only_scaled) softmax_tile(&local, keys, MASKED, f);
    else if (t->keys < TILE) softmax_tile(&local, keys, ANY, f);
    else if (only_scaled && t->full) softmax_tile(&local, TILE, PLAIN, f);
    else if (only_scaled) softmax_tile(&local, TILE, MASKED, f);
    else softmax_tile(&local, TILE, ANY, f);
}

/* For key r and the VN queries from lane j on: the probabilities times dropout's factors, and the gradient of the scores. */
struct gradients { V p, ds; };
INLINE struct gradients gradients_at(const struct llm_attn_back *t, int r, int j, const enum kind kind)
{
    int at = r * TILE + j;
    V slope = v_set1(t->scale), s = v_load(t->s + at), m = v_load(t->m + j);
    V x = kind == ANY ? score(s, t->scale, t->softcap, t->bias ? t->bias + at : NULL) : v_mul(s, slope);
    V p = v_mul(exp_below(v_sub(x, m)), v_load(t->inv_l + j)), dp = v_load(t->dp + at), kept = p;
    if (kind == MASKED || (kind == ANY && !t->full)) kept = p = v_select(in_range(j, t->first[r], t->last[r]), p, v_zero());
    if (kind == ANY && t->keep) {
        V keep = v_load(t->keep + at);
        dp = v_mul(dp, keep);
        kept = v_mul(p, keep);
    }
    V ds = v_mul(p, v_sub(dp, v_load(t->d + j)));
    if (kind == ANY && t->d_score) v_store(t->d_score + at, ds);
    if (kind == ANY && t->softcap > 0) {
        V y = v_tanh(v_div(v_mul(s, slope), v_set1(t->softcap)));
        slope = v_mul(slope, v_fnma(y, y, v_set1(1)));
    }
    return (struct gradients){kept, v_mul(ds, slope)};
}

/* Keys [first, end) with the queries from `from` on. */
INLINE void back_rows(const struct llm_attn_back *t, int first, int end, const int from, enum form f, const enum kind kind)
{
    const int units = f == PAIRS ? TILE / 2 : TILE;
    for (int r = first; r < end; r += 2)
        for (int j = from; j < t->queries; j += 2 * VN) {
            struct gradients x[2][2];
            for (int i = 0; i < 4; i++) x[i / 2][i % 2] = gradients_at(t, r + i / 2, j + i % 2 * VN, kind);
            for (int i = 0; i < 2; i++) {
                store_units(t->p_a + (r + i) * units, j, x[i][0].p, x[i][1].p, f);
                store_units(t->ds_a + (r + i) * units, j, x[i][0].ds, x[i][1].ds, f);
            }
            for (int i = 0; f == PAIRS && i < 2; i++) v_store(t->ds_b + r / 2 * TILE + j + i * VN, pairs_across(x[0][i].ds, x[1][i].ds));
        }
}

INLINE void back_tile(const struct llm_attn_back *t, enum form f, const enum kind kind)
{
    const int half = t->keys < TILE / 2 ? t->keys : TILE / 2;
    back_rows(t, 0, half, 0, f, kind);
    if (kind != PLAIN && t->corner) back_rows(t, half, t->keys, TILE / 2, f, kind);
    else back_rows(t, half, t->keys, 0, f, kind);
}

INLINE void back(const struct llm_attn_back *t, enum form f)
{
    const struct llm_attn_back local = *t; /* nothing that is stored can change it */
    const bool only_scaled = t->softcap == 0 && !t->bias && !t->keep && !t->d_score;
    if (only_scaled && t->full) back_tile(&local, f, PLAIN);
    else if (only_scaled) back_tile(&local, f, MASKED);
    else back_tile(&local, f, ANY);
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

/* The first n elements of y, or zeros if they are new. */
INLINE V before(const float *y, size_t n, bool new) { return new ? v_zero() : v_load_n(y, n); }

static void add(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t cols, bool new)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c += VN) {
            size_t n = (size_t)(cols - c);
            float *to = y + r * ldy + c;
            v_store_n(to, v_add(before(to, n, new), v_load_n(x + r * ldx + c, n)), n);
        }
}

static void add_transposed(float *y, int64_t ldy, const float *x, int64_t rows, int64_t cols, bool new)
{
    for (int64_t r = 0; r < rows; r += VN)
        for (int64_t c = 0; c < cols; c += VN) {
            size_t n = (size_t)(cols - c);
            V block[VN];
            for (int i = 0; i < VN; i++) block[i] = c + i < cols ? v_load(x + (c + i) * TILE + r) : v_zero();
            v_transpose(block);
            for (int i = 0; i < VN && r + i < rows; i++) {
                float *to = y + (r + i) * ldy + c;
                v_store_n(to, v_add(before(to, n, new), block[i]), n);
            }
        }
}

static void divide(float *y, const float *o, float inv_l, int64_t n)
{
    for (int64_t c = 0; c < n; c += VN)
        v_store_n(y + c, v_add(v_mul(v_load_n(o + c, (size_t)(n - c)), v_set1(inv_l)), v_zero()), (size_t)(n - c));
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
CACHED_TYPES(CACHED, bf16, NATIVE)
#ifdef LLM_ISA_avx512bf16
#define FEW_OF_bf16
#else
CACHED_TYPES(CACHED, f32, FLOATS)
FEW_TYPES(FEW, f32, FLOATS)
FEW_TYPES(FEW, bf16, ROUNDED)
#define FEW_OF_bf16 FEW_TYPES_OF(bf16)
#endif
#define FEW_OF_f32 FEW_TYPES_OF(f32)
#define FEW_TYPES_OF(name) .scores_of = {FEW_TYPES(SCORES_OF, name, )}, .values_of = {FEW_TYPES(VALUES_OF, name, )},
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
#define MATH(name, numbers, multiple) \
    (struct llm_attention_math) \
    {FEW_OF_##name .per_unit = (numbers), .align = (multiple), .edge = (numbers) > 1 ? TILE : LLM_ATTN_LANES, .begin = nothing, .end = nothing, \
     .pack_a = pack_a_##name, .pack_at = pack_at_##name, .pack_b = pack_b_##name, .pack_bt = pack_bt_##name, .product = product_##name, \
     .softmax = softmax_##name, .back = back_##name, .dot = dot_##name, .pack_b_of = {CACHED_TYPES(B_OF, name, )}, \
     .pack_bt_of = {CACHED_TYPES(BT_OF, name, )}}

FORM(bf16, NATIVE)
#ifdef LLM_ISA_avx512bf16
#define F32_MATH k->attention.math[0] /* avx512's */
#else
FORM(f32, FLOATS)
#define F32_MATH MATH(f32, 1, 1)
#endif

#ifdef LLM_ISA_avx512bf16
enum { OPENED = 32 }; /* units that are converted to floats at a time: those of a tile fit the first cache */
static void (*product_of_floats)(float *, int64_t, const float *, int64_t, const float *, int64_t, int64_t, int64_t, int64_t, bool);

/* Units of rows of a, each as the floats of its second and of its first number, which is the order of the dot product's FMAs. */
static void open_a(float *out, const float *a, int64_t lda, int64_t rows, int64_t units)
{
    const VI low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const VI high = vi_add(low, vi_set1(8));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t u = 0; u < units; u += VN) {
            const VI pairs = v_bits(v_load(a + r * lda + u));
            const V second = v_from_bits(llm_second_of_pairs(pairs)), first = v_from_bits(llm_first_of_pairs(pairs));
            v_store(out + r * 2 * OPENED + 2 * u, _mm512_permutex2var_ps(second, low, first));
            v_store(out + r * 2 * OPENED + 2 * u + VN, _mm512_permutex2var_ps(second, high, first));
        }
}

static void open_b(float *out, const float *b, int64_t ldb, int64_t columns, int64_t units)
{
    for (int64_t u = 0; u < units; u++)
        for (int64_t c = 0; c < columns; c += VN) {
            const VI pairs = v_bits(v_load(b + u * ldb + c));
            v_store(out + 2 * u * TILE + c, v_from_bits(llm_second_of_pairs(pairs)));
            v_store(out + (2 * u + 1) * TILE + c, v_from_bits(llm_first_of_pairs(pairs)));
        }
}

/* The product's bits, faster where a dot product of pairs takes longer than its FMAs. Few rows are not worth opening b for. */
static void product_by_fmas(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t m, int64_t n, int64_t units,
                            bool accumulate)
{
    float of_a[TILE * 2 * OPENED] __attribute__((aligned(64))), of_b[2 * OPENED * TILE] __attribute__((aligned(64)));
    if (m < LLM_ATTN_FEW || m > TILE || units % VN) {
        product_bf16(c, ldc, a, lda, b, ldb, m, n, units, accumulate);
        return;
    }
    for (int64_t u = 0; u < units; u += OPENED) {
        const int64_t here = units - u < OPENED ? units - u : OPENED;
        open_a(of_a, a + u, lda, m, here);
        for (int64_t j = 0; j < n; j += TILE) {
            const int64_t columns = n - j < TILE ? n - j : TILE;
            open_b(of_b, b + u * ldb + j, ldb, columns, here);
            const unsigned usual = llm_subnormals_are_zero();
            product_of_floats(c + j, ldc, of_a, 2 * OPENED, of_b, TILE, m, columns, 2 * here, accumulate || u > 0);
            llm_subnormals_as(usual);
        }
    }
}
#endif

void KERNEL(llm_fill_attention)(struct llm_kernels *k)
{
    k->attention = (struct llm_attention_kernels){
        .math = {F32_MATH, MATH(bf16, NATIVE == PAIRS ? 2 : 1, NATIVE == PAIRS ? 16 : 1)},
        .merge = merge, .sink = sink, .divide = divide, .keep = keep, .decode = decode, .add = add, .add_transposed = add_transposed};
#ifdef LLM_ISA_avx512bf16
    k->attention.math[1].pack_b_of[LLM_BF16] = pack_b_pairs;
    k->attention.math[1].pack_bt_of[LLM_BF16] = pack_bt_pairs;
    product_of_floats = k->attention.math[0].product;
    if (k->gemm.bf16.multiply == llm_gemm_pairs_by_fmas) k->attention.math[1].product = product_by_fmas;
#endif
}
