#include "data/batch.h"

#include <stdlib.h>
#include <string.h>

int llm_rows_init(struct llm_rows *r, int64_t n_rows, int64_t row_len, struct llm_err *e)
{
    int64_t n;
    *r = (struct llm_rows){.n_rows = 0};
    if (__builtin_mul_overflow(n_rows, row_len, &n)) return llm_no_memory(e, "a batch");
    return llm_rows_init_within(r, n_rows, n, row_len, e);
}

void llm_rows_shape(struct llm_rows *r, int64_t n_rows, int64_t row_len)
{
    r->n_rows = n_rows;
    r->row_len = row_len;
}

int llm_rows_init_within(struct llm_rows *r, int64_t n_rows, int64_t n_tokens, int64_t row_len, struct llm_err *e)
{
    size_t n = (size_t)n_tokens;
    *r = (struct llm_rows){.n_rows = n_rows, .row_len = row_len, .room_rows = n_rows, .room_tokens = n_tokens};
    r->ids = llm_calloc(n, sizeof *r->ids, "a batch", e);
    r->targets = r->ids ? llm_calloc(n, sizeof *r->targets, "a batch", e) : NULL;
    r->positions = r->targets ? llm_calloc(n, sizeof *r->positions, "a batch", e) : NULL;
    r->doc_start = r->positions ? llm_calloc(n, sizeof *r->doc_start, "a batch", e) : NULL;
    r->own = r->doc_start ? llm_calloc(n, 1, "a batch", e) : NULL;
    r->picks = r->own ? llm_calloc(n, sizeof *r->picks, "a batch", e) : NULL;
    r->prefixes = r->picks ? llm_calloc(n, sizeof *r->prefixes, "a batch", e) : NULL;
    r->kinds = r->prefixes ? llm_calloc(n, sizeof *r->kinds, "a batch", e) : NULL;
    r->lengths = r->kinds ? llm_calloc((size_t)n_rows, sizeof *r->lengths, "a batch", e) : NULL;
    r->source = r->lengths ? llm_calloc(n, sizeof *r->source, "a batch", e) : NULL;
    r->source_len = r->source ? llm_calloc((size_t)n_rows, sizeof *r->source_len, "a batch", e) : NULL;
    r->window = r->source_len ? llm_calloc(2 * (size_t)row_len + 2, sizeof *r->window, "a batch", e) : NULL;
    r->mask = r->window ? llm_calloc(2 * (size_t)row_len + 2, 1, "a batch", e) : NULL;
    r->source_own = r->mask ? llm_calloc(n, 1, "a batch", e) : NULL;
    r->weights = r->source_own ? llm_calloc(n, sizeof *r->weights, "a batch", e) : NULL;
    return r->weights ? 0 : -1;
}

int64_t llm_column_count(const struct llm_column *c, int64_t n_rows, int64_t n_tokens, int64_t choices)
{
    return c->per == LLM_PER_ROW ? n_rows : c->per == LLM_PER_TOKEN ? n_tokens : n_tokens * choices;
}

int llm_rows_add_columns(struct llm_rows *r, const struct llm_column *columns, int64_t choices, struct llm_err *e)
{
    r->columns = columns;
    r->choices = choices;
    for (int i = 0; columns && columns[i].name; i++) {
        size_t n = (size_t)llm_column_count(&columns[i], r->room_rows, r->room_tokens, choices);
        if (!(r->column[i] = llm_calloc(n, sizeof *r->column[i], "a batch", e))) return -1;
    }
    return 0;
}

float *llm_rows_column(const struct llm_rows *r, const char *name)
{
    for (int i = 0; r->columns && r->columns[i].name; i++) {
        if (strcmp(r->columns[i].name, name) == 0) return r->column[i];
    }
    return NULL;
}

void llm_rows_release(struct llm_rows *r)
{
    free(r->ids);
    free(r->targets);
    free(r->positions);
    free(r->doc_start);
    free(r->own);
    free(r->picks);
    free(r->prefixes);
    free(r->kinds);
    free(r->lengths);
    free(r->source);
    free(r->source_len);
    free(r->window);
    free(r->mask);
    free(r->source_own);
    free(r->weights);
    for (int i = 0; i < LLM_MAX_COLUMNS; i++) free(r->column[i]);
    *r = (struct llm_rows){.n_rows = 0};
}

struct llm_rows llm_rows_part(const struct llm_rows *r, int64_t first, int64_t n)
{
    struct llm_rows part = *r;
    int64_t at = first * r->row_len;
    part.n_rows = n;
    part.ids += at;
    part.targets += at;
    part.positions += at;
    part.doc_start += at;
    part.own += at;
    part.picks += at;
    part.prefixes += at;
    part.kinds += at;
    part.lengths += first;
    part.source += at;
    part.source_len += first;
    part.source_own += at;
    part.weights += at;
    for (int i = 0; r->columns && r->columns[i].name; i++) part.column[i] += llm_column_count(&r->columns[i], first, at, r->choices);
    if (r->state) part.state += first * r->state_floats;
    if (r->state) part.state_after += first * r->state_floats;
    part.documents = false;
    part.counted = 0;
    for (int64_t i = 0; i < n * r->row_len; i++) {
        part.counted += part.targets[i] >= 0;
        part.documents |= part.doc_start[i] != 0;
    }
    part.weight = (double)part.counted;
    if (!part.weighted) return part;
    part.weight = 0;
    for (int64_t i = 0; i < n * r->row_len; i++) part.weight += part.targets[i] >= 0 ? (double)part.weights[i] : 0;
    return part;
}

struct llm_rows llm_rows_columns(const struct llm_rows *r, int64_t first, struct llm_rows *to)
{
    const size_t n = (size_t)to->row_len;
    to->n_rows = r->n_rows;
    for (int64_t row = 0; row < r->n_rows; row++) {
        const int64_t at = row * r->row_len + first, out = row * to->row_len;
        memcpy(to->ids + out, r->ids + at, n * sizeof *to->ids);
        memcpy(to->targets + out, r->targets + at, n * sizeof *to->targets);
        memcpy(to->positions + out, r->positions + at, n * sizeof *to->positions);
        if (r->weighted) memcpy(to->weights + out, r->weights + at, n * sizeof *to->weights);
    }
    struct llm_rows part = *to;
    part.weighted = r->weighted;
    part.documents = r->documents;
    part.doc_start = r->doc_start;
    part.prefixed = r->prefixed;
    part.prefixes = r->prefixes;
    return part;
}

void llm_rows_put(struct llm_rows *r, int64_t row, const int32_t *ids, const uint8_t *mask, int64_t n_tokens, const uint64_t *ends, size_t n_ends,
                  uint64_t origin, bool cross_document)
{
    int64_t at = row * r->row_len, document = 0;
    size_t next = 0;
    for (int64_t i = 0; i < r->row_len; i++) {
        bool here = i < n_tokens, follows = i + 1 < n_tokens;
        while (next < n_ends && ends[next] <= origin + (uint64_t)i) { /* the document that ended here */
            if (ends[next] > origin) document = (int64_t)(ends[next] - origin);
            next++;
        }
        if (!here && document < n_tokens) document = n_tokens;
        bool last = next < n_ends && ends[next] == origin + (uint64_t)i + 1;
        r->ids[at + i] = here ? ids[i] : 0;
        r->targets[at + i] = follows && mask[i + 1] && (cross_document || !last) ? ids[i + 1] : -1;
        int64_t start = cross_document && here ? 0 : document;
        r->own[at + i] = here && mask[i];
        r->doc_start[at + i] = (int32_t)start;
        r->positions[at + i] = (int32_t)(i - start);
    }
}

/* The first document end beyond `at`. */
static size_t end_beyond(const uint64_t *ends, size_t n, uint64_t at)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ends[middle] > at) high = middle;
        else low = middle + 1;
    }
    return low;
}

void llm_rows_cut(struct llm_rows *r, int64_t row, const struct llm_tokens *t, uint64_t at, int64_t n_tokens, bool cross_document)
{
    size_t n_ends;
    const uint64_t *ends = llm_tokens_doc_ends(t, &n_ends);
    if (n_tokens > r->row_len + 1) n_tokens = r->row_len + 1;
    llm_tokens_get(t, at, (size_t)n_tokens, r->window, r->mask);
    size_t first = end_beyond(ends, n_ends, at);
    llm_rows_put(r, row, r->window, r->mask, n_tokens, n_ends ? ends + first : NULL, n_ends - first, at, cross_document);
}
