/* Language modelling: -log p(next token). */
#include "tensor/tape.h"
#include "train/objective.h"

int llm_objective_check_next(const struct llm_model *m, struct llm_err *e)
{
    if (m->config.num_encoder_layers > 0) {
        return llm_fail(e, EX_UNAVAILABLE, "expected a model that continues texts, found an encoder-decoder (%s): --objective seq2seq trains it",
                        m->config.model_type);
    }
    if (!m->config.bidirectional) return llm_model_must_generate(m, e);
    return llm_fail(e, EX_UNAVAILABLE, "expected a model that predicts the next token, found an encoder (%s): --objective mlm trains it",
                    m->config.model_type);
}

int llm_objective_check_one(const struct llm_model *m, struct llm_err *e)
{
    if (llm_objective_check_next(m, e) < 0) return -1;
    return m->config.num_nextn_predict_layers == 0 ? 0
        : llm_fail(e, EX_UNAVAILABLE, "expected a model that predicts one token, found one that predicts further (%s)", m->config.model_type);
}

/* The token `ahead` places on from place i of its row, in the same document; -1: none. */
static int32_t token_ahead(const struct llm_rows *r, int64_t at, int64_t ahead)
{
    int64_t i = at % r->row_len, last = r->row_len - 1;
    if (i + ahead > r->row_len) return -1;
    if (i + ahead == r->row_len) return r->positions[at + last - i] == r->positions[at] + last - i ? r->targets[at + last - i] : -1;
    return r->positions[at + ahead] == r->positions[at] + ahead ? r->ids[at + ahead] : -1;
}

/* The inputs (ids) and targets of the k-th layer that predicts further, with the targets' weights. Returns the sum of the weights. */
static double look_ahead(const struct llm_rows *r, int64_t k, int32_t *ids, int32_t *targets, float *weights)
{
    double sum = 0;
    for (int64_t at = 0; at < r->n_rows * r->row_len; at++) {
        int32_t seen = token_ahead(r, at, k + 1), wanted = seen < 0 ? -1 : token_ahead(r, at, k + 2);
        bool counts = wanted >= 0 && r->targets[at + k + 1] >= 0;
        ids[at] = seen < 0 ? 0 : seen;
        targets[at] = counts ? wanted : -1;
        weights[at] = counts && r->weighted ? r->weights[at + k + 1] : 1;
        sum += counts ? (double)weights[at] : 0;
    }
    return sum;
}

/* Losses of the tokens after the next one, where the model has layers for them. */
static void predict_further(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, const struct llm_batch *b, double grad_scale,
                            struct llm_tensor *hidden)
{
    struct llm_model *m = t->model;
    int64_t n = m->config.num_nextn_predict_layers, tokens = rows->n_rows * rows->row_len;
    struct llm_cross_entropy loss = {.logit_scale = (float)m->config.logit_scale, .logit_softcap = (float)m->config.final_logit_softcapping,
                                     .grad_scale = grad_scale * m->config.mtp_loss_weight / (double)n};
    for (int64_t k = 0; k < n; k++) {
        int32_t *ids = llm_op_alloc(c, tokens, sizeof *ids), *targets = llm_op_alloc(c, tokens, sizeof *targets);
        float *weights = llm_op_alloc(c, tokens, sizeof *weights);
        if (llm_ctx_failed(c)) return;
        double weight = look_ahead(rows, k, ids, targets, weights);
        hidden = llm_model_next(c, m, k, hidden, ids, b);
        loss.targets = targets;
        loss.weights = rows->weighted ? weights : NULL;
        c->use = (int)k + 1;
        struct llm_loss l = llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
        c->use = 0;
        t->means[0].sum += l.nll;
        t->means[0].n += weight;
        t->beside += l.nll * m->config.mtp_loss_weight / (double)n;
    }
}

int llm_objective_run_next(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss,
                           struct llm_err *e)
{
    struct llm_model *m = t->model;
    struct llm_batch b;
    struct llm_tensor *hidden = llm_task_hidden(c, t, m, rows, &b);
    if (llm_model_is_cut_off(c, m)) {
        *e = c->err;
        return llm_ctx_failed(c) ? -1 : 0;
    }
    struct llm_cross_entropy loss = llm_task_loss(t, rows, grad_scale, token_loss);
    loss.logits = llm_model_watched_logits(c, b.n_tokens);
    llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    if (c->training && m->config.num_nextn_predict_layers > 0) predict_further(c, t, rows, &b, grad_scale, hidden);
    if (!llm_ctx_failed(c)) return 0;
    *e = c->err;
    return -1;
}

extern const struct llm_objective llm_objective_lm;
const struct llm_objective llm_objective_lm = {.name = "lm", .summary = "predict the next token", .check = llm_objective_check_next,
                                               .run = llm_objective_run_next, .means = {LLM_MEAN_FURTHER}};
