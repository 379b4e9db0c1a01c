/* Indexes made of rows: those of another index, and new ones. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "search/graph.h"
#include "search/words.h"

struct source { const char *id; size_t n_id; int64_t row; bool added; };

static int by_id(const void *a, const void *b)
{
    const struct source *x = a, *y = b;
    int c = llm_id_compare(x->id, x->n_id, y->id, y->n_id);
    return c ? c : (int)x->added - (int)y->added;
}

struct making {
    struct llm_index *out;
    const struct llm_index *x;
    const struct llm_index_rows *r;
    const struct source *from;
};

/* Vectors of 256 rows: copied, normalised for the cosine, rounded. */
enum { ROWS = 256 };
static void make_vectors(void *arg, size_t piece, int thread)
{
    struct making *m = arg;
    struct llm_index *out = m->out;
    int64_t dims = out->dims, end = (int64_t)(piece + 1) * ROWS;
    float *padded = llm_scratch(thread, (size_t)out->padded * sizeof *padded);
    for (int64_t i = (int64_t)piece * ROWS; i < end && i < out->n; i++) {
        const struct source *s = &m->from[i];
        float *v = out->vectors + i * dims;
        memcpy(v, (s->added ? m->r->vectors : m->x->vectors) + s->row * dims, (size_t)dims * sizeof *v);
        double sum = 0;
        for (int64_t k = 0; k < dims; k++) sum += (double)v[k] * (double)v[k];
        if (s->added && out->metric == LLM_METRIC_COSINE && sum > 0) {
            double scale = 1 / sqrt(sum);
            sum = 0;
            for (int64_t k = 0; k < dims; k++) {
                v[k] = (float)((double)v[k] * scale);
                sum += (double)v[k] * (double)v[k];
            }
        }
        out->lengths[i] = (float)sum;
        if (!out->rounded || !padded) continue;
        memcpy(padded, v, (size_t)dims * sizeof *v);
        memset(padded + dims, 0, (size_t)(out->padded - dims) * sizeof *padded);
        enum llm_dtype type = out->coarse == LLM_COARSE_I8 ? LLM_Q8_0 : LLM_F16;
        llm_dtypes[type].encode(padded, (char *)out->rounded + (size_t)i * llm_dtype_bytes(type, (uint64_t)out->padded), (size_t)out->padded);
    }
}

static int put_texts(struct llm_index *out, struct llm_texts *t, const struct llm_texts *old, const char *added, const uint64_t *added_at,
                     const struct source *from, struct llm_err *e)
{
    uint64_t bytes = 0;
    t->at = llm_index_alloc(out, (size_t)out->n + 1, sizeof *t->at, e);
    for (int64_t i = 0; t->at && i < out->n; i++) {
        const uint64_t *at = from[i].added ? added_at : old->at;
        t->at[i] = bytes;
        bytes += at[from[i].row + 1] - at[from[i].row];
    }
    if (!t->at) return -1;
    t->at[out->n] = bytes;
    t->bytes = llm_index_alloc(out, bytes + 1, 1, e);
    for (int64_t i = 0; t->bytes && i < out->n; i++) {
        const uint64_t *at = from[i].added ? added_at : old->at;
        size_t n = at[from[i].row + 1] - at[from[i].row];
        if (n > 0) memcpy(t->bytes + t->at[i], (from[i].added ? added : old->bytes) + at[from[i].row], n);
    }
    return t->bytes ? 0 : -1;
}

/* The rows of both in the order of the ids; *n of them. */
static struct source *order(const struct llm_index *x, const struct llm_index_rows *r, bool purge, int64_t *n, struct llm_err *e)
{
    int64_t old = x ? x->n : 0, added = r ? r->n : 0, kept = 0;
    struct source *s = llm_alloc((size_t)(old + added), sizeof *s, "the rows of an index", e);
    *n = 0;
    for (int64_t i = 0; s && i < old; i++) s[(*n)++] = (struct source){x->ids.bytes + x->ids.at[i], x->ids.at[i + 1] - x->ids.at[i], i, false};
    for (int64_t i = 0; s && i < added; i++) s[(*n)++] = (struct source){r->ids.p + r->ids_at[i], r->ids_at[i + 1] - r->ids_at[i], i, true};
    if (s && *n > 0) qsort(s, (size_t)*n, sizeof *s, by_id);
    for (int64_t i = 0; s && i < *n; i++) {
        bool gone = !s[i].added && x->deleted[s[i].row], twin = i + 1 < *n && llm_id_compare(s[i].id, s[i].n_id, s[i + 1].id, s[i + 1].n_id) == 0;
        if (twin && !gone) {
            llm_fail(e, EX_DATAERR, "id '%.*s': expected once, found %s", (int)(s[i].n_id < 100 ? s[i].n_id : 100), s[i].id,
                     s[i].added ? "twice" : "in the index already");
            free(s);
            return NULL;
        }
        if (!(gone && (purge || twin))) s[kept++] = s[i];
    }
    *n = kept;
    return s;
}

int llm_index_merge(struct llm_index *out, const struct llm_index *x, const struct llm_index_rows *r, bool purge, struct llm_err *e)
{
    struct making m = {.out = out, .x = x, .r = r};
    struct source *from = order(x, r, purge, &out->n, e);
    static const struct llm_texts none;
    if (!from) return -1;
    m.from = from;
    if (out->n > INT32_MAX) {
        free(from);
        return llm_fail(e, EX_DATAERR, "expected at most %d rows, found %" PRId64, INT32_MAX, out->n);
    }
    out->padded = (out->dims + 31) / 32 * 32;
    size_t rows = (size_t)out->n, row = llm_dtype_bytes(out->coarse == LLM_COARSE_I8 ? LLM_Q8_0 : LLM_F16, (uint64_t)out->padded);
    int status = put_texts(out, &out->ids, x ? &x->ids : &none, r ? r->ids.p : NULL, r ? r->ids_at : NULL, from, e);
    if (status == 0) status = put_texts(out, &out->texts, x ? &x->texts : &none, r ? r->texts.p : NULL, r ? r->texts_at : NULL, from, e);
    if (status == 0) status = put_texts(out, &out->metadata, x ? &x->metadata : &none, r ? r->metadata.p : NULL, r ? r->metadata_at : NULL, from, e);
    if (status == 0 && !(out->vectors = llm_index_alloc(out, rows * (size_t)out->dims + 1, sizeof *out->vectors, e))) status = -1;
    if (status == 0 && !(out->lengths = llm_index_alloc(out, rows + 1, sizeof *out->lengths, e))) status = -1;
    if (status == 0 && !(out->deleted = llm_index_alloc(out, rows + 1, 1, e))) status = -1;
    const bool rounded = out->coarse == LLM_COARSE_F16 || out->coarse == LLM_COARSE_I8;
    if (status == 0 && rounded && !(out->rounded = llm_index_alloc(out, rows + 1, row, e))) status = -1;
    for (int64_t i = 0; i < out->n && status == 0; i++) {
        out->deleted[i] = !from[i].added && x->deleted[from[i].row];
        out->n_deleted += out->deleted[i];
    }
    if (status == 0 && out->dims == 0) memset(out->lengths, 0, rows * sizeof *out->lengths);
    if (status == 0 && out->dims > 0) llm_parallel((rows + ROWS - 1) / ROWS, make_vectors, &m);
    for (int64_t i = 0; i < out->n && status == 0; i++) {
        if (isfinite(out->lengths[i])) continue;
        status = llm_fail(e, EX_DATAERR, "id '%.*s': expected a vector of finite length", (int)(from[i].n_id < 100 ? from[i].n_id : 100), from[i].id);
    }
    if (status == 0 && x && x->graph.m > 0 && x->graph.m == out->graph.m) {
        bool stays = true; /* rows that are in the graph keep their places in front: it is continued */
        for (int64_t i = 0; i < x->graph.n && stays; i++) stays = i < out->n && !from[i].added && from[i].row == i;
        if (stays) {
            out->graph = x->graph;
            out->graph.halves = NULL;
        }
    }
    free(from);
    if (status == 0 && out->graph.m > 0) status = llm_graph_extend(out, e);
    return status == 0 ? llm_words_make(out, e) : -1;
}
