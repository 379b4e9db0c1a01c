/* Multi-token prediction (DeepSeek-V3, 2024, 2.2): for each token, its hidden state and the embedding of the next token, normed and projected
 * together, pass a layer of their own; the model's head then predicts the token after the next. Again behind that, one place further. */
#include <stdio.h>
#include "model/config/arch.h"

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

struct llm_tensor *llm_model_next(struct llm_ctx *c, struct llm_model *model, int64_t k, struct llm_tensor *hidden, const int32_t *ids,
                                  const struct llm_batch *b)
{
    const struct llm_config *f = &model->config;
    const struct llm_decoder *m = model->layout;
    const struct llm_stack *s = &m->stacks[LLM_STACK_MAIN];
    const struct llm_next *n = &m->next[k];
    c->use = (int)k + 1;
    struct llm_tensor *token = llm_embedding(c, ids, b->n_tokens, s->embed, (float)f->embedding_scale);
    c->use = 0;
    token = llm_norm_apply(c, f, &n->token_norm, token);
    hidden = llm_norm_apply(c, f, &n->hidden_norm, hidden);
    const struct llm_site site = {LLM_STACK_MAIN, s->n_layers + k, llm_watch_rows(c, b)};
    struct llm_tensor *joined = llm_visit(c, &site, LLM_PLACE_NEXT_INPUT, llm_heads_join(c, token, hidden, 1, false));
    return llm_norm_apply(c, f, &n->norm, llm_decoder_layer(c, model, b, s->n_layers + k, llm_linear(c, joined, n->join.w, NULL)));
}
