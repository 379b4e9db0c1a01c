/* llm-bench scaling: laws of loss and learning rate, fitted to logs and tables, and the best split of a budget. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bin/bench/bench.h"
#include "bin/bench/chart.h"
#include "cpu/pool.h"
#include "measure/scaling_points.h"

struct args {
    struct llm_common common;
    const char *params, *tokens, *compute, *loss, *rate, *budget, *plot;
    double factor, huber;
    int64_t replicates;
    int law, zero_floor;
};
#define AT(field) offsetof(struct args, field)
enum { MAX_BUDGETS = 16, CURVE = 100 /* points of a drawn law */ };

static const struct llm_opt options[] = {
    {0, "law", "LAW", "what to fit: nd: L(N, D) = E + A/N^alpha + B/D^beta; c: L(C) = E + A/C^alpha; lr: LR(C) = a C^b [nd]", LLM_CHOICE, AT(law),
     0, 0, "nd|c|lr"},
    {0, "zero-floor", NULL, "fit without the constant E: the loss goes to 0", LLM_FLAG, AT(zero_floor), 0, 0, NULL},
    {0, "budget", "FLOPS,...", "the best N and D, loss or learning rate for this much compute", LLM_STR, AT(budget), 0, 0, NULL},
    {0, "factor", "K", "operations of training for each parameter and token: C = K N D [6]", LLM_REAL, AT(factor), 1e-6, 1e6, NULL},
    {0, "params", "COLUMN", "column of N [parameters]", LLM_STR, AT(params), 0, 0, NULL},
    {0, "tokens", "COLUMN", "column of D [tokens]", LLM_STR, AT(tokens), 0, 0, NULL},
    {0, "compute", "COLUMN", "column of C [flops, else K N D]", LLM_STR, AT(compute), 0, 0, NULL},
    {0, "loss", "COLUMN", "column of the loss [val_loss]", LLM_STR, AT(loss), 0, 0, NULL},
    {0, "lr", "COLUMN", "column of the learning rate [lr]", LLM_STR, AT(rate), 0, 0, NULL},
    {0, "huber", "DELTA", "relative residual beyond which errors count linearly; 0: 1.345 deviations of the residuals [0]", LLM_REAL, AT(huber), 0,
     1e3, NULL},
    {0, "replicates", "N", "refits of the bootstrap that makes the intervals [2000]", LLM_INT, AT(replicates), 100, 1e6, NULL},
    {0, "plot", "FILE", "draw points and law as PNG or SVG, by the suffix; -: as text on standard output, in place of the tables", LLM_OUTPUT,
     AT(plot), 0, 0, NULL},
    {0}};

const struct llm_cli bench_scaling_cli = {
    .name = "llm-bench scaling",
    .summary = "Fit scaling laws to training logs and tables, with intervals of 95%.",
    .usage = "[--law nd|c|lr] [--budget FLOPS,...] [--plot FILE] [FILE]...",
    .examples = "llm-bench scaling --budget 1e18,1e20 runs/*.jsonl\n"
                "llm-bench scaling --law c --plot law.svg runs/*.jsonl\n"
                "llm-bench scaling --loss final --params n --tokens d table.tsv",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT | LLM_COMMON_SEED | LLM_COMMON_JSON | LLM_COMMON_TABLE,
};

/* ---- tables ---- */

static const char *const fit_columns[] = {"parameter", "value", "low_95", "high_95", "points", "replicates", NULL};
static const char *const split_columns[] = {"flops", "parameters", "parameters_low_95", "parameters_high_95", "tokens", "tokens_low_95",
                                            "tokens_high_95", "tokens_per_parameter", "loss", "loss_low_95", "loss_high_95", NULL};
static const char *const loss_columns[] = {"flops", "loss", "loss_low_95", "loss_high_95", NULL};
static const char *const rate_columns[] = {"flops", "lr", "lr_low_95", "lr_high_95", NULL};

static void number(struct llm_table *t, double v) { llm_table_printed(t, v, LLM_NUMBER_GENERAL, 6); }

/* Three cells: value, low, high. */
static int put(struct llm_table *t, const struct llm_scaling_fit *f, llm_scaling_value value, const double x[2], struct llm_err *e)
{
    double interval[2];
    if (llm_scaling_interval(f, value, x, interval, e) < 0) return -1;
    number(t, value(f, f->p, x));
    number(t, interval[0]);
    number(t, interval[1]);
    return 0;
}

static int put_fit(struct llm_table *t, const struct llm_scaling_fit *f, bool zero_floor, struct llm_err *e)
{
    const bool rate = f->law == LLM_LAW_LR, two = f->law == LLM_LAW_ND;
    const struct { const char *name; bool shown; llm_scaling_value value; double x; } rows[] = {
        {"E", !rate && !zero_floor, llm_scaling_parameter, LLM_LAW_E},
        {"A", !rate, llm_scaling_coefficient, 0}, {"alpha", !rate, llm_scaling_parameter, LLM_LAW_ALPHA},
        {"B", two, llm_scaling_coefficient, 1}, {"beta", two, llm_scaling_parameter, LLM_LAW_BETA},
        {"exponent of N", two, llm_scaling_params_exponent, 0}, {"exponent of D", two, llm_scaling_tokens_exponent, 0},
        {"a", rate, llm_scaling_coefficient, 0}, {"b", rate, llm_scaling_rate_exponent, 0}};
    llm_table_init(t, fit_columns);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].shown) continue;
        llm_table_text(t, rows[i].name);
        if (put(t, f, rows[i].value, (const double[]){rows[i].x, 0}, e) < 0) return -1;
        llm_table_count(t, (double)f->n);
        llm_table_count(t, f->n_replicates);
    }
    const struct { const char *name; double value; } last[] = {{"rms residual", f->rms}, {"huber", f->huber}};
    for (int i = 0; i < 2; i++) {
        llm_table_text(t, last[i].name);
        number(t, last[i].value);
        for (int k = 0; k < 2; k++) number(t, (double)NAN);
        llm_table_count(t, (double)f->n);
        llm_table_count(t, f->n_replicates);
    }
    return 0;
}

static int put_budgets(struct llm_table *t, const struct llm_scaling_fit *f, const double *budgets, size_t n, double factor, struct llm_err *e)
{
    llm_table_init(t, f->law == LLM_LAW_ND ? split_columns : f->law == LLM_LAW_C ? loss_columns : rate_columns);
    for (size_t i = 0; i < n; i++) {
        const double x[2] = {budgets[i], factor};
        number(t, budgets[i]);
        if (f->law != LLM_LAW_ND) {
            if (put(t, f, llm_scaling_at, x, e) < 0) return -1;
            continue;
        }
        if (put(t, f, llm_scaling_best_params, x, e) < 0 || put(t, f, llm_scaling_best_tokens, x, e) < 0) return -1;
        number(t, llm_scaling_best_tokens(f, f->p, x) / llm_scaling_best_params(f, f->p, x));
        if (put(t, f, llm_scaling_best_loss, x, e) < 0) return -1;
    }
    return 0;
}

/* ---- the chart ---- */

static int series(struct llm_plot *p, const char *name, size_t n, bool points, struct llm_err *e)
{
    struct llm_series *s = &p->v[p->n++];
    *s = (struct llm_series){.name = strdup(name), .points = points, .n = n};
    s->x = llm_alloc(n, sizeof *s->x, "a chart", e);
    s->y = s->x ? llm_alloc(n, sizeof *s->y, "a chart", e) : NULL;
    if (!s->name) return llm_no_memory(e, "a chart");
    return s->y ? 0 : -1;
}

/* The points over compute, and the law: of L(N, D) the loss of the best split of each budget. */
static int fill_chart(struct llm_plot *p, const struct llm_scaling_reading *r, const struct llm_scaling_fit *f, const double *budgets,
                      size_t n_budgets, double factor, struct llm_err *e)
{
    const bool split = f->law == LLM_LAW_ND;
    double low = INFINITY, high = 0;
    if (series(p, split ? "best split of the compute" : "law", CURVE, false, e) < 0
        || series(p, f->law == LLM_LAW_LR ? "best of the runs" : "runs", r->n, true, e) < 0) return -1; /* points lie on the line */
    for (size_t i = 0; i < r->n; i++) {
        double c = split ? factor * r->x[0][i] * r->x[1][i] : r->x[0][i];
        p->v[1].x[i] = c;
        p->v[1].y[i] = r->y[i];
        low = fmin(low, c), high = fmax(high, c);
    }
    for (size_t i = 0; i < n_budgets; i++) low = fmin(low, budgets[i]), high = fmax(high, budgets[i]);
    for (int i = 0; i < CURVE; i++) {
        const double x[2] = {low * pow(high / low, i / (CURVE - 1.)), factor};
        p->v[0].x[i] = x[0];
        p->v[0].y[i] = (split ? llm_scaling_best_loss : llm_scaling_at)(f, f->p, x);
    }
    return llm_plot_finish(p, e);
}

static int draw(const struct args *a, const struct llm_scaling_reading *r, const struct llm_scaling_fit *f, const double *budgets, size_t n,
                struct llm_err *e)
{
    struct llm_plot p = {.x_label = "training FLOPs", .y_label = r->chosen[2], .log_x = true, .log_y = true, .width = 900, .height = 540};
    int status = fill_chart(&p, r, f, budgets, n, a->factor, e);
    if (status == 0) status = bench_chart(&p, a->plot, bench_form_of(a->plot, BENCH_AUTO), false, e);
    llm_plot_release(&p);
    return status;
}

/* ---- the command ---- */

/* "1e18,3e20"; how many. */
static size_t read_budgets(const char *text, double *out)
{
    char one[40];
    size_t n = 0;
    for (const char *s = text; s; s = *s ? s + 1 : NULL) {
        size_t length = strcspn(s, ",");
        snprintf(one, sizeof one, "%.*s", (int)(length < sizeof one ? length : sizeof one - 1), s);
        if (n == MAX_BUDGETS) llm_usage(&bench_scaling_cli, "--budget: expected at most %d numbers", MAX_BUDGETS);
        if (llm_parse_real(one, &out[n]) < 0 || !(out[n] > 0))
            llm_usage(&bench_scaling_cli, "--budget: expected FLOPs above 0 with commas between, found '%s'", text);
        n++;
        s += length;
    }
    return n;
}

static int report(const struct args *a, const struct llm_scaling_reading *r, const struct llm_scaling_fit *f, const double *budgets, size_t n,
                  struct llm_err *e)
{
    struct llm_table fit = {0}, best = {0}, *tables[] = {&fit, &best};
    bool chart_alone = a->plot && strcmp(a->plot, "-") == 0 && !a->common.output;
    if (a->plot && draw(a, r, f, budgets, n, e) < 0) return -1;
    if (chart_alone) return 0;
    if (put_fit(&fit, f, a->zero_floor, e) == 0 && put_budgets(&best, f, budgets, n, a->factor, e) == 0)
        return bench_print(&a->common, tables, n > 0 ? 2 : 1, e);
    llm_table_release(&fit);
    llm_table_release(&best);
    return -1;
}

int bench_scaling(int argc, char **argv, struct llm_err *e)
{
    static char stdin_name[] = "-", *standard[] = {stdin_name};
    struct args a = {.params = "parameters", .tokens = "tokens", .loss = "val_loss", .rate = "lr", .factor = 6, .replicates = 2000};
    int rest = llm_cli_parse(&bench_scaling_cli, &a, argc, argv), n = argc - rest;
    char **paths = n > 0 ? argv + rest : standard;
    struct llm_scaling_reading r = {.law = (enum llm_scaling_law)a.law, .columns = {a.params, a.tokens, a.loss, a.rate, a.compute, a.factor}};
    const struct llm_scaling_options o = {r.law, a.zero_floor, a.huber, (int)a.replicates, (uint64_t)a.common.seed};
    struct llm_scaling_fit f = {0};
    double budgets[MAX_BUDGETS];
    size_t n_budgets = read_budgets(a.budget, budgets);
    if (a.zero_floor && o.law == LLM_LAW_LR) llm_usage(&bench_scaling_cli, "--zero-floor: the law of learning rates has no constant");
    if (a.plot && strcmp(a.plot, "-") != 0 && bench_form_of(a.plot, BENCH_AUTO) == BENCH_TEXT)
        llm_usage(&bench_scaling_cli, "--plot: expected FILE.png, FILE.svg or -, found '%s'", a.plot);
    int status = bench_begin(&a.common, e);
    if (status == 0 && a.plot) status = llm_output_try(a.plot, bench_form_of(a.plot, BENCH_AUTO) == BENCH_PNG, e);
    for (int i = 0; i < (n > 0 ? n : 1) && status == 0; i++) status = llm_scaling_read(&r, paths[i], e);
    if (status == 0) status = llm_scaling_finish(&r, e);
    struct llm_scaling_points points = {r.n, {r.x[0], r.x[1]}, r.y, {r.chosen[0], r.chosen[1]}};
    if (status == 0) status = llm_scaling_fit(&f, &points, &o, e);
    if (status == 0) status = report(&a, &r, &f, budgets, n_budgets, e);
    llm_scaling_release(&f);
    llm_scaling_reading_release(&r);
    llm_pool_stop();
    return status;
}
