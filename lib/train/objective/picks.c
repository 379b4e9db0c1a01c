/* Losses at some positions of each row only: the head computes logits for these alone. */
#include <string.h>
#include "model/forward/watch.h"
#include "train/objective.h"

/* Rows of the hidden states that are wanted, their targets, losses and weights: [n_rows · n_picks]. */
struct wanted { int32_t *rows, *targets; float *nll, *weights; };

static int find(struct llm_ctx *c, const struct llm_rows *rows, struct wanted *w, struct llm_err *e)
{
    size_t n = (size_t)(rows->n_rows * rows->n_picks);
    w->rows = llm_arena_alloc(&c->acts, n * sizeof *w->rows);
    w->targets = llm_arena_alloc(&c->acts, n * sizeof *w->targets);
    w->nll = llm_arena_alloc(&c->acts, n * sizeof *w->nll);
    w->weights = llm_arena_alloc(&c->acts, n * sizeof *w->weights);
    if (!w->rows || !w->targets || !w->nll || !w->weights) return llm_no_memory(e, "a batch");
    for (int64_t r = 0; r < rows->n_rows; r++) {
        for (int64_t i = 0; i < rows->n_picks; i++) {
            int32_t place = rows->picks[r * rows->row_len + i];
            int64_t at = r * rows->n_picks + i;
            w->rows[at] = place < 0 ? -1 : (int32_t)(r * rows->row_len + place);
            w->targets[at] = place < 0 ? -1 : rows->targets[r * rows->row_len + place];
            w->weights[at] = place < 0 || !rows->weighted ? 1 : rows->weights[r * rows->row_len + place];
        }
    }
    return 0;
}

int llm_objective_run_picks(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss,
                           struct llm_err *e)
{
    struct llm_model *m = t->model;
    struct wanted w;
    int64_t n = rows->n_rows * rows->row_len;
    c->n_rows = rows->n_rows;
    c->row_len = rows->row_len;
    if (find(c, rows, &w, e) < 0) return -1;
    struct llm_batch b = llm_rows_batch(t, rows);
    b.doc_start = rows->documents ? rows->doc_start : NULL;
    struct llm_tensor *hidden = llm_gather(c, llm_model_forward(c, m, &b), w.rows, rows->n_rows * rows->n_picks);
    llm_watch_pick32(c, w.rows, rows->n_rows * rows->n_picks);
    hidden = llm_model_before_head(c, m, hidden);
    struct llm_cross_entropy loss = llm_task_loss(t, rows, grad_scale, w.nll);
    loss.targets = w.targets;
    loss.weights = rows->weighted ? w.weights : NULL;
    loss.logits = llm_model_watched_logits(c, hidden->rows);
    llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    if (llm_ctx_failed(c)) {
        *e = c->err;
        return -1;
    }
    memset(token_loss, 0, (size_t)n * sizeof *token_loss);
    for (int64_t i = 0; i < rows->n_rows * rows->n_picks; i++) {
        if (w.rows[i] >= 0) token_loss[w.rows[i]] = w.nll[i];
    }
    return 0;
}
