/* --shard auto: chooses the fastest layout by train/plan.h's cost model, among the valid ones that fit in memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/log.h"
#include "train/objective.h"
#include "train/plan.h"

enum { ONCE_A_PASS = 2, ALL_ZEROS = 4 }; /* values of zero: the least that needs an objective which runs the model once a pass; how many there are */

struct candidates {
    struct candidate { struct llm_layout l; double seconds; bool tried; } *v;
    size_t n, room;
    struct llm_err refused;     /* why dp with zero=0, the first candidate, is invalid */
};

/* What all candidates are of. */
struct run {
    const struct llm_config *c;
    const struct llm_model *m;
    const struct llm_train_options *o;
    const struct llm_layout_costs *costs;
    struct llm_plan_trials *trials;
};

struct llm_layout_costs llm_layout_costs_all(const struct llm_layout_costs *given, double memory)
{
    return (struct llm_layout_costs){.memory = given->memory > 0 ? given->memory : memory,
                                     .flops = given->flops > 0 ? given->flops : 1e11,
                                     .bandwidth = given->bandwidth > 0 ? given->bandwidth : 1e9,
                                     .latency = given->latency >= 0 ? given->latency : 2e-5};
}

/* Adds a layout, unless a run would refuse it. 0 or -1. */
static int consider(struct candidates *k, const struct run *r, const struct llm_layout *l, struct llm_err *e)
{
    struct llm_plan p;
    struct llm_err why;
    if (l->zero >= ONCE_A_PASS && llm_objectives[r->o->objective]->run != llm_objective_run_next) return 0;
    if (llm_layout_check_groups(l, &why) < 0 || llm_plan_make(&p, r->c, r->m, r->o, l, NULL, &why) < 0) {
        if (why.status != LLM_EX_USAGE) {
            *e = why;
            return -1;
        }
        if (k->refused.status == 0 && k->n == 0) k->refused = why;
        return 0;
    }
    if (llm_grow((void **)&k->v, &k->room, k->n + 1, sizeof *k->v, e) < 0) return -1;
    const double hidden = fmin(p.ahead / r->costs->bandwidth, p.forward / r->costs->flops)
        + fmin(p.behind / r->costs->bandwidth, p.backward / r->costs->flops);
    const double seconds = p.work / r->costs->flops + p.sent / r->costs->bandwidth + p.messages * r->costs->latency - hidden;
    k->v[k->n++] = (struct candidate){*l, seconds, false};
    return 0;
}

/* The layouts of lanes · l->cp · l->dp ranks: these lanes as slices and stages, the fewest stages first, then the fewest chunks. */
static int list_lanes(struct candidates *k, const struct run *r, const struct llm_layout *of, int64_t lanes, struct llm_err *e)
{
    const int64_t most = r->c->num_hidden_layers < LLM_PLAN_MAX_STAGES ? r->c->num_hidden_layers : LLM_PLAN_MAX_STAGES;
    int got = 0;
    for (int64_t pp = 1; pp <= lanes && pp <= most; pp++) {
        if (lanes % pp != 0 || r->o->tensor_parts % (lanes / pp) != 0) continue;
        for (int64_t vp = 1; (vp == 1 || (pp > 1 && pp * vp <= most)) && got == 0; vp++) {
            struct llm_layout l = *of;
            l.tp = lanes / pp;
            l.pp = pp;
            l.vp = vp;
            l.interleaved = vp > 1;
            got = consider(k, r, &l, e);
        }
    }
    return got;
}

/* All layouts of so many ranks, in the order of plan.h. */
static int list(struct candidates *k, const struct run *r, int64_t ranks, struct llm_err *e)
{
    int got = 0;
    for (int64_t zero = 0; zero < ALL_ZEROS; zero++) {
        for (int64_t ep = 1; ep == 1 || (ep <= ranks && ep <= r->c->num_experts); ep++) {
            for (int64_t cp = 1; cp <= ranks && cp <= r->o->seq_parts; cp++) {
                for (int64_t lanes = 1; lanes <= ranks / cp && got == 0; lanes++) {
                    const int64_t dp = ranks / cp / lanes;
                    const struct llm_layout l = {.dp = dp, .zero = zero, .ep = ep, .cp = cp};
                    if (dp * cp * lanes == ranks && r->o->seq_parts % cp == 0) got = list_lanes(k, r, &l, lanes, e);
                }
            }
        }
    }
    return got;
}

/* The first of the fastest that were not tried yet; NULL: all were. */
static struct candidate *next(struct candidates *k)
{
    struct candidate *best = NULL;
    for (size_t i = 0; i < k->n; i++) {
        if (!k->v[i].tried && (!best || k->v[i].seconds < best->seconds)) best = &k->v[i];
    }
    return best;
}

static int choose(struct candidates *k, const struct run *r, int64_t ranks, struct llm_layout *l, struct llm_err *e)
{
    char text[LLM_LAYOUT_TEXT], why[500] = "";
    double least = INFINITY;
    struct llm_layout smallest = {.dp = ranks};
    struct llm_plan p;
    for (struct candidate *at; (at = next(k)); at->tried = true) {
        if (llm_plan_make(&p, r->c, r->m, r->o, &at->l, r->trials, e) < 0) return -1;
        if (p.total < least) smallest = at->l;
        least = fmin(p.total, least);
        if (p.total > r->costs->memory) continue;
        *l = at->l;
        llm_layout_text(l, text);
        if (k->refused.status) snprintf(why, sizeof why, "; dp=%lld,zero=0 is not: %.400s", (long long)ranks, k->refused.text);
        llm_note("--shard %s: the fastest of %zu possible for %lld ranks, by estimate %.3g s a step and %.1f MB a rank%s", text, k->n,
                 (long long)ranks, at->seconds, p.total / 1e6, why);
        return 0;
    }
    llm_layout_text(&smallest, text);
    return llm_fail(e, LLM_EX_USAGE, "--shard auto: expected a layout of %lld ranks that takes at most %.1f MB a rank (memory), found that %s, the "
                    "smallest, takes %.1f MB", (long long)ranks, r->costs->memory / 1e6, text, least / 1e6);
}

int llm_layout_choose(struct llm_layout *l, const struct llm_config *c, const struct llm_model *m, const struct llm_train_options *o,
                      const struct llm_layout_costs *costs, struct llm_plan_trials *trials, struct llm_err *e)
{
    struct llm_train_options once = *o;
    const struct run r = {c, m, &once, costs, trials};
    struct candidates k = {.n = 0};
    const int64_t ranks = l->ranks;
    once.epochs = 0; /* how many steps there are makes no difference */
    int got = list(&k, &r, ranks, e);
    if (got == 0 && k.n == 0) {
        *e = k.refused;
        got = llm_in(e, "--shard auto: no layout of %lld ranks suits the run, the simplest because of", (long long)ranks);
    }
    if (got == 0) got = choose(&k, &r, ranks, l, e);
    free(k.v);
    return got;
}
