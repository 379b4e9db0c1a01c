/* Distillation: what a teacher says of texts is learned. Its distributions at every token that counts, by generalised JSD, whose ends are forward and
 * reverse KL; or (--match) its hidden states or embeddings, by squared error or cosine, which is how encoders are distilled.
 * Tokens are those of windows of a token stream, of completions that the student has written (--on-policy), or of lines that have the teacher's
 * most likely tokens, so that no teacher is needed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "model/weights/beside.h"
#include "tensor/divergence.h"
#include "tensor/tape.h"
#include "train/objective.h"
#include "train/rollouts.h"
#include "train/taught.h"

struct distill {
    struct llm_model *teacher;  /* NULL: the data have its log-probabilities */
    struct llm_ctx ctx;         /* of the teacher's passes */
    struct llm_param projection; /* [teacher's hidden size, student's]: of the student's vectors, if the sizes differ */
};
enum match { MATCH_LOGITS, MATCH_HIDDEN, MATCH_EMBEDDING };

/* ---- options ---- */

static bool on_policy(const struct llm_train_options *o)
{
    return llm_option_word(o, "on-policy");
}

static enum match matched(const struct llm_train_options *o)
{
    return (enum match)llm_option_word(o, "match");
}

static bool takes_lines(const struct llm_train_options *o)
{
    return on_policy(o) || !llm_option_text(o, "teacher");
}

/* With --match a row is a text. */
static bool documents(const struct llm_train_options *o)
{
    return takes_lines(o) || matched(o) != MATCH_LOGITS;
}

static int check_match(const struct llm_train_options *o, struct llm_err *e)
{
    const char *what = matched(o) == MATCH_HIDDEN ? "hidden states" : "embeddings", *found = NULL;
    static const char *const of_logits[] = {"temperature", "jsd-beta"};
    if (matched(o) == MATCH_LOGITS) return 0;
    if (!llm_option_text(o, "teacher")) return llm_fail(e, LLM_EX_USAGE, "--match: expected --teacher MODEL, whose %s are learned", what);
    if (on_policy(o)) found = "on-policy";
    for (size_t i = 0; i < 2; i++) {
        double v = llm_option_real(o, of_logits[i]), usual = i == 0;
        if (v < usual || v > usual) found = of_logits[i];
    }
    return found ? llm_fail(e, LLM_EX_USAGE, "--match: expected no --%s, which is about distributions", found) : 0;
}

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    double t = llm_option_real(o, "temperature");
    if (check_match(o, e) < 0) return -1;
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

static int check(const struct llm_model *m, struct llm_err *e)
{
    const struct llm_config *c = &m->config;
    return c->num_encoder_layers == 0 ? 0
        : llm_fail(e, EX_UNAVAILABLE, "expected one stack of layers, found an encoder-decoder (%s)", c->model_type);
}

/* Whether the model has what is learned of it. */
static int has(const struct llm_model *m, enum match what, struct llm_err *e)
{
    if (check(m, e) < 0) return -1;
    if (what != MATCH_EMBEDDING || llm_config_pooling(&m->config) != LLM_POOL_OTHER) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "pooling: expected mean, cls or last, found another");
}

/* If the student's vectors have another size than the teacher's, a matrix between them is learned. */
static int make_projection(struct llm_task *t, struct distill *d, struct llm_err *e)
{
    const struct llm_config *c = &t->model->config;
    int64_t from = c->hidden_size, to = d->teacher->config.hidden_size;
    if (from == to) return 0;
    if (llm_param_make(&d->projection, "match.weight", 2, (int64_t[]){to, from}, LLM_ROLE_HEAD, e) < 0) return -1;
    float *w = (float *)d->projection.weight.data;
    for (int64_t i = 0; i < to; i++) {
        struct llm_rng r = llm_rng_at((uint64_t)t->o.seed, 0, LLM_RNG_VALUE, 1, (uint32_t)i, 0);
        for (int64_t j = 0; j < from; j++) w[i * from + j] = (float)c->initializer_range * llm_rng_normal(&r, (uint32_t)j);
    }
    t->params = &d->projection;
    t->n_params = 1;
    return 0;
}

static int create(struct llm_task *t, struct llm_err *e)
{
    struct distill *d = llm_calloc(1, sizeof *d, "distillation", e);
    const char *path = llm_option_text(&t->o, "teacher");
    enum match what = matched(&t->o);
    t->own = d;
    if (!d) return -1;
    if (what == MATCH_LOGITS && t->model->config.bidirectional) {
        return llm_fail(e, LLM_EX_USAGE, "--match: expected hidden or embedding with an encoder (%s), found logits", t->model->config.model_type);
    }
    if ((what == MATCH_LOGITS ? llm_objective_check_one(t->model, e) : has(t->model, what, e)) < 0) return -1;
    if (!path) return 0;
    if (!(d->teacher = llm_task_load(t, "--teacher", path, e))) return -1;
    if ((what == MATCH_LOGITS ? llm_objective_check_next(d->teacher, e) : has(d->teacher, what, e)) < 0) return llm_in(e, "--teacher");
    if (what != MATCH_LOGITS && make_projection(t, d, e) < 0) return -1;
    if (llm_ctx_init(&d->ctx, (size_t)1 << 40, (size_t)1 << 30, false, e) < 0) return -1;
    d->ctx.compute = (enum llm_compute)t->o.precision;
    return 0;
}

static void destroy(struct llm_task *t)
{
    struct distill *d = t->own;
    if (!d) return;
    llm_ctx_release(&d->ctx);
    llm_param_release(&d->projection);
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

static int no_advantages(const struct llm_train_options *o, const double *reward, int64_t n, double mean, double *advantage, double *scale,
                         struct llm_err *e)
{
    (void)o, (void)reward, (void)mean, (void)e;
    for (int64_t i = 0; i < n; i++) advantage[i] = 0;
    *scale = 0;
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

/* A text by itself. A token's vector counts if its loss mask is not 0; that of the text stands at the row's beginning. */
static int match_document(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    int64_t len = rows->row_len, at = row * len;
    if (d->n > len) return llm_fail(e, EX_DATAERR, "expected at most %lld tokens (--context), found %lld", (long long)len, (long long)d->n);
    rows->lengths[row] = (int32_t)d->n;
    for (int64_t i = 0; i < len; i++) {
        bool own = i < d->n;
        rows->ids[at + i] = own ? d->ids[i] : 0;
        rows->positions[at + i] = (int32_t)i;
        rows->doc_start[at + i] = 0;
        rows->own[at + i] = own;
        rows->targets[at + i] = (matched(&t->o) == MATCH_HIDDEN ? own && d->mask[i] : i == 0) ? 0 : -1;
    }
    return 0;
}

static int document(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    const uint64_t end = (uint64_t)d->n;
    if (matched(&t->o) != MATCH_LOGITS) return match_document(t, rows, row, d, e);
    if (d->n > rows->row_len + 1) {
        return llm_fail(e, EX_DATAERR, "expected at most %lld tokens (--context), found %lld", (long long)rows->row_len + 1, (long long)d->n);
    }
    llm_rows_put(rows, row, d->ids, d->mask, d->n, &end, 1, 0, false);
    if (d->column) put_columns(rows, row, d);
    return 0;
}

/* ---- a pass ---- */

/* The vectors of a model that are compared: of each token, or of each text. */
static struct llm_tensor *vectors(struct llm_ctx *c, struct llm_task *t, struct llm_model *m, const struct llm_rows *rows)
{
    struct llm_batch b = llm_rows_batch(t, rows);
    c->n_rows = rows->n_rows;
    c->row_len = rows->row_len;
    b.lengths = m->config.bidirectional ? rows->lengths : NULL;
    if (m != t->model) b.routers = NULL;
    struct llm_tensor *x = llm_model_forward(c, m, &b);
    return matched(&t->o) == MATCH_HIDDEN ? x : llm_model_pool(c, m, x, rows->ids, rows->lengths, rows->n_rows);
}

static int run_match(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct distill *d = t->own;
    int64_t step = matched(&t->o) == MATCH_HIDDEN ? 1 : rows->row_len, n = rows->n_rows * rows->row_len / step;
    const struct llm_tensor *target = vectors(&d->ctx, t, d->teacher, rows);
    int32_t *counts = llm_op_alloc(c, n, sizeof *counts);
    float *losses = llm_op_alloc(c, n, sizeof *losses), *cosines = llm_op_alloc(c, n, sizeof *cosines);
    struct llm_tensor *x = vectors(c, t, t->model, rows);
    if (t->n_params > 0) x = llm_linear(c, x, &d->projection, NULL);
    for (int64_t i = 0; i < n && !llm_ctx_failed(c); i++) counts[i] = rows->targets[i * step];
    const struct llm_match o = {.cosine = llm_option_word(&t->o, "match-loss") == 1, .grad_scale = grad_scale, .target = target, .counts = counts,
                                .loss = losses, .cosines = cosines};
    int status = llm_ctx_failed(&d->ctx) ? llm_fail(e, d->ctx.err.status, "--teacher: %s", d->ctx.err.text) : 0;
    if (status == 0) llm_match(c, x, &o);
    if (status == 0 && llm_ctx_failed(c)) {
        *e = c->err;
        status = -1;
    }
    double sum = 0;
    memset(token_loss, 0, (size_t)(n * step) * sizeof *token_loss);
    for (int64_t i = 0; i < n && status == 0; i++) {
        token_loss[i * step] = losses[i];
        sum += (double)cosines[i];
    }
    if (status == 0) llm_task_note(t, "cosine", sum, (double)rows->counted);
    llm_ctx_reset(&d->ctx);
    return status;
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct distill *d = t->own;
    struct llm_model *m = t->model, *of = d->teacher;
    struct llm_batch b;
    if (matched(&t->o) != MATCH_LOGITS) return run_match(c, t, rows, grad_scale, token_loss, e);
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
    {.name = "match", .arg = "WHAT", .type = LLM_CHOICE, .choices = "logits|hidden|embedding",
     .help = "learn, of --teacher, the logits, or the hidden state of each token or the embedding of each text, as of encoders [logits]"},
    {.name = "match-loss", .arg = "NAME", .type = LLM_CHOICE, .choices = "mse|cosine",
     .help = "loss of --match hidden and embedding: mean squared error, or 1 - cosine [mse]"},
    LLM_ROLLOUT_OPTIONS,
    {.name = NULL}};

extern const struct llm_objective llm_objective_distill;
const struct llm_objective llm_objective_distill = {.name = "distill", .summary = "learn a teacher's distributions", .options = options,
                                                    .check_options = check_options, .check = check, .create = create,
                                                    .destroy = destroy, .columns = columns, .record = record, .recorded = recorded,
                                                    .document = document, .documents = documents, .takes_lines = takes_lines,
                                                    .per_run = on_policy, .unrewarded = true,
                                                    .other_targets = true, .run = run, .means = {"length", "truncated", "cosine"}};
