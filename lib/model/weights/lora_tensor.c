/* The tensors of an adapter's file, of every format. */
#include <stdlib.h>
#include "model/weights/lora_internal.h"

int llm_lora_read(struct llm_checkpoint *f, const struct llm_entry *t, int n_dims, const int64_t *shape, float *out, struct llm_err *e)
{
    const struct llm_dtype_row *row = &llm_dtypes[t->dtype];
    uint64_t n = 1;
    bool same = t->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++) {
        same = t->shape[i] == shape[i];
        n *= (uint64_t)shape[i];
    }
    if (!same) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected [%lld%s%lld%s], found %d dimensions, [%lld%s%lld]", t->name, (long long)shape[0],
                        n_dims > 1 ? ", " : "", n_dims > 1 ? (long long)shape[1] : 0LL, n_dims > 2 ? ", …" : "", t->n_dims,
                        t->n_dims > 0 ? (long long)t->shape[0] : 0LL, t->n_dims > 1 ? ", " : "", t->n_dims > 1 ? (long long)t->shape[1] : 0LL);
    }
    if (!row->is_float) return llm_fail(e, EX_DATAERR, "tensor '%s': expected floating point, found %s", t->name, row->name);
    if (t->dtype == LLM_F32) return llm_checkpoint_read(f, t, out, e);
    void *raw = llm_alloc(llm_dtype_bytes(t->dtype, n), 1, t->name, e);
    int r = raw ? llm_checkpoint_read(f, t, raw, e) : -1;
    if (r == 0) row->decode(raw, out, (size_t)n);
    free(raw);
    return r;
}
