#include "infer/kvpicture.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "model/forward/watch.h"

/* Keys, values or queries of all layers, copied as the pass makes them. */
struct copy { struct llm_kv_file *f; char what; };

static int copy(void *arg, const struct llm_sight *s, struct llm_err *e)
{
    const struct copy *c = arg;
    struct llm_kv_file_layer *l = &c->f->layers[s->place.layer];
    const int64_t first = c->what == 'q' ? c->f->n - c->f->n_queries : 0;
    float *out = llm_alloc((size_t)(s->rows - first), (size_t)s->cols * sizeof *out, "a picture's keys", e);
    if (!out) return -1;
    for (int64_t i = first; i < s->rows; i++) memcpy(out + (i - first) * s->cols, s->x + i * s->stride, (size_t)s->cols * sizeof *out);
    *(c->what == 'q' ? &l->q : c->what == 'k' ? &l->k : &l->v) = out;
    return 0;
}

/* What the file says of the model, and its tokens, which have no ids: 0 each. */
static int describe(struct llm_kv_file *f, struct llm_model *m, int64_t n_queries, struct llm_err *e)
{
    f->config = m->config;
    f->n = f->rows = llm_config_picture_tokens(&m->config);
    f->n_queries = n_queries < f->n ? n_queries : f->n;
    f->config_json = llm_config_to_json(&m->config, e);
    if (!f->config_json || llm_model_fingerprint(m, e) < 0) return -1;
    memcpy(f->fingerprint, m->fingerprint, sizeof f->fingerprint);
    f->ids = llm_calloc((size_t)f->n, sizeof *f->ids, "a picture's tokens", e);
    f->positions = f->ids ? llm_alloc((size_t)f->n, sizeof *f->positions, "a picture's tokens", e) : NULL;
    f->layers = f->positions ? llm_calloc((size_t)m->config.num_hidden_layers, sizeof *f->layers, "a picture's keys", e) : NULL;
    if (!f->layers) return -1;
    f->n_layers = m->config.num_hidden_layers;
    for (int64_t l = 0; l < f->n_layers; l++) {
        f->layers[l].shape = llm_kv_file_shape(&m->config, l);
        f->layers[l].types = (struct llm_kv_pair){LLM_F32, LLM_F32};
    }
    for (int64_t i = 0; i < f->n; i++) f->positions[i] = (int32_t)i;
    return 0;
}

int llm_kv_file_see(struct llm_kv_file *f, struct llm_engine *g, const float *pixels, int64_t n_queries, struct llm_err *e)
{
    struct llm_model *m = g->model;
    if (m->config.patch_size == 0) return llm_fail(e, EX_UNAVAILABLE, "expected a vision transformer, found %s", m->config.model_type);
    if (describe(f, m, n_queries, e) < 0) return -1;
    const bool rotates = llm_place_exists(&m->config, (struct llm_place){LLM_PLACE_ATTENTION_K_ROTATED, LLM_STACK_MAIN, 0});
    const struct llm_place_range all = {.stack = LLM_STACK_MAIN, .last = f->n_layers - 1};
    struct llm_place_range k = all, v = all, q = all;
    k.kind = rotates ? LLM_PLACE_ATTENTION_K_ROTATED : LLM_PLACE_ATTENTION_K;
    v.kind = LLM_PLACE_ATTENTION_V;
    q.kind = rotates ? LLM_PLACE_ATTENTION_Q_ROTATED : LLM_PLACE_ATTENTION_Q;
    struct copy copies[3] = {{f, 'k'}, {f, 'v'}, {f, 'q'}};
    const struct llm_watcher watchers[3] = {{.at = k, .observe = copy, .arg = &copies[0]}, {.at = v, .observe = copy, .arg = &copies[1]},
                                            {.at = q, .observe = copy, .arg = &copies[2]}};
    struct llm_watch watch = {.v = watchers, .n = f->n_queries > 0 ? 3 : 2}, *before = g->ctx.watch;
    g->ctx.watch = &watch;
    const struct llm_tensor *x = llm_engine_see(g, pixels, 1, e);
    g->ctx.watch = before;
    return x ? 0 : -1;
}
