#include "quant/open.h"

#include <stdlib.h>
#include "base/buf.h"
#include "cpu/pages.h"

enum { RUN = 1 << 20 }; /* elements that are decoded before their pages are released: whole blocks of every type */

void llm_param_decode(const struct llm_param *p, float *out)
{
    const struct llm_weight *w = &p->weight;
    const uint64_t n = (uint64_t)llm_param_count(p);
    for (uint64_t at = 0, run; at < n; at += run) {
        const size_t from = llm_dtype_bytes(w->dtype, at);
        run = n - at < RUN ? n - at : RUN;
        llm_dtypes[w->dtype].decode((const char *)w->data + from, out + at, (size_t)run);
        llm_weight_release_pages(w, from, llm_dtype_bytes(w->dtype, run));
    }
}

float *llm_param_open(struct llm_param *p, struct llm_err *e)
{
    const size_t n = (size_t)llm_param_count(p);
    llm_weight_changed(&p->weight);
    if (p->owned && p->weight.dtype == LLM_F32) return (float *)(uintptr_t)p->weight.data;
    float *out = llm_alloc_huge(n, sizeof *out, p->name, e);
    if (!out) return NULL;
    llm_param_decode(p, out);
    llm_weight_release(&p->weight);
    if (p->owned) free((void *)(uintptr_t)p->weight.data);
    p->weight.data = out;
    p->weight.dtype = LLM_F32;
    p->weight.map = p->weight.map_end = NULL; /* the new data is in no file: its pages must not be released */
    p->owned = true;
    return out;
}
