/* Kernels over rows (cpu/kernels/rows.h). A row's sums run in four chains of vectors, joined at the end, then in the fixed tree of v_sum. */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/simd.h"
#include "cpu/simd/philox.h"

/* Adds `term`, an expression in `at` and `count` (lanes in use; the others must come to zero), over vectors of a row of n. */
#define SUM(total, n, term)                                                                                     \
    do {                                                                                                        \
        V chain[4] = {v_zero(), v_zero(), v_zero(), v_zero()};                                                  \
        size_t i = 0;                                                                                           \
        for (; i + 4 * VN <= (n); i += 4 * VN) {                                                                \
            for (size_t lane = 0; lane < 4; lane++) {                                                           \
                const size_t at = i + lane * VN;                                                                \
                const size_t count = VN;                                                                        \
                chain[lane] = v_add(chain[lane], term);                                                         \
            }                                                                                                   \
        }                                                                                                       \
        for (; i < (n); i += VN) {                                                                              \
            const size_t at = i;                                                                                \
            const size_t count = (n) - i < VN ? (n) - i : VN;                                                   \
            chain[0] = v_add(chain[0], term);                                                                   \
        }                                                                                                       \
        total = v_sum(v_add(v_add(chain[0], chain[1]), v_add(chain[2], chain[3])));                             \
    } while (0)
#define EACH(n, body)                                                                                           \
    for (size_t at = 0; at < (n); at += VN) {                                                                   \
        const size_t count = (n) - at < VN ? (n) - at : VN;                                                     \
        body                                                                                                    \
    }

static inline V load(const float *p, size_t count) { return count == VN ? v_load(p) : v_load_n(p, count); }
static inline void store(float *p, V x, size_t count)
{
    if (count == VN) v_store(p, x);
    else v_store_n(p, x, count);
}
static inline V only(V x, size_t count) { return count == VN ? x : v_select(m_first(count), x, v_zero()); }

/* NaN is passed over: it comes back through the sum. */
static float row_max(const float *x, size_t n)
{
    V best = v_set1(-INFINITY);
    EACH(n, best = v_max(count == VN ? v_load(x + at) : v_select(m_first(count), v_load_n(x + at, count), best), best);)
    return v_hmax(best);
}

static void block_max(float *max, const float *x, size_t n)
{
    const V infinity = v_set1(INFINITY);
    for (size_t b = 0; b * LLM_MAX_BLOCK < n; b++) {
        const float *block = x + b * LLM_MAX_BLOCK;
        size_t length = n - b * LLM_MAX_BLOCK < LLM_MAX_BLOCK ? n - b * LLM_MAX_BLOCK : LLM_MAX_BLOCK;
        V best = v_set1(-INFINITY);
        EACH(length, {
            V value = count == VN ? v_load(block + at) : v_select(m_first(count), v_load_n(block + at, count), best);
            best = v_max(v_select(v_le(value, infinity), value, infinity), best);
        })
        max[b] = v_hmax(best);
    }
}

_Static_assert(LLM_MAX_BLOCK == LLM_PHILOX_DRAWS, "a block of logits has one block of draws");

static uint32_t random_block(uint32_t bits[LLM_MAX_BLOCK], uint32_t first, const uint32_t key[2], const uint32_t counter[3])
{
    uint32_t largest = 0;
    llm_philox_bits(bits, first / 4, key, counter);
    for (int i = 0; i < LLM_MAX_BLOCK; i++) largest = bits[i] > largest ? bits[i] : largest;
    return largest;
}

static double exp_sum(const float *x, float max, size_t n)
{
    double sum = 0;
    for (size_t b = 0; b < n; b += LLM_MAX_BLOCK) {
        size_t length = n - b < LLM_MAX_BLOCK ? n - b : LLM_MAX_BLOCK;
        V block = v_zero();
        EACH(length, block = v_add(block, only(v_exp(v_sub(load(x + b + at, count), v_set1(max))), count));)
        sum += (double)v_sum(block);
    }
    return sum;
}

/* x = e^(x - max); the sum. */
static inline V exp_store(float *y, const float *x, V max, size_t count)
{
    V e = only(v_exp(v_sub(load(x, count), max)), count);
    store(y, e, count);
    return e;
}

static void softmax(float *y, const float *x, size_t n)
{
    float sum;
    V max = v_set1(row_max(x, n));
    SUM(sum, n, exp_store(y + at, x + at, max, count));
    V inverse = v_set1(1 / sum);
    EACH(n, store(y + at, v_mul(load(y + at, count), inverse), count);)
}

static void softmax_back(float *dx, const float *y, const float *dy, bool add, size_t n)
{
    float dot;
    SUM(dot, n, v_mul(load(dy + at, count), load(y + at, count)));
    V d = v_set1(dot);
    EACH(n, {
        V t = v_mul(load(y + at, count), v_sub(load(dy + at, count), d));
        store(dx + at, add ? v_add(load(dx + at, count), t) : t, count);
    })
}

static inline V centred_square(const float *x, V mean, size_t count)
{
    V c = only(v_sub(load(x, count), mean), count);
    return v_mul(c, c);
}

static void layernorm(float *y, const float *x, const float *gain, const float *bias, float eps, size_t n, float *mean, float *rstd)
{
    float sum, squares;
    SUM(sum, n, load(x + at, count));
    *mean = sum / (float)n;
    V m = v_set1(*mean);
    SUM(squares, n, centred_square(x + at, m, count));
    *rstd = 1 / sqrtf(squares / (float)n + eps);
    V r = v_set1(*rstd);
    EACH(n, {
        V h = v_mul(v_mul(v_sub(load(x + at, count), m), r), load(gain + at, count));
        store(y + at, bias ? v_add(h, load(bias + at, count)) : h, count);
    })
}

static void layernorm_back(float *dx, const float *x, const float *dy, const float *gain, float mean, float rstd, bool add, size_t n)
{
    float sum, dot;
    V m = v_set1(mean);
    V r = v_set1(rstd);
    SUM(sum, n, v_mul(load(dy + at, count), load(gain + at, count)));
    SUM(dot, n, v_mul(v_mul(load(dy + at, count), load(gain + at, count)), v_mul(v_sub(load(x + at, count), m), r)));
    V g_mean = v_set1(sum / (float)n);
    V dot_mean = v_set1(dot / (float)n);
    EACH(n, {
        V g = v_mul(load(dy + at, count), load(gain + at, count));
        V h = v_mul(v_sub(load(x + at, count), m), r);
        V t = v_mul(r, v_fnma(h, dot_mean, v_sub(g, g_mean)));
        store(dx + at, add ? v_add(load(dx + at, count), t) : t, count);
    })
}

static void rmsnorm(float *y, const float *x, const float *gain, float offset, float eps, size_t n, float *rstd)
{
    float squares;
    V o = v_set1(offset);
    SUM(squares, n, centred_square(x + at, v_zero(), count));
    *rstd = 1 / sqrtf(squares / (float)n + eps);
    V r = v_set1(*rstd);
    EACH(n, store(y + at, v_mul(v_mul(load(x + at, count), r), v_add(load(gain + at, count), o)), count);)
}

static void rmsnorm_back(float *dx, const float *x, const float *dy, const float *gain, float offset, float rstd, bool add, size_t n)
{
    float dot;
    V o = v_set1(offset);
    V r = v_set1(rstd);
    SUM(dot, n, v_mul(v_mul(load(dy + at, count), v_add(load(gain + at, count), o)), v_mul(load(x + at, count), r)));
    V dot_mean = v_set1(dot / (float)n);
    EACH(n, {
        V g = v_mul(load(dy + at, count), v_add(load(gain + at, count), o));
        V t = v_mul(r, v_fnma(v_mul(load(x + at, count), r), dot_mean, g));
        store(dx + at, add ? v_add(load(dx + at, count), t) : t, count);
    })
}

/* Up to four vectors of channels of b, from `at`; `count` lanes of the last are in use. Tokens are cache lines apart: later ones are prefetched. */
static inline __attribute__((always_inline)) void norm_channels(const struct llm_norm_block *b, size_t at, const size_t vectors, size_t count)
{
    enum { AHEAD = 8 };
    V gain[4] = {v_zero(), v_zero(), v_zero(), v_zero()}, bias[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
    for (size_t t = 0; t < b->tokens; t++) {
        for (size_t g = 0; g < b->groups; g++) {
            const float *dy = b->dy + t * b->ldy + g * b->group + at, *x = b->x + t * b->ldx + g * b->group + at;
            V mean = b->mean ? v_set1(b->mean[t * b->groups + g]) : v_zero(), rstd = v_set1(b->rstd[t * b->groups + g]);
            for (size_t j = 0; j < vectors; j++) {
                size_t lanes = j + 1 < vectors ? VN : count;
                if (t + AHEAD < b->tokens) {
                    __builtin_prefetch(dy + AHEAD * b->ldy + j * VN);
                    __builtin_prefetch(x + AHEAD * b->ldx + j * VN);
                }
                V d = load(dy + j * VN, lanes);
                gain[j] = v_fma(d, v_mul(v_sub(load(x + j * VN, lanes), mean), rstd), gain[j]);
                bias[j] = v_add(bias[j], d);
            }
        }
    }
    for (size_t j = 0; j < vectors; j++, at += VN) {
        size_t lanes = j + 1 < vectors ? VN : count;
        if (b->d_gain) store(b->d_gain + at, v_add(load(b->d_gain + at, lanes), gain[j]), lanes);
        if (b->d_bias) store(b->d_bias + at, v_add(load(b->d_bias + at, lanes), bias[j]), lanes);
    }
}

static void norm_params_back(const struct llm_norm_block *b)
{
    size_t at = 0;
    for (; at + 4 * VN <= b->n; at += 4 * VN) norm_channels(b, at, 4, VN);
    for (; at < b->n; at += VN) norm_channels(b, at, 1, b->n - at < VN ? b->n - at : VN);
}

static void column_sums(float *sums, const float *dy, size_t ldy, size_t tokens, size_t n)
{
    size_t i = 0;
    for (; i + 4 * VN <= n; i += 4 * VN) {
        V s[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
        for (size_t t = 0; t < tokens; t++) {
            for (size_t j = 0; j < 4; j++) s[j] = v_add(s[j], v_load(dy + t * ldy + i + j * VN));
        }
        for (size_t j = 0; j < 4; j++) v_store(sums + i + j * VN, v_add(v_load(sums + i + j * VN), s[j]));
    }
    for (; i < n; i += VN) {
        size_t count = n - i < VN ? n - i : VN;
        V s = v_zero();
        for (size_t t = 0; t < tokens; t++) s = v_add(s, load(dy + t * ldy + i, count));
        store(sums + i, v_add(load(sums + i, count), s), count);
    }
}

static void scale_logits(float *x, float scale, float softcap, size_t n)
{
    const bool capped = softcap != 0;
    V s = v_set1(capped ? scale / softcap : scale);
    V cap = v_set1(softcap);
    EACH(n, {
        V l = v_mul(load(x + at, count), s);
        store(x + at, capped ? v_mul(cap, v_tanh(l)) : l, count);
    })
}

static inline V exp_only(const float *x, V max, size_t count)
{
    return only(v_exp(v_sub(load(x, count), max)), count);
}

static struct llm_ce_row ce_forward(float *x, float scale, float softcap, size_t n)
{
    struct llm_ce_row r;
    if (softcap != 0 || scale != 1) scale_logits(x, scale, softcap, n);
    r.max = row_max(x, n);
    V max = v_set1(r.max);
    if (softcap != 0) SUM(r.sum, n, exp_only(x + at, max, count));
    else SUM(r.sum, n, exp_store(x + at, x + at, max, count));
    return r;
}

static void ce_back(float *x, struct llm_ce_row r, size_t target, float factor, float scale, float softcap, size_t n)
{
    V p_factor = v_set1(factor * scale / r.sum);
    if (softcap == 0) {
        /* the target's own probability loses 1: p - 1 = -(sum of the others), computed so that it is right when p is near 1 */
        float own = (x[target] - r.sum) / r.sum * (factor * scale);
        EACH(n, store(x + at, v_mul(load(x + at, count), p_factor), count);)
        x[target] = own;
        return;
    }
    float logit = x[target], share = logit / softcap;
    float own = (expf(logit - r.max) - r.sum) / r.sum * (factor * scale) * (1 - share * share);
    V max = v_set1(r.max);
    V inverse = v_set1(1 / softcap);
    EACH(n, {
        V l = load(x + at, count);
        V t = v_mul(l, inverse);
        V p = v_mul(v_exp(v_sub(l, max)), p_factor);
        store(x + at, v_mul(p, v_fnma(t, t, v_set1(1))), count);
    })
    x[target] = own;
}

void KERNEL(llm_fill_rows)(struct llm_kernels *k);
void KERNEL(llm_fill_rows)(struct llm_kernels *k)
{
    k->rows = (struct llm_rows_kernels){
        .softmax = softmax, .softmax_back = softmax_back, .block_max = block_max, .exp_sum = exp_sum,
        .random_block = random_block, .layernorm = layernorm, .layernorm_back = layernorm_back, .rmsnorm = rmsnorm,
        .rmsnorm_back = rmsnorm_back, .norm_params_back = norm_params_back, .column_sums = column_sums, .ce_forward = ce_forward,
        .ce_back = ce_back};
}
