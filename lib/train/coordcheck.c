#include "train/coordcheck.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "measure/heatmap.h"
#include "model/forward/watch.h"

struct look {
    struct llm_coordcheck *k;
    int64_t width, step;
};

static int note(void *arg, const struct llm_sight *s, struct llm_err *e)
{
    struct look *l = arg;
    double sum = 0;
    if (llm_grow((void **)&l->k->rows, &l->k->room, l->k->n + 1, sizeof *l->k->rows, e) < 0) return -1;
    for (int64_t r = 0; r < s->rows; r++) {
        for (int64_t i = 0; i < s->cols; i++) sum += fabs((double)s->x[r * s->stride + i]);
    }
    struct llm_coordcheck_row *row = &l->k->rows[l->k->n++];
    *row = (struct llm_coordcheck_row){.width = l->width, .step = l->step, .size = sum / (double)(s->rows * s->cols)};
    llm_place_print(s->place, row->place, sizeof row->place);
    return 0;
}

/* Records the activations of the step's first pass. */
static int measure(struct llm_coordcheck *k, struct llm_trainer *t, int64_t step, struct llm_err *e)
{
    struct llm_ctx *c = &t->eval_ctx;
    int64_t rows = t->rows.n_rows < llm_trainer_pass_rows(t) ? t->rows.n_rows : llm_trainer_pass_rows(t);
    struct llm_rows part = llm_rows_part(&t->rows, 0, rows);
    const struct llm_batch b = {.ids = part.ids, .positions = part.positions, .n_tokens = part.n_rows * part.row_len,
                                .doc_start = part.documents ? part.doc_start : NULL};
    struct look l = {.k = k, .width = t->model->config.hidden_size, .step = step};
    static const enum llm_place_kind kinds[] = {LLM_PLACE_EMBEDDING, LLM_PLACE_RESIDUAL_BETWEEN, LLM_PLACE_RESIDUAL_CROSS, LLM_PLACE_RESIDUAL_AFTER,
                                                LLM_PLACE_FINAL_NORM, LLM_PLACE_LOGITS};
    struct llm_watcher v[sizeof kinds / sizeof *kinds];
    struct llm_watch watch = {.v = v, .n = sizeof kinds / sizeof *kinds};
    for (size_t i = 0; i < watch.n; i++) {
        int64_t last = llm_places[kinds[i]].in_layer ? INT64_MAX : -1;
        v[i] = (struct llm_watcher){.at = {kinds[i], LLM_STACK_MAIN, last < 0 ? -1 : 0, last}, .observe = note, .arg = &l};
    }
    c->n_rows = part.n_rows;
    c->row_len = part.row_len;
    c->watch = &watch;
    struct llm_tensor *x = llm_model_forward(c, t->model, &b);
    if (llm_config_has_head(&t->model->config)) llm_model_logits(c, t->model, x);
    c->watch = NULL;
    bool failed = llm_ctx_failed(c);
    if (failed) *e = c->err;
    llm_ctx_reset(c);
    return failed ? -1 : 0;
}

int llm_coordcheck_run(struct llm_coordcheck *k, const struct llm_config *c, const struct llm_train_options *o, struct llm_train_data *d,
                       struct llm_err *e)
{
    struct llm_train_options options = *o;
    struct llm_trainer t = {.step = 0};
    struct llm_step_report r;
    options.steps = LLM_COORDCHECK_STEPS;
    options.overfit_one = 1;
    options.warmup = 0;
    for (int i = 0; llm_schedules[i]; i++) {
        if (strcmp(llm_schedules[i]->name, "constant") == 0) options.schedule = i;
    }
    struct llm_model *m = llm_model_create(c, (uint64_t)o->seed, e);
    if (!m) {
        llm_train_data_release(d);
        return -1;
    }
    int got = llm_trainer_init(&t, &options, m, d, e);
    /* every step trains on the first step's batch, which a step without an update fetches here */
    if (got == 0) got = llm_trainer_gradient(&t, &r, e);
    if (got == 0) {
        llm_trainer_forget(&t);
        got = measure(k, &t, 0, e);
    }
    for (int64_t step = 1; got == 0 && step <= LLM_COORDCHECK_STEPS; step++) {
        got = llm_trainer_step(&t, &r, e);
        if (got == 0) got = measure(k, &t, step, e);
    }
    llm_trainer_release(&t);
    return got;
}

void llm_coordcheck_release(struct llm_coordcheck *k)
{
    free(k->rows);
    *k = (struct llm_coordcheck){0};
}

int llm_coordcheck_print(const struct llm_coordcheck *k, enum llm_table_form form, struct llm_err *e)
{
    static const char *const columns[] = {"width", "step", "place", "mean_abs", NULL};
    struct llm_table t, *tables[] = {&t};
    llm_table_init(&t, columns);
    for (size_t i = 0; i < k->n; i++) {
        llm_table_count(&t, (double)k->rows[i].width);
        llm_table_count(&t, (double)k->rows[i].step);
        llm_table_text(&t, k->rows[i].place);
        llm_table_printed(&t, k->rows[i].size, LLM_NUMBER_GENERAL, 6);
    }
    return llm_tables_print(NULL, form, tables, 1, e);
}

/* The number of rows of the first width and step: one for each place. */
static size_t places(const struct llm_coordcheck *k)
{
    size_t n = 0;
    while (n < k->n && k->rows[n].width == k->rows[0].width && k->rows[n].step == 0) n++;
    return n;
}

/* Rows are ordered by width, then by step, then by place. */
static const struct llm_coordcheck_row *row_of(const struct llm_coordcheck *k, size_t width, size_t step, size_t place)
{
    return &k->rows[(width * (LLM_COORDCHECK_STEPS + 1) + step) * places(k) + place];
}

static size_t widths(const struct llm_coordcheck *k)
{
    return k->n ? k->n / ((LLM_COORDCHECK_STEPS + 1) * places(k)) : 0;
}

double llm_coordcheck_slope(const struct llm_coordcheck *k, const char **place)
{
    double steepest = 0;
    *place = "";
    for (size_t p = 0; p < places(k); p++) {
        double n = (double)widths(k), x = 0, y = 0, xx = 0, xy = 0;
        for (size_t w = 0; w < widths(k); w++) {
            const struct llm_coordcheck_row *r = row_of(k, w, LLM_COORDCHECK_STEPS, p);
            double a = log((double)r->width), b = log(r->size);
            x += a;
            y += b;
            xx += a * a;
            xy += a * b;
        }
        double spread = n * xx - x * x, slope = spread > 0 ? (n * xy - x * y) / spread : 0;
        if (p > 0 && fabs(slope) <= fabs(steepest)) continue;
        steepest = slope;
        *place = row_of(k, 0, 0, p)->place;
    }
    return steepest;
}

int llm_coordcheck_draw(const struct llm_coordcheck *k, struct llm_output *o, struct llm_err *e)
{
    size_t lines = places(k), n = widths(k), columns = n * (LLM_COORDCHECK_STEPS + 1);
    float *v = llm_alloc(lines * columns + 1, sizeof *v, "a heat map", e);
    const char **names = llm_calloc(lines + 1, sizeof *names, "a heat map", e);
    int32_t *numbers = llm_calloc(columns + 1, sizeof *numbers, "a heat map", e);
    int64_t *steps = llm_calloc(columns + 1, sizeof *steps, "a heat map", e);
    char value[80];
    int got = v && names && numbers && steps ? 0 : -1;
    for (size_t i = 0; i < columns && got == 0; i++) {
        numbers[i] = (int32_t)row_of(k, i % n, i / n, 0)->width;
        steps[i] = (int64_t)(i / n);
        for (size_t p = 0; p < lines; p++) v[p * columns + i] = (float)(row_of(k, i % n, i / n, p)->size / row_of(k, 0, i / n, p)->size);
    }
    for (size_t p = 0; p < lines && got == 0; p++) names[p] = row_of(k, 0, 0, p)->place;
    snprintf(value, sizeof value, "mean |activation| relative to width %lld", (long long)(k->n ? k->rows[0].width : 0));
    if (got == 0) {
        got = llm_heatmap_write(o, &(struct llm_heatmap){
            .title = "Coordinate check", .subtitle = "Size of activations by width before training (step 0) and after each step",
            .value = value, .v = v, .scale = LLM_SCALE_RATIO, .y = {.n = (int64_t)lines, .labels = names},
            .x = {.n = (int64_t)columns, .name = "width", .numbers = numbers, .groups = steps, .group_name = "step"}}, e);
    }
    free(v);
    free(names);
    free(numbers);
    free(steps);
    return got;
}
