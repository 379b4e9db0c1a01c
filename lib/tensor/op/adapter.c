/* Adapters: what low-rank pairs of matrices add to a product with another matrix. x·aᵀ is recomputed in the backward pass: it costs rank / n of the
 * product itself. */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct llm_param *llm_adapter_trained(const struct llm_param *w)
{
    for (const struct llm_adapter *o = w->adapter; o; o = o->next) {
        if (o->a->grad || o->b->grad) return o->a->grad ? o->a : o->b;
    }
    return NULL;
}

/* The token of the batch that row i of a product is. */
static int64_t token_of(const struct llm_adapter_rows *r, int64_t i)
{
    return r->slot ? r->slot[i] / r->per : r->first + i;
}

/* The factor of the scale of `o` for row i. */
static float factor_of(const struct llm_adapter_rows *r, const struct llm_adapter *o, int64_t i)
{
    const float *factors = r->factors ? r->factors[token_of(r, i)] : NULL;
    return factors ? factors[o->id] : 1;
}

/* The end (exclusive) of the rows of [at, m) that have one factor; *factor: that factor. */
static int64_t run_end(const struct llm_adapter_rows *r, const struct llm_adapter *o, int64_t at, int64_t m, float *factor)
{
    int64_t end = at + 1;
    *factor = factor_of(r, o, at);
    if (!r->factors) return m;
    while (end < m && factor_of(r, o, end) == *factor) end++;
    return end;
}

struct scale_work { float *x; float factor; int64_t cols; };

static void scale_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct scale_work *w = arg;
    (void)thread;
    llm_k.elementwise.scale(w->x + from * w->cols, w->factor, w->x + from * w->cols, (size_t)((to - from) * w->cols));
}

struct drop_work {
    const struct llm_ctx *c;
    const struct llm_adapter *o;
    const float *from;
    float *to;
    int64_t from_stride, to_stride, cols, row_len;
    bool add;
};

/* to = from · keep, keep = 0 with the adapter's probability of dropout, else 1 / (1 - p), by token and channel. */
static void drop_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct drop_work *w = arg;
    const struct llm_ctx *c = w->c;
    uint32_t drop = (uint32_t)ceil((double)w->o->dropout * 0x1p24);
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        int64_t t = token_of(&c->adapters, i);
        struct llm_rng rng = llm_rng_at(c->seed, c->step, LLM_RNG_DROPOUT_ADAPTER, w->o->number, (uint32_t)(c->first_row + t / w->row_len),
                                        (uint32_t)(t % w->row_len));
        llm_k.elementwise.dropout(w->to + i * w->to_stride, w->from + i * w->from_stride, rng.key, rng.counter, drop, 1 / (1 - w->o->dropout), w->add,
                                  (size_t)w->cols);
    }
}

static bool drops(const struct llm_ctx *c, const struct llm_adapter *o)
{
    return c->training && o->dropout > 0;
}

static void drop(const struct llm_ctx *c, struct drop_work *w, int64_t m)
{
    w->c = c;
    w->row_len = c->adapters.row_len > 0 ? c->adapters.row_len : llm_row_len(c, m);
    llm_for_rows(m, w->cols, drop_rows, w);
}

/* Rows [m, k] of x as the adapter's a reads them, *ld apart: x itself, or in training with dropout a copy on `acts`. NULL after a failure. */
static const float *dropped(struct llm_ctx *c, const struct llm_adapter *o, const float *x, int64_t ldx, int64_t m, int64_t *ld)
{
    int64_t k = o->a->weight.k;
    *ld = ldx;
    if (!drops(c, o)) return x;
    float *copy = llm_op_alloc(c, m * k, sizeof *copy);
    if (copy) drop(c, &(struct drop_work){.o = o, .from = x, .from_stride = ldx, .to = copy, .to_stride = k, .cols = k}, m);
    *ld = k;
    return copy;
}

static bool fits(struct llm_ctx *c, const struct llm_param *w, const struct llm_adapter *o, int64_t m)
{
    const struct llm_weight *a = &o->a->weight, *b = &o->b->weight;
    const struct llm_adapter_rows *r = &c->adapters;
    if (r->factors && !r->slot && r->first + m != r->n_tokens) {
        llm_op_fail(c, EX_UNAVAILABLE, "'%s': adapters that differ between texts: expected a product of all %lld tokens, found one of %lld rows",
                    w->name, (long long)r->n_tokens, (long long)m);
        return false;
    }
    if (a->k == w->weight.k && b->n == w->weight.n && a->n == b->k) return true;
    llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected an adapter of [r, %lld] and [%lld, r], found [%lld, %lld] and [%lld, %lld]", w->name,
                (long long)w->weight.k, (long long)w->weight.n, (long long)a->n, (long long)a->k, (long long)b->n, (long long)b->k);
    return false;
}

/* scale·x·aᵀ, [m, rank] on `acts`; NULL after a failure. */
static float *reduced(struct llm_ctx *c, const struct llm_adapter *o, float scale, const float *x, int64_t ldx, int64_t m)
{
    int64_t rank = o->a->weight.n;
    float *low = llm_op_alloc(c, m * rank, sizeof *low);
    struct llm_matmul down = {.m = m, .x = x, .ldx = ldx, .y = low, .ldy = rank, .compute = c->compute};
    if (!low || llm_matmul(&down, &o->a->weight, &c->err) < 0) return NULL;
    llm_for_rows(m, rank, scale_rows, &(struct scale_work){low, scale, rank});
    return low;
}

static bool add_one(struct llm_ctx *c, const struct llm_adapter *o, const float *x, int64_t ldx, float *y, int64_t ldy, int64_t m)
{
    size_t mark = llm_arena_mark(&c->acts);
    int64_t ld;
    x = dropped(c, o, x, ldx, m, &ld);
    if (!x) return false;
    for (int64_t at = 0, end; at < m; at = end) {
        float factor;
        end = run_end(&c->adapters, o, at, m, &factor);
        if (factor == 0) continue;
        const float *low = reduced(c, o, factor * o->scale, x + at * ld, ld, end - at);
        struct llm_matmul up = {.m = end - at, .x = low, .ldx = o->b->weight.k, .y = y + at * ldy, .ldy = ldy, .accumulate = true,
                                .compute = c->compute};
        if (!low || llm_matmul(&up, &o->b->weight, &c->err) < 0) return false;
    }
    llm_arena_pop(&c->acts, mark);
    return true;
}

bool llm_adapter_add(struct llm_ctx *c, const struct llm_param *w, const float *x, int64_t ldx, float *y, int64_t ldy, int64_t m)
{
    for (const struct llm_adapter *o = w->adapter; o && !llm_ctx_failed(c); o = o->next) {
        LLM_PROFILE("adapter", 0);
        if (!fits(c, w, o, m) || !add_one(c, o, x, ldx, y, ldy, m)) return false;
    }
    return !llm_ctx_failed(c);
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
    for (const struct llm_adapter *o = w->adapter; o && !llm_ctx_failed(c); o = o->next) {
        LLM_PROFILE("adapter dw", 0);
        size_t mark = llm_arena_mark(&c->acts);
        int64_t ld = ldx;
        const float *in = o->a->grad || o->b->grad ? dropped(c, o, x, ldx, m, &ld) : NULL;
        const float *low = in && o->b->grad ? reduced(c, o, o->scale, in, ld, m) : NULL;
        if (llm_ctx_failed(c) || (low && !gradient(c, o->b, dy, ldy, low, o->b->weight.k, m, folds))) return false;
        const float *d_low = in && o->a->grad ? reduced_back(c, o, dy, ldy, m) : NULL;
        if (llm_ctx_failed(c) || (d_low && !gradient(c, o->a, d_low, o->a->weight.n, in, ld, m, folds))) return false;
        llm_arena_pop(&c->acts, mark);
    }
    return !llm_ctx_failed(c);
}

bool llm_adapter_dx(struct llm_ctx *c, const struct llm_param *w, const float *dy, int64_t ldy, float *dx, int64_t ld_dx, int64_t m)
{
    for (const struct llm_adapter *o = w->adapter; o && !llm_ctx_failed(c); o = o->next) {
        LLM_PROFILE("adapter dx", 0);
        size_t mark = llm_arena_mark(&c->acts);
        int64_t k = o->a->weight.k;
        const float *d_low = reduced_back(c, o, dy, ldy, m);
        float *whole = d_low && drops(c, o) ? llm_op_alloc(c, m * k, sizeof *whole) : NULL; /* before the mask */
        if (llm_ctx_failed(c)) return false;
        struct llm_matmul up = {.m = m, .x = d_low, .ldx = o->a->weight.n, .y = whole ? whole : dx, .ldy = whole ? k : ld_dx, .accumulate = !whole,
                                .compute = c->compute};
        if (llm_matmul_dx(&up, &o->a->weight, &c->err) < 0) return false;
        if (whole) drop(c, &(struct drop_work){.o = o, .from = whole, .from_stride = k, .to = dx, .to_stride = ld_dx, .cols = k, .add = true}, m);
        llm_arena_pop(&c->acts, mark);
    }
    return !llm_ctx_failed(c);
}

/* out [k] += scale · row `row` of b · a */
static void decode_one(const struct llm_adapter *o, int64_t row, int64_t k, float *out)
{
    int64_t rank = o->a->weight.n;
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

void llm_adapter_decode(const struct llm_param *w, int64_t row, float *out)
{
    llm_weight_decode(&w->weight, row * w->weight.k, w->weight.k, out);
    for (const struct llm_adapter *o = w->adapter; o; o = o->next) decode_one(o, row, w->weight.k, out);
}
