/* Projection, softmax cross-entropy and their gradients, a chunk of tokens at a time. The logits of a chunk are replaced by their gradient, which is
 * used before the next chunk begins. A chunk consists of whole blocks of the canonical order, so the bits do not depend on its size. */
#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/op/cross_entropy_internal.h"
#include "tensor/tape.h"

struct work {
    const struct llm_cross_entropy *a;
    int64_t first, vocab;  /* the chunk's first token */
    int64_t *tokens;       /* [chunk] the tokens of the rows of `logits`: those that count; NULL: all of the chunk, in order */
    float *rows, *back;    /* [chunk, hidden] with `tokens`: these tokens' rows of x, and their gradients */
    const float *bias;     /* [vocab] or NULL */
    float *logits;         /* [chunk, vocab] */
    float *shown;          /* of the same shape: logits as they were shown, of a capped model; NULL: nobody looks, or there is no cap */
    float *taught;         /* [chunk, vocab]: the teacher's logits, then gradients; NULL: there is no teacher */
    double *nll;           /* [tokens of all chunks] */
    bool gradient;
    double z;
};

static int64_t token_of(const struct work *w, int64_t row)
{
    return w->tokens ? w->tokens[row] : w->first + row;
}

/* A row of raw products to logits, with the bits of ce_forward. */
static void to_logits(float *x, float scale, float cap, size_t n)
{
    if (cap != 0 || scale != 1) llm_k.elementwise.scale(x, cap != 0 ? scale / cap : scale, x, n);
    if (cap == 0) return;
    llm_k.elementwise.act[LLM_ACT_TANH](x, x, n);
    llm_k.elementwise.scale(x, cap, x, n);
}

/* For those who look at logits. */
static void logit_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) to_logits(w->logits + r * w->vocab, w->a->logit_scale, w->a->logit_softcap, (size_t)w->vocab);
}

/* Divergences from the teacher. The student's raw products are replaced by their gradient. */
static void teacher_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    const struct llm_cross_entropy *a = w->a;
    const struct llm_teacher *t = a->teacher;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        int64_t token = w->first + r, n = w->vocab;
        float *x = w->logits + r * n, *y = w->taught + r * n, scale = a->logit_scale, cap = a->logit_softcap;
        int64_t top = token * t->n_top;
        w->nll[token] = 0;
        if (!ce_counted(a, token)) {
            if (w->gradient) memset(x, 0, (size_t)n * sizeof *x);
            continue;
        }
        if (!a->logits) to_logits(x, scale, cap, (size_t)n);
        double factor = a->grad_scale * ce_weight(a, token);
        float *grad = w->gradient ? y : NULL;
        if (t->hidden) to_logits(y, t->logit_scale, t->logit_softcap, (size_t)n);
        const struct llm_top known = {t->n_top, t->top_ids ? t->top_ids + top : NULL, t->top_ids ? t->top_log_probs + top : NULL,
                                      t->tail ? (double)t->tail[token] : (double)NAN};
        w->nll[token] = t->hidden ? llm_divergence(&t->how, x, y, n, factor, grad) : llm_divergence_top(&t->how, x, &known, n, factor, grad);
        for (int64_t i = 0; i < n && w->gradient; i++) x[i] = y[i] * (cap != 0 ? scale * (1 - x[i] / cap * (x[i] / cap)) : scale);
    }
}

/* ce_forward of logits that were shown. Its backward reads the logits themselves if they are capped. */
static struct llm_ce_row shown_row(const struct work *w, int64_t r)
{
    float *x = w->logits + r * w->vocab, *kept = w->shown ? w->shown + r * w->vocab : NULL;
    if (kept) memcpy(kept, x, (size_t)w->vocab * sizeof *x);
    struct llm_ce_row row = llm_k.rows.ce_forward(x, 1, 0, (size_t)w->vocab);
    if (kept) memcpy(x, kept, (size_t)w->vocab * sizeof *x);
    return row;
}

/* The gradient of weight · -log p(target) - bonus · entropy, in double. x: what ce_forward has left (if capped: the logits, else their
 * exponentials). */
static void back_with_entropy(const struct llm_cross_entropy *a, float *x, struct llm_ce_row row, size_t target, double weight, double bonus,
                              size_t n)
{
    double cap = (double)a->logit_softcap, log_sum = log((double)row.sum), entropy = 0;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < n; i++) {
            double log_p = cap != 0 ? (double)x[i] - (double)row.max - log_sum : log((double)x[i]) - log_sum, p = exp(log_p);
            if (round == 0) {
                entropy -= p > 0 ? p * log_p : 0;
            } else {
                double inner = cap != 0 ? 1 - (double)x[i] / cap * ((double)x[i] / cap) : 1;
                double slope = weight * (p - (i == target)) + (p > 0 ? bonus * p * (log_p + entropy) : 0);
                x[i] = (float)(a->grad_scale * slope * (double)a->logit_scale * inner);
            }
        }
    }
}

static void loss_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    const struct llm_cross_entropy *a = w->a;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        int64_t token = token_of(w, r);
        float *x = w->logits + r * w->vocab;
        w->nll[token] = 0;
        if (!ce_counted(a, token)) {
            if (w->gradient) memset(x, 0, (size_t)w->vocab * sizeof *x);
            continue;
        }
        size_t target = (size_t)a->targets[token];
        float logit = a->logits ? x[target] : x[target] * a->logit_scale;
        struct llm_ce_row row = a->logits ? shown_row(w, r) : llm_k.rows.ce_forward(x, a->logit_scale, a->logit_softcap, (size_t)w->vocab);
        if (a->logit_softcap != 0) logit = x[target];
        w->nll[token] = log((double)row.sum) - ((double)logit - (double)row.max);
        if (w->gradient && a->entropy) {
            back_with_entropy(a, x, row, target, ce_weight(a, token), (double)a->entropy[token], (size_t)w->vocab);
        } else if (w->gradient) {
            /* d(lse + z·lse²) = (1 + 2z·lse)·p: probabilities over a smaller sum */
            if (w->z != 0) row.sum = (float)((double)row.sum / (1 + 2 * w->z * ((double)row.max + log((double)row.sum))));
            llm_k.rows.ce_back(x, row, target, (float)(a->grad_scale * ce_weight(a, token)), a->logit_scale, a->logit_softcap, (size_t)w->vocab);
        }
    }
}

static int project_chunk(struct llm_ctx *c, const struct llm_matmul *a, struct llm_param *w)
{
    LLM_PROFILE("head", 0);
    return llm_matmul(a, &w->weight, &c->err);
}

/* The teacher's raw products for the m tokens from `at`. */
static bool teach(struct llm_ctx *c, const struct work *work, int64_t at, int64_t m)
{
    const struct llm_teacher *t = work->a->teacher;
    const float *bias = t->bias ? llm_op_vector(c, t->bias, work->vocab) : NULL, *rows = t->hidden->data + at * t->hidden->stride;
    struct llm_matmul project = {.m = m, .x = rows, .ldx = t->hidden->stride, .y = work->taught, .ldy = work->vocab, .bias = bias,
                                 .compute = c->compute};
    return !llm_ctx_failed(c) && llm_matmul(&project, &t->head->weight, &c->err) == 0
        && llm_adapter_add(c, t->head, bias, rows, t->hidden->stride, work->taught, work->vocab, m);
}

/* Whether tokens that do not count can be left out: nothing is learned of the head or shown of its logits, so they give zeros alone. */
static bool leaves_out(const struct llm_ctx *c, const struct llm_param *w, const struct llm_cross_entropy *a)
{
    const bool learned = w->grad || llm_param_use(w, 2 * c->use - 1) || (a->bias && a->bias->grad);
    return !learned && !w->adapter && !a->teacher && !a->logits;
}

/* Gathers the tokens of [at, end) that count, and their rows. Returns their number. */
static int64_t gather(struct work *w, const struct llm_tensor *x, int64_t at, int64_t end)
{
    int64_t n = 0;
    for (int64_t t = at; t < end; t++) {
        w->nll[t] = 0;
        if (!ce_counted(w->a, t)) continue;
        memcpy(w->rows + n * x->cols, x->data + t * x->stride, (size_t)x->cols * sizeof(float));
        w->tokens[n++] = t;
    }
    return n;
}

/* The gradients of the m gathered rows go to their tokens; those of the other tokens in [at, end) get zeros. */
static void scatter(const struct work *w, const struct llm_grad *dx, int64_t cols, int64_t m, int64_t at, int64_t end)
{
    for (int64_t t = at, r = 0; t < end; t++) {
        float *to = dx->p + t * dx->stride;
        if (r < m && w->tokens[r] == t) memcpy(to, w->back + r++ * cols, (size_t)cols * sizeof *to);
        else if (!dx->add) memset(to, 0, (size_t)cols * sizeof *to);
    }
}

/* Processes the chunk of tokens [at, end). False after a failure. */
static bool chunk(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, struct work *work, const struct llm_grad *dx, int64_t at, int64_t end)
{
    const struct llm_folds all = llm_folds_of(c, x->rows);
    int64_t m = work->tokens ? gather(work, x, at, end) : end - at, row_len = all.row_len, stride = work->tokens ? x->cols : x->stride;
    const float *rows = work->tokens ? work->rows : x->data + at * x->stride;
    struct llm_matmul project = {.m = m, .x = rows, .ldx = stride, .y = work->logits, .ldy = work->vocab, .bias = work->bias,
                                 .compute = c->compute, .release = c->tape != NULL};
    c->adapters.first = at;
    c->adapters.row_len = row_len;
    if (m > 0 && (project_chunk(c, &project, w) < 0 || !llm_adapter_add(c, w, work->bias, rows, stride, work->logits, work->vocab, m))) return false;
    work->first = at;
    if (work->taught && work->a->teacher->hidden && !teach(c, work, at, m)) return false;
    if (work->a->logits) {
        llm_for_rows(m, work->vocab, logit_rows, work);
        work->a->logits->look(work->a->logits, c, at, work->logits, m, work->vocab, work->vocab, false);
        if (llm_ctx_failed(c)) return false;
    }
    llm_for_rows(m, work->vocab, work->taught ? teacher_rows : loss_rows, work);
    const struct llm_folds folds = {.row_len = row_len < m ? row_len : m, .parts = all.parts, .first = at / row_len};
    if (work->gradient) llm_bias_grad(work->a->bias, work->logits, work->vocab, m, &folds, work->vocab);
    float *own = llm_param_use(w, 2 * c->use - 1), *grad = own ? own : w->grad;
    if (grad && work->gradient) {
        LLM_PROFILE("head dw", 0);
        if (!llm_weight_grad(c, w, grad, work->logits, work->vocab, rows, stride, NULL, m, &folds, c->compute)) return false;
    }
    if (work->gradient && !llm_adapter_dw(c, w, rows, stride, work->logits, work->vocab, m, &folds, NULL)) return false;
    if (!dx->p) return true;
    LLM_PROFILE("head dx", 0);
    size_t mark = llm_arena_mark(&c->acts);
    int64_t ldy = work->vocab;
    const float *dy = llm_adapter_dy(c, w, work->logits, &ldy, m);
    struct llm_matmul back = {.m = m, .x = dy, .ldx = ldy, .y = dx->p + at * dx->stride, .ldy = dx->stride, .accumulate = dx->add,
                              .compute = c->compute, .release = true};
    if (work->tokens) {
        back.y = work->back;
        back.ldy = x->cols;
        for (int64_t r = 0; r < m && dx->add; r++) {
            memcpy(work->back + r * x->cols, dx->p + work->tokens[r] * dx->stride, (size_t)x->cols * sizeof(float));
        }
    }
    if (!dy || (m > 0 && (llm_matmul_dx(&back, &w->weight, &c->err) < 0 || !llm_adapter_dx(c, w, dy, ldy, back.y, back.ldy, m, NULL)))) return false;
    if (work->tokens) scatter(work, dx, x->cols, m, at, end);
    llm_arena_pop(&c->acts, mark);
    return true;
}

struct llm_loss llm_cross_entropy(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *w, const struct llm_cross_entropy *a)
{
    int64_t vocab = w->weight.n, tokens = x->rows;
    LLM_PROFILE("cross-entropy", 8 * (double)tokens * (double)vocab);
    if (w->slices) return ce_slices(c, x, w, a);
    size_t mark = llm_arena_mark(&c->acts);
    if (llm_ctx_failed(c)) return (struct llm_loss){0};
    if (x->cols != w->weight.k) {
        llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected inputs [*, %lld], found [%lld, %lld]", w->name, (long long)w->weight.k, (long long)tokens,
                    (long long)x->cols);
    }
    const int64_t row_len = llm_folds_of(c, tokens).row_len;
    int64_t longest = 0;
    for (int64_t at = 0, end; at < tokens; at = end) {
        end = ce_chunk_end(tokens, row_len, vocab, at);
        if (end - at > longest) longest = end - at;
    }
    for (int64_t t = 0; t < tokens && !llm_ctx_failed(c); t++) {
        if (a->targets[t] >= vocab) llm_op_fail(c, EX_DATAERR, "target: expected below %lld, found %d", (long long)vocab, (int)a->targets[t]);
    }
    struct llm_grad dx = {0};
    struct llm_node n = {.in = {x}, .param = {w, a->bias, llm_adapter_trained(w)}};
    struct work work = {.a = a, .vocab = vocab, .gradient = !a->no_gradient && llm_tape_wants(c, &n), .z = c->z_loss};
    work.bias = a->bias ? llm_op_vector(c, a->bias, vocab) : NULL;
    work.nll = llm_op_alloc(c, tokens, sizeof *work.nll);
    if (work.gradient && !llm_grad_open(c, x, &dx)) dx.p = NULL;
    if (leaves_out(c, w, a)) {
        work.tokens = llm_op_alloc(c, longest, sizeof *work.tokens);
        work.rows = llm_op_alloc(c, longest * x->cols, sizeof *work.rows);
        work.back = dx.p ? llm_op_alloc(c, longest * x->cols, sizeof *work.back) : NULL;
    }
    /* With a tape the logits use the memory of the gradients of the backward pass, which begins after the logits are freed. */
    struct llm_arena *arena = c->tape ? &c->grads : &c->acts;
    size_t logits = llm_arena_mark(arena);
    work.logits = ce_floats(c, arena, longest, vocab);
    if (a->logits && a->logit_softcap != 0) work.shown = ce_floats(c, arena, longest, vocab);
    if (a->teacher) work.taught = ce_floats(c, arena, longest, vocab);
    for (int64_t at = 0, end; at < tokens && !llm_ctx_failed(c); at = end) {
        end = ce_chunk_end(tokens, row_len, vocab, at);
        if (!chunk(c, x, w, &work, &dx, at, end)) llm_in(&c->err, "'%s'", w->name);
    }
    c->adapters.first = c->adapters.row_len = 0;
    if (llm_ctx_failed(c)) return (struct llm_loss){0};
    llm_arena_pop(arena, logits);
    struct llm_loss loss = ce_fold(c, a, work.nll, tokens);
    llm_arena_pop(&c->acts, mark);
    return loss;
}

/* ---- gradient check ---- */

static const int32_t check_targets[12] = {3, 0, 46, 12, -1, 46, 7, 21, 33, -1, 9, 1};
static const uint8_t check_mask[12] = {1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1};
static const struct llm_cross_entropy check_plain = {check_targets, check_mask, NULL, 1, 0, 1, NULL, NULL, NULL, false, NULL, NULL};
static const struct llm_cross_entropy check_capped = {check_targets, NULL, NULL, 0.25f, 1.5f, 1, NULL, NULL, NULL, false, NULL, NULL};
static const float check_entropy[12] = {.5f, 0, 1, -1, 1, .25f, 0, 2, .5f, 3, 1, 1};
static const float check_weights[12] = {1, .5f, -2, 3, 9, 0, .25f, 1, 7, 1, -.125f, 4};
static const struct llm_cross_entropy check_weighted = {check_targets, check_mask, NULL, .5f, 0, 1, NULL, NULL, check_weights, false, NULL, NULL};

static const struct llm_cross_entropy check_bonus = {check_targets, check_mask, NULL, .5f, 0, 1, NULL, NULL, check_weights, false, NULL,
                                                     check_entropy};
static const struct llm_cross_entropy check_capped_bonus = {check_targets, check_mask, NULL, .5f, 1.5f, 1, NULL, NULL, check_weights, false, NULL,
                                                            check_entropy};

static struct llm_tensor *run_plain(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    llm_cross_entropy(c, in[0], p[0], &check_plain);
    return NULL;
}

static struct llm_tensor *run_weighted(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    llm_cross_entropy(c, in[0], p[0], &check_weighted);
    return NULL;
}

static struct llm_tensor *run_bonus(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    llm_cross_entropy(c, in[0], p[0], in[0]->cols > 13 ? &check_capped_bonus : &check_bonus);
    return NULL;
}

static struct llm_tensor *run_capped(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    llm_cross_entropy(c, in[0], p[0], &check_capped);
    return NULL;
}

static struct llm_tensor *run_biased(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    struct llm_cross_entropy biased = check_capped;
    biased.bias = p[1];
    llm_cross_entropy(c, in[0], p[0], &biased);
    return NULL;
}

static struct llm_tensor *run_z(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    c->z_loss = .05;
    llm_cross_entropy(c, in[0], p[0], in[0]->cols > 13 ? &check_capped : &check_plain);
    c->z_loss = 0;
    return NULL;
}

/* The head in two slices, of 23 and 24 rows. */
static struct llm_tensor *run_sliced(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static struct llm_param whole, of[2];
    static struct llm_slices s;
    of[0] = *p[0];
    of[1] = *p[1];
    whole = (struct llm_param){.name = "head", .n_dims = 2, .shape = {47, in[0]->cols}, .weight = {.n = 47, .k = in[0]->cols}, .slices = &s};
    s = (struct llm_slices){.n = 2, .end = 2, .of = of, .whole = &whole};
    c->z_loss = .05;
    llm_cross_entropy(c, in[0], &whole, in[0]->cols > 13 ? &check_capped : &check_weighted);
    c->z_loss = 0;
    for (int j = 0; j < 2; j++) llm_weight_release(&of[j].weight);
    return NULL;
}

static void formula(const struct llm_gradcheck *g, const struct llm_cross_entropy *a, const double *x, const double *w, const double *b, double z,
                    double *y)
{
    int64_t vocab = 47, width = g->in[0].cols;
    double cap = (double)a->logit_softcap;
    *y = 0;
    for (int64_t t = 0; t < g->in[0].rows; t++) {
        double sum = 0, target = 0, dot = 0;
        if (!ce_counted(a, t)) continue;
        for (int64_t v = 0; v < vocab; v++) {
            double logit = b ? b[v] : 0;
            for (int64_t i = 0; i < width; i++) logit += x[t * width + i] * w[v * width + i];
            logit *= (double)a->logit_scale;
            if (cap > 0) logit = cap * tanh(logit / cap);
            if (v == a->targets[t]) target = logit;
            sum += exp(logit);
            dot += exp(logit) * logit;
        }
        *y += ce_weight(a, t) * (log(sum) - target + z * log(sum) * log(sum));
        if (a->entropy) *y -= (double)a->entropy[t] * (log(sum) - dot / sum);
    }
}

static void formula_plain(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    formula(g, &check_plain, in[0], p[0], NULL, 0, y);
}

static void formula_weighted(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    formula(g, &check_weighted, in[0], p[0], NULL, 0, y);
}

static void formula_bonus(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    formula(g, g->in[0].cols > 13 ? &check_capped_bonus : &check_bonus, in[0], p[0], NULL, 0, y);
}

/* With an adapter of rank 2. */
static struct llm_tensor *run_adapted(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static struct llm_adapter adapter;
    adapter = (struct llm_adapter){.a = p[1], .b = p[2], .scale = .5f};
    p[0]->adapter = &adapter;
    llm_cross_entropy(c, in[0], p[0], &check_plain);
    p[0]->adapter = NULL;
    return NULL;
}

static void formula_adapted(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    double w[47 * 13];
    for (int64_t i = 0; i < 47 * 13; i++) {
        w[i] = p[0][i];
        for (int64_t r = 0; r < 2; r++) w[i] += .5 * p[2][i / 13 * 2 + r] * p[1][r * 13 + i % 13];
    }
    formula(g, &check_plain, in[0], w, NULL, 0, y);
}

static void formula_sliced(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    double w[47 * 14];
    const int64_t width = g->in[0].cols;
    memcpy(w, p[0], (size_t)(23 * width) * sizeof *w);
    memcpy(w + 23 * width, p[1], (size_t)(24 * width) * sizeof *w);
    formula(g, width > 13 ? &check_capped : &check_weighted, in[0], w, NULL, .05, y);
}

static void formula_capped(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    formula(g, &check_capped, in[0], p[0], p[1], 0, y);
}

static void formula_z(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    formula(g, g->in[0].cols > 13 ? &check_capped : &check_plain, in[0], p[0], NULL, .05, y);
}

const struct llm_gradcheck llm_gradcheck_cross_entropy[] = {
    {.name = "cross-entropy", .in = {{12, 13}}, .param = {{47, 13}}, .out = {1, 1}, .n_rows = 3, .run = run_plain, .formula = formula_plain},
    {.name = "cross-entropy, weighted tokens", .in = {{12, 13}}, .param = {{47, 13}}, .out = {1, 1}, .n_rows = 3, .run = run_weighted,
     .formula = formula_weighted},
    {.name = "cross-entropy, entropy bonus", .in = {{12, 13}}, .param = {{47, 13}}, .out = {1, 1}, .n_rows = 3, .run = run_bonus,
     .formula = formula_bonus},
    {.name = "cross-entropy, entropy bonus, capped", .in = {{12, 14}}, .param = {{47, 14}}, .out = {1, 1}, .n_rows = 3, .run = run_bonus,
     .formula = formula_bonus},
    {.name = "cross-entropy, scaled and capped", .in = {{12, 13}}, .param = {{47, 13}}, .out = {1, 1}, .run = run_capped, .formula = formula_capped},
    {.name = "cross-entropy, z-loss", .in = {{12, 13}}, .param = {{47, 13}}, .out = {1, 1}, .n_rows = 3, .run = run_z, .formula = formula_z},
    {.name = "cross-entropy, z-loss, capped", .in = {{12, 14}}, .param = {{47, 14}}, .out = {1, 1}, .run = run_z, .formula = formula_z},
    {.name = "cross-entropy in slices", .in = {{12, 13}}, .param = {{23, 13}, {24, 13}}, .out = {1, 1}, .n_rows = 3, .run = run_sliced,
     .formula = formula_sliced},
    {.name = "cross-entropy in slices, capped", .in = {{12, 14}}, .param = {{23, 14}, {24, 14}}, .out = {1, 1}, .run = run_sliced,
     .formula = formula_sliced},
    {.name = "cross-entropy with a bias", .in = {{12, 13}}, .param = {{47, 13}, {1, 47}}, .out = {1, 1}, .n_rows = 4, .run = run_biased,
     .formula = formula_capped},
    {.name = "cross-entropy with an adapter", .in = {{12, 13}}, .param = {{47, 13}, {2, 13}, {47, 2}}, .out = {1, 1}, .n_rows = 3,
     .run = run_adapted, .formula = formula_adapted},
    {0}};
