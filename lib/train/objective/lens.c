/* A tuned lens (infer/lens.h): after each layer but the last an affine map is learned, by the divergence KL(model || lens) of the distributions that
 * the model and the lens predict at every token that counts. The model stays as it is stored. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "infer/lens.h"
#include "model/forward/watch.h"
#include "tensor/tape.h"
#include "train/objective.h"

struct lens {
    struct llm_lens lens;
    struct llm_ctx ctx;         /* of the model's passes, which have no gradient */
    float *residuals;           /* [layers - 1, tokens, hidden] of the pass, by llm_grow */
    float *layer_loss;          /* [tokens] */
    size_t residuals_room, loss_room;
    int64_t tokens;
};

static int create(struct llm_task *t, struct llm_err *e)
{
    struct lens *x = llm_calloc(1, sizeof *x, "a lens", e);
    t->own = x;
    if (!x || llm_model_fingerprint(t->model, e) < 0 || llm_lens_create(&x->lens, &t->model->config, e) < 0) return -1;
    if (llm_ctx_init(&x->ctx, (size_t)1 << 40, (size_t)1 << 30, false, e) < 0) return -1;
    x->ctx.compute = (enum llm_compute)t->o.precision;
    t->params = x->lens.params;
    t->n_params = (int)x->lens.n_params;
    return 0;
}

static void destroy(struct llm_task *t)
{
    struct lens *x = t->own;
    if (!x) return;
    llm_ctx_release(&x->ctx);
    llm_lens_release(&x->lens);
    free(x->residuals);
    free(x->layer_loss);
    free(x);
    t->own = NULL;
}

/* Keeps the residual after a layer. */
static int keep(void *arg, const struct llm_sight *s, struct llm_err *e)
{
    struct lens *x = arg;
    (void)e;
    float *to = x->residuals + s->place.layer * x->tokens * s->cols;
    for (int64_t r = 0; r < s->rows; r++) memcpy(to + r * s->cols, s->x + r * s->stride, (size_t)s->cols * sizeof *to);
    return 0;
}

/* The model's hidden states of the rows, on x->ctx; x->residuals takes the residuals after its layers. NULL: see `e`. */
static struct llm_tensor *look(struct llm_task *t, struct lens *x, const struct llm_rows *rows, struct llm_err *e)
{
    struct llm_batch b;
    const struct llm_watcher watcher = {.at = {LLM_PLACE_RESIDUAL_AFTER, LLM_STACK_MAIN, 0, x->lens.layers - 2}, .observe = keep, .arg = x};
    struct llm_watch watch = {.v = &watcher, .n = 1};
    x->tokens = rows->n_rows * rows->row_len;
    size_t floats = (size_t)(x->lens.layers - 1) * (size_t)x->tokens * (size_t)t->model->config.hidden_size;
    if (llm_grow((void **)&x->residuals, &x->residuals_room, floats, sizeof *x->residuals, e) < 0) return NULL;
    if (llm_grow((void **)&x->layer_loss, &x->loss_room, (size_t)x->tokens, sizeof *x->layer_loss, e) < 0) return NULL;
    x->ctx.watch = &watch;
    struct llm_tensor *hidden = llm_task_hidden(&x->ctx, t, t->model, rows, &b);
    x->ctx.watch = NULL;
    if (!llm_ctx_failed(&x->ctx)) return hidden;
    *e = x->ctx.err;
    return NULL;
}

/* The loss of one layer's lens, with its gradient, into x->layer_loss. */
static void run_layer(struct llm_ctx *c, struct llm_task *t, struct lens *x, const struct llm_rows *rows, int64_t layer, double grad_scale,
                      const struct llm_teacher *teacher)
{
    int64_t hidden = t->model->config.hidden_size;
    struct llm_tensor *residual = llm_tensor_create(c, x->tokens, hidden);
    if (llm_ctx_failed(c)) return;
    memcpy(residual->data, x->residuals + layer * x->tokens * hidden, (size_t)(x->tokens * hidden) * sizeof *residual->data);
    struct llm_cross_entropy loss = llm_task_loss(t, rows, grad_scale, x->layer_loss);
    loss.teacher = teacher;
    llm_cross_entropy(c, llm_model_lens_norm(c, t->model, llm_lens_apply(c, &x->lens, layer, residual)), llm_model_head(t->model), &loss);
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct lens *x = t->own;
    struct llm_model *m = t->model;
    int64_t n = x->lens.layers - 1;
    struct llm_teacher teacher = {.how = {.temperature = 1}, .hidden = look(t, x, rows, e), .head = llm_model_head(m), .bias = llm_model_head_bias(m),
                                  .logit_scale = (float)m->config.logit_scale, .logit_softcap = (float)m->config.final_logit_softcapping};
    if (!teacher.hidden) return -1;
    c->n_rows = rows->n_rows;
    c->row_len = rows->row_len;
    memset(token_loss, 0, (size_t)x->tokens * sizeof *token_loss);
    for (int64_t layer = 0; layer < n && !llm_ctx_failed(c); layer++) {
        run_layer(c, t, x, rows, layer, grad_scale / (double)n, &teacher);
        for (int64_t i = 0; i < x->tokens; i++) token_loss[i] += x->layer_loss[i] / (float)n;
    }
    llm_ctx_reset(&x->ctx);
    if (!llm_ctx_failed(c)) return 0;
    *e = c->err;
    return -1;
}

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    if (o->z_loss > 0) return llm_fail(e, LLM_EX_USAGE, "--z-loss: expected 0, found %g", o->z_loss);
    return o->carry_state ? llm_fail(e, LLM_EX_USAGE, "--carry-state: expected rows that stand alone") : 0;
}

static const struct llm_objective_option options[] = {LLM_BESIDE_OPTIONS, {.name = NULL}};

extern const struct llm_objective llm_objective_lens;
const struct llm_objective llm_objective_lens = {.name = "lens", .summary = "read the last layer's prediction from each layer", .options = options,
                                                 .init_option = "base", .beside = "lens", .check_options = check_options, .check = llm_lens_check,
                                                 .create = create, .destroy = destroy, .other_targets = true, .run = run};
