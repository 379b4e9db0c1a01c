/* The attention block, with separate or fused projections. The number of key/value heads makes it multi-head, grouped-query or multi-query
 * attention. */
#include "model/config/arch.h"
#include "tensor/tape.h"

enum { Q, K, V, OUT, QKV, Q_NORM, K_NORM, SINKS };

static void declare_norm(struct llm_declare *d, struct llm_linear_params *p, enum llm_stem stem, int64_t n_heads)
{
    const struct llm_config *c = d->config;
    if (c->qk_norm == LLM_QK_NORM_NONE) return;
    if (c->qk_norm == LLM_QK_NORM_HEAD) llm_declare_norm(d, p, stem, c->head_dim, "head_dim");
    else llm_declare_norm(d, p, stem, n_heads * c->head_dim, "heads * head_dim");
}

/* LLM_QK_NORM_EACH: declares one gain per head, for all heads of queries, then of keys. */
static void declare_head_gains(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t q = c->num_attention_heads, n = q + c->num_key_value_heads;
    m->head_gains = llm_calloc((size_t)n, sizeof *m->head_gains, "norms of heads", d->err);
    d->failed |= !m->head_gains;
    for (int64_t i = 0; i < n && !d->failed; i++) {
        if (i < q) llm_declare_head_gain(d, &m->head_gains[i], LLM_STEM_Q_NORM, i, q);
        else llm_declare_head_gain(d, &m->head_gains[i], LLM_STEM_K_NORM, i - q, n - q);
    }
}

/* Cross-layer attention (Brandon et al. 2024): whether the layer computes keys and values. Of kv_sharing consecutive layers only the first does. */
static bool makes_keys(const struct llm_config *c, int64_t layer) { return layer % c->kv_sharing == 0; }

static void declare(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    if (d->arch->names.stem[LLM_STEM_QKV]) {
        llm_declare_linear(d, &m->p[QKV], LLM_STEM_QKV, q + 2 * kv, c->hidden_size,
                           "(num_attention_heads + 2 num_key_value_heads) * head_dim, hidden_size", c->attention_bias);
        llm_declare_parts(d, q, kv, kv);
    } else {
        llm_declare_linear(d, &m->p[Q], LLM_STEM_Q, q, c->hidden_size, "num_attention_heads * head_dim, hidden_size", c->attention_bias);
        if (makes_keys(c, d->layer)) {
            llm_declare_linear(d, &m->p[K], LLM_STEM_K, kv, c->hidden_size, "num_key_value_heads * head_dim, hidden_size", c->attention_bias);
            llm_declare_linear(d, &m->p[V], LLM_STEM_V, kv, c->hidden_size, "num_key_value_heads * head_dim, hidden_size", c->attention_bias);
        }
    }
    llm_declare_linear(d, &m->p[OUT], LLM_STEM_OUT, c->hidden_size, q, "hidden_size, num_attention_heads * head_dim", c->attention_out_bias);
    if (c->qk_norm == LLM_QK_NORM_EACH) declare_head_gains(d, m);
    else declare_norm(d, &m->p[Q_NORM], LLM_STEM_Q_NORM, c->num_attention_heads);
    if (c->qk_norm != LLM_QK_NORM_EACH && makes_keys(c, d->layer)) declare_norm(d, &m->p[K_NORM], LLM_STEM_K_NORM, c->num_key_value_heads);
    if (c->attention_sinks) llm_declare_vector(d, &m->p[SINKS].w, LLM_STEM_SINKS, c->num_attention_heads, "num_attention_heads", false);
}

static struct llm_tensor *head_norm(struct llm_ctx *c, const struct llm_config *f, struct llm_param *gain, struct llm_tensor *x, int64_t width)
{
    int64_t group = f->qk_norm == LLM_QK_NORM_HEAD ? f->head_dim : width;
    return llm_rmsnorm(c, x, gain, (float)f->norm_eps, (float)f->norm_gain_offset, group);
}

/* Whether the position of some token lies after the first chunk. Within the first chunk dual chunk attention has the bits of plain attention. */
static bool goes_beyond(const struct llm_pass *p)
{
    const struct llm_config *f = p->config;
    bool beyond = false;
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
    struct llm_tensor *const rotated[3] = {llm_rope(c, q, own, p->rope), llm_rope(c, q, before, p->rope), llm_rope(c, q, earlier, p->rope)};
    return llm_attention_chunks(c, rotated, llm_rope(c, k, own, p->rope), v, &part, b->seqs ? b->seqs + p->layer * b->n_seqs : NULL, b->n_seqs);
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

/* Queries or keys after rotation. With dual chunk attention a query has several rotations: none of them has a place. */
static struct llm_tensor *rotated(struct llm_ctx *c, const struct llm_pass *p, enum llm_place_kind kind, struct llm_tensor *x)
{
    x = llm_rope(c, x, p->batch->positions, p->rope);
    return p->config->dual_chunk_size > 0 ? x : llm_visit(c, &p->site, kind, x);
}

static struct llm_tensor *forward(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_config *f = p->config;
    const struct llm_batch *b = p->batch;
    int64_t n_q = f->num_attention_heads * f->head_dim, n_kv = f->num_key_value_heads * f->head_dim;
    struct llm_tensor *q, *k = NULL, *v = NULL;
    bool makes = makes_keys(f, p->layer);
    if (m->p[QKV].w) {
        struct llm_tensor *qkv = llm_linear(c, x, m->p[QKV].w, m->p[QKV].b);
        q = llm_columns(c, qkv, 0, n_q);
        k = llm_columns(c, qkv, n_q, n_kv);
        v = llm_columns(c, qkv, n_q + n_kv, n_kv);
    } else {
        struct llm_tensor *y[3] = {NULL};
        llm_linears(c, x, makes ? 3 : 1, (struct llm_param *[]){m->p[Q].w, m->p[K].w, m->p[V].w},
                    (struct llm_param *[]){m->p[Q].b, m->p[K].b, m->p[V].b}, y);
        q = y[0];
        k = y[1];
        v = y[2];
    }
    if (f->qk_norm == LLM_QK_NORM_EACH) {
        q = llm_groupnorm_each(c, q, m->head_gains, f->num_attention_heads, (float)f->norm_eps);
        k = llm_groupnorm_each(c, k, m->head_gains + f->num_attention_heads, f->num_key_value_heads, (float)f->norm_eps);
    } else if (f->qk_norm != LLM_QK_NORM_NONE) {
        q = head_norm(c, f, m->p[Q_NORM].w, q, n_q);
        if (makes) k = head_norm(c, f, m->p[K_NORM].w, k, n_kv);
    }
    q = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_Q, q);
    if (makes) {
        k = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_K, k);
        v = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_V, v);
    }
    bool chunks = goes_beyond(p);
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
    const struct llm_attn a = {.n_heads = f->num_attention_heads, .n_kv_heads = f->num_key_value_heads, .d_k = f->head_dim, .d_v = f->head_dim,
                               .scale = (float)llm_config_attention_scale(f, p->layer), .causal = !p->bidirectional,
                               .window = llm_config_window(f, p->layer),
                               .softcap = (float)f->attn_logit_softcapping, .doc_start = b->doc_start, .prefixes = b->prefixes,
                               .sinks = m->p[SINKS].w,
                               .kv_len = b->lengths, .rel_bias = p->rel_bias, .rel_map = p->rel_map, .rel_max = f->rel_max_distance + 1,
                               .rel_buckets = f->rel_buckets, .rel_use = p->layer,
                               .dropout = c->training ? (float)f->attn_pdrop : 0};
    const struct llm_attn blocks = within_blocks(c, p, &a);
    struct llm_tensor *y;
    if (llm_config_block(f, p->layer) > 0 && b->seqs) y = llm_latents_attend(c, p, q, k, v, &a);
    else if (llm_config_block(f, p->layer) > 0) y = llm_attention(c, q, k, v, &blocks, NULL);
    else if (chunks) y = chunked(c, p, &a, q, k, v);
    else if (b->seqs) y = llm_attention_cached(c, q, k, v, &a, b->seqs + p->layer * b->n_seqs, b->n_seqs);
    else y = llm_attention(c, q, k, v, &a, NULL);
    y = llm_visit(c, &p->site, LLM_PLACE_ATTENTION_HEADS, y);
    return llm_linear(c, y, m->p[OUT].w, m->p[OUT].b);
}

/* FLOPs per token of the scores and of the weighted sum of values: 2 for each channel of d_k and d_v, each head, and each token that is seen. */
static double extra_flops(const struct llm_config *c, int64_t layer, int64_t context)
{
    int64_t window = llm_config_window(c, layer), block = llm_config_block(c, layer);
    if (window > 0 && c->bidirectional) window = 2 * window - 1; /* the window extends to both sides */
    double seen = window > 0 && window < context ? (double)window : (double)context, in_block = (double)(block + 1) / 2; /* the mean over the tokens
                                                                                                                          * of a block */
    if (llm_config_learns_latents(c) && context > 0) { /* the cost of all latents, divided by the tokens of the text */
        return 4.0 * (double)(c->num_attention_heads * c->head_dim) * (double)c->num_latents * (double)c->num_latents / (double)context;
    }
    if (block > 0 && in_block < seen) seen = in_block;
    return 4.0 * (double)(c->num_attention_heads * c->head_dim) * seen;
}

static void state(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    if (c->bidirectional) return; /* encoders keep no cache */
    if (llm_config_block(c, layer) > 0) {
        llm_latents_state(c, layer, s);
        return;
    }
    s->source = layer - layer % c->kv_sharing;
    s->n_kv_heads = c->num_key_value_heads;
    s->d_k = s->d_v = c->head_dim;
}

static uint64_t places(const struct llm_config *c, int64_t layer)
{
    bool rotates = c->position == LLM_POSITION_ROPE && !llm_layer_in(c->no_rope_layers, layer) && c->dual_chunk_size == 0;
    uint64_t own = LLM_PLACE_BIT(ATTENTION_Q) | LLM_PLACE_BIT(ATTENTION_HEADS);
    if (rotates) own |= LLM_PLACE_BIT(ATTENTION_Q_ROTATED);
    if (!makes_keys(c, layer)) return own;
    return own | LLM_PLACE_BIT(ATTENTION_K) | LLM_PLACE_BIT(ATTENTION_V) | (rotates ? LLM_PLACE_BIT(ATTENTION_K_ROTATED) : 0);
}

const struct llm_module_kind llm_module_attention = {
    .input = LLM_PLACE_ATTENTION_INPUT, .output = LLM_PLACE_ATTENTION_OUTPUT, .places = places,
    .unit = LLM_UNIT_ATTENTION, .declare = declare, .forward = forward, .extra_flops = extra_flops, .state = state};
