/* Distillation: the distributions of a teacher are learned at every token that counts, by generalised JSD, whose ends are forward and reverse KL. */
#include <stdlib.h>
#include "tensor/tape.h"
#include "train/objective.h"

struct distill {
    struct llm_model *teacher;
    struct llm_ctx ctx;         /* of the teacher's passes */
};

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    if (!llm_option_text(o, "teacher")) return llm_fail(e, LLM_EX_USAGE, "expected --teacher MODEL");
    double t = llm_option_real(o, "temperature");
    if (!(t > 0)) return llm_fail(e, LLM_EX_USAGE, "temperature: expected a number above 0, found %g", t);
    if (o->z_loss > 0) return llm_fail(e, LLM_EX_USAGE, "--z-loss: expected 0, found %g", o->z_loss);
    return o->carry_state ? llm_fail(e, LLM_EX_USAGE, "--carry-state: expected rows that stand alone, which the teacher can read") : 0;
}

static int create(struct llm_task *t, struct llm_err *e)
{
    struct distill *d = llm_calloc(1, sizeof *d, "distillation", e);
    const char *path = llm_option_text(&t->o, "teacher");
    t->own = d;
    if (!d) return -1;
    if (!path) return llm_fail(e, LLM_EX_USAGE, "expected --teacher MODEL");
    if (!(d->teacher = llm_task_load(t, "--teacher", path, e))) return -1;
    if (llm_objective_check_next(d->teacher, e) < 0) return llm_in(e, "--teacher");
    if (llm_ctx_init(&d->ctx, (size_t)1 << 40, (size_t)1 << 30, false, e) < 0) return -1;
    d->ctx.compute = (enum llm_compute)t->o.precision;
    return 0;
}

static void destroy(struct llm_task *t)
{
    struct distill *d = t->own;
    if (!d) return;
    llm_ctx_release(&d->ctx);
    free(d);
    t->own = NULL;
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct distill *d = t->own;
    struct llm_model *m = t->model, *of = d->teacher;
    struct llm_batch b;
    struct llm_teacher teacher = {.how = {.beta = llm_option_real(&t->o, "jsd-beta"), .temperature = llm_option_real(&t->o, "temperature")},
                                  .hidden = llm_task_hidden(&d->ctx, t, of, rows, &b), .head = llm_model_head(of), .bias = llm_model_head_bias(of),
                                  .logit_scale = (float)of->config.logit_scale, .logit_softcap = (float)of->config.final_logit_softcapping};
    int status = llm_ctx_failed(&d->ctx) ? llm_fail(e, d->ctx.err.status, "--teacher: %s", d->ctx.err.text) : 0;
    if (status == 0) {
        struct llm_tensor *hidden = llm_task_hidden(c, t, m, rows, &b);
        struct llm_cross_entropy loss = llm_task_loss(t, rows, grad_scale, token_loss);
        loss.teacher = &teacher;
        loss.logits = llm_model_watched_logits(c, b.n_tokens);
        llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
        if (llm_ctx_failed(c)) {
            *e = c->err;
            status = -1;
        }
    }
    llm_ctx_reset(&d->ctx);
    return status;
}

static const struct llm_objective_option options[] = {
    {.name = "teacher", .arg = "MODEL", .help = "model whose distributions --objective distill learns", .type = LLM_INPUT},
    {.name = "jsd-beta", .arg = "X", .help = "divergence of --objective distill: 0 forward KL, 1 reverse KL, between them generalised JSD [0]",
     .type = LLM_REAL, .max = 1},
    {.name = "temperature", .arg = "T", .help = "temperature of both distributions of --objective distill [1]", .type = LLM_REAL, .max = 100,
     .fallback = 1},
    {.name = NULL}};

extern const struct llm_objective llm_objective_distill;
const struct llm_objective llm_objective_distill = {.name = "distill", .summary = "learn a teacher's distributions", .options = options,
                                                    .check_options = check_options, .check = llm_objective_check_one, .create = create,
                                                    .destroy = destroy, .other_targets = true, .run = run};
