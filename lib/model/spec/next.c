/* The parameters of multi-token prediction (model/forward/next.c): for each further token two norms, a projection and a layer. */
#include "model/spec/block.h"

static void declare_norm(struct llm_declare *d, struct llm_linear_params *p, enum llm_stem stem)
{
    d->unit = LLM_UNIT_NORMS;
    llm_declare_norm(d, p, stem, d->config->hidden_size, "hidden_size");
}

int llm_next_declare(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    struct llm_stack *s = &m->stacks[LLM_STACK_MAIN];
    if (!d->names->stem[LLM_STEM_NEXT_JOIN]) {
        return llm_fail(d->err, EX_UNAVAILABLE, "num_nextn_predict_layers: layers that predict more than one token have no names here (%s)",
                        c->model_type);
    }
    m->next = llm_calloc((size_t)m->n_next, sizeof *m->next, "layers", d->err);
    if (!m->next) return -1;
    for (int64_t k = 0; k < m->n_next; k++) {
        struct llm_next *n = &m->next[k];
        llm_decoder_declare_layer(d, &s->layers[s->n_layers + k], s->n_layers + k);
        declare_norm(d, &n->token_norm, LLM_STEM_NEXT_TOKEN_NORM);
        declare_norm(d, &n->hidden_norm, LLM_STEM_NEXT_HIDDEN_NORM);
        d->unit = LLM_UNIT_NEXT_TOKENS;
        llm_declare_linear(d, &n->join, LLM_STEM_NEXT_JOIN, c->hidden_size, 2 * c->hidden_size, "hidden_size, 2 hidden_size", false);
        declare_norm(d, &n->norm, LLM_STEM_NEXT_NORM);
    }
    d->layer = -1;
    return 0;
}
