/* Messages about a loss or gradient that is not finite: they name the first bad tensor (train/trainer_internal.h). */
#include <math.h>
#include <stdio.h>
#include "train/trainer_internal.h"

/* Finds the first tensor that is not finite, in the order of the model. */
const char *llm_trainer_first_bad(const struct llm_trainer *t, bool gradients)
{
    for (size_t i = 0; i < t->n_params; i++) {
        const struct llm_param *p = t->params[i].p;
        const float *x = gradients ? p->grad : p->master;
        if (llm_share_pools_weights(&t->share, i) || !x) continue; /* this rank does not have all of it */
        for (int64_t k = 0, n = llm_param_count(p); k < n; k++) {
            if (!isfinite(x[k])) return p->name;
        }
    }
    return NULL;
}

/* Finds the place in the model at which the first row whose loss is not finite becomes so. */
static bool bad_activation(struct llm_trainer *t, const struct llm_rows *rows, char *name, size_t n)
{
    struct llm_ctx *c = &t->eval_ctx;
    int64_t at = 0;
    while (at < rows->n_rows * rows->row_len - 1 && isfinite(t->token_loss[at])) at++;
    struct llm_rows part = llm_rows_part(rows, at / rows->row_len, 1);
    const struct llm_batch source = llm_rows_source(&part);
    struct llm_batch b = {.ids = part.ids, .positions = part.positions, .n_tokens = part.row_len,
                          .doc_start = part.documents ? part.doc_start : NULL,
                          .prefixes = part.prefixed ? part.prefixes : NULL, .kinds = part.kinded ? part.kinds : NULL,
                          .source = t->model->config.num_encoder_layers > 0 ? &source : NULL};
    c->n_rows = 1;
    c->row_len = part.row_len;
    llm_task_show(c, &t->task, t->model, &part, &b);
    bool bad = llm_model_first_bad(c, t->model, &b, name, n);
    llm_ctx_reset(c);
    return bad;
}

int llm_trainer_norm_not_finite(const struct llm_trainer *t, double norm, const struct llm_param *bad, struct llm_err *e)
{
    const char *name = t->share.zero < 2 && !llm_trainer_joins(t) ? llm_trainer_first_bad(t, true) : NULL;
    return llm_fail(e, LLM_EX_FAILURE, "step %lld: the norm of the gradient is %s: first bad tensor: gradient of '%s'", (long long)t->step + 1,
                    isnan(norm) ? "not a number" : "infinite", name ? name : bad->name);
}

int llm_trainer_not_finite(struct llm_trainer *t, const struct llm_rows *rows, double loss, struct llm_err *e)
{
    const char *weight = llm_trainer_first_bad(t, false), *value = isnan(loss) ? "not a number" : "infinite";
    char name[200];
    long long step = (long long)t->step + 1;
    if (weight) return llm_fail(e, LLM_EX_FAILURE, "step %lld: the loss is %s: first bad tensor: weight '%s'", step, value, weight);
    if (t->stages) snprintf(name, sizeof name, "an activation, which a run without stages names");
    else if (t->o.tensor_parts > 1) snprintf(name, sizeof name, "an activation, which a run without --tensor-parts names");
    else if (!bad_activation(t, rows, name, sizeof name)) snprintf(name, sizeof name, "an activation under dropout");
    return llm_fail(e, LLM_EX_FAILURE, "step %lld: the loss is %s: first bad tensor: %s; a lower --lr or --clip may help", step, value, name);
}
