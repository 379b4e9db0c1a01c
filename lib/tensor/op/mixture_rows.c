/* The rows of a mixture of experts: their places, and what is computed of them (mixture_internal.h). */
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "tensor/experts.h"
#include "tensor/op/mixture_internal.h"

bool llm_places_find(struct llm_ctx *c, struct llm_places *p, const int32_t *experts, int64_t tokens, int64_t n_experts)
{
    p->start = llm_op_alloc(c, n_experts + 1, sizeof *p->start);
    p->slot = llm_op_alloc(c, tokens * p->k, sizeof *p->slot);
    p->at = llm_op_alloc(c, tokens * p->k, sizeof *p->at);
    if (llm_ctx_failed(c)) return false;
    memset(p->start, 0, (size_t)(n_experts + 1) * sizeof *p->start);
    for (int64_t i = 0; i < tokens * p->k; i++) {
        if (experts[i] >= 0) p->start[experts[i] + 1]++;
    }
    for (int64_t e = 0; e < n_experts; e++) p->start[e + 1] += p->start[e];
    for (int64_t i = 0; i < tokens * p->k; i++) {
        p->at[i] = experts[i] < 0 ? -1 : (int32_t)p->start[experts[i]]++;
        if (p->at[i] >= 0) p->slot[p->at[i]] = (int32_t)i;
    }
    p->n = p->start[n_experts];
    for (int64_t e = n_experts; e > 0; e--) p->start[e] = p->start[e - 1]; /* the loop above moved each start to the end of its expert */
    p->start[0] = 0;
    return true;
}

struct rows_work {
    const struct llm_places *p;
    const float *from;
    int64_t from_stride;
    float *to;
    int64_t to_stride, cols;
    const struct llm_tensor *weights; /* NULL: 1 */
    bool add;
};

/* to[place] = from[token] */
static void gather_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct rows_work *w = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        memcpy(w->to + i * w->to_stride, w->from + w->p->slot[i] / w->p->k * w->from_stride, (size_t)w->cols * sizeof(float));
    }
}

/* to[token] = Σ over its slots: weight · from[place] */
static void combine_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct rows_work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        float *y = w->to + t * w->to_stride;
        if (!w->add) memset(y, 0, (size_t)w->cols * sizeof *y);
        for (int64_t s = 0; s < w->p->k; s++) {
            int32_t at = w->p->at[t * w->p->k + s];
            float weight = w->weights ? w->weights->data[t * w->weights->stride + s] : 1;
            if (at >= 0) llm_k.elementwise.axpy(y, weight, w->from + at * w->from_stride, (size_t)w->cols);
        }
    }
}

void llm_places_gather(const struct llm_places *p, const float *from, int64_t from_stride, float *to, int64_t to_stride, int64_t cols)
{
    struct rows_work w = {.p = p, .from = from, .from_stride = from_stride, .to = to, .to_stride = to_stride, .cols = cols};
    llm_for_rows(p->n, cols, gather_rows, &w);
}

void llm_places_combine(const struct llm_places *p, const float *from, int64_t from_stride, const struct llm_tensor *weights, float *to,
                        int64_t to_stride, int64_t rows, int64_t cols, bool add)
{
    struct rows_work w = {.p = p, .from = from, .from_stride = from_stride, .to = to, .to_stride = to_stride, .cols = cols, .weights = weights,
                          .add = add};
    llm_for_rows(rows, cols * p->k, combine_rows, &w);
}

struct act_work { enum llm_act act; const float *gate, *up; float *out; int64_t cols; };

static void act_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct act_work *w = arg;
    size_t at = (size_t)(from * w->cols), n = (size_t)((to - from) * w->cols);
    (void)thread;
    llm_k.elementwise.gated[w->act](w->out + at, w->gate + at, w->up + at, n);
}

void llm_expert_act(enum llm_act act, const float *gate, const float *up, float *out, int64_t rows, int64_t cols)
{
    struct act_work w = {act, gate, up, out, cols};
    llm_for_rows(rows, cols, act_rows, &w);
}

bool llm_expert_product(struct llm_ctx *c, struct llm_param *p, bool back, const float *x, float *y, int64_t m, bool add)
{
    int64_t in = back ? p->weight.n : p->weight.k, out = back ? p->weight.k : p->weight.n;
    size_t mark = llm_arena_mark(&c->acts);
    if (back && !(x = llm_adapter_dy(c, p, x, &in, m))) return false;
    const struct llm_matmul a = {.m = m, .x = x, .ldx = in, .y = y, .ldy = out, .accumulate = add, .compute = c->compute};
    if ((back ? llm_matmul_dx(&a, &p->weight, &c->err) : llm_matmul(&a, &p->weight, &c->err)) < 0) {
        llm_in(&c->err, "'%s'", p->name);
        return false;
    }
    if (!(back ? llm_adapter_dx(c, p, x, in, y, out, m, NULL) : llm_adapter_add(c, p, NULL, x, in, y, out, m))) return false;
    llm_arena_pop(&c->acts, mark);
    return true;
}

float llm_expert_weigh(float *d_inner, const float *inner, int64_t width, float *d_out, int64_t hidden, float weight)
{
    double dot = 0;
    for (int64_t j = 0; j < width; j++) dot += (double)d_inner[j] * (double)inner[j];
    llm_k.elementwise.scale(d_inner, weight, d_inner, (size_t)width);
    llm_k.elementwise.scale(d_out, weight, d_out, (size_t)hidden);
    return (float)dot;
}

struct act_back { enum llm_act act; const float *gate, *up; float *d_inner, *inner; int64_t width; };

static void act_back_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct act_back *w = arg;
    size_t at = (size_t)(from * w->width), n = (size_t)((to - from) * w->width);
    (void)thread;
    llm_k.elementwise.gated_back[w->act](w->d_inner + at, w->inner + at, w->gate + at, w->up + at, w->d_inner + at, false, false, n);
}

void llm_expert_act_back(enum llm_act act, const float *gate, const float *up, float *d_inner, float *inner, int64_t rows, int64_t width)
{
    struct act_back w = {act, gate, up, d_inner, inner, width};
    llm_for_rows(rows, width, act_back_rows, &w);
}

int64_t llm_expert_folds(const int32_t *slot, int64_t k, int64_t from, int64_t to, int64_t tokens, int64_t row_len, int64_t *starts)
{
    int64_t n = 0, end = -1;
    for (int64_t i = from; i < to; i++) {
        int64_t t = slot[i] / k;
        if (t < end) continue;
        end = llm_fold_end(tokens, row_len, t / row_len * row_len + t % row_len / LLM_FOLD * LLM_FOLD);
        starts[n++] = i - from;
    }
    starts[n] = to - from;
    return n;
}

/* Adds the gradients of a matrix (grad; NULL: it is frozen) and of its adapter, by rows [starts[0], starts[blocks]) of dy and x. False after a
 * failure. */
static bool add_blocks(struct llm_ctx *c, struct llm_param *p, float *grad, const float *dy, const float *x, const int64_t *starts, int64_t blocks)
{
    int64_t n = p->weight.n, k = p->weight.k;
    const struct llm_folds folds = {.starts = starts, .n_blocks = blocks};
    if (grad && llm_matmul_dw_blocks(grad, dy, n, x, k, starts, blocks, n, k, c->compute, &c->err) < 0) return false;
    return llm_adapter_dw(c, p, x, k, dy, n, starts[blocks], &folds, NULL);
}

bool llm_expert_gradients(struct llm_ctx *c, struct llm_param *p, int first, const struct llm_folds *folds, const int32_t *slot, int64_t k,
                          const float *dy, const float *x, const int64_t *starts, int64_t blocks)
{
    for (int64_t b = 0, end; b < blocks; b = end) {
        const int64_t part = llm_folds_part(folds, slot[starts[b]] / k);
        for (end = b + 1; end < blocks && llm_folds_part(folds, slot[starts[end]] / k) == part;) end++;
        if (!add_blocks(c, p, llm_expert_grad(p, first + (int)part), dy, x, starts + b, end - b)) return false;
    }
    return true;
}

struct llm_param *llm_experts_trained(struct llm_param *const *params, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (params[i]->grad) return params[i];
        if (llm_adapter_trained(params[i])) return llm_adapter_trained(params[i]);
    }
    return NULL;
}
