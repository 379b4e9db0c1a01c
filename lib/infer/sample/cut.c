/* Filters from the maxima of blocks of logits: tokens that no filter can keep are never copied, sorted or exponentiated. */
#include <math.h>
#include "cpu/kernels.h"
#include "infer/sample/cut.h"

#define SLACK 2e-5 /* twice the relative error of exp_sum */

/* Candidates: logits of at least `floor`, of blocks that have any. */
static void gather(struct llm_candidates *c, const struct llm_logits *x, double floor)
{
    c->n = c->sorted = 0;
    for (size_t b = 0; b * LLM_MAX_BLOCK < x->n; b++) {
        if (x->block_max[b] < floor) continue;
        size_t first = b * LLM_MAX_BLOCK, end = first + LLM_MAX_BLOCK < x->n ? first + LLM_MAX_BLOCK : x->n;
        for (size_t i = first; i < end; i++) {
            if (x->v[i] >= floor && x->v[i] != -INFINITY) c->v[c->n++] = (struct llm_candidate){x->v[i], (int32_t)i};
        }
    }
}

/* Moves heap[0] down to its place. The smallest of a heap is its first. */
static void sift(float *heap, size_t n)
{
    float x = heap[0];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= x) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

/* The k-th largest of n ≥ k ≥ 1 numbers. */
static float kth_largest(const float *x, size_t n, size_t k, float *heap)
{
    for (size_t i = 0; i < k; i++) heap[i] = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (x[i] <= heap[0]) continue;
        heap[0] = x[i];
        sift(heap, k);
    }
    return heap[0];
}

/* The k-th largest of the blocks' maxima is no larger than the k-th largest logit. */
static bool cut_top_k(struct llm_candidates *c, const struct llm_logits *x, size_t k)
{
    float heap[256];
    size_t blocks = (x->n + LLM_MAX_BLOCK - 1) / LLM_MAX_BLOCK;
    if (k > blocks || k > sizeof heap / sizeof *heap) return false;
    gather(c, x, (double)kth_largest(x->block_max, blocks, k, heap));
    return true;
}

/* Sorts candidates until their mass is certainly `high` and cuts there. `low` ≤ `high` bound the mass that is wanted. False: the end of the nucleus
 * lies between the bounds, or the candidates have less mass than `low` and are not `all` that later filters keep. */
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
