#include "train/loop.h"

#include <math.h>
#include <stdio.h>
#include "base/fault.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "cpu/profile.h"

static int save_average(struct llm_loop *l, struct llm_err *e)
{
    if (!l->ema_output) return 0;
    llm_trainer_swap_ema(l->t);
    int got = llm_trainer_save(l->t, l->ema_output, l->ema_as, e);
    llm_trainer_swap_ema(l->t);
    return got;
}

int llm_loop_save(struct llm_loop *l, struct llm_err *e)
{
    if (!l->output) return llm_share_wait_weights(&l->t->share, e) < 0 ? -1 : save_average(l, e);
    double started = llm_now();
    LLM_PROFILE("save", 0);
    if (llm_trainer_save(l->t, l->output, l->output_as, e) < 0 || save_average(l, e) < 0) return -1;
    if (l->snapshots) llm_snapshots_remove(l->snapshots);
    llm_verbose("step %lld: saved in %.2f s", (long long)l->t->step, llm_now() - started);
    return 0;
}

/* After a step: what is due of a checkpoint, or else of a snapshot. If a snapshot fails, the run is saved before that is reported. */
static int keep(struct llm_loop *l, struct llm_err *e)
{
    const struct llm_trainer *t = l->t;
    struct llm_err problem;
    if (t->step >= t->o.steps) return 0; /* the end saves */
    if (l->save_every > 0 && t->step % l->save_every == 0) return llm_loop_save(l, e);
    if (!l->snapshots || t->step % l->snapshots->every != 0 || llm_snapshots_take(l->snapshots, l->t, &problem) == 0) return 0;
    if (llm_comm_broken(t->comm) || llm_loop_save(l, e) == 0) *e = problem;
    return -1;
}

struct step { struct llm_trainer *t; struct llm_step_report *r; };
struct evaluation { struct llm_trainer *t; double *loss, *bits; };

static int take_step(void *arg, struct llm_err *e)
{
    struct step *s = arg;
    return llm_trainer_step(s->t, s->r, e);
}

static int take_eval(void *arg, struct llm_err *e)
{
    struct evaluation *v = arg;
    return llm_trainer_eval(v->t, v->loss, v->bits, e);
}

/* 1: a signal was caught, or the data shrank; the step is dropped. Data is read before a step changes anything. */
static int guarded_step(struct llm_trainer *t, struct llm_step_report *r, struct llm_err *e)
{
    int64_t before = t->step;
    const bool guards = t->comm || t->outer.replicas; /* then the step itself guards what it can drop */
    int got = guards ? llm_trainer_step(t, r, e) : llm_fault_guard(take_step, &(struct step){t, r}, e);
    if (got > 0 && t->step == before) llm_trainer_forget(t);
    return got;
}

/* 1: a signal was caught. */
static int evaluate(struct llm_loop *l, const struct llm_step_report *r, double *loss, double *bits, struct llm_err *e)
{
    struct llm_trainer *t = l->t;
    if (llm_share_wait_weights(&t->share, e) < 0) return -1;
    if (t->o.eval_ema) llm_trainer_swap_ema(t);
    int got = llm_fault_guard(take_eval, &(struct evaluation){t, loss, bits}, e);
    if (t->o.eval_ema) llm_trainer_swap_ema(t);
    if (got == 0 && llm_fault_check_sizes(NULL) < 0) got = 1;
    struct llm_err problem;
    if (!t->eval_agreed && llm_trainer_end_eval(t, got < 0 ? &problem : e) < 0) got = -1;
    if (!t->eval_agreed && llm_share_end_eval(&t->share, got < 0 ? &problem : e) < 0) got = -1;
    if (!t->eval_agreed) got = llm_trainer_agree(t, got, e);
    if (got) return got;
    char text[48] = "", trained[48] = "";
    if (!isnan(r->loss)) snprintf(trained, sizeof trained, "loss %.4f, ", r->loss);
    if (!isnan(*bits)) snprintf(text, sizeof text, " (%.4f bits per byte)", *bits);
    if (!isnan(t->val_means[0])) snprintf(text, sizeof text, ", %s %.4f", t->objective->means[0], t->val_means[0]);
    llm_note("step %lld: %svalidation %.4f%s", (long long)t->step, trained, *loss, text);
    t->eval_step = t->step;
    if (*loss >= t->best_loss) return 0;
    t->best_loss = *loss;
    t->best_step = t->step;
    if (!l->best) return 0;
    if (t->o.eval_ema) llm_trainer_swap_ema(t);
    got = llm_trainer_save(t, l->best, l->best_as, e);
    if (t->o.eval_ema) llm_trainer_swap_ema(t);
    return got;
}

/* Whether the step's line of the log has the hash of the weights: also if the run can be resumed there. */
static bool hash_due(const struct llm_loop *l, int64_t step)
{
    return l->logs && (step % l->hash_every == 0 || step == l->t->o.steps || (l->save_every > 0 && step % l->save_every == 0));
}

static bool eval_due(const struct llm_trainer *t)
{
    bool due = t->ended || t->step == t->o.steps || (t->o.eval_every > 0 && t->step % t->o.eval_every == 0);
    return due && t->step > 0 && t->step != t->eval_step && llm_trainer_has_val(t);
}

int llm_loop_step(struct llm_loop *l, struct llm_step_report *r, struct llm_err *e)
{
    struct llm_trainer *t = l->t;
    double val = NAN, bits = NAN;
    struct llm_step_report now;
    t->hashes_step = hash_due(l, t->step + 1);
    int got = guarded_step(t, &now, e);
    if (got) return got;
    *r = now;
    if (eval_due(t) && (got = evaluate(l, r, &val, &bits, e)) < 0) return got;
    struct llm_err problem;
    if (t->hashes_step && llm_trainer_update_hash(t, e) < 0) return -1;
    if (llm_trainer_agree(t, llm_metrics_step(l->metrics, t, r, val, bits, &problem), &problem) < 0) {
        bool lost = llm_comm_broken(t->comm); /* what the ranks have in parts cannot be saved then */
        if (lost || llm_loop_save(l, e) == 0) *e = problem;
        return -1;
    }
    return got ? got : keep(l, e);
}

/* An evaluation that no step brings with it; a line of its own in the log. 1: a signal was caught. */
static int late_eval(struct llm_loop *l, const struct llm_step_report *r, struct llm_err *e)
{
    double val, bits;
    const struct llm_step_report alone = llm_step_report_none(l->t->step);
    int got = evaluate(l, r, &val, &bits, e);
    l->t->hashes_step = l->logs;
    if (got == 0 && l->logs) got = llm_trainer_update_hash(l->t, e);
    return got ? got : llm_trainer_agree(l->t, llm_metrics_step(l->metrics, l->t, &alone, val, bits, e), e);
}

int llm_loop_run(struct llm_loop *l, struct llm_err *e)
{
    struct llm_trainer *t = l->t;
    struct llm_step_report r = {.loss = NAN};
    struct llm_progress bar;
    double started = llm_now();
    int64_t first = t->step, tokens = 0;
    int got = eval_due(t) ? late_eval(l, &r, e) : 0; /* a signal came between a step and its evaluation */
    if (got == 0 && l->snapshots && t->step == 0) got = llm_loop_save(l, e); /* what snapshots complete */
    llm_progress_start(&bar, "train", "tokens", (t->o.steps - first) * t->rows.room_tokens);
    while (got == 0 && t->step < t->o.steps && !llm_signal_caught()) {
        char note[64];
        got = llm_loop_step(l, &r, e);
        if (got) break;
        tokens += r.tokens;
        snprintf(note, sizeof note, "step %lld of %lld, loss %.4f", (long long)t->step, (long long)t->o.steps, r.loss);
        llm_progress_set(&bar, tokens, note);
    }
    llm_progress_end(&bar);
    if (got < 0) return -1;
    if (t->ended && !llm_signal_caught() && llm_fault_check(NULL) == 0) {
        llm_note("the data ended after step %lld of %lld", (long long)t->step, (long long)t->o.steps);
        if (eval_due(t) && late_eval(l, &r, e) < 0) return -1;
    }
    double seconds = llm_now() - started;
    bool faulted = llm_fault_check(NULL) < 0;
    if (llm_loop_save(l, e) < 0) return -1;
    if (llm_signal_caught() || faulted) {
        const char *next = !l->output ? "" : l->output_as == LLM_SAVE_RUN ? "; --resume goes on" : "; the file has the model alone";
        llm_note("stopped after step %lld of %lld%s", (long long)t->step, (long long)t->o.steps, next);
        return llm_fault_check(e);
    }
    if (t->step >= t->o.steps && t->step == first && t->step > 0) llm_note("all %lld steps were done; --steps asks for more", (long long)t->step);
    if (t->step > first) {
        double rate = (double)tokens / seconds;
        llm_note("%lld step%s, loss %.4f, %.0f tokens/s, %.1f GFLOP/s (6N)", (long long)(t->step - first), t->step - first == 1 ? "" : "s", r.loss,
                 rate, rate * l->metrics->flops_per_token / 1e9);
    }
    if (t->o.overfit_one && !(r.loss < LLM_OVERFIT_LOSS)) {
        return llm_fail(e, LLM_EX_FAILURE, "--overfit-one: expected a loss below %g after %lld steps on one batch, found %.4f", LLM_OVERFIT_LOSS,
                        (long long)t->step, r.loss);
    }
    return 0;
}
