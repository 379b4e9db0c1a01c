/* A whole block: groups are fitted one by one (cpu/kernels/fit.c); then the block's own scale is chosen, the groups' scales become integers of it,
 * and the block's scale is fitted again to the codes that came out, as long as the error falls. */
#include "quant/block.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include "cpu/kernels.h"

static int nearest_within(float x, int least, int max)
{
    return x >= (float)max ? max : x > (float)least ? (int)lrintf(x) : least; /* `least` for NaN */
}

static int between(int x, int least, int most)
{
    return x < least ? least : x > most ? most : x;
}

/* Weights, of which not all are 0 in any group, and what follows from them. */
struct weights {
    float w[LLM_BLOCK_MAX];
    double sum[LLM_BLOCK_GROUPS], x[LLM_BLOCK_GROUPS]; /* Σ w, Σ w x of each group */
};
/* What a group's scale and offset leave, and the sums of its levels (struct llm_fit_tries). */
struct left { double error, l, xl, ll; };

static struct left left_by(const struct llm_fit_tries *t, int i)
{
    return (struct left){(double)t->error[i], (double)t->l[i], (double)t->xl[i], (double)t->ll[i]};
}

static struct llm_group_fit scales_of(const struct llm_block *b, int g)
{
    return (struct llm_group_fit){b->d * (float)b->scale[g], b->least * (float)b->low[g]};
}

static void put_codes(const struct llm_block_kind *kind, const float *x, int g, struct llm_block *b)
{
    llm_k.fit.codes(kind, x, kind->group, scales_of(b, g), b->q + g * kind->group);
}

/* The scale of the list that is next above x, or the last. */
static int listed(const struct llm_block_kind *kind, float x)
{
    int i = 0;
    while (i + 1 < kind->n_scales && (float)kind->scales[i] < x) i++;
    return i;
}

/* Candidate k of a group's integers, near those that its fit asks for. One beyond the limits is replaced by its neighbour, which then stands
 * twice. */
static int scale_near(const struct llm_block_kind *kind, int asked, int k)
{
    return kind->scales ? kind->scales[between(asked + k - 3, 0, kind->n_scales - 1)] : between(asked + k - 1, kind->scale_min, kind->scale_max);
}

/* Values of candidate k of every lane: as scale_near and low_near have integers. */
static void near_by(const int *asked, int k, int least, int most, float unit, float *value)
{
    for (int l = 0; l < LLM_FIT_LANES; l++) {
        int x = asked[l] + k - 1;
        x = x < least ? least : x;
        x = x > most ? most : x;
        value[l] = unit * (float)x;
    }
}

static int low_near(const struct llm_block_kind *kind, int asked, int k)
{
    return between(asked + k - 1, 0, kind->low_max);
}

enum { QUAD = 4 /* groups side by side in loops that become vectors */ };

/* The candidate that leaves each group the least error, the first of equals. error: as in struct llm_fit_tries. */
static void least_of(const float *error, int n, int groups, int *best)
{
    for (int at = 0; at < groups; at += QUAD) {
        float least[QUAD];
        int which[QUAD] = {0};
        memcpy(least, error + at, sizeof least);
        for (int i = 1; i < n; i++) {
            for (int l = 0; l < QUAD; l++) {
                const float here = error[i * groups + at + l];
                const int better = -(here < least[l]);
                which[l] = (i & better) | (which[l] & ~better);
                least[l] = here < least[l] ? here : least[l];
            }
        }
        memcpy(best + at, which, sizeof which);
    }
}

/* The integer scales and offsets of the groups from `first` on that leave the least error, near those that the fits ask for: each scale with each
 * offset. */
static void choose_integers(const struct llm_block_kind *kind, const struct llm_fit_values *v, const struct llm_group_fit *fits, int first,
                            struct llm_block *b, struct left *left)
{
    const int n_lows = kind->low_max ? 3 : 1, n_scales = kind->scales ? 7 : 3, n = n_scales * n_lows, groups = v->groups;
    int scale[LLM_FIT_LANES] = {0}, low[LLM_FIT_LANES] = {0}, best[LLM_FIT_LANES];
    struct llm_fit_tries t;
    for (int g = 0; g < groups; g++) {
        const float of_scale = fits[g].scale / b->d;
        scale[g] = kind->scales ? listed(kind, of_scale) : nearest_within(b->d != 0 ? of_scale : 0, kind->scale_min, kind->scale_max);
        low[g] = nearest_within(b->least != 0 ? fits[g].low / b->least : 0, 0, kind->low_max);
    }
    for (int s = 0, i = 0; s < n_scales; s++) { /* whole rows of lanes, of which the next candidate replaces those beyond the groups */
        float to_scale[LLM_FIT_LANES];
        if (kind->scales) for (int l = 0; l < LLM_FIT_LANES; l++) to_scale[l] = b->d * (float)scale_near(kind, scale[l], s);
        else near_by(scale, s, kind->scale_min, kind->scale_max, b->d, to_scale);
        for (int k = 0; k < n_lows; k++, i++) {
            memcpy(t.scale + i * groups, to_scale, sizeof to_scale);
            if (!s) near_by(low, k, 0, kind->low_max, b->least, t.low + i * groups);
            else memcpy(t.low + i * groups, t.low + k * groups, (size_t)groups * sizeof *t.low);
        }
    }
    llm_k.fit.tries(kind, v, n, false, &t);
    memset(t.error + n * groups, 0, QUAD * sizeof *t.error); /* a single group is looked at as if it were four */
    least_of(t.error, n, groups, best);
    for (int g = 0; g < groups; g++) {
        const int of_scale = n_lows == 3 ? best[g] / 3 : best[g], of_low = best[g] - of_scale * n_lows;
        b->scale[first + g] = scale_near(kind, scale[g], of_scale);
        b->low[first + g] = (uint8_t)low_near(kind, low[g], of_low);
    }
    for (int g = 0; g < groups; g++) { /* the chosen ones, in the places of candidate 0 */
        t.scale[g] = t.scale[best[g] * groups + g];
        t.low[g] = t.low[best[g] * groups + g];
    }
    llm_k.fit.tries(kind, v, 1, true, &t);
    for (int g = 0; g < groups; g++) left[g] = left_by(&t, g);
}

/* A block of one group with the scales that `b` has. */
static struct left as_it_is(const struct llm_block_kind *kind, const struct llm_fit_values *v, const struct llm_block *b)
{
    const struct llm_group_fit fit = scales_of(b, 0);
    struct llm_fit_tries t;
    t.scale[0] = fit.scale;
    t.low[0] = fit.low;
    llm_k.fit.tries(kind, v, 1, true, &t);
    return left_by(&t, 0);
}

/* The block's scales by least squares, its codes and the groups' integers being fixed. false: there is no better one. */
static bool refit(const struct llm_block_kind *kind, const struct weights *w, const struct left *left, struct llm_block *b)
{
    double aa = 0, am = 0, mm = 0, xa = 0, xm = 0;
    if (kind->scales) return false;
    for (int g = 0; g * kind->group < kind->size; g++) {
        const double s = (double)b->scale[g], m = -(double)b->low[g];
        aa += s * s * left[g].ll;
        am += s * m * left[g].l;
        mm += m * m * w->sum[g];
        xa += s * left[g].xl;
        xm += m * w->x[g];
    }
    double det = aa * mm - am * am, d = (double)b->d, least = (double)b->least;
    if (mm > 0 && det > 1e-9 * aa * mm) {
        d = (xa * mm - xm * am) / det;
        least = (xm * aa - xa * am) / det;
    } else if (aa > 0) {
        d = (xa - least * am) / aa;
    }
    if (kind->low_max > 1 && least < 0) return false;
    float was_d = b->d, was_least = b->least;
    b->d = kind->round((float)d);
    b->least = kind->low_max ? kind->round((float)least) : 0;
    return b->d != was_d || b->least != was_least;
}

/* The first scales of the block: those that make the largest group's integer scale the largest one. */
static void first_scales(const struct llm_block_kind *kind, const struct llm_group_fit *fits, int groups, struct llm_block *b)
{
    float top = 0, low = 0;
    for (int g = 0; g < groups; g++) {
        top = fabsf(fits[g].scale) > fabsf(top) ? fits[g].scale : top;
        low = fabsf(fits[g].low) > fabsf(low) ? fits[g].low : low;
    }
    int max = kind->scale_min < 0 ? kind->scale_min : kind->scale_max;
    b->d = kind->round(top / (float)max); /* for listed scales their unit */
    b->least = kind->low_max ? kind->round(low / (float)kind->low_max) : 0;
    for (int g = 0; g < groups; g++) {
        b->scale[g] = nearest_within(b->d != 0 ? fits[g].scale / b->d : 0, kind->scale_min, kind->scale_max);
        b->low[g] = (uint8_t)nearest_within(b->least != 0 ? fits[g].low / b->least : 0, 0, kind->low_max);
        if (kind->scales) b->scale[g] = kind->scales[listed(kind, fits[g].scale / b->d)];
        if (kind->scale_max == 1) b->scale[g] = 1;
        if (kind->low_max == 1) b->low[g] = 1;
    }
}

/* Powers of two have no neighbours that least squares could find. */
static void choose_power(const struct llm_block_kind *kind, const float *x, const struct weights *w, struct llm_block *b)
{
    const float factors[] = {1, 2, 0.5f};
    struct llm_fit_tries t;
    int best = 0;
    for (int i = 0; i < 3; i++) {
        t.scale[i] = kind->round(b->d * factors[i]);
        t.low[i] = 0;
    }
    llm_k.fit.tries(kind, &(struct llm_fit_values){x, w->w, kind->size, 1}, 3, false, &t);
    for (int i = 1; i < 3; i++) best = t.error[i] < t.error[best] ? i : best;
    b->d = t.scale[best];
}

enum { GROUP_MAX = 32, LANES = LLM_FIT_LANES }; /* elements of a group of a block that has several */

typedef float quad __attribute__((vector_size(QUAD * sizeof(float))));

/* The elements [j, j + QUAD) of QUAD groups, whose first are at x, as rows. */
static inline void transpose(const float *x, int n, float *rows)
{
    quad a, b, c, d;
    memcpy(&a, x, sizeof a);
    memcpy(&b, x + n, sizeof b);
    memcpy(&c, x + 2 * n, sizeof c);
    memcpy(&d, x + 3 * n, sizeof d);
    const quad ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const quad ef = __builtin_shufflevector(a, b, 2, 6, 3, 7), gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const quad row[QUAD] = {__builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
                            __builtin_shufflevector(ef, gh, 0, 1, 4, 5), __builtin_shufflevector(ef, gh, 2, 3, 6, 7)};
    for (int i = 0; i < QUAD; i++) memcpy(rows + i * LANES, &row[i], sizeof row[i]);
}

/* Rows of all groups' elements, as struct llm_fit_values has them. groups: 4, 8 or 16. */
static void interleave(const float *x, int n, int groups, float *rows)
{
    for (int g = 0; g < groups; g += QUAD) {
        for (int j = 0; j < n; j += QUAD) transpose(x + g * n + j, n, rows + j * LANES + g);
    }
    for (int j = 0; j < n; j++) { /* apart, so that what is copied has left the store buffer */
        for (int l = groups; l < LANES; l += QUAD) memcpy(rows + j * LANES + l, rows + j * LANES + l - groups, QUAD * sizeof *rows);
    }
}

/* Integers of all groups for the block's scales, then these for the codes, in turn. */
static void improve(const struct llm_block_kind *kind, const struct llm_fit_values *v, const struct weights *w, const struct llm_group_fit *fits,
                    struct llm_block *b)
{
    double best = INFINITY;
    struct llm_block try;
    memcpy(&try, b, offsetof(struct llm_block, q));
    for (int round = 0; round < 6; round++) {
        struct left left[LLM_BLOCK_GROUPS];
        double error = 0;
        if (v->groups > 1) choose_integers(kind, v, fits, 0, &try, left);
        else left[0] = as_it_is(kind, v, &try);
        for (int g = 0; g < v->groups; g++) error += left[g].error;
        if (!(error < best)) break;
        const bool little = error > best * 0.999;
        best = error;
        memcpy(b, &try, offsetof(struct llm_block, q)); /* there are no codes yet */
        if (little || !refit(kind, w, left, &try)) break;
    }
}

/* The weights and sums of a block of one group. */
static void weigh_one(const float *x, const float *w, int n, struct weights *out)
{
    float sum = 0;
    for (int j = 0; j < n; j++) sum += w[j];
    out->sum[0] = out->x[0] = 0;
    for (int j = 0; j < n; j++) {
        out->w[j] = sum > 0 ? w[j] : 1;
        out->sum[0] += (double)out->w[j];
        out->x[0] += (double)(out->w[j] * x[j]);
    }
}

/* The weights and sums of several groups at once, whose rows are x and w. Weights of a group whose sum is not above 0 become 1, in w too. */
static void weigh_rows(const struct llm_block_kind *kind, const float *x, float *w, struct weights *out)
{
    const int n = kind->group, groups = kind->size / n;
    for (int at = 0; at < groups; at += QUAD) {
        const float *xq = x + at;
        float *wq = w + at, sum[QUAD] = {0};
        double weight[QUAD] = {0}, moment[QUAD] = {0};
        for (int j = 0; j < n; j++) {
            for (int l = 0; l < QUAD; l++) sum[l] += wq[j * LANES + l];
        }
        for (int l = 0; l < QUAD; l++) {
            for (int j = 0; !(sum[l] > 0) && j < n; j++) out->w[(at + l) * n + j] = 1;
            for (int j = 0; !(sum[l] > 0) && j < n; j++) {
                for (int copy = l; copy < LANES - at; copy += groups) wq[j * LANES + copy] = 1;
            }
        }
        for (int j = 0; j < n; j++) {
            for (int l = 0; l < QUAD; l++) {
                weight[l] += (double)wq[j * LANES + l];
                moment[l] += (double)(wq[j * LANES + l] * xq[j * LANES + l]);
            }
        }
        memcpy(out->sum + at, weight, sizeof weight);
        memcpy(out->x + at, moment, sizeof moment);
    }
}

void llm_block_choose(const struct llm_block_kind *kind, const float *x, const float *w, enum llm_block_effort effort, struct llm_block *b)
{
    float rows_x[LANES * GROUP_MAX], rows_w[LANES * GROUP_MAX];
    struct llm_group_fit fits[LLM_BLOCK_GROUPS];
    struct weights weights;
    const int groups = kind->size / kind->group;
    struct llm_fit_values v = {x, weights.w, kind->group, groups};
    b->d = b->least = 0;
    if (groups > 1) {
        interleave(x, v.n, groups, rows_x);
        interleave(w, v.n, groups, rows_w);
        memcpy(weights.w, w, (size_t)kind->size * sizeof *w);
        weigh_rows(kind, rows_x, rows_w, &weights);
        v.x = rows_x;
        v.w = rows_w;
    } else {
        weigh_one(x, w, kind->size, &weights);
    }
    for (int g = 0; g < groups; g++) fits[g] = llm_group_fit(kind, x + g * kind->group, weights.w + g * kind->group, kind->group, effort);
    first_scales(kind, fits, groups, b);
    if (effort != LLM_BLOCK_RTN && kind->levels && kind->levels[0] == 0 && !kind->scales) choose_power(kind, x, &weights, b);
    else if (effort != LLM_BLOCK_RTN) improve(kind, &v, &weights, fits, b);
    for (int g = 0; g < groups; g++) put_codes(kind, x + g * kind->group, g, b);
}

float llm_block_shortness(const float *x, const float *y, const float *w, int n)
{
    double xx = 0, xy = 0;
    for (int j = 0; j < n; j++) {
        xx += (double)w[j] * (double)x[j] * (double)x[j];
        xy += (double)w[j] * (double)x[j] * (double)y[j];
    }
    return !(xx > xy && xy > 0) ? 1 : xx < 1.25 * xy ? (float)(xx / xy) : 1.25f;
}

enum { STEP = 16 /* of codes, of which all groups are multiples */ };

static inline void put_values(const struct llm_block_kind *kind, const uint8_t *q, struct llm_group_fit fit, float *y)
{
    for (int j = 0; kind->levels && j < STEP; j++) y[j] = fit.scale * (float)kind->levels[q[j]] - fit.low;
    for (int j = 0; !kind->levels && j < STEP; j++) y[j] = fit.scale * (float)(q[j] - kind->zero) - fit.low;
}

void llm_block_stretch(const struct llm_block_kind *kind, const float *x, const float *w, struct llm_block *b)
{
    float y[LLM_BLOCK_MAX];
    if (kind->scales) return;
    for (int g = 0, j = 0; j < kind->size; g++) {
        const struct llm_group_fit fit = scales_of(b, g);
        for (int end = j + kind->group; j < end; j += STEP) put_values(kind, b->q + j, fit, y + j);
    }
    const float factor = llm_block_shortness(x, y, w, kind->size);
    b->d = kind->round(b->d * factor);
    b->least = kind->low_max ? kind->round(b->least * factor) : 0;
}

void llm_block_regroup(const struct llm_block_kind *kind, const float *x, const float *w, int g, struct llm_block *b)
{
    float sum = 0, ones[LLM_BLOCK_MAX];
    for (int j = 0; j < kind->group; j++) sum += w[j];
    for (int j = 0; j < kind->group && !(sum > 0); j++) ones[j] = 1;
    if (!(sum > 0)) w = ones;
    const struct llm_group_fit fit = llm_group_fit(kind, x, w, kind->group, LLM_BLOCK_SEARCH);
    struct left left;
    choose_integers(kind, &(struct llm_fit_values){x, w, kind->group, 1}, &fit, g, b, &left);
    put_codes(kind, x, g, b);
}
