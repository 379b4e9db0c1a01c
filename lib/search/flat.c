/* Searches that compare a query with every row. Products of matrices say which rows can be among the best; a score that is reported is always a
 * product of two vectors (llm_k.search.exact). So it has the same bits whatever else is searched for, in whatever index the row stands, and by a
 * graph. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/matmul.h"
#include "cpu/pool.h"
#include "search/search.h"

/* At most: queries of one product, hits in all threads' lists, scores that are stored; queries that read the rows as they are, rows of a work
 * item. */
enum { QUERIES = 1024, LISTS = 1 << 22, SCORES = 1 << 23, FEW = 4, ROWS = 256 };

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
    int64_t block, wide;    /* queries of one product; hits of each in a list */
    float *queries;         /* [block, padded], prepared for the metric */
    double *square;         /* [block]: squared lengths */
    double longest;         /* the largest squared length of a row */
    double *slack;          /* [block]: by how much a score from a product of matrices may differ from one of two vectors */
    struct llm_best *best;  /* [threads, block] */
    struct llm_hit *found;  /* [threads, block, wide]: theirs */
    float *scores;          /* [block, rows]: products of integers, which are stored */
    int64_t from, rows;     /* of the index, that the scores are of */
    int64_t m;              /* queries that are searched for */
};

static double score_of(const struct run *r, int64_t query, int64_t row, float product)
{
    return llm_score_of_product(r->x, row, r->square[query], (double)product);
}

/* The score of one row by its vector in F32. */
static double exact_score(const struct run *r, int64_t query, int64_t row)
{
    const uint32_t one = (uint32_t)row;
    float product;
    llm_k.search.exact(&product, r->queries + query * r->x->padded, r->x->vectors, &one, 1, r->x->dims);
    return score_of(r, query, row, product);
}

/* Offers rows [first, first + n) by their products y[n] with a query, those that can still be among the best. */
static void offer(const struct run *r, int64_t query, int64_t first, const float *y, int64_t n, bool exact, int thread)
{
    const struct llm_index *x = r->x;
    const double slack = exact ? 0 : r->slack[query];
    struct llm_best *b = &r->best[thread * r->block + query];
    for (int64_t i = 0; i < n; i++) {
        const double limit = b->n == b->k ? b->hits[b->n - 1].score - slack : -INFINITY;
        /* A squared distance has each row's length besides, so that no limit of the products says which are enough. */
        if (x->metric != LLM_METRIC_L2) i = llm_k.search.reaches(y, i, n, (float)limit);
        if (i == n) return;
        const int64_t row = first + i;
        double score = score_of(r, query, row, y[i]);
        if (score < limit || x->deleted[row] || (r->s->allowed && !r->s->allowed[row])) continue;
        if (!exact && x->coarse == LLM_COARSE_F32) score = exact_score(r, query, row);
        llm_best_offer(b, score, row);
    }
}

static void choose(void *arg, const struct llm_matmul_block *b, int thread)
{
    const struct run *r = arg;
    for (int64_t q = 0; q < b->m; q++) offer(r, b->row + q, r->from + b->column, b->y + q * b->ldy, b->n, false, thread);
}

/* Compares a few queries with some rows as they stand. */
static void compare_some(void *arg, size_t part, int thread)
{
    const struct run *r = arg;
    const int64_t first = (int64_t)part * ROWS, n = r->x->n - first < ROWS ? r->x->n - first : ROWS;
    uint32_t rows[ROWS];
    float y[ROWS];
    for (int64_t i = 0; i < n; i++) rows[i] = (uint32_t)(first + i);
    for (int64_t q = 0; q < r->m; q++) {
        llm_k.search.exact(y, r->queries + q * r->x->padded, r->x->vectors, rows, n, r->x->dims);
        offer(r, q, first, y, n, true, thread);
    }
}

static void choose_stored(void *arg, size_t query, int thread)
{
    struct run *r = arg;
    const struct llm_matmul_block b = {(int64_t)query, 0, 1, r->rows, r->rows, r->scores + (int64_t)query * r->rows};
    choose(r, &b, thread);
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
        /* Rounding: each of the two sums is off by at most dims · 2^-24 of the product of the lengths, and a little for what rounds once. */
        double length = r->x->metric == LLM_METRIC_COSINE ? 1 : sqrt(sum * r->longest), share = (double)(2 * dims + 16) * 0x1p-24;
        r->slack[q] = r->x->coarse == LLM_COARSE_F32 ? (r->x->metric == LLM_METRIC_L2 ? 2 : 1) * share * (length + 0x1p-100) : 0;
    }
    return 0;
}

/* Puts the best of the candidates, by their vectors in F32, in order to `out`. Returns how many. */
static int64_t rank_exactly(const struct run *r, int64_t query, const struct llm_best *found, struct llm_hit *out)
{
    struct llm_best best = {.hits = out, .k = r->s->k};
    for (int64_t i = 0; i < found->n; i++) llm_best_offer(&best, exact_score(r, query, found->hits[i].row), found->hits[i].row);
    return best.n;
}

/* Compares m queries with all rows; the best of each are then in the first thread's list. */
static int search_some(struct run *r, const float *queries, int64_t m, struct llm_err *e)
{
    const struct llm_index *x = r->x;
    struct llm_weight w = {.data = x->coarse == LLM_COARSE_F32 ? x->vectors : x->rounded, .n = x->n, .k = x->padded, .dtype = LLM_F16};
    struct llm_matmul a = {.m = m, .x = r->queries, .ldx = x->padded, .compute = LLM_COMPUTE_F32, .take = choose, .take_arg = r};
    const int64_t lists = llm_pool_threads() * r->block;
    for (int64_t i = 0; i < lists; i++) r->best[i] = (struct llm_best){.hits = r->found + i * r->wide, .k = r->wide};
    if (prepare(r, queries, m, e) < 0) return -1;
    r->from = 0;
    if (x->coarse == LLM_COARSE_F32) {
        w.dtype = LLM_F32;
        w.k = x->dims;
    }
    const bool few = x->coarse == LLM_COARSE_F32 && m <= FEW;
    r->m = m;
    if (few) llm_parallel((size_t)((x->n + ROWS - 1) / ROWS), compare_some, r);
    int status = !few && x->coarse != LLM_COARSE_I8 && x->n > 0 ? llm_matmul(&a, &w, e) : 0;
    llm_weight_release(&w);
    for (; x->coarse == LLM_COARSE_I8 && r->from < x->n && status == 0; r->from += r->rows) {
        const size_t row = llm_dtype_bytes(LLM_Q8_0, (uint64_t)x->padded);
        r->rows = x->n - r->from < SCORES / m ? x->n - r->from : SCORES / m;
        w = (struct llm_weight){.data = (const char *)x->rounded + (size_t)r->from * row, .dtype = LLM_Q8_0, .n = r->rows, .k = x->padded};
        a = (struct llm_matmul){.m = m, .x = r->queries, .ldx = x->padded, .y = r->scores, .ldy = r->rows, .compute = LLM_COMPUTE_BF16};
        status = llm_matmul(&a, &w, e);
        llm_weight_release(&w);
        if (status == 0) llm_parallel((size_t)m, choose_stored, r);
    }
    for (int64_t i = r->block; i < lists && status == 0; i++) {
        for (int64_t j = 0; j < r->best[i].n; j++) llm_best_offer(&r->best[i % r->block], r->best[i].hits[j].score, r->best[i].hits[j].row);
    }
    return status;
}

int llm_search_flat(const struct llm_index *x, const float *queries, int64_t m, const struct llm_lookup *s, struct llm_hit *hits, int64_t *n_hits,
                    struct llm_err *e)
{
    struct run r = {.x = x, .s = s};
    const bool rounded = x->coarse != LLM_COARSE_F32;
    if (x->dims == 0) return llm_fail(e, EX_DATAERR, "expected an index with vectors, found one of words alone");
    const int64_t threads = llm_pool_threads();
    r.wide = !rounded ? s->k : s->candidates > 0 ? s->candidates : 4 * s->k + 32;
    if (r.wide < s->k) r.wide = s->k;
    r.block = LISTS / (threads * r.wide + 1);
    if (r.block > QUERIES) r.block = QUERIES;
    if (r.block > m) r.block = m;
    if (r.block < 1) r.block = 1;
    const size_t lists = (size_t)(threads * r.block);
    const int64_t scores = x->coarse != LLM_COARSE_I8 ? 0 : r.block * x->n < SCORES ? r.block * x->n : SCORES;
    r.queries = llm_alloc((size_t)r.block * (size_t)x->padded + 1, sizeof *r.queries, "queries", e);
    r.square = r.queries ? llm_alloc((size_t)r.block, sizeof *r.square, "queries", e) : NULL;
    r.slack = r.square ? llm_alloc((size_t)r.block, sizeof *r.slack, "queries", e) : NULL;
    r.best = r.slack ? llm_alloc(lists, sizeof *r.best, "candidates", e) : NULL;
    r.found = r.best ? llm_alloc(lists * (size_t)r.wide + 1, sizeof *r.found, "candidates", e) : NULL;
    r.scores = r.found ? llm_alloc((size_t)scores + 1, sizeof *r.scores, "scores", e) : NULL;
    int status = r.scores ? 0 : -1;
    for (int64_t i = 0; i < x->n; i++) r.longest = (double)x->lengths[i] > r.longest ? (double)x->lengths[i] : r.longest;
    for (int64_t at = 0; at < m && status == 0; at += r.block) {
        int64_t n = m - at < r.block ? m - at : r.block;
        status = search_some(&r, queries + at * x->dims, n, e);
        for (int64_t q = 0; q < n && status == 0; q++) {
            n_hits[at + q] = r.best[q].n;
            if (rounded) n_hits[at + q] = rank_exactly(&r, q, &r.best[q], hits + (at + q) * s->k);
            else memcpy(hits + (at + q) * s->k, r.best[q].hits, (size_t)r.best[q].n * sizeof *hits);
        }
    }
    free(r.queries);
    free(r.square);
    free(r.slack);
    free(r.best);
    free(r.found);
    free(r.scores);
    return status;
}
