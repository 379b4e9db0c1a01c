/* Adapters: what low-rank pairs of matrices add to a product with another matrix. x·aᵀ is recomputed in the backward pass: it costs rank / n of the
 * product itself. With magnitudes (DoRA) the product is recomputed too, for their gradient. */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct llm_param *llm_adapter_trained(const struct llm_param *w)
{
    for (const struct llm_adapter *o = w->adapter; o; o = o->next) {
        if (o->a->grad || o->b->grad) return o->a->grad ? o->a : o->b;
        if (o->magnitude && o->magnitude->grad) return o->magnitude;
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

/* ---- magnitudes (DoRA) ---- */

float llm_adapter_gain(const struct llm_adapter *o, int64_t row)
{
    float magnitude;
    if (!o->magnitude || !(o->norm[row] > 0)) return 1;
    llm_weight_decode(&o->magnitude->weight, row, 1, &magnitude);
    return magnitude / o->norm[row];
}

float llm_adapter_keeps(const struct llm_param *w, int64_t row)
{
    float keeps = 1;
    for (const struct llm_adapter *o = w->adapter; o; o = o->next) keeps += o->magnitude ? o->factor * (llm_adapter_gain(o, row) - 1) : 0;
    return keeps;
}

/* The gains of the rows of w + scale·b·a, [n] on `acts`. NULL after a failure. */
static float *gains_of(struct llm_ctx *c, const struct llm_adapter *o)
{
    int64_t n = o->b->weight.n;
    float *gains = llm_op_alloc(c, n, sizeof *gains);
    for (int64_t j = 0; gains && j < n; j++) gains[j] = llm_adapter_gain(o, j);
    return gains;
}

/* The adapter with a magnitude, which is then w's only one and of factor 1. NULL: w has none. */
static const struct llm_adapter *magnified(struct llm_ctx *c, const struct llm_param *w)
{
    for (const struct llm_adapter *o = w->adapter; o; o = o->next) {
        if (!o->magnitude) continue;
        if (!w->adapter->next && o->factor == 1) return o;
        llm_op_fail(c, EX_UNAVAILABLE, "'%s': expected an adapter with magnitudes to be trained alone and of scale 1", w->name);
    }
    return NULL;
}

struct gain_work {
    const float *gains, *bias, *base; /* base [rows, n]: x·wᵀ; NULL: y - bias is */
    const float *low;                 /* [rows, n]: what the pair adds */
    float *y;
    float factor;
    int64_t ldy, n;
};

/* y += factor·(gain - 1)·base + gain·low, where `low` contains the factor */
static void gain_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct gain_work *w = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        float *y = w->y + i * w->ldy;
        const float *low = w->low + i * w->n, *base = w->base ? w->base + i * w->n : y;
        for (int64_t j = 0; j < w->n; j++) {
            float own = w->base || !w->bias ? base[j] : y[j] - w->bias[j];
            y[j] += w->factor * (w->gains[j] - 1) * own + w->gains[j] * low[j];
        }
    }
}

struct product_work { const float *x, *by; float *y; int64_t ldx, ldy, n; bool by_row; };

/* y = x∘by, by [n] or with by_row [rows, n] */
static void multiply_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct product_work *w = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        const float *x = w->x + i * w->ldx, *by = w->by_row ? w->by + i * w->n : w->by;
        float *y = w->y + i * w->ldy;
        for (int64_t j = 0; j < w->n; j++) y[j] = x[j] * by[j];
    }
}

/* dy∘(gains + plus), [m, n] on `acts`, *ldy apart afterwards. NULL after a failure. */
static const float *times_gains(struct llm_ctx *c, const struct llm_adapter *o, float plus, const float *dy, int64_t *ldy, int64_t m)
{
    int64_t n = o->b->weight.n;
    float *gains = gains_of(c, o), *copy = gains ? llm_op_alloc(c, m * n, sizeof *copy) : NULL;
    for (int64_t j = 0; copy && j < n; j++) gains[j] += plus;
    if (copy) llm_for_rows(m, n, multiply_rows, &(struct product_work){.x = dy, .ldx = *ldy, .by = gains, .y = copy, .ldy = n, .n = n});
    *ldy = n;
    return copy;
}

/* With dropout the gains multiply products of dropped inputs, so that the product with w itself has the gradient dy. */
const float *llm_adapter_dy(struct llm_ctx *c, const struct llm_param *w, const float *dy, int64_t *ldy, int64_t m)
{
    const struct llm_adapter *o = magnified(c, w);
    if (!o || drops(c, o)) return llm_ctx_failed(c) ? NULL : dy;
    return times_gains(c, o, 0, dy, ldy, m);
}

struct norm_work { const struct llm_param *w; const struct llm_adapter *o; float scale, *norm; };

enum { NORM_ROWS = 16 }; /* of a work item: one decoding of a serves them all */

static void norm_piece(void *arg, size_t piece, int thread)
{
    const struct norm_work *w = arg;
    int64_t k = w->w->weight.k, n = w->w->weight.n, rank = w->o->a->weight.n, from = (int64_t)piece * NORM_ROWS;
    int64_t rows = n - from < NORM_ROWS ? n - from : NORM_ROWS;
    float *sums = llm_scratch(thread, (size_t)((rows + 1) * k + rows * rank) * sizeof *sums), *a = sums + rows * k, *b = a + k;
    for (int64_t i = 0; i < rows; i++) llm_weight_decode(&w->w->weight, (from + i) * k, k, sums + i * k);
    llm_weight_decode(&w->o->b->weight, from * rank, rows * rank, b);
    for (int64_t r = 0; r < rank; r++) {
        llm_weight_decode(&w->o->a->weight, r * k, k, a);
        for (int64_t i = 0; i < rows; i++) llm_k.elementwise.axpy(sums + i * k, w->scale * b[i * rank + r], a, (size_t)k);
    }
    for (int64_t i = 0; i < rows; i++) w->norm[from + i] = (float)sqrt(llm_k.optim.sum_squares(sums + i * k, (size_t)k));
}

void llm_adapter_norms(const struct llm_param *w, const struct llm_adapter *o, float scale, float *norm)
{
    LLM_PROFILE("adapter norms", 0);
    llm_parallel((size_t)((w->weight.n + NORM_ROWS - 1) / NORM_ROWS), norm_piece, &(struct norm_work){w, o, scale, norm});
}

/* ---- forward ---- */

static bool fits(struct llm_ctx *c, const struct llm_param *w, const struct llm_adapter *o, int64_t m)
{
    const struct llm_weight *a = &o->a->weight, *b = &o->b->weight;
    const struct llm_adapter_rows *r = &c->adapters;
    if (r->factors && !r->slot && r->first + m != r->n_tokens) {
        llm_op_fail(c, EX_UNAVAILABLE, "'%s': adapters that differ between texts: expected a product of all %lld tokens, found one of %lld rows",
                    w->name, (long long)r->n_tokens, (long long)m);
        return false;
    }
    if (a->k == w->weight.k && b->n == w->weight.n && a->n == b->k && (!o->magnitude || llm_param_count(o->magnitude) == b->n)) return true;
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

/* What products with w are before their adapters are added: x·wᵀ + bias in y, or with `base` [m, n] x·wᵀ there. */
struct before { const float *bias, *base; };

/* In training with dropout, x·wᵀ of dropped inputs stands for the product that the gains multiply, as in PEFT: [m, n] on `acts`. */
static bool dropped_base(struct llm_ctx *c, struct llm_param *w, const float *x, int64_t ldx, int64_t m, struct before *before)
{
    int64_t n = w->weight.n;
    float *base = llm_op_alloc(c, m * n, sizeof *base);
    struct llm_matmul own = {.m = m, .x = x, .ldx = ldx, .y = base, .ldy = n, .compute = c->compute};
    before->base = base;
    return base && llm_matmul(&own, &w->weight, &c->err) == 0;
}

static bool add_magnified(struct llm_ctx *c, struct llm_param *w, const struct llm_adapter *o, struct before before, const float *x, int64_t ldx,
                          float *y, int64_t ldy, int64_t m)
{
    size_t mark = llm_arena_mark(&c->acts);
    int64_t n = o->b->weight.n;
    const float *gains = gains_of(c, o);
    float *added = gains ? llm_op_alloc(c, m * n, sizeof *added) : NULL;
    if (!added || !(x = dropped(c, o, x, ldx, m, &ldx)) || (drops(c, o) && !dropped_base(c, w, x, ldx, m, &before))) return false;
    for (int64_t at = 0, end; at < m; at = end) {
        float factor;
        end = run_end(&c->adapters, o, at, m, &factor);
        if (factor == 0) continue;
        const float *low = reduced(c, o, factor * o->scale, x + at * ldx, ldx, end - at);
        struct llm_matmul up = {.m = end - at, .x = low, .ldx = o->b->weight.k, .y = added, .ldy = n, .compute = c->compute};
        if (!low || llm_matmul(&up, &o->b->weight, &c->err) < 0) return false;
        struct gain_work work = {.gains = gains, .bias = before.bias, .base = before.base ? before.base + at * n : NULL, .low = added,
                                 .y = y + at * ldy, .factor = factor * o->factor, .ldy = ldy, .n = n};
        llm_for_rows(end - at, n, gain_rows, &work);
    }
    llm_arena_pop(&c->acts, mark);
    return true;
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

/* A copy of x·wᵀ, which the second of several adapters with magnitudes needs. NULL: it is not needed, or after a failure. */
static const float *copy_base(struct llm_ctx *c, const struct llm_param *w, const float *bias, const float *y, int64_t ldy, int64_t m)
{
    int64_t n = w->weight.n;
    bool wanted = false;
    for (const struct llm_adapter *o = w->adapter ? w->adapter->next : NULL; o; o = o->next) wanted |= o->magnitude != NULL;
    float *base = wanted ? llm_op_alloc(c, m * n, sizeof *base) : NULL;
    for (int64_t i = 0; base && i < m; i++) {
        for (int64_t j = 0; j < n; j++) base[i * n + j] = y[i * ldy + j] - (bias ? bias[j] : 0);
    }
    return base;
}

bool llm_adapter_add(struct llm_ctx *c, struct llm_param *w, const float *bias, const float *x, int64_t ldx, float *y, int64_t ldy, int64_t m)
{
    size_t mark = llm_arena_mark(&c->acts);
    const struct before before = {bias, copy_base(c, w, bias, y, ldy, m)};
    for (const struct llm_adapter *o = w->adapter; o && !llm_ctx_failed(c); o = o->next) {
        LLM_PROFILE("adapter", 0);
        if (!fits(c, w, o, m)) return false;
        if (!(o->magnitude ? add_magnified(c, w, o, before, x, ldx, y, ldy, m) : add_one(c, o, x, ldx, y, ldy, m))) return false;
    }
    if (llm_ctx_failed(c)) return false;
    llm_arena_pop(&c->acts, mark);
    return true;
}

/* ---- backward ---- */

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

/* The gradient of the magnitudes: Σ dy∘(x·(w + scale·b·a)ᵀ) / norm over tokens. */
static bool magnitude_gradient(struct llm_ctx *c, struct llm_param *w, const struct llm_adapter *o, const float *x, int64_t ldx, const float *dy,
                               int64_t ldy, int64_t m, const struct llm_folds *folds)
{
    size_t mark = llm_arena_mark(&c->acts);
    int64_t n = w->weight.n;
    if (!o->magnitude->grad) return true;
    float *y = llm_op_alloc(c, m * n, sizeof *y), *inverse = llm_op_alloc(c, n, sizeof *inverse);
    int64_t ld_in;
    const float *in = dropped(c, o, x, ldx, m, &ld_in);
    struct llm_matmul own = {.m = m, .x = in, .ldx = ld_in, .y = y, .ldy = n, .compute = c->compute};
    if (llm_ctx_failed(c) || llm_matmul(&own, &w->weight, &c->err) < 0 || !add_one(c, o, x, ldx, y, n, m)) return false;
    for (int64_t j = 0; j < n; j++) inverse[j] = o->norm[j] > 0 ? 1 / o->norm[j] : 0;
    llm_for_rows(m, n, multiply_rows, &(struct product_work){.x = dy, .ldx = ldy, .by = y, .y = y, .ldy = n, .n = n, .by_row = true});
    llm_for_rows(m, n, multiply_rows, &(struct product_work){.x = y, .ldx = n, .by = inverse, .y = y, .ldy = n, .n = n});
    llm_bias_grad(o->magnitude, y, n, m, folds, n);
    llm_arena_pop(&c->acts, mark);
    return true;
}

bool llm_adapter_dw(struct llm_ctx *c, struct llm_param *w, const float *x, int64_t ldx, const float *dy, int64_t ldy, int64_t m,
                    const struct llm_folds *folds, struct llm_adapter_low *kept)
{
    for (const struct llm_adapter *o = w->adapter; o && !llm_ctx_failed(c); o = o->next) {
        LLM_PROFILE("adapter dw", 0);
        const bool keeps = kept && !kept->of && !o->magnitude && o->a->grad;
        if (keeps) *kept = (struct llm_adapter_low){o, reduced_back(c, o, dy, ldy, m)};
        size_t mark = llm_arena_mark(&c->acts);
        int64_t ld = ldx;
        const float *in = o->a->grad || o->b->grad || w->grad ? dropped(c, o, x, ldx, m, &ld) : NULL;
        if (o->magnitude && (!magnified(c, w) || !magnitude_gradient(c, w, o, x, ldx, dy, ldy, m, folds))) return false;
        if (o->magnitude && drops(c, o) && w->grad) { /* what the gains add; the product with w itself has the gradient dyᵀ·x */
            int64_t ld_own = ldy;
            const float *own = times_gains(c, o, -1, dy, &ld_own, m);
            if (!own || !in || !gradient(c, w, own, ld_own, in, ld, m, folds)) return false;
        }
        if (o->magnitude && !(dy = times_gains(c, o, 0, dy, &ldy, m))) return false;
        const float *low = in && o->b->grad ? reduced(c, o, o->scale, in, ld, m) : NULL;
        if (llm_ctx_failed(c) || (low && !gradient(c, o->b, dy, ldy, low, o->b->weight.k, m, folds))) return false;
        const float *d_low = keeps ? kept->d_low : in && o->a->grad ? reduced_back(c, o, dy, ldy, m) : NULL;
        if (llm_ctx_failed(c) || (d_low && !gradient(c, o->a, d_low, o->a->weight.n, in, ld, m, folds))) return false;
        llm_arena_pop(&c->acts, mark);
    }
    return !llm_ctx_failed(c);
}

bool llm_adapter_dx(struct llm_ctx *c, struct llm_param *w, const float *dy, int64_t ldy, float *dx, int64_t ld_dx, int64_t m,
                    const struct llm_adapter_low *kept)
{
    for (const struct llm_adapter *o = w->adapter; o && !llm_ctx_failed(c); o = o->next) {
        LLM_PROFILE("adapter dx", 0);
        size_t mark = llm_arena_mark(&c->acts);
        int64_t k = o->a->weight.k, ld_own = ldy, ld_low = ldy;
        bool masked = drops(c, o), own = masked && o->magnitude; /* own: dx has dy·w alone, without what the gains add */
        const float *dy_own = own ? times_gains(c, o, -1, dy, &ld_own, m) : NULL, *dy_low = own ? times_gains(c, o, 0, dy, &ld_low, m) : dy;
        const float *d_low = kept && kept->of == o ? kept->d_low : dy_low ? reduced_back(c, o, dy_low, ld_low, m) : NULL;
        float *whole = d_low && masked ? llm_op_alloc(c, m * k, sizeof *whole) : NULL; /* before the mask */
        if (llm_ctx_failed(c)) return false;
        struct llm_matmul up = {.m = m, .x = d_low, .ldx = o->a->weight.n, .y = whole ? whole : dx, .ldy = whole ? k : ld_dx, .accumulate = !whole,
                                .compute = c->compute};
        struct llm_matmul back = {.m = m, .x = dy_own, .ldx = ld_own, .y = whole, .ldy = k, .accumulate = true, .compute = c->compute};
        if (llm_matmul_dx(&up, &o->a->weight, &c->err) < 0 || (own && llm_matmul_dx(&back, &w->weight, &c->err) < 0)) return false;
        if (whole) drop(c, &(struct drop_work){.o = o, .from = whole, .from_stride = k, .to = dx, .to_stride = ld_dx, .cols = k, .add = true}, m);
        llm_arena_pop(&c->acts, mark);
    }
    return !llm_ctx_failed(c);
}

/* out [k] += scale · row `row` of b · a */
static void decode_one(const struct llm_adapter *o, int64_t row, int64_t k, float *out)
{
    int64_t rank = o->a->weight.n;
    float gain = llm_adapter_gain(o, row);
    for (int64_t r = 0; r < rank; r++) {
        float b;
        llm_weight_decode(&o->b->weight, row * rank + r, 1, &b);
        for (int64_t i = 0; i < k; i++) {
            float a;
            llm_weight_decode(&o->a->weight, r * k + i, 1, &a);
            out[i] += gain * o->scale * b * a;
        }
    }
}

void llm_adapter_decode(const struct llm_param *w, int64_t row, float *out)
{
    llm_weight_decode(&w->weight, row * w->weight.k, w->weight.k, out);
    llm_k.elementwise.scale(out, llm_adapter_keeps(w, row), out, (size_t)w->weight.k);
    for (const struct llm_adapter *o = w->adapter; o; o = o->next) decode_one(o, row, w->weight.k, out);
}
