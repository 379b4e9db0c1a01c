/* Dictionaries of features (infer/dictionary.h), learned from a stream of activations beside the model that these are of: sparse autoencoders and
 * transcoders. With z and t the scaled input and output of one activation, f its features and y = D·f + d:
 *
 *     loss = |y - t|² / out + sparsity + aux · |ŷ - (t - y)|² / out
 *
 * sparsity: 0 for topk, which keeps `active` features; X·Σ f for l1; X · (number of features that are not 0) for jumprelu, whose thresholds get a
 * gradient by a rectangle of width BANDWIDTH around them (Rajamanoharan et al. 2024). The last term revives dead features (Gao et al. 2024): ŷ is
 * what the `active` largest of them would add, fitted to what the others leave over; t - y is a constant in it. A feature is dead when the running
 * mean of the share of activations for which it is not 0 has fallen below DEAD.
 *
 * The gradient is written out here: the whole is two products and what lies between. After each step the columns of D are given length 1 again. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "infer/activations.h"
#include "infer/dictionary.h"
#include "tensor/tape.h"
#include "train/objective.h"

#define DEAD 1e-6
#define BANDWIDTH .5

enum { SAMPLE = 512 };             /* activations */

struct dictionary {
    struct llm_dictionary d;
    const struct llm_activation_rows *side[2]; /* input and output of all activations */
};

/* ---- options ---- */

#define OPTIONS \
    LLM_BESIDE_OPTIONS, \
    {.name = "place", .arg = "PLACE", .help = "place in the model of the activations that a dictionary reads: layers.3.residual.after", \
     .type = LLM_STR}, \
    {.name = "dictionary", .arg = "KIND", .help = "which features of a dictionary are active: topk, jumprelu, l1 [topk]", .type = LLM_CHOICE, \
     .choices = "topk|jumprelu|l1"}, \
    {.name = "features", .arg = "N", .help = "features of a dictionary; 0: 8 times the width of the activations [0]", .type = LLM_INT, \
     .max = 1 << 24}, \
    {.name = "active", .arg = "K", .help = "features active at a time: always (topk), at the start (jumprelu); dead ones revived at a time [32]", \
     .type = LLM_INT, .min = 1, .max = 1 << 20, .fallback = 32}, \
    {.name = "sparsity", .arg = "X", .help = "weight of the features' sum (l1) or number (jumprelu) in the loss; 0: by kind and width [0]", \
     .type = LLM_REAL, .max = 1e6}, \
    {.name = "revive", .arg = "X", .help = "weight of the loss that revives a dictionary's dead features; 0: they stay dead [1/32]", \
     .type = LLM_REAL, .max = 1e6, .fallback = 1. / 32}

static const struct llm_objective_option sae_options[] = {OPTIONS, {.name = NULL}};
static const struct llm_objective_option transcoder_options[] = {
    OPTIONS,
    {.name = "predict", .arg = "PLACE", .help = "place of the activations that a transcoder predicts: layers.3.mlp.output", .type = LLM_STR},
    {.name = NULL}};

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    if (!llm_option_text(o, "place")) return llm_fail(e, LLM_EX_USAGE, "expected --place PLACE, where the activations are from");
    bool predicts = llm_objectives[o->objective]->options == transcoder_options;
    if (predicts && !llm_option_text(o, "predict")) return llm_fail(e, LLM_EX_USAGE, "expected --predict PLACE");
    if (o->ema > 0) return llm_fail(e, LLM_EX_USAGE, "--ema: expected 0: an average of decoders has no columns of length 1");
    return 0;
}

/* ---- before the first step ---- */

static const struct llm_activation_rows *find(const struct llm_task *t, const struct llm_place *p, struct llm_err *e)
{
    char name[LLM_PLACE_TEXT];
    llm_place_print(*p, name, sizeof name);
    const struct llm_activation_rows *rows = llm_activations_find(t->activations, name);
    if (!rows) llm_fail(e, EX_DATAERR, "data: expected activations at %s (llm-infer --export), found none", name);
    return rows;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean of the rows, and the median of their distances from it, divided by √cols: a few activations are often a thousand times as long as the
 * others, and must not set the scale. */
static int place(const struct llm_activation_rows *x, float *mean, double *scale, struct llm_err *e)
{
    double *sum = llm_calloc((size_t)x->cols, sizeof *sum, "a dictionary", e), *far = llm_calloc((size_t)x->rows, sizeof *far, "a dictionary", e);
    for (int64_t r = 0; r < x->rows && sum && far; r++) {
        for (int64_t i = 0; i < x->cols; i++) sum[i] += (double)x->x[r * x->cols + i];
    }
    for (int64_t i = 0; i < x->cols && sum && far; i++) mean[i] = (float)(sum[i] / (double)x->rows);
    for (int64_t r = 0; r < x->rows && sum && far; r++) {
        for (int64_t i = 0; i < x->cols; i++) {
            double gap = (double)(x->x[r * x->cols + i] - mean[i]);
            far[r] += gap * gap;
        }
    }
    int status = sum && far ? 0 : -1;
    if (status == 0) qsort(far, (size_t)x->rows, sizeof *far, ascending);
    if (status == 0) *scale = sqrt(far[x->rows / 2] / (double)x->cols);
    if (status == 0 && !(isfinite(*scale) && *scale > 0)) status = llm_fail(e, EX_DATAERR, "%s: expected activations that differ", x->name);
    free(sum);
    free(far);
    return status;
}

/* Gives the columns of the decoder length 1. */
static void normalise(struct llm_dictionary *d)
{
    struct llm_param *p = &d->params[LLM_DICTIONARY_DECODER];
    float *w = (float *)p->weight.data;
    for (int64_t j = 0; j < d->features; j++) {
        double squares = 0;
        for (int64_t i = 0; i < d->out; i++) squares += (double)w[i * d->features + j] * (double)w[i * d->features + j];
        float factor = squares > 0 ? (float)(1 / sqrt(squares)) : 1;
        for (int64_t i = 0; i < d->out; i++) w[i * d->features + j] *= factor;
    }
    llm_weight_changed(&p->weight);
}

/* Columns of D in random directions; E is D transposed, of a transcoder directions of its own; all features count as alive. */
static void draw(struct llm_dictionary *d, uint64_t seed, bool same)
{
    float *encoder = (float *)d->params[LLM_DICTIONARY_ENCODER].weight.data, *decoder = (float *)d->params[LLM_DICTIONARY_DECODER].weight.data;
    float *rate = (float *)d->params[LLM_DICTIONARY_RATE].weight.data;
    for (int64_t j = 0; j < d->features; j++) {
        const struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_DICTIONARY, 0, (uint32_t)j, 0);
        const struct llm_rng q = llm_rng_at(seed, 0, LLM_RNG_DICTIONARY, 0, (uint32_t)j, 1);
        for (int64_t i = 0; i < d->out; i++) decoder[i * d->features + j] = llm_rng_normal(&r, (uint32_t)i);
        for (int64_t i = 0; i < d->in; i++) encoder[j * d->in + i] = llm_rng_normal(&q, (uint32_t)i) / sqrtf((float)d->in);
        rate[j] = 1;
    }
    normalise(d);
    for (int64_t j = 0; j < d->features && same; j++) {
        for (int64_t i = 0; i < d->in; i++) encoder[j * d->in + i] = decoder[i * d->features + j];
    }
}

/* Thresholds above which `k` features are active on average, in a sample of the activations: an optimizer's steps of t, which is a logarithm, are too
 * short to find them from far away. */
static int start_thresholds(struct dictionary *x, enum llm_compute compute, struct llm_err *e)
{
    const struct llm_activation_rows *in = x->side[0];
    const struct llm_dictionary *d = &x->d;
    int64_t rows = in->rows < SAMPLE ? in->rows : SAMPLE, n = rows * d->features;
    float *t = (float *)d->params[LLM_DICTIONARY_THRESHOLD].weight.data, least = INFINITY;
    float *z = llm_calloc((size_t)(rows * d->in), sizeof *z, "a sample of activations", e);
    float *room = z ? llm_calloc((size_t)(3 * n), sizeof *room, "a sample of features", e) : NULL, *pre = room, *f = room ? room + n : NULL;
    for (int64_t r = 0; r < rows && room; r++) llm_dictionary_scale(d, 0, in->x + r * in->rows / rows * in->cols, d->in, 1, z + r * d->in);
    int status = room ? llm_dictionary_encode(d, z, rows, compute, pre, f, e) : -1;
    if (status == 0) {
        llm_top_k(pre, NULL, n, rows * d->k, f, f + n);
        for (int64_t i = 0; i < n; i++) {
            if (f[i] > 0 && f[i] < least) least = f[i];
        }
        for (int64_t j = 0; j < d->features && isfinite(least); j++) t[j] = logf(least);
    }
    free(room);
    free(z);
    return status;
}

static int create(struct llm_task *t, struct llm_err *e)
{
    struct dictionary *x = llm_calloc(1, sizeof *x, "a dictionary", e);
    struct llm_dictionary *d = x ? &x->d : NULL;
    const char *from = llm_option_text(&t->o, "place"), *to = t->objective->options == transcoder_options ? llm_option_text(&t->o, "predict") : from;
    t->own = x;
    if (!x || check_options(&t->o, e) < 0 || llm_model_fingerprint(t->model, e) < 0) return -1;
    if (!t->activations || t->activations->rows < 1) return llm_fail(e, EX_DATAERR, "expected activations (llm-infer --export) as data, found none");
    if (!t->activations->fingerprint[0] || strcmp(t->activations->fingerprint, t->model->fingerprint) != 0) {
        return llm_fail(e, EX_DATAERR, "data: expected activations of this model (%s), found those of %s", t->model->fingerprint,
                        t->activations->fingerprint[0] ? t->activations->fingerprint : "an unknown one");
    }
    if (llm_dictionary_place(from, &t->model->config, &d->from, e) < 0 || llm_dictionary_place(to, &t->model->config, &d->to, e) < 0) return -1;
    if (!(x->side[0] = find(t, &d->from, e)) || !(x->side[1] = find(t, &d->to, e))) return -1;
    d->kind = (enum llm_dictionary_kind)llm_option_word(&t->o, "dictionary");
    d->k = llm_option_int(&t->o, "active");
    d->in = x->side[0]->cols;
    d->out = x->side[1]->cols;
    d->features = llm_option_int(&t->o, "features");
    if (d->features == 0) d->features = 8 * d->in;
    if (d->k > d->features) {
        return llm_fail(e, LLM_EX_USAGE, "--active: expected at most %" PRId64 " (--features), found %" PRId64, d->features, d->k);
    }
    if (llm_dictionary_create(d, e) < 0) return -1;
    for (int side = 0; side < 2; side++) {
        if (place(x->side[side], d->mean[side], &d->scale[side], e) < 0) return -1;
    }
    draw(d, (uint64_t)t->o.seed, x->side[0] == x->side[1]);
    if (d->kind == LLM_DICTIONARY_JUMPRELU && start_thresholds(x, (enum llm_compute)t->o.precision, e) < 0) return -1;
    t->params = d->params;
    t->n_params = (int)d->n_params;
    return 0;
}

static void destroy(struct llm_task *t)
{
    struct dictionary *x = t->own;
    if (!x) return;
    llm_dictionary_release(&x->d);
    free(x);
    t->own = NULL;
}

static int describe(const struct llm_task *t, json_t *meta, struct llm_err *e)
{
    return llm_dictionary_describe(&((const struct dictionary *)t->own)->d, meta, e);
}

static void updated(struct llm_task *t)
{
    normalise(&((struct dictionary *)t->own)->d);
}

/* ---- a pass ---- */

/* A row is one activation, of which its id is the number. */
static int document(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    (void)t, (void)e;
    int64_t at = row * rows->row_len;
    rows->ids[at] = d->ids[0];
    rows->targets[at] = rows->positions[at] = rows->doc_start[at] = 0;
    rows->own[at] = 1;
    return 0;
}

struct pass {
    struct dictionary *x;
    int64_t n;
    float *z, *t, *pre, *f, *y;       /* [n, in], [n, out], [n, features], [n, features], [n, out] */
    float *df, *dpre, *g;             /* [n, features]; g: features of the dead */
    uint8_t *dead;                    /* [features] */
    int64_t n_dead;
    double grad_scale, sparsity;
    float *token_loss;
    bool failed;
};

static void gather(struct pass *p, const int32_t *ids)
{
    const struct llm_dictionary *d = &p->x->d;
    for (int64_t r = 0; r < p->n; r++) {
        const struct llm_activation_rows *in = p->x->side[0], *out = p->x->side[1];
        llm_dictionary_scale(d, 0, in->x + ids[r] * in->cols, d->in, 1, p->z + r * d->in);
        llm_dictionary_scale(d, 1, out->x + ids[r] * out->cols, d->out, 1, p->t + r * d->out);
    }
}

/* y becomes the gradient of the error by y, and the loss of the row is set. */
static void error_row(void *arg, size_t i, int thread)
{
    struct pass *p = arg;
    const struct llm_dictionary *d = &p->x->d;
    float *y = p->y + (int64_t)i * d->out;
    const float *t = p->t + (int64_t)i * d->out, *f = p->f + (int64_t)i * d->features;
    double loss = 0, sparse = 0;
    (void)thread;
    for (int64_t k = 0; k < d->out; k++) {
        double gap = (double)y[k] - (double)t[k];
        loss += gap * gap;
        y[k] = (float)(2 * gap / (double)d->out * p->grad_scale);
    }
    for (int64_t k = 0; k < d->features && d->kind != LLM_DICTIONARY_TOPK; k++) {
        sparse += d->kind == LLM_DICTIONARY_L1 ? (double)f[k] : f[k] != 0;
    }
    p->token_loss[i] = (float)(loss / (double)d->out + p->sparsity * sparse);
}

/* From the gradient by the features that by the pre-activations. */
static void act_row(void *arg, size_t i, int thread)
{
    struct pass *p = arg;
    const struct llm_dictionary *d = &p->x->d;
    const float *f = p->f + (int64_t)i * d->features, *df = p->df + (int64_t)i * d->features;
    float *dpre = p->dpre + (int64_t)i * d->features, extra = d->kind == LLM_DICTIONARY_L1 ? (float)(p->sparsity * p->grad_scale) : 0;
    (void)thread;
    for (int64_t k = 0; k < d->features; k++) dpre[k] = f[k] > 0 ? df[k] + extra : 0;
}

/* The features of the dead that would be the largest. */
static void dead_row(void *arg, size_t i, int thread)
{
    struct pass *p = arg;
    const struct llm_dictionary *d = &p->x->d;
    float *scratch = llm_scratch(thread, (size_t)d->features * sizeof *scratch);
    if (scratch) llm_top_k(p->pre + (int64_t)i * d->features, p->dead, d->features, d->k, p->g + (int64_t)i * d->features, scratch);
    else p->failed = true;
}

/* Adds the gradient of thresholds: of f by t where p is near the threshold, and of the number of features that are not 0. */
static void add_thresholds(const struct pass *p)
{
    const struct llm_dictionary *d = &p->x->d;
    const struct llm_param *t = &d->params[LLM_DICTIONARY_THRESHOLD];
    for (int64_t k = 0; k < d->features; k++) {
        float at = expf(((const float *)t->weight.data)[k]), sum = 0;
        for (int64_t r = 0; r < p->n; r++) {
            if (fabsf(p->pre[r * d->features + k] - at) > (float)BANDWIDTH / 2) continue;
            sum -= (at * p->df[r * d->features + k] + (float)(p->sparsity * p->grad_scale)) / (float)BANDWIDTH * at;
        }
        t->grad[k] += sum;
    }
}

/* Adds the gradients of D and d (unless `bias` is false), given those of y and the features that made it. */
static int add_decoder(struct llm_ctx *c, const struct pass *p, const float *dy, const float *f, bool bias, struct llm_err *e)
{
    const struct llm_dictionary *d = &p->x->d;
    const struct llm_folds folds = {.row_len = p->n};
    float *dw = d->params[LLM_DICTIONARY_DECODER].grad;
    if (bias) llm_bias_grad((struct llm_param *)(uintptr_t)&d->params[LLM_DICTIONARY_DECODER_BIAS], dy, d->out, p->n, &folds, d->out);
    return llm_matmul_dw(dw, dy, d->out, f, d->features, p->n, p->n, d->out, d->features, c->compute, e);
}

static int features_grad(struct llm_ctx *c, const struct pass *p, const float *dy, float *df, struct llm_err *e)
{
    const struct llm_dictionary *d = &p->x->d;
    const struct llm_matmul a = {.m = p->n, .x = dy, .ldx = d->out, .y = df, .ldy = d->features, .compute = c->compute};
    return llm_matmul_dx(&a, (struct llm_weight *)(uintptr_t)&d->params[LLM_DICTIONARY_DECODER].weight, e);
}

/* The term that revives dead features: their gradient is added to dpre. `left`: [n, out] what the others leave over. Becomes the gradient by ŷ. */
static int add_dead(struct llm_ctx *c, struct pass *p, double aux, float *left, struct llm_err *e)
{
    const struct llm_dictionary *d = &p->x->d;
    float *made = llm_op_alloc(c, p->n * d->out, sizeof *made);
    p->g = llm_op_alloc(c, p->n * d->features, sizeof *p->g);
    if (!made || !p->g) return 0; /* the context has failed */
    llm_parallel((size_t)p->n, dead_row, p);
    if (p->failed) return llm_no_memory(e, "features");
    const struct llm_matmul a = {.m = p->n, .x = p->g, .ldx = d->features, .y = made, .ldy = d->out, .compute = c->compute};
    if (llm_matmul(&a, (struct llm_weight *)(uintptr_t)&d->params[LLM_DICTIONARY_DECODER].weight, e) < 0) return -1;
    for (int64_t i = 0; i < p->n * d->out; i++) {
        double gap = (double)made[i] - (double)left[i];
        p->token_loss[i / d->out] += (float)(aux * gap * gap / (double)d->out);
        left[i] = (float)(2 * aux * gap / (double)d->out * p->grad_scale);
    }
    if (add_decoder(c, p, left, p->g, false, e) < 0 || features_grad(c, p, left, p->df, e) < 0) return -1;
    for (int64_t i = 0; i < p->n * d->features; i++) p->dpre[i] += p->g[i] > 0 ? p->df[i] : 0;
    return 0;
}

/* All gradients of a pass, whose y has become the gradient by y. `left`: what y left over of t. */
static int backward(struct llm_ctx *c, struct pass *p, double aux, float *left, struct llm_err *e)
{
    struct llm_dictionary *d = &p->x->d;
    const struct llm_folds folds = {.row_len = p->n};
    float *rate = d->params[LLM_DICTIONARY_RATE].grad;
    if (add_decoder(c, p, p->y, p->f, true, e) < 0 || features_grad(c, p, p->y, p->df, e) < 0) return -1;
    llm_parallel((size_t)p->n, act_row, p);
    if (d->kind == LLM_DICTIONARY_JUMPRELU) add_thresholds(p);
    if (p->n_dead > 0 && aux > 0 && add_dead(c, p, aux, left, e) < 0) return -1;
    if (llm_ctx_failed(c)) return 0;
    llm_bias_grad(&d->params[LLM_DICTIONARY_ENCODER_BIAS], p->dpre, d->features, p->n, &folds, d->features);
    for (int64_t r = 0; r < p->n; r++) {
        for (int64_t k = 0; k < d->features; k++) rate[k] += p->f[r * d->features + k] > 0 ? 1 / (float)p->n : 0;
    }
    return llm_matmul_dw(d->params[LLM_DICTIONARY_ENCODER].grad, p->dpre, d->features, p->z, d->in, p->n, p->n, d->features, d->in, c->compute, e);
}

/* What SAELens prints: features that are not 0, explained variance, and the share of dead ones. */
static void note(struct llm_task *t, const struct pass *p)
{
    const struct llm_dictionary *d = &p->x->d;
    double active = 0, error = 0, squares = 0, n = (double)p->n;
    for (int64_t i = 0; i < p->n * d->features; i++) active += p->f[i] > 0;
    for (int64_t i = 0; i < p->n * d->out; i++) {
        double gap = (double)p->y[i] - (double)p->t[i];
        error += gap * gap;
        squares += (double)p->t[i] * (double)p->t[i];
    }
    llm_task_note(t, "active", active, n);
    llm_task_note(t, "explained_variance", (1 - error / squares) * n, n);
    llm_task_note(t, "dead", (double)p->n_dead / (double)d->features * n, n);
}

/* Scaled activations have a length of √width. By default a feature pays from a tenth of that on. What adds a feature of length a saves a²/width. It
 * costs X (jumprelu), less from a² = X·width on; or X·f (l1), which shortens f by X·width / 2. */
static double sparsity(const struct llm_task *t, const struct llm_dictionary *d)
{
    double given = llm_option_real(&t->o, "sparsity");
    if (d->kind == LLM_DICTIONARY_TOPK) return 0;
    return given > 0 ? given : d->kind == LLM_DICTIONARY_L1 ? .2 / sqrt((double)d->out) : .01;
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct dictionary *x = t->own;
    struct llm_dictionary *d = &x->d;
    struct pass p = {.x = x, .n = rows->n_rows, .grad_scale = grad_scale, .token_loss = token_loss,
                     .sparsity = sparsity(t, d)};
    const float *rate = d->params[LLM_DICTIONARY_RATE].weight.data;
    p.z = llm_op_alloc(c, p.n * d->in, sizeof *p.z);
    p.t = llm_op_alloc(c, p.n * d->out, sizeof *p.t);
    p.y = llm_op_alloc(c, p.n * d->out, sizeof *p.y);
    p.pre = llm_op_alloc(c, p.n * d->features, sizeof *p.pre);
    p.f = llm_op_alloc(c, p.n * d->features, sizeof *p.f);
    p.df = llm_op_alloc(c, p.n * d->features, sizeof *p.df);
    p.dpre = llm_op_alloc(c, p.n * d->features, sizeof *p.dpre);
    p.dead = llm_op_alloc(c, d->features, sizeof *p.dead);
    float *left = llm_op_alloc(c, p.n * d->out, sizeof *left);
    int status = 0;
    if (!llm_ctx_failed(c)) {
        gather(&p, rows->ids);
        for (int64_t k = 0; k < d->features; k++) p.n_dead += p.dead[k] = rate[k] < (float)DEAD;
        status = llm_dictionary_encode(d, p.z, p.n, c->compute, p.pre, p.f, e);
        if (status == 0) status = llm_dictionary_decode(d, p.f, p.n, c->compute, p.y, e);
        if (status == 0) note(t, &p);
        for (int64_t i = 0; i < p.n * d->out && status == 0; i++) left[i] = p.t[i] - p.y[i];
        if (status == 0) llm_parallel((size_t)p.n, error_row, &p);
        if (status == 0 && c->tape) status = backward(c, &p, llm_option_real(&t->o, "revive"), left, e);
    }
    if (status == 0 && !llm_ctx_failed(c)) return 0;
    if (status == 0) *e = c->err;
    return -1;
}

/* ---- rows ---- */

static int check(const struct llm_model *m, struct llm_err *e)
{
    return m->n_params > 0 ? 0 : llm_fail(e, EX_UNAVAILABLE, "expected a network, found an n-gram model");
}

#define MEMBERS \
    .init_option = "base", .beside = "dictionary", .activations = true, .describe = describe, .updated = updated, .check_options = check_options, \
    .check = check, .create = create, .destroy = destroy, .document = document, .by_pass = true, .other_targets = true, .run = run

extern const struct llm_objective llm_objective_sae, llm_objective_transcoder;
const struct llm_objective llm_objective_sae = {.name = "sae", .summary = "a sparse autoencoder of activations", .options = sae_options, MEMBERS,
                                                .means = {"active", "explained_variance", "dead"}};
const struct llm_objective llm_objective_transcoder = {.name = "transcoder", .summary = "sparse features that predict other activations",
                                                       .options = transcoder_options, MEMBERS, .means = {"active", "explained_variance", "dead"}};
