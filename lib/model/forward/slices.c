/* Modules slice by slice, in tensor parallelism (model/forward/block.h). */
#include "model/forward/block.h"
#include "tensor/slices.h"

/* The module with slice j in place of each parameter that is cut. The bias of the output is added once, to the sum. */
static struct llm_module slice_of(const struct llm_module *m, int j, const struct llm_linear_params *last)
{
    struct llm_module slice = *m;
    for (size_t i = 0; i < sizeof m->p / sizeof *m->p; i++) {
        const struct llm_linear_params *p = &m->p[i];
        if (p->w && p->w->slices) slice.p[i].w = &p->w->slices->of[j];
        if (p->b && p->b->slices) slice.p[i].b = &p->b->slices->of[j];
        if (p == last) slice.p[i].b = NULL;
    }
    return slice;
}

struct llm_tensor *llm_module_slices(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x,
                                     const struct llm_linear_params *last, llm_slice_forward *forward)
{
    const struct llm_slices *s = last->w->slices;
    struct llm_tensor *in[LLM_MAX_SLICES], *out[LLM_MAX_SLICES];
    if (!s) return forward(c, m, p, x, 0, 1);
    llm_slices_enter(c, x, s, in);
    for (int j = s->first; j < s->end && !llm_ctx_failed(c); j++) {
        const struct llm_module slice = slice_of(m, j, last);
        out[j - s->first] = forward(c, &slice, p, in[j - s->first], j, s->n);
    }
    return llm_slices_sum(c, out, s, last->b);
}
