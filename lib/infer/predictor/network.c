/* Networks: a pass over all sequences gives hidden states; the head gives the logits of the requested rows. */
#include <string.h>
#include "base/buf.h"
#include "cpu/matmul.h"
#include "infer/engine.h"
#include "model/forward/watch.h"

/* Tells each layer where each sequence's cache lies. */
static int prepare(struct llm_engine *g, const struct llm_feed *feeds, int64_t n, struct llm_err *e)
{
    int64_t layers = g->pool.n_layers, at = 0;
    if (llm_grow((void **)&g->seqs, &g->seqs_room, (size_t)(layers * n), sizeof *g->seqs, e) < 0) return -1;
    for (int64_t s = 0; s < n; s++) {
        struct llm_kv *kv = feeds[s].kv;
        int64_t rows = llm_kv_rows(kv);
        for (int64_t i = 0; i < feeds[s].n; i++) g->positions[at + i] = (int32_t)(kv->n + i);
        for (int64_t l = 0; l < layers; l++) {
            g->seqs[l * n + s] = (struct llm_kv_seq){.first = at, .n = feeds[s].n, .pos = rows, .view = llm_kv_view(kv, l),
                                                     .state = llm_kv_state(kv, l), .prefix = feeds[s].together ? rows + feeds[s].n : 0};
            if (!kv->queries) continue;
            g->seqs[l * n + s].queries = kv->queries + l * kv->n_queries * kv->query_width;
            g->seqs[l * n + s].n_queries = kv->n_queries;
        }
        at += feeds[s].n;
    }
    return 0;
}

/* Tells each layer the keys and values that its cross-attention reads. */
static int prepare_memories(struct llm_engine *g, const struct llm_feed *feeds, int64_t n, struct llm_err *e)
{
    int64_t layers = g->pool.n_layers;
    if (g->model->config.num_encoder_layers == 0) return 0;
    if (llm_grow((void **)&g->memories, &g->memories_room, (size_t)(layers * n), sizeof *g->memories, e) < 0) return -1;
    for (int64_t s = 0; s < n; s++) {
        const struct llm_kv *memory = feeds[s].kv->memory;
        if (!memory) return llm_model_must_continue(g->model, e);
        for (int64_t l = 0; l < layers; l++) {
            g->memories[l * n + s] = g->seqs[l * n + s];
            g->memories[l * n + s].view = llm_kv_view(memory, l);
            g->memories[l * n + s].n_keys = memory->n;
            g->memories[l * n + s].queries = NULL;
        }
    }
    return 0;
}

static int advance(struct llm_engine *g, const struct llm_feed *feeds, int64_t n, int64_t total, struct llm_reading *r, struct llm_err *e)
{
    if (prepare(g, feeds, n, e) < 0 || prepare_memories(g, feeds, n, e) < 0) return -1;
    struct llm_batch b = {.ids = g->ids, .positions = g->positions, .n_tokens = total, .seqs = g->seqs, .n_seqs = n,
                          .memories = g->model->config.num_encoder_layers > 0 ? g->memories : NULL};
    if (g->album.n > 0 && llm_album_place(g, &b, e) < 0) return -1;
    r->hidden = llm_model_forward(&g->ctx, g->model, &b);
    r->n = r->hidden->rows;
    return llm_ctx_failed(&g->ctx) ? llm_fail(e, g->ctx.err.status, "%s", g->ctx.err.text) : 0;
}

static float *logits(struct llm_engine *g, const struct llm_reading *r, const int64_t *rows, int64_t n_rows, struct llm_err *e)
{
    const struct llm_tensor *hidden = r->hidden;
    struct llm_tensor *picked = llm_tensor_create(&g->ctx, n_rows, hidden->cols), *out = NULL;
    if (!llm_ctx_failed(&g->ctx)) {
        for (int64_t i = 0; i < n_rows; i++) {
            memcpy(picked->data + i * picked->stride, hidden->data + rows[i] * hidden->stride, (size_t)hidden->cols * sizeof(float));
        }
        llm_watch_pick(&g->ctx, rows, n_rows);
        out = llm_model_logits(&g->ctx, g->model, picked);
    }
    if (llm_ctx_failed(&g->ctx)) {
        llm_fail(e, g->ctx.err.status, "%s", g->ctx.err.text);
        return NULL;
    }
    return out->data;
}

static void describe(const struct llm_model *m, struct llm_predictor_facts *f)
{
    f->parameters = llm_model_params(&m->config);
    for (size_t i = 0; i < m->n_params; i++) {
        double bytes = (double)llm_dtype_bytes(m->params[i].weight.dtype, (uint64_t)llm_param_count(&m->params[i]));
        bool looked_up = &m->params[i] != llm_model_head(m) && &m->params[i] == llm_model_embedding(m);
        f->weight_bytes += bytes;
        f->read_bytes += looked_up ? bytes / (double)m->config.vocab_size : bytes;
    }
}

static const char *arithmetic(const struct llm_model *m, enum llm_compute compute)
{
    const struct llm_param *largest = &m->params[0];
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_param *q = &m->params[i];
        if (q->role != LLM_ROLE_HIDDEN) continue;
        largest = q;
        break;
    }
    return llm_matmul_kind(largest->weight.dtype, compute);
}

const struct llm_predictor llm_predictor_network = {
    .name = "a network", .has_states = true, .advance = advance, .logits = logits, .describe = describe, .arithmetic = arithmetic};
