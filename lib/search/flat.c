/* Searches that compare a query with every row, by the kernels of matrix products: rows are the weight, queries the activations. So a score has the
 * same bits whatever else is searched for, and in whatever index the row stands. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/matmul.h"
#include "cpu/pool.h"
#include "search/search.h"

enum { QUERIES = 256, SCORES = 1 << 23 }; /* queries of one product, and scores at most */

void llm_best_offer(struct llm_best *b, double score, int64_t row)
{
    struct llm_hit *h = b->hits;
    if (b->n == b->k && (score < h[b->n - 1].score || (score == h[b->n - 1].score && row > h[b->n - 1].row))) return;
    int64_t low = 0, high = b->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (h[middle].score > score || (h[middle].score == score && h[middle].row < row)) low = middle + 1;
        else high = middle;
    }
    if (b->n < b->k) b->n++;
    memmove(h + low + 1, h + low, (size_t)(b->n - 1 - low) * sizeof *h);
    h[low] = (struct llm_hit){score, row};
}

int64_t llm_search_fuse(const struct llm_hit *a, int64_t n_a, const struct llm_hit *b, int64_t n_b, int64_t k, struct llm_hit *out)
{
    enum { DAMPING = 60 };
    struct llm_best best = {.hits = out, .k = k};
    for (int64_t i = 0; i < n_a; i++) {
        double score = 1. / (DAMPING + 1 + (double)i);
        for (int64_t j = 0; j < n_b; j++) {
            if (b[j].row == a[i].row) score += 1. / (DAMPING + 1 + (double)j);
        }
        llm_best_offer(&best, score, a[i].row);
    }
    for (int64_t j = 0; j < n_b; j++) {
        bool both = false;
        for (int64_t i = 0; i < n_a; i++) both |= a[i].row == b[j].row;
        if (!both) llm_best_offer(&best, 1. / (DAMPING + 1 + (double)j), b[j].row);
    }
    return best.n;
}

struct run {
    const struct llm_index *x;
    const struct llm_lookup *s;
    float *queries;        /* [QUERIES, padded], prepared for the metric */
    double square[QUERIES]; /* squared lengths */
    float *scores;         /* [m, rows of the part] */
    struct llm_best best[QUERIES];
    int64_t from, rows;
};

static double score_of(const struct run *r, size_t query, int64_t row, float product)
{
    if (r->x->metric != LLM_METRIC_L2) return (double)product;
    return -(r->square[query] + (double)r->x->lengths[row] - 2 * (double)product);
}

static void take(void *arg, size_t query, int thread)
{
    struct run *r = arg;
    struct llm_best *b = &r->best[query];
    const float *scores = r->scores + (int64_t)query * r->rows;
    (void)thread;
    for (int64_t i = 0; i < r->rows; i++) {
        int64_t row = r->from + i;
        double score = score_of(r, query, row, scores[i]);
        if (b->n == b->k && score <= b->hits[b->n - 1].score) continue; /* rows rise: of equals the earlier one stays */
        if (r->x->deleted[row] || (r->s->allowed && !r->s->allowed[row])) continue;
        llm_best_offer(b, score, row);
    }
}

/* Products of m prepared queries with rows from `data`, of which there are n. */
static int multiply(const struct run *r, int64_t m, const void *data, enum llm_dtype type, int64_t n, int64_t k, float *y, struct llm_err *e)
{
    struct llm_weight w = {.data = data, .dtype = type, .n = n, .k = k};
    struct llm_matmul a = {.m = m, .x = r->queries, .ldx = r->x->padded, .y = y, .ldy = n, .compute = LLM_COMPUTE_F32};
    if (type == LLM_Q8_0) a.compute = LLM_COMPUTE_BF16; /* products of integers; F32 would decode the rows */
    int status = llm_matmul(&a, &w, e);
    llm_weight_release(&w);
    return status;
}

static int prepare(struct run *r, const float *queries, int64_t m, struct llm_err *e)
{
    int64_t dims = r->x->dims, padded = r->x->padded;
    for (int64_t q = 0; q < m; q++) {
        double sum = 0;
        float *to = r->queries + q * padded;
        for (int64_t k = 0; k < dims; k++) sum += (double)queries[q * dims + k] * (double)queries[q * dims + k];
        if (!isfinite((float)sum)) return llm_fail(e, EX_DATAERR, "expected a query of finite numbers");
        double scale = r->x->metric == LLM_METRIC_COSINE && sum > 0 ? 1 / sqrt(sum) : 1;
        for (int64_t k = 0; k < dims; k++) to[k] = (float)((double)queries[q * dims + k] * scale);
        memset(to + dims, 0, (size_t)(padded - dims) * sizeof *to);
        r->square[q] = sum;
    }
    return 0;
}

/* Scores of the candidates by the vectors in F32; the best of them, in order, to `out`. Returns how many, -1. */
static int64_t rank_exactly(const struct run *r, size_t query, const struct llm_best *found, struct llm_hit *out, struct llm_err *e)
{
    int64_t dims = r->x->dims;
    struct llm_best best = {.hits = out, .k = r->s->k};
    float *rows = llm_alloc((size_t)(found->n + 1), (size_t)(dims + 1) * sizeof *rows, "candidates", e);
    if (!rows) return -1;
    float *products = rows + found->n * dims;
    for (int64_t i = 0; i < found->n; i++) memcpy(rows + i * dims, r->x->vectors + found->hits[i].row * dims, (size_t)dims * sizeof *rows);
    struct run one = *r;
    one.queries = r->queries + (int64_t)query * r->x->padded;
    int status = found->n > 0 ? multiply(&one, 1, rows, LLM_F32, found->n, dims, products, e) : 0;
    for (int64_t i = 0; i < found->n && status == 0; i++) {
        llm_best_offer(&best, score_of(r, query, found->hits[i].row, products[i]), found->hits[i].row);
    }
    free(rows);
    return status < 0 ? -1 : best.n;
}

static int search_some(struct run *r, const float *queries, int64_t m, struct llm_hit *found, int64_t wide, struct llm_err *e)
{
    static const enum llm_dtype types[] = {[LLM_COARSE_F32] = LLM_F32, [LLM_COARSE_F16] = LLM_F16, [LLM_COARSE_I8] = LLM_Q8_0};
    const struct llm_index *x = r->x;
    enum llm_dtype type = types[x->coarse];
    int64_t k = type == LLM_F32 ? x->dims : x->padded, part = SCORES / m;
    size_t row = llm_dtype_bytes(type, (uint64_t)k);
    if (prepare(r, queries, m, e) < 0) return -1;
    for (int64_t q = 0; q < m; q++) r->best[q] = (struct llm_best){.hits = found + q * wide, .k = wide};
    for (r->from = 0; r->from < x->n; r->from += r->rows) {
        r->rows = x->n - r->from < part ? x->n - r->from : part;
        const char *data = type == LLM_F32 ? (const char *)x->vectors : x->rounded;
        if (multiply(r, m, data + (size_t)r->from * row, type, r->rows, k, r->scores, e) < 0) return -1;
        llm_parallel((size_t)m, take, r);
    }
    return 0;
}

int llm_search_flat(const struct llm_index *x, const float *queries, int64_t m, const struct llm_lookup *s, struct llm_hit *hits, int64_t *n_hits,
                    struct llm_err *e)
{
    struct run *r = llm_calloc(1, sizeof *r, "a search", e);
    bool rounded = x->coarse != LLM_COARSE_F32;
    int64_t wide = !rounded ? s->k : s->candidates > 0 ? s->candidates : 4 * s->k + 32, block = m < QUERIES ? m : QUERIES;
    if (wide < s->k) wide = s->k;
    if (!r) return -1;
    r->x = x;
    r->s = s;
    int64_t scores = block * x->n < SCORES ? block * x->n : SCORES;
    r->queries = llm_alloc((size_t)block * (size_t)x->padded + 1, sizeof *r->queries, "queries", e);
    r->scores = r->queries ? llm_alloc((size_t)scores + 1, sizeof *r->scores, "scores", e) : NULL;
    struct llm_hit *found = r->scores ? llm_alloc((size_t)block * (size_t)wide + 1, sizeof *found, "candidates", e) : NULL;
    int status = found ? 0 : -1;
    for (int64_t at = 0; at < m && status == 0; at += block) {
        int64_t n = m - at < block ? m - at : block;
        status = search_some(r, queries + at * x->dims, n, found, wide, e);
        for (int64_t q = 0; q < n && status == 0; q++) {
            n_hits[at + q] = r->best[q].n;
            if (rounded) n_hits[at + q] = rank_exactly(r, (size_t)q, &r->best[q], hits + (at + q) * s->k, e);
            else memcpy(hits + (at + q) * s->k, r->best[q].hits, (size_t)r->best[q].n * sizeof *hits);
            if (n_hits[at + q] < 0) status = -1;
        }
    }
    free(found);
    free(r->scores);
    free(r->queries);
    free(r);
    return status;
}
