/* The passes of a step: which rows each has, and its forward pass (train/trainer_internal.h). */
#include <string.h>
#include "base/buf.h"
#include "train/shards.h"
#include "train/trainer_internal.h"

int64_t llm_trainer_pass_rows(const struct llm_trainer *t)
{
    return t->groups.n > 0 ? t->o.batch * t->o.context / t->rows.row_len : t->o.batch;
}

/* The next pass that has rows, or that ends a shard without. */
static bool next_rows(const struct llm_trainer *t, const struct llm_whole *whole, struct llm_shard_run run, struct llm_trainer_pass *p)
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

static int64_t count(const struct llm_trainer *t, const struct llm_whole *whole, struct llm_shard_run run)
{
    struct llm_trainer_pass p = {0};
    int64_t n = 0;
    while (next_rows(t, whole, run, &p)) n++;
    return n;
}

/* Passes that each member of the rank's group makes: as many as the one with most has. */
static int64_t count_of_group(const struct llm_trainer *t, const struct llm_whole *whole)
{
    int64_t most = 0;
    for (int m = 0; m < t->share.ep; m++) {
        const int64_t n = count(t, whole, llm_share_member_run(&t->share, m));
        most = n > most ? n : most;
    }
    return most;
}

bool llm_pass_next(const struct llm_trainer *t, const struct llm_whole *whole, struct llm_shard_run run, struct llm_trainer_pass *p)
{
    const int64_t rows_end = whole->first + llm_shard_first(run.end, run.n, whole->n);
    const bool begins = p->end == 0;
    if (begins) p->idle_left = t->share.ep > 1 ? count_of_group(t, whole) - count(t, whole, run) : 0;
    p->number = begins ? 0 : p->number + 1;
    if (!begins && p->end == rows_end && p->idle_left > 0) {
        p->idle = true;
        p->first = p->end;
        p->ends_shard = --p->idle_left == 0 || t->share.zero >= 2;
        return true;
    }
    if (p->idle || !next_rows(t, whole, run, p)) return false;
    if (p->end == rows_end && p->idle_left > 0 && t->share.zero < 2) p->ends_shard = false; /* the idle passes count to the last shard */
    return true;
}

int llm_pass_place_members(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_whole whole = {0, t->o.batch * t->o.accumulate, 1};
    struct llm_share *s = &t->share;
    s->n_passes = count_of_group(t, &whole);
    s->member_ends = llm_calloc((size_t)(s->n_passes * s->ep), sizeof *s->member_ends, "the ranks' shares", e);
    t->idle_targets = llm_alloc((size_t)t->rows.row_len, sizeof *t->idle_targets, "losses", e);
    t->idle_loss = llm_calloc((size_t)t->rows.row_len, sizeof *t->idle_loss, "losses", e);
    s->aside = llm_calloc(t->n_params, sizeof *s->aside, "the ranks' shares", e);
    if (!s->member_ends || !t->idle_targets || !t->idle_loss || !s->aside) return -1;
    for (int64_t i = 0; i < t->rows.row_len; i++) t->idle_targets[i] = -1;
    for (int m = 0; m < s->ep; m++) {
        struct llm_trainer_pass p = {0};
        while (llm_pass_next(t, &whole, llm_share_member_run(s, m), &p)) {
            s->member_ends[m * s->n_passes + p.number] = p.ends_shard ? p.shard : -1;
        }
    }
    return 0;
}

struct llm_rows llm_pass_rows(const struct llm_trainer *t, const struct llm_trainer_pass *p)
{
    if (!p->idle) return llm_rows_part(&t->rows, p->first, p->end - p->first);
    struct llm_rows part = llm_rows_part(&t->rows, 0, 1);
    part.targets = t->idle_targets;
    part.n_picks = 0;
    return part;
}

/* The forward pass of an idle pass: nothing counts. */
static int forward_idle(struct llm_trainer *t, struct llm_ctx *c, const struct llm_rows *rows, struct llm_rows *own, struct llm_err *e)
{
    struct llm_task *k = &t->task;
    struct llm_mean means[LLM_MAX_MEANS];
    const double beside = k->beside;
    memcpy(means, k->means, sizeof means);
    c->first_row = 0;
    c->z_loss = c->token_weight = 0;
    const int64_t first = t->rows.row_len / t->share.cp * t->sequence.rank;
    const struct llm_rows part = t->sequence.ranks > 1 ? llm_rows_columns(rows, first, own) : *rows;
    const int got = t->objective->run(c, k, &part, 1, t->idle_loss, e);
    memcpy(k->means, means, sizeof means);
    k->beside = beside;
    return got;
}

void llm_pass_backward(struct llm_trainer *t, struct llm_ctx *c, const struct llm_trainer_pass *p)
{
    const struct llm_router_report routers = t->task.routers;
    if (p->idle) llm_share_set_aside(&t->share);
    llm_backward(c);
    if (!p->idle) return;
    llm_share_take_back(&t->share);
    t->task.routers = routers;
}

/* The forward pass of a rank that divides rows with others. */
static int forward_own(struct llm_trainer *t, struct llm_ctx *c, const struct llm_trainer_pass *p, const struct llm_rows *rows,
                       struct llm_rows *own_rows, double scale, struct llm_err *e)
{
    const int64_t whole = t->rows.row_len, own = whole / t->sequence.ranks, first = own * t->sequence.rank;
    const struct llm_rows part = llm_rows_columns(rows, first, own_rows);
    const int got = t->objective->run(c, &t->task, &part, scale, t->own_loss, e);
    for (int64_t r = 0; r < part.n_rows; r++) {
        memcpy(t->token_loss + (p->first + r) * whole + first, t->own_loss + r * own, (size_t)own * sizeof *t->own_loss);
    }
    return got;
}

int llm_pass_forward(struct llm_trainer *t, struct llm_ctx *c, const struct llm_whole *whole, const struct llm_trainer_pass *p,
                     const struct llm_rows *rows, struct llm_rows *own, struct llm_err *e)
{
    c->step = (uint64_t)t->step;
    if (llm_share_begin_forward(&t->share, e) < 0) return -1;
    if (p->idle) return forward_idle(t, c, rows, own, e);
    c->first_row = p->first;
    c->z_loss = t->main_loss_alone ? 0 : t->o.z_loss;
    c->token_weight = t->main_loss_alone ? 0 : 1.0 / (double)(whole->n * t->rows.row_len);
    if (t->sequence.ranks > 1) return forward_own(t, c, p, rows, own, 1.0 / whole->weight, e);
    return t->objective->run(c, &t->task, rows, 1.0 / whole->weight, t->token_loss + p->first * t->rows.row_len, e);
}
