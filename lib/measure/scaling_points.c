#include "measure/scaling_points.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"

static int add(struct llm_scaling_reading *r, const double x[2], double y, double other, struct llm_err *e)
{
    if (r->n == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        double **const arrays[] = {&r->x[0], &r->x[1], &r->y, &r->other};
        for (int i = 0; i < 4; i++) {
            double *v = realloc(*arrays[i], room * sizeof *v);
            if (!v) return llm_no_memory(e, "points");
            *arrays[i] = v;
        }
        r->room = room;
    }
    r->x[0][r->n] = x[0];
    r->x[1][r->n] = x[1];
    r->y[r->n] = y;
    r->other[r->n++] = other;
    return 0;
}

static int end_run(struct llm_scaling_reading *r, struct llm_err *e)
{
    struct llm_scaling_run *run = &r->run;
    bool any = run->any;
    double y = r->law == LLM_LAW_LR ? run->rate : run->y;
    run->any = false;
    return any && isfinite(y) ? add(r, run->x, y, run->other, e) : 0;
}

static double number(const json_t *row, const char *column)
{
    double v;
    return llm_column_number(json_object_get(row, column), &v) ? v : (double)NAN;
}

static int take_row(void *arg, const char *file, const json_t *row, struct llm_err *e)
{
    struct llm_scaling_reading *r = arg;
    const struct llm_scaling_columns *c = &r->columns;
    struct llm_scaling_run *run = &r->run;
    if (llm_column_names_add(&r->names, row, e) < 0) return -1;
    const double params = number(row, c->params), tokens = number(row, c->tokens), loss = number(row, c->loss), step = number(row, "step");
    double rate = number(row, c->rate), compute = number(row, c->compute ? c->compute : "flops"), x[2] = {compute, 0};
    if (!c->compute && !isfinite(compute)) x[0] = c->factor * params * tokens;
    if (r->law == LLM_LAW_ND) x[0] = params, x[1] = tokens;
    const bool has_x = isfinite(x[0]) && isfinite(x[1]);
    if (!isfinite(step)) {
        double y = r->law == LLM_LAW_LR ? rate : loss;
        return has_x && isfinite(y) ? add(r, x, y, loss, e) : 0;
    }
    if (run->any && !(step > run->step) && end_run(r, e) < 0) return -1;
    if (!run->any) *run = (struct llm_scaling_run){.any = true, .y = (double)NAN, .other = (double)NAN, .rate = (double)NAN, .file = file};
    run->step = step;
    if (isfinite(rate)) run->rate = isfinite(run->rate) ? fmax(run->rate, rate) : rate;
    if (!isfinite(loss) || !has_x) return 0;
    memcpy(run->x, x, sizeof x);
    run->y = run->other = loss;
    return 0;
}

int llm_scaling_read(struct llm_scaling_reading *r, const char *path, struct llm_err *e)
{
    return llm_columns_read(path, take_row, r, e) < 0 ? -1 : end_run(r, e);
}

/* ---- columns ---- */

static int choose(struct llm_scaling_reading *r, struct llm_err *e)
{
    const struct llm_scaling_columns *c = &r->columns;
    const char *compute = c->compute ? c->compute : "flops";
    bool derived = r->law != LLM_LAW_ND && !c->compute && !llm_column_names_have(&r->names, compute);
    r->chosen[2] = r->law == LLM_LAW_LR ? c->rate : c->loss;
    r->chosen[0] = r->law == LLM_LAW_ND || derived ? c->params : compute;
    r->chosen[1] = r->law == LLM_LAW_ND || derived ? c->tokens : NULL;
    if (r->names.n == 0) return llm_fail(e, EX_DATAERR, "expected rows of logs or tables, found none");
    for (int i = 0; i < 3; i++)
        if (r->chosen[i] && llm_column_names_check(&r->names, r->chosen[i], e) < 0) return -1;
    if (derived) r->chosen[0] = "compute", r->chosen[1] = NULL;
    for (size_t i = 0; i < r->n; i++) {
        const double v[3] = {r->x[0][i], r->law == LLM_LAW_ND ? r->x[1][i] : 1, r->y[i]};
        for (int k = 0; k < 3; k++)
            if (!(v[k] > 0)) return llm_fail(e, EX_DATAERR, "column '%s': expected numbers above 0, found %g", r->chosen[k], v[k]);
    }
    return 0;
}

/* ---- the best learning rate of each compute ---- */

struct rate { double compute, log_rate, loss; };

static int by_compute_and_rate(const void *a, const void *b)
{
    const struct rate *p = a, *q = b;
    double x = p->compute != q->compute ? p->compute - q->compute : p->log_rate - q->log_rate;
    return (x > 0) - (x < 0);
}

/* Where the parabola through three points has its minimum; the middle one's x if it opens downwards. */
static double vertex(const struct rate *v)
{
    double left = v[1].log_rate - v[0].log_rate, right = v[2].log_rate - v[1].log_rate;
    double rise_left = (v[1].loss - v[0].loss) / left, rise_right = (v[2].loss - v[1].loss) / right, bend = (rise_right - rise_left) / (left + right);
    return bend > 0 ? (v[0].log_rate + v[1].log_rate) / 2 - rise_left / (2 * bend) : v[1].log_rate;
}

#define SAME (1 + 1e-3) /* computes and rates within this count as one: rounding of a step or of a printed number */

/* Runs of one learning rate, as with several seeds, become one with the mean of their losses. v [n] ascends. Returns how many are left. */
static size_t join_equal(struct rate *v, size_t n)
{
    size_t left = 0;
    for (size_t i = 0, end; i < n; i = end) {
        double sum = 0;
        for (end = i; end < n && v[end].log_rate <= v[i].log_rate + log(SAME); end++) sum += v[end].loss;
        v[left] = v[i];
        v[left++].loss = sum / (double)(end - i);
    }
    return left;
}

static int best_rates(struct llm_scaling_reading *r, struct llm_err *e)
{
    bool any = false;
    for (size_t i = 0; i < r->n; i++) any |= isfinite(r->other[i]);
    if (!any) return 0; /* the table has the best rates already */
    struct rate *v = llm_alloc(r->n, sizeof *v, "points", e);
    size_t n = 0;
    int status = v ? 0 : -1;
    for (size_t i = 0; i < r->n && v; i++) v[i] = (struct rate){r->x[0][i], log(r->y[i]), r->other[i]};
    if (v) qsort(v, r->n, sizeof *v, by_compute_and_rate);
    for (size_t i = 0, end; i < r->n && status == 0; i = end) {
        size_t best = i;
        for (end = i + 1; end < r->n && v[end].compute <= v[i].compute * SAME; end++) continue;
        for (size_t k = i; k < end; k++) {
            v[k].compute = v[i].compute;
            if (isfinite(v[k].loss) || end == i + 1 || status < 0) continue;
            status = llm_fail(e, EX_DATAERR, "compute %g: expected a loss (column '%s') for each of its %zu runs", v[i].compute, r->columns.loss,
                              end - i);
        }
        qsort(v + i, end - i, sizeof *v, by_compute_and_rate);
        const size_t rates = join_equal(v + i, end - i);
        for (size_t k = i; k < i + rates; k++) best = v[k].loss < v[best].loss ? k : best;
        bool inside = best > i && best + 1 < i + rates;
        if (!inside && rates > 1 && status == 0)
            llm_note("compute %g: the lowest loss is at an end of the %zu learning rates", v[i].compute, rates);
        r->x[0][n] = v[i].compute;
        r->other[n] = v[best].loss;
        r->y[n++] = exp(inside ? vertex(v + best - 1) : v[best].log_rate);
    }
    free(v);
    r->n = n;
    return status;
}

int llm_scaling_finish(struct llm_scaling_reading *r, struct llm_err *e)
{
    if (choose(r, e) < 0) return -1;
    return r->law == LLM_LAW_LR && r->n > 0 ? best_rates(r, e) : 0;
}

void llm_scaling_reading_release(struct llm_scaling_reading *r)
{
    free(r->x[0]);
    free(r->x[1]);
    free(r->y);
    free(r->other);
    llm_column_names_release(&r->names);
    r->x[0] = r->x[1] = r->y = r->other = NULL;
    r->n = 0;
}
