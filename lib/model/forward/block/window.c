/* Feed-forward language models: the concatenated embeddings of the last few tokens pass through hidden layers. With direct connections (Bengio et al.
 * 2003) the head sees these embeddings in addition to the last hidden layer. */
#include "model/forward/block.h"

struct llm_tensor *llm_forward_window(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    bool direct = f->direct_connections && p->layer == f->num_hidden_layers - 1;
    if (p->layer == 0) {
        int64_t n;
        const struct llm_segment *segments = llm_pass_segments(c, p, 0, &n);
        x = llm_window(c, x, f->context_window, segments, n);
    }
    x = llm_visit(c, &p->site, LLM_PLACE_MIXER_INPUT, x);
    struct llm_tensor *y = llm_activation(c, llm_linear(c, x, m->p[0].w, m->p[0].b), f->act);
    return direct ? llm_heads_join(c, y, x, 1, false) : y;
}
