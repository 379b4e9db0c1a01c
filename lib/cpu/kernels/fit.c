/* Scales of blocks (cpu/kernels/fit.h). */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/kernels/gemm_internal.h"
#include "cpu/simd.h"

#define INLINE static inline __attribute__((always_inline))
enum { TRIES = LLM_FIT_TRIES, N = TRIES / VN };
enum form { LINEAR, TABLE, MIRROR }; /* MIRROR: sizes, then the same with the other sign (MXFP4) */

/* What rounds to a level: constants, so that loops keep them in registers. */
struct shape {
    enum form form;
    V least, most;
    int n;                           /* levels of TABLE; sizes of MIRROR */
    V level[16], twice_between[16];  /* level[q] from twice_between[q] on */
};

INLINE enum form form_of(const struct llm_block_kind *kind)
{
    return !kind->levels ? LINEAR : kind->levels[0] == 0 ? MIRROR : TABLE;
}

INLINE void make_shape(const struct llm_block_kind *kind, enum form form, struct shape *s)
{
    s->form = form;
    if (form == LINEAR) {
        s->least = v_set1((float)(kind->first_code - kind->zero));
        s->most = v_set1((float)(kind->n_codes - 1 - kind->zero));
        return;
    }
    s->n = form == MIRROR ? 8 : 16;
    for (int q = 0; q < s->n; q++) {
        s->level[q] = v_set1((float)kind->levels[q]);
        s->twice_between[q] = v_set1(q ? (float)(kind->levels[q - 1] + kind->levels[q]) : 0);
    }
}

/* The last of n levels (or of their numbers) that begin below `size`. */
INLINE V pick(const struct shape *s, const int n, V size)
{
    const V twice = v_add(size, size);
    V level = s->level[0];
    LLM_UNROLL
    for (int q = 1; q < n; q++) level = v_select(v_lt(s->twice_between[q], twice), s->level[q], level);
    return level;
}

/* Which ends of the range of LINEAR levels a value may lie beyond. */
enum ends { NEITHER, TOP, BOTH };

/* The nearest of LINEAR levels; for NaN the first, or the last where values lie below none. */
INLINE V linear_level(const struct shape *s, enum ends ends, V y)
{
    if (ends == BOTH) y = v_max(y, s->least);
    return v_round(ends == NEITHER ? y : v_min(y, s->most));
}

/* The level nearest to y; for NaN the first. */
INLINE V level_of(const struct shape *s, enum form form, V y)
{
    if (form == LINEAR) return linear_level(s, BOTH, y);
    if (form == TABLE) return pick(s, 16, y);
    const V size = pick(s, 8, v_abs(y));
    return v_select(v_lt(y, v_zero()), v_sub(v_zero(), size), size);
}

/* Sums of 16 chains in a fixed tree. */
INLINE float sum_of(const float *x, int n)
{
    V chain[N];
    for (int i = 0; i < N; i++) chain[i] = v_load(x + i * VN);
    for (int j = TRIES; j < n; j += TRIES)
        for (int i = 0; i < N; i++) chain[i] = v_add(chain[i], v_load(x + j + i * VN));
    for (int half = N / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) chain[i] = v_add(chain[i], chain[i + half]);
    return v_sum(chain[0]);
}

/* Candidates: level = round(x · inverse + shift). */
struct candidates { V inverse, shift, l, xl, ll; };

/* The sums over the group of `count` vectors of candidates, which share what is read of the group. wx[n] = w · x. `ends` is of LINEAR levels. */
INLINE void add_up(const struct shape *s, enum form form, const enum ends ends, const float *x, const float *w, const float *wx, int n,
                   struct candidates *c, const int count)
{
    V l[2] = {v_zero(), v_zero()}, xl[2] = {v_zero(), v_zero()}, ll[2] = {v_zero(), v_zero()};
    for (int j = 0; j < n; j++) {
        const V xj = v_set1(x[j]), wj = v_set1(w[j]), wxj = v_set1(wx[j]);
        LLM_UNROLL
        for (int i = 0; i < count; i++) {
            const V y = v_add(v_mul(xj, c[i].inverse), c[i].shift);
            const V level = form == LINEAR ? linear_level(s, ends, y) : level_of(s, form, y), weighted = v_mul(wj, level);
            l[i] = v_add(l[i], weighted);
            xl[i] = v_add(xl[i], v_mul(wxj, level));
            ll[i] = v_add(ll[i], v_mul(weighted, level));
        }
    }
    for (int i = 0; i < count; i++) {
        c[i].l = l[i];
        c[i].xl = xl[i];
        c[i].ll = ll[i];
    }
}

/* The best of each lane so far: what of Σ w x² its scale explains. */
struct best { V gain, scale, offset; };

INLINE void keep_where(struct best *b, M better, V gain, V scale, V offset)
{
    b->gain = v_select(better, gain, b->gain);
    b->scale = v_select(better, scale, b->scale);
    b->offset = v_select(better, offset, b->offset);
}

INLINE void keep_better(struct best *b, V gain, V scale, V offset)
{
    keep_where(b, v_lt(b->gain, gain), gain, scale, offset);
}

/* The best of all lanes, the first of equals. */
INLINE void keep_lanes(const struct best *b, float *gain, struct llm_group_fit *out)
{
    float g[VN], s[VN], o[VN];
    v_store(g, b->gain);
    v_store(s, b->scale);
    v_store(o, b->offset);
    for (int i = 0; i < VN; i++) {
        if (!(g[i] > *gain)) continue;
        *gain = g[i];
        *out = (struct llm_group_fit){s[i], o[i]};
    }
}

enum { ROUNDS = 3 /* of rounding and least squares in turn */ };

/* ---- without offsets ---- */

/* The level that the element of largest size takes in candidate i of [0, 16). */
INLINE float aim_of(const struct llm_block_kind *kind, enum form form, int i)
{
    if (form == MIRROR) return 4 + (float)i;
    if (form == TABLE) return (float)kind->levels[0] + (float)(i - 8) * 2;
    const float span = (float)kind->n_codes / 2;
    return (float)(kind->first_code - kind->zero) + (float)(i - 8) * fminf(0.1f * fmaxf(1, span / 8), 0.2f);
}

INLINE struct llm_group_fit fit_scale(const struct llm_block_kind *kind, enum form form, const float *x, const float *w, int n)
{
    struct llm_group_fit fit = {0};
    struct shape s;
    float top = 0, wx[LLM_BLOCK_MAX], most = -1, aims[TRIES];
    for (int j = 0; j < n; j++) {
        top = fabsf(x[j]) > fabsf(top) ? x[j] : top;
        wx[j] = w[j] * x[j];
    }
    if (!(fabsf(top) >= 1e-30f)) return fit;
    if (form == MIRROR) top = fabsf(top);
    make_shape(kind, form, &s);
    for (int sign = 0; sign < (form == TABLE ? 2 : 1); sign++) { /* levels that are not symmetric */
        for (int i = 0; i < TRIES; i++) aims[i] = (sign ? -aim_of(kind, form, i) : aim_of(kind, form, i)) / top;
        for (int i = 0; i < N; i++) {
            struct candidates c = {.inverse = v_load(aims + i * VN), .shift = v_zero()};
            struct best b = {v_set1(-1), v_zero(), v_zero()};
            for (int round = 0; round < ROUNDS; round++) {
                add_up(&s, form, BOTH, x, w, wx, n, &c, 1);
                V scale = v_div(c.xl, c.ll);
                keep_better(&b, v_mul(c.xl, scale), scale, v_zero());
                c.inverse = v_div(c.ll, c.xl);
            }
            keep_lanes(&b, &most, &fit);
        }
    }
    return fit;
}

/* ---- with offsets ---- */

/* A group with x less its mean, which makes the sums' differences exact enough. value = scale · level + offset. */
struct centred {
    const float *x, *w, *wx;
    int n;
    bool positive;            /* the offset is not above 0, the mean included */
    V low, top;               /* its least and its largest value */
    V weight, mean, lost;     /* Σ w; the mean; Σ w mean² */
    V all;                    /* Σ w x², and a thousandth: a scale that explains more divides by what rounding leaves of equal levels */
};

/* Which ends of the range of levels the group's values lie beyond, by its least and its largest: levels rise or fall with values. */
INLINE enum ends ends_of(const struct centred *g, const struct shape *s, const struct candidates *c, const int count)
{
    M below = v_lt(v_zero(), v_zero()), above = below, between;
    LLM_UNROLL
    for (int k = 0; k < count; k++) {
        const V a = v_round(v_add(v_mul(g->low, c[k].inverse), c[k].shift)), b = v_round(v_add(v_mul(g->top, c[k].inverse), c[k].shift));
        between = m_and(v_le(s->least, a), v_le(s->least, b)); /* not for NaN */
        below = m_or(below, m_not(between));
        above = m_or(above, m_or(v_lt(s->most, a), v_lt(s->most, b)));
    }
    return m_any(below) ? BOTH : m_any(above) ? TOP : NEITHER;
}

/* Rounds `count` vectors of candidates to levels and keeps those of the best that least squares make of them; unless it is the last round, the
 * candidates are then the next round's. */
INLINE void fit_once(const struct centred *g, const struct shape *s, struct candidates *c, struct best *b, const int count, const bool last)
{
    switch (ends_of(g, s, c, count)) { /* sums are the same for all that hold */
    case NEITHER: add_up(s, LINEAR, NEITHER, g->x, g->w, g->wx, g->n, c, count); break;
    case TOP: add_up(s, LINEAR, TOP, g->x, g->w, g->wx, g->n, c, count); break;
    default: add_up(s, LINEAR, BOTH, g->x, g->w, g->wx, g->n, c, count); break;
    }
    LLM_UNROLL
    for (int k = 0; k < count; k++) {
        V level = v_div(c[k].l, g->weight), scale = v_div(c[k].xl, v_sub(c[k].ll, v_mul(c[k].l, level)));
        V offset = v_sub(v_zero(), v_mul(scale, level)), explains = v_mul(c[k].xl, scale);
        const M above = v_lt(v_zero(), v_add(offset, g->mean));
        if (g->positive && m_any(above)) { /* where the offset were above 0, it is 0 */
            V whole = v_add(c[k].xl, v_mul(g->mean, c[k].l)), alone = v_div(whole, c[k].ll);
            scale = v_select(above, alone, scale);
            offset = v_select(above, v_sub(v_zero(), g->mean), offset);
            explains = v_select(above, v_sub(v_mul(whole, alone), g->lost), explains);
        }
        keep_where(&b[k], m_and(v_lt(b[k].gain, explains), v_le(explains, g->all)), explains, scale, offset);
        if (last) continue;
        c[k].inverse = v_div(v_set1(1), scale);
        c[k].shift = v_sub(v_zero(), v_mul(offset, c[k].inverse));
    }
}

INLINE struct llm_group_fit fit_offset(const struct llm_block_kind *kind, const float *x, const float *w, int n)
{
    const bool positive = kind->low_max > 1;
    const float most = (float)(kind->n_codes - 1);
    float xc[LLM_BLOCK_MAX], wx[LLM_BLOCK_MAX], wxx[LLM_BLOCK_MAX], inverses[2 * TRIES], gain = -INFINITY;
    struct llm_group_fit fit;
    struct shape s;
    V tops = v_set1(x[0]), bottoms = v_set1(-x[0]);
    for (int j = 0; j < n; j += VN) {
        const V xj = v_load(x + j);
        tops = v_max(xj, tops);
        bottoms = v_max(v_neg(xj), bottoms);
        v_store(wx + j, v_mul(v_load(w + j), xj));
    }
    const float largest = v_hmax(tops), least = -v_hmax(bottoms);
    float top = largest, low = least;
    if (positive && low > 0) low = 0;
    if (positive && top < 0) top = 0;
    if (!(top - low > 1e-30f)) return (struct llm_group_fit){0, -low};
    const float weight = sum_of(w, n), mean = sum_of(wx, n) / weight;
    for (int j = 0; j < n; j++) {
        xc[j] = x[j] - mean;
        wx[j] = w[j] * xc[j];
        wxx[j] = wx[j] * xc[j];
    }
    for (int i = 0; i < 2 * TRIES; i++) inverses[i] = (most - 0.9f + 0.0625f * (float)i) / (top - low);
    fit = (struct llm_group_fit){(top - low) / most, low - mean};
    make_shape(kind, LINEAR, &s);
    const struct centred g = {xc, w, wx, n, positive, v_set1(least - mean), v_set1(largest - mean),
                              v_set1(weight), v_set1(mean), v_set1(weight * mean * mean), v_set1(1.001f * sum_of(wxx, n))};
    struct candidates c[2 * N];
    struct best b[2 * N];
    for (int i = 0; i < 2 * N; i++) {
        c[i].inverse = v_load(inverses + i * VN);
        c[i].shift = v_mul(v_set1(mean - low), c[i].inverse);
        b[i] = (struct best){v_set1(-INFINITY), v_zero(), v_zero()};
    }
    for (int round = 0; round < ROUNDS - 1; round++) { /* pairs in turn: the divisions of one are made during the sums of the next */
        for (int i = 0; i < 2 * N; i += 2) fit_once(&g, &s, c + i, b + i, 2, false);
    }
    for (int i = 0; i < 2 * N; i += 2) fit_once(&g, &s, c + i, b + i, 2, true);
    for (int i = 0; i < 2 * N; i++) keep_lanes(&b[i], &gain, &fit);
    return (struct llm_group_fit){fit.scale, -(fit.low + mean)};
}

static struct llm_group_fit group(const struct llm_block_kind *kind, const float *x, const float *w, int n)
{
    if (kind->low_max) return fit_offset(kind, x, w, n);
    switch (form_of(kind)) {
    case LINEAR: return fit_scale(kind, LINEAR, x, w, n);
    case TABLE: return fit_scale(kind, TABLE, x, w, n);
    default: return fit_scale(kind, MIRROR, x, w, n);
    }
}

/* ---- given scales ---- */

/* A vector of pairs of a candidate and a group, `lanes` of them, and what it leaves. */
struct trial { V scale, low, inverse, error, l, xl, ll; };

INLINE void begin_trial(const struct llm_fit_tries *t, int at, size_t lanes, struct trial *r)
{
    *r = (struct trial){.scale = v_load_n(t->scale + at, lanes), .low = v_load_n(t->low + at, lanes), .error = v_zero(), .l = v_zero(),
                        .xl = v_zero(), .ll = v_zero()};
    r->inverse = v_select(v_eq(r->scale, v_zero()), v_zero(), v_div(v_set1(1), r->scale));
}

/* An element of each group. above: x + low */
INLINE void add_to_trial(const struct shape *s, enum form form, V x, V w, V above, bool sums, struct trial *r)
{
    const V level = level_of(s, form, v_mul(above, r->inverse)), less = v_sub(x, v_sub(v_mul(r->scale, level), r->low));
    r->error = v_add(r->error, v_mul(w, v_mul(less, less)));
    if (!sums) return;
    const V weighted = v_mul(w, level);
    r->l = v_add(r->l, weighted);
    r->xl = v_add(r->xl, v_mul(weighted, x));
    r->ll = v_add(r->ll, v_mul(weighted, level));
}

/* Computes the weighted squared errors of three candidate scales that share an offset, for a vector of groups. The (scale, offset) pairs are stored
 * at indices at, at + stride and at + 2·stride. */
INLINE void try_three(const struct shape *s, const struct llm_fit_values *v, int at, int stride, struct llm_fit_tries *t)
{
    const float *x = v->x + at % LLM_FIT_LANES, *w = v->w + at % LLM_FIT_LANES;
    struct trial r[3];
    LLM_UNROLL
    for (int k = 0; k < 3; k++) begin_trial(t, at + k * stride, VN, &r[k]);
    for (int j = 0; j < v->n; j++) {
        const V xj = v_load(x + j * LLM_FIT_LANES), wj = v_load(w + j * LLM_FIT_LANES), above = v_add(xj, r[0].low);
        LLM_UNROLL
        for (int k = 0; k < 3; k++) add_to_trial(s, LINEAR, xj, wj, above, false, &r[k]);
    }
    for (int k = 0; k < 3; k++) v_store(t->error + at + k * stride, r[k].error);
}

/* Whether nine candidates, each of three scales with each of three offsets, are whole vectors for every scale. */
INLINE bool threes(const struct llm_fit_values *v, int count, const struct llm_fit_tries *t)
{
    const int apart = 3 * v->groups;
    const size_t bytes = (size_t)apart * sizeof *t->low;
    return count == 9 && v->groups > 1 && apart % VN == 0 && memcmp(t->low, t->low + apart, bytes) == 0
        && memcmp(t->low, t->low + 2 * apart, bytes) == 0;
}

INLINE void tries_of(const struct llm_block_kind *kind, enum form form, const struct llm_fit_values *v, int count, bool alone, bool sums,
                     struct llm_fit_tries *t)
{
    const int pairs = count * v->groups;
    struct shape s;
    make_shape(kind, form, &s);
    if (form == LINEAR && !sums && threes(v, count, t)) {
        for (int i = 0; i < pairs / 3; i += VN) try_three(&s, v, i, pairs / 3, t);
        return;
    }
    for (int i = 0; i < pairs; i += VN) {
        const size_t lanes = pairs - i < VN ? (size_t)(pairs - i) : VN;
        const float *x = alone ? v->x : v->x + i % LLM_FIT_LANES, *w = alone ? v->w : v->w + i % LLM_FIT_LANES;
        struct trial r;
        begin_trial(t, i, lanes, &r);
        for (int j = 0; j < v->n; j++) {
            const V xj = alone ? v_set1(x[j]) : v_load(x + j * LLM_FIT_LANES), wj = alone ? v_set1(w[j]) : v_load(w + j * LLM_FIT_LANES);
            add_to_trial(&s, form, xj, wj, v_add(xj, r.low), sums, &r);
        }
        v_store_n(t->error + i, r.error, lanes);
        if (!sums) continue;
        v_store_n(t->l + i, r.l, lanes);
        v_store_n(t->xl + i, r.xl, lanes);
        v_store_n(t->ll + i, r.ll, lanes);
    }
}

INLINE void tries_by(const struct llm_block_kind *kind, enum form form, const struct llm_fit_values *v, int count, bool sums, struct llm_fit_tries *t)
{
    const bool alone = v->groups == 1;
    if (alone && sums) tries_of(kind, form, v, count, true, true, t);
    else if (alone) tries_of(kind, form, v, count, true, false, t);
    else if (sums) tries_of(kind, form, v, count, false, true, t);
    else tries_of(kind, form, v, count, false, false, t);
}

static void tries(const struct llm_block_kind *kind, const struct llm_fit_values *v, int count, bool sums, struct llm_fit_tries *t)
{
    switch (form_of(kind)) {
    case LINEAR: tries_by(kind, LINEAR, v, count, sums, t); break;
    case TABLE: tries_by(kind, TABLE, v, count, sums, t); break;
    default: tries_by(kind, MIRROR, v, count, sums, t); break;
    }
}

INLINE V code_of(const struct shape *s, enum form form, V y)
{
    if (form == LINEAR) return v_add(level_of(s, LINEAR, y), s->level[0]);
    if (form == TABLE) return pick(s, 16, y);
    const V size = pick(s, 8, v_abs(y));
    return v_select(m_and(v_lt(y, v_zero()), v_lt(v_zero(), size)), v_add(size, v_set1(8)), size);
}

INLINE void codes_of(const struct llm_block_kind *kind, enum form form, const float *x, int n, struct llm_group_fit fit, uint8_t *q)
{
    const V low = v_set1(fit.low), inverse = v_set1(fit.scale != 0 ? 1 / fit.scale : 0);
    int32_t code[TRIES];
    struct shape s;
    make_shape(kind, form, &s);
    if (form == LINEAR) s.level[0] = v_set1((float)kind->zero);
    else for (int i = 0; i < s.n; i++) s.level[i] = v_set1((float)i);
    for (int j = 0; j < n; j += TRIES) {
        for (int i = 0; i < TRIES; i += VN) vi_store(code + i, v_to_i32(code_of(&s, form, v_mul(v_add(v_load(x + j + i), low), inverse))));
        for (int i = 0; i < TRIES; i++) q[j + i] = (uint8_t)code[i];
    }
}

static void codes(const struct llm_block_kind *kind, const float *x, int n, struct llm_group_fit fit, uint8_t *q)
{
    switch (form_of(kind)) {
    case LINEAR: codes_of(kind, LINEAR, x, n, fit, q); break;
    case TABLE: codes_of(kind, TABLE, x, n, fit, q); break;
    default: codes_of(kind, MIRROR, x, n, fit, q); break;
    }
}

/* ---- points of grids ---- */

enum { POINTS = 1024 };

INLINE void points_of(struct llm_fit_points *p, const int dims)
{
    const int n = p->grid->points;
    float a[POINTS], b[POINTS];
    for (int at = 0; at < n; at += VN) {
        V wx = v_zero(), ww = v_zero();
        LLM_UNROLL
        for (int i = 0; i < dims; i++) {
            const V size = v_load(p->sizes + i * n + at);
            wx = v_add(wx, v_mul(v_set1(p->wx[i]), size));
            ww = v_add(ww, v_mul(v_set1(p->w[i]), v_mul(size, size)));
        }
        v_store(a + at, wx);
        v_store(b + at, ww);
    }
    for (int s = 0; s < p->n; s++) {
        const float c = p->scale[s];
        const V twice = v_set1(2 * c), square = v_set1(c * c);
        V best = v_set1(-INFINITY);
        VI which = vi_set1(0), at_lanes = vi_iota();
        float gain[VN];
        int32_t point[VN];
        for (int at = 0; at < n; at += VN) {
            const V here = v_sub(v_mul(twice, v_load(a + at)), v_mul(square, v_load(b + at)));
            const M better = v_lt(best, here);
            best = v_select(better, here, best);
            which = vi_select(better, at_lanes, which);
            at_lanes = vi_add(at_lanes, vi_set1(VN));
        }
        v_store(gain, best);
        vi_store(point, which);
        int lane = 0;
        for (int i = 1; i < VN; i++)
            if (gain[i] > gain[lane] || (gain[i] == gain[lane] && point[i] < point[lane])) lane = i;
        p->gain[s] = gain[lane];
        p->point[s] = point[lane];
    }
}

static void points(struct llm_fit_points *p)
{
    if (p->grid->dims == 4) points_of(p, 4);
    else points_of(p, 8);
}

/* ---- errors ---- */

/* 16 chains in double, which compilers make vectors of; joined in order. */
static void errors(const float *x, const float *y, size_t n, struct llm_fit_errors *sums)
{
    double xx[TRIES] = {0}, yy[TRIES] = {0}, xy[TRIES] = {0}, dd[TRIES] = {0}, most[TRIES] = {0};
    const size_t whole = n / TRIES * TRIES;
    for (size_t at = 0; at < n; at += TRIES) {
        const int here = at < whole ? TRIES : (int)(n - whole);
        float rest[2][TRIES] = {{0}};
        const float *a = x + at, *b = y + at;
        if (at == whole) {
            a = memcpy(rest[0], a, (size_t)here * sizeof *a);
            b = memcpy(rest[1], b, (size_t)here * sizeof *b);
        }
        for (int i = 0; i < TRIES; i++) {
            const double p = (double)a[i], q = (double)b[i], d = p - q, size = fabs(d);
            xx[i] += p * p;
            yy[i] += q * q;
            xy[i] += p * q;
            dd[i] += d * d;
            most[i] = size > most[i] ? size : most[i];
        }
    }
    for (int i = 0; i < TRIES; i++) {
        sums->xx += xx[i];
        sums->yy += yy[i];
        sums->xy += xy[i];
        sums->dd += dd[i];
        sums->max = most[i] > sums->max ? most[i] : sums->max;
    }
}

void KERNEL(llm_fill_fit)(struct llm_kernels *k)
{
    k->fit = (struct llm_fit_kernels){group, tries, codes, points, errors};
}
