/* Language modelling: -log p(next token). */
#include "train/objective.h"

static int check(const struct llm_model *m, struct llm_err *e)
{
    if (!m->config.bidirectional) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "expected a model that predicts the next token, found an encoder (%s): --objective mlm trains it",
                    m->config.model_type);
}

static int run(struct llm_ctx *c, struct llm_model *m, const struct llm_rows *rows, int64_t checkpoint_every, double grad_scale, float *token_loss,
               struct llm_err *e)
{
    c->n_rows = rows->n_rows;
    c->row_len = rows->row_len;
    const struct llm_batch b = {.ids = rows->ids, .positions = rows->positions, .n_tokens = rows->n_rows * rows->row_len,
                                .doc_start = rows->documents ? rows->doc_start : NULL, .checkpoint_every = checkpoint_every};
    struct llm_tensor *hidden = llm_model_forward(c, m, &b);
    const struct llm_cross_entropy loss = {.targets = rows->targets, .logit_scale = (float)m->config.logit_scale,
                                           .logit_softcap = (float)m->config.final_logit_softcapping, .grad_scale = grad_scale,
                                           .token_nll = token_loss};
    llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    if (!llm_ctx_failed(c)) return 0;
    *e = c->err;
    return -1;
}

extern const struct llm_objective llm_objective_lm;
const struct llm_objective llm_objective_lm = {"lm", "predict the next token", check, NULL, run};
