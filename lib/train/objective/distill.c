/* Distillation: the distributions of a teacher are learned at every token that counts, by generalised JSD, whose ends are forward and reverse KL.
 * Tokens are those of windows of a token stream, of completions that the student has written (--on-policy), or of lines that have the teacher's
 * most likely tokens, so that no teacher is needed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tensor/divergence.h"
#include "tensor/tape.h"
#include "train/objective.h"
#include "train/rollouts.h"
#include "train/taught.h"

struct distill {
    struct llm_model *teacher;  /* NULL: the data have its log-probabilities */
    struct llm_ctx ctx;         /* of the teacher's passes */
};

/* ---- options ---- */

static bool on_policy(const struct llm_train_options *o)
{
    return llm_option_word(o, "on-policy");
}

static bool takes_lines(const struct llm_train_options *o)
{
    return on_policy(o) || !llm_option_text(o, "teacher");
}

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    double t = llm_option_real(o, "temperature");
    if (!(t > 0)) return llm_fail(e, LLM_EX_USAGE, "temperature: expected a number above 0, found %g", t);
    if (!llm_option_text(o, "teacher")) {
        if (on_policy(o)) return llm_fail(e, LLM_EX_USAGE, "--on-policy: expected --teacher MODEL, which judges what the student writes");
        if (t < 1 || t > 1) {
            return llm_fail(e, LLM_EX_USAGE, "--temperature: expected 1 with a teacher's log-probabilities, whose tail no temperature can divide, "
                            "found %g", t);
        }
    }
    if (takes_lines(o) && o->stream) return llm_fail(e, LLM_EX_USAGE, "rows are whole texts: not with --stream");
    if (o->z_loss > 0) return llm_fail(e, LLM_EX_USAGE, "--z-loss: expected 0, found %g", o->z_loss);
    return o->carry_state ? llm_fail(e, LLM_EX_USAGE, "--carry-state: expected rows that stand alone, which the teacher can read") : 0;
}

static int create(struct llm_task *t, struct llm_err *e)
{
    struct distill *d = llm_calloc(1, sizeof *d, "distillation", e);
    const char *path = llm_option_text(&t->o, "teacher");
    t->own = d;
    if (!d) return -1;
    if (!path) return 0;
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

/* ---- lines ---- */

/* Those of rollouts, of which the tokens alone are read, and those of the teacher's choices. A record has one or the other. */
static const struct llm_column columns[] = {
    {"advantage", LLM_PER_TOKEN, true}, {"logprobs", LLM_PER_TOKEN, true}, {"reward", LLM_PER_ROW, true}, {"deviation", LLM_PER_ROW, true},
    {"truncated", LLM_PER_ROW, true}, {"token_reward", LLM_PER_TOKEN, true}, {"reference", LLM_PER_TOKEN, true}, {"value", LLM_PER_TOKEN, true},
    {"return", LLM_PER_TOKEN, true}, {"group", LLM_PER_ROW, true}, LLM_TAUGHT_COLUMNS, {NULL, LLM_PER_ROW, false}};
enum { CUT = LLM_ROLLOUT_CUT, TAUGHT = sizeof columns / sizeof *columns - 1 - LLM_N_TAUGHT_COLUMNS };

static int record(struct llm_lines *l, const json_t *line, struct llm_err *e)
{
    double beta = llm_option_real(l->o, "jsd-beta");
    if (on_policy(l->o)) return llm_rollouts_record(l, line, e);
    if (!json_is_object(line)) return llm_fail(e, EX_DATAERR, "expected an object");
    return llm_taught_record(l, line, TAUGHT, beta >= 1 ? "reverse KL (--jsd-beta 1)" : beta > 0 ? "JSD (--jsd-beta)" : NULL, e);
}

static int no_advantages(const struct llm_train_options *o, const double *reward, int64_t n, double mean, double *advantage, struct llm_err *e)
{
    (void)o, (void)reward, (void)mean, (void)e;
    for (int64_t i = 0; i < n; i++) advantage[i] = 0;
    return 0;
}

static int recorded(struct llm_lines *l, struct llm_err *e, bool failed)
{
    return on_policy(l->o) ? llm_rollouts_recorded(l, no_advantages, e, failed) : 0;
}

/* The columns of a row; those of the teacher stand where the token is the input. */
static void put_columns(struct llm_rows *rows, int64_t row, const struct llm_document *d)
{
    int64_t len = rows->row_len, at = row * len, k = rows->choices, n = d->n < len ? d->n : len;
    rows->column[CUT][row] = d->column[CUT] ? d->column[CUT][0] : 0;
    for (int i = TAUGHT; i < TAUGHT + LLM_N_TAUGHT_COLUMNS; i++) {
        int64_t each = columns[i].per == LLM_PER_CHOICE ? k : 1;
        if (d->column[i]) memcpy(rows->column[i] + at * each, d->column[i], (size_t)(n * each) * sizeof **rows->column);
        for (int64_t j = at; !d->column[i] && each == 1 && j < at + len; j++) rows->column[i][j] = NAN;
    }
}

static int document(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    const uint64_t end = (uint64_t)d->n;
    (void)t;
    if (d->n > rows->row_len + 1) {
        return llm_fail(e, EX_DATAERR, "expected at most %lld tokens (--context), found %lld", (long long)rows->row_len + 1, (long long)d->n);
    }
    llm_rows_put(rows, row, d->ids, d->mask, d->n, &end, 1, 0, false);
    if (d->column) put_columns(rows, row, d);
    return 0;
}

/* ---- a pass ---- */

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct distill *d = t->own;
    struct llm_model *m = t->model, *of = d->teacher;
    struct llm_batch b;
    struct llm_teacher teacher = {.how = {.beta = llm_option_real(&t->o, "jsd-beta"), .temperature = llm_option_real(&t->o, "temperature")}};
    int status = 0;
    if (of) {
        teacher.hidden = llm_task_hidden(&d->ctx, t, of, rows, &b);
        teacher.head = llm_model_head(of);
        teacher.bias = llm_model_head_bias(of);
        teacher.logit_scale = (float)of->config.logit_scale;
        teacher.logit_softcap = (float)of->config.final_logit_softcapping;
        if (llm_ctx_failed(&d->ctx)) status = llm_fail(e, d->ctx.err.status, "--teacher: %s", d->ctx.err.text);
    } else if (rows->choices < 1) {
        return llm_fail(e, LLM_EX_USAGE, "--objective distill: expected --teacher MODEL, or lines of its log-probabilities");
    } else {
        teacher.n_top = rows->choices;
        teacher.top_ids = rows->column[TAUGHT + LLM_TAUGHT_IDS];
        teacher.top_log_probs = rows->column[TAUGHT + LLM_TAUGHT_LOG_PROBS];
        teacher.tail = rows->column[TAUGHT + LLM_TAUGHT_TAIL];
    }
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
    if (status == 0 && on_policy(&t->o)) {
        double cut = 0;
        for (int64_t r = 0; r < rows->n_rows; r++) cut += (double)rows->column[CUT][r];
        llm_task_note(t, "truncated", cut, (double)rows->n_rows);
        llm_task_note(t, "length", (double)rows->counted, (double)rows->n_rows);
    }
    if (of) llm_ctx_reset(&d->ctx);
    return status;
}

static const struct llm_objective_option options[] = {
    {.name = "teacher", .arg = "MODEL", .help = "model whose distributions --objective distill learns", .type = LLM_INPUT},
    {.name = "jsd-beta", .arg = "X", .help = "divergence of --objective distill: 0 forward KL, 1 reverse KL, between them generalised JSD [0]",
     .type = LLM_REAL, .max = 1},
    {.name = "temperature", .arg = "T", .help = "temperature of both distributions of --objective distill [1]", .type = LLM_REAL, .max = 100,
     .fallback = 1},
    {.name = "on-policy", .help = "learn, of --teacher, from completions that the student has written (--prompts, or llm-infer --rollout)",
     .type = LLM_FLAG},
    LLM_ROLLOUT_OPTIONS,
    {.name = NULL}};

extern const struct llm_objective llm_objective_distill;
const struct llm_objective llm_objective_distill = {.name = "distill", .summary = "learn a teacher's distributions", .options = options,
                                                    .check_options = check_options, .check = llm_objective_check_one, .create = create,
                                                    .destroy = destroy, .columns = columns, .record = record, .recorded = recorded,
                                                    .document = document, .takes_lines = takes_lines, .per_run = on_policy, .unrewarded = true,
                                                    .other_targets = true, .run = run, .means = {"length", "truncated"}};
