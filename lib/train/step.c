/* One step: the gradient of its rows, pass by pass, and the update (train/trainer.h). */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/signals.h"
#include "model/weights/model.h"
#include "train/stages.h"
#include "train/shards.h"
#include "train/trainer_internal.h"

void llm_trainer_fold(const struct llm_trainer *t, const struct llm_rows *rows, const float *loss, double *sum, double *bytes)
{
    for (int64_t i = 0; i < rows->n_rows * rows->row_len; i++) {
        if (rows->targets[i] < 0) continue;
        double weight = rows->weighted ? (double)rows->weights[i] : 1;
        *sum += weight * (double)loss[i];
        if (t->piece_bytes && !t->objective->other_targets) *bytes += weight * t->piece_bytes[rows->targets[i]];
    }
}

struct llm_step_report llm_step_report_none(int64_t step)
{
    struct llm_step_report r = {.step = step, .loss = NAN, .bits_per_byte = NAN, .lr = NAN, .grad_norm = NAN, .router_balance = NAN,
                                .router_peak = NAN, .router_z = NAN, .router_dropped = NAN, .comm_seconds = NAN,
                                .comm_bytes = NAN, .comm_hidden = NAN};
    for (int i = 0; i < LLM_MAX_MEANS; i++) r.means[i] = NAN;
    return r;
}

void llm_trainer_forget(struct llm_trainer *t)
{
    llm_task_reset(&t->task);
    for (size_t i = 0; i < t->n_params; i++) {
        struct llm_param *p = t->params[i].p;
        if (!p->grad) continue; /* another stage has it */
        const size_t apart = llm_share_gradient_floats(&t->share, i);
        memset(p->grad, 0, apart * sizeof(float));
        if (p->grad_lookup) memset(p->grad_lookup, 0, apart * sizeof(float));
        llm_lookups_forget(p);
        for (int u = 0; u < p->n_grad_uses; u++) {
            if (p->grad_use[u]) memset(p->grad_use[u], 0, (size_t)llm_param_count(p) * sizeof(float));
        }
    }
}

/* What the step's passes saw goes to its report. */
static void report_task(struct llm_trainer *t, struct llm_step_report *r)
{
    const struct llm_router_report *q = &t->task.routers;
    double tokens = q->tokens > 0 ? (double)q->tokens : NAN;
    r->router_balance = q->balance / tokens;
    r->router_peak = q->peak / tokens;
    r->router_z = q->z / tokens;
    r->router_dropped = (double)q->dropped / (tokens * (double)t->model->config.num_experts_per_tok);
    for (int i = 0; i < LLM_MAX_MEANS; i++) r->means[i] = llm_task_mean(&t->task, i);
    llm_task_reset(&t->task);
}

/* The rest of the report of a step whose loss is known, over texts of `bytes` bytes. */
static void report_step(struct llm_trainer *t, double loss, double bytes, struct llm_step_report *r)
{
    report_task(t, r);
    r->loss = loss;
    r->bits_per_byte = bytes > 0 ? loss * t->rows.weight / log(2) / bytes : NAN;
    r->tokens = t->rows.n_rows * t->rows.row_len;
    t->tokens += (uint64_t)t->rows.counted;
}

/* Adds the gradient of a pass. 0, 1 (a signal was caught) or -1. */
static int run_pass(struct llm_trainer *t, const struct llm_whole *whole, const struct llm_trainer_pass *p, struct llm_err *e)
{
    struct llm_rows part = llm_pass_rows(t, p);
    if (llm_pass_forward(t, &t->ctx, whole, p, &part, &t->own_rows, e) < 0) return -1;
    llm_pass_backward(t, &t->ctx, p);
    if (llm_ctx_failed(&t->ctx)) {
        *e = t->ctx.err;
        return -1;
    }
    llm_ctx_reset(&t->ctx);
    return llm_signal_caught() ? 1 : 0;
}

/* The gradient of those rows that lie in the run of shards. Gradients of replicas stay where they are. */
static int run_shards(struct llm_trainer *t, const struct llm_whole *whole, struct llm_shard_run run, struct llm_err *e)
{
    const bool apart = t->outer.replicas;
    struct llm_trainer_pass p = {0};
    int got = 0;
    while (got == 0 && llm_pass_next(t, whole, run, &p)) {
        if ((p.end > p.first || p.idle) && !apart) llm_share_begin(&t->share, p.shard, p.ends_shard);
        if (p.end > p.first || p.idle) got = run_pass(t, whole, &p, e);
        if (got == 0) llm_share_end_members(&t->share, p.number, -1);
        if (got || !p.ends_shard) continue;
        if (apart) llm_shard_end(t->params, t->n_params, p.shard, run);
        else got = llm_share_end(&t->share, p.shard, -1, e);
    }
    return got;
}

int llm_trainer_agree(struct llm_trainer *t, int got, struct llm_err *e)
{
    return llm_comm_agree(t->comm, got, NULL, e);
}

/* With stages, what comes before all messages of a step. */
static int take_rows(void *arg, struct llm_err *e)
{
    struct llm_trainer *t = arg;
    const int got = llm_trainer_rows(t, e);
    return got ? got : llm_stages_prepare(t, &(struct llm_whole){0, t->rows.n_rows, t->rows.weight}, e);
}

/* What of a step's rows a rank does without others; with stages, with those of its replica. */
static int run_own(void *arg, struct llm_err *e)
{
    struct llm_trainer *t = arg;
    int got = t->stages ? 0 : llm_trainer_rows(t, e);
    const struct llm_whole step = {0, t->rows.n_rows, t->rows.weight};
    if (got == 0) got = t->stages ? llm_stages_run(t, &step, e) : run_shards(t, &step, t->share.run, e);
    if (got == 0 && llm_fault_check_sizes(NULL) < 0) got = 1;
    return got;
}

/* Statistics of all ranks' passes, added in the order of ranks: the means that the objective names, and those of routers. */
static int join_reports(struct llm_trainer *t, struct llm_err *e)
{
    struct llm_task *k = &t->task;
    const size_t routers = t->model->config.num_experts > 0 ? sizeof k->routers : 0;
    size_t means = 0;
    while (means < LLM_MAX_MEANS && t->objective->means[means]) means++;
    const size_t each = means * sizeof *k->means + routers;
    char *all = llm_calloc((size_t)t->share.n, each + 1, "reports", e);
    if (!all) return llm_comm_give_up(t->comm);
    char *mine = all + (size_t)t->share.rank * each;
    memcpy(mine, k->means, means * sizeof *k->means);
    memcpy(mine + means * sizeof *k->means, &k->routers, routers);
    if (llm_comm_gather_even(t->comm, all, each, e) < 0) {
        free(all);
        return -1;
    }
    llm_task_reset(k);
    for (int q = 0; q < t->share.n; q += t->share.tp) { /* the members of a group have the same */
        struct llm_mean m[LLM_MAX_MEANS];
        struct llm_router_report r = {0};
        memcpy(m, all + (size_t)q * each, means * sizeof *m);
        memcpy(&r, all + (size_t)q * each + means * sizeof *m, routers);
        for (size_t i = 0; i < means; i++) {
            k->means[i].sum += m[i].sum;
            k->means[i].n += m[i].n;
        }
        k->routers.balance += r.balance;
        k->routers.peak += r.peak;
        k->routers.z += r.z;
        k->routers.dropped += r.dropped;
        k->routers.tokens += r.tokens;
    }
    free(all);
    return 0;
}

/* Makes the ranks' results of a step one, and what signal any of them has caught. */
static int agree_on_step(struct llm_trainer *t, int got, struct llm_err *e)
{
    llm_signals_hold(false);
    t->signal = llm_signal_caught();
    llm_signals_hold(true);
    return llm_comm_agree(t->comm, got, &t->signal, e);
}

/* The rank's rows, and what of the others' the report and the next step need. 0, 1 or -1: then on all ranks. */
static int run_shared(struct llm_trainer *t, struct llm_err *e)
{
    struct llm_err problem;
    int got = 0;
    /* Stages must have the same rows before they exchange what is computed from them. */
    if (t->stages && (got = llm_trainer_agree(t, llm_fault_guard(take_rows, t, e), e)) != 0) return got;
    got = llm_fault_guard(run_own, t, e);
    if (llm_trainer_say(t, got < 0 ? &problem : e) < 0) got = -1;
    if (llm_share_post_weights(&t->share, got < 0 ? &problem : e) < 0) got = -1;
    if (t->stages && llm_stages_finish(t, got < 0 ? &problem : e) < 0) got = -1;
    /* Members may wait for the gradients of a rank that has failed. */
    if (llm_share_finish(&t->share, got < 0 ? &problem : e) < 0) got = -1;
    if (llm_trainer_leave(t, &got, got < 0 ? &problem : e) < 0) got = -1;
    if (got < 0 && t->share.err.status != 0) *e = t->share.err; /* what broke the connection while the rank waited for something else */
    if ((got = agree_on_step(t, got, e)) != 0) return got;
    const size_t row = (size_t)t->rows.row_len * sizeof *t->token_loss, state = (size_t)t->rows.state_floats * sizeof **t->carried;
    if (t->share.cp > 1) return llm_share_tokens(&t->share, t->token_loss, t->rows.n_rows, t->rows.row_len, e) < 0 ? -1 : join_reports(t, e);
    if (llm_share_rows(&t->share, t->token_loss, t->rows.n_rows, row, e) < 0) return -1;
    if (t->carried[1] && llm_share_rows(&t->share, t->carried[1], t->rows.n_rows, state, e) < 0) return -1;
    return join_reports(t, e);
}

int llm_trainer_gradient(struct llm_trainer *t, struct llm_step_report *r, struct llm_err *e)
{
    const struct llm_param *bad;
    double bytes = 0, loss = 0;
    int got = t->comm ? run_shared(t, e) : run_own(t, e);
    if (got == 0 && !t->comm) got = llm_share_finish(&t->share, e);
    if (got) return got;
    llm_trainer_fold(t, &t->rows, t->token_loss, &loss, &bytes);
    loss /= t->rows.weight;
    if (!isfinite(loss)) return llm_trainer_not_finite(t, &t->rows, loss, e);
    if (t->share.zero == 0 && llm_share_gather(&t->share, e) < 0) return -1;
    if (t->o.keep_zeros) llm_grad_keep_zeros(t->params, t->n_params);
    if (llm_share_norm(&t->share, &r->grad_norm, &bad, e) < 0) return -1;
    if (!isfinite(r->grad_norm)) {
        if (t->share.zero == 1 && t->share.lanes == 1 && !llm_trainer_joins(t) && llm_share_gather(&t->share, e) < 0) return -1;
        return llm_trainer_norm_not_finite(t, r->grad_norm, bad, e);
    }
    report_step(t, loss, bytes, r);
    return 0;
}

/* What the step does to weights whose gradient has this norm and was made in so many passes. */
static struct llm_update update_of(const struct llm_trainer *t, double lr, double norm, int64_t passes)
{
    const struct llm_train_options *o = &t->o;
    double n = (double)(t->step + 1), clip = o->clip > 0 && norm > o->clip ? o->clip / norm : 1;
    return (struct llm_update){
        .step = {.lr = lr, .clip = clip, .weight_decay = o->weight_decay, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps,
                 .correction1 = 1 - pow(o->beta1, n), .correction2 = 1 - pow(o->beta2, n), .momentum = o->momentum, .nesterov = o->nesterov > 0},
        .matrix_lr = o->lr > 0 ? o->muon_lr * (lr / o->lr) : 0,
        .muon_scale = (enum llm_muon_scale)o->muon_scale, .compute = (enum llm_compute)o->precision, .work = t->work, .ema = o->ema,
        .passes = passes};
}

/* Whether something reads all weights before the next forward pass does. */
static bool reads_all(const struct llm_trainer *t)
{
    return t->hashes_step || t->o.ema > 0 || t->model->lora || t->objective->updated;
}

/* Each rank what it owns, which then travels to the others. */
static int update(struct llm_trainer *t, const struct llm_step_report *r, struct llm_err *e)
{
    const struct llm_update u = update_of(t, r->lr, r->grad_norm, t->o.accumulate);
    int got = llm_params_update(t->params, t->n_params, &u, e);
    if (t->share.zero == 0) return got;
    if ((got = llm_trainer_agree(t, got, e)) < 0 || llm_share_changed(&t->share, e) < 0) return -1;
    if (reads_all(t) && llm_share_wait_weights(&t->share, e) < 0) return -1;
    for (size_t i = 0; i < t->n_params; i++) llm_weight_changed(&t->params[i].p->weight);
    llm_params_average(t->params, t->n_params, u.ema);
    return 0;
}

/* ---- replicas (train/outer.h) ---- */

struct replica_report { double loss, bytes, norm; };

/* A step of one replica on its rows. */
static int step_replica(struct llm_trainer *t, int64_t replica, double lr, struct replica_report *r, struct llm_err *e)
{
    const struct llm_shard_run all = {0, t->o.grad_shards, t->o.grad_shards};
    const int64_t n = t->rows.n_rows / t->outer.n, first = replica * n;
    const struct llm_rows rows = llm_rows_part(&t->rows, first, n);
    const struct llm_whole whole = {first, n, rows.weight > 0 ? rows.weight : 1};
    const struct llm_param *bad;
    llm_outer_enter(&t->outer, replica);
    if (run_shards(t, &whole, all, e) != 0) return -1;
    llm_trainer_fold(t, &rows, t->token_loss + first * t->rows.row_len, &r->loss, &r->bytes);
    if (!isfinite(r->loss)) return llm_trainer_not_finite(t, &t->rows, r->loss, e);
    if (t->o.keep_zeros) llm_grad_keep_zeros(t->params, t->n_params);
    r->norm = llm_grad_norm(t->params, t->n_params, &bad);
    if (!isfinite(r->norm)) return llm_trainer_norm_not_finite(t, r->norm, bad, e);
    const struct llm_update u = update_of(t, lr, r->norm, n / t->o.batch);
    return llm_params_update(t->params, t->n_params, &u, e);
}

/* The step of the rank's replicas: what of a step a rank does without others. `reports` [replicas]. */
struct apart { struct llm_trainer *t; double lr; struct replica_report *reports; };

static int step_own(void *arg, struct llm_err *e)
{
    const struct apart *w = arg;
    struct llm_trainer *t = w->t;
    int got = llm_trainer_rows(t, e);
    if (got == 0 && llm_fault_check_sizes(NULL) < 0) got = 1;
    if (got) return got;
    t->outer.under_way = true; /* from here on a step that is not done is not dropped: the run fails */
    llm_signals_hold(true);
    for (int64_t k = t->share.run.first; k < t->share.run.end && got == 0; k++) got = step_replica(t, k, w->lr, &w->reports[k], e);
    return got;
}

/* The step of all replicas, and the outer step if it is due. Signals wait for its end. */
static int step_apart(struct llm_trainer *t, struct llm_step_report *r, struct llm_err *e)
{
    struct replica_report *reports = llm_calloc((size_t)t->outer.n, sizeof *reports, "reports", e);
    int got = reports ? 0 : -1;
    if (got == 0) got = llm_fault_guard(step_own, &(struct apart){t, r->lr, reports}, e);
    if (t->outer.under_way) llm_outer_leave(&t->outer);
    if (got > 0 && !t->ended && (t->comm || t->outer.under_way)) got = llm_fault_check(e); /* other replicas may have taken the step */
    llm_signals_hold(t->comm != NULL);
    if (t->comm) got = agree_on_step(t, got, e);
    if (got == 0) got = llm_share_rows(&t->share, reports, t->outer.n, sizeof *reports, e);
    if (got == 0 && t->comm) got = join_reports(t, e);
    if (got == 0 && (t->step + 1) % t->o.inner_steps == 0) got = llm_outer_step(&t->outer, e);
    double loss = 0, bytes = 0;
    r->grad_norm = 0;
    for (int64_t k = 0; got == 0 && k < t->outer.n; k++) {
        loss += reports[k].loss;
        bytes += reports[k].bytes;
        r->grad_norm += reports[k].norm / (double)t->outer.n;
    }
    free(reports);
    if (got) return got;
    report_step(t, loss / t->rows.weight, bytes, r);
    t->outer.under_way = false;
    return 0;
}

/* A signal that another rank caught is this rank's too: the run then ends as one process does. */
static void share_signal(const struct llm_trainer *t)
{
    if (t->signal == 0) return;
    llm_signals_hold(false);
    if (!llm_signal_caught()) raise(t->signal);
}

static int survey(void *t, struct llm_err *e)
{
    return llm_trainer_survey(t, e);
}

/* Every rank looks at all documents. */
static int survey_shared(struct llm_trainer *t, struct llm_err *e)
{
    if (llm_share_wait_weights(&t->share, e) < 0) return -1;
    if (!t->comm) return llm_trainer_survey(t, e);
    struct llm_err problem;
    t->eval_agreed = false;
    int got = llm_fault_guard(survey, t, e);
    if (t->eval_agreed) return got;
    if (llm_share_end_eval(&t->share, got < 0 ? &problem : e) < 0) got = -1;
    return llm_trainer_agree(t, got, e);
}

int llm_trainer_step(struct llm_trainer *t, struct llm_step_report *r, struct llm_err *e)
{
    double started = llm_now();
    const struct llm_train_options *o = &t->o;
    const struct llm_schedule_options rates = {.steps = o->steps, .warmup = o->warmup, .lr = o->lr, .min_lr = o->min_lr,
                                               .decay_fraction = o->decay_fraction, .decay_style = (enum llm_decay_style)o->decay_style};
    *r = (struct llm_step_report){.step = t->step + 1, .lr = llm_schedule_lr(t->schedule, t->step, &rates)};
    char place[64];
    snprintf(place, sizeof place, "step %lld", (long long)t->step + 1);
    llm_comm_set_place(t->comm, place);
    bool first = t->data_per_run && t->data.records && (uint64_t)t->step == t->task.first_step;
    int dropped = first ? survey_shared(t, e) : 0;
    if (dropped == 0) dropped = t->outer.replicas ? step_apart(t, r, e) : llm_trainer_gradient(t, r, e);
    if (dropped) {
        struct llm_err ignored;
        llm_trainer_forget(t);
        if (llm_share_wait_weights(&t->share, dropped < 0 ? &ignored : e) < 0) return -1;
        return dropped;
    }
    if (!t->outer.replicas && update(t, r, e) < 0) return -1;
    if (t->objective->updated) t->objective->updated(&t->task);
    llm_model_changed(t->model);
    if (first) memcpy(t->task.state, t->task.next_state, sizeof t->task.state);
    t->step++;
    t->sample += llm_trainer_samples(t);
    float *behind = t->carried[1];
    t->carried[1] = t->carried[0];
    t->carried[0] = behind;
    if (t->data.feed && !o->overfit_one && llm_feed_advance(t->data.feed, (uint64_t)r->tokens, e) < 0) return -1;
    share_signal(t);
    const struct llm_comm_report moved = llm_comm_take_report(t->comm);
    r->comm_seconds = t->comm ? moved.seconds : NAN;
    r->comm_bytes = t->comm ? moved.bytes : NAN;
    r->comm_hidden = llm_share_hidden(&t->share);
    r->seconds = llm_now() - started;
    r->activation_bytes = llm_ctx_peak_bytes(&t->ctx) + llm_stages_bytes(t->stages);
    return 0;
}
