/* y[t] = scale · table[ids[t]]. The backward pass sorts the tokens by id, so that it visits each row of the table that occurs once, and no other
 * row. */
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/pages.h"
#include "cpu/profile.h"
#include "dist/group.h"
#include "tensor/experts.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/slices.h"
#include "tensor/tape_internal.h"

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

/* Sorts n tokens, which ascend in `order`, by (id, token) with a stable radix sort, from the lowest byte of the ids. order and spare: [n]. Returns
 * the one of the two that holds the result. */
static int32_t *sort_tokens(const int32_t *ids, int64_t n, int32_t *order, int32_t *spare)
{
    int32_t max = 0;
    for (int64_t t = 0; t < n; t++) {
        if (ids[order[t]] > max) max = ids[order[t]];
    }
    for (int shift = 0; shift < 32 && max >> shift; shift += 8) {
        int64_t start[257] = {0};
        for (int64_t t = 0; t < n; t++) start[(ids[order[t]] >> shift & 255) + 1]++;
        for (int i = 0; i < 256; i++) start[i + 1] += start[i];
        for (int64_t t = 0; t < n; t++) spare[start[ids[order[t]] >> shift & 255]++] = order[t];
        int32_t *swap = order;
        order = spare;
        spare = swap;
    }
    return order;
}

/* Of n tokens in `order`, of all `tokens`; row `first` of the whole table is the first of grad. */
struct back_work {
    const int32_t *ids, *order, *place;
    float *grad;
    const float *dy;
    int64_t dy_stride, n, tokens, first, cols;
    struct llm_folds folds;
    size_t part_stride; /* of grad */
    float scale;
};

static void backward_columns(void *arg, int64_t from, int64_t to, int thread)
{
    const struct back_work *w = arg;
    float sum[64];
    size_t n = (size_t)(to - from);
    (void)thread;
    for (int64_t i = 0; i < w->n;) {
        int32_t id = w->ids[w->order[i]];
        const int64_t row_len = w->folds.row_len, token = w->order[i], part = llm_folds_part(&w->folds, token);
        int64_t end = llm_fold_end(w->tokens, row_len, token / row_len * row_len + token % row_len / LLM_FOLD * LLM_FOLD);
        memset(sum, 0, n * sizeof *sum);
        for (; i < w->n && w->order[i] < end && w->ids[w->order[i]] == id; i++) {
            llm_k.elementwise.axpy(sum, w->scale, w->dy + w->order[i] * w->dy_stride + from, n);
        }
        const int64_t row = id - w->first;
        float *grad = w->grad + (size_t)part * w->part_stride + (w->place ? w->place[row] : row) * w->cols + from;
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

/* Adds the gradients of the tokens whose ids are rows [first, first + table->shape[0]) of the whole table, which `table` has. */
static void add_gradients(struct llm_ctx *c, const struct llm_node *node, struct llm_param *table, int64_t first)
{
    const struct embedding_args *a = node->args;
    const struct llm_tensor *y = node->out;
    float *grad = accumulator(table, a->use);
    if (!grad) return;
    const int32_t *place = grad == table->grad_lookup ? table->lookup_place : NULL;
    int32_t *order = llm_op_alloc(c, y->rows, sizeof *order), *spare = llm_op_alloc(c, y->rows, sizeof *spare);
    int64_t n = 0;
    if (llm_ctx_failed(c)) return;
    for (int64_t t = 0; t < y->rows; t++) {
        const int64_t row = a->ids[t] - first;
        if (row < 0 || row >= table->shape[0]) continue;
        order[n++] = (int32_t)t;
        if (place && place[row] < 0) table->lookup_place[row] = table->lookup_rows++;
    }
    struct back_work w = {.ids = a->ids, .order = sort_tokens(a->ids, n, order, spare), .place = place, .grad = grad, .dy = y->grad,
                          .dy_stride = y->grad_stride, .n = n, .tokens = y->rows, .first = first, .cols = y->cols, .scale = a->scale,
                          .folds = llm_folds_of(c, y->rows), .part_stride = llm_grad_stride(table)};
    llm_for_columns(y->cols, backward_columns, &w);
}

static void embedding_backward(struct llm_ctx *c, struct llm_node *node)
{
    LLM_PROFILE("embedding backward", 3 * llm_tensor_bytes(node->out));
    struct llm_param *table = node->param[0];
    const struct llm_slices *s = table->slices;
    if (table->kronecker && !add_kronecker(c, table->kronecker, node->out, ((const struct embedding_args *)node->args)->scale)) return;
    if (!s) add_gradients(c, node, table, 0);
    for (int j = s ? s->first : 0; s && j < s->end; j++) add_gradients(c, node, &s->of[j], llm_slices_row(s, j, table->shape[0]));
}

/* ---- a table that is cut into slices: ranks look up what they have, and exchange the rows ---- */

/* The slice that has row `id` of a table. */
static int slice_of(const struct llm_slices *s, int32_t id)
{
    return (int)((((int64_t)id + 1) * s->n - 1) / s->whole->shape[0]);
}

/* Looks up the tokens of this rank's slices, in order, into out; returns their number. */
static int64_t look_up_own(const struct work *w, int64_t n, float *out)
{
    const struct llm_slices *s = w->table->slices;
    const int64_t cols = w->y->cols;
    int64_t found = 0;
    for (int64_t t = 0; t < n; t++) {
        const int j = slice_of(s, w->ids[t]);
        if (j < s->first || j >= s->end) continue;
        float *y = out + found++ * cols;
        llm_weight_decode(&s->of[j].weight, (w->ids[t] - llm_slices_row(s, j, s->whole->shape[0])) * cols, cols, y);
        if (w->scale != 1) llm_k.elementwise.scale(y, w->scale, y, (size_t)cols);
    }
    return found;
}

static void look_up_slices(struct llm_ctx *c, const struct work *w, int64_t n)
{
    const struct llm_slices *s = w->table->slices;
    const int64_t cols = w->y->cols;
    const int own = s->end - s->first, ranks = s->n / own;
    void *parts[LLM_MAX_SLICES];
    size_t bytes[LLM_MAX_SLICES] = {0};
    int64_t first[LLM_MAX_SLICES + 1] = {0};
    if (ranks == 1) {
        look_up_own(w, n, w->y->data);
        return;
    }
    if (!c->group) {
        llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected all slices, found some", w->table->name);
        return;
    }
    const size_t scratch = llm_arena_mark(&c->acts);
    float *rows = llm_op_alloc(c, n, (size_t)cols * sizeof *rows);
    for (int64_t t = 0; t < n; t++) first[slice_of(s, w->ids[t]) / own + 1]++;
    for (int q = 0; q < ranks && rows; q++) {
        first[q + 1] += first[q];
        parts[q] = rows + first[q] * cols;
        bytes[q] = (size_t)((first[q + 1] - first[q]) * cols) * sizeof *rows;
    }
    if (!rows) return;
    look_up_own(w, n, parts[s->first / own]);
    if (llm_group_gather(c->group, parts, bytes, &c->err) < 0) return;
    for (int64_t t = 0; t < n; t++) memcpy(w->y->data + t * cols, rows + first[slice_of(s, w->ids[t]) / own]++ * cols, (size_t)cols * sizeof *rows);
    llm_arena_pop(&c->acts, scratch);
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
    node.out->spare = true;
    if (table->slices) {
        look_up_slices(c, &w, n);
        if (llm_ctx_failed(c) || !c->tape) return llm_ctx_failed(c) ? &c->nothing : node.out;
        return llm_tape_push(c, &node, &(struct embedding_args){ids, scale, c->use}, sizeof(struct embedding_args));
    }
    llm_for_rows(n, table->weight.k, forward_rows, &w);
    llm_weight_looked_up(&table->weight, ids, n);
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

/* The table in two slices, of 3 and 4 rows. */
static struct llm_tensor *check_slices(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static struct llm_param whole, of[2];
    static struct llm_slices s;
    (void)in;
    of[0] = *p[0];
    of[1] = *p[1];
    whole = (struct llm_param){.name = "table", .n_dims = 2, .shape = {7, 67}, .weight = {.n = 7, .k = 67}, .slices = &s};
    s = (struct llm_slices){.n = 2, .end = 2, .of = of, .whole = &whole};
    return llm_embedding(c, check_ids, 12, &whole, 1.25f);
}

static void formula_slices(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    double table[7 * 67];
    memcpy(table, p[0], 3 * 67 * sizeof *table);
    memcpy(table + 3 * 67, p[1], 4 * 67 * sizeof *table);
    check_formula(g, in, &(const double *){table}, y);
}

const struct llm_gradcheck llm_gradcheck_embedding[] = {
    {.name = "embedding in slices", .param = {{3, 67}, {4, 67}}, .out = {12, 67}, .n_rows = 3, .run = check_slices, .formula = formula_slices},
    {.name = "embedding", .param = {{7, 67}}, .out = {12, 67}, .n_rows = 3, .run = check_run, .formula = check_formula}, {0}};
