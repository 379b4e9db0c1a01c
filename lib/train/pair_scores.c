#include "train/pair_scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tensor/tape.h"

int llm_pair_scores_check_options(const struct llm_train_options *o, struct llm_err *e)
{
    double beta = llm_option_real(o, "beta");
    if (!(beta > 0)) return llm_fail(e, LLM_EX_USAGE, "beta: expected a number above 0, found %g", beta);
    if (o->z_loss > 0) return llm_fail(e, LLM_EX_USAGE, "--z-loss: expected 0: tokens have no loss of their own, found %g", o->z_loss);
    return 0;
}

int llm_pair_scores_init(struct llm_pair_scores *s, struct llm_task *t, const char *path, struct llm_err *e)
{
    if (!(s->reference = llm_task_load(t, "--reference", path, e))) return -1;
    if (llm_ctx_init(&s->ctx, (size_t)1 << 40, (size_t)1 << 30, false, e) < 0) return -1;
    s->ctx.compute = (enum llm_compute)t->o.precision;
    s->ctx.seed = (uint64_t)t->o.seed;
    return 0;
}

void llm_pair_scores_release(struct llm_pair_scores *s)
{
    llm_ctx_release(&s->ctx);
    free(s->pairs);
}

/* Room for the pairs of a pass. */
static int reserve(struct llm_pair_scores *s, int64_t n, struct llm_err *e)
{
    if (n <= s->n_pairs) return 0;
    free(s->pairs);
    s->n_pairs = 0;
    s->pairs = llm_calloc((size_t)n, sizeof *s->pairs, "preferences", e);
    if (!s->pairs) return -1;
    s->n_pairs = n;
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
        (policy ? pairs[r / 2].policy : pairs[r / 2].reference)[r % 2] = llm_pairs_kept(sum);
        pairs[r / 2].n[r % 2] = n;
    }
}

/* The reference's log-probabilities: the data's columns, else computed. `rows`: the texts of the pairs. */
static int refer(struct llm_pair_scores *s, struct llm_task *t, const struct llm_rows *pairs, const struct llm_rows *rows, float *nll,
                 struct llm_err *e)
{
    bool given = true;
    for (int64_t r = 0; r < pairs->n_rows; r++) {
        for (int i = 0; i < 2; i++) {
            float low = pairs->column[2 + i][r];
            s->pairs[r].reference[i] = (double)pairs->column[i][r] + (isnan(low) ? 0 : (double)low);
            given &= !isnan(pairs->column[i][r]);
        }
    }
    if (given) return 0;
    if (!s->reference) {
        return llm_fail(e, LLM_EX_USAGE, "expected a reference: --reference MODEL, --init MODEL, or its log-probabilities in the data");
    }
    struct llm_batch b;
    struct llm_ctx *c = &s->ctx;
    struct llm_model *m = s->reference;
    struct llm_tensor *hidden = llm_task_hidden(c, t, m, rows, &b);
    const struct llm_cross_entropy loss = {.targets = rows->targets, .bias = llm_model_head_bias(m), .logit_scale = (float)m->config.logit_scale,
                                           .logit_softcap = (float)m->config.final_logit_softcapping, .token_nll = nll, .no_gradient = true};
    llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    bool failed = llm_ctx_failed(c);
    if (failed) *e = c->err;
    llm_ctx_reset(c);
    if (failed) return llm_in(e, "--reference");
    sum_rows(rows, nll, s->pairs, false);
    return 0;
}

int llm_pair_scores_run(struct llm_pair_scores *s, struct llm_ctx *c, struct llm_task *t, const struct llm_rows *pairs, double grad_scale,
                        bool refers, llm_pair_judge *judge, float *token_loss, struct llm_err *e)
{
    struct llm_model *m = t->model;
    struct llm_rows rows;
    struct llm_batch b;
    int64_t tokens = 2 * pairs->n_rows * pairs->row_len;
    if (reserve(s, pairs->n_rows, e) < 0 || llm_pairs_rows(c, pairs, &rows, e) < 0) return -1;
    float *nll = llm_op_alloc(c, tokens, sizeof *nll), *weights = llm_op_alloc(c, tokens, sizeof *weights);
    if (!nll || !weights) {
        *e = c->err;
        return -1;
    }
    if (refers && refer(s, t, pairs, &rows, nll, e) < 0) return -1;
    c->first_row *= 2;
    c->token_weight /= 2; /* there are twice the tokens */
    struct llm_tensor *hidden = llm_task_hidden(c, t, m, &rows, &b);
    struct llm_cross_entropy loss = llm_task_loss(t, &rows, grad_scale, nll);
    loss.no_gradient = true;
    llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    if (!llm_ctx_failed(c)) {
        sum_rows(&rows, nll, s->pairs, true);
        memset(weights, 0, (size_t)tokens * sizeof *weights);
        memset(token_loss, 0, (size_t)(tokens / 2) * sizeof *token_loss);
        judge(t, pairs, &rows, weights, token_loss);
        loss.no_gradient = false;
        loss.weights = weights;
        if (c->tape) llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    }
    if (!llm_ctx_failed(c)) return 0;
    *e = c->err;
    return -1;
}
