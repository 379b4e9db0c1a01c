#include "train/teach.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "cpu/profile.h"
#include "infer/rollout.h"
#include "train/lines.h"
#include "train/policy.h"
#include "train/rollout_log.h"

enum { BINS = 8 };

struct teach {
    struct llm_loop *l;
    struct llm_trainer *t;
    const struct llm_teach_options *o;
    struct llm_prompts prompts;
    struct llm_rollout_log log;
    struct llm_order order;         /* of prompts */
    struct llm_asked **asked;       /* [groups]: the iteration's prompts */
    int64_t groups;                 /* prompts of an iteration */
    int64_t iteration;              /* from 0 */
    /* of the iteration */
    json_t **lines;                 /* [groups · samples]: completions with their rewards; NULL: not there yet */
    struct llm_engine engine;
    struct llm_rollouts about;
    struct llm_judge *judge;
    int64_t next_group;             /* the next that is looked at */
    int64_t sampled, failed;        /* tokens; completions with the fallback as their reward */
    double sampling, judging;       /* seconds */
};

static size_t count(const struct teach *x)
{
    return (size_t)(x->groups * x->o->samples);
}

/* ---- sampling ---- */

/* The number, in the file, of prompt `group` of this iteration. The order goes on from step to step, so that it needs no state. */
static size_t prompt_of(const struct teach *x, int64_t group)
{
    if (x->o->take == 0) return (size_t)group;
    const struct llm_train_options *o = &x->t->o;
    int64_t rows = x->groups * x->o->samples, step_rows = o->batch * o->accumulate;
    int64_t steps = (int64_t)ceil((o->epochs > 0 ? o->epochs : 1) * (double)rows / (double)step_rows);
    uint64_t begun = (uint64_t)(x->t->step / (steps > 0 ? steps : 1));
    return (size_t)llm_order_at(&x->order, begun * (uint64_t)x->groups + (uint64_t)group);
}

static bool complete(const struct teach *x, int64_t group)
{
    for (int64_t k = 0; k < x->o->samples; k++) {
        if (!x->lines[group * x->o->samples + k]) return false;
    }
    return true;
}

static int next(void *arg, struct llm_prompt *p, struct llm_err *e)
{
    struct teach *x = arg;
    (void)e;
    while (x->next_group < x->groups && complete(x, x->next_group)) x->next_group++;
    if (x->next_group == x->groups) return 0;
    const struct llm_asked *a = x->asked[x->next_group];
    *p = (struct llm_prompt){.ids = a->ids, .n = a->n, .max_tokens = x->o->tokens, .samples = x->o->samples, .sampling = x->o->sampling,
                             .ends = a->chat ? x->prompts.ends : NULL, .n_ends = a->chat ? x->prompts.n_ends : 0, .rollout = true,
                             .user = &x->asked[x->next_group]};
    p->sampling.seed = (uint64_t)x->t->o.seed;
    p->sampling.prompt = a->key;
    p->sampling.policy_step = (uint64_t)x->t->step;
    x->next_group++;
    return 1;
}

static int done(void *arg, struct llm_completion *c, struct llm_err *e)
{
    struct teach *x = arg;
    struct llm_asked *const *place = c->prompt.user;
    int64_t group = place - x->asked;
    x->sampled += c->n;
    if (x->lines[group * x->o->samples + c->sample]) return 0; /* the log has it */
    json_t *line = json_object();
    int status = line && json_object_update(line, (*place)->object) == 0 ? 0 : llm_no_memory(e, "a completion");
    if (status == 0) status = llm_rollouts_put(&x->about, c, group, line, e);
    if (status == 0) status = llm_judge_give(x->judge, line, e);
    json_decref(line);
    return status;
}

static int judged(void *arg, json_t *line, const char *failed, struct llm_err *e)
{
    struct teach *x = arg;
    int64_t group = json_integer_value(json_object_get(line, "group")), sample = json_integer_value(json_object_get(line, "sample"));
    x->failed += failed != NULL;
    if (json_object_set_new(line, "iteration", json_integer(x->iteration)) < 0) return llm_no_memory(e, "a completion");
    x->lines[group * x->o->samples + sample] = json_incref(line);
    return llm_rollout_log_add(&x->log, line, e);
}

/* What the log has of this iteration. It must have been sampled from these weights. */
static int replay(struct teach *x, struct llm_err *e)
{
    for (int64_t i = 0; i < (int64_t)count(x); i++) {
        json_t *line = llm_rollout_log_take(&x->log, x->iteration, i / x->o->samples, i % x->o->samples);
        const char *model = "";
        if (!line) continue;
        x->lines[i] = line;
        if (llm_json_str(line, "model", &model, e) < 0) return -1;
        if (strcmp(model, x->t->model->fingerprint) == 0 && json_integer_value(json_object_get(line, "policy_step")) == x->t->step) continue;
        return llm_fail(e, EX_DATAERR, "%s: iteration %" PRId64 ": expected completions of the model at step %" PRId64 " (%s), found others (%s): "
                        "the log is of another run", x->o->log, x->iteration, x->t->step, x->t->model->fingerprint, model);
    }
    return 0;
}

/* Completions that the log lacks, with their rewards. 1: a signal was caught. */
static int sample(struct teach *x, struct llm_err *e)
{
    const struct llm_generate g = {&x->engine, x->o->parallel, next, NULL, NULL, done, x};
    double began = llm_now();
    x->next_group = 0;
    x->judge = llm_judge_create(&x->o->judge, judged, x, e);
    if (!x->judge) return -1;
    int got = llm_generate(&g, e);
    x->sampling = llm_now() - began;
    began = llm_now();
    if (got == 0) got = llm_judge_finish(x->judge, e);
    x->judging = llm_now() - began;
    llm_judge_destroy(x->judge);
    x->judge = NULL;
    return got == 0 ? llm_rollout_log_sync(&x->log, e) : got;
}

/* Fills x->lines. 1: a signal was caught. */
static int gather(struct teach *x, struct llm_err *e)
{
    struct llm_model *m = x->t->model;
    const struct llm_engine_options o = {.compute = (enum llm_compute)x->t->o.precision, .cache = LLM_NO_DTYPE, .context = x->t->o.context,
                                         .batch = 512};
    LLM_PROFILE("sample", 0);
    x->sampled = x->failed = 0;
    x->sampling = x->judging = 0;
    m->fingerprint[0] = 0; /* the weights have changed */
    m->adapted = false;
    for (int64_t group = 0; group < x->groups; group++) x->asked[group] = &x->prompts.v[prompt_of(x, group)];
    int got = llm_engine_init(&x->engine, m, &o, e);
    if (got == 0 && llm_rollouts_open(&x->about, &x->engine, x->t->step, x->groups, e) < 0) got = llm_in(e, "--prompts");
    if (got == 0) got = replay(x, e);
    if (got == 0) got = sample(x, e);
    llm_rollouts_release(&x->about);
    llm_engine_release(&x->engine);
    return got;
}

/* ---- learning ---- */

static struct llm_records *records_of(const struct teach *x, struct llm_err *e)
{
    struct llm_lines lines = {.o = &x->t->o, .objective = x->t->objective, .tokenizer = x->t->model->tokenizer, .model = x->t->model,
                              .context = x->t->o.context};
    int status = (lines.records = llm_records_create(x->t->objective->columns, e)) ? 0 : -1;
    for (size_t i = 0; i < count(x) && status == 0; i++) {
        status = lines.objective->record(&lines, x->lines[i], e);
        if (status < 0) llm_in(e, "prompt %zu, completion %zu", i / (size_t)x->o->samples, i % (size_t)x->o->samples);
    }
    if (lines.objective->recorded(&lines, e, status < 0) < 0) status = -1;
    if (status == 0) return lines.records;
    llm_records_destroy(lines.records);
    return NULL;
}

/* Counts of rewards in bins of equal width from the least to the largest. */
static json_t *histogram(const struct teach *x)
{
    double least = INFINITY, most = -INFINITY;
    int64_t bins[BINS] = {0};
    json_t *counts = json_array();
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < count(x); i++) {
            double r = json_number_value(json_object_get(x->lines[i], "reward"));
            const json_t *each = json_object_get(x->lines[i], "rewards");
            for (size_t k = 0; k < json_array_size(each); k++) r += json_number_value(json_array_get(each, k));
            if (round == 0) least = fmin(least, r), most = fmax(most, r);
            else bins[most > least ? (int)fmin((r - least) / (most - least) * BINS, BINS - 1) : 0]++;
        }
    }
    for (int i = 0; i < BINS; i++) json_array_append_new(counts, json_integer(bins[i]));
    return json_pack("{s:f,s:f,s:o}", "min", least, "max", most, "counts", counts);
}

/* What the log of the first step says of the iteration. */
static json_t *summary(const struct teach *x)
{
    json_t *o = json_pack("{s:I,s:I,s:o,s:I,s:I}", "iteration", (json_int_t)x->iteration, "completions", (json_int_t)count(x), "rewards",
                          histogram(x), "reward_failures", (json_int_t)x->failed, "sampled_tokens", (json_int_t)x->sampled);
    if (o && x->sampled > 0 && x->sampling > 0) {
        json_object_set_new(o, "sampling_tokens_per_second", json_real((double)x->sampled / x->sampling));
        json_object_set_new(o, "sampling_seconds", json_real(x->sampling));
        json_object_set_new(o, "judging_seconds", json_real(x->judging));
    }
    return o;
}

static int learn(struct teach *x, struct llm_step_report *r, struct llm_err *e)
{
    struct llm_trainer *t = x->t;
    struct llm_records *records = records_of(x, e);
    if (!records || llm_trainer_renew(t, records, e) < 0) return -1;
    json_t *about = summary(x);
    int got = 0;
    x->l->metrics->beside = about;
    llm_signals_hold(true); /* a part of an iteration would be learned twice by the run that goes on */
    while (got == 0 && t->step < t->o.steps) got = llm_loop_step(x->l, r, e);
    llm_signals_hold(false);
    x->l->metrics->beside = NULL;
    json_decref(about);
    return got;
}

/* ---- iterations ---- */

static void drop_lines(struct teach *x)
{
    for (size_t i = 0; x->lines && i < count(x); i++) {
        json_decref(x->lines[i]);
        x->lines[i] = NULL;
    }
}

/* Saves; a failure before, which `e` holds, stays the one that is reported. */
static int save_now(struct teach *x, bool failed, struct llm_err *e)
{
    struct llm_err later;
    return llm_loop_save(x->l, failed ? &later : e);
}

static int iterate(struct teach *x, struct llm_err *e)
{
    struct llm_trainer *t = x->t;
    struct llm_step_report r = {.loss = NAN};
    struct llm_progress bar;
    double began = llm_now();
    int64_t first = x->iteration, saved = t->step, whole = t->step, every = x->l->save_every;
    int got = 0;
    x->l->save_every = 0;
    llm_progress_start(&bar, "teach", "iterations", x->o->iterations - first);
    while (got == 0 && x->iteration < x->o->iterations && !llm_signal_caught()) {
        char note[64];
        got = gather(x, e);
        if (got == 0) got = learn(x, &r, e);
        drop_lines(x);
        if (got) break;
        x->iteration++;
        whole = t->step;
        snprintf(note, sizeof note, "iteration %" PRId64 " of %" PRId64, x->iteration, x->o->iterations);
        llm_progress_set(&bar, x->iteration - first, note);
        llm_verbose("%s: loss %.4f", note, r.loss);
        if (every == 0 || t->step / every == saved / every || x->iteration == x->o->iterations) continue;
        saved = t->step;
        if (llm_loop_save(x->l, e) < 0) got = -1;
    }
    llm_progress_end(&bar);
    if (t->step == whole && x->iteration > first && save_now(x, got < 0, e) < 0) got = -1;
    if (got < 0) return -1;
    if (llm_signal_caught()) {
        llm_note("stopped after iteration %" PRId64 " of %" PRId64 "%s", x->iteration, x->o->iterations,
                 x->o->log ? "; --resume with the same --rollout-log goes on" : "; --resume goes on");
        return 0;
    }
    if (x->iteration == first) llm_note("all %" PRId64 " iterations were done; --iterations asks for more", x->iteration);
    else llm_note("%" PRId64 " iterations in %.1f s, step %" PRId64 ", loss %.4f", x->iteration - first, llm_now() - began, t->step, r.loss);
    return 0;
}

static int begin(struct teach *x, const char *from, struct llm_err *e)
{
    const struct llm_train_options *o = &x->t->o;
    if (!x->t->objective->data_per_run) {
        return llm_fail(e, LLM_EX_USAGE, "--prompts: expected an objective that learns from completions (reinforce, grpo, ppo), found %s",
                        x->t->objective->name);
    }
    if (x->t->model->config.kv_lora_rank > 0) {
        return llm_fail(e, EX_UNAVAILABLE, "--prompts: latent attention (MLA) is sampled with matrices that are made once: expected a pipe of "
                        "llm-infer --rollout, with --off-policy");
    }
    if (llm_prompts_read(&x->prompts, x->o->prompts, x->t->model, from, o->context, e) < 0) return -1;
    if (x->o->take > (int64_t)x->prompts.n) {
        return llm_fail(e, LLM_EX_USAGE, "--take: expected at most the %zu prompts of %s, found %" PRId64, x->prompts.n, x->o->prompts, x->o->take);
    }
    x->groups = x->o->take > 0 ? x->o->take : (int64_t)x->prompts.n;
    x->order = (struct llm_order){.kind = LLM_ORDER_SHUFFLE, .seed = (uint64_t)o->seed, .n = x->prompts.n + 1, .context = 1};
    if (count(x) % (size_t)(o->batch * o->accumulate) != 0) {
        return llm_fail(e, LLM_EX_USAGE, "expected prompts × --samples in a multiple of the %" PRId64 " rows of a step (--batch × --accumulate), "
                        "found %zu", o->batch * o->accumulate, count(x));
    }
    if (llm_rollout_log_open(&x->log, x->o->log, x->t->step, e) < 0) return llm_in(e, "--rollout-log");
    x->iteration = x->log.done;
    x->lines = llm_calloc(count(x), sizeof *x->lines, "completions", e);
    x->asked = llm_calloc((size_t)x->groups, sizeof(*x->asked), "prompts", e);
    return x->lines && x->asked ? 0 : -1;
}

int llm_teach_run(struct llm_loop *l, const struct llm_teach_options *o, const char *from, struct llm_err *e)
{
    struct teach x = {.l = l, .t = l->t, .o = o, .log.fd = -1};
    int got = begin(&x, from, e);
    if (got == 0) got = iterate(&x, e);
    drop_lines(&x);
    free(x.lines);
    free(x.asked);
    llm_rollout_log_release(&x.log);
    llm_prompts_release(&x.prompts);
    return got;
}
