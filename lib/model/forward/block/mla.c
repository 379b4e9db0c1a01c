/* Multi-head latent attention, MLA (DeepSeek-V2, 2024, 2.1). The keys and values of all heads are computed from one latent vector per token; a few
 * separate channels of the key are rotated by RoPE. Training computes keys and values. Decoding caches only the latent vector and the rotated
 * channels: the matrices that would make keys and values are multiplied into queries and outputs ("absorbed"), which is the same product in another
 * order. */
#include <math.h>
#include <stdlib.h>
#include "model/forward/block.h"
#include "model/weights/names.h"
#include "tensor/sequence.h"
#include "tensor/slices.h"

#define NORM_EPS 1e-6 /* DeepSeek's models use this for the norms of latent vectors, not rms_norm_eps */

/* The rows of W_KV_B that make head h's values, of dtype *type: in the matrix itself or, if it has an adapter, in a->values with the adapter added.
 * NULL: memory is short. */
static const void *value_rows(struct llm_absorbed *a, const struct llm_config *c, const struct llm_param *p, int64_t h, enum llm_dtype *type,
                              struct llm_err *e)
{
    int64_t rank = c->kv_lora_rank, nope = c->qk_nope_head_dim, wide = nope + c->v_head_dim, size = c->v_head_dim * rank;
    *type = p->adapter ? LLM_F32 : p->weight.dtype;
    if (!p->adapter) return (const char *)p->weight.data + llm_dtype_bytes(p->weight.dtype, (uint64_t)((h * wide + nope) * rank));
    if (!a->values) a->values = llm_alloc((size_t)(a->n_heads * size), sizeof *a->values, "weights of latent attention", e);
    for (int64_t r = 0; a->values && r < c->v_head_dim; r++) llm_adapter_decode(p, h * wide + nope + r, a->values + h * size + r * rank);
    return a->values ? a->values + h * size : NULL;
}

/* Makes the absorbed matrices from W_KV_B, whose rows are ordered by head: qk_nope_head_dim for keys, then v_head_dim for values. 0 or -1. */
static int absorb(struct llm_absorbed *a, const struct llm_config *c, const struct llm_param *p, enum llm_compute compute, struct llm_err *e)
{
    int64_t rank = c->kv_lora_rank, nope = c->qk_nope_head_dim, wide = nope + c->v_head_dim;
    float *keys = llm_alloc((size_t)(nope * rank), sizeof *keys, "weights of latent attention", e);
    if (!keys) return -1;
    for (int64_t h = 0; h < a->n_heads; h++) {
        enum llm_dtype type;
        const void *values = value_rows(a, c, p, h, &type, e);
        if (!values) break;
        for (int64_t r = 0; r < nope; r++) llm_adapter_decode(p, h * wide + r, keys + r * rank);
        llm_weight_release(&a->query[h]); /* of weights that have changed */
        llm_weight_release(&a->value[h]);
        free(a->transposed[h]);
        a->transposed[h] = llm_transposed(keys, sizeof *keys, nope, rank, e);
        a->query[h] = (struct llm_weight){.data = a->transposed[h], .dtype = LLM_F32, .n = rank, .k = nope};
        a->value[h] = (struct llm_weight){.data = values, .dtype = type, .n = c->v_head_dim, .k = rank};
        if (!a->transposed[h] || llm_weight_pack(&a->query[h], compute, false, e) < 0 || llm_weight_pack(&a->value[h], compute, false, e) < 0) break;
        a->made = h == a->n_heads - 1;
    }
    free(keys);
    return a->made ? 0 : -1;
}

/* What the heads' queries are computed from: the module's input, or its latent vector. */
static struct llm_tensor *query_input(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    if (f->q_lora_rank == 0) return x;
    struct llm_tensor *low = llm_linear(c, x, m->p[LLM_MLA_Q_A].w, m->p[LLM_MLA_Q_A].b);
    low = llm_rmsnorm(c, low, m->p[LLM_MLA_Q_A_NORM].w, (float)NORM_EPS, 0, f->q_lora_rank);
    return llm_visit(c, &p->site, LLM_PLACE_ATTENTION_Q_LATENT, low);
}

static struct llm_tensor *queries(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    struct llm_rope rope = *p->rope;
    rope.head_dim = f->qk_nope_head_dim + f->qk_rope_head_dim;
    rope.first = f->qk_nope_head_dim;
    x = llm_linear(c, x, m->p[f->q_lora_rank > 0 ? LLM_MLA_Q_B : LLM_MLA_Q].w, NULL);
    x = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_Q, x);
    return llm_visit(c, &p->site, LLM_PLACE_ATTENTION_Q_ROTATED, llm_rope(c, x, p->batch->positions, &rope));
}

/* A run of heads: those of slice j of n, or all. */
struct heads { int64_t first, n; };

static struct llm_attn attention_of(struct llm_ctx *c, const struct llm_pass *p, const struct heads *h)
{
    const struct llm_config *f = p->config;
    return (struct llm_attn){.n_heads = h->n, .n_kv_heads = h->n,
                             .d_k = f->qk_nope_head_dim + f->qk_rope_head_dim, .d_v = f->v_head_dim, .causal = true,
                             .scale = (float)llm_config_attention_scale(f, p->layer), .window = llm_config_window(f, p->layer),
                             .doc_start = p->batch->doc_start, .prefixes = p->batch->prefixes,
                             .dropout = c->training ? (float)f->attn_pdrop : 0, .first_head = h->first};
}

/* Attention with keys and values computed for each token, for training. */
static struct llm_tensor *expanded(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *q,
                                   struct llm_tensor *latent, struct llm_tensor *rotated, const struct heads *h)
{
    const struct llm_config *f = p->config;
    int64_t n = h->n;
    const struct llm_attn a = attention_of(c, p, h);
    struct llm_tensor *kv = llm_linear(c, latent, m->p[LLM_MLA_KV_B].w, NULL);
    struct llm_tensor *k = llm_heads_join(c, llm_heads_part(c, kv, n, 0, f->qk_nope_head_dim), rotated, n, true);
    struct llm_tensor *v = llm_heads_part(c, kv, n, f->qk_nope_head_dim, f->v_head_dim);
    k = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_K_HEADS, k);
    v = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_V_HEADS, v);
    llm_panels_for(c, 1, &m->p[LLM_MLA_OUT].w);
    struct llm_tensor *y = llm_attention_of_parts(c, q, k, v, &a);
    c->to_panels = false;
    return y;
}

/* Attention with absorbed matrices, for decoding: all heads share one key of kv_lora_rank + qk_rope_head_dim channels, whose first kv_lora_rank are
 * also the value. */
static struct llm_tensor *absorbing(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *q,
                                    struct llm_tensor *latent, struct llm_tensor *rotated, const struct heads *h)
{
    const struct llm_config *f = p->config;
    const struct llm_batch *b = p->batch;
    int64_t n = h->n, rank = f->kv_lora_rank;
    struct llm_attn a = attention_of(c, p, h);
    if (llm_ctx_failed(c) || (!m->absorbed->made && absorb(m->absorbed, f, m->p[LLM_MLA_KV_B].w, c->compute, &c->err) < 0)) return &c->nothing;
    a.n_kv_heads = 1;
    a.d_k = rank + f->qk_rope_head_dim;
    a.d_v = rank;
    struct llm_tensor *still = llm_heads_linear(c, llm_heads_part(c, q, n, 0, f->qk_nope_head_dim), m->absorbed->query, n);
    q = llm_heads_join(c, still, llm_heads_part(c, q, n, f->qk_nope_head_dim, f->qk_rope_head_dim), n, false);
    struct llm_tensor *k = llm_heads_join(c, latent, rotated, 1, false);
    struct llm_tensor *y = llm_attention_cached(c, q, k, llm_columns(c, k, 0, rank), &a, b->seqs + p->layer * b->n_seqs, b->n_seqs);
    return llm_heads_linear(c, y, m->absorbed->value, n);
}

/* What attention by these heads adds to the module's output, with the bias of the projection if `m` has one. */
static struct llm_tensor *attend(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *q,
                                 struct llm_tensor *latent, struct llm_tensor *rotated, const struct heads *h)
{
    struct llm_tensor *y = (p->batch->seqs ? absorbing : expanded)(c, m, p, q, latent, rotated, h);
    y = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_HEADS, y);
    return llm_linear(c, y, m->p[LLM_MLA_OUT].w, m->p[LLM_MLA_OUT].b);
}

/* Slice by slice. The latent vectors and the rotated channels, which all heads read, are whole. */
static struct llm_tensor *attend_slices(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x,
                                        struct llm_tensor *latent, struct llm_tensor *rotated)
{
    const struct llm_slices *s = m->p[LLM_MLA_OUT].w->slices;
    struct llm_tensor *in[LLM_MAX_SLICES], *latents[LLM_MAX_SLICES], *keys[LLM_MAX_SLICES], *out[LLM_MAX_SLICES];
    llm_slices_enter(c, x, s, in);
    llm_slices_enter(c, latent, s, latents);
    llm_slices_enter(c, rotated, s, keys);
    for (int i = 0; i < s->end - s->first && !llm_ctx_failed(c); i++) {
        const int64_t n = p->config->num_attention_heads / s->n;
        struct llm_module slice = llm_module_slice(c, m, s->first + i, 0);
        slice.p[LLM_MLA_OUT].b = NULL; /* it is added once, to the sum */
        out[i] = attend(c, &slice, p, queries(c, &slice, p, in[i]), latents[i], keys[i], &(struct heads){(s->first + i) * n, n});
    }
    return llm_slices_sum(c, out, s, m->p[LLM_MLA_OUT].b);
}

struct llm_tensor *llm_forward_mla(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    const bool whole = !m->p[LLM_MLA_OUT].w->slices;
    struct llm_rope rope = *p->rope;
    rope.head_dim = f->qk_rope_head_dim;
    struct llm_tensor *from = query_input(c, m, p, x), *q = whole ? queries(c, m, p, from) : NULL;
    struct llm_tensor *low = llm_linear(c, x, m->p[LLM_MLA_KV_A].w, m->p[LLM_MLA_KV_A].b);
    struct llm_tensor *latent = llm_rmsnorm(c, llm_columns(c, low, 0, f->kv_lora_rank), m->p[LLM_MLA_KV_A_NORM].w, (float)NORM_EPS, 0,
                                            f->kv_lora_rank);
    latent = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_KV_LATENT, latent);
    struct llm_tensor *rotated = llm_rope(c, llm_columns(c, low, f->kv_lora_rank, f->qk_rope_head_dim), p->batch->positions, &rope);
    rotated = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_K_ROTATED, rotated);
    if (!whole) return attend_slices(c, m, p, from, latent, rotated);
    return attend(c, m, p, q, latent, rotated, &(struct heads){0, f->num_attention_heads});
}
