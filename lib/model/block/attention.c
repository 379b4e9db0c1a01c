/* Attention with separate or fused projections; multi-query and grouped-query by the number of key/value heads. */
#include <math.h>
#include "model/block.h"

enum { Q, K, V, OUT, QKV };

static void declare(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    if (d->names->stem[LLM_STEM_QKV]) {
        llm_declare_linear(d, &m->p[QKV], LLM_STEM_QKV, q + 2 * kv, c->hidden_size, "3 hidden_size, hidden_size", c->attention_bias);
    } else {
        llm_declare_linear(d, &m->p[Q], LLM_STEM_Q, q, c->hidden_size, "num_attention_heads * head_dim, hidden_size", c->attention_bias);
        llm_declare_linear(d, &m->p[K], LLM_STEM_K, kv, c->hidden_size, "num_key_value_heads * head_dim, hidden_size", c->attention_bias);
        llm_declare_linear(d, &m->p[V], LLM_STEM_V, kv, c->hidden_size, "num_key_value_heads * head_dim, hidden_size", c->attention_bias);
    }
    llm_declare_linear(d, &m->p[OUT], LLM_STEM_OUT, c->hidden_size, q, "hidden_size, num_attention_heads * head_dim", c->attention_bias);
}

static struct llm_tensor *forward(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    const struct llm_batch *b = p->batch;
    int64_t n_q = f->num_attention_heads * f->head_dim, n_kv = f->num_key_value_heads * f->head_dim;
    struct llm_tensor *q, *k, *v;
    if (m->p[QKV].w) {
        struct llm_tensor *qkv = llm_linear(c, x, m->p[QKV].w, m->p[QKV].b);
        q = llm_columns(c, qkv, 0, n_q);
        k = llm_columns(c, qkv, n_q, n_kv);
        v = llm_columns(c, qkv, n_q + n_kv, n_kv);
    } else {
        q = llm_linear(c, x, m->p[Q].w, m->p[Q].b);
        k = llm_linear(c, x, m->p[K].w, m->p[K].b);
        v = llm_linear(c, x, m->p[V].w, m->p[V].b);
    }
    if (f->position == LLM_POSITION_ROPE) {
        const struct llm_rope rope = {.head_dim = f->head_dim, .rotary_dim = f->head_dim, .pairing = f->rope_pairing, .inv_freq = p->inv_freq,
                                      .magnitude = 1};
        q = llm_rope(c, q, b->positions, &rope);
        k = llm_rope(c, k, b->positions, &rope);
    }
    const struct llm_attn a = {.n_heads = f->num_attention_heads, .n_kv_heads = f->num_key_value_heads, .d_k = f->head_dim, .d_v = f->head_dim,
                               .scale = (float)(1 / sqrt((double)f->head_dim)), .causal = true, .window = f->sliding_window,
                               .doc_start = b->doc_start, .dropout = c->training ? (float)f->attn_pdrop : 0};
    struct llm_tensor *y = b->seqs ? llm_attention_cached(c, q, k, v, &a, b->seqs + p->layer * b->n_seqs, b->n_seqs)
                                   : llm_attention(c, q, k, v, &a, NULL);
    return llm_linear(c, y, m->p[OUT].w, m->p[OUT].b);
}

/* Scores and the weighted sum of values: 2 FLOPs for each of d_k and d_v, head and token in sight. */
static double extra_flops(const struct llm_config *c, int64_t context)
{
    int64_t seen = c->sliding_window > 0 && c->sliding_window < context ? c->sliding_window : context;
    return 4.0 * (double)(c->num_attention_heads * c->head_dim) * (double)seen;
}

const struct llm_module_kind llm_module_attention = {.name = "attention", .declare = declare, .forward = forward, .extra_flops = extra_flops};
