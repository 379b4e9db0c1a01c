/* A look at all documents before any of them changes the weights (train/trainer_internal.h). */
#include <string.h>
#include "base/signals.h"
#include "train/trainer_internal.h"

static int look(struct llm_trainer *t, struct llm_err *e)
{
    uint64_t n_documents = llm_train_data_documents(&t->data, false);
    for (uint64_t first = 0, n; first < n_documents; first += n) {
        n = n_documents - first < (uint64_t)t->eval_rows.n_rows ? n_documents - first : (uint64_t)t->eval_rows.n_rows;
        int got = 0;
        for (uint64_t i = 0; i < n && got == 0; i++) got = llm_trainer_put_document(t, &t->eval_rows, (int64_t)i, false, first + i, e);
        const struct llm_rows part = llm_rows_part(&t->eval_rows, 0, (int64_t)n);
        if (got == 0 && llm_signal_caught()) got = 1;
        if ((got = llm_trainer_agree_on_pass(t, got, e)) != 0) return got;
        if (part.counted == 0) continue;
        llm_share_begin_eval(&t->share);
        t->eval_ctx.step = (uint64_t)t->step;
        t->eval_ctx.first_row = (int64_t)first;
        if (t->objective->run(&t->eval_ctx, &t->task, &part, 1, t->token_loss, e) < 0) return -1;
        llm_ctx_reset(&t->eval_ctx);
    }
    llm_task_reset(&t->task);
    return 0;
}

int llm_trainer_survey(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_objective *o = t->objective;
    bool asked = o->surveys && o->surveys(&t->task);
    int got = 0;
    t->task.surveyed = t->data.records;
    if (asked || (o->begin && t->o.steps > t->step + 1)) got = look(t, e); /* a single step sees all documents itself */
    t->task.surveyed = NULL;
    memcpy(t->task.next_state, t->task.state, sizeof t->task.state);
    return got == 0 && o->begin ? o->begin(&t->task, t->data.records, e) : got;
}
