/* Adapters: what a low-rank pair of matrices adds to a product with another matrix. x·aᵀ is recomputed in the backward pass: it costs rank / n of
 * the product itself. */
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct llm_param *llm_adapter_trained(const struct llm_param *w)
{
    const struct llm_adapter *o = w->adapter;
    if (!o) return NULL;
    return o->a->grad ? o->a : o->b->grad ? o->b : NULL;
}

struct scale_work { float *x; float factor; int64_t cols; };

static void scale_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct scale_work *w = arg;
    (void)thread;
    llm_k.elementwise.scale(w->x + from * w->cols, w->factor, w->x + from * w->cols, (size_t)((to - from) * w->cols));
}

static bool fits(struct llm_ctx *c, const struct llm_param *w)
{
    const struct llm_weight *a = &w->adapter->a->weight, *b = &w->adapter->b->weight;
    if (a->k == w->weight.k && b->n == w->weight.n && a->n == b->k) return true;
    llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected an adapter of [r, %lld] and [%lld, r], found [%lld, %lld] and [%lld, %lld]", w->name,
                (long long)w->weight.k, (long long)w->weight.n, (long long)a->n, (long long)a->k, (long long)b->n, (long long)b->k);
    return false;
}

/* scale·x·aᵀ, [m, rank] on `acts`; NULL after a failure. */
static float *reduced(struct llm_ctx *c, const struct llm_adapter *o, const float *x, int64_t ldx, int64_t m)
{
    int64_t rank = o->a->weight.n;
    float *low = llm_op_alloc(c, m * rank, sizeof *low);
    struct llm_matmul down = {.m = m, .x = x, .ldx = ldx, .y = low, .ldy = rank, .compute = c->compute};
    if (!low || llm_matmul(&down, &o->a->weight, &c->err) < 0) return NULL;
    llm_for_rows(m, rank, scale_rows, &(struct scale_work){low, o->scale, rank});
    return low;
}

bool llm_adapter_add(struct llm_ctx *c, const struct llm_param *w, const float *x, int64_t ldx, float *y, int64_t ldy, int64_t m)
{
    const struct llm_adapter *o = w->adapter;
    if (!o || llm_ctx_failed(c)) return !llm_ctx_failed(c);
    LLM_PROFILE("adapter", 0);
    if (!fits(c, w)) return false;
    size_t mark = llm_arena_mark(&c->acts);
    const float *low = reduced(c, o, x, ldx, m);
    struct llm_matmul up = {.m = m, .x = low, .ldx = o->b->weight.k, .y = y, .ldy = ldy, .accumulate = true, .compute = c->compute};
    if (!low || llm_matmul(&up, &o->b->weight, &c->err) < 0) return false;
    llm_arena_pop(&c->acts, mark);
    return true;
}

/* p's gradient += dyᵀ·x. */
static bool gradient(struct llm_ctx *c, struct llm_param *p, const float *dy, int64_t ldy, const float *x, int64_t ldx, int64_t m,
                     const struct llm_folds *f)
{
    int64_t n = p->weight.n, k = p->weight.k;
    if (!p->grad) return true;
    if (f->starts) return llm_matmul_dw_blocks(p->grad, dy, ldy, x, ldx, f->starts, f->n_blocks, n, k, c->compute, &c->err) == 0;
    return llm_matmul_dw(p->grad, dy, ldy, x, ldx, m, f->row_len, n, k, c->compute, &c->err) == 0;
}

/* scale·dy·b, [m, rank] on `acts`: the gradient by x·aᵀ. NULL after a failure. */
static float *reduced_back(struct llm_ctx *c, const struct llm_adapter *o, const float *dy, int64_t ldy, int64_t m)
{
    int64_t rank = o->b->weight.k;
    float *d_low = llm_op_alloc(c, m * rank, sizeof *d_low);
    struct llm_matmul down = {.m = m, .x = dy, .ldx = ldy, .y = d_low, .ldy = rank, .compute = c->compute};
    if (!d_low || llm_matmul_dx(&down, &o->b->weight, &c->err) < 0) return NULL;
    llm_for_rows(m, rank, scale_rows, &(struct scale_work){d_low, o->scale, rank});
    return d_low;
}

bool llm_adapter_dw(struct llm_ctx *c, const struct llm_param *w, const float *x, int64_t ldx, const float *dy, int64_t ldy, int64_t m,
                    const struct llm_folds *folds)
{
    const struct llm_adapter *o = w->adapter;
    if (!o || llm_ctx_failed(c)) return !llm_ctx_failed(c);
    LLM_PROFILE("adapter dw", 0);
    size_t mark = llm_arena_mark(&c->acts);
    const float *low = o->b->grad ? reduced(c, o, x, ldx, m) : NULL;
    if (llm_ctx_failed(c) || (low && !gradient(c, o->b, dy, ldy, low, o->b->weight.k, m, folds))) return false;
    const float *d_low = o->a->grad ? reduced_back(c, o, dy, ldy, m) : NULL;
    if (llm_ctx_failed(c) || (d_low && !gradient(c, o->a, d_low, o->a->weight.n, x, ldx, m, folds))) return false;
    llm_arena_pop(&c->acts, mark);
    return true;
}

bool llm_adapter_dx(struct llm_ctx *c, const struct llm_param *w, const float *dy, int64_t ldy, float *dx, int64_t ld_dx, int64_t m)
{
    const struct llm_adapter *o = w->adapter;
    if (!o || llm_ctx_failed(c)) return !llm_ctx_failed(c);
    LLM_PROFILE("adapter dx", 0);
    size_t mark = llm_arena_mark(&c->acts);
    const float *d_low = reduced_back(c, o, dy, ldy, m);
    struct llm_matmul up = {.m = m, .x = d_low, .ldx = o->a->weight.n, .y = dx, .ldy = ld_dx, .accumulate = true, .compute = c->compute};
    if (!d_low || llm_matmul_dx(&up, &o->a->weight, &c->err) < 0) return false;
    llm_arena_pop(&c->acts, mark);
    return true;
}

void llm_adapter_decode(const struct llm_param *w, int64_t row, float *out)
{
    const struct llm_adapter *o = w->adapter;
    int64_t k = w->weight.k, rank = o ? o->a->weight.n : 0;
    llm_weight_decode(&w->weight, row * k, k, out);
    for (int64_t r = 0; r < rank; r++) {
        float b;
        llm_weight_decode(&o->b->weight, row * rank + r, 1, &b);
        for (int64_t i = 0; i < k; i++) {
            float a;
            llm_weight_decode(&o->a->weight, r * k + i, 1, &a);
            out[i] += o->scale * b * a;
        }
    }
}

/* ---- gradient check; those of experts and heads are in their files ---- */

enum { RANK = 3, K = 29, N = 13 };

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static struct llm_adapter adapter; /* the backward reads it */
    adapter = (struct llm_adapter){p[1], p[2], .5f};
    p[0]->adapter = &adapter;
    return llm_linear(c, in[0], p[0], p[3]);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    for (int64_t t = 0; t < g->out.rows; t++) {
        for (int64_t j = 0; j < N; j++) {
            double sum = p[3][j];
            for (int64_t i = 0; i < K; i++) {
                double w = p[0][j * K + i];
                for (int64_t r = 0; r < RANK; r++) w += .5 * p[2][j * RANK + r] * p[1][r * K + i];
                sum += in[0][t * K + i] * w;
            }
            y[t * N + j] = sum;
        }
    }
}

const struct llm_gradcheck llm_gradcheck_adapter[] = {
    {.name = "linear with an adapter", .in = {{11, K}}, .param = {{N, K}, {RANK, K}, {N, RANK}, {1, N}}, .out = {11, N}, .run = check_run,
     .formula = check_formula}, {0}};
