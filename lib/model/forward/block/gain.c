/* What a sub-layer adds, each channel times its factor (LayerScale). */
#include "model/forward/block.h"

struct llm_tensor *llm_forward_gain(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    (void)p;
    return llm_gain(c, x, m->p[0].w);
}
