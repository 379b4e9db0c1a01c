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

struct teach;
/* The completions of one iteration. */
struct batch {
    struct teach *x;
    int64_t iteration;              /* from 0 */
    bool ahead;                     /* sampled before the iteration before it is learned from (--lag) */
    struct llm_asked **asked;       /* [groups]: the prompts */
    json_t **lines;                 /* [groups · samples]: completions with their rewards; NULL: not there yet */
    struct llm_judge *judge;
    int64_t round;                  /* how often groups were drawn again */
    int64_t next_group;             /* the next that is looked at */
    int64_t sampled, failed, redrawn; /* tokens; completions with the fallback as their reward; completions whose group was drawn again */
    double sampling, judging;       /* seconds */
};

struct teach {
    struct llm_loop *l;
    struct llm_trainer *t;
    const struct llm_teach_options *o;
    struct llm_prompts prompts;
    struct llm_rollout_log log;
    struct llm_order order;         /* of prompts */
    int64_t groups;                 /* prompts of an iteration */
    int64_t iteration;              /* the one to be learned from, from 0 */
    struct batch batch[2];          /* iteration k is batch k % 2 */
    struct llm_engine engine;
    struct llm_rollouts about;
};

static size_t count(const struct teach *x)
{
    return (size_t)(x->groups * x->o->samples);
}

/* ---- sampling ---- */

static int64_t steps_of_iteration(const struct teach *x)
{
    const struct llm_train_options *o = &x->t->o;
    int64_t rows = x->groups * x->o->samples, step_rows = o->batch * o->accumulate;
    int64_t steps = (int64_t)ceil((o->epochs > 0 ? o->epochs : 1) * (double)rows / (double)step_rows);
    return steps > 0 ? steps : 1;
}

/* The number, in the file, of prompt `group` of an iteration. The order goes on from step to step, so that it needs no state. */
static size_t prompt_of(const struct batch *b, int64_t group)
{
    const struct teach *x = b->x;
    struct llm_order order = x->order;
    if (x->o->take == 0) return (size_t)group;
    uint64_t begun = (uint64_t)(x->t->step / steps_of_iteration(x) + b->ahead);
    order.seed += (uint64_t)b->round * UINT64_C(0x9E3779B97F4A7C15); /* a prompt that is drawn in place of another is of another order */
    return (size_t)llm_order_at(&order, begun * (uint64_t)x->groups + (uint64_t)group);
}

static bool complete(const struct batch *b, int64_t group)
{
    int64_t samples = b->x->o->samples;
    for (int64_t k = 0; k < samples; k++) {
        if (!b->lines[group * samples + k]) return false;
    }
    return true;
}

static int next(void *arg, struct llm_prompt *p, struct llm_err *e)
{
    struct batch *b = arg;
    const struct teach *x = b->x;
    (void)e;
    while (b->next_group < x->groups && complete(b, b->next_group)) b->next_group++;
    if (b->next_group == x->groups) return 0;
    const struct llm_asked *a = b->asked[b->next_group];
    *p = (struct llm_prompt){.ids = a->ids, .n = a->n, .max_tokens = x->o->tokens, .samples = x->o->samples, .sampling = x->o->sampling,
                             .ends = a->chat ? x->prompts.ends : NULL, .n_ends = a->chat ? x->prompts.n_ends : 0, .rollout = true,
                             .user = &b->asked[b->next_group]};
    p->sampling.seed = (uint64_t)x->t->o.seed;
    p->sampling.prompt = a->key + (uint64_t)b->round * UINT64_C(0xD1B54A32D192ED03); /* other noise for each round */
    p->sampling.policy_step = (uint64_t)x->t->step;
    b->next_group++;
    return 1;
}

static int judged(void *arg, json_t *line, const char *failed, struct llm_err *e);

static int done(void *arg, struct llm_completion *c, struct llm_err *e)
{
    struct batch *b = arg;
    const struct teach *x = b->x;
    struct llm_asked *const *place = c->prompt.user;
    int64_t group = place - b->asked;
    b->sampled += c->n;
    if (b->lines[group * x->o->samples + c->sample]) return 0; /* the log has it */
    json_t *line = json_object();
    int status = line && json_object_update(line, (*place)->object) == 0 ? 0 : llm_no_memory(e, "a completion");
    if (status == 0) status = llm_rollouts_put(&x->about, c, group, line, e);
    if (status == 0) status = b->judge ? llm_judge_give(b->judge, line, e) : judged(b, line, NULL, e);
    json_decref(line);
    return status;
}

static int judged(void *arg, json_t *line, const char *failed, struct llm_err *e)
{
    struct batch *b = arg;
    int64_t group = json_integer_value(json_object_get(line, "group")), sample = json_integer_value(json_object_get(line, "sample"));
    b->failed += failed != NULL;
    if (json_object_set_new(line, "iteration", json_integer(b->iteration)) < 0) return llm_no_memory(e, "a completion");
    if (b->x->o->lag > 0 && json_object_set_new(line, "lag", json_integer(b->ahead)) < 0) return llm_no_memory(e, "a completion");
    b->lines[group * b->x->o->samples + sample] = json_incref(line);
    return llm_rollout_log_add(&b->x->log, line, e);
}

/* What the log has of this iteration. It must have been sampled from these weights; with a lag, also from those of the iteration before. */
static int replay(struct batch *b, struct llm_err *e)
{
    struct teach *x = b->x;
    bool behind = false;
    for (int64_t i = 0; i < (int64_t)count(x); i++) {
        if (b->lines[i]) continue;
        json_t *line = llm_rollout_log_take(&x->log, b->iteration, i / x->o->samples, i % x->o->samples);
        const char *model = "";
        if (!line) continue;
        b->lines[i] = line;
        if (llm_json_str(line, "model", &model, e) < 0) return -1;
        json_int_t step = json_integer_value(json_object_get(line, "policy_step"));
        if (strcmp(model, x->t->model->fingerprint) == 0 && step == x->t->step) continue;
        if (x->o->lag > 0 && !b->ahead && b->iteration > 0 && step == x->t->step - steps_of_iteration(x)) {
            behind = true;
            continue;
        }
        return llm_fail(e, EX_DATAERR, "%s: iteration %" PRId64 ": expected completions of the model at step %" PRId64 " (%s), found others (%s): "
                        "the log is of another run", x->o->log, b->iteration, x->t->step, x->t->model->fingerprint, model);
    }
    for (int64_t group = 0; behind && group < x->groups; group++) {
        if (complete(b, group)) continue;
        return llm_fail(e, EX_DATAERR, "%s: iteration %" PRId64 ": expected all %zu completions, which the weights before these have sampled "
                        "(--lag); some of group %" PRId64 " are missing", x->o->log, b->iteration, count(x), group);
    }
    return 0;
}

/* Samples the completions that the log lacks, and gives them to the judge. 1: a signal was caught. */
static int sample(struct batch *b, struct llm_err *e)
{
    struct teach *x = b->x;
    const struct llm_generate g = {.engine = &x->engine, .parallel = x->o->parallel, .next = next, .done = done, .arg = b};
    double began = llm_now();
    b->next_group = 0;
    b->judge = x->o->judge.command ? llm_judge_create(&x->o->judge, judged, b, e) : NULL;
    if (x->o->judge.command && !b->judge) return -1;
    int got = llm_generate(&g, e);
    b->sampling += llm_now() - began;
    return got;
}

/* Waits for the rewards. 1: a signal was caught. */
static int finish(struct batch *b, struct llm_err *e)
{
    double began = llm_now();
    int got = b->judge ? llm_judge_finish(b->judge, e) : 0;
    b->judging += llm_now() - began;
    llm_judge_destroy(b->judge);
    b->judge = NULL;
    return got == 0 ? llm_rollout_log_sync(&b->x->log, e) : got;
}

static double reward_of(const json_t *line)
{
    double sum = json_number_value(json_object_get(line, "reward"));
    const json_t *each = json_object_get(line, "rewards");
    for (size_t k = 0; k < json_array_size(each); k++) sum += json_number_value(json_array_get(each, k));
    return sum;
}

/* Drops the completions of groups whose rewards are all equal, from which no advantage follows. Returns how many groups. */
static int64_t drop_flat(struct batch *b)
{
    const struct teach *x = b->x;
    int64_t flat = 0;
    b->round++;
    for (int64_t group = 0; group < x->groups; group++) {
        json_t **lines = b->lines + group * x->o->samples;
        int64_t k = 1;
        while (k < x->o->samples && reward_of(lines[k]) == reward_of(lines[0])) k++;
        if (k < x->o->samples) continue;
        for (k = 0; k < x->o->samples; k++) {
            json_decref(lines[k]);
            lines[k] = NULL;
        }
        b->asked[group] = &x->prompts.v[prompt_of(b, group)];
        flat++;
    }
    b->redrawn += flat * x->o->samples;
    return flat;
}

/* Fills b->lines, but for what the judge still owes if the batch is sampled ahead. 1: a signal was caught. */
static int gather(struct teach *x, int64_t iteration, bool ahead, struct llm_err *e)
{
    struct llm_model *m = x->t->model;
    struct batch *b = &x->batch[iteration % 2];
    const struct llm_engine_options o = {.compute = (enum llm_compute)x->t->o.precision, .context = x->t->o.context,
                                         .batch = 512};
    LLM_PROFILE("sample", 0);
    *b = (struct batch){.x = x, .iteration = iteration, .ahead = ahead, .asked = b->asked, .lines = b->lines};
    m->fingerprint[0] = 0; /* the weights have changed */
    m->adapted = false;
    for (int64_t group = 0; group < x->groups; group++) b->asked[group] = &x->prompts.v[prompt_of(b, group)];
    int got = llm_engine_init(&x->engine, m, &o, e);
    if (got == 0 && llm_rollouts_open(&x->about, &x->engine, x->t->step, x->groups, e) < 0) got = llm_in(e, "--prompts");
    do {
        if (got == 0) got = replay(b, e);
        if (got == 0) got = sample(b, e);
        if (got == 0 && !ahead) got = finish(b, e);
    } while (got == 0 && b->round < x->o->redraw && drop_flat(b) > 0);
    llm_rollouts_release(&x->about);
    llm_engine_release(&x->engine);
    return got;
}

/* ---- learning ---- */

static struct llm_records *records_of(const struct teach *x, const struct batch *b, struct llm_err *e)
{
    struct llm_lines lines = {.o = &x->t->o, .objective = x->t->objective, .tokenizer = x->t->model->tokenizer, .model = x->t->model,
                              .context = x->t->o.context};
    int status = (lines.records = llm_records_create(x->t->objective->columns, e)) ? 0 : -1;
    for (size_t i = 0; i < count(x) && status == 0; i++) {
        status = lines.objective->record(&lines, b->lines[i], e);
        if (status < 0) llm_in(e, "prompt %zu, completion %zu", i / (size_t)x->o->samples, i % (size_t)x->o->samples);
    }
    if (lines.objective->recorded(&lines, e, status < 0) < 0) status = -1;
    if (status == 0) return lines.records;
    llm_records_destroy(lines.records);
    return NULL;
}

/* Counts of rewards in bins of equal width from the least to the largest. */
static json_t *histogram(const struct teach *x, const struct batch *b)
{
    double least = INFINITY, max = -INFINITY;
    int64_t bins[BINS] = {0};
    json_t *counts = json_array();
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < count(x); i++) {
            double r = reward_of(b->lines[i]);
            if (round == 0) least = fmin(least, r), max = fmax(max, r);
            else bins[max > least ? (int)fmin((r - least) / (max - least) * BINS, BINS - 1) : 0]++;
        }
    }
    for (int i = 0; i < BINS; i++) json_array_append_new(counts, json_integer(bins[i]));
    return json_pack("{s:f,s:f,s:o}", "min", least, "max", max, "counts", counts);
}

/* What the log of the first step says of the iteration. */
static json_t *summary(const struct teach *x, const struct batch *b)
{
    json_t *o = json_pack("{s:I,s:I}", "iteration", (json_int_t)b->iteration, "completions", (json_int_t)count(x));
    if (o && x->o->judge.command) {
        json_object_set_new(o, "rewards", histogram(x, b));
        json_object_set_new(o, "reward_failures", json_integer(b->failed));
    }
    if (o) json_object_set_new(o, "sampled_tokens", json_integer(b->sampled));
    if (o && x->o->lag > 0) json_object_set_new(o, "lag", json_integer(b->ahead));
    if (o && x->o->redraw > 0) json_object_set_new(o, "redrawn", json_integer(b->redrawn));
    if (o && b->sampled > 0 && b->sampling > 0) {
        json_object_set_new(o, "sampling_tokens_per_second", json_real((double)b->sampled / b->sampling));
        json_object_set_new(o, "sampling_seconds", json_real(b->sampling));
        json_object_set_new(o, "judging_seconds", json_real(b->judging));
    }
    return o;
}

/* Meanwhile the judge of the iteration after this one, if there is one, is kept busy. */
static int learn(struct teach *x, struct llm_step_report *r, struct llm_err *e)
{
    struct llm_trainer *t = x->t;
    struct batch *b = &x->batch[x->iteration % 2], *after = &x->batch[(x->iteration + 1) % 2];
    struct llm_records *records = records_of(x, b, e);
    if (!records || llm_trainer_renew(t, records, e) < 0) return -1;
    json_t *about = summary(x, b);
    int got = 0;
    x->l->metrics->beside = about;
    llm_signals_hold(true); /* a part of an iteration would be learned twice by the run that goes on */
    while (got == 0 && t->step < t->o.steps) {
        got = llm_loop_step(x->l, r, e);
        if (got == 0 && after->judge) got = llm_judge_pump(after->judge, e);
    }
    llm_signals_hold(false);
    x->l->metrics->beside = NULL;
    json_decref(about);
    return got;
}

/* ---- iterations ---- */

static void drop_lines(struct batch *b)
{
    for (size_t i = 0; b->lines && i < count(b->x); i++) {
        json_decref(b->lines[i]);
        b->lines[i] = NULL;
    }
}

/* Waits for the rewards of what these weights can no longer sample. A signal waits too: without those rewards the run could not go on from here. */
static int finish_ahead(struct teach *x, struct llm_err *e)
{
    llm_signals_hold(true);
    int got = finish(&x->batch[x->iteration % 2], e);
    llm_signals_hold(false);
    return got;
}

/* One iteration. 1: a signal was caught. */
static int turn(struct teach *x, struct llm_step_report *r, struct llm_err *e)
{
    bool sampled = x->batch[x->iteration % 2].lines[0] != NULL, another = x->o->lag > 0 && x->iteration + 1 < x->o->iterations;
    int got = sampled ? 0 : gather(x, x->iteration, false, e);
    if (got == 0 && another) got = gather(x, x->iteration + 1, true, e);
    if (got == 0) got = learn(x, r, e);
    drop_lines(&x->batch[x->iteration % 2]);
    return got;
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
        got = turn(x, &r, e);
        if (got) break;
        x->iteration++;
        whole = t->step;
        if (x->batch[x->iteration % 2].judge && (got = finish_ahead(x, e)) < 0) break;
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
    if (!x->t->data_per_run) {
        return llm_fail(e, LLM_EX_USAGE, "--prompts: expected an objective that learns from completions (reinforce, grpo, ppo, distill --on-policy), "
                        "found %s",
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
    if (llm_rollout_log_open(&x->log, x->o->log, x->t->step, x->o->lag * steps_of_iteration(x), e) < 0) return llm_in(e, "--rollout-log");
    x->iteration = x->log.done;
    for (int i = 0; i < 2; i++) {
        struct batch *b = &x->batch[i];
        b->x = x;
        b->lines = llm_calloc(count(x), sizeof *b->lines, "completions", e);
        b->asked = llm_calloc((size_t)x->groups, sizeof(*b->asked), "prompts", e);
        if (!b->lines || !b->asked) return -1;
    }
    return 0;
}

int llm_teach_run(struct llm_loop *l, const struct llm_teach_options *o, const char *from, struct llm_err *e)
{
    struct teach x = {.l = l, .t = l->t, .o = o, .log.fd = -1};
    int got = begin(&x, from, e);
    if (got == 0) got = iterate(&x, e);
    for (int i = 0; i < 2; i++) {
        drop_lines(&x.batch[i]);
        llm_judge_destroy(x.batch[i].judge);
        free(x.batch[i].lines);
        free(x.batch[i].asked);
    }
    llm_rollout_log_release(&x.log);
    llm_prompts_release(&x.prompts);
    return got;
}
