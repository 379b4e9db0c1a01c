/* Filters from the maxima of blocks of logits: tokens that no filter can keep are never copied, sorted or exponentiated. */
#include <float.h>
#include <math.h>
#include "cpu/kernels.h"
#include "infer/sample/cut.h"

#define SLACK 2e-5 /* twice the relative error of exp_sum */

/* The smallest finite float that is at least x. */
static float float_from(double x)
{
    if (x < -FLT_MAX) return -FLT_MAX;
    float y = (float)x;
    return y < x ? nextafterf(y, INFINITY) : y;
}

/* How many of n numbers are at least t. The loop of constant length is compiled to vectors. */
static size_t count_from(const float *x, size_t n, float t)
{
    size_t i = 0, all = 0;
    for (; i + LLM_MAX_BLOCK <= n; i += LLM_MAX_BLOCK) {
        int some = 0;
        for (int j = 0; j < LLM_MAX_BLOCK; j++) some += x[i + (size_t)j] >= t;
        all += (size_t)some;
    }
    for (; i < n; i++) all += x[i] >= t;
    return all;
}

enum { GROUP = 16 }; /* logits that are compared at once */

static bool any_from(const float *x, float t)
{
    int any = 0;
    for (int j = 0; j < GROUP; j++) any |= x[j] >= t;
    return any;
}

/* Candidates: finite logits of at least `floor`, of blocks that have any. A logit is stored before it is compared, because a branch on the comparison
 * would be unpredictable. */
static void gather(struct llm_candidates *c, const struct llm_logits *x, double floor)
{
    const float least = float_from(floor);
    size_t n = 0;
    for (size_t b = 0; b * LLM_MAX_BLOCK < x->n; b++) {
        if (x->block_max[b] < least) continue;
        size_t first = b * LLM_MAX_BLOCK, end = first + LLM_MAX_BLOCK < x->n ? first + LLM_MAX_BLOCK : x->n;
        for (size_t from = first; from < end; from += GROUP) {
            size_t to = from + GROUP < end ? from + GROUP : end;
            if (to - from == GROUP && !any_from(x->v + from, least)) continue;
            for (size_t i = from; i < to; i++) {
                c->v[n] = (struct llm_candidate){x->v[i], (int32_t)i};
                n += x->v[i] >= least;
            }
        }
    }
    c->n = n;
    c->sorted = 0;
}

/* A lower bound that at least k of the n ≥ k numbers reach. A bisection with a limit of rounds makes it reach few more than k. -FLT_MAX: fewer than k
 * numbers are finite. */
static float floor_of(const float *x, size_t n, size_t k, float max)
{
    double low = 1, high = 0; /* depths below max: `low` is deep enough, `high` is not */
    while (max - low > -FLT_MAX && count_from(x, n, (float)(max - low)) < k) {
        high = low;
        low *= 2;
    }
    if (max - low <= -FLT_MAX) return -FLT_MAX;
    for (int i = 0; i < 8; i++) {
        double middle = (low + high) / 2;
        size_t found = count_from(x, n, (float)(max - middle));
        if (found >= k) low = middle;
        else high = middle;
        if (found >= k && found <= k + k / 4) break;
    }
    return (float)(max - low);
}

/* At least k blocks have a maximum of the floor or more, so the k largest logits have. */
static bool cut_top_k(struct llm_candidates *c, const struct llm_logits *x, size_t k)
{
    size_t blocks = (x->n + LLM_MAX_BLOCK - 1) / LLM_MAX_BLOCK;
    if (k > blocks) return false;
    gather(c, x, (double)floor_of(x->block_max, blocks, k, x->max));
    return true;
}

/* Sorts candidates until their mass is certainly `high`, and removes the others. The mass of the nucleus lies in [low, high]. False: the end of the
 * nucleus lies between the bounds, or the candidates have less mass than `low` and are not `all` that later filters keep. */
static bool cut_nucleus(struct llm_candidates *c, double max, double low, double high, bool all)
{
    double sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (i >= c->sorted) llm_candidates_sort(c, i < 8 ? 64 : i * 8);
        if (sum >= low) return false;
        sum += exp(c->v[i].logit - max);
        if (sum < high) continue;
        c->n = i + 1;
        if (c->sorted > c->n) c->sorted = c->n;
        return true;
    }
    return all && sum < low;
}

/* Candidates below min-p's floor are left out: both filters keep a beginning of the sorted order, so the shorter of the two is kept. */
static bool cut_top_p(struct llm_candidates *c, const struct llm_logits *x, const struct llm_sampling *p)
{
    const double wanted = p->top_p * llm_k.rows.exp_sum(x->v, x->max, x->n), max = x->max;
    const double floor = p->min_p > 0 ? max + log(p->min_p) : -INFINITY;
    for (double depth = 4; depth <= 16; depth *= 2) {
        bool all = max - depth <= floor;
        gather(c, x, all ? floor : max - depth);
        if (cut_nucleus(c, max, wanted * (1 - SLACK), wanted * (1 + SLACK), all)) return true;
        if (all) return false;
    }
    return false;
}

enum llm_cut llm_candidates_cut(struct llm_candidates *c, const struct llm_logits *x, const struct llm_sampling *p)
{
    bool all = p->top_k == 0 || (uint64_t)p->top_k >= x->n;
    if (!all) return cut_top_k(c, x, (size_t)p->top_k) ? LLM_CUT_SOME : LLM_CUT_NONE;
    if (p->typical < 1) return LLM_CUT_NONE;
    if (p->top_p < 1) return cut_top_p(c, x, p) ? LLM_CUT_TOP_P : LLM_CUT_NONE;
    if (p->min_p == 0) return LLM_CUT_NONE;
    gather(c, x, x->max + log(p->min_p));
    return LLM_CUT_SOME;
}
