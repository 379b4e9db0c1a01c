#include "quant/open.h"

#include <stdlib.h>
#include "base/buf.h"

float *llm_param_open(struct llm_param *p, struct llm_err *e)
{
    const size_t n = (size_t)llm_param_count(p);
    llm_weight_changed(&p->weight);
    if (p->owned && p->weight.dtype == LLM_F32) return (float *)(uintptr_t)p->weight.data;
    float *out = llm_alloc_huge(n, sizeof *out, p->name, e);
    if (!out) return NULL;
    llm_dtypes[p->weight.dtype].decode(p->weight.data, out, n);
    llm_weight_release(&p->weight);
    if (p->owned) free((void *)(uintptr_t)p->weight.data);
    p->weight.data = out;
    p->weight.dtype = LLM_F32;
    p->weight.map = p->weight.map_end = NULL; /* the new data is in no file: its pages must not be released */
    p->owned = true;
    return out;
}
