#include "io/npy.h"

#include <inttypes.h>
#include <string.h>
#include "base/buf.h"

enum { ALIGN = 64, STEP = 4096 };

static const char *descr(enum llm_dtype t)
{
    switch (t) {
    case LLM_F16: return "<f2";
    case LLM_F64: return "<f8";
    case LLM_I8: return "|i1";
    case LLM_U8: return "|u1";
    case LLM_I16: return "<i2";
    case LLM_U16: return "<u2";
    case LLM_I32: return "<i4";
    case LLM_U32: return "<u4";
    case LLM_I64: return "<i8";
    case LLM_U64: return "<u8";
    case LLM_BOOL: return "|b1";
    default: return "<f4";
    }
}

static int write_header(struct llm_output *o, const char *type, int n_dims, const int64_t *shape, struct llm_err *e)
{
    struct llm_buf b = {0};
    int bad = llm_buf_put(&b, "\x93NUMPY\x01\x00\x00", 10, e) < 0
              || llm_buf_printf(&b, e, "{'descr': '%s', 'fortran_order': False, 'shape': (", type) < 0;
    for (int i = 0; i < n_dims && !bad; i++) bad = llm_buf_printf(&b, e, "%" PRId64 ",%s", shape[i], i + 1 < n_dims ? " " : "") < 0;
    bad = bad || llm_buf_put(&b, "), }", 4, e) < 0;
    while (!bad && (b.n + 1) % ALIGN != 0) bad = llm_buf_put(&b, " ", 1, e) < 0;
    bad = bad || llm_buf_put(&b, "\n", 1, e) < 0;
    if (!bad) { /* the length of what follows it, little-endian */
        b.p[8] = (char)((b.n - 10) & 255);
        b.p[9] = (char)((b.n - 10) >> 8);
        bad = llm_output_write(o, b.p, b.n, e) < 0;
    }
    llm_buf_release(&b);
    return bad ? -1 : 0;
}

int llm_npy_write(struct llm_output *o, enum llm_dtype dtype, int n_dims, const int64_t *shape, const void *data, struct llm_err *e)
{
    const struct llm_dtype_row *row = &llm_dtypes[dtype];
    uint64_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= (uint64_t)shape[i];
    if (write_header(o, descr(dtype), n_dims, shape, e) < 0) return -1;
    if (dtype != LLM_BF16 && !row->is_quantised) return llm_output_write(o, data, llm_dtype_bytes(dtype, n), e);
    float x[STEP];
    for (uint64_t at = 0; at < n; at += STEP) {
        size_t step = n - at < STEP ? (size_t)(n - at) : STEP;
        row->decode((const char *)data + llm_dtype_bytes(dtype, at), x, step);
        if (llm_output_write(o, x, step * sizeof *x, e) < 0) return -1;
    }
    return 0;
}
