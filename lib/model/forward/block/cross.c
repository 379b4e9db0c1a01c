/* Cross-attention: queries from the decoder's tokens, keys and values from the encoder's output. */
#include "model/config/arch.h"

enum { Q, K, V, OUT };

static void declare(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    llm_declare_linear(d, &m->p[Q], LLM_STEM_CROSS_Q, q, c->hidden_size, "num_attention_heads * head_dim, hidden_size", c->attention_bias);
    llm_declare_linear(d, &m->p[K], LLM_STEM_CROSS_K, kv, c->hidden_size, "num_key_value_heads * head_dim, hidden_size", c->attention_bias);
    llm_declare_linear(d, &m->p[V], LLM_STEM_CROSS_V, kv, c->hidden_size, "num_key_value_heads * head_dim, hidden_size", c->attention_bias);
    llm_declare_linear(d, &m->p[OUT], LLM_STEM_CROSS_OUT, c->hidden_size, q, "hidden_size, num_attention_heads * head_dim", c->attention_out_bias);
}

void llm_cross_keys(struct llm_ctx *c, const struct llm_module *m, const struct llm_site *site, struct llm_tensor *memory, struct llm_tensor **k,
                    struct llm_tensor **v)
{
    *k = llm_visit(c, site, LLM_PLACE_CROSS_K, llm_linear(c, memory, m->p[K].w, m->p[K].b));
    *v = llm_visit(c, site, LLM_PLACE_CROSS_V, llm_linear(c, memory, m->p[V].w, m->p[V].b));
}

struct llm_attn llm_cross_attn(const struct llm_config *f)
{
    return (struct llm_attn){.n_heads = f->num_attention_heads, .n_kv_heads = f->num_key_value_heads, .d_k = f->head_dim, .d_v = f->head_dim,
                             .scale = (float)llm_config_attention_scale(f, 0), .softcap = (float)f->attn_logit_softcapping};
}

static struct llm_tensor *forward(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_batch *b = p->batch;
    struct llm_attn a = llm_cross_attn(p->config);
    struct llm_tensor *q = llm_visit(c, &p->site, LLM_PLACE_CROSS_Q, llm_linear(c, x, m->p[Q].w, m->p[Q].b)), *k, *v, *y;
    if (b->memories) {
        y = llm_attention_cached(c, q, NULL, NULL, &a, b->memories + p->layer * b->n_seqs, b->n_seqs);
    } else {
        llm_cross_keys(c, m, &p->memory_site, p->memory, &k, &v);
        a.kv_row_len = c->n_rows > 0 ? p->memory->rows / c->n_rows : p->memory->rows;
        a.kv_len = p->memory_len;
        a.dropout = c->training ? (float)p->config->attn_pdrop : 0;
        y = llm_attention(c, q, k, v, &a, NULL);
    }
    y = llm_visit(c, &p->site, LLM_PLACE_CROSS_HEADS, y);
    return llm_linear(c, y, m->p[OUT].w, m->p[OUT].b);
}

/* FLOPs per token of the scores and of the weighted sum of values, for a source of `context` tokens. */
static double extra_flops(const struct llm_config *c, int64_t layer, int64_t context)
{
    int64_t queries = llm_config_learns_latents(c) && context > 0 ? c->num_latents : context; /* the queries are the latents */
    (void)layer;
    return 4.0 * (double)(c->num_attention_heads * c->head_dim) * (double)queries;
}

static uint64_t places(const struct llm_config *c, int64_t layer)
{
    (void)c, (void)layer;
    return LLM_PLACE_BIT(CROSS_Q) | LLM_PLACE_BIT(CROSS_K) | LLM_PLACE_BIT(CROSS_V) | LLM_PLACE_BIT(CROSS_HEADS);
}

const struct llm_module_kind llm_module_cross = {
    .input = LLM_PLACE_CROSS_INPUT, .output = LLM_PLACE_CROSS_OUTPUT, .places = places,
    .unit = LLM_UNIT_CROSS_ATTENTION, .declare = declare, .forward = forward, .extra_flops = extra_flops};
