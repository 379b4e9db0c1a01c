#include "infer/embed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/signals.h"

enum { MAX_TEXTS = 64 };

/* Pools hidden states, text after text, into rows that are projected together. */
struct sum {
    double *v;               /* [width] */
    float *pooled;           /* [room, width] */
    int64_t width, n, seen, wanted; /* rows in v; rows of the text so far; LLM_POOL_EOS: the one that is taken */
    int64_t done;            /* texts in `pooled` */
    enum llm_pool_kind pool;
};

static int open_sum(struct sum *s, int64_t width, enum llm_pool_kind pool, int64_t room, struct llm_err *e)
{
    *s = (struct sum){.width = width, .pool = pool};
    s->v = llm_calloc((size_t)width, sizeof *s->v, "an embedding", e);
    s->pooled = llm_alloc((size_t)width, (size_t)room * sizeof *s->pooled, "embeddings", e);
    return s->v && s->pooled ? 0 : -1;
}

static void close_sum(struct sum *s)
{
    free(s->v);
    free(s->pooled);
}

/* Before the rows of a text, whose tokens are ids[0..n). */
static int begin(struct sum *s, const struct llm_config *c, const int32_t *ids, int64_t n, struct llm_err *e)
{
    if (s->pool != LLM_POOL_EOS) return 0;
    s->wanted = llm_config_pooled_token(c, s->pool, ids, n);
    if (s->wanted >= 0) return 0;
    return llm_fail(e, EX_DATAERR, "text: expected an end token (%lld), found none", (long long)c->eos_token_id);
}

/* Adds one more row to the sum, in order. */
static void add(struct sum *s, const float *row)
{
    const int64_t at = s->seen++;
    if (s->pool == LLM_POOL_CLS && at > 0) return;
    if (s->pool == LLM_POOL_EOS && at != s->wanted) return;
    for (int64_t k = 0; k < s->width; k++) s->v[k] = (s->pool == LLM_POOL_LAST ? 0 : s->v[k]) + (double)row[k];
    s->n = s->pool == LLM_POOL_MEAN ? s->n + 1 : 1;
}

static void finish(struct sum *s)
{
    float *out = s->pooled + s->done++ * s->width;
    for (int64_t k = 0; k < s->width; k++) {
        out[k] = (float)(s->v[k] / (double)s->n);
        s->v[k] = 0;
    }
    s->n = s->seen = 0;
}

/* out [n, llm_config_vector]: the vectors of the texts or pictures that were pooled, of which there are none after. */
static int project(struct llm_engine *g, struct sum *s, bool pictures, float *out, struct llm_err *e)
{
    const int64_t n = s->done, width = llm_config_vector(&g->model->config);
    s->done = 0;
    if (g->model->config.projection_dim == 0) {
        memcpy(out, s->pooled, (size_t)(n * s->width) * sizeof *out);
        return 0;
    }
    llm_ctx_reset(&g->ctx);
    struct llm_tensor *x = llm_tensor_create(&g->ctx, n, s->width);
    for (int64_t i = 0; i < n && !llm_ctx_failed(&g->ctx); i++)
        memcpy(x->data + i * x->stride, s->pooled + i * s->width, (size_t)s->width * sizeof *out);
    x = llm_model_project(&g->ctx, g->model, x, pictures);
    if (llm_ctx_failed(&g->ctx)) return llm_fail(e, g->ctx.err.status, "%s", g->ctx.err.text);
    for (int64_t i = 0; i < n; i++) memcpy(out + i * width, x->data + i * x->stride, (size_t)width * sizeof *out);
    return 0;
}

static int take(void *arg, const struct llm_span *span, struct llm_err *e)
{
    struct sum *s = arg;
    (void)e;
    for (int64_t i = 0; i < span->n; i++) add(s, span->hidden + i * s->width);
    return 0;
}

int llm_embed(struct llm_engine *g, struct llm_kv *kv, const int32_t *ids, int64_t n, enum llm_pool_kind pool, float *out, struct llm_err *e)
{
    struct sum s;
    int status = open_sum(&s, g->model->config.hidden_size, pool, 1, e);
    if (status == 0) status = begin(&s, &g->model->config, ids, n, e);
    if (status == 0) status = llm_engine_prefill(g, kv, ids, n, g->model->config.prefix_lm && kv->n == 0, false, take, &s, e);
    if (status == 0) {
        finish(&s);
        status = project(g, &s, false, out, e);
    }
    close_sum(&s);
    return status;
}

/* Tokens of the next pass of texts of `total` tokens: passes are about equally long, since a short one reads all weights for few tokens. */
static int64_t share_of_pass(const struct llm_engine *g, int64_t total)
{
    const int64_t passes = (total + g->batch - 1) / g->batch;
    return (total + passes - 1) / passes;
}

/* Encodes the first texts, as many as one pass has room for, or fewer if the others then make passes of the same length; *n: how many. */
static int encode_some(struct llm_engine *g, const int32_t *ids, const int32_t *kinds, const int64_t *lengths, int64_t n_texts, struct sum *s,
                       int64_t *n, struct llm_err *e)
{
    int64_t total = lengths[0], row = 0, all = 0;
    for (int64_t t = 0; t < n_texts; t++) all += lengths[t];
    const int64_t share = share_of_pass(g, all);
    bool latents = llm_config_learns_latents(&g->model->config); /* of one text at a time */
    for (*n = 1; !latents && *n < n_texts && *n < MAX_TEXTS && total < share && total + lengths[*n] <= g->batch; ++*n) total += lengths[*n];
    const struct llm_tensor *hidden = llm_engine_encode(g, ids, kinds, lengths, *n, e);
    if (!hidden) return -1;
    for (int64_t t = 0; t < *n; ids += lengths[t++]) {
        if (begin(s, &g->model->config, ids, lengths[t], e) < 0) return -1;
        for (int64_t i = 0; i < (latents ? hidden->rows : lengths[t]); i++) add(s, hidden->data + row++ * hidden->stride);
        finish(s);
    }
    return 0;
}

/* Reads the first texts in one pass, each into a cache of its own, as many as the pass has room for; *n: how many, 0 if the first has no room. */
static int read_some(struct llm_engine *g, const int32_t *ids, const int64_t *lengths, int64_t n_texts, struct sum *s, int64_t *n, struct llm_err *e)
{
    struct llm_kv kv[MAX_TEXTS];
    struct llm_feed feeds[MAX_TEXTS];
    int64_t total = 0, row = 0;
    for (*n = 0; *n < n_texts && *n < MAX_TEXTS && total + lengths[*n] <= g->batch && lengths[*n] <= g->context; ++*n) {
        llm_kv_init(&kv[*n], &g->pool);
        feeds[*n] = (struct llm_feed){.kv = &kv[*n], .ids = ids + total, .n = lengths[*n], .together = g->model->config.prefix_lm};
        total += lengths[*n];
    }
    if (*n == 0) return 0;
    const struct llm_tensor *hidden = llm_engine_run(g, feeds, *n, e);
    int status = hidden ? 0 : -1;
    for (int64_t t = 0; t < *n && status == 0; t++) {
        status = begin(s, &g->model->config, feeds[t].ids, lengths[t], e);
        for (int64_t i = 0; i < lengths[t]; i++) add(s, hidden->data + row++ * hidden->stride);
        finish(s);
    }
    for (int64_t t = 0; t < *n; t++) llm_kv_release(&kv[t]);
    return status;
}

static int embed_apart(struct llm_engine *g, const int32_t *ids, int64_t length, enum llm_pool_kind pool, float *out, struct llm_err *e)
{
    struct llm_kv kv;
    llm_kv_init(&kv, &g->pool);
    int status = llm_embed(g, &kv, ids, length, pool, out, e);
    llm_kv_release(&kv);
    return status;
}

int llm_embed_texts(struct llm_engine *g, const int32_t *ids, const int32_t *kinds, const int64_t *lengths, int64_t n_texts, enum llm_pool_kind pool,
                    float *out, struct llm_err *e)
{
    struct sum s;
    const int64_t width = llm_config_vector(&g->model->config);
    int status = open_sum(&s, g->model->config.hidden_size, pool, MAX_TEXTS, e);
    bool encodes = g->model->config.bidirectional || g->model->config.num_encoder_layers > 0;
    for (int64_t at = 0, n = 1; at < n_texts && status == 0; at += n) {
        if (llm_signal_caught()) status = 1;
        else if (encodes) status = encode_some(g, ids, kinds, lengths + at, n_texts - at, &s, &n, e);
        else status = read_some(g, ids, lengths + at, n_texts - at, &s, &n, e);
        if (status == 0 && n > 0) {
            status = project(g, &s, false, out + at * width, e);
        } else if (status == 0) {
            n = 1;
            status = embed_apart(g, ids, lengths[at], pool, out + at * width, e);
        }
        for (int64_t t = 0; t < n; t++) {
            ids += lengths[at + t];
            kinds = kinds ? kinds + lengths[at + t] : NULL;
        }
    }
    close_sum(&s);
    return status;
}

int llm_embed_pictures(struct llm_engine *g, const float *pixels, int64_t n, enum llm_pool_kind pool, float *out, struct llm_err *e)
{
    struct llm_config f;
    struct sum s;
    if (!llm_config_sees(&g->model->config, &f)) return llm_fail(e, EX_UNAVAILABLE, "expected a model that reads pictures");
    const int64_t length = llm_config_picture_tokens(&f), size = f.num_channels * f.image_size * f.image_size;
    const int64_t together = g->batch / length > 1 ? g->batch / length : 1, width = llm_config_vector(&g->model->config);
    int status = open_sum(&s, f.hidden_size, pool == LLM_POOL_EOS ? LLM_POOL_CLS : pool, together, e);
    const int64_t rows = f.attention_pooling ? 1 : length;
    for (int64_t at = 0; at < n && status == 0; at += together) {
        int64_t some = n - at < together ? n - at : together;
        if (llm_signal_caught()) status = 1;
        struct llm_tensor *hidden = status == 0 ? llm_engine_see(g, pixels + at * size, some, e) : NULL;
        if (status == 0 && !hidden) status = -1;
        if (hidden && f.attention_pooling) {
            hidden = llm_model_pool_pictures(&g->ctx, g->model, hidden, some);
            if (llm_ctx_failed(&g->ctx)) status = llm_fail(e, g->ctx.err.status, "%s", g->ctx.err.text);
        }
        if (status != 0) break;
        for (int64_t i = 0; i < some; i++) {
            for (int64_t t = 0; t < rows; t++) add(&s, hidden->data + (i * rows + t) * hidden->stride);
            finish(&s);
        }
        status = project(g, &s, true, out + at * width, e);
    }
    close_sum(&s);
    return status;
}

int llm_embed_pooling(const struct llm_config *c, enum llm_pool_kind *pool, struct llm_err *e)
{
    *pool = c->pooling == LLM_POOL_UNSET ? LLM_POOL_MEAN : c->pooling;
    if (c->pooling != LLM_POOL_OTHER) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "the model asks for vectors made in a way that is not supported (modules.json); --pooling chooses another");
}

void llm_embed_normalize(float *v, int64_t n, int64_t kind)
{
    double size = 0;
    for (int64_t i = 0; i < n && kind >= 0; i++) {
        double x = fabs((double)v[i]);
        if (kind == 0) size = fmax(size, x / 32760);
        else size += kind == 1 ? x : kind == 2 ? x * x : pow(x, (double)kind);
    }
    if (kind >= 2) size = kind == 2 ? sqrt(size) : pow(size, 1 / (double)kind);
    for (int64_t i = 0; i < n && size > 0; i++) v[i] = (float)((double)v[i] / size);
}
