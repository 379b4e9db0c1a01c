#include "io/gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GGUF_DIMS = 4, DEFAULT_ALIGNMENT = 32, MIN_VALUE = 13, MIN_TENSOR = 32 }; /* fewest bytes of a value and of a tensor's description */

/* Bytes of one element; 0: strings and arrays. */
static const unsigned char widths[LLM_GGUF_N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
static const char *const type_names[LLM_GGUF_N_TYPES] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "a string", "an array", "u64", "i64", "f64"};

/* Reading in order; the first error sticks. */
struct reader {
    const unsigned char *p;
    uint64_t at, n;
    const char *where;
    struct llm_err *e;
    bool failed;
};

static void __attribute__((format(printf, 3, 4))) bad(struct reader *r, uint64_t at, const char *fmt, ...)
{
    char text[400];
    va_list args;
    if (r->failed) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    llm_fail(r->e, EX_DATAERR, "%s: byte %llu: %s", r->where, (unsigned long long)at, text);
    r->failed = true;
}

/* The next n bytes, or NULL. */
static const unsigned char *take(struct reader *r, uint64_t n, const char *what)
{
    if (!r->failed && n > r->n - r->at) {
        bad(r, r->at, "%s: cut short: expected %llu bytes, found %llu", what, (unsigned long long)n, (unsigned long long)(r->n - r->at));
    }
    if (r->failed) return NULL;
    r->at += n;
    return r->p + r->at - n;
}

static uint64_t little(const unsigned char *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static uint64_t number(struct reader *r, int bytes, const char *what)
{
    const unsigned char *p = take(r, (uint64_t)bytes, what);
    return p ? little(p, bytes) : 0;
}

/* Reads a count of things that take at least `least` bytes each. Fails if the remaining bytes cannot hold that many. */
static uint64_t count(struct reader *r, uint64_t least, const char *what)
{
    uint64_t at = r->at, n = number(r, 8, what);
    if (!r->failed && n > (r->n - r->at) / least) {
        bad(r, at, "%s: expected at most %llu, found %llu", what, (unsigned long long)((r->n - r->at) / least), (unsigned long long)n);
    }
    return r->failed ? 0 : n;
}

/* Reads a key or a name into new memory, which the caller frees. NULL: failed. */
static char *word(struct reader *r, const char *what)
{
    uint64_t at = r->at, n = count(r, 1, what);
    const unsigned char *p = take(r, n, what);
    if (!p) return NULL;
    if (n == 0 || memchr(p, 0, n)) {
        bad(r, at, "%s: expected text without NUL", what);
        return NULL;
    }
    char *copy = llm_alloc(n + 1, 1, "GGUF header", r->e);
    if (!copy) {
        r->failed = true;
        return NULL;
    }
    memcpy(copy, p, n);
    copy[n] = 0;
    return copy;
}

static void skip_elements(struct reader *r, struct llm_gguf_value *v)
{
    uint64_t from = r->at, bytes;
    v->p = r->p + from;
    if (v->type == LLM_GGUF_STRING) {
        for (uint64_t i = 0; i < v->n && !r->failed; i++) take(r, count(r, 1, v->key), v->key);
    } else if (__builtin_mul_overflow(v->n, (uint64_t)widths[v->type], &bytes)) {
        bad(r, from, "%s: too many elements", v->key);
    } else {
        const unsigned char *p = take(r, bytes, v->key);
        for (uint64_t i = 0; p && v->type == LLM_GGUF_BOOL && i < v->n; i++) {
            if (p[i] > 1) bad(r, from + i, "%s: expected 0 or 1, found %u", v->key, p[i]);
        }
    }
    v->bytes = r->at - from;
}

static void read_value(struct reader *r, struct llm_gguf_value *v)
{
    v->key = word(r, "key");
    uint64_t at = r->at;
    uint32_t type = (uint32_t)number(r, 4, v->key ? v->key : "key");
    if (r->failed) return;
    v->is_array = type == LLM_GGUF_ARRAY;
    v->n = 1;
    if (v->is_array) {
        at = r->at;
        type = (uint32_t)number(r, 4, v->key);
        if (!r->failed && type == LLM_GGUF_ARRAY) bad(r, at, "%s: arrays of arrays are not supported", v->key);
    }
    if (!r->failed && type >= LLM_GGUF_N_TYPES) bad(r, at, "%s: unknown type %u", v->key, type);
    if (r->failed) return;
    v->type = type;
    if (v->is_array) v->n = count(r, type == LLM_GGUF_STRING ? 8 : widths[type], v->key);
    if (!r->failed) skip_elements(r, v);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct llm_gguf_value *)a)->key, ((const struct llm_gguf_value *)b)->key);
}

static void read_values(struct reader *r, struct llm_gguf *g, uint64_t n)
{
    g->values = llm_calloc(n, sizeof *g->values, "GGUF header", r->e);
    if (!g->values) r->failed = true;
    while (g->n < n && !r->failed) read_value(r, &g->values[g->n++]);
    if (r->failed) return;
    qsort(g->values, g->n, sizeof *g->values, by_key);
    for (size_t i = 1; i < g->n; i++) {
        if (strcmp(g->values[i - 1].key, g->values[i].key) == 0) bad(r, r->at, "%s: stands twice", g->values[i].key);
    }
}

static void read_tensor(struct reader *r, struct llm_entry *t)
{
    uint64_t dims[MAX_GGUF_DIMS], elements = 1, at;
    t->name = word(r, "tensor name");
    const char *name = t->name ? t->name : "";
    at = r->at;
    uint32_t n_dims = (uint32_t)number(r, 4, name);
    if (!r->failed && n_dims > MAX_GGUF_DIMS) bad(r, at, "tensor '%s': expected at most %d dimensions, found %u", name, MAX_GGUF_DIMS, n_dims);
    for (uint32_t i = 0; i < n_dims && !r->failed; i++) {
        at = r->at;
        dims[i] = number(r, 8, name);
        if (dims[i] > INT64_MAX || __builtin_mul_overflow(elements, dims[i], &elements) || elements > INT64_MAX) {
            bad(r, at, "tensor '%s': too many elements", name);
        }
    }
    if (r->failed) return;
    t->n_dims = (int)n_dims;
    for (uint32_t i = 0; i < n_dims; i++) t->shape[i] = (int64_t)dims[n_dims - 1 - i];
    at = r->at;
    uint32_t type = (uint32_t)number(r, 4, name);
    t->dtype = LLM_NO_DTYPE;
    for (int i = 0; i < LLM_N_DTYPES; i++) { /* types without a row are refused by number */
        if (llm_dtypes[i].ggml >= 0 && (uint32_t)llm_dtypes[i].ggml == type) t->dtype = (enum llm_dtype)i;
    }
    if (r->failed) return;
    if (t->dtype == LLM_NO_DTYPE) {
        bad(r, at, "tensor '%s': unknown or unsupported type %u", name, type);
        return;
    }
    const struct llm_dtype_row *row = &llm_dtypes[t->dtype];
    if ((n_dims ? dims[0] : 1) % (uint64_t)row->block_size != 0) {
        bad(r, at, "tensor '%s': expected rows of whole blocks of %d (%s), found %llu", name, row->block_size, row->name,
            (unsigned long long)(n_dims ? dims[0] : 1));
    }
    if (__builtin_mul_overflow(elements / (uint64_t)row->block_size, (uint64_t)row->block_bytes, &t->bytes))
        bad(r, at, "tensor '%s': too large", name);
    t->offset = number(r, 8, name);
}

static int by_offset(const void *a, const void *b)
{
    const struct llm_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct llm_entry *const *)a)->name, (*(const struct llm_entry *const *)b)->name);
}

/* Finds where tensor data begins. Checks that each tensor is aligned, lies inside the data, and does not overlap another. */
static void check_places(struct reader *r, const struct llm_gguf *g, struct llm_header *h)
{
    int64_t alignment = DEFAULT_ALIGNMENT;
    if (llm_gguf_int(g, "general.alignment", 1, 1 << 20, &alignment, r->e) < 0) {
        llm_in(r->e, "%s", r->where);
        r->failed = true;
        return;
    }
    if (alignment & (alignment - 1)) bad(r, r->at, "general.alignment: expected a power of two, found %lld", (long long)alignment);
    uint64_t mask = (uint64_t)alignment - 1, at = r->at + (-r->at & mask), last = 0;
    h->header_bytes = at;
    h->data_bytes = at < r->n ? r->n - at : 0;
    qsort(h->entries, h->n_entries, sizeof *h->entries, by_offset);
    for (size_t i = 0; i < h->n_entries && !r->failed; i++) {
        const struct llm_entry *t = &h->entries[i];
        if (t->offset & mask)
            bad(r, r->at, "tensor '%s': expected an offset that is a multiple of %lld, found %llu", t->name, (long long)alignment,
                (unsigned long long)t->offset);
        else if (t->offset > h->data_bytes || t->bytes > h->data_bytes - t->offset)
            bad(r, r->at, "tensor '%s': cut short: expected %llu bytes at offset %llu, the file has %llu", t->name, (unsigned long long)t->bytes,
                (unsigned long long)t->offset, (unsigned long long)h->data_bytes);
        else if (t->offset < last) bad(r, r->at, "tensor '%s': overlaps another", t->name);
        last = t->offset + t->bytes;
    }
}

static void read_tensors(struct reader *r, const struct llm_gguf *g, struct llm_header *h, uint64_t n)
{
    h->entries = llm_calloc(n, sizeof *h->entries, "GGUF header", r->e);
    h->by_name = llm_calloc(n, sizeof *h->by_name, "GGUF header", r->e);
    h->metadata = json_object();
    if (!h->entries || !h->by_name || !h->metadata) r->failed = true;
    if (!h->metadata) llm_no_memory(r->e, "GGUF header");
    while (h->n_entries < n && !r->failed) read_tensor(r, &h->entries[h->n_entries++]);
    if (!r->failed) check_places(r, g, h);
    if (r->failed) return;
    for (size_t i = 0; i < h->n_entries; i++) h->by_name[i] = &h->entries[i];
    qsort(h->by_name, h->n_entries, sizeof *h->by_name, by_name);
    for (size_t i = 1; i < h->n_entries; i++) {
        if (strcmp(h->by_name[i - 1]->name, h->by_name[i]->name) == 0) bad(r, r->at, "tensor '%s': stands twice", h->by_name[i]->name);
    }
}

int llm_gguf_parse(struct llm_gguf *g, struct llm_header *h, const unsigned char *p, uint64_t n, const char *where, struct llm_err *e)
{
    struct reader r = {.p = p, .n = n, .where = where, .e = e};
    *g = (struct llm_gguf){0};
    *h = (struct llm_header){0};
    const unsigned char *magic = take(&r, 4, "magic");
    if (magic && memcmp(magic, "GGUF", 4) != 0) bad(&r, 0, "expected the magic 'GGUF'");
    uint32_t version = (uint32_t)number(&r, 4, "version");
    if (!r.failed && version != 2 && version != 3) {
        bad(&r, 4, "expected GGUF version 2 or 3, found %u%s", version, version && !(version & 0xffffff) ? " (a big-endian file)" : "");
    }
    uint64_t n_tensors = count(&r, MIN_TENSOR, "number of tensors"), n_values = count(&r, MIN_VALUE, "number of metadata values");
    if (!r.failed) read_values(&r, g, n_values);
    if (!r.failed) read_tensors(&r, g, h, n_tensors);
    if (!r.failed) return 0;
    llm_gguf_release(g);
    llm_header_release(h);
    return -1;
}

void llm_gguf_release(struct llm_gguf *g)
{
    for (size_t i = 0; i < g->n; i++) free((char *)g->values[i].key);
    free(g->values);
    *g = (struct llm_gguf){0};
}

/* ---- values ---- */

const struct llm_gguf_value *llm_gguf_find(const struct llm_gguf *g, const char *key)
{
    const struct llm_gguf_value wanted = {.key = key};
    return g->n ? bsearch(&wanted, g->values, g->n, sizeof wanted, by_key) : NULL;
}

static bool is_whole(enum llm_gguf_type t)
{
    return t <= LLM_GGUF_I32 || t == LLM_GGUF_U64 || t == LLM_GGUF_I64;
}

int64_t llm_gguf_whole(const struct llm_gguf_value *v, uint64_t i)
{
    int width = widths[v->type];
    uint64_t u = little(v->p + i * (uint64_t)width, width);
    switch (v->type) {
    case LLM_GGUF_I8: return (int8_t)u;
    case LLM_GGUF_I16: return (int16_t)u;
    case LLM_GGUF_I32: return (int32_t)u;
    case LLM_GGUF_F32:
    case LLM_GGUF_F64: {
        double d = llm_gguf_number(v, i);
        return d >= -0x1p62 && d <= 0x1p62 ? (int64_t)d : 0;
    }
    default: return u > INT64_MAX && v->type == LLM_GGUF_U64 ? INT64_MAX : (int64_t)u;
    }
}

double llm_gguf_number(const struct llm_gguf_value *v, uint64_t i)
{
    uint64_t u = little(v->p + i * widths[v->type], widths[v->type]);
    if (v->type == LLM_GGUF_F32) {
        uint32_t bits = (uint32_t)u;
        float f;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
    if (v->type == LLM_GGUF_F64) {
        double d;
        memcpy(&d, &u, sizeof d);
        return d;
    }
    return (double)llm_gguf_whole(v, i);
}

/* Finds the value of a key, which must be no array and of a type accepted by `ok`. *v is NULL if the key is absent. */
static int single(const struct llm_gguf *g, const char *key, bool (*ok)(enum llm_gguf_type), const char *what, const struct llm_gguf_value **v,
                  struct llm_err *e)
{
    *v = llm_gguf_find(g, key);
    if (!*v || (!(*v)->is_array && ok((*v)->type))) return 0;
    return llm_fail(e, EX_DATAERR, "%s: expected %s, found %s%s", key, what, (*v)->is_array ? "an array of " : "", type_names[(*v)->type]);
}

int llm_gguf_int(const struct llm_gguf *g, const char *key, int64_t min, int64_t max, int64_t *out, struct llm_err *e)
{
    const struct llm_gguf_value *v;
    if (single(g, key, is_whole, "an integer", &v, e) < 0) return -1;
    if (!v) return 0;
    int64_t x = llm_gguf_whole(v, 0);
    if (x < min || x > max)
        return llm_fail(e, EX_DATAERR, "%s: expected %lld to %lld, found %lld", key, (long long)min, (long long)max, (long long)x);
    *out = x;
    return 0;
}

static bool is_number(enum llm_gguf_type t)
{
    return is_whole(t) || t == LLM_GGUF_F32 || t == LLM_GGUF_F64;
}

int llm_gguf_real(const struct llm_gguf *g, const char *key, double *out, struct llm_err *e)
{
    const struct llm_gguf_value *v;
    if (single(g, key, is_number, "a number", &v, e) < 0) return -1;
    if (v) *out = llm_gguf_number(v, 0);
    return 0;
}

static bool is_bool(enum llm_gguf_type t)
{
    return t == LLM_GGUF_BOOL;
}

int llm_gguf_bool(const struct llm_gguf *g, const char *key, bool *out, struct llm_err *e)
{
    const struct llm_gguf_value *v;
    if (single(g, key, is_bool, "a bool", &v, e) < 0) return -1;
    if (v) *out = v->p[0] != 0;
    return 0;
}

static bool is_string(enum llm_gguf_type t)
{
    return t == LLM_GGUF_STRING;
}

int llm_gguf_str(const struct llm_gguf *g, const char *key, const char **out, size_t *n, struct llm_err *e)
{
    const struct llm_gguf_value *v;
    uint64_t at = 0;
    if (single(g, key, is_string, "a string", &v, e) < 0) return -1;
    if (v) llm_gguf_next(v, &at, out, n);
    return 0;
}

bool llm_gguf_next(const struct llm_gguf_value *v, uint64_t *at, const char **s, size_t *n)
{
    if (v->type != LLM_GGUF_STRING || *at >= v->bytes) return false;
    *n = (size_t)little(v->p + *at, 8);
    *s = (const char *)v->p + *at + 8;
    *at += 8 + *n;
    return true;
}
