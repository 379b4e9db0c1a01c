#include <math.h>
#include <stdlib.h>
#include "infer/sample/sampler.h"

enum { MAX_FEW = 64 };

bool llm_candidate_before(struct llm_candidate a, struct llm_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static int compare(const void *a, const void *b)
{
    const struct llm_candidate *x = a, *y = b;
    return llm_candidate_before(*x, *y) ? -1 : llm_candidate_before(*y, *x);
}

static void swap(struct llm_candidate *a, struct llm_candidate *b)
{
    struct llm_candidate t = *a;
    *a = *b;
    *b = t;
}

/* Hoare's selection: afterwards the k first of v[0..n) come before all others. The order is total, so the result does not depend on the pivots. */
static void select_first(struct llm_candidate *v, size_t n, size_t k)
{
    size_t low = 0, high = n;
    while (high - low > 1 && k > low && k < high) {
        size_t mid = low + (high - low) / 2;
        if (llm_candidate_before(v[mid], v[low])) swap(&v[mid], &v[low]);
        if (llm_candidate_before(v[high - 1], v[low])) swap(&v[high - 1], &v[low]);
        if (llm_candidate_before(v[high - 1], v[mid])) swap(&v[high - 1], &v[mid]); /* the median of three stands in the middle */
        struct llm_candidate pivot = v[mid];
        size_t i = low, j = high - 1;
        for (;;) {
            while (llm_candidate_before(v[i], pivot)) i++;
            while (llm_candidate_before(pivot, v[j])) j--;
            if (i >= j) break;
            swap(&v[i++], &v[j--]);
        }
        /* v[low..j] come no later than the pivot, v[j + 1..high) no earlier. */
        if (k <= j) high = j + (j + 1 < high);
        else low = j + 1;
    }
}

/* Sorts a few by insertion, which takes a fifth of qsort's time. */
static void sort_few(struct llm_candidate *v, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct llm_candidate x = v[i];
        size_t at = i;
        for (; at > 0 && llm_candidate_before(x, v[at - 1]); at--) v[at] = v[at - 1];
        v[at] = x;
    }
}

void llm_candidates_sort(struct llm_candidates *c, size_t k)
{
    if (k > c->n) k = c->n;
    if (k <= c->sorted) return;
    select_first(c->v + c->sorted, c->n - c->sorted, k - c->sorted);
    if (k - c->sorted <= MAX_FEW) sort_few(c->v + c->sorted, k - c->sorted);
    else qsort(c->v + c->sorted, k - c->sorted, sizeof *c->v, compare);
    c->sorted = k;
}

float llm_candidates_max(const struct llm_candidates *c)
{
    if (c->sorted > 0) return c->v[0].logit;
    float max = c->v[0].logit;
    for (size_t i = 1; i < c->n; i++) max = c->v[i].logit > max ? c->v[i].logit : max;
    return max;
}

double llm_candidates_mass(const struct llm_candidates *c)
{
    double max = llm_candidates_max(c), sum = 0;
    for (size_t i = 0; i < c->n; i++) sum += exp(c->v[i].logit - max);
    return sum;
}

void llm_candidates_floor(struct llm_candidates *c, double floor)
{
    size_t kept = 0, sorted = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->v[i].logit < floor) continue;
        if (i < c->sorted) sorted++;
        c->v[kept++] = c->v[i];
    }
    c->n = kept;
    c->sorted = sorted;
}
