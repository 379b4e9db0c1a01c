#include "infer/plan.h"

#include "cpu/detect.h"
#include "cpu/pool.h"

enum { SMALL = 64, LARGE = 128 };
enum { PROGRAM_BYTES = 7000000 };   /* the program */
enum { FILE_BYTES = 5000000 };      /* of it pages of its files */
enum { SAMPLING_ROWS = 6 };         /* of floats for each token of the vocabulary */

/* The peak of the arena of activations in a pass of `n` tokens, the logits of one row included, and the scratch memory of products so far. */
static int peak(struct llm_engine *g, int64_t n, double *bytes, double *scratch, struct llm_err *e)
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
    *scratch = (double)llm_scratch_bytes();
    llm_kv_release(&kv);
    return status;
}

/* What decoding adds: the second product of one row packs a weight. The packed form takes the place of a mapped weight's pages, and stands beside one
 * that is in memory of its own. *working: activations of one token. */
static int packed_bytes(struct llm_engine *g, double *bytes, double *working, struct llm_err *e)
{
    const struct llm_model *m = g->model;
    double unused;
    for (int i = 0; i < 2; i++) {
        if (peak(g, 1, working, &unused, e) < 0) return -1;
    }
    *bytes = 0;
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_weight *w = &m->params[i].weight;
        const double data = (double)llm_dtype_bytes(w->dtype, (uint64_t)llm_param_count(&m->params[i])), packed = (double)w->packed_bytes;
        *bytes += !w->map ? packed : packed > data ? packed - data : 0;
    }
    return 0;
}

/* What is resident now and no weight of the model: the tokenizer, and what else was allocated. */
static double own_bytes(const struct llm_model *m)
{
    double own = llm_memory_own();
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_weight *w = &m->params[i].weight;
        if (!w->map) own -= (double)llm_dtype_bytes(w->dtype, (uint64_t)llm_param_count(&m->params[i])) + (double)w->packed_bytes;
    }
    return own > 0 ? own : 0;
}

/* Bytes of a parameter that are resident while they are read, and no longer: it is mapped, and its pages are released. NULL: 0. */
static double mapped_bytes(const struct llm_param *p)
{
    return p && p->weight.map ? (double)llm_dtype_bytes(p->weight.dtype, (uint64_t)llm_param_count(p)) : 0;
}

/* Of the weights that products read, bytes whose pages the first pass of a prompt releases as it goes (cpu/matmul_quantised.c). */
static double released_by_first_pass(const struct llm_model *m)
{
    double bytes = 0;
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_param *q = &m->params[i];
        const bool looked_up = q == llm_model_embedding(m) && q != llm_model_head(m);
        if (llm_dtypes[q->weight.dtype].block_size > 1 && !looked_up) bytes += mapped_bytes(q);
    }
    return bytes;
}

int llm_infer_plan(struct llm_engine *g, int64_t sequences, bool one_text, struct llm_infer_plan *p, struct llm_err *e)
{
    const struct llm_model *m = g->model;
    double small, large, scratch[2], packed, of_token;
    const double program = FILE_BYTES + own_bytes(m) + SAMPLING_ROWS * 4. * (double)m->config.vocab_size; /* as it is before the passes below */
    struct llm_cost_row rows[32];
    int64_t pages = (g->context + LLM_KV_TILE - 1) / LLM_KV_TILE, max = g->batch < g->context && !m->config.bidirectional ? g->batch : g->context;
    int64_t sizes[2] = {max < SMALL ? 1 : SMALL, max < LARGE ? max : LARGE};
    struct llm_predictor_facts f = {0};
    g->predictor->describe(m, &f);
    *p = (struct llm_infer_plan){.parameters = f.parameters, .weight_bytes = f.weight_bytes};
    p->cache_bytes_per_token = (double)g->pool.token_bytes;
    p->state_bytes = llm_model_state_bytes(&m->config);
    p->cache_bytes = (double)sequences * ((double)pages * (double)g->pool.page_bytes + p->state_bytes);
    size_t n = llm_model_cost(&m->config, g->context, rows, sizeof rows / sizeof *rows);
    for (size_t i = 0; i < n; i++) p->flops_per_token += rows[i].flops_forward;
    p->read_bytes_per_token = f.read_bytes + p->cache_bytes_per_token * (double)g->context + p->state_bytes;
    if (peak(g, sizes[0], &small, &scratch[0], e) < 0 || peak(g, sizes[1], &large, &scratch[1], e) < 0) return -1;
    if (packed_bytes(g, &packed, &of_token, e) < 0) return -1;
    double steps = sizes[1] > sizes[0] ? (double)(max - sizes[0]) / (double)(sizes[1] - sizes[0]) : 0;
    p->working_bytes = small + steps * (large - small);
    const double products = scratch[0] + steps * (scratch[1] - scratch[0]);
    p->other_bytes = packed + products + PROGRAM_BYTES;
    p->memory_bytes = p->weight_bytes + p->cache_bytes + p->working_bytes + p->other_bytes;
    if (!one_text || m->config.bidirectional) return 0;
    /* The head is read once the prompt's activations are released, and weights are packed after that (llm_engine_predict, llm_engine_advance). */
    const struct llm_param *head = llm_model_head(m), *embedding = llm_model_embedding(m);
    const double read = p->weight_bytes - (head != embedding ? mapped_bytes(embedding) : 0);
    double absent = mapped_bytes(head); /* during the prompt */
    if (g->context <= g->batch && released_by_first_pass(m) > absent) absent = released_by_first_pass(m);
    const double prompt = p->working_bytes + products - absent;
    p->memory_bytes = read + p->cache_bytes + program + (prompt > of_token + packed ? prompt : of_token + packed);
    return 0;
}
