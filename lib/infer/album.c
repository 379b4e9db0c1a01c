#include "infer/album.h"

#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "infer/engine.h"
#include "tensor/tape.h"

enum { KEPT = 64 }; /* pictures without a text that are kept */

void llm_album_release(struct llm_album *s)
{
    for (size_t i = 0; i < s->n; i++) free(s->v[i].rows);
    free(s->v);
    *s = (struct llm_album){0};
}

/* The picture that has the id; NULL: none has. */
static struct llm_seen *find(const struct llm_album *s, int64_t id)
{
    size_t from = 0, to = s->n;
    while (from < to) {
        const size_t middle = (from + to) / 2;
        if (id >= s->v[middle].first + s->v[middle].n) from = middle + 1;
        else to = middle;
    }
    return from < s->n && id >= s->v[from].first ? &s->v[from] : NULL;
}

/* The rows of one crop [llm_config_crop_rows, hidden_size] of a picture. 0 or -1. */
static int see_crop(struct llm_engine *g, const float *pixels, float *rows, struct llm_err *e)
{
    struct llm_config f;
    struct llm_model *m = g->model;
    const int64_t width = m->config.hidden_size;
    (void)llm_config_sees(&m->config, &f);
    llm_ctx_reset(&g->ctx);
    g->n_factors = 0;
    g->ctx.adapters = (struct llm_adapter_rows){0};
    const struct llm_batch b = llm_model_pictures(&g->ctx, &f, 1);
    if (llm_ctx_failed(&g->ctx)) return llm_no_memory(e, "a picture's patches");
    llm_model_put_picture(&f, &b, 0, pixels);
    const struct llm_tensor *x = llm_model_crop_embeddings(&g->ctx, m, &b, 1, false);
    if (llm_ctx_failed(&g->ctx)) return llm_fail(e, g->ctx.err.status, "%s", g->ctx.err.text);
    for (int64_t i = 0; i < x->rows; i++) memcpy(rows + i * width, x->data + i * x->stride, (size_t)width * sizeof *rows);
    return 0;
}

/* The embeddings of a picture into out [n]. 0 or -1. */
static int see(struct llm_engine *g, const float *pixels, const struct llm_crops *k, int64_t n, float *out, struct llm_err *e)
{
    const struct llm_config *c = &g->model->config;
    const int64_t each = llm_config_crop_rows(c), width = c->hidden_size, size = llm_vision_floats(&c->vision);
    float *rows = llm_alloc((size_t)(k->n * each), (size_t)width * sizeof *rows, "a picture's crops", e);
    int32_t *from = llm_alloc((size_t)n, sizeof *from, "a picture's crops", e);
    int status = rows && from ? 0 : -1;
    for (int64_t i = 0; i < k->n && status == 0; i++) status = see_crop(g, pixels + i * size, rows + i * each * width, e);
    if (status == 0) (void)llm_picture_rows(c, k, from);
    for (int64_t i = 0; i < n && status == 0; i++) memcpy(out + i * width, rows + from[i] * width, (size_t)width * sizeof *out);
    free(rows);
    free(from);
    return status;
}

/* The bytes of data [n] and how it lies in crops, as one hash. */
static uint64_t hash_of(const float *data, int64_t n, const struct llm_crops *k, uint64_t seed)
{
    return llm_xxh64(k, sizeof *k, llm_xxh64(data, (size_t)n * sizeof *data, seed));
}

/* Adds the picture of `data`, n_data floats: pixels, or embeddings if `given`; unless it is there. 0 or -1. */
static int show(struct llm_engine *g, const float *data, int64_t n_data, const struct llm_crops *k, bool given, int32_t *first, struct llm_err *e)
{
    const struct llm_config *c = &g->model->config;
    struct llm_album *s = &g->album;
    const int64_t n = llm_picture_rows(c, k, NULL);
    const uint64_t hash[2] = {hash_of(data, n_data, k, 0), hash_of(data, n_data, k, 1)};
    for (size_t i = 0; i < s->n; i++) {
        if (memcmp(s->v[i].hash, hash, sizeof hash) != 0) continue;
        s->v[i].users++;
        *first = s->v[i].first;
        return 0;
    }
    if (s->next == 0) s->next = c->vocab_size;
    if (s->next > INT32_MAX - n) return llm_fail(e, EX_UNAVAILABLE, "too many pictures in one run");
    if (llm_grow((void **)&s->v, &s->room, s->n + 1, sizeof *s->v, e) < 0) return -1;
    float *rows = llm_alloc((size_t)n, (size_t)c->hidden_size * sizeof *rows, "a picture", e);
    if (rows && given) memcpy(rows, data, (size_t)n_data * sizeof *rows);
    if (!rows || (!given && see(g, data, k, n, rows, e) < 0)) {
        free(rows);
        return -1;
    }
    *first = (int32_t)s->next;
    s->v[s->n++] = (struct llm_seen){.first = *first, .n = n, .users = 1, .hash = {hash[0], hash[1]}, .rows = rows};
    s->next += n;
    return 0;
}

int llm_engine_show(struct llm_engine *g, const float *pixels, const struct llm_crops *k, int32_t *first, struct llm_err *e)
{
    return show(g, pixels, k->n * llm_vision_floats(&g->model->config.vision), k, false, first, e);
}

int llm_engine_show_embeddings(struct llm_engine *g, const float *rows, const struct llm_crops *k, int32_t *first, struct llm_err *e)
{
    return show(g, rows, llm_picture_rows(&g->model->config, k, NULL) * g->model->config.hidden_size, k, true, first, e);
}

const float *llm_engine_shown(const struct llm_engine *g, int32_t first)
{
    const struct llm_seen *seen = find(&g->album, first);
    return seen ? seen->rows : NULL;
}

void llm_engine_forget(struct llm_engine *g, int32_t first)
{
    struct llm_album *s = &g->album;
    struct llm_seen *seen = find(s, first);
    size_t unused = 0, oldest = s->n;
    if (seen) seen->users--;
    for (size_t i = s->n; i-- > 0;) {
        if (s->v[i].users > 0) continue;
        unused++;
        oldest = i;
    }
    if (unused <= KEPT) return;
    free(s->v[oldest].rows);
    memmove(s->v + oldest, s->v + oldest + 1, (--s->n - oldest) * sizeof *s->v);
}

int llm_album_place(struct llm_engine *g, struct llm_batch *b, struct llm_err *e)
{
    const struct llm_config *c = &g->model->config;
    const int64_t width = c->hidden_size;
    int64_t n = 0;
    for (int64_t t = 0; t < b->n_tokens; t++) n += g->ids[t] >= c->vocab_size;
    if (n == 0) return 0;
    int32_t *row = llm_op_alloc(&g->ctx, b->n_tokens, sizeof *row);
    struct llm_tensor *given = llm_tensor_create(&g->ctx, n, width);
    if (llm_ctx_failed(&g->ctx)) return llm_no_memory(e, "a pass's pictures");
    n = 0;
    for (int64_t t = 0; t < b->n_tokens; t++) {
        const int32_t id = g->ids[t];
        row[t] = -1;
        if (id < c->vocab_size) continue;
        const struct llm_seen *seen = find(&g->album, id);
        if (!seen) return llm_fail(e, LLM_EX_FAILURE, "a text has a picture that was released");
        memcpy(given->data + n * given->stride, seen->rows + (id - seen->first) * width, (size_t)width * sizeof(float));
        row[t] = (int32_t)n++;
        g->ids[t] = (int32_t)c->projector.image_token;
    }
    b->given = given;
    b->given_row = row;
    return 0;
}
