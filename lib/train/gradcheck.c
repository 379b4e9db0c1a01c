#include "train/gradcheck.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"

struct probe {
    struct llm_trainer *t;
    struct llm_param *p;
    size_t n;
    float *saved, *direction;
};

/* The mean loss of the step's rows after the parameter has been moved by h along the direction. */
static int loss_at(struct probe *q, double h, double *loss, struct llm_err *e)
{
    struct llm_trainer *t = q->t;
    double sum = 0;
    double weight = 0;
    for (size_t i = 0; i < q->n; i++) q->p->master[i] = (float)((double)q->saved[i] + h * (double)q->direction[i]);
    llm_weight_changed(&q->p->weight);
    for (int64_t row = 0, n; row < t->rows.n_rows; row += n) {
        n = t->rows.n_rows - row < llm_trainer_pass_rows(t) ? t->rows.n_rows - row : llm_trainer_pass_rows(t);
        struct llm_rows part = llm_rows_part(&t->rows, row, n);
        t->eval_ctx.training = true; /* the same dropout as in the step */
        t->eval_ctx.step = (uint64_t)t->step;
        if (row == 0 && t->eval_ctx.choices) t->eval_ctx.choices->at = 0;
        t->eval_ctx.first_row = row;
        if (t->objective->run(&t->eval_ctx, &t->task, &part, 1, t->token_loss, e) < 0) return -1;
        llm_ctx_reset(&t->eval_ctx);
        for (int64_t i = 0; i < part.n_rows * part.row_len; i++) {
            double of = part.weighted ? (double)part.weights[i] : 1;
            sum += part.targets[i] < 0 ? 0 : of * (double)t->token_loss[i];
        }
        weight += part.weight;
    }
    sum += t->task.beside;
    llm_task_reset(&t->task);
    *loss = sum / weight;
    return 0;
}

/* A slope by differences, and how far the bend of the loss within the step and the rounding of losses may put it from the true one. */
struct slope {
    double value, uncertainty;
};

/* The slope at step 0 by central differences with h, h / 2, ..., the last two extrapolated, until what extrapolation changes is less than a
 * tenth of the tolerance or rounding hides it. A norm of values near 0, as RWKV's first tokens have them, is a step function but for its
 * epsilon: it bends within h. */
static int slope(struct probe *q, double h, struct slope *out, struct llm_err *e)
{
    enum { MAX_HALVINGS = 8 };
    double before = 0, change = INFINITY;
    for (int i = 0; i < MAX_HALVINGS && change > 1e-4 * fabs(out->value) && change > out->uncertainty; i++, h /= 2) {
        double up, down;
        if (loss_at(q, h, &up, e) < 0 || loss_at(q, -h, &down, e) < 0) return -1;
        double central = (up - down) / (2 * h), value = i == 0 ? central : (4 * central - before) / 3;
        change = i == 0 ? INFINITY : fabs(value - (i == 1 ? central : out->value));
        before = central;
        *out = (struct slope){value, 4e-7 * fmax(fabs(up), 1) / h};
    }
    out->uncertainty += change;
    return 0;
}

/* Fills in the direction; computes the slope along it from the gradient, and a step h that changes the loss by about .01. */
static double aim(struct probe *q, size_t number, double *h)
{
    double norm = 0, analytic = 0, size = 0;
    for (size_t i = 0; i < q->n; i++) {
        norm += (double)q->p->grad[i] * (double)q->p->grad[i];
        size += (double)q->saved[i] * (double)q->saved[i];
    }
    norm = sqrt(norm);
    for (size_t i = 0; i < q->n; i++) {
        struct llm_rng r = llm_rng_at(1, 0, LLM_RNG_TEST, (uint32_t)number, (uint32_t)(i >> 20), 0);
        double sign = llm_rng_u32(&r, (uint32_t)(i & 0xFFFFF)) & 1 ? 1 : -1;
        q->direction[i] = (float)((norm > 0 ? (double)q->p->grad[i] / norm : 0) + .5 * sign / sqrt((double)q->n));
        analytic += (double)q->p->grad[i] * (double)q->direction[i];
    }
    double max = .02 * sqrt(size) + 1e-3; /* further, the loss of an embedding bends by more than the check allows */
    *h = analytic != 0 && .01 / fabs(analytic) < max ? .01 / fabs(analytic) : max;
    return analytic;
}

static int check_param(struct probe *q, size_t number, struct llm_table *table, double *worst, struct llm_err *e)
{
    struct slope numeric = {0};
    double h, analytic = aim(q, number, &h);
    if (slope(q, 2 * h, &numeric, e) < 0) return -1;
    double gap = fabs(analytic - numeric.value), difference = gap == 0 ? 0 : gap / fmax(fabs(analytic), fabs(numeric.value));
    memcpy(q->p->master, q->saved, q->n * sizeof(float));
    llm_weight_changed(&q->p->weight);
    llm_table_text(table, q->p->name);
    llm_table_printed(table, analytic, LLM_NUMBER_SCIENTIFIC, 6);
    llm_table_printed(table, numeric.value, LLM_NUMBER_SCIENTIFIC, 6);
    llm_table_printed(table, difference, LLM_NUMBER_SCIENTIFIC, 1);
    llm_table_printed(table, numeric.uncertainty, LLM_NUMBER_SCIENTIFIC, 1);
    if (!(gap <= numeric.uncertainty) && !(difference <= *worst)) *worst = difference;
    return 0;
}

int llm_gradcheck_print(struct llm_trainer *t, enum llm_table_form form, struct llm_err *e)
{
    static const char *const columns[] = {"tensor", "analytic", "numeric", "difference", "uncertainty", NULL};
    struct llm_table table, *tables[] = {&table};
    struct llm_step_report r;
    double worst = 0, tolerance = t->model->config.act == LLM_ACT_RELU ? LLM_MODEL_GRADCHECK_CORNERS : LLM_MODEL_GRADCHECK_TOLERANCE;
    struct llm_choices choices = {0};
    t->main_loss_alone = true;
    t->eval_ctx.choices = &choices;
    int got = llm_trainer_gradient(t, &r, e);
    if (got == 0) got = loss_at(&(struct probe){.t = t, .p = t->params[0].p}, 0, &r.loss, e);
    choices.replay = true;
    llm_table_init(&table, columns);
    for (size_t i = 0; got == 0 && i < t->n_params; i++) {
        struct llm_param *p = t->params[i].p;
        if (p->balances || p->running) continue;
        struct probe q = {.t = t, .p = p, .n = (size_t)llm_param_count(p)};
        q.saved = llm_alloc(q.n, sizeof(float), "gradient check", e);
        q.direction = q.saved ? llm_alloc(q.n, sizeof(float), "gradient check", e) : NULL;
        if (q.direction) memcpy(q.saved, p->master, q.n * sizeof(float));
        got = q.direction ? check_param(&q, i, &table, &worst, e) : -1;
        free(q.saved);
        free(q.direction);
    }
    t->eval_ctx.choices = NULL;
    free(choices.ids);
    if (got) llm_table_release(&table);
    else got = llm_tables_print(NULL, form, tables, 1, e);
    if (got) return got;
    if (worst <= tolerance) return 0;
    return llm_fail(e, LLM_EX_FAILURE, "gradient check: expected differences of at most %g, found %.1e", tolerance, worst);
}
