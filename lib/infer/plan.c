#include "infer/plan.h"

#include <string.h>

enum { SMALL = 8, LARGE = 24 };

/* The peak of the arena of activations in a pass of `n` tokens, the logits of one row included. */
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
    struct llm_reading r;
    int status = encoder ? (llm_engine_encode(g, ids, NULL, &n, 1, e) ? 0 : -1) : llm_engine_advance(g, &feed, 1, &r, e);
    if (status == 0 && !encoder && !llm_engine_predict(g, &r, &row, 1, e)) status = -1;
    *bytes = (double)g->ctx.acts.peak;
    llm_kv_release(&kv);
    return status;
}

int llm_infer_plan(struct llm_engine *g, int64_t sequences, struct llm_infer_plan *p, struct llm_err *e)
{
    const struct llm_model *m = g->model;
    double small, large;
    struct llm_cost_row rows[32];
    int64_t pages = (g->context + LLM_KV_TILE - 1) / LLM_KV_TILE, max = g->batch < g->context && !m->config.bidirectional ? g->batch : g->context;
    int64_t sizes[2] = {g->context < SMALL ? 1 : SMALL, g->context < LARGE ? g->context : LARGE};
    struct llm_predictor_facts f = {0};
    g->predictor->describe(m, &f);
    *p = (struct llm_infer_plan){.parameters = f.parameters, .weight_bytes = f.weight_bytes};
    p->cache_bytes_per_token = llm_model_kv_bytes_per_token(&m->config, g->pool.dtype);
    p->state_bytes = llm_model_state_bytes(&m->config);
    p->cache_bytes = (double)sequences * ((double)pages * (double)g->pool.page_bytes + p->state_bytes);
    size_t n = llm_model_cost(&m->config, g->context, rows, sizeof rows / sizeof *rows);
    for (size_t i = 0; i < n; i++) p->flops_per_token += rows[i].flops_forward;
    p->read_bytes_per_token = f.read_bytes + p->cache_bytes_per_token * (double)g->context + p->state_bytes;
    if (peak(g, sizes[0], &small, e) < 0 || peak(g, sizes[1], &large, e) < 0) return -1;
    double slope = sizes[1] > sizes[0] ? (large - small) / (double)(sizes[1] - sizes[0]) : 0;
    p->working_bytes = small + slope * (double)(max - sizes[0]);
    return 0;
}
