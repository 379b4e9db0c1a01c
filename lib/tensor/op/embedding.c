/* y[t] = scale · table[ids[t]]. The backward pass sorts the tokens by id, so that it visits each row of the table that occurs once, and no other
 * row. */
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/pages.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct embedding_args { const int32_t *ids; float scale; int use; };
struct work { const int32_t *ids; const struct llm_param *table; struct llm_tensor *y; float scale; };

static void forward_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    const struct llm_weight *table = &w->table->weight;
    size_t cols = (size_t)w->y->cols;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        float *y = w->y->data + t * w->y->stride;
        llm_weight_decode(table, w->ids[t] * table->k, table->k, y);
        if (w->scale != 1) llm_k.elementwise.scale(y, w->scale, y, cols);
    }
}

/* Sorts the tokens 0 … n - 1 by (id, token) with a stable radix sort, from the lowest byte of the ids. order and spare: [n]. Returns the one of the
 * two that holds the result. */
static int32_t *sort_tokens(const int32_t *ids, int64_t n, int32_t *order, int32_t *spare)
{
    int32_t max = 0;
    for (int64_t t = 0; t < n; t++) {
        order[t] = (int32_t)t;
        if (ids[t] > max) max = ids[t];
    }
    for (int shift = 0; shift < 32 && max >> shift; shift += 8) {
        int64_t start[257] = {0};
        for (int64_t t = 0; t < n; t++) start[(ids[t] >> shift & 255) + 1]++;
        for (int i = 0; i < 256; i++) start[i + 1] += start[i];
        for (int64_t t = 0; t < n; t++) spare[start[ids[order[t]] >> shift & 255]++] = order[t];
        int32_t *swap = order;
        order = spare;
        spare = swap;
    }
    return order;
}

struct back_work { const int32_t *ids, *order, *place; float *grad; const float *dy; int64_t dy_stride, n, row_len, cols; float scale; };

static void backward_columns(void *arg, int64_t from, int64_t to, int thread)
{
    const struct back_work *w = arg;
    float sum[64];
    size_t n = (size_t)(to - from);
    (void)thread;
    for (int64_t i = 0; i < w->n;) {
        int32_t id = w->ids[w->order[i]];
        int64_t end = llm_fold_end(w->n, w->row_len, w->order[i] / w->row_len * w->row_len + w->order[i] % w->row_len / LLM_FOLD * LLM_FOLD);
        memset(sum, 0, n * sizeof *sum);
        for (; i < w->n && w->order[i] < end && w->ids[w->order[i]] == id; i++) {
            llm_k.elementwise.axpy(sum, w->scale, w->dy + w->order[i] * w->dy_stride + from, n);
        }
        float *grad = w->grad + (w->place ? w->place[id] : id) * w->cols + from;
        llm_k.elementwise.add(grad, grad, sum, n);
    }
}

static float *accumulator(const struct llm_param *table, int use)
{
    float *own = llm_param_use(table, 2 * (use - 1));
    if (own) return own;
    return table->grad_lookup ? table->grad_lookup : table->grad;
}

/* in += scale²·Σ g·gᵀ over the gradients g of the rows of y. */
static bool add_kronecker(struct llm_ctx *c, const struct llm_kronecker *f, const struct llm_tensor *y, float scale)
{
    const int64_t n = y->cols;
    float *g = llm_op_alloc(c, y->rows * n, sizeof *g);
    for (int64_t t = 0; g && t < y->rows; t++) llm_k.elementwise.scale(g + t * n, scale, y->grad + t * y->grad_stride, (size_t)n);
    return g && llm_matmul_dw(f->in, g, n, g, n, y->rows, llm_row_len(c, y->rows), n, n, LLM_COMPUTE_F32, &c->err) == 0;
}

static void embedding_backward(struct llm_ctx *c, struct llm_node *node)
{
    LLM_PROFILE("embedding backward", 3 * llm_tensor_bytes(node->out));
    const struct embedding_args *a = node->args;
    struct llm_param *table = node->param[0];
    struct llm_tensor *y = node->out;
    if (table->kronecker && !add_kronecker(c, table->kronecker, y, a->scale)) return;
    if (!accumulator(table, a->use)) return;
    int32_t *order = llm_op_alloc(c, y->rows, sizeof *order), *spare = llm_op_alloc(c, y->rows, sizeof *spare);
    if (llm_ctx_failed(c)) return;
    float *grad = accumulator(table, a->use);
    const int32_t *place = grad == table->grad_lookup ? table->lookup_place : NULL;
    for (int64_t t = 0; place && t < y->rows; t++) {
        if (place[a->ids[t]] < 0) table->lookup_place[a->ids[t]] = table->lookup_rows++;
    }
    struct back_work w = {a->ids, sort_tokens(a->ids, y->rows, order, spare), place, grad, y->grad,
                          y->grad_stride, y->rows, llm_row_len(c, y->rows), y->cols, a->scale};
    llm_for_columns(y->cols, backward_columns, &w);
}

struct llm_tensor *llm_embedding(struct llm_ctx *c, const int32_t *ids, int64_t n, struct llm_param *table, float scale)
{
    LLM_PROFILE("embedding", 2 * n * table->weight.k * (int64_t)sizeof(float));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node node = {.backward = embedding_backward, .mark = llm_arena_mark(&c->acts), .param = {table}};
    if (n > INT32_MAX) return llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected fewer than 2^31 tokens, found %lld", table->name, (long long)n);
    node.out = llm_tensor_create(c, n, table->weight.k);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct work w = {ids, table, node.out, scale};
    llm_for_rows(n, table->weight.k, forward_rows, &w);
    llm_weight_looked_up(&table->weight, ids, n);
    node.out->spare = true;
    return llm_record(c, &node, &(struct embedding_args){ids, scale, c->use}, sizeof(struct embedding_args));
}

/* ---- gradient check ---- */

static const int32_t check_ids[12] = {3, 0, 6, 3, 3, 5, 0, 3, 6, 1, 3, 0};

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)in;
    return llm_embedding(c, check_ids, 12, p[0], 1.25f);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)in;
    for (int64_t t = 0; t < 12; t++) {
        for (int64_t i = 0; i < g->out.cols; i++) y[t * g->out.cols + i] = 1.25 * p[0][check_ids[t] * g->out.cols + i];
    }
}

const struct llm_gradcheck llm_gradcheck_embedding[] = {
    {.name = "embedding", .param = {{7, 67}}, .out = {12, 67}, .n_rows = 3, .run = check_run, .formula = check_formula}, {0}};
