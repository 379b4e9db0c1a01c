/* Reinforcement from rollouts (formats/rollouts.md): REINFORCE with baselines, GRPO with its corrections, and PPO. All weight the cross-entropy
 * of each token of a completion. A first pass over the head gives the log-probabilities, from which the weights follow (train/policy.h). A second
 * pass has the gradient. Where advantages take more than the rewards of a group (values, a KL in the reward, a baseline that goes on), all
 * completions are looked at before the first step over them: `run` then writes what it found into their records, and `begin` computes the
 * advantages (train/credit.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/kernels.h"
#include "model/weights/lora.h"
#include "tensor/tape.h"
#include "train/credit.h"
#include "train/objective.h"
#include "train/policy.h"
#include "train/rollouts.h"
#include "train/value.h"

struct own {
    struct llm_policy_loss loss;
    struct llm_model *reference;    /* NULL: none */
    double scale;                   /* of all losses of the step at hand */
    struct llm_value_head value;    /* without names: there is none */
    double value_coef, value_clip, entropy_coef;
    bool looked, surveyed;          /* all documents were looked at; … and the data at hand are those: their references and values are valid */
    double kl_coef, baseline;       /* of the data at hand, for the log; NaN: none */
};

/* llm_task.state */
enum { STATE_KL_COEF, STATE_BASELINE };
enum { BASELINE_MEAN, BASELINE_RLOO, BASELINE_NONE, BASELINE_EXPONENTIAL, BASELINE_VALUE };

/* ---- options ---- */

enum { NORM_LENGTH, NORM_NONE, NORM_CONSTANT };

static bool is(const struct llm_train_options *o, const char *name)
{
    return strcmp(llm_objectives[o->objective]->name, name) == 0;
}

static bool has_value(const struct llm_train_options *o)
{
    return is(o, "ppo") || (is(o, "reinforce") && llm_option_word(o, "baseline") == BASELINE_VALUE);
}

/* Whether the KL is subtracted from rewards; else it is added to the loss. */
static bool kl_in_reward(const struct llm_train_options *o)
{
    return llm_option_real(o, "kl-coef") > 0 && llm_option_word(o, "kl-in") == 1;
}

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    if (o->stream) return llm_fail(e, LLM_EX_USAGE, "rows are whole completions: not with --stream");
    if (o->z_loss > 0) return llm_fail(e, LLM_EX_USAGE, "--z-loss: expected 0 where tokens have weights of both signs, found %g", o->z_loss);
    if (llm_option_real(o, "kl-coef") > 0 && !llm_option_text(o, "reference")) {
        return llm_fail(e, LLM_EX_USAGE, "--kl-coef: expected a model to stay near (--reference)");
    }
    if (llm_option_real(o, "kl-target") > 0 && !kl_in_reward(o)) {
        return llm_fail(e, LLM_EX_USAGE, "--kl-target: expected a --kl-coef above 0 to begin with, in the reward (--kl-in reward)");
    }
    return 0;
}

/* What makes the log-probabilities of training others than those of sampling, by name. */
static int check_equality(const struct llm_task *t, struct llm_err *e)
{
    const struct llm_config *c = &t->model->config;
    double dropout = fmax(fmax(c->embd_pdrop, c->attn_pdrop), c->resid_pdrop);
    if (t->model->lora) dropout = fmax(dropout, t->model->lora->dropout);
    if (llm_option_real(&t->o, "ratio-temp") != 1 && c->final_logit_softcapping != 0) {
        return llm_fail(e, EX_UNAVAILABLE, "--ratio-temp: expected logits without a soft cap (final_logit_softcapping), found %g",
                        c->final_logit_softcapping);
    }
    if (llm_option_word(&t->o, "off-policy")) return 0;
    if (dropout > 0) {
        return llm_fail(e, LLM_EX_USAGE, "expected --dropout 0 (and no --adapter-dropout), found %g: with dropout the ratio does not begin at 1 "
                        "(--off-policy learns all the same)", dropout);
    }
    if (c->kv_lora_rank > 0) {
        return llm_fail(e, EX_UNAVAILABLE, "latent attention (MLA) is sampled with absorbed matrices and trained with expanded ones, whose bits "
                        "differ: the ratio does not begin at 1 (--off-policy learns all the same)");
    }
    if (c->norm == LLM_NORM_BATCH) return llm_fail(e, EX_UNAVAILABLE, "BatchNorm: the ratio does not begin at 1 (--off-policy learns all the same)");
    return 0;
}

static int create(struct llm_task *t, struct llm_err *e)
{
    const struct llm_train_options *o = &t->o;
    const char *reference = llm_option_text(o, "reference");
    struct own *own = llm_calloc(1, sizeof *own, "an objective", e);
    if (!(t->own = own)) return -1;
    own->loss = (struct llm_policy_loss){.kl_coef = kl_in_reward(o) ? 0 : llm_option_real(o, "kl-coef"),
                                         .kl = (enum llm_kl)llm_option_word(o, "kl-estimator")};
    if (!is(o, "reinforce")) {
        own->loss.ratio = is(o, "grpo") && llm_option_word(o, "ratio") == 1 ? LLM_RATIO_SEQUENCE : LLM_RATIO_TOKEN;
        own->loss.clip_low = llm_option_real(o, "clip-low");
        own->loss.clip_high = llm_option_real(o, "clip-high");
    }
    own->scale = 1;
    own->kl_coef = own->baseline = NAN;
    own->entropy_coef = llm_option_real(o, "entropy-coef");
    if (check_equality(t, e) < 0) return -1;
    if (has_value(o)) {
        const struct llm_config *c = &t->model->config;
        own->value_coef = llm_option_real(o, "value-coef");
        own->value_clip = is(o, "ppo") ? llm_option_real(o, "value-clip") : 0;
        if (llm_value_init(&own->value, c->hidden_size, c->initializer_range, (uint64_t)o->seed, e) < 0) return -1;
        t->params = own->value.params;
        t->n_params = 2;
    }
    if (reference && !(own->reference = llm_task_load(t, "--reference", reference, e))) return -1;
    return 0;
}

static void destroy(struct llm_task *t)
{
    struct own *own = t->own;
    if (own) llm_value_release(&own->value);
    free(t->own);
}

/* ---- data ---- */

static int group_advantages(const struct llm_train_options *o, const double *reward, int64_t n, double mean, double *advantage, double *scale,
                            struct llm_err *e)
{
    (void)mean;
    if (n < 2) return llm_fail(e, EX_DATAERR, "expected at least 2 completions of a prompt (--samples) to compare, found %lld", (long long)n);
    *scale = llm_advantage_group(reward, n, llm_option_word(o, "grpo-scale") == 0, advantage);
    return 0;
}

static int grpo_recorded(struct llm_lines *l, struct llm_err *e, bool failed)
{
    return llm_rollouts_recorded(l, group_advantages, e, failed);
}

static int baseline_advantages(const struct llm_train_options *o, const double *reward, int64_t n, double mean, double *advantage, double *scale,
                               struct llm_err *e)
{
    int baseline = is(o, "reinforce") ? llm_option_word(o, "baseline") : BASELINE_NONE;
    *scale = 1;
    if (baseline == BASELINE_RLOO && n < 2) {
        return llm_fail(e, EX_DATAERR, "--baseline rloo: expected at least 2 completions of a prompt (--samples), found %lld", (long long)n);
    }
    if (baseline == BASELINE_RLOO) llm_advantage_leave_one_out(reward, n, advantage);
    for (int64_t i = 0; i < n && baseline != BASELINE_RLOO; i++) advantage[i] = reward[i] - (baseline == BASELINE_MEAN ? mean : 0);
    return 0;
}

static int reinforce_recorded(struct llm_lines *l, struct llm_err *e, bool failed)
{
    return llm_rollouts_recorded(l, baseline_advantages, e, failed);
}

static int ppo_recorded(struct llm_lines *l, struct llm_err *e, bool failed)
{
    return llm_rollouts_recorded(l, baseline_advantages, e, failed); /* until the values are known: rewards */
}

/* A baseline that was known before the completions were. */
static bool exponential(const struct llm_train_options *o)
{
    return is(o, "reinforce") && llm_option_word(o, "baseline") == BASELINE_EXPONENTIAL;
}

static bool surveys(const struct llm_task *t)
{
    return has_value(&t->o) || kl_in_reward(&t->o);
}

/* The coefficient of the KL at hand, and the one after these completions. */
static double kl_coefficient(const struct llm_task *t)
{
    double begun = llm_option_real(&t->o, "kl-coef");
    return llm_option_real(&t->o, "kl-target") > 0 && isfinite(t->state[STATE_KL_COEF]) ? t->state[STATE_KL_COEF] : begun;
}

static void shift(struct llm_records *r, double by)
{
    for (int64_t i = 0; i < llm_records_count(r); i++) {
        const struct llm_record d = llm_records_at(r, i);
        float *advantage = llm_records_column(r, i, LLM_ROLLOUT_ADVANTAGE);
        for (int64_t k = d.second; k < d.n; k++) advantage[k] = (float)((double)advantage[k] - by);
    }
}

/* Advantages, where the rewards of a group alone do not say them. */
static int begin(struct llm_task *t, struct llm_records *records, struct llm_err *e)
{
    const struct llm_train_options *o = &t->o;
    struct own *own = t->own;
    struct llm_credit credit = {.o = o, .gamma = 1, .lambda = 1, .kl = own->loss.kl};
    struct llm_credit_report report;
    own->surveyed = own->looked;
    own->looked = false;
    own->kl_coef = llm_option_real(o, "kl-coef") > 0 ? llm_option_real(o, "kl-coef") : NAN;
    if (!surveys(t) && !exponential(o)) return 0;
    credit.kl_coef = kl_in_reward(o) ? kl_coefficient(t) : 0;
    if (!has_value(o)) credit.advantages = is(o, "grpo") ? group_advantages : baseline_advantages;
    if (is(o, "ppo")) {
        credit.gamma = llm_option_real(o, "gamma");
        credit.lambda = llm_option_real(o, "lambda");
        credit.whiten = llm_option_word(o, "advantages") == 0;
    }
    if (llm_credit_assign(records, &credit, &report, e) < 0) return -1;
    if (kl_in_reward(o)) own->kl_coef = credit.kl_coef;
    double target = llm_option_real(o, "kl-target");
    if (target > 0) {
        t->next_state[STATE_KL_COEF] = llm_kl_adapt(credit.kl_coef, report.kl, target, llm_option_real(o, "kl-horizon"), report.completions);
    }
    if (!exponential(o)) return 0;
    double decay = llm_option_real(o, "baseline-decay"), reward = report.reward;
    bool known = isfinite(t->state[STATE_BASELINE]);
    own->baseline = known ? t->state[STATE_BASELINE] : reward; /* the first completions have only themselves */
    shift(records, own->baseline);
    t->next_state[STATE_BASELINE] = known ? decay * own->baseline + (1 - decay) * reward : reward;
    return 0;
}

static int norm_of(const struct llm_task *t)
{
    return strcmp(t->objective->name, "grpo") == 0 ? llm_option_word(&t->o, "grpo-norm") : NORM_NONE;
}

/* The columns of a document: a token's numbers stand where the token is the target. */
static void put_columns(struct llm_rows *rows, int64_t row, const struct llm_document *d)
{
    int64_t at = row * rows->row_len;
    for (int k = 0; llm_rollout_columns[k].name; k++) {
        if (llm_rollout_columns[k].per == LLM_PER_ROW) rows->column[k][row] = d->column[k][0];
        for (int64_t i = 0; i < rows->row_len && llm_rollout_columns[k].per == LLM_PER_TOKEN; i++) {
            rows->column[k][at + i] = i + 1 < d->n ? d->column[k][i + 1] : 0;
        }
    }
}

/* A target's weight in the mean over the step: tokens of a completion have 1/length each if completions count alike. */
static int document(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    int64_t len = rows->row_len, at = row * len, counted = 0;
    const uint64_t end = (uint64_t)d->n;
    if (d->n > len + 1) {
        return llm_fail(e, EX_DATAERR, "expected at most %lld tokens (--context), found %lld", (long long)len + 1, (long long)d->n);
    }
    llm_rows_put(rows, row, d->ids, d->mask, d->n, &end, 1, 0, false);
    rows->weighted = true;
    put_columns(rows, row, d);
    for (int64_t i = 0; i < len; i++) counted += rows->targets[at + i] >= 0;
    float weight = norm_of(t) == NORM_LENGTH && counted > 0 ? 1 / (float)counted : 1;
    for (int64_t i = 0; i < len; i++) rows->weights[at + i] = weight;
    return 0;
}

/* GRPO with a constant norm divides by rows × --context, not by the tokens that count. */
static int transform(const struct llm_task *t, const struct llm_rows_key *key, struct llm_rows *rows, struct llm_err *e)
{
    struct own *own = t->own;
    double counted = 0;
    (void)key, (void)e;
    if (norm_of(t) != NORM_CONSTANT) return 0;
    for (int64_t i = 0; i < rows->n_rows * rows->row_len; i++) counted += rows->targets[i] >= 0;
    own->scale = counted / (double)(rows->n_rows * rows->row_len);
    return 0;
}

/* ---- a pass ---- */

/* Adds the entropy of rows of logits to what the task has seen; uncounted rows have none. */
struct entropy {
    struct llm_inner inner;
    const int32_t *targets;
    double sum;
    double *each;                   /* [tokens] */
    float *row;                     /* [vocab] */
    float scale;                    /* × all logits, which are written over: 1 / the temperature of the ratio */
};

/* As the sampler divides logits by its temperature. */
static float inverse_temperature(const struct llm_train_options *o)
{
    return (float)(1 / llm_option_real(o, "ratio-temp"));
}

static void look(const struct llm_inner *inner, struct llm_ctx *c, int64_t first, float *x, int64_t rows, int64_t cols, int64_t stride, bool again)
{
    struct entropy *h = inner->arg;
    (void)c, (void)again;
    for (int64_t r = 0; r < rows; r++) {
        float *logits = x + r * stride;
        double dot = 0;
        if (h->scale != 1) llm_k.elementwise.scale(logits, h->scale, logits, (size_t)cols);
        if (h->targets[first + r] < 0) continue;
        memcpy(h->row, logits, (size_t)cols * sizeof *h->row);
        struct llm_ce_row row = llm_k.rows.ce_forward(h->row, 1, 0, (size_t)cols);
        for (int64_t i = 0; i < cols; i++) dot += h->row[i] > 0 ? (double)h->row[i] * ((double)logits[i] - (double)row.max) : 0;
        h->each[first + r] = log((double)row.sum) - dot / (double)row.sum;
        h->sum += h->each[first + r];
    }
}

/* -log p of each target by the reference, without a tape and without dropout. */
static void run_reference(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, float *nll)
{
    struct own *own = t->own;
    struct llm_model *m = own->reference;
    struct llm_tape *tape = c->tape;
    bool training = c->training;
    struct llm_batch b;
    size_t mark = llm_arena_mark(&c->acts);
    c->tape = NULL;
    c->training = false;
    struct llm_tensor *hidden = llm_task_hidden(c, t, m, rows, &b);
    const struct llm_cross_entropy loss = {.targets = rows->targets, .bias = llm_model_head_bias(m),
                                           .logit_scale = (float)m->config.logit_scale * inverse_temperature(&t->o),
                                           .logit_softcap = (float)m->config.final_logit_softcapping, .token_nll = nll, .no_gradient = true};
    llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    if (!llm_ctx_failed(c)) llm_arena_pop(&c->acts, mark);
    c->tape = tape;
    c->training = training;
}

/* exp of the mean of log p - log p_old over the targets of a row. */
static double sequence_ratio(const struct llm_rows *rows, int64_t row, const float *nll, const float *old)
{
    double sum = 0, n = 0;
    for (int64_t i = row * rows->row_len; i < (row + 1) * rows->row_len; i++) {
        if (rows->targets[i] < 0) continue;
        sum += (double)(-nll[i]) - (double)old[i];
        n++;
    }
    return n > 0 ? exp(sum / n) : 1;
}

static void note_row(struct llm_task *t, const struct llm_rows *rows, int64_t row, double length)
{
    llm_task_note(t, "reward", (double)rows->column[LLM_ROLLOUT_REWARD][row], 1);
    llm_task_note(t, "reward_deviation", (double)rows->column[LLM_ROLLOUT_DEVIATION][row], 1);
    llm_task_note(t, "truncated", (double)rows->column[LLM_ROLLOUT_CUT][row], 1);
    if (length > 0) llm_task_note(t, "length", length, 1);
}

static void note_token(struct llm_task *t, const struct llm_policy_token *k)
{
    llm_task_note(t, "ratio", (double)k->ratio, 1);
    llm_task_note(t, "kl_k1", k->kl[LLM_KL_K1], 1);
    llm_task_note(t, "kl_k2", k->kl[LLM_KL_K2], 1);
    llm_task_note(t, "kl_k3", k->kl[LLM_KL_K3], 1);
    llm_task_note(t, "clipped", k->clipped, 1);
}

/* Before the first update the policy is the one that wrote the completions. */
static int check_ratio(const struct llm_task *t, const struct llm_ctx *c, const struct llm_policy_token *k, int64_t row, int64_t i, struct llm_err *e)
{
    if (c->step != t->first_step || k->ratio == 1 || llm_option_word(&t->o, "off-policy")) return 0;
    return llm_fail(e, EX_DATAERR, "completion %lld, token %lld: expected a ratio of exactly 1 before the first update, found %.9g: the "
                    "log-probabilities are of another computation (--off-policy learns from them)", (long long)row, (long long)i, (double)k->ratio);
}

/* What a pass knows of its targets. */
struct seen {
    const float *reference;     /* [tokens] log-probabilities by the reference, or when they were drawn */
    const double *entropy;      /* [tokens] */
    struct llm_tensor *value;   /* [tokens, 1]; NULL: there is no value head */
    float *slopes, *bonus;      /* out: [tokens] weights of the gradients of -log p and of -entropy. bonus NULL: not wanted */
    float *value_slopes;        /* out: [tokens] of the value */
};

/* The loss of a target's value is added to its loss. */
static void weigh_value(struct llm_task *t, const struct llm_rows *rows, int64_t i, const struct seen *s, double *loss)
{
    const struct own *own = t->own;
    if (!s->value) return;
    double value = (double)s->value->data[i * s->value->stride];
    struct llm_value_token v = llm_value_token(value, (double)rows->column[LLM_ROLLOUT_VALUE][i], (double)rows->column[LLM_ROLLOUT_RETURN][i],
                                               own->value_clip);
    llm_task_note(t, "value", value, 1);
    llm_task_note(t, "value_loss", v.loss, 1);
    llm_task_note(t, "value_clipped", v.clipped, 1);
    *loss += own->value_coef * v.loss;
    s->value_slopes[i] = (float)(own->scale * own->value_coef * v.slope * (double)rows->weights[i]);
}

/* Losses of all targets from their -log p in token_loss, which they replace. */
static int weigh(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, const struct seen *s, float *token_loss, struct llm_err *e)
{
    const struct own *own = t->own;
    const float *old = rows->column[LLM_ROLLOUT_LOG_PROB], *advantage = rows->column[LLM_ROLLOUT_ADVANTAGE];
    for (int64_t row = 0; row < rows->n_rows; row++) {
        double sequence = own->loss.ratio == LLM_RATIO_SEQUENCE ? sequence_ratio(rows, row, token_loss, old) : 1, length = 0;
        for (int64_t i = row * rows->row_len; i < (row + 1) * rows->row_len; i++) {
            s->slopes[i] = 0;
            if (s->value) s->value_slopes[i] = 0;
            if (rows->targets[i] < 0) continue;
            struct llm_policy_token k = llm_policy_token(&own->loss, (double)advantage[i], -token_loss[i], old[i], s->reference[i], sequence);
            if (check_ratio(t, c, &k, c->first_row + row, i - row * rows->row_len, e) < 0) return -1;
            note_token(t, &k);
            length++;
            k.loss -= own->entropy_coef * s->entropy[i];
            weigh_value(t, rows, i, s, &k.loss);
            token_loss[i] = (float)(own->scale * k.loss);
            s->slopes[i] = (float)(own->scale * k.slope * (double)rows->weights[i]);
            if (s->bonus) s->bonus[i] = (float)(own->scale * own->entropy_coef * (double)rows->weights[i]);
        }
        note_row(t, rows, row, length);
    }
    return 0;
}

/* Writes what a look at all documents has found into their records. */
static void keep(struct llm_task *t, const struct llm_ctx *c, const struct llm_rows *rows, const struct seen *s)
{
    for (int64_t row = 0; row < rows->n_rows; row++) {
        int64_t number = c->first_row + row, at = row * rows->row_len;
        ((struct own *)t->own)->looked = true;
        float *reference = llm_records_column(t->surveyed, number, LLM_ROLLOUT_REFERENCE);
        float *value = llm_records_column(t->surveyed, number, LLM_ROLLOUT_VALUE);
        for (int64_t i = 0; i < rows->row_len; i++) {
            if (rows->targets[at + i] < 0) continue;
            reference[i + 1] = s->reference[at + i];
            if (s->value) value[i + 1] = s->value->data[(at + i) * s->value->stride];
        }
    }
}

/* Log-probabilities by the reference: those of the look at all documents, or new ones. */
static const float *reference_of(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows)
{
    struct own *own = t->own;
    int64_t tokens = rows->n_rows * rows->row_len;
    if (!own->reference || (own->surveyed && !t->surveyed)) return rows->column[LLM_ROLLOUT_REFERENCE];
    float *nll = llm_op_alloc(c, tokens, sizeof *nll);
    if (!llm_ctx_failed(c)) run_reference(c, t, rows, nll);
    for (int64_t i = 0; i < tokens && !llm_ctx_failed(c); i++) nll[i] = -nll[i];
    return nll;
}

/* The gradient of the values, on which llm_backward goes on. */
static void put_value_slopes(struct llm_ctx *c, const struct seen *s, double grad_scale)
{
    float *grad = llm_tensor_grad(c, s->value);
    for (int64_t i = 0; grad && i < s->value->rows; i++) grad[i * s->value->grad_stride] += (float)(grad_scale * (double)s->value_slopes[i]);
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct own *own = t->own;
    struct llm_model *m = t->model;
    int64_t tokens = rows->n_rows * rows->row_len;
    struct llm_batch b;
    struct seen s = {.slopes = llm_op_alloc(c, tokens, sizeof *s.slopes)};
    struct entropy h = {.targets = rows->targets, .row = llm_op_alloc(c, m->config.vocab_size, sizeof *h.row),
                        .each = llm_op_alloc(c, tokens, sizeof *h.each)};
    h.inner = (struct llm_inner){look, &h};
    h.scale = inverse_temperature(&t->o);
    s.entropy = h.each;
    if (t->n_params > 0) s.value_slopes = llm_op_alloc(c, tokens, sizeof *s.value_slopes);
    if (own->entropy_coef != 0) s.bonus = llm_op_alloc(c, tokens, sizeof *s.bonus);
    s.reference = reference_of(c, t, rows);
    struct llm_tensor *hidden = llm_task_hidden(c, t, m, rows, &b);
    if (t->n_params > 0) s.value = llm_linear(c, hidden, &t->params[0], &t->params[1]);
    struct llm_cross_entropy loss = llm_task_loss(t, rows, grad_scale, token_loss);
    loss.weights = NULL;
    loss.no_gradient = true;
    loss.logits = &h.inner;
    llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    if (!llm_ctx_failed(c) && t->surveyed) keep(t, c, rows, &s);
    if (!llm_ctx_failed(c) && weigh(c, t, rows, &s, token_loss, e) < 0) return -1;
    llm_task_note(t, "entropy", h.sum, (double)rows->counted);
    if (isfinite(own->kl_coef)) llm_task_note(t, "kl_coef", own->kl_coef, 1);
    if (isfinite(own->baseline)) llm_task_note(t, "baseline", own->baseline, 1);
    if (c->tape && s.value && !llm_ctx_failed(c)) put_value_slopes(c, &s, grad_scale);
    loss = llm_task_loss(t, rows, grad_scale, NULL);
    loss.logit_scale *= h.scale;
    loss.weights = s.slopes;
    loss.entropy = s.bonus;
    if (c->tape) llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    if (!llm_ctx_failed(c)) return 0;
    *e = c->err;
    return -1;
}

#define POLICY_OPTIONS(kl_estimator, kl_in)                                                                                                         \
    LLM_ROLLOUT_OPTIONS,                                                                                                                            \
    {.name = "reference", .arg = "MODEL", .help = "the model that --kl-coef keeps the policy near", .type = LLM_INPUT},                             \
    {.name = "kl-coef", .arg = "X", .help = "add X times an estimate of KL(policy, --reference) to the loss of each token [0]", .type = LLM_REAL,   \
     .min = 0, .max = 1e6},                                                                                                                         \
    {.name = "kl-estimator", .arg = "K", .help = "estimate of --kl-coef: k1 (in the loss: no gradient on average), k2 or k3 [k3; ppo: k1]",         \
     .type = LLM_CHOICE, .choices = "k1|k2|k3", .fallback = (kl_estimator)},                                                                        \
    {.name = "kl-in", .arg = "WHERE", .help = "where --kl-coef stands: in the loss, or subtracted from the reward of each token [loss; ppo: reward]",\
     .type = LLM_CHOICE, .choices = "loss|reward", .fallback = (kl_in)},                                                                            \
    {.name = "kl-target", .arg = "X", .help = "adapt --kl-coef so that the KL of a completion stays near X nats (Ziegler et al.) [0: fixed]",       \
     .type = LLM_REAL, .min = 0, .max = 1e6},                                                                                                       \
    {.name = "kl-horizon", .arg = "N", .help = "--kl-target: completions in which --kl-coef changes by at most 20% [10000]", .type = LLM_REAL,      \
     .min = 1, .max = 1e12, .fallback = 10000},                                                                                                     \
    {.name = "entropy-coef", .arg = "X", .help = "add X times the entropy of each token's distribution to what is maximised [0]", .type = LLM_REAL, \
     .min = 0, .max = 1e6}
#define CLIP_OPTIONS                                                                                                                                \
    {.name = "clip-low", .arg = "X", .help = "clip the ratio below 1 - X [0.2]", .type = LLM_REAL, .min = 0, .max = 1, .fallback = .2},             \
    {.name = "clip-high", .arg = "X", .help = "clip the ratio above 1 + X (DAPO: 0.28) [0.2]", .type = LLM_REAL, .min = 0, .max = 1e6,              \
     .fallback = .2}
#define VALUE_COEF                                                                                                                                  \
    {.name = "value-coef", .arg = "X", .help = "weight of the loss of the value head [0.1]", .type = LLM_REAL, .min = 0, .max = 1e6, .fallback = .1}
#define POLICY_MEANS {"reward", "reward_deviation", "ratio", "kl_k1", "kl_k2", "kl_k3", "entropy", "clipped", "length", "truncated", "value", \
                      "value_loss", "value_clipped", "kl_coef", "baseline"}
#define POLICY_STATE {"kl_coef", "baseline"}

static const struct llm_objective_option reinforce_options[] = {
    {.name = "baseline", .arg = "B",
     .help = "what is subtracted from rewards: mean of all, rloo (mean of the prompt's others), none, exponential (mean over steps) or value [mean]",
     .type = LLM_CHOICE, .choices = "mean|rloo|none|exponential|value"},
    {.name = "baseline-decay", .arg = "X", .help = "--baseline exponential: weight of what was before [0.9]", .type = LLM_REAL, .min = 0, .max = 1,
     .fallback = .9},
    VALUE_COEF,
    POLICY_OPTIONS(2, 0),
    {.name = NULL}};
static const struct llm_objective_option ppo_options[] = {
    VALUE_COEF,
    {.name = "value-clip", .arg = "X", .help = "clip values to X around those before the first update, as ratios are; 0: not [0.2]",
     .type = LLM_REAL, .min = 0, .max = 1e6, .fallback = .2},
    {.name = "gamma", .arg = "X", .help = "discount of later rewards, per token [1]", .type = LLM_REAL, .min = 0, .max = 1, .fallback = 1},
    {.name = "lambda", .arg = "X", .help = "advantage estimation (GAE): 0 one token ahead, 1 whole completions [0.95]", .type = LLM_REAL, .min = 0,
     .max = 1, .fallback = .95},
    {.name = "advantages", .arg = "A", .help = "whiten (over all tokens: mean 0, deviation 1) or keep plain advantages [whiten]", .type = LLM_CHOICE,
     .choices = "whiten|plain"},
    CLIP_OPTIONS,
    POLICY_OPTIONS(0, 1),
    {.name = NULL}};
static const struct llm_objective_option grpo_options[] = {
    {.name = "grpo-norm", .arg = "N",
     .help = "divide a token's loss by its completion's length, by the step's tokens (none) or --context (constant) [length]",
     .type = LLM_CHOICE, .choices = "length|none|constant"},
    {.name = "grpo-scale", .arg = "S", .help = "divide advantages by the deviation of the group's rewards: group, or none [group]",
     .type = LLM_CHOICE, .choices = "group|none"},
    {.name = "ratio", .arg = "R", .help = "probability ratio that is clipped: of each token, or of the whole completion (sequence, GSPO) [token]",
     .type = LLM_CHOICE, .choices = "token|sequence"},
    CLIP_OPTIONS,
    POLICY_OPTIONS(2, 0),
    {.name = NULL}};

#define POLICY                                                                                                                                      \
    .check_options = check_options, .check = llm_objective_check_next, .create = create, .destroy = destroy, .columns = llm_rollout_columns,        \
    .record = llm_rollouts_record, .document = document, .transform = transform, .run = run, .data_per_run = true, .other_targets = true,           \
    .surveys = surveys, .begin = begin, .means = POLICY_MEANS, .state = POLICY_STATE
extern const struct llm_objective llm_objective_reinforce, llm_objective_grpo, llm_objective_ppo;
const struct llm_objective llm_objective_reinforce = {
    .name = "reinforce", .summary = "raise rewards of rollouts: REINFORCE with a baseline", .options = reinforce_options,
    .recorded = reinforce_recorded, POLICY};
const struct llm_objective llm_objective_grpo = {
    .name = "grpo", .summary = "raise rewards of rollouts: advantages in groups, clipped ratios (GRPO)", .options = grpo_options,
    .recorded = grpo_recorded, POLICY};
const struct llm_objective llm_objective_ppo = {
    .name = "ppo", .summary = "raise rewards of rollouts: advantages by a value head, clipped ratios (PPO)", .options = ppo_options,
    .recorded = ppo_recorded, POLICY};
