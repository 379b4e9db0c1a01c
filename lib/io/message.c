#include "io/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_ALIGN = 64, MAX_METADATA_TEXT = LLM_MAX_HEADER };

void llm_header_release(struct llm_header *h)
{
    for (size_t i = 0; i < h->n_entries; i++) free((char *)h->entries[i].name);
    free(h->entries);
    free(h->by_name);
    json_decref(h->metadata);
    *h = (struct llm_header){0};
}

const struct llm_entry *llm_header_find(const struct llm_header *h, const char *name)
{
    size_t low = 0, high = h->n_entries;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(h->by_name[middle]->name, name);
        if (order == 0) return h->by_name[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

const char *llm_header_meta(const struct llm_header *h, const char *key)
{
    return json_string_value(json_object_get(h->metadata, key));
}

/* shape: an array of counts, each checked, into t. */
static int parse_shape(struct llm_entry *t, const json_t *shape, struct llm_err *e)
{
    if (!json_is_array(shape)) return llm_fail(e, EX_DATAERR, "tensor '%s': expected an array as shape", t->name);
    size_t n = json_array_size(shape);
    if (n > LLM_MAX_DIMS) return llm_fail(e, EX_DATAERR, "tensor '%s': expected at most %d dimensions, found %zu", t->name, LLM_MAX_DIMS, n);
    t->n_dims = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(shape, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return llm_fail(e, EX_DATAERR, "tensor '%s': dimension %zu: expected an integer", t->name, i);
        t->shape[i] = json_integer_value(v);
    }
    return 0;
}

/* The number of bytes that dtype and shape imply. -1 if the product overflows, or if a row is not a multiple of the block size. */
static int expected_bytes(const struct llm_entry *t, uint64_t *bytes, struct llm_err *e)
{
    const struct llm_dtype_row *row = &llm_dtypes[t->dtype];
    uint64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(n, (uint64_t)t->shape[i], &n)) return llm_fail(e, EX_DATAERR, "tensor '%s': shape product overflows", t->name);
    int64_t last = t->n_dims ? t->shape[t->n_dims - 1] : 1;
    if (last % row->block_size) return llm_fail(e, EX_DATAERR, "tensor '%s': rows of %lld are no multiple of %s's block of %d", t->name,
                                                (long long)last, row->name, row->block_size);
    if (__builtin_mul_overflow(n / (uint64_t)row->block_size, (uint64_t)row->block_bytes, bytes))
        return llm_fail(e, EX_DATAERR, "tensor '%s': shape product overflows", t->name);
    return 0;
}

static int parse_offsets(struct llm_entry *t, const json_t *offsets, struct llm_err *e)
{
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to)
        || json_integer_value(from) < 0 || json_integer_value(to) < json_integer_value(from))
        return llm_fail(e, EX_DATAERR, "tensor '%s': data_offsets: expected two ascending integers", t->name);
    t->offset = (uint64_t)json_integer_value(from);
    t->bytes = (uint64_t)(json_integer_value(to) - json_integer_value(from));
    return 0;
}

/* Reads from llm.tensors the true dtype, shape and encoding of a tensor that the file declares as U8. */
static int parse_true_type(struct llm_entry *t, const json_t *said, struct llm_err *e)
{
    const char *dtype = NULL, *encoding = NULL;
    const char *key;
    json_t *v;
    if (!json_is_object(said)) return llm_fail(e, EX_DATAERR, "llm.tensors: '%s': expected an object", t->name);
    json_object_foreach((json_t *)said, key, v)
        if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 && strcmp(key, "encoding") != 0)
            return llm_fail(e, EX_DATAERR, "llm.tensors: '%s': unknown key '%s'", t->name, key);
    if (t->dtype != LLM_U8) return llm_fail(e, EX_DATAERR, "tensor '%s': in llm.tensors, but not of dtype U8", t->name);
    if (llm_json_str(said, "dtype", &dtype, e) < 0 || llm_json_str(said, "encoding", &encoding, e) < 0) return llm_in(e, "tensor '%s'", t->name);
    t->dtype = dtype ? llm_dtype_find(dtype) : LLM_NO_DTYPE;
    if (t->dtype == LLM_NO_DTYPE) return llm_fail(e, EX_DATAERR, "tensor '%s': unknown dtype '%s' in llm.tensors", t->name, dtype ? dtype : "");
    t->planes = encoding && strcmp(encoding, "planes") == 0;
    if (encoding && !t->planes) return llm_fail(e, EX_DATAERR, "tensor '%s': unknown encoding '%s'", t->name, encoding);
    if (t->planes && !llm_dtypes[t->dtype].is_float) return llm_fail(e, EX_DATAERR, "tensor '%s': planes of a dtype that is no float", t->name);
    return parse_shape(t, json_object_get(said, "shape"), e);
}

static int parse_entry(struct llm_entry *t, const char *name, const json_t *v, const json_t *true_types, struct llm_err *e)
{
    const char *dtype = NULL;
    uint64_t want;
    if (!json_is_object(v)) return llm_fail(e, EX_DATAERR, "tensor '%s': expected an object", name);
    if (llm_json_str(v, "dtype", &dtype, e) < 0) return llm_in(e, "tensor '%s'", name);
    t->name = strdup(name);
    if (!t->name) return llm_no_memory(e, "header");
    t->dtype = dtype ? llm_dtype_find(dtype) : LLM_NO_DTYPE;
    if (t->dtype == LLM_NO_DTYPE || !llm_dtypes[t->dtype].safetensors || strcmp(llm_dtypes[t->dtype].safetensors, dtype) != 0)
        return llm_fail(e, EX_DATAERR, "tensor '%s': unknown dtype '%s'", name, dtype ? dtype : "");
    if (parse_shape(t, json_object_get(v, "shape"), e) < 0 || parse_offsets(t, json_object_get(v, "data_offsets"), e) < 0) return -1;
    if (expected_bytes(t, &want, e) < 0) return -1;
    if (want != t->bytes) goto wrong_size;
    const json_t *said = json_object_get(true_types, name);
    if (said && parse_true_type(t, said, e) < 0) return -1;
    if (expected_bytes(t, &want, e) < 0) return -1;
    if (want == t->bytes) return 0;
wrong_size:
    return llm_fail(e, EX_DATAERR, "tensor '%s': expected %llu bytes of data (dtype and shape), found %llu", name, (unsigned long long)want,
                    (unsigned long long)t->bytes);
}

static int by_offset(const void *a, const void *b)
{
    const struct llm_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; /* empty tensors share an offset with the next */
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct llm_entry *const *)a)->name, (*(const struct llm_entry *const *)b)->name);
}

static int parse_metadata(struct llm_header *h, json_t *o, json_t **true_types, struct llm_err *e)
{
    const char *key;
    json_t *v, *meta = json_object_get(o, "__metadata__");
    h->metadata = meta ? json_incref(meta) : json_object();
    if (!h->metadata) return llm_no_memory(e, "header");
    if (!json_is_object(h->metadata)) return llm_fail(e, EX_DATAERR, "__metadata__: expected an object");
    json_object_foreach(h->metadata, key, v) {
        if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
            return llm_fail(e, EX_DATAERR, "__metadata__: '%s': expected a string without NUL", key);
        if (strncmp(key, "llm.require.", 12) == 0)
            return llm_fail(e, EX_DATAERR, "__metadata__: '%s': made by a later version, which changed the meaning of the data", key);
    }
    h->kind = llm_header_meta(h, "llm.kind");
    const char *text = llm_header_meta(h, "llm.tensors");
    if (!text) return 0;
    *true_types = llm_json_parse(text, strlen(text), e);
    if (!*true_types) return llm_in(e, "llm.tensors");
    return json_is_object(*true_types) ? 0 : llm_fail(e, EX_DATAERR, "llm.tensors: expected an object");
}

static int parse_object(struct llm_header *h, json_t *o, struct llm_err *e)
{
    json_t *true_types = NULL, *v;
    const char *name;
    int got = -1;
    if (!json_is_object(o)) return llm_fail(e, EX_DATAERR, "expected an object");
    if (parse_metadata(h, o, &true_types, e) < 0) goto done;
    h->entries = llm_calloc(json_object_size(o), sizeof *h->entries, "header", e);
    if (!h->entries) goto done;
    json_object_foreach(o, name, v)
        if (strcmp(name, "__metadata__") != 0 && parse_entry(&h->entries[h->n_entries++], name, v, true_types, e) < 0) goto done;
    json_object_foreach(true_types, name, v)
        if (!json_object_get(o, name)) {
            llm_fail(e, EX_DATAERR, "llm.tensors: '%s' is no tensor of this message", name);
            goto done;
        }
    qsort(h->entries, h->n_entries, sizeof *h->entries, by_offset);
    for (size_t i = 0; i < h->n_entries; i++) {
        const struct llm_entry *t = &h->entries[i];
        if (t->offset != h->data_bytes) {
            llm_fail(e, EX_DATAERR, "tensor '%s': data_offsets: expected to begin at %llu, found %llu", t->name,
                     (unsigned long long)h->data_bytes, (unsigned long long)t->offset);
            goto done;
        }
        h->data_bytes += t->bytes; /* each is below 2^63 and they follow one another, so the sum is the last end */
    }
    h->by_name = llm_calloc(h->n_entries, sizeof *h->by_name, "header", e);
    if (!h->by_name) goto done;
    for (size_t i = 0; i < h->n_entries; i++) h->by_name[i] = &h->entries[i];
    qsort(h->by_name, h->n_entries, sizeof *h->by_name, by_name);
    got = 0;
done:
    json_decref(true_types);
    return got;
}

int llm_header_parse(struct llm_header *h, const char *json, size_t n, const char *where, struct llm_err *e)
{
    *h = (struct llm_header){.header_bytes = 8 + (uint64_t)n};
    json_t *o = n && json[0] == '{' ? llm_json_parse(json, n, e) : NULL;
    if (!o && (n == 0 || json[0] != '{')) llm_fail(e, EX_DATAERR, "expected '{' at the beginning");
    int got = o ? parse_object(h, o, e) : -1;
    json_decref(o);
    if (got == 0) return 0;
    llm_header_release(h);
    return llm_in(e, "%s: header", where);
}

/* ---- building ---- */

static int put_shape(struct llm_buf *out, const struct llm_entry *t, struct llm_err *e)
{
    if (llm_buf_put(out, "[", 1, e) < 0) return -1;
    for (int i = 0; i < t->n_dims; i++)
        if (llm_buf_printf(out, e, "%s%lld", i ? "," : "", (long long)t->shape[i]) < 0) return -1;
    return llm_buf_put(out, "]", 1, e);
}

static int is_native(const struct llm_entry *t)
{
    return llm_dtypes[t->dtype].safetensors && !t->planes;
}

/* Writes the value of llm.tensors: dtype, shape and encoding of the tensors that are declared as U8. Empty if there is none. */
static int true_types_text(struct llm_buf *out, const struct llm_entry *entries, size_t n, struct llm_err *e)
{
    for (size_t i = 0; i < n; i++) {
        const struct llm_entry *t = &entries[i];
        if (is_native(t)) continue;
        const struct llm_dtype_row *row = &llm_dtypes[t->dtype];
        if (llm_buf_put(out, out->n ? "," : "{", 1, e) < 0 || llm_json_quote(out, t->name, strlen(t->name), e) < 0
            || llm_buf_printf(out, e, ":{\"dtype\":\"%s\",\"shape\":", row->safetensors ? row->safetensors : row->name) < 0
            || put_shape(out, t, e) < 0 || llm_buf_printf(out, e, "%s}", t->planes ? ",\"encoding\":\"planes\"" : "") < 0)
            return -1;
    }
    return out->n ? llm_buf_put(out, "}", 1, e) : 0;
}

static int put_metadata(struct llm_buf *out, const char *kind, const json_t *meta, const struct llm_entry *entries, size_t n, struct llm_err *e)
{
    struct llm_buf types = {0};
    const char *key;
    json_t *v;
    int got = llm_buf_printf(out, e, "{\"__metadata__\":{\"llm.kind\":\"%s\"", kind);
    json_object_foreach((json_t *)meta, key, v) {
        if (got < 0) break;
        got = llm_buf_put(out, ",", 1, e);
        if (got == 0) got = llm_json_quote(out, key, strlen(key), e);
        if (got == 0) got = llm_buf_put(out, ":", 1, e);
        if (got == 0) got = llm_json_quote(out, json_string_value(v), json_string_length(v), e);
    }
    if (got == 0) got = true_types_text(&types, entries, n, e);
    if (got == 0 && types.n && (got = llm_buf_printf(out, e, ",\"llm.tensors\":")) == 0) got = llm_json_quote(out, types.p, types.n, e);
    if (got == 0) got = llm_buf_put(out, "}", 1, e);
    llm_buf_release(&types);
    return got;
}

int llm_header_build(const char *kind, const json_t *meta, const struct llm_entry *entries, size_t n, struct llm_buf *out, struct llm_err *e)
{
    if (put_metadata(out, kind, meta, entries, n, e) < 0) return -1;
    for (size_t i = 0; i < n; i++) {
        const struct llm_entry *t = &entries[i];
        if (llm_buf_put(out, ",", 1, e) < 0 || llm_json_quote(out, t->name, strlen(t->name), e) < 0
            || llm_buf_printf(out, e, ":{\"dtype\":\"%s\",\"shape\":", is_native(t) ? llm_dtypes[t->dtype].safetensors : "U8") < 0)
            return -1;
        const struct llm_entry flat = {.n_dims = 1, .shape = {(int64_t)t->bytes}};
        if (put_shape(out, is_native(t) ? t : &flat, e) < 0
            || llm_buf_printf(out, e, ",\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->offset, (unsigned long long)(t->offset + t->bytes))
                   < 0)
            return -1;
    }
    if (llm_buf_put(out, "}", 1, e) < 0) return -1;
    while ((8 + out->n) % HEADER_ALIGN)
        if (llm_buf_put(out, " ", 1, e) < 0) return -1;
    if (out->n > MAX_METADATA_TEXT) return llm_fail(e, LLM_EX_FAILURE, "header of %zu bytes: at most %d", out->n, LLM_MAX_HEADER);
    return 0;
}

static int canonical(const void *a, const void *b)
{
    const struct llm_entry *x = a, *y = b;
    const struct llm_dtype_row *rx = &llm_dtypes[x->dtype], *ry = &llm_dtypes[y->dtype];
    int sx = rx->block_size > 1 ? 1 : rx->block_bytes, sy = ry->block_size > 1 ? 1 : ry->block_bytes;
    return sx != sy ? sy - sx : strcmp(x->name, y->name);
}

int llm_layout(const struct llm_tensor_out *t, size_t n, bool planes, struct llm_entry *entries, struct llm_err *e)
{
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        entries[i] = (struct llm_entry){.name = t[i].name, .dtype = t[i].dtype, .n_dims = t[i].n_dims};
        memcpy(entries[i].shape, t[i].shape, sizeof entries[i].shape);
        if (expected_bytes(&entries[i], &entries[i].bytes, e) < 0) return -1;
        entries[i].planes = planes && llm_dtypes[t[i].dtype].is_float && entries[i].bytes > 0;
        entries[i].offset = i; /* whose data it is; replaced below */
    }
    qsort(entries, n, sizeof *entries, canonical);
    for (size_t i = 0; i < n; i++) {
        if (i && strcmp(entries[i].name, entries[i - 1].name) == 0)
            return llm_fail(e, LLM_EX_FAILURE, "tensor '%s' given twice", entries[i].name);
        entries[i].source = t[entries[i].offset].data;
        entries[i].offset = at;
        if (__builtin_add_overflow(at, entries[i].bytes, &at)) return llm_fail(e, LLM_EX_FAILURE, "message too large");
    }
    return 0;
}
