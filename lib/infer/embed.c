#include "infer/embed.h"

#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/signals.h"

struct sum {
    double *v;
    int64_t width, n;
    enum llm_pool_kind pool;
};

/* Adds one more row to the sum, in order. */
static void add(struct sum *s, const float *row)
{
    if (s->pool == LLM_POOL_CLS && s->n > 0) return;
    for (int64_t k = 0; k < s->width; k++) s->v[k] = (s->pool == LLM_POOL_LAST ? 0 : s->v[k]) + (double)row[k];
    s->n = s->pool == LLM_POOL_MEAN ? s->n + 1 : 1;
}

static void finish(struct sum *s, float *out)
{
    for (int64_t k = 0; k < s->width; k++) {
        out[k] = (float)(s->v[k] / (double)s->n);
        s->v[k] = 0;
    }
    s->n = 0;
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
    struct sum s = {.width = g->model->config.hidden_size, .pool = pool};
    s.v = llm_calloc((size_t)s.width, sizeof *s.v, "an embedding", e);
    int status = s.v ? llm_engine_prefill(g, kv, ids, n, g->model->config.prefix_lm && kv->n == 0, false, take, &s, e) : -1;
    if (status == 0) finish(&s, out);
    free(s.v);
    return status;
}

/* Encodes the first texts, as many as one pass has room for; *n: how many. */
static int encode_some(struct llm_engine *g, const int32_t *ids, const int32_t *kinds, const int64_t *lengths, int64_t n_texts, struct sum *s,
                       float *out, int64_t *n, struct llm_err *e)
{
    int64_t total = lengths[0], row = 0;
    bool latents = llm_config_learns_latents(&g->model->config); /* of one text at a time */
    for (*n = 1; !latents && *n < n_texts && total + lengths[*n] <= g->batch; ++*n) total += lengths[*n];
    const struct llm_tensor *hidden = llm_engine_encode(g, ids, kinds, lengths, *n, e);
    if (!hidden) return -1;
    for (int64_t t = 0; t < *n; t++) {
        for (int64_t i = 0; i < (latents ? hidden->rows : lengths[t]); i++) add(s, hidden->data + row++ * hidden->stride);
        finish(s, out + t * s->width);
    }
    return 0;
}

/* Reads the first texts in one pass, each into a cache of its own, as many as the pass has room for; *n: how many, 0 if the first has no room. */
static int read_some(struct llm_engine *g, const int32_t *ids, const int64_t *lengths, int64_t n_texts, struct sum *s, float *out, int64_t *n,
                     struct llm_err *e)
{
    enum { MAX_TEXTS = 64 };
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
    for (int64_t t = 0; hidden && t < *n; t++) {
        for (int64_t i = 0; i < lengths[t]; i++) add(s, hidden->data + row++ * hidden->stride);
        finish(s, out + t * s->width);
    }
    for (int64_t t = 0; t < *n; t++) llm_kv_release(&kv[t]);
    return hidden ? 0 : -1;
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
    struct sum s = {.width = g->model->config.hidden_size, .pool = pool};
    s.v = llm_calloc((size_t)s.width, sizeof *s.v, "an embedding", e);
    int status = s.v ? 0 : -1;
    bool encodes = g->model->config.bidirectional || g->model->config.num_encoder_layers > 0;
    for (int64_t at = 0, n = 1; at < n_texts && status == 0; at += n) {
        if (llm_signal_caught()) status = 1;
        else if (encodes) status = encode_some(g, ids, kinds, lengths + at, n_texts - at, &s, out + at * s.width, &n, e);
        else if (read_some(g, ids, lengths + at, n_texts - at, &s, out + at * s.width, &n, e) < 0) status = -1;
        else if (n == 0) {
            n = 1;
            status = embed_apart(g, ids, lengths[at], pool, out + at * s.width, e);
        }
        for (int64_t t = 0; t < n; t++) {
            ids += lengths[at + t];
            kinds = kinds ? kinds + lengths[at + t] : NULL;
        }
    }
    free(s.v);
    return status;
}

int llm_embed_pictures(struct llm_engine *g, const float *pixels, int64_t n, enum llm_pool_kind pool, float *out, struct llm_err *e)
{
    const struct llm_config *f = &g->model->config;
    int64_t length = llm_config_patches(f) + 1, size = f->num_channels * f->image_size * f->image_size;
    int64_t together = g->batch / length > 1 ? g->batch / length : 1;
    struct sum s = {.width = f->hidden_size, .pool = pool};
    s.v = llm_calloc((size_t)s.width, sizeof *s.v, "an embedding", e);
    int status = s.v ? 0 : -1;
    for (int64_t at = 0; at < n && status == 0; at += together) {
        int64_t some = n - at < together ? n - at : together;
        if (llm_signal_caught()) status = 1;
        const struct llm_tensor *hidden = status == 0 ? llm_engine_see(g, pixels + at * size, some, e) : NULL;
        if (status == 0 && !hidden) status = -1;
        for (int64_t i = 0; hidden && i < some; i++) {
            for (int64_t t = 0; t < length; t++) add(&s, hidden->data + (i * length + t) * hidden->stride);
            finish(&s, out + (at + i) * s.width);
        }
    }
    free(s.v);
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
