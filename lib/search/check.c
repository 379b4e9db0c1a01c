#include "search/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "search/graph.h"
#include "search/words.h"

enum { SAMPLE = 200, NEAREST = 10 };

static int check_numbers(const struct llm_index *x, struct llm_err *e)
{
    for (int64_t i = 0; i < x->n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < x->dims; k++) sum += (double)x->vectors[i * x->dims + k] * (double)x->vectors[i * x->dims + k];
        if (!isfinite(sum)) return llm_fail(e, EX_DATAERR, "row %" PRId64 ": expected a vector of finite numbers", i);
        if ((float)sum != x->lengths[i]) {
            return llm_fail(e, EX_DATAERR, "row %" PRId64 ": expected the squared length %.9g, found %.9g", i, sum, (double)x->lengths[i]);
        }
        if (x->metric == LLM_METRIC_COSINE && sum != 0 && fabs(sum - 1) > 1e-5) {
            return llm_fail(e, EX_DATAERR, "row %" PRId64 ": expected a vector of length 1, found %.9g", i, sqrt(sum));
        }
    }
    return 0;
}

static int check_rounded(const struct llm_index *x, struct llm_err *e)
{
    enum llm_dtype type = x->coarse == LLM_COARSE_I8 ? LLM_Q8_0 : LLM_F16;
    size_t row = llm_dtype_bytes(type, (uint64_t)x->padded);
    if (!x->rounded) return 0;
    float *v = llm_calloc((size_t)x->padded, sizeof *v, "a vector", e);
    unsigned char *want = v ? llm_alloc(row, 1, "a vector", e) : NULL;
    int status = want ? 0 : -1;
    for (int64_t i = 0; i < x->n && status == 0; i++) {
        memcpy(v, x->vectors + i * x->dims, (size_t)x->dims * sizeof *v);
        llm_dtypes[type].encode(v, want, (size_t)x->padded);
        if (memcmp(want, (const char *)x->rounded + (size_t)i * row, row) != 0) {
            status = llm_fail(e, EX_DATAERR, "row %" PRId64 ": expected the vector rounded to %s, found another", i, llm_coarses[x->coarse]);
        }
    }
    free(v);
    free(want);
    return status;
}

static bool same(const void *a, const void *b, size_t n)
{
    return n == 0 || memcmp(a, b, n) == 0;
}

static int check_words(const struct llm_index *x, struct llm_err *e)
{
    struct llm_index made = {.n = x->n, .texts = x->texts};
    int status = llm_words_make(&made, e);
    if (status == 0) {
        uint64_t postings = x->postings_at[x->n_words], words = (uint64_t)x->n_words;
        bool good = made.n_words == x->n_words && made.postings_at[words] == postings && same(made.words.at, x->words.at, (words + 1) * 8)
                    && same(made.words.bytes, x->words.bytes, x->words.at[words]) && same(made.postings_at, x->postings_at, (words + 1) * 8)
                    && same(made.posting_rows, x->posting_rows, postings * 4) && same(made.posting_counts, x->posting_counts, postings * 4)
                    && same(made.lengths_in_words, x->lengths_in_words, (uint64_t)x->n * 4);
        if (!good) status = llm_fail(e, EX_DATAERR, "expected the words of the texts, found others");
    }
    llm_index_release(&made);
    return status;
}

/* Rows drawn by the hash of their ids, as queries: what a search finds beside what the exact vectors say. */
int llm_index_recall(const struct llm_index *x, struct llm_check *c, struct llm_err *e)
{
    struct llm_index exact = *x;
    int64_t n = x->n < SAMPLE ? x->n : SAMPLE, sizes[2][SAMPLE], live = x->n - x->n_deleted, k = live < NEAREST ? live : NEAREST;
    int64_t found = 0, own = 0, all = 0;
    const struct llm_lookup s = {.k = k};
    c->recall = c->found = NAN;
    if (k == 0 || x->dims == 0) return 0;
    float *queries = llm_alloc((size_t)(n * x->dims), sizeof *queries, "queries", e);
    struct llm_hit *hits = queries ? llm_alloc((size_t)(2 * n * k), sizeof *hits, "hits", e) : NULL;
    int status = hits ? 0 : -1;
    for (int64_t i = 0; i < n && status == 0; i++) { /* one of each n-th part */
        int64_t from = i * x->n / n, to = (i + 1) * x->n / n;
        int64_t row = from + (int64_t)(llm_xxh64(&i, sizeof i, x->seed) % (uint64_t)(to - from));
        memcpy(queries + i * x->dims, x->vectors + row * x->dims, (size_t)x->dims * sizeof *queries);
    }
    exact.coarse = LLM_COARSE_F32;
    exact.graph.m = 0;
    if (status == 0) status = llm_index_search(x, queries, n, &s, hits, sizes[0], e);
    if (status == 0) status = llm_search_flat(&exact, queries, n, &s, hits + n * k, sizes[1], e);
    for (int64_t i = 0; i < n && status == 0; i++) {
        const struct llm_hit *a = hits + i * k, *b = hits + (n + i) * k;
        for (int64_t j = 0; j < sizes[1][i]; j++) {
            for (int64_t l = 0; l < sizes[0][i]; l++) found += a[l].row == b[j].row;
        }
        all += sizes[1][i];
        own += sizes[0][i] > 0 && a[0].score >= b[0].score - 1e-5 * fabs(b[0].score); /* a walk adds in another order */
    }
    c->recall = (double)found / (double)all;
    c->found = (double)own / (double)n;
    free(queries);
    free(hits);
    return status;
}

int llm_index_check(const struct llm_index *x, struct llm_check *c, struct llm_err *e)
{
    if (check_numbers(x, e) < 0 || check_rounded(x, e) < 0 || check_words(x, e) < 0) return -1;
    if (x->graph.m > 0 && llm_graph_check(x, e) < 0) return -1;
    return llm_index_recall(x, c, e);
}
