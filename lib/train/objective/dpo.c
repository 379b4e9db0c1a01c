/* Preference optimisation: of two replies to a prompt the chosen one is made more likely than the rejected one, against a fixed reference model that
 * says what each would be without training (train/preference.h has the losses). The reference is computed by the same forward pass as the policy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tensor/tape.h"
#include "train/pairs.h"
#include "train/preference.h"

enum { REF_CHOSEN, REF_REJECTED };
static const struct llm_column columns[] = {{"ref_chosen_logps", LLM_PER_ROW, true}, {"ref_rejected_logps", LLM_PER_ROW, true},
                                            {NULL, LLM_PER_ROW, false}};

struct dpo {
    struct llm_preference loss;
    struct llm_model *reference;    /* NULL: the loss has none, or the data have its log-probabilities */
    struct llm_ctx ctx;             /* of the reference's passes */
    struct llm_preference_pair *pairs;
    int64_t n_pairs;
};

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    double smoothing = llm_option_real(o, "label-smoothing");
    if (!(llm_option_real(o, "beta") > 0)) return llm_fail(e, LLM_EX_USAGE, "beta: expected a number above 0, found %g", llm_option_real(o, "beta"));
    if (!(smoothing < .5)) return llm_fail(e, LLM_EX_USAGE, "label-smoothing: expected a share below 0.5, found %g", smoothing);
    if (o->z_loss > 0) return llm_fail(e, LLM_EX_USAGE, "--z-loss: expected 0: tokens have no loss of their own, found %g", o->z_loss);
    return 0;
}

static int check(const struct llm_model *m, struct llm_err *e)
{
    if (llm_objective_check_next(m, e) < 0) return -1;
    return m->config.num_nextn_predict_layers == 0 ? 0
        : llm_fail(e, EX_UNAVAILABLE, "expected a model that predicts one token, found one that predicts further (%s)", m->config.model_type);
}

static int create(struct llm_task *t, struct llm_err *e)
{
    struct dpo *d = llm_calloc(1, sizeof *d, "preferences", e);
    const char *path = llm_option_text(&t->o, "reference");
    t->own = d;
    if (!d) return -1;
    d->loss = (struct llm_preference){.kind = (enum llm_preference_kind)llm_option_word(&t->o, "loss"), .beta = llm_option_real(&t->o, "beta"),
                                      .label_smoothing = llm_option_real(&t->o, "label-smoothing"),
                                      .target_margin = llm_option_real(&t->o, "target-margin")};
    if (!llm_preference_refers(d->loss.kind) || !path) return 0;
    if (!(d->reference = llm_task_load(t, "--reference", path, e))) return -1;
    if (llm_ctx_init(&d->ctx, (size_t)1 << 40, (size_t)1 << 30, false, e) < 0) return -1;
    d->ctx.compute = (enum llm_compute)t->o.precision;
    d->ctx.seed = (uint64_t)t->o.seed;
    return 0;
}

static void destroy(struct llm_task *t)
{
    struct dpo *d = t->own;
    if (!d) return;
    llm_ctx_release(&d->ctx);
    free(d->pairs);
    free(d);
    t->own = NULL;
}

/* Room for the pairs of a pass. */
static int reserve(struct dpo *d, int64_t n, struct llm_err *e)
{
    if (n <= d->n_pairs) return 0;
    free(d->pairs);
    d->n_pairs = 0;
    d->pairs = llm_calloc((size_t)n, sizeof *d->pairs, "preferences", e);
    if (!d->pairs) return -1;
    d->n_pairs = n;
    return 0;
}

/* Sums of the log-probabilities of each row's targets, in the order of tokens; even rows are chosen replies. */
static void sum_rows(const struct llm_rows *rows, const float *nll, struct llm_preference_pair *pairs, bool policy)
{
    for (int64_t r = 0; r < rows->n_rows; r++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t i = r * rows->row_len; i < (r + 1) * rows->row_len; i++) {
            sum -= rows->targets[i] >= 0 ? (double)nll[i] : 0;
            n += rows->targets[i] >= 0;
        }
        (policy ? pairs[r / 2].policy : pairs[r / 2].reference)[r % 2] = sum;
        pairs[r / 2].n[r % 2] = n;
    }
}

/* The reference's log-probabilities: the data's columns, else computed. `rows`: the texts of the pairs. */
static int refer(struct dpo *d, struct llm_task *t, const struct llm_rows *pairs, const struct llm_rows *rows, float *nll, struct llm_err *e)
{
    bool given = true;
    for (int64_t r = 0; r < pairs->n_rows; r++) {
        for (int i = 0; i < 2; i++) {
            d->pairs[r].reference[i] = (double)pairs->column[i][r];
            given &= !isnan(pairs->column[i][r]);
        }
    }
    if (given) return 0;
    if (!d->reference) {
        return llm_fail(e, LLM_EX_USAGE, "expected a reference: --reference MODEL, --init MODEL, or its log-probabilities in the data");
    }
    struct llm_batch b;
    struct llm_ctx *c = &d->ctx;
    struct llm_model *m = d->reference;
    struct llm_tensor *hidden = llm_task_hidden(c, t, m, rows, &b);
    const struct llm_cross_entropy loss = {.targets = rows->targets, .bias = llm_model_head_bias(m), .logit_scale = (float)m->config.logit_scale,
                                           .logit_softcap = (float)m->config.final_logit_softcapping, .token_nll = nll, .no_gradient = true};
    llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    bool failed = llm_ctx_failed(c);
    if (failed) *e = c->err;
    llm_ctx_reset(c);
    if (failed) return llm_in(e, "--reference");
    sum_rows(rows, nll, d->pairs, false);
    return 0;
}

/* Losses of the pairs, and the weight of each token in the gradient: d loss / d (-log p). */
static void judge(struct llm_task *t, const struct llm_rows *rows, float *weights, float *token_loss)
{
    const struct dpo *d = t->own;
    int64_t n = rows->n_rows / 2, len = rows->row_len;
    double reward[2] = {0}, policy[2] = {0}, right = 0;
    memset(token_loss, 0, (size_t)(n * len) * sizeof *token_loss);
    for (int64_t r = 0; r < n; r++) {
        const struct llm_preference_loss l = llm_preference_loss(&d->loss, &d->pairs[r]);
        token_loss[r * len] = (float)l.loss;
        for (int i = 0; i < 2; i++) {
            for (int64_t k = 0; k < len; k++) weights[(2 * r + i) * len + k] = (float)-l.slope[i];
            reward[i] += l.reward[i];
            policy[i] += d->pairs[r].policy[i];
        }
        right += l.reward[LLM_CHOSEN] > l.reward[LLM_REJECTED];
    }
    llm_task_note(t, "reward_chosen", reward[LLM_CHOSEN], (double)n);
    llm_task_note(t, "reward_rejected", reward[LLM_REJECTED], (double)n);
    llm_task_note(t, "reward_margin", reward[LLM_CHOSEN] - reward[LLM_REJECTED], (double)n);
    llm_task_note(t, "reward_accuracy", right, (double)n);
    llm_task_note(t, "logps_chosen", policy[LLM_CHOSEN], (double)n);
    llm_task_note(t, "logps_rejected", policy[LLM_REJECTED], (double)n);
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *pairs, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct dpo *d = t->own;
    struct llm_model *m = t->model;
    struct llm_rows rows;
    struct llm_batch b;
    int64_t tokens = 2 * pairs->n_rows * pairs->row_len;
    if (reserve(d, pairs->n_rows, e) < 0 || llm_pairs_rows(c, pairs, &rows, e) < 0) return -1;
    float *nll = llm_op_alloc(c, tokens, sizeof *nll), *weights = llm_op_alloc(c, tokens, sizeof *weights);
    if (!nll || !weights) {
        *e = c->err;
        return -1;
    }
    if (llm_preference_refers(d->loss.kind) && refer(d, t, pairs, &rows, nll, e) < 0) return -1;
    c->first_row *= 2;
    struct llm_tensor *hidden = llm_task_hidden(c, t, m, &rows, &b);
    struct llm_cross_entropy loss = llm_task_loss(t, &rows, grad_scale, nll);
    loss.no_gradient = true;
    llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    if (!llm_ctx_failed(c)) {
        sum_rows(&rows, nll, d->pairs, true);
        judge(t, &rows, weights, token_loss);
        loss.no_gradient = false;
        loss.weights = weights;
        if (c->tape) llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    }
    if (!llm_ctx_failed(c)) return 0;
    *e = c->err;
    return -1;
}

static const struct llm_objective_option options[] = {
    {.name = "loss", .arg = "NAME", .help = "loss of --objective dpo: sigmoid, ipo, hinge, robust, simpo, orpo [sigmoid]", .type = LLM_CHOICE,
     .choices = LLM_PREFERENCE_WORDS},
    {.name = "beta", .arg = "X", .help = "strength of the reference in --objective dpo: larger stays closer to it [0.1]", .type = LLM_REAL,
     .max = 1e6, .fallback = .1},
    {.name = "label-smoothing", .arg = "P", .help = "share of the pairs of --objective dpo whose order is taken to be wrong [0]", .type = LLM_REAL,
     .max = .5},
    {.name = "target-margin", .arg = "X", .help = "margin that --loss simpo asks for between the two rewards [0.5]", .type = LLM_REAL, .max = 1e6,
     .fallback = .5},
    {.name = "reference", .arg = "MODEL", .help = "fixed model of dpo [that of --init], or of --kl-coef", .type = LLM_INPUT},
    LLM_PAIRS_OPTIONS,
    {.name = NULL}};

extern const struct llm_objective llm_objective_dpo;
const struct llm_objective llm_objective_dpo = {.name = "dpo", .summary = "prefer one reply to another", .options = options,
                                                .init_option = "reference", .check_options = check_options, .check = check, .create = create,
                                                .destroy = destroy, .columns = columns, .record = llm_pairs_record,
                                                .document = llm_pairs_document, .two_texts = true, .other_targets = true, .run = run,
                                                .means = {"reward_chosen", "reward_rejected", "reward_margin", "reward_accuracy", "logps_chosen",
                                                          "logps_rejected"}};
