#include "io/gguf_write.h"

#include <string.h>
#include "base/paths.h"

static int put_little(struct llm_buf *b, uint64_t v, int bytes, struct llm_err *e)
{
    unsigned char raw[8];
    for (int i = 0; i < bytes; i++) raw[i] = (unsigned char)(v >> (8 * i));
    return llm_buf_put(b, raw, (size_t)bytes, e);
}

static int put_text(struct llm_buf *b, const char *s, size_t n, struct llm_err *e)
{
    return put_little(b, n, 8, e) < 0 ? -1 : llm_buf_put(b, s, n, e);
}

/* ---- metadata ---- */

static void add(struct llm_gguf_out *o, uint64_t v, int bytes)
{
    if (!o->failed && put_little(&o->values, v, bytes, o->err) < 0) o->failed = true;
}

void llm_gguf_add_str(struct llm_gguf_out *o, const char *s, size_t n)
{
    if (!o->failed && put_text(&o->values, s, n, o->err) < 0) o->failed = true;
}

static void begin(struct llm_gguf_out *o, const char *key, enum llm_gguf_type type)
{
    llm_gguf_add_str(o, key, strlen(key));
    add(o, type, 4);
    o->n++;
}

static uint32_t bits_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

void llm_gguf_put_u32(struct llm_gguf_out *o, const char *key, uint32_t v)
{
    begin(o, key, LLM_GGUF_U32);
    add(o, v, 4);
}

void llm_gguf_put_u16(struct llm_gguf_out *o, const char *key, uint16_t v)
{
    begin(o, key, LLM_GGUF_U16);
    add(o, v, 2);
}

void llm_gguf_put_i32(struct llm_gguf_out *o, const char *key, int32_t v)
{
    begin(o, key, LLM_GGUF_I32);
    add(o, (uint32_t)v, 4);
}

void llm_gguf_put_f32(struct llm_gguf_out *o, const char *key, float v)
{
    begin(o, key, LLM_GGUF_F32);
    add(o, bits_of(v), 4);
}

void llm_gguf_put_bool(struct llm_gguf_out *o, const char *key, bool v)
{
    begin(o, key, LLM_GGUF_BOOL);
    add(o, v, 1);
}

void llm_gguf_put_str(struct llm_gguf_out *o, const char *key, const char *s, size_t n)
{
    begin(o, key, LLM_GGUF_STRING);
    llm_gguf_add_str(o, s, n);
}

void llm_gguf_put_array(struct llm_gguf_out *o, const char *key, enum llm_gguf_type type, uint64_t n)
{
    begin(o, key, LLM_GGUF_ARRAY);
    add(o, type, 4);
    add(o, n, 8);
}

void llm_gguf_add_u8(struct llm_gguf_out *o, uint8_t v)
{
    add(o, v, 1);
}

void llm_gguf_add_i32(struct llm_gguf_out *o, int32_t v)
{
    add(o, (uint32_t)v, 4);
}

void llm_gguf_add_f32(struct llm_gguf_out *o, float v)
{
    add(o, bits_of(v), 4);
}

void llm_gguf_out_release(struct llm_gguf_out *o)
{
    llm_buf_release(&o->values);
}

/* ---- the file ---- */

uint64_t llm_gguf_bytes(const struct llm_tensor_out *t)
{
    uint64_t count = 1;
    for (int i = 0; i < t->n_dims; i++) count *= (uint64_t)t->shape[i];
    return llm_dtype_bytes(t->dtype, count);
}

static int put_tensor(struct llm_buf *b, const struct llm_tensor_out *t, uint64_t *offset, struct llm_err *e)
{
    int type = llm_dtypes[t->dtype].ggml;
    if (type < 0) return llm_fail(e, EX_UNAVAILABLE, "tensor '%s': GGUF has no type for %s", t->name, llm_dtypes[t->dtype].name);
    if (put_text(b, t->name, strlen(t->name), e) < 0 || put_little(b, (uint64_t)t->n_dims, 4, e) < 0) return -1;
    for (int i = t->n_dims - 1; i >= 0; i--) { /* the first of the file varies fastest */
        if (put_little(b, (uint64_t)t->shape[i], 8, e) < 0) return -1;
    }
    if (put_little(b, (uint64_t)type, 4, e) < 0 || put_little(b, *offset, 8, e) < 0) return -1;
    *offset += llm_gguf_bytes(t);
    *offset += -*offset & (LLM_GGUF_ALIGNMENT - 1);
    return 0;
}

int llm_gguf_header(const struct llm_gguf_out *o, const struct llm_tensor_out *t, size_t n, struct llm_buf *out, struct llm_err *e)
{
    static const char zeros[LLM_GGUF_ALIGNMENT];
    uint64_t offset = 0;
    if (o->failed || llm_buf_put(out, "GGUF", 4, e) < 0 || put_little(out, 3, 4, e) < 0 || put_little(out, n, 8, e) < 0
        || put_little(out, o->n, 8, e) < 0 || llm_buf_put(out, o->values.p, o->values.n, e) < 0) return -1;
    for (size_t i = 0; i < n; i++) {
        if (put_tensor(out, &t[i], &offset, e) < 0) return -1;
    }
    return llm_buf_put(out, zeros, -out->n & (LLM_GGUF_ALIGNMENT - 1), e);
}

/* Writes one file with the n tensors from `first` on. */
static int write_run(struct llm_output *out, const struct llm_gguf_out *o, const struct llm_tensor_out *t, size_t first, size_t n,
                     llm_gguf_put_data put, void *arg, struct llm_err *e)
{
    static const char zeros[LLM_GGUF_ALIGNMENT];
    struct llm_buf header = {0};
    int r = llm_gguf_header(o, t + first, n, &header, e);
    if (r == 0) r = llm_output_write(out, header.p, header.n, e);
    llm_buf_release(&header);
    for (size_t i = first; i < first + n && r == 0; i++) {
        r = put(arg, i, out, e);
        if (r == 0) r = llm_output_write(out, zeros, -llm_gguf_bytes(&t[i]) & (LLM_GGUF_ALIGNMENT - 1), e);
    }
    return r;
}

int llm_gguf_write(struct llm_output *out, const struct llm_gguf_out *o, const struct llm_tensor_out *t, size_t n, llm_gguf_put_data put, void *arg,
                   struct llm_err *e)
{
    return write_run(out, o, t, 0, n, put, arg, e);
}

/* ---- several files ---- */

struct parts {
    const char *path;
    size_t prefix;                            /* bytes of `path` before ".gguf" */
    size_t n, first[LLM_GGUF_MAX_PARTS + 1];  /* first tensor of each part; first[n]: the number of tensors */
};

static int cut(struct parts *p, int64_t max_bytes, int64_t max_tensors, const struct llm_tensor_out *t, size_t n, struct llm_err *e)
{
    uint64_t bytes = 0;
    p->n = 1;
    for (size_t i = 0; i < n; i++) {
        uint64_t more = llm_gguf_bytes(&t[i]);
        size_t have = i - p->first[p->n - 1];
        bool full = (max_bytes > 0 && bytes + more > (uint64_t)max_bytes) || (max_tensors > 0 && have == (size_t)max_tensors);
        if (have > 0 && full) {
            if (p->n == LLM_GGUF_MAX_PARTS) {
                return llm_fail(e, LLM_EX_USAGE, "%s: expected at most %d parts, found more", p->path, LLM_GGUF_MAX_PARTS);
            }
            p->first[p->n++] = i;
            bytes = 0;
        }
        bytes += more;
    }
    p->first[p->n] = n;
    return 0;
}

static int write_part(const struct parts *p, size_t i, struct llm_gguf_out *o, const struct llm_tensor_out *t, llm_gguf_put_data put, void *arg,
                      struct llm_output **out, struct llm_err *e)
{
    struct llm_gguf_out rest = {.err = e}, *values = i == 0 ? o : &rest;
    struct llm_buf name = {0};
    llm_gguf_put_u16(values, "split.no", (uint16_t)i);
    llm_gguf_put_u16(values, "split.count", (uint16_t)p->n);
    llm_gguf_put_i32(values, "split.tensors.count", (int32_t)p->first[p->n]);
    int r = llm_buf_printf(&name, e, "%.*s-%05zu-of-%05zu.gguf", (int)p->prefix, p->path, i + 1, p->n);
    if (r == 0) r = llm_paths_check_part(name.p, e);
    *out = r < 0 ? NULL : llm_output_open(name.p, true, e);
    r = *out ? write_run(*out, values, t, p->first[i], p->first[i + 1] - p->first[i], put, arg, e) : -1;
    if (r == 0) r = llm_output_finish(*out, e);
    llm_buf_release(&name);
    llm_gguf_out_release(&rest);
    return r;
}

int llm_gguf_write_parts(const char *path, int64_t max_bytes, int64_t max_tensors, struct llm_gguf_out *o, const struct llm_tensor_out *t, size_t n,
                         llm_gguf_put_data put, void *arg, struct llm_err *e)
{
    struct parts p = {.path = path, .prefix = strlen(path)};
    struct llm_output *outs[LLM_GGUF_MAX_PARTS] = {NULL};
    if (p.prefix > 5 && strcmp(path + p.prefix - 5, ".gguf") == 0) p.prefix -= 5;
    int r = cut(&p, max_bytes, max_tensors, t, n, e);
    for (size_t i = 0; i < p.n && r == 0; i++) r = write_part(&p, i, o, t, put, arg, &outs[i], e);
    if (r == 0) return llm_output_commit_all(outs, p.n, e);
    for (size_t i = 0; i < p.n; i++) llm_output_abandon(outs[i]);
    return -1;
}
