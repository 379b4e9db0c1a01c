/* Forward passes over batches (model/forward/forward.h): checks of the batch, then the walk. */
#include "model/forward/block.h"

/* Checks that ids and positions, which are looked up, lie within their tables. 0 or -1. */
static int check_batch(const struct llm_model *m, const struct llm_batch *b, struct llm_err *e)
{
    struct llm_config sees;
    int64_t room = b->patches && llm_config_sees(&m->config, &sees) ? sees.max_position_embeddings : m->config.max_position_embeddings;
    if (m->config.patch_size > 0 && !b->patches)
        return llm_fail(e, EX_UNAVAILABLE, "expected pictures for a vision transformer (%s), found text", m->config.model_type);
    if (!b->ids && !b->given) return llm_fail(e, LLM_EX_FAILURE, "a batch: expected ids or embeddings, found neither");
    for (int64_t t = 0; t < b->n_tokens && !b->ids; t++) {
        if (b->given_row[t] < 0) return llm_fail(e, LLM_EX_FAILURE, "a batch without ids: expected an embedding for each token, found none");
    }
    if (b->ids && llm_model_check_ids(m, b->ids, b->n_tokens, e) < 0) return -1;
    if (!llm_config_is_limited(&m->config) && !b->patches) return 0;
    for (int64_t t = 0; t < b->n_tokens; t++) {
        if (b->positions[t] < 0 || b->positions[t] >= room) {
            return llm_fail(e, EX_DATAERR, "position: expected below %lld (the model's context), found %d", (long long)room, b->positions[t]);
        }
    }
    return 0;
}

struct llm_tensor *llm_model_forward(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b)
{
    if (llm_ctx_failed(c) || check_batch(m, b, &c->err) < 0) return &c->nothing;
    if (b->seqs && llm_model_must_be_causal(m, &c->err) < 0) return &c->nothing;
    if (m->config.num_encoder_layers > 0 && !b->source && !b->memories) {
        llm_fail(&c->err, EX_UNAVAILABLE, "expected a source text for an encoder-decoder (%s), found none", m->config.model_type);
        return &c->nothing;
    }
    if (b->source && (b->source->n_tokens < 1 || check_batch(m, b->source, &c->err) < 0)) return &c->nothing;
    if (!m->arch->tables) return llm_decoder_forward(c, m, b);
    llm_fail(&c->err, EX_UNAVAILABLE, "expected a network, found %s", m->config.model_type);
    return &c->nothing;
}

bool llm_model_is_cut_off(const struct llm_ctx *c, const struct llm_model *m)
{
    return c->cut && c->cut->model == m && !c->cut->last;
}

struct llm_tensor *llm_model_encode(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b)
{
    if (m->config.num_encoder_layers == 0) return llm_model_forward(c, m, b);
    if (llm_ctx_failed(c) || check_batch(m, b, &c->err) < 0) return &c->nothing;
    return llm_decoder_encode(c, m, b);
}

void llm_model_remember(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden, const struct llm_kv_seq *seqs)
{
    const struct llm_decoder *d = m->layout;
    const struct llm_attn a = llm_cross_attn(&m->config);
    const struct llm_stack *s = &d->stacks[LLM_STACK_MAIN];
    for (int64_t l = 0; l < s->n_layers && !llm_ctx_failed(c); l++) {
        struct llm_tensor *k, *v;
        size_t mark = llm_arena_mark(&c->acts);
        const struct llm_site site = {LLM_STACK_MAIN, l, c->watch ? c->watch->memory_who : NULL};
        llm_cross_keys(c, &s->layers[l].cross, &site, hidden, &k, &v);
        llm_attention_store(c, k, v, &a, seqs + l, 1);
        llm_arena_pop(&c->acts, mark);
    }
}
