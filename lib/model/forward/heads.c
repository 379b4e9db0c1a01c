/* What follows the stacks: the head over the vocabulary, pooled vectors of texts, classifiers. */
#include <string.h>
#include "model/forward/block.h"
#include "tensor/tape.h"

struct llm_tensor *llm_model_before_head(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden)
{
    const struct llm_decoder *d = m->layout;
    if (!d->head_dense.w) return hidden;
    hidden = llm_activation(c, llm_linear(c, hidden, d->head_dense.w, d->head_dense.b), m->config.act);
    hidden = llm_norm_apply(c, &m->config, &d->head_norm, hidden);
    if (!c->watch) return hidden;
    const struct llm_site site = llm_watch_head(c, hidden->rows);
    return llm_visit(c, &site, LLM_PLACE_HEAD_INPUT, hidden);
}

const struct llm_inner *llm_model_watched_logits(struct llm_ctx *c, int64_t n)
{
    if (!c->watch || llm_ctx_failed(c)) return NULL;
    const struct llm_site site = llm_watch_head(c, n);
    return llm_watch_inner(c, &site, LLM_PLACE_LOGITS);
}

struct llm_tensor *llm_model_logits(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden)
{
    const struct llm_decoder *d = m->layout;
    if (!llm_ctx_failed(c) && !llm_config_has_head(&m->config) && llm_model_must_generate(m, &c->err) < 0) return &c->nothing;
    if (m->config.bidirectional && !m->config.use_bidirectional_attention && !m->config.head_transform && !llm_ctx_failed(c)) {
        llm_fail(&c->err, EX_UNAVAILABLE, "expected a model with a masked-token head, found an encoder (%s) without one", m->config.model_type);
    }
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_tensor *logits = llm_linear(c, llm_model_before_head(c, m, hidden), llm_model_head(m), d->head_bias);
    float cap = (float)m->config.final_logit_softcapping;
    if (m->config.logit_scale != 1) logits = llm_scale(c, logits, (float)m->config.logit_scale);
    if (cap > 0) logits = llm_scale(c, llm_activation(c, llm_scale(c, logits, 1 / cap), LLM_ACT_TANH), cap);
    if (!c->watch) return logits;
    const struct llm_site site = llm_watch_head(c, logits->rows);
    return llm_visit(c, &site, LLM_PLACE_LOGITS, logits);
}

struct llm_tensor *llm_model_lens_norm(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *residual)
{
    const struct llm_stack *s = &((const struct llm_decoder *)m->layout)->stacks[LLM_STACK_MAIN];
    return s->final_norm.w ? llm_norm_apply(c, &m->config, &s->final_norm, residual) : residual;
}

struct llm_tensor *llm_model_lens(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *residual)
{
    return llm_model_logits(c, m, llm_model_lens_norm(c, m, residual));
}

/* The mean of each row's latents. */
static struct llm_tensor *all_latents(struct llm_ctx *c, struct llm_tensor *hidden, int64_t n_rows, int64_t row_len)
{
    int32_t *lengths = llm_op_alloc(c, n_rows, sizeof *lengths);
    for (int64_t r = 0; r < n_rows && lengths; r++) lengths[r] = (int32_t)row_len;
    return llm_row_mean(c, hidden, lengths, n_rows);
}

/* The state of each picture's class token, and beside it that of the next token or the mean of the patches' (enum llm_class_vector). */
static struct llm_tensor *pool_two(struct llm_ctx *c, const struct llm_config *f, struct llm_tensor *hidden, int64_t n)
{
    const int64_t length = hidden->rows / n, patches = llm_config_patches(f);
    int32_t *rows = llm_op_alloc(c, n * (patches + 3), sizeof *rows), *lengths = rows + 2 * n, *of = lengths + n;
    if (llm_ctx_failed(c)) return &c->nothing;
    if (f->class_vector == LLM_CLASSES_OF_TWO_TOKENS) {
        for (int64_t i = 0; i < 2 * n; i++) rows[i] = (int32_t)(i / 2 * length + i % 2);
        return llm_gather_abreast(c, hidden, rows, n, 2);
    }
    for (int64_t i = 0; i < n; i++) {
        rows[i] = (int32_t)(i * length);
        lengths[i] = (int32_t)patches;
        for (int64_t k = 0; k < patches; k++) of[i * patches + k] = (int32_t)((i + 1) * length - patches + k);
    }
    struct llm_tensor *mean = llm_row_mean(c, llm_gather(c, hidden, of, n * patches), lengths, n);
    return llm_heads_join(c, llm_gather(c, hidden, rows, n), mean, 1, false);
}

struct llm_tensor *llm_model_pool(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *hidden, const int32_t *ids,
                                  const int32_t *lengths, int64_t n_rows)
{
    enum llm_pool_kind kind = llm_config_pooling(&m->config);
    int64_t row_len = n_rows > 0 ? hidden->rows / n_rows : 0;
    if (llm_config_learns_latents(&m->config)) return all_latents(c, hidden, n_rows, row_len);
    if (m->config.class_vector != LLM_CLASSES_OF_TOKEN && n_rows > 0) return pool_two(c, &m->config, hidden, n_rows);
    if (kind == LLM_POOL_MEAN || kind == LLM_POOL_UNSET) return llm_row_mean(c, hidden, lengths, n_rows);
    int32_t *rows = llm_op_alloc(c, n_rows, sizeof *rows);
    if (llm_ctx_failed(c)) return &c->nothing;
    for (int64_t r = 0; r < n_rows; r++) {
        const int64_t token = llm_config_pooled_token(&m->config, kind, ids ? ids + r * row_len : NULL, lengths[r]);
        if (token < 0) return llm_op_fail(c, EX_DATAERR, "text: expected an end token (%lld), found none", (long long)m->config.eos_token_id);
        rows[r] = (int32_t)(r * row_len + token);
    }
    return llm_gather(c, hidden, rows, n_rows);
}

static struct llm_tensor *attention_pool(struct llm_ctx *c, const struct llm_stack *s, struct llm_tensor *hidden, int64_t n)
{
    const struct llm_attention_pool *p = &s->pool;
    const int64_t width = s->own->hidden_size, rows_before = c->n_rows;
    int32_t *numbers = llm_op_alloc(c, n, sizeof *numbers); /* of the one query, for each picture */
    if (llm_ctx_failed(c)) return &c->nothing;
    memset(numbers, 0, (size_t)n * sizeof *numbers);
    struct llm_attn a = llm_cross_attn(s->own);
    a.kv_row_len = hidden->rows / n;
    c->n_rows = n;
    struct llm_tensor *q = llm_linear(c, llm_embedding(c, numbers, n, p->probe, 1), p->qkv.w, p->qkv.b);
    struct llm_tensor *kv = llm_linear(c, hidden, p->qkv.w, p->qkv.b);
    struct llm_tensor *x = llm_attention(c, llm_columns(c, q, 0, width), llm_columns(c, kv, width, width), llm_columns(c, kv, 2 * width, width), &a,
                                         NULL);
    x = llm_linear(c, x, p->out.w, p->out.b);
    struct llm_tensor *y = llm_linear(c, llm_norm_apply(c, s->own, &p->norm, x), p->up.w, p->up.b);
    x = llm_add(c, x, llm_linear(c, llm_activation(c, y, s->own->act), p->down.w, p->down.b));
    c->n_rows = rows_before;
    return x;
}

struct llm_tensor *llm_model_pool_pictures(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *hidden, int64_t n)
{
    const struct llm_stack *s = &((const struct llm_decoder *)m->layout)->stacks[LLM_STACK_VISION];
    if (s->pool.probe) return attention_pool(c, s, hidden, n);
    int32_t *first = llm_op_alloc(c, n, sizeof *first);
    if (llm_ctx_failed(c)) return &c->nothing;
    for (int64_t i = 0; i < n; i++) first[i] = (int32_t)(i * (hidden->rows / n));
    return llm_gather(c, hidden, first, n);
}

struct llm_tensor *llm_model_project(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *pooled, bool pictures)
{
    const struct llm_decoder *d = m->layout;
    const struct llm_linear_params *p = &d->stacks[pictures && llm_config_two_towers(&m->config) ? LLM_STACK_VISION : LLM_STACK_MAIN].projection;
    return p->w ? llm_linear(c, pooled, p->w, p->b) : pooled;
}

struct llm_tensor *llm_model_before_classes(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *pooled)
{
    const struct llm_decoder *d = m->layout;
    const struct llm_site site = llm_watch_head(c, pooled->rows);
    pooled = llm_visit(c, &site, LLM_PLACE_POOLED, pooled);
    if (d->pooler.w) pooled = llm_activation(c, llm_linear(c, pooled, d->pooler.w, d->pooler.b), LLM_ACT_TANH);
    if (llm_config_like_bert(&m->config)) pooled = llm_dropout(c, pooled, (float)m->config.resid_pdrop, LLM_RNG_DROPOUT_CLASSES);
    return llm_visit(c, &site, LLM_PLACE_CLASSES_INPUT, pooled);
}

struct llm_tensor *llm_model_class_logits(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *x)
{
    const struct llm_decoder *d = m->layout;
    if (!d->classes_2.w) return llm_linear(c, x, d->classes.w, d->classes.b);
    const int64_t width = m->config.hidden_size;
    struct llm_tensor *first = llm_linear(c, llm_columns(c, x, 0, width), d->classes.w, d->classes.b);
    return llm_scale(c, llm_add(c, first, llm_linear(c, llm_columns(c, x, width, width), d->classes_2.w, d->classes_2.b)), .5f);
}
