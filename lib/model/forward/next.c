/* Multi-token prediction (DeepSeek-V3, 2024, 2.2): for each token, its hidden state and the embedding of the next token, normed and projected
 * together, pass a layer of their own; the model's head then predicts the token after the next. A second module does the same one position further,
 * and so on. */
#include "model/forward/block.h"

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
