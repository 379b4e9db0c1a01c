#include "infer/plan.h"

#include <string.h>
#include "model/ngram.h"

enum { SMALL = 8, LARGE = 24 };

/* Most memory that a pass of `n` tokens has on the stack of activations, the logits of one row included. */
static int peak(struct llm_engine *g, int64_t n, double *bytes, struct llm_err *e)
{
    int32_t ids[LARGE] = {0};
    int64_t row = n - 1;
    struct llm_kv kv;
    llm_kv_init(&kv, &g->pool);
    llm_ctx_reset(&g->ctx);
    g->ctx.acts.peak = 0;
    struct llm_feed feed = {&kv, ids, n, g->model->config.prefix_lm};
    bool encoder = g->model->config.bidirectional;
    if (g->model->config.num_encoder_layers > 0 && llm_engine_remember(g, &kv, ids, n, e) < 0) {
        llm_kv_release(&kv);
        return -1;
    }
    struct llm_tensor *hidden = encoder ? llm_engine_encode(g, ids, NULL, &n, 1, e) : llm_engine_run(g, &feed, 1, e);
    int status = hidden && (encoder || llm_engine_logits(g, hidden, &row, 1, e)) ? 0 : -1;
    *bytes = (double)g->ctx.acts.peak;
    llm_kv_release(&kv);
    return status;
}

int llm_infer_plan(struct llm_engine *g, int64_t sequences, struct llm_infer_plan *p, struct llm_err *e)
{
    const struct llm_model *m = g->model;
    double small, large, read = 0;
    struct llm_cost_row rows[32];
    int64_t pages = (g->context + LLM_KV_TILE - 1) / LLM_KV_TILE, most = g->batch < g->context && !m->config.bidirectional ? g->batch : g->context;
    int64_t sizes[2] = {g->context < SMALL ? 1 : SMALL, g->context < LARGE ? g->context : LARGE};
    *p = (struct llm_infer_plan){.parameters = llm_model_params(&m->config)};
    for (size_t i = 0; i < m->n_params; i++) {
        double bytes = (double)llm_dtype_bytes(m->params[i].weight.dtype, (uint64_t)llm_param_count(&m->params[i]));
        bool looked_up = &m->params[i] != llm_model_head(m) && &m->params[i] == llm_model_embedding(m);
        p->weight_bytes += bytes;
        read += looked_up ? bytes / (double)m->config.vocab_size : bytes;
    }
    for (int k = 0; m->ngram && k < m->ngram->order; k++) p->parameters += (double)llm_ngram_count(m->ngram, k);
    if (m->ngram) {
        p->weight_bytes = llm_ngram_bytes(m->ngram);
        read = (double)m->config.vocab_size * sizeof(float); /* the logits of a context that is in no table */
    }
    p->cache_bytes_per_token = llm_model_kv_bytes_per_token(&m->config, g->pool.dtype);
    p->state_bytes = llm_model_state_bytes(&m->config);
    p->cache_bytes = (double)sequences * ((double)pages * (double)g->pool.page_bytes + p->state_bytes);
    size_t n = llm_model_cost(&m->config, g->context, rows, sizeof rows / sizeof *rows);
    for (size_t i = 0; i < n; i++) p->flops_per_token += rows[i].flops_forward;
    p->read_bytes_per_token = read + p->cache_bytes_per_token * (double)g->context + p->state_bytes;
    if (peak(g, sizes[0], &small, e) < 0 || peak(g, sizes[1], &large, e) < 0) return -1;
    double slope = sizes[1] > sizes[0] ? (large - small) / (double)(sizes[1] - sizes[0]) : 0;
    p->working_bytes = small + slope * (double)(most - sizes[0]);
    return 0;
}
