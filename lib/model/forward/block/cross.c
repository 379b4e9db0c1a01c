/* Cross-attention: queries from the decoder's tokens, keys and values from the encoder's output. */
#include "model/forward/block.h"

void llm_cross_keys(struct llm_ctx *c, const struct llm_module *m, const struct llm_site *site, struct llm_tensor *memory, struct llm_tensor **k,
                    struct llm_tensor **v)
{
    *k = llm_visit(c, site, LLM_PLACE_CROSS_K, llm_linear(c, memory, m->p[LLM_CROSS_K].w, m->p[LLM_CROSS_K].b));
    *v = llm_visit(c, site, LLM_PLACE_CROSS_V, llm_linear(c, memory, m->p[LLM_CROSS_V].w, m->p[LLM_CROSS_V].b));
}

struct llm_attn llm_cross_attn(const struct llm_config *f)
{
    return (struct llm_attn){.n_heads = f->num_attention_heads, .n_kv_heads = f->num_key_value_heads, .d_k = f->head_dim, .d_v = f->head_dim,
                             .scale = (float)llm_config_attention_scale(f, 0), .softcap = (float)f->attn_logit_softcapping};
}

struct llm_tensor *llm_forward_cross(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_batch *b = p->batch;
    struct llm_attn a = llm_cross_attn(p->config);
    struct llm_tensor *q = llm_visit(c, &p->site, LLM_PLACE_CROSS_Q, llm_linear(c, x, m->p[LLM_CROSS_Q].w, m->p[LLM_CROSS_Q].b)), *k, *v, *y;
    llm_panels_for(c, 1, &m->p[LLM_CROSS_OUT].w);
    if (b->memories) {
        y = llm_attention_cached(c, q, NULL, NULL, &a, b->memories + p->layer * b->n_seqs, b->n_seqs);
    } else {
        llm_cross_keys(c, m, &p->memory_site, p->memory, &k, &v);
        a.kv_row_len = c->n_rows > 0 ? p->memory->rows / c->n_rows : p->memory->rows;
        a.kv_len = p->memory_len;
        a.dropout = c->training ? (float)p->config->attn_pdrop : 0;
        y = llm_attention(c, q, k, v, &a, NULL);
    }
    c->to_panels = false;
    y = llm_visit(c, &p->site, LLM_PLACE_CROSS_HEADS, y);
    return llm_linear(c, y, m->p[LLM_CROSS_OUT].w, m->p[LLM_CROSS_OUT].b);
}
