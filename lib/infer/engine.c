#include "infer/engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/signals.h"
#include "cpu/form_memory.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "model/forward/watch.h"

enum { PACKED_AFTER = 4, PACKING_ROWS = 255 }; /* passes; the rows of a pass in which llm_matmul may pack */
#define ARENA ((size_t)1 << 36) /* address space for one pass */

int llm_engine_init(struct llm_engine *g, struct llm_model *m, const struct llm_engine_options *o, struct llm_err *e)
{
    int64_t limit = m->config.max_position_embeddings;
    *g = (struct llm_engine){.model = m, .predictor = llm_predictor_of(m), .batch = o->batch,
                              .context = o->context ? o->context : llm_config_default_context(&m->config)};
    if (g->context > limit && llm_config_is_limited(&m->config)) {
        return llm_fail(e, LLM_EX_USAGE, "context %" PRId64 ": expected at most %" PRId64 ", the model's positions", g->context, limit);
    }
    if (g->context > limit) llm_warn("context %" PRId64 ": the model was made for %" PRId64 " positions", g->context, limit);
    if (m->config.prefix_lm && g->batch < g->context) g->batch = g->context;
    if (llm_model_set_context(m, g->context, e) < 0) return -1;
    if (llm_ctx_init(&g->ctx, ARENA, 4096, false, e) < 0) return -1;
    g->ctx.compute = o->compute;
    g->ids = llm_alloc((size_t)g->batch, sizeof *g->ids, "a pass's tokens", e);
    g->positions = llm_alloc((size_t)g->batch, sizeof *g->positions, "a pass's tokens", e);
    if (!g->ids || !g->positions) return -1;
    if (llm_kv_pool_init(&g->pool, &m->config, o->cache ? o->cache : o->compute == LLM_COMPUTE_BF16 ? "bf16" : "f32", e) < 0) return -1;
    if (o->draft > 0 && m->config.num_nextn_predict_layers < 1) {
        return llm_fail(e, EX_UNAVAILABLE, "drafts: expected a model with layers that predict further (num_nextn_predict_layers), found %s without",
                        m->config.model_type);
    }
    g->draft = o->draft;
    return o->draft > 0 ? llm_kv_pool_add_draft(&g->pool, &m->config, e) : 0;
}

void llm_engine_release(struct llm_engine *g)
{
    if (!g->model) return;
    llm_ctx_release(&g->ctx);
    llm_kv_pool_release(&g->pool);
    free(g->ids);
    free(g->positions);
    free(g->seqs);
    free(g->memories);
    free(g->factors);
    free(g->strengths);
    llm_album_release(&g->album);
    *g = (struct llm_engine){0};
}

int llm_engine_too_long(const struct llm_engine *g, int64_t n, struct llm_err *e)
{
    const char *more = g->model->rope_context > 0 ? ": rotary positions are scaled for as many, -c N asks for others" : "";
    return llm_fail(e, EX_DATAERR, "expected at most %" PRId64 " tokens (the context%s), found %" PRId64, g->context, more, n);
}

/* The tokens of all feeds one after another, and room for them in the caches. */
static int gather(struct llm_engine *g, const struct llm_feed *feeds, int64_t n, int64_t *total, struct llm_err *e)
{
    *total = 0;
    for (int64_t s = 0; s < n; s++) {
        struct llm_kv *kv = feeds[s].kv;
        if (kv->n + feeds[s].n > g->context) return llm_engine_too_long(g, kv->n + feeds[s].n, e);
        if (llm_kv_reserve(kv, kv->n + feeds[s].n, e) < 0) return -1;
        memcpy(g->ids + *total, feeds[s].ids, (size_t)feeds[s].n * sizeof *g->ids);
        *total += feeds[s].n;
    }
    return 0;
}

/* Sets the adapter factors of each token of the pass to those of its sequence. 0 or -1. */
static int place_adapters(struct llm_engine *g, const struct llm_feed *feeds, int64_t n, int64_t total, struct llm_err *e)
{
    bool any = false;
    int64_t at = 0;
    for (int64_t s = 0; s < n; s++) any |= feeds[s].kv->adapters != NULL;
    g->n_factors = any ? total : 0;
    g->ctx.adapters = (struct llm_adapter_rows){0};
    if (!any) return 0;
    if (llm_grow((void **)&g->factors, &g->factors_room, 2 * (size_t)total, sizeof *g->factors, e) < 0) return -1;
    for (int64_t s = 0; s < n; s++) {
        for (int64_t i = 0; i < feeds[s].n; i++) g->factors[at++] = feeds[s].kv->adapters;
    }
    g->ctx.adapters = (struct llm_adapter_rows){.factors = g->factors, .n_tokens = total};
    return 0;
}

/* Gives the watchers of the pass the strengths of steering of each feed's sequence. 0 or -1. */
static int place_strengths(struct llm_engine *g, const struct llm_feed *feeds, int64_t n, struct llm_err *e)
{
    bool any = false;
    if (!g->ctx.watch) return 0;
    for (int64_t s = 0; s < n; s++) any |= feeds[s].kv->strengths != NULL;
    g->ctx.watch->strengths = NULL;
    if (!any) return 0;
    if (llm_grow((void **)&g->strengths, &g->strengths_room, (size_t)n, sizeof *g->strengths, e) < 0) return -1;
    for (int64_t s = 0; s < n; s++) g->strengths[s] = feeds[s].kv->strengths;
    g->ctx.watch->strengths = g->strengths;
    return 0;
}

/* Sets the adapter factors for the following products, which read only these rows of the pass. 0 or -1. */
static int pick_adapters(struct llm_engine *g, const int64_t *rows, int64_t n, struct llm_err *e)
{
    if (g->n_factors == 0) return 0;
    if (llm_grow((void **)&g->factors, &g->factors_room, (size_t)(g->n_factors + n), sizeof *g->factors, e) < 0) return -1;
    const float **picked = g->factors + g->n_factors;
    for (int64_t i = 0; i < n; i++) picked[i] = rows[i] < g->n_factors ? g->factors[rows[i]] : NULL;
    g->ctx.adapters = (struct llm_adapter_rows){.factors = picked, .n_tokens = n};
    return 0;
}

static struct llm_tensor *encode(struct llm_engine *g, const int32_t *ids, const int32_t *kinds, const int64_t *lengths, int64_t n_texts,
                                 struct llm_kv *kv, struct llm_err *e);

int llm_engine_remember(struct llm_engine *g, struct llm_kv *kv, const int32_t *ids, int64_t n, struct llm_err *e)
{
    int64_t layers = g->pool.n_layers;
    if (llm_grow((void **)&g->memories, &g->memories_room, (size_t)layers, sizeof *g->memories, e) < 0) return -1;
    struct llm_tensor *hidden = encode(g, ids, NULL, &n, 1, kv, e);
    if (!hidden || llm_kv_remember(kv, n, e) < 0) return -1;
    for (int64_t l = 0; l < layers; l++) g->memories[l] = (struct llm_kv_seq){.n = n, .view = llm_kv_view(kv->memory, l)};
    llm_model_remember(&g->ctx, g->model, hidden, g->memories);
    if (llm_ctx_failed(&g->ctx)) return llm_fail(e, g->ctx.err.status, "%s", g->ctx.err.text);
    llm_kv_append(kv->memory, ids, n);
    return 0;
}

/* After a prompt come single tokens, which need little of its memory. After the first few of them every weight has been packed; the scratch memory
 * that packing used is then released. */
static void release_after_prompt(struct llm_engine *g)
{
    llm_arena_trim(&g->ctx.acts);
    llm_scratch_release();
    if (g->warm_at > 0) return;
    g->warm_at = g->passes + PACKED_AFTER;
    llm_pages_release_program();
}

/* Before each of the passes that pack weights: releases the pages of the files that an earlier pass has read, so that they do not take memory beside
 * the packed forms. */
static void release_files(struct llm_engine *g)
{
    for (size_t i = 0; i < g->model->n_files; i++) llm_checkpoint_release_pages(g->model->files[i]);
    if (g->passes < g->warm_at) return;
    llm_scratch_release();
    llm_form_memory_trim();
    llm_pages_release_program();
}

int llm_engine_advance(struct llm_engine *g, const struct llm_feed *feeds, int64_t n, struct llm_reading *r, struct llm_err *e)
{
    int64_t total = 0;
    if (gather(g, feeds, n, &total, e) < 0) return -1;
    llm_ctx_reset(&g->ctx);
    if (total * 8 <= g->room) {
        release_after_prompt(g);
        g->room = total;
    }
    if (total > g->room) g->room = total;
    if (g->warm_at > 0 && g->passes <= g->warm_at) {
        if (total <= PACKING_ROWS) release_files(g);
        else g->warm_at++; /* a pass of another prompt packs nothing, and the next one reads the files again */
    }
    *r = (struct llm_reading){.n = total};
    if (place_adapters(g, feeds, n, total, e) < 0 || place_strengths(g, feeds, n, e) < 0) return -1;
    if (g->predictor->advance(g, feeds, n, total, r, e) < 0) return -1;
    for (int64_t s = 0; s < n; s++) llm_kv_append(feeds[s].kv, feeds[s].ids, feeds[s].n);
    g->passes++;
    g->tokens += total;
    return 0;
}

struct llm_tensor *llm_engine_run(struct llm_engine *g, const struct llm_feed *feeds, int64_t n, struct llm_err *e)
{
    struct llm_reading r;
    if (llm_engine_advance(g, feeds, n, &r, e) < 0) return NULL;
    if (!r.hidden) llm_fail(e, EX_DATAERR, "expected a model with hidden states, found %s", g->predictor->name);
    return r.hidden;
}

/* The encoder's final hidden states of a batch; NULL: see `e`. */
static struct llm_tensor *encode_batch(struct llm_engine *g, const struct llm_batch *b, struct llm_err *e)
{
    struct llm_tensor *hidden = llm_model_encode(&g->ctx, g->model, b);
    if (llm_ctx_failed(&g->ctx)) {
        llm_fail(e, g->ctx.err.status, "%s", g->ctx.err.text);
        return NULL;
    }
    g->passes++;
    g->tokens += b->n_tokens;
    return hidden;
}

struct llm_tensor *llm_engine_see(struct llm_engine *g, const float *pixels, int64_t n, struct llm_err *e)
{
    struct llm_config f;
    llm_ctx_reset(&g->ctx);
    if (!llm_config_sees(&g->model->config, &f)) {
        llm_fail(e, EX_UNAVAILABLE, "expected a model that reads pictures, found %s", g->model->config.model_type);
        return NULL;
    }
    const struct llm_batch b = llm_model_pictures(&g->ctx, &f, n);
    if (llm_ctx_failed(&g->ctx)) {
        llm_no_memory(e, "a pass's patches");
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) llm_model_put_picture(&f, &b, i, pixels + i * f.num_channels * f.image_size * f.image_size);
    return encode_batch(g, &b, e);
}

/* llm_engine_encode with the adapters of `kv`; NULL: all of the model's. */
static struct llm_tensor *encode(struct llm_engine *g, const int32_t *ids, const int32_t *kinds, const int64_t *lengths, int64_t n_texts,
                                 struct llm_kv *kv, struct llm_err *e)
{
    int64_t total = 0, at = 0;
    for (int64_t t = 0; t < n_texts; t++) {
        if (lengths[t] > g->context && llm_engine_too_long(g, lengths[t], e) < 0) return NULL;
        total += lengths[t];
    }
    llm_ctx_reset(&g->ctx);
    int32_t *positions = llm_arena_alloc(&g->ctx.acts, 2 * (size_t)total * sizeof *positions), *starts = positions + total;
    if (!positions) {
        llm_no_memory(e, "a pass's tokens");
        return NULL;
    }
    for (int64_t t = 0; t < n_texts; at += lengths[t++]) {
        for (int64_t i = 0; i < lengths[t]; i++) {
            positions[at + i] = (int32_t)i;
            starts[at + i] = (int32_t)at;
        }
    }
    g->n_factors = 0;
    g->ctx.adapters = (struct llm_adapter_rows){0};
    if (place_strengths(g, NULL, 0, e) < 0) return NULL;
    if (kv && place_adapters(g, &(struct llm_feed){.kv = kv, .ids = ids, .n = total}, 1, total, e) < 0) return NULL;
    struct llm_batch b = {.ids = ids, .positions = positions, .n_tokens = total, .doc_start = starts, .kinds = kinds};
    return encode_batch(g, &b, e);
}

struct llm_tensor *llm_engine_encode(struct llm_engine *g, const int32_t *ids, const int32_t *kinds, const int64_t *lengths, int64_t n_texts,
                                     struct llm_err *e)
{
    return encode(g, ids, kinds, lengths, n_texts, NULL, e);
}

/* Mixes what followed similar states into the logits of some rows. */
static int mix_neighbours(struct llm_engine *g, const struct llm_reading *r, const int64_t *rows, int64_t n_rows, float *logits, struct llm_err *e)
{
    size_t mark = llm_arena_mark(&g->ctx.acts);
    const int64_t width = g->model->config.hidden_size;
    float *states = llm_arena_alloc(&g->ctx.acts, (size_t)(n_rows * width) * sizeof *states);
    if (!states) return llm_no_memory(e, "hidden states");
    for (int64_t i = 0; i < n_rows; i++) memcpy(states + i * width, r->hidden->data + rows[i] * r->hidden->stride, (size_t)width * sizeof *states);
    int status = llm_knn_mix(g->knn, states, logits, n_rows, g->model->config.vocab_size, e);
    llm_arena_pop(&g->ctx.acts, mark);
    return status;
}

float *llm_engine_predict(struct llm_engine *g, const struct llm_reading *r, const int64_t *rows, int64_t n_rows, struct llm_err *e)
{
    if (n_rows * 8 <= r->n && g->warm_at == 0) release_after_prompt(g); /* later prompts need again what they would release */
    if (pick_adapters(g, rows, n_rows, e) < 0) return NULL;
    float *logits = g->predictor->logits(g, r, rows, n_rows, e);
    return logits && g->knn && mix_neighbours(g, r, rows, n_rows, logits, e) < 0 ? NULL : logits;
}

float *llm_engine_logits(struct llm_engine *g, struct llm_tensor *hidden, const int64_t *rows, int64_t n_rows, struct llm_err *e)
{
    return llm_engine_predict(g, &(struct llm_reading){.n = hidden->rows, .hidden = hidden}, rows, n_rows, e);
}

static int visit_spans(struct llm_engine *g, const struct llm_reading *r, int64_t first, bool want_logits, llm_span_visit *visit, void *arg,
                       struct llm_err *e)
{
    int64_t rows[LLM_SPAN_MAX];
    for (int64_t at = 0; at < r->n; at += LLM_SPAN_MAX) {
        size_t mark = llm_arena_mark(&g->ctx.acts);
        struct llm_span s = {.first = first + at, .n = r->n - at < LLM_SPAN_MAX ? r->n - at : LLM_SPAN_MAX, .reading = r, .row = at};
        if (r->hidden) s.hidden = r->hidden->data + at * r->hidden->stride;
        for (int64_t i = 0; i < s.n; i++) rows[i] = at + i;
        if (want_logits && !(s.logits = llm_engine_predict(g, r, rows, s.n, e))) return -1;
        if (visit(arg, &s, e) < 0) return -1;
        llm_arena_pop(&g->ctx.acts, mark);
    }
    return 0;
}

int llm_engine_prefill(struct llm_engine *g, struct llm_kv *kv, const int32_t *ids, int64_t n, bool together, bool want_logits,
                       llm_span_visit *visit, void *arg, struct llm_err *e)
{
    if (g->model->config.bidirectional || g->model->config.num_encoder_layers > 0) {
        struct llm_reading r = {.hidden = llm_engine_encode(g, ids, NULL, &n, 1, e)};
        r.n = r.hidden ? r.hidden->rows : 0; /* learned latents: not as many as tokens */
        return !r.hidden || (visit && visit_spans(g, &r, 0, want_logits, visit, arg, e) < 0) ? -1 : 0;
    }
    for (int64_t at = 0, step; at < n; at += step) {
        step = n - at < g->batch ? n - at : g->batch;
        struct llm_feed feed = {kv, ids + at, step, together};
        if (llm_signal_caught()) return 1;
        struct llm_reading r;
        if (llm_engine_advance(g, &feed, 1, &r, e) < 0 || (visit && visit_spans(g, &r, at, want_logits, visit, arg, e) < 0)) return -1;
    }
    return 0;
}

int llm_engine_rewind(struct llm_engine *g, struct llm_kv *kv, int64_t n, struct llm_err *e)
{
    if (llm_kv_can_truncate(kv, n)) {
        llm_kv_truncate(kv, n);
        return 0;
    }
    if (kv->kept) {
        return llm_fail(e, EX_DATAERR, "expected to keep at least %" PRId64 " tokens of an evicted cache, all that its heads have in common; found %"
                        PRId64, kv->kept->n - kv->kept->recent, n);
    }
    struct llm_kv again;
    llm_kv_init(&again, kv->pool);
    again.queries = kv->queries;
    again.n_queries = kv->n_queries;
    again.query_width = kv->query_width;
    again.adapters = kv->adapters;
    kv->queries = NULL;
    int status = llm_engine_prefill(g, &again, kv->ids, n, false, false, NULL, NULL, e);
    if (status == 0) {
        struct llm_kv old = *kv;
        *kv = again;
        again = old;
    }
    llm_kv_release(&again);
    return status;
}

double llm_log_prob(const float *logits, int64_t n, int32_t id, double *entropy)
{
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++) max = logits[i] > max ? logits[i] : max;
    double sum = 0, below = 0; /* below the maximum, weighted by e^ of it */
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)logits[i] - max, weight = exp(x);
        sum += weight;
        if (entropy && weight > 0) below += weight * x;
    }
    if (entropy) *entropy = log(sum) - below / sum;
    return (double)logits[id] - max - log(sum);
}

float llm_token_log_prob(float *logits, float scale, int64_t n, int32_t id)
{
    float logit = logits[id] * scale;
    struct llm_ce_row row = llm_k.rows.ce_forward(logits, scale, 0, (size_t)n);
    return (float)((double)logit - (double)row.max - log((double)row.sum));
}
