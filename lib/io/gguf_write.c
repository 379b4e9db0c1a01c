#include "io/gguf_write.h"

#include <string.h>

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
    int type = llm_gguf_tensor_type(t->dtype);
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

int llm_gguf_write(struct llm_output *out, const struct llm_gguf_out *o, const struct llm_tensor_out *t, size_t n, llm_gguf_put_data put, void *arg,
                   struct llm_err *e)
{
    static const char zeros[LLM_GGUF_ALIGNMENT];
    struct llm_buf header = {0};
    int r = llm_gguf_header(o, t, n, &header, e);
    if (r == 0) r = llm_output_write(out, header.p, header.n, e);
    llm_buf_release(&header);
    for (size_t i = 0; i < n && r == 0; i++) {
        r = put(arg, i, out, e);
        if (r == 0) r = llm_output_write(out, zeros, -llm_gguf_bytes(&t[i]) & (LLM_GGUF_ALIGNMENT - 1), e);
    }
    return r;
}
