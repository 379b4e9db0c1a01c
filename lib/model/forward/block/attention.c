/* The attention block, with separate or fused projections. The number of key/value heads makes it multi-head, grouped-query or multi-query
 * attention. */
#include "model/forward/block.h"
#include "tensor/sequence.h"
#include "tensor/tape.h"

static struct llm_tensor *head_norm(struct llm_ctx *c, const struct llm_config *f, struct llm_param *gain, struct llm_tensor *x, int64_t width)
{
    int64_t group = f->qk_norm == LLM_QK_NORM_HEAD ? f->head_dim : width;
    return llm_rmsnorm(c, x, gain, (float)f->norm_eps, (float)f->norm_gain_offset, group);
}

/* Whether the position of some token lies after the first chunk. Within the first chunk dual chunk attention has the bits of plain attention, which
 * is then used. If somebody watches a pass with a cache it is not: all places of dual chunk attention are seen. */
static bool goes_beyond(const struct llm_ctx *c, const struct llm_pass *p)
{
    const struct llm_config *f = p->config;
    bool beyond = c->watch && p->batch->seqs;
    if (f->dual_chunk_size == 0 || !p->rope) return false;
    for (int64_t t = 0; t < p->batch->n_tokens; t++) beyond |= p->batch->positions[t] >= f->dual_chunk_size - f->dual_chunk_local;
    return beyond;
}

/* Dual chunk attention (An et al. 2024, 2.2 to 2.4): rotates the queries for the three kinds of keys, and the keys by their positions in their
 * chunks. */
static struct llm_tensor *chunked(struct llm_ctx *c, const struct llm_pass *p, const struct llm_attn *a, struct llm_tensor *q, struct llm_tensor *k,
                                  struct llm_tensor *v)
{
    const struct llm_config *f = p->config;
    const struct llm_batch *b = p->batch;
    int64_t size = f->dual_chunk_size, chunk = size - f->dual_chunk_local;
    int32_t *own = llm_op_alloc(c, b->n_tokens, sizeof *own), *before = llm_op_alloc(c, b->n_tokens, sizeof *own);
    int32_t *earlier = llm_op_alloc(c, b->n_tokens, sizeof *own);
    if (llm_ctx_failed(c)) return &c->nothing;
    for (int64_t t = 0; t < b->n_tokens; t++) {
        int64_t place = b->positions[t] % chunk;
        own[t] = (int32_t)place;
        before[t] = (int32_t)(place + chunk < size ? place + chunk : size - 1);
        earlier[t] = (int32_t)(size - 1);
    }
    struct llm_attn part = *a;
    part.chunk = chunk;
    struct llm_tensor *const rotated[3] = {llm_visit(c, &p->site, LLM_PLACE_ATTENTION_Q_ROTATED, llm_rope(c, q, own, p->rope)),
                                           llm_visit(c, &p->site, LLM_PLACE_ATTENTION_Q_PREVIOUS, llm_rope(c, q, before, p->rope)),
                                           llm_visit(c, &p->site, LLM_PLACE_ATTENTION_Q_EARLIER, llm_rope(c, q, earlier, p->rope))};
    k = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_K_ROTATED, llm_rope(c, k, own, p->rope));
    return llm_attention_chunks(c, rotated, k, v, &part, b->seqs ? b->seqs + p->layer * b->n_seqs : NULL, b->n_seqs);
}

/* Block-local attention: `a` with each block of tokens, counted from the text's beginning, as a document of its own. */
static struct llm_attn within_blocks(struct llm_ctx *c, const struct llm_pass *p, const struct llm_attn *a)
{
    const struct llm_batch *b = p->batch;
    struct llm_attn part = *a;
    int64_t block = llm_config_block(p->config, p->layer), row_len = llm_row_len(c, b->n_tokens);
    if (block == 0 || b->seqs) return part;
    int32_t *starts = llm_op_alloc(c, b->n_tokens, sizeof *starts);
    for (int64_t t = 0; t < b->n_tokens && starts; t++) starts[t] = (int32_t)(t % row_len - b->positions[t] % block);
    part.doc_start = starts;
    return part;
}

/* Queries or keys after rotation. */
static struct llm_tensor *rotated(struct llm_ctx *c, const struct llm_pass *p, enum llm_place_kind kind, struct llm_tensor *x)
{
    return llm_visit(c, &p->site, kind, llm_rope(c, x, p->batch->positions, p->rope));
}

/* Attention by the heads of slice j of n, or by all (0 of 1), and their part of the output projection with the bias. */
static struct llm_tensor *attend(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x, int64_t j, int64_t n)
{
    const struct llm_config *f = p->config;
    const struct llm_batch *b = p->batch;
    const int64_t heads = f->num_attention_heads / n, kv_heads = f->num_key_value_heads / n, n_q = heads * f->head_dim, n_kv = kv_heads * f->head_dim;
    struct llm_tensor *q, *k = NULL, *v = NULL;
    bool makes = llm_attention_makes_keys(f, p->layer);
    if (m->p[LLM_ATTENTION_QKV].w) {
        struct llm_tensor *qkv = llm_linear(c, x, m->p[LLM_ATTENTION_QKV].w, m->p[LLM_ATTENTION_QKV].b);
        q = llm_columns(c, qkv, 0, n_q);
        k = llm_columns(c, qkv, n_q, n_kv);
        v = llm_columns(c, qkv, n_q + n_kv, n_kv);
    } else {
        struct llm_tensor *y[3] = {NULL};
        llm_linears(c, x, makes ? 3 : 1, (struct llm_param *[]){m->p[LLM_ATTENTION_Q].w, m->p[LLM_ATTENTION_K].w, m->p[LLM_ATTENTION_V].w},
                    (struct llm_param *[]){m->p[LLM_ATTENTION_Q].b, m->p[LLM_ATTENTION_K].b, m->p[LLM_ATTENTION_V].b}, y);
        q = y[0];
        k = y[1];
        v = y[2];
    }
    if (f->qk_norm == LLM_QK_NORM_EACH) {
        q = llm_groupnorm_each(c, q, m->head_gains, f->num_attention_heads, (float)f->norm_eps);
        k = llm_groupnorm_each(c, k, m->head_gains + f->num_attention_heads, f->num_key_value_heads, (float)f->norm_eps);
    } else if (f->qk_norm != LLM_QK_NORM_NONE) {
        q = head_norm(c, f, m->p[LLM_ATTENTION_Q_NORM].w, q, n_q);
        if (makes) k = head_norm(c, f, m->p[LLM_ATTENTION_K_NORM].w, k, n_kv);
    }
    q = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_Q, q);
    if (makes) {
        k = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_K, k);
        v = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_V, v);
    }
    bool chunks = goes_beyond(c, p);
    if (p->rope && !chunks) {
        q = rotated(c, p, LLM_PLACE_ATTENTION_Q_ROTATED, q);
        if (makes) k = rotated(c, p, LLM_PLACE_ATTENTION_K_ROTATED, k);
    }
    if (makes) {
        *p->shared = (struct llm_shared_kv){k, v};
    } else if (!b->seqs) {
        k = p->shared->k;
        v = p->shared->v;
    }
    const struct llm_attn a = {.n_heads = heads, .n_kv_heads = kv_heads, .d_k = f->head_dim, .d_v = f->head_dim,
                               .scale = (float)llm_config_attention_scale(f, p->layer), .causal = !p->bidirectional,
                               .window = llm_config_window(f, p->layer),
                               .softcap = (float)f->attn_logit_softcapping, .doc_start = b->doc_start, .prefixes = b->prefixes,
                               .sinks = m->p[LLM_ATTENTION_SINKS].w,
                               .kv_len = b->lengths, .rel_bias = p->rel_bias, .rel_map = p->rel_map, .rel_max = f->rel_max_distance + 1,
                               .rel_buckets = f->rel_buckets, .rel_use = p->layer,
                               .dropout = c->training ? (float)f->attn_pdrop : 0, .first_head = j * heads};
    const struct llm_attn blocks = within_blocks(c, p, &a);
    struct llm_tensor *y;
    if (!chunks) llm_panels_for(c, 1, &m->p[LLM_ATTENTION_OUT].w);
    if (llm_config_block(f, p->layer) > 0 && b->seqs) y = llm_latents_attend(c, p, q, k, v, &a);
    else if (llm_config_block(f, p->layer) > 0) y = llm_attention(c, q, k, v, &blocks, NULL);
    else if (chunks) y = chunked(c, p, &a, q, k, v);
    else if (b->seqs) y = llm_attention_cached(c, q, k, v, &a, b->seqs + p->layer * b->n_seqs, b->n_seqs);
    else y = llm_attention_of_parts(c, q, k, v, &a);
    c->to_panels = false;
    y = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_HEADS, y);
    return llm_linear(c, y, m->p[LLM_ATTENTION_OUT].w, m->p[LLM_ATTENTION_OUT].b);
}

struct llm_tensor *llm_forward_attention(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    return llm_module_slices(c, m, p, x, LLM_ATTENTION_OUT, attend);
}
