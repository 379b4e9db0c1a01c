#include "infer/kvjoin.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

static bool has_state(const struct llm_kv_file *f)
{
    for (int64_t l = 0; l < f->n_layers; l++) {
        if (f->layers[l].parts[0]) return true;
    }
    return false;
}

/* Refuses caches that are not the keys of all tokens of a text. */
static int refuse_others(const struct llm_kv_file *f, struct llm_err *e)
{
    if (f->config.bidirectional) {
        return llm_fail(e, EX_DATAERR, "expected a cache of a text, found one of a picture (%s), whose tokens see one another", f->config.model_type);
    }
    return f->evicted ? llm_fail(e, EX_DATAERR, "expected a cache with the keys of all tokens, found an evicted one") : 0;
}

/* Bytes of a layer's row of keys or values, of all its heads. */
static size_t row_bytes(const struct llm_kv_file *f, int64_t layer, bool value)
{
    const struct llm_state_shape *s = &f->layers[layer].shape;
    const struct llm_kv_pair types = f->layers[layer].types;
    return (size_t)s->n_kv_heads * llm_dtype_bytes(value ? types.v : types.k, (uint64_t)(value ? s->d_v : s->d_k));
}

static size_t query_bytes(const struct llm_kv_file *f, int64_t layer)
{
    return (size_t)(f->config.num_attention_heads * f->layers[layer].shape.d_k) * sizeof(float);
}

/* ---- a part of a cache ---- */

int llm_kv_file_cut(struct llm_kv_file *f, int64_t from, int64_t to, struct llm_err *e)
{
    int64_t n = to - from, first = f->n - f->n_queries, traced = to - (from > first ? from : first);
    if (refuse_others(f, e) < 0) return -1;
    if (n < f->n && has_state(f)) {
        return llm_fail(e, EX_DATAERR, "expected to keep all %" PRId64 " tokens: the state of a recurrent model is that after the last", f->n);
    }
    if (f->n_queries == 0 || traced < 0) traced = 0;
    for (int64_t l = 0; l < f->n_layers; l++) {
        struct llm_kv_file_layer *layer = &f->layers[l];
        if (layer->k) memmove(layer->k, (char *)layer->k + (size_t)from * row_bytes(f, l, false), (size_t)n * row_bytes(f, l, false));
        if (layer->v) memmove(layer->v, (char *)layer->v + (size_t)from * row_bytes(f, l, true), (size_t)n * row_bytes(f, l, true));
        if (layer->q && traced > 0) {
            memmove(layer->q, (char *)layer->q + (size_t)(to - traced - first) * query_bytes(f, l), (size_t)traced * query_bytes(f, l));
        }
    }
    memmove(f->ids, f->ids + from, (size_t)n * sizeof *f->ids);
    memmove(f->positions, f->positions + from, (size_t)n * sizeof *f->positions);
    f->n = f->rows = n;
    f->n_queries = traced;
    return 0;
}

/* ---- caches after one another ---- */

/* Rotations by `delta` positions: a table for each kind of layer. */
struct turn {
    float *inv_freq;           /* [2][half]: global layers, then those with a window, if their base is another */
    double *cos, *sin;         /* [2][half] */
    int64_t half, delta;
};

/* Which frequencies a layer's keys are rotated by; -1: its keys do not depend on positions. */
static int kind_of(const struct llm_config *c, int64_t layer)
{
    if (c->position != LLM_POSITION_ROPE || llm_layer_in(c->no_rope_layers, layer)) return -1;
    return c->rope_local_theta > 0 && llm_config_window(c, layer) > 0;
}

static int turn_init(struct turn *t, const struct llm_kv_file *f, struct llm_err *e)
{
    static const struct llm_rope_scaling plain = {.kind = LLM_ROPE_PLAIN};
    const struct llm_config *c = &f->config;
    float magnitude; /* of the cosines that keys have been multiplied by: a further rotation keeps it */
    *t = (struct turn){.half = c->position == LLM_POSITION_ROPE ? c->rotary_dim / 2 : 0};
    t->inv_freq = llm_alloc((size_t)t->half, 2 * sizeof *t->inv_freq, "rotary frequencies", e);
    t->cos = llm_alloc((size_t)t->half, 4 * sizeof *t->cos, "rotary frequencies", e);
    if (!t->inv_freq || !t->cos) return -1;
    t->sin = t->cos + 2 * t->half;
    if (t->half == 0) return 0;
    int64_t context = f->rope_context > 0 ? f->rope_context : llm_config_default_context(c);
    llm_rope_frequencies(&c->rope_scaling, c->rope_theta, c->rotary_dim, context, c->max_position_embeddings, t->inv_freq, &magnitude);
    if (c->rope_local_theta > 0) {
        llm_rope_frequencies(&plain, c->rope_local_theta, c->rotary_dim, context, c->max_position_embeddings, t->inv_freq + t->half, &magnitude);
    }
    return 0;
}

static void turn_to(struct turn *t, int64_t delta, bool both)
{
    if (t->delta == delta) return;
    t->delta = delta;
    for (int64_t i = 0; i < (both ? 2 : 1) * t->half; i++) {
        double angle = (double)delta * (double)t->inv_freq[i];
        t->cos[i] = cos(angle);
        t->sin[i] = sin(angle);
    }
}

/* Rotates the channels of one head from `first` on. */
static void turn_head(const struct turn *t, int kind, enum llm_rope_pairing pairing, float *x, int64_t first)
{
    const double *c = t->cos + kind * t->half, *s = t->sin + kind * t->half;
    for (int64_t i = 0; i < t->half; i++) {
        float *a = x + first + (pairing == LLM_ROPE_HALVES ? i : 2 * i), *b = pairing == LLM_ROPE_HALVES ? a + t->half : a + 1;
        double u = (double)*a, v = (double)*b;
        *a = (float)(u * c[i] - v * s[i]);
        *b = (float)(v * c[i] + u * s[i]);
    }
}

/* Rotates n_heads heads of a row of a dtype; scratch: room for a head. */
static void turn_row(const struct turn *t, const struct llm_kv_file *f, int64_t layer, enum llm_dtype dtype, int64_t n_heads, void *row,
                     float *scratch)
{
    const struct llm_config *c = &f->config;
    int64_t d = f->layers[layer].shape.d_k, first = f->layers[layer].shape.d_v > 0 ? 0 : c->kv_lora_rank;
    size_t bytes = llm_dtype_bytes(dtype, (uint64_t)d);
    int kind = kind_of(c, layer);
    for (int64_t h = 0; kind >= 0 && h < n_heads; h++) {
        unsigned char *p = (unsigned char *)row + (size_t)h * bytes;
        llm_dtypes[dtype].decode(p, scratch, (size_t)d);
        turn_head(t, kind, c->rope_pairing, scratch, first);
        llm_dtypes[dtype].encode(scratch, p, (size_t)d);
    }
}

/* Why keys of this model cannot get other positions; NULL: they can. */
static const char *fixed(const struct llm_config *c)
{
    if (c->mixer == LLM_MIXER_HYENA) return "what it keeps of a text depends on where the text begins";
    if (c->position == LLM_POSITION_LEARNED || c->position == LLM_POSITION_SINUSOIDAL) return "its positions are added to embeddings";
    if (c->dual_chunk_size > 0) return "dual chunk attention rotates by chunks of positions";
    return NULL;
}

static int check_types(const struct llm_kv_file *f, const struct llm_kv_file *first, struct llm_err *e)
{
    char *found = llm_kv_file_types(f, e), *wanted = found ? llm_kv_file_types(first, e) : NULL;
    int status = wanted ? 0 : -1;
    if (wanted && strcmp(found, wanted) != 0) status = llm_fail(e, EX_DATAERR, "expected %s, as the first cache has, found %s", wanted, found);
    free(found);
    free(wanted);
    return status;
}

/* Checks that part i goes with the first. */
static int check_part(const struct llm_kv_file *parts, int64_t i, int64_t at, struct llm_err *e)
{
    const struct llm_kv_file *f = &parts[i], *a = &parts[0];
    const char *why = fixed(&f->config);
    if (refuse_others(f, e) < 0) return -1;
    if (has_state(f)) {
        return llm_fail(e, EX_DATAERR, "expected keys of attention, found the state of a recurrent model, which is that after its last token");
    }
    if (strcmp(f->fingerprint, a->fingerprint) != 0 || !json_equal(f->config_json, a->config_json)) {
        return llm_fail(e, EX_DATAERR, "expected a cache of the first one's model (fingerprint %s), found one of %s", a->fingerprint, f->fingerprint);
    }
    if (check_types(f, a, e) < 0) return -1;
    if (llm_rope_follows_context(&f->config.rope_scaling)
        && !llm_rope_same_context(&f->config.rope_scaling, f->rope_context, a->rope_context, f->config.max_position_embeddings)) {
        return llm_fail(e, EX_DATAERR, "expected keys with rotary positions for a context of %" PRId64 " tokens, found %" PRId64, a->rope_context,
                        f->rope_context);
    }
    for (int64_t t = 0; why && t < f->n; t++) {
        if (f->positions[t] == at + t) continue;
        return llm_fail(e, EX_DATAERR, "expected position %" PRId64 ", found %" PRId32 ": keys of %s cannot be rotated to it: %s", at + t,
                        f->positions[t], f->config.model_type, why);
    }
    return 0;
}

static int make_arrays(struct llm_kv_file *out, const struct llm_kv_file *last, struct llm_err *e)
{
    out->ids = llm_alloc((size_t)out->n, sizeof *out->ids, "a joined cache", e);
    out->positions = llm_alloc((size_t)out->n, sizeof *out->positions, "a joined cache", e);
    out->layers = llm_calloc((size_t)last->n_layers, sizeof *out->layers, "a joined cache", e);
    if (!out->ids || !out->positions || !out->layers) return -1;
    out->n_layers = last->n_layers;
    for (int64_t l = 0; l < out->n_layers; l++) {
        struct llm_kv_file_layer *layer = &out->layers[l];
        const struct llm_kv_file_layer *from = &last->layers[l];
        layer->shape = from->shape;
        layer->types = from->types;
        if (from->k && !(layer->k = llm_alloc((size_t)out->n, row_bytes(out, l, false), "a joined cache", e))) return -1;
        if (from->v && !(layer->v = llm_alloc((size_t)out->n, row_bytes(out, l, true), "a joined cache", e))) return -1;
        if (from->q && !(layer->q = llm_alloc((size_t)last->n_queries, query_bytes(last, l), "a joined cache", e))) return -1;
    }
    return 0;
}

/* Copies a part to token `at` of the joined cache, and rotates it there. Returns how many tokens got another position. */
static int64_t put_part(struct llm_kv_file *out, const struct llm_kv_file *f, int64_t at, bool last, struct turn *t, float *scratch)
{
    const struct llm_config *c = &f->config;
    int64_t heads = c->num_attention_heads, rotated = 0;
    memcpy(out->ids + at, f->ids, (size_t)f->n * sizeof *f->ids);
    for (int64_t l = 0; l < f->n_layers; l++) {
        const struct llm_kv_file_layer *from = &f->layers[l];
        size_t k = row_bytes(f, l, false), v = row_bytes(f, l, true);
        if (from->k) memcpy((char *)out->layers[l].k + (size_t)at * k, from->k, (size_t)f->n * k);
        if (from->v) memcpy((char *)out->layers[l].v + (size_t)at * v, from->v, (size_t)f->n * v);
        if (from->q && last) memcpy(out->layers[l].q, from->q, (size_t)f->n_queries * query_bytes(f, l));
    }
    for (int64_t i = 0; i < f->n; i++) {
        int64_t delta = at + i - f->positions[i], query = i - (f->n - f->n_queries);
        out->positions[at + i] = (int32_t)(at + i);
        if (delta == 0) continue;
        rotated++;
        turn_to(t, delta, c->rope_local_theta > 0);
        for (int64_t l = 0; l < f->n_layers; l++) {
            struct llm_kv_file_layer *to = &out->layers[l];
            if (to->k) turn_row(t, f, l, to->types.k, to->shape.n_kv_heads, (char *)to->k + (size_t)(at + i) * row_bytes(f, l, false), scratch);
            if (to->q && last && query >= 0) turn_row(t, f, l, LLM_F32, heads, (char *)to->q + (size_t)query * query_bytes(f, l), scratch);
        }
    }
    return rotated;
}

int llm_kv_file_join(struct llm_kv_file *out, const struct llm_kv_file *parts, int64_t n, int64_t *rotated, struct llm_err *e)
{
    const struct llm_kv_file *last = &parts[n - 1];
    struct turn t = {0};
    int64_t total = 0, at = 0, widest = 1;
    *rotated = 0;
    for (int64_t i = 0; i < n; i++) {
        if (check_part(parts, i, total, e) < 0) return llm_in(e, "cache %" PRId64, i + 1);
        if (__builtin_add_overflow(total, parts[i].n, &total) || total > INT32_MAX) return llm_no_memory(e, "a joined cache");
    }
    for (int64_t l = 0; l < last->n_layers; l++) widest = last->layers[l].shape.d_k > widest ? last->layers[l].shape.d_k : widest;
    out->n = out->rows = total;
    out->config = last->config;
    out->config_json = json_incref(last->config_json);
    memcpy(out->fingerprint, last->fingerprint, sizeof out->fingerprint);
    memcpy(out->tokenizer, last->tokenizer, sizeof out->tokenizer);
    out->rope_context = last->rope_context;
    out->n_queries = last->n_queries;
    float *scratch = llm_alloc((size_t)widest, sizeof *scratch, "a joined cache", e);
    int status = scratch && turn_init(&t, last, e) == 0 ? make_arrays(out, last, e) : -1;
    for (int64_t i = 0; i < n && status == 0; at += parts[i++].n) *rotated += put_part(out, &parts[i], at, i == n - 1, &t, scratch);
    free(scratch);
    free(t.inv_freq);
    free(t.cos);
    return status;
}
