#include "io/idx.h"

#include <string.h>

bool llm_idx_begins(struct llm_file *f)
{
    struct llm_err e = {0};
    size_t got;
    const unsigned char *p = llm_file_peek(f, 4, &got, &e);
    return p && got == 4 && memcmp(p, "\0\0\x08", 3) == 0 && p[3] >= 1 && p[3] <= 3;
}

int llm_idx_open(struct llm_idx *x, struct llm_file *f, int n_dims, struct llm_err *e)
{
    unsigned char b[4];
    *x = (struct llm_idx){.f = f, .n_dims = n_dims};
    if (!llm_idx_begins(f)) return llm_file_bad(f, e, "expected an IDX file of bytes");
    if (llm_file_read(f, b, 4, e) < 0) return -1;
    if (b[3] != n_dims) return llm_file_bad(f, e, "expected an IDX file of %d dimensions, found %d", n_dims, b[3]);
    for (int i = 0; i < n_dims; i++) {
        if (llm_file_read(f, b, 4, e) < 0) return -1;
        x->shape[i] = (int64_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
        if (x->shape[i] < 1) return llm_file_bad(f, e, "expected sizes from 1 on, found 0");
    }
    return 0;
}

int llm_idx_end(struct llm_idx *x, struct llm_err *e)
{
    int at_end = llm_file_at_end(x->f, e);
    if (at_end == 0) return llm_file_bad(x->f, e, "bytes after the last element");
    return at_end < 0 ? -1 : 0;
}
