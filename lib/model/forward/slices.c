/* Modules slice by slice, in tensor parallelism (model/forward/block.h). */
#include "model/forward/block.h"
#include "tensor/slices.h"
#include "tensor/tape.h"

static struct llm_param *slice_of(struct llm_param *p, int j)
{
    return p && p->slices ? &p->slices->of[j] : p;
}

struct llm_module llm_module_slice(struct llm_ctx *c, const struct llm_module *m, int j, int64_t n_experts)
{
    struct llm_module slice = *m;
    for (size_t i = 0; i < sizeof m->p / sizeof *m->p; i++) {
        slice.p[i].w = slice_of(m->p[i].w, j);
        slice.p[i].b = slice_of(m->p[i].b, j);
    }
    if (m->experts) slice.experts = llm_op_alloc(c, 3 * n_experts, sizeof(struct llm_param *));
    for (int64_t i = 0; slice.experts && i < 3 * n_experts; i++) slice.experts[i] = slice_of(m->experts[i], j);
    return slice;
}

struct llm_tensor *llm_module_slices(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x, int last,
                                     llm_slice_forward *forward)
{
    const struct llm_slices *s = m->p[last].w->slices;
    struct llm_tensor *in[LLM_MAX_SLICES], *out[LLM_MAX_SLICES];
    if (!s) return forward(c, m, p, x, 0, 1);
    llm_slices_enter(c, x, s, in);
    for (int i = 0; i < s->end - s->first && !llm_ctx_failed(c); i++) {
        struct llm_module slice = llm_module_slice(c, m, s->first + i, 0);
        slice.p[last].b = NULL; /* it is added once, to the sum */
        out[i] = forward(c, &slice, p, in[i], s->first + i, s->n);
    }
    return llm_slices_sum(c, out, s, m->p[last].b);
}
