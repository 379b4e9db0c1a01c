/* The passes of a step: which rows each has, and its forward pass (train/trainer_internal.h). */
#include <string.h>
#include "train/shards.h"
#include "train/trainer_internal.h"

int64_t llm_trainer_pass_rows(const struct llm_trainer *t)
{
    return t->groups.n > 0 ? t->o.batch * t->o.context / t->rows.row_len : t->o.batch;
}

bool llm_pass_next(const struct llm_trainer *t, const struct llm_whole *whole, struct llm_shard_run run, struct llm_trainer_pass *p)
{
    const int64_t batch = llm_trainer_pass_rows(t);
    const bool begins = p->end == 0;
    p->shard = begins ? run.first : p->shard + p->ends_shard;
    if (p->shard == run.end) return false;
    p->first = begins ? whole->first + llm_shard_first(run.first, run.n, whole->n) : p->end;
    const int64_t shard_end = whole->first + llm_shard_first(p->shard + 1, run.n, whole->n);
    p->end = whole->first + ((p->first - whole->first) / batch + 1) * batch;
    if (p->end > shard_end || t->share.zero >= 2) p->end = shard_end;
    p->ends_shard = p->end == shard_end;
    return true;
}

/* The forward pass of a rank that divides rows with others. */
static int forward_own(struct llm_trainer *t, struct llm_ctx *c, const struct llm_trainer_pass *p, const struct llm_rows *rows, double scale,
                       struct llm_err *e)
{
    const int64_t whole = t->rows.row_len, own = whole / t->sequence.ranks, first = own * t->sequence.rank;
    const struct llm_rows part = llm_rows_columns(rows, first, &t->own_rows);
    const int got = t->objective->run(c, &t->task, &part, scale, t->own_loss, e);
    for (int64_t r = 0; r < part.n_rows; r++) {
        memcpy(t->token_loss + (p->first + r) * whole + first, t->own_loss + r * own, (size_t)own * sizeof *t->own_loss);
    }
    return got;
}

int llm_pass_forward(struct llm_trainer *t, struct llm_ctx *c, const struct llm_whole *whole, const struct llm_trainer_pass *p,
                     const struct llm_rows *rows, struct llm_err *e)
{
    c->step = (uint64_t)t->step;
    c->first_row = p->first;
    c->z_loss = t->main_loss_alone ? 0 : t->o.z_loss;
    c->token_weight = t->main_loss_alone ? 0 : 1.0 / (double)(whole->n * t->rows.row_len);
    if (t->sequence.ranks > 1) return forward_own(t, c, p, rows, 1.0 / whole->weight, e);
    return t->objective->run(c, &t->task, rows, 1.0 / whole->weight, t->token_loss + p->first * t->rows.row_len, e);
}
