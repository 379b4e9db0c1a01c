/* Evaluation on held-out rows (train/trainer.h). */
#include <math.h>
#include <string.h>
#include "base/signals.h"
#include "dist/group.h"
#include "train/stages.h"
#include "train/trainer_internal.h"

bool llm_trainer_has_val(const struct llm_trainer *t)
{
    return t->data.val || t->data.val_records || t->data.val_share > 0;
}

/* Makes eval_rows those of windows [w, w + n). 0 or -1. */
static int cut_windows(struct llm_trainer *t, bool file, uint64_t first, uint64_t w, uint64_t n, struct llm_err *e)
{
    const struct llm_tokens *tokens = file ? t->data.val : t->data.train;
    const uint64_t end = tokens ? llm_tokens_count(tokens) : 0, context = (uint64_t)t->o.context;
    for (uint64_t i = 0; i < n; i++) {
        if (t->documents) {
            if (llm_trainer_put_document(t, &t->eval_rows, (int64_t)i, file, first + w + i, e) < 0) return -1;
            continue;
        }
        const uint64_t at = first + (w + i) * context, left = end - at;
        llm_rows_cut(&t->eval_rows, (int64_t)i, tokens, at, (int64_t)(left < context + 1 ? left : context + 1), t->o.cross_document);
    }
    return 0;
}

int llm_trainer_end_eval(struct llm_trainer *t, struct llm_err *e)
{
    int got = -1; /* of a pass that a fault has interrupted */
    const bool in_pass = t->in_pass;
    t->in_pass = false;
    if (in_pass && (llm_trainer_say(t, e) < 0 || llm_share_end_eval(&t->share, e) < 0)) return -1;
    if (llm_stages_end_eval(t, e) < 0) return -1;
    return in_pass ? llm_trainer_leave(t, &got, e) : 0;
}

/* The pass of a member of a group. If another member has failed, the losses do not count. */
static int run_member(struct llm_trainer *t, const struct llm_rows *rows, struct llm_err *e)
{
    struct llm_err problem;
    t->in_pass = true;
    int got = t->stages ? llm_stages_eval(t, rows, e) : t->objective->run(&t->eval_ctx, &t->task, rows, 1, t->token_loss, e);
    const bool failed = got < 0;
    t->in_pass = false;
    if (llm_trainer_say(t, failed ? &problem : e) < 0 || llm_share_end_eval(&t->share, failed ? &problem : e) < 0) return -1;
    if (llm_trainer_leave(t, &got, failed ? &problem : e) < 0) return -1;
    if (failed && got == 0) memset(t->token_loss, 0, (size_t)(rows->n_rows * rows->row_len) * sizeof *t->token_loss);
    return got;
}

int llm_trainer_eval(struct llm_trainer *t, double *loss, double *bits_per_byte, struct llm_err *e)
{
    bool file = t->data.val || t->data.val_records;
    const struct llm_tokens *tokens = file ? t->data.val : t->data.train;
    uint64_t first = file ? 0 : t->order.n, end = tokens ? llm_tokens_count(tokens) : 0, context = (uint64_t)t->o.context;
    uint64_t windows = (end - first - 1 + context - 1) / context;
    if (t->documents) {
        first = file ? 0 : t->held;
        windows = llm_train_data_documents(&t->data, file) - first;
    }
    double sum = 0, bytes = 0;
    double weight = 0;
    t->eval_agreed = false;
    llm_task_reset(&t->task);
    if (t->o.eval_rows > 0 && windows > (uint64_t)t->o.eval_rows) windows = (uint64_t)t->o.eval_rows;
    for (uint64_t w = 0, n; w < windows; w += n) {
        n = windows - w < (uint64_t)t->eval_rows.n_rows ? windows - w : (uint64_t)t->eval_rows.n_rows;
        int got = cut_windows(t, file, first, w, n, e);
        struct llm_rows part = llm_rows_part(&t->eval_rows, 0, (int64_t)n);
        const struct llm_rows_key key = {(uint64_t)t->o.seed, LLM_EVAL_STEP, (int64_t)w};
        if (got == 0 && t->objective->transform && t->objective->transform(&t->task, &key, &part, e) < 0) got = -1;
        if (got == 0 && llm_signal_caught()) got = 1;
        if ((got = llm_trainer_agree_on_pass(t, got, e)) != 0) return got;
        part = llm_rows_part(&part, 0, (int64_t)n);
        if (part.counted == 0) continue;
        llm_share_begin_eval(&t->share);
        if (llm_trainer_joins(t)) got = run_member(t, &part, e);
        else got = t->stages ? llm_stages_eval(t, &part, e) : t->objective->run(&t->eval_ctx, &t->task, &part, 1, t->token_loss, e);
        if (got < 0) return -1;
        llm_ctx_reset(&t->eval_ctx);
        llm_trainer_fold(t, &part, t->token_loss, &sum, &bytes);
        weight += part.weight;
        if (!isfinite(sum)) return llm_trainer_not_finite(t, &part, sum, e);
    }
    if (!(weight > 0)) return llm_fail(e, EX_DATAERR, "validation data: expected tokens to predict, found all masked");
    for (int i = 0; i < LLM_MAX_MEANS; i++) t->val_means[i] = llm_task_mean(&t->task, i);
    llm_task_reset(&t->task);
    *loss = sum / weight;
    *bits_per_byte = bytes > 0 ? sum / log(2) / bytes : NAN;
    return 0;
}
