#include "io/rwkv_cpp.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 24, TENSOR_BYTES = 12, MAX_RWKV_DIMS = 3, MAX_NAME = 127 };
static const unsigned char magic[] = "fmgg"; /* 0x67676d66 */

/* Data types by their numbers; those of type LLM_NO_DTYPE are not used. */
static const enum llm_dtype types[] = {LLM_F32, LLM_F16, LLM_Q4_0, LLM_Q4_1, LLM_NO_DTYPE, LLM_NO_DTYPE, LLM_NO_DTYPE, LLM_Q5_0, LLM_Q5_1, LLM_Q8_0};
enum { N_TYPES = sizeof types / sizeof *types };

struct reader { const unsigned char *p; uint64_t at, n; uint32_t version; const char *where; };

static uint32_t number(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

bool llm_is_rwkv_cpp(const unsigned char *p, size_t n)
{
    return n >= HEADER_BYTES && memcmp(p, magic, 4) == 0 && (number(p + 4) == 100 || number(p + 4) == 101);
}

static int bad(const struct reader *r, const char *what, struct llm_err *e)
{
    return llm_fail(e, EX_DATAERR, "%s: byte %llu: %s", r->where, (unsigned long long)r->at, what);
}

/* Reads one tensor's description, and passes over its data. */
static int read_tensor(struct reader *r, struct llm_entry *t, struct llm_err *e)
{
    if (r->n - r->at < TENSOR_BYTES) return bad(r, "a tensor: cut short", e);
    const unsigned char *p = r->p + r->at;
    uint64_t dims = number(p), length = number(p + 4), type = number(p + 8), elements = 1;
    if (dims < 1 || dims > MAX_RWKV_DIMS) return bad(r, "a tensor: expected 1 to 3 dimensions", e);
    if (length < 1 || length > MAX_NAME) return bad(r, "a tensor: expected a name of 1 to 127 bytes", e);
    if (type >= N_TYPES || types[type] == LLM_NO_DTYPE) return bad(r, "a tensor: unknown or unsupported data type", e);
    t->dtype = types[type];
    const struct llm_dtype_row *row = &llm_dtypes[t->dtype];
    if (row->is_quantised && r->version < 101) return bad(r, "a tensor: expected version 101 of the file for quantised data", e);
    if (r->n - r->at < TENSOR_BYTES + 4 * dims + length) return bad(r, "a tensor: cut short", e);
    for (uint64_t i = dims; i-- > 0;) {
        uint32_t size = number(p + TENSOR_BYTES + 4 * i);
        if (size < 1 || size > INT32_MAX || __builtin_mul_overflow(elements, size, &elements)) return bad(r, "a tensor: too many elements", e);
        if (size > 1 || (i == 0 && t->n_dims == 0)) t->shape[t->n_dims++] = size;
    }
    const unsigned char *name = p + TENSOR_BYTES + 4 * dims;
    if (memchr(name, 0, length)) return bad(r, "a tensor: expected a name without NUL", e);
    if (number(p + TENSOR_BYTES) % (uint32_t)row->block_size != 0) return bad(r, "a tensor: expected rows of whole blocks", e);
    if (__builtin_mul_overflow(elements / (uint64_t)row->block_size, (uint64_t)row->block_bytes, &t->bytes)) {
        return bad(r, "a tensor: too many elements", e);
    }
    r->at += TENSOR_BYTES + 4 * dims + length;
    if (t->bytes > r->n - r->at) return bad(r, "a tensor's data: cut short", e);
    t->offset = r->at - HEADER_BYTES;
    r->at += t->bytes;
    t->name = strndup((const char *)name, length);
    return t->name ? 0 : llm_no_memory(e, "a tensor's name");
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct llm_entry *const *)a)->name, (*(const struct llm_entry *const *)b)->name);
}

static int read_tensors(struct reader *r, struct llm_header *h, struct llm_err *e)
{
    size_t room = 0;
    while (r->at < r->n) {
        if (llm_grow((void **)&h->entries, &room, h->n_entries + 1, sizeof *h->entries, e) < 0) return -1;
        h->entries[h->n_entries] = (struct llm_entry){.name = NULL};
        if (read_tensor(r, &h->entries[h->n_entries], e) < 0) return -1;
        h->n_entries++;
    }
    h->by_name = llm_calloc(h->n_entries + 1, sizeof *h->by_name, "tensors", e);
    if (!h->by_name) return -1;
    for (size_t i = 0; i < h->n_entries; i++) h->by_name[i] = &h->entries[i];
    qsort(h->by_name, h->n_entries, sizeof *h->by_name, by_name);
    for (size_t i = 1; i < h->n_entries; i++) {
        if (strcmp(h->by_name[i - 1]->name, h->by_name[i]->name) != 0) continue;
        return llm_fail(e, EX_DATAERR, "%s: tensor '%s': stands twice", r->where, h->by_name[i]->name);
    }
    return 0;
}

int llm_rwkv_cpp_parse(struct llm_rwkv_cpp *f, struct llm_header *h, const unsigned char *p, uint64_t n, const char *where, struct llm_err *e)
{
    struct reader r = {.p = p, .n = n, .where = where, .at = HEADER_BYTES};
    *h = (struct llm_header){0};
    if (!llm_is_rwkv_cpp(p, n)) return llm_fail(e, EX_DATAERR, "%s: byte 0: expected a file of rwkv.cpp, version 100 or 101", where);
    r.version = number(p + 4);
    *f = (struct llm_rwkv_cpp){.vocab = number(p + 8), .width = number(p + 12), .layers = number(p + 16)};
    h->header_bytes = HEADER_BYTES;
    h->data_bytes = n - HEADER_BYTES;
    h->metadata = json_object();
    if (h->metadata && read_tensors(&r, h, e) == 0) return 0;
    if (!h->metadata) llm_no_memory(e, "tensors");
    llm_header_release(h);
    return -1;
}
