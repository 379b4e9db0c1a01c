/* Rows of an index from JSON Lines or tensor messages. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "io/sniff.h"
#include "search/index.h"

enum { STEP = 1 << 16, MAX_LINE = 1 << 28 };

void llm_index_rows_release(struct llm_index_rows *r)
{
    llm_buf_release(&r->ids);
    llm_buf_release(&r->texts);
    llm_buf_release(&r->metadata);
    free(r->ids_at);
    free(r->texts_at);
    free(r->metadata_at);
    free(r->vectors);
    *r = (struct llm_index_rows){0};
}

static bool is_stored(enum llm_rows_as as)
{
    return as == LLM_ROWS_STORED || as == LLM_ROWS_WORDS;
}

static bool has_vectors(enum llm_rows_as as)
{
    return as == LLM_ROWS_STORED || as == LLM_ROWS_QUERIES;
}

static int check_dims(int64_t dims, struct llm_err *e)
{
    if (dims >= 1 && dims <= LLM_MAX_DIMS_OF_VECTOR) return 0;
    return llm_fail(e, EX_DATAERR, "expected a vector of 1 to %d elements, found %" PRId64, LLM_MAX_DIMS_OF_VECTOR, dims);
}

/* Room for one more row, whose vector has `dims` elements, 0: none. */
static int reserve(struct llm_index_rows *r, int64_t dims, struct llm_err *e)
{
    if (r->dims > 0 && dims != r->dims) return llm_fail(e, EX_DATAERR, "expected a vector of %" PRId64 " elements, found %" PRId64, r->dims, dims);
    r->dims = dims;
    if (r->room < (size_t)r->n + 2) {
        size_t rooms[3] = {r->room, r->room, r->room};
        if (llm_grow((void **)&r->ids_at, &rooms[0], (size_t)r->n + 2, sizeof *r->ids_at, e) < 0
            || llm_grow((void **)&r->texts_at, &rooms[1], (size_t)r->n + 2, sizeof *r->texts_at, e) < 0
            || llm_grow((void **)&r->metadata_at, &rooms[2], (size_t)r->n + 2, sizeof *r->metadata_at, e) < 0) return -1;
        if (r->room == 0) r->ids_at[0] = r->texts_at[0] = r->metadata_at[0] = 0;
        r->room = rooms[0];
    }
    return llm_grow((void **)&r->vectors, &r->vectors_room, (size_t)(r->n + 1) * (size_t)dims, sizeof *r->vectors, e);
}

static int finish(struct llm_index_rows *r, struct llm_err *e)
{
    const float *v = r->vectors + r->n * r->dims;
    for (int64_t k = 0; k < r->dims; k++) {
        if (!isfinite(v[k])) return llm_fail(e, EX_DATAERR, "element %" PRId64 " of the vector: expected a finite number", k);
    }
    r->n++;
    r->ids_at[r->n] = r->ids.n;
    r->texts_at[r->n] = r->texts.n;
    r->metadata_at[r->n] = r->metadata.n;
    return 0;
}

static int take_id(struct llm_index_rows *r, const json_t *id, enum llm_rows_as as, int64_t line, struct llm_err *e)
{
    size_t before = r->ids.n;
    int status = 0;
    if (json_is_string(id)) status = llm_buf_put(&r->ids, json_string_value(id), json_string_length(id), e);
    else if (json_is_integer(id)) status = llm_buf_printf(&r->ids, e, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
    else if (!id && !is_stored(as)) status = llm_buf_printf(&r->ids, e, "%" PRId64, line);
    else return llm_fail(e, EX_DATAERR, "expected \"id\" (a string or an integer)");
    size_t n = r->ids.n - before;
    if (status < 0) return -1;
    bool nul = n > 0 && memchr(r->ids.p + before, 0, n);
    if (n > 0 && n <= LLM_MAX_ID_BYTES && !nul) return 0;
    return llm_fail(e, EX_DATAERR, "\"id\": expected 1 to %d bytes without NUL", LLM_MAX_ID_BYTES);
}

static int take_fingerprint(struct llm_index_rows *r, const char *found, struct llm_err *e)
{
    if (!found || !found[0]) return 0;
    if (r->fingerprint[0] && strcmp(r->fingerprint, found) != 0) {
        return llm_fail(e, EX_DATAERR, "expected vectors of one model (%.16s), found another's (%.16s)", r->fingerprint, found);
    }
    snprintf(r->fingerprint, sizeof r->fingerprint, "%s", found);
    return 0;
}

static int take_place(struct llm_index_rows *r, const char *place, struct llm_err *e)
{
    if (r->n > 0 && strcmp(r->place, place) != 0) {
        return llm_fail(e, EX_DATAERR, "expected vectors of %s, found some of %s", r->place[0] ? r->place : "texts", place[0] ? place : "texts");
    }
    if (strlen(place) >= sizeof r->place) return llm_fail(e, EX_DATAERR, "expected the name of a place, found '%.40s'", place);
    snprintf(r->place, sizeof r->place, "%s", place);
    return 0;
}

/* Members of an object "metadata", which searches write and other programs' rows have, become members beside it. 0, or -1: no memory. */
static int join_metadata(json_t *o)
{
    json_t *within = json_object_get(o, "metadata");
    if (!json_is_object(within)) return 0;
    json_incref(within);
    json_object_del(o, "metadata");
    const int status = json_object_update_missing(o, within);
    json_decref(within);
    return status;
}

static int take_object(struct llm_index_rows *r, json_t *o, enum llm_rows_as as, int64_t line, struct llm_err *e)
{
    const json_t *v = json_object_get(o, "embedding"), *text = json_object_get(o, "text");
    const bool wanted = has_vectors(as);
    const char *error = json_string_value(json_object_get(o, "error")); /* what llm-infer writes for a text that it cannot embed */
    if (wanted && !v && error) return llm_fail(e, EX_DATAERR, "expected \"embedding\" (a list of numbers), found an error: %.200s", error);
    if (wanted && !json_is_array(v)) {
        return llm_fail(e, EX_DATAERR, "expected \"embedding\" (a list of numbers)%s",
                        as == LLM_ROWS_STORED ? ", which rows do without in an index of words alone (--vectors none)" : "");
    }
    if (!is_stored(as) && !text) text = json_object_get(o, "prompt");
    if (as == LLM_ROWS_WORDS && !text) return llm_fail(e, EX_DATAERR, "expected \"text\" (a string), as there are no vectors");
    if (text && !json_is_string(text)) return llm_fail(e, EX_DATAERR, "\"text\": expected a string");
    if (wanted && check_dims((int64_t)json_array_size(v), e) < 0) return -1;
    if (reserve(r, wanted ? (int64_t)json_array_size(v) : 0, e) < 0 || take_id(r, json_object_get(o, "id"), as, line, e) < 0) return -1;
    if (take_place(r, "", e) < 0) return -1;
    if (wanted && take_fingerprint(r, json_string_value(json_object_get(o, "fingerprint")), e) < 0) return -1;
    for (int64_t k = 0; k < r->dims; k++) {
        const json_t *x = json_array_get(v, (size_t)k);
        if (!json_is_number(x)) return llm_fail(e, EX_DATAERR, "\"embedding\": element %" PRId64 ": expected a number", k);
        r->vectors[r->n * r->dims + k] = (float)json_number_value(x);
    }
    if (text && llm_buf_put(&r->texts, json_string_value(text), json_string_length(text), e) < 0) return -1;
    static const char *const known[] = {"id", "embedding", "text", "prompt_tokens", "fingerprint"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) json_object_del(o, known[i]);
    if (join_metadata(o) < 0) return llm_no_memory(e, "metadata");
    if (is_stored(as) && json_object_size(o) > 0 && llm_json_dump(o, &r->metadata, e) < 0) return -1;
    return finish(r, e);
}

static int take_line(struct llm_index_rows *r, const char *text, size_t n, enum llm_rows_as as, int64_t line, const char *name, struct llm_err *e)
{
    size_t blank = 0;
    while (blank < n && strchr(" \t\r", text[blank]) && text[blank]) blank++;
    if (blank == n) return 0;
    json_t *o = llm_json_parse(text, n, e);
    int status = !o ? -1 : json_is_object(o) ? take_object(r, o, as, line, e) : llm_fail(e, EX_DATAERR, "expected an object");
    json_decref(o);
    return status < 0 ? llm_in(e, "%s: line %" PRId64, name, line) : 0;
}

static int read_lines(struct llm_index_rows *r, struct llm_file *f, enum llm_rows_as as, struct llm_err *e)
{
    struct llm_buf b = {0};
    int64_t got = 1, line = 0;
    int status = 0;
    while (status == 0 && got > 0) {
        size_t seen = b.n, at = 0;
        if (b.n > MAX_LINE) status = llm_file_bad(f, e, "line %" PRId64 ": expected at most %d bytes", line + 1, MAX_LINE);
        if (status == 0) status = llm_buf_reserve(&b, b.n + STEP, e);
        got = status == 0 ? llm_file_read_some(f, b.p + b.n, STEP, e) : -1;
        if (got < 0) status = -1;
        else b.n += (size_t)got;
        for (const char *end; status == 0 && b.n > seen && (end = memchr(b.p + seen, '\n', b.n - seen));) {
            status = take_line(r, b.p + at, (size_t)(end - b.p) - at, as, ++line, llm_file_name(f), e);
            at = seen = (size_t)(end - b.p) + 1;
        }
        if (status == 0 && got == 0 && b.n > at) status = take_line(r, b.p + at, b.n - at, as, ++line, llm_file_name(f), e);
        if (b.n > at && at > 0) memmove(b.p, b.p + at, b.n - at);
        b.n -= at;
    }
    llm_buf_release(&b);
    return status;
}

/* Rows [n] of activations: x [n, dims]. A row is finished when the token after its own has come. */
static int take_activations(struct llm_index_rows *r, const float *x, int64_t dims, const int32_t *ids, const int32_t *positions, int64_t n,
                            struct llm_err *e)
{
    for (int64_t i = 0; i < n; i++) {
        if (r->waiting && (int64_t)positions[i] == (int64_t)r->position + 1) {
            if (llm_buf_printf(&r->ids, e, "%" PRId64, r->n) < 0 || llm_buf_printf(&r->metadata, e, "{\"next\":%" PRId32 "}", ids[i]) < 0) return -1;
            if (finish(r, e) < 0) return llm_in(e, "token %" PRId64, r->n);
        }
        if (check_dims(dims, e) < 0 || reserve(r, dims, e) < 0) return -1;
        memcpy(r->vectors + r->n * dims, x + i * dims, (size_t)dims * sizeof *x);
        r->position = positions[i];
        r->waiting = true;
    }
    return 0;
}

/* A message of activations, read whole: it has few rows. */
static int take_pass(struct llm_index_rows *r, struct llm_stream *s, const struct llm_header *h, struct llm_err *e)
{
    const struct llm_entry *ids = llm_header_find(h, "ids"), *positions = llm_header_find(h, "positions"), *x = NULL;
    for (size_t i = 0; i < h->n_entries; i++) {
        const struct llm_entry *t = &h->entries[i];
        if (t == ids || t == positions) continue;
        if (x) return llm_fail(e, EX_DATAERR, "expected activations of one place, found %s and %s", x->name, t->name);
        x = t;
    }
    bool good = ids && positions && x && x->dtype == LLM_F32 && x->n_dims == 2 && ids->dtype == LLM_I32 && positions->dtype == LLM_I32
                && ids->n_dims == 1 && positions->n_dims == 1 && ids->shape[0] == x->shape[0] && positions->shape[0] == x->shape[0];
    if (!good) return llm_fail(e, EX_DATAERR, "expected activations of one place with 'ids' and 'positions', found other tensors");
    if (take_place(r, x->name, e) < 0 || take_fingerprint(r, llm_header_meta(h, "llm.fingerprint"), e) < 0) return -1;
    void *data = NULL;
    int status = llm_stream_append(s, &data, 0, h->data_bytes, "activations", e);
    const char *at = data;
    if (status == 0 && x->shape[0] > 0) {
        status = take_activations(r, (const float *)(const void *)(at + x->offset), x->shape[1], (const int32_t *)(const void *)(at + ids->offset),
                                  (const int32_t *)(const void *)(at + positions->offset), x->shape[0], e);
    }
    free(data);
    return status;
}

/* The rows of one message; whatever else it has is skipped. */
static int take_message(struct llm_index_rows *r, struct llm_stream *s, const struct llm_header *h, struct llm_err *e)
{
    const struct llm_entry *t = llm_header_find(h, "embeddings");
    char skipped[4096];
    if (h->kind && strcmp(h->kind, "activations") == 0) return take_pass(r, s, h, e);
    if (!t || t->dtype != LLM_F32 || t->n_dims != 2) {
        return llm_fail(e, EX_DATAERR, "expected a tensor 'embeddings' of F32 [rows, dims], found %s", t ? "another type or shape" : "none");
    }
    if (take_place(r, "", e) < 0 || take_fingerprint(r, llm_header_meta(h, "llm.fingerprint"), e) < 0) return -1;
    for (uint64_t left = t->offset, n; left > 0; left -= n) {
        n = left < sizeof skipped ? left : sizeof skipped;
        if (llm_stream_read(s, skipped, n, e) < 0) return -1;
    }
    for (int64_t i = 0; i < t->shape[0]; i++) {
        if (check_dims(t->shape[1], e) < 0 || reserve(r, t->shape[1], e) < 0 || llm_buf_printf(&r->ids, e, "%" PRId64, r->n) < 0) return -1;
        if (llm_stream_read(s, r->vectors + r->n * r->dims, (size_t)r->dims * sizeof(float), e) < 0) return -1;
        if (finish(r, e) < 0) return llm_in(e, "row %" PRId64, i);
    }
    return 0;
}

static int read_messages(struct llm_index_rows *r, struct llm_file *f, struct llm_err *e)
{
    const struct llm_header *h;
    struct llm_stream *s = llm_stream_from_file(f, e);
    int got = s ? 1 : -1;
    r->waiting = false;
    while (got > 0 && (got = llm_stream_next(s, &h, e)) > 0) {
        if (take_message(r, s, h, e) < 0) got = llm_in(e, "%s", llm_stream_name(s));
    }
    llm_stream_destroy(s);
    return got;
}

int llm_index_rows_read(struct llm_index_rows *r, const char *path, enum llm_rows_as as, struct llm_err *e)
{
    enum llm_content content;
    struct llm_file *f = llm_file_open(path, e);
    if (!f) return -1;
    int end = llm_file_at_end(f, e), status = end < 0 ? -1 : 0;
    if (end == 0) status = llm_sniff(f, &content, e);
    if (status == 0 && end == 0 && content == LLM_CONTENT_MESSAGE) {
        if (has_vectors(as)) return read_messages(r, f, e);
        status = llm_fail(e, EX_DATAERR, "%s: expected lines of JSON with texts, found tensor messages", llm_file_name(f));
    }
    if (status == 0 && end == 0) status = read_lines(r, f, as, e);
    llm_file_close(f);
    return status;
}
