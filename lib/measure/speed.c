#include "measure/speed.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/pages.h"
#include "base/rng.h"
#include "base/signals.h"
#include "infer/plan.h"
#include "measure/cost.h"
#include "measure/stats.h"

#define PROBE_BYTES ((size_t)128 << 20) /* read between tokens to know what memory gives just now */
#define PROBE_EVERY 0.05                /* seconds */
enum { WARM_PROMPTS = 2, WARM_TOKENS = 4 }; /* that are not counted: the second product of few rows packs a weight, of a prompt the head alone */

static int32_t *some_tokens(int64_t n, int64_t vocab, struct llm_err *e)
{
    int32_t *ids = llm_alloc((size_t)n, sizeof *ids, "tokens", e);
    struct llm_rng r = llm_rng_at(0, 0, LLM_RNG_TEST, 0, 0, 0);
    for (int64_t i = 0; ids && i < n; i++) ids[i] = (int32_t)llm_rng_below(&r, (uint32_t)i, (uint64_t)vocab);
    return ids;
}

static void summarise(struct llm_speed *out, const double *rates, double *shares, int64_t runs)
{
    double sorted[LLM_SPEED_MAX_RUNS];
    memcpy(sorted, rates, (size_t)runs * sizeof *rates);
    out->rate = llm_mean(rates, (size_t)runs);
    out->deviation = llm_deviation(rates, (size_t)runs);
    out->median = llm_median(sorted, (size_t)runs);
    out->share = llm_median(shares, (size_t)runs);
}

/* Feeds n tokens and makes the logits of the last, as before sampling. 0, 1, -1. */
static int feed(struct llm_engine *g, struct llm_kv *kv, const int32_t *ids, int64_t n, struct llm_err *e)
{
    for (int64_t at = 0; at < n;) {
        int64_t part = n - at < g->batch ? n - at : g->batch, last = part - 1;
        struct llm_feed one = {kv, ids + at, part, false};
        struct llm_reading r;
        at += part;
        if (llm_engine_advance(g, &one, 1, &r, e) < 0 || (at == n && !llm_engine_predict(g, &r, &last, 1, e))) return -1;
        if (llm_signal_caught()) return 1;
    }
    return 0;
}

/* A copy of `begin` with room for n tokens more. */
static int copy(struct llm_kv *kv, const struct llm_kv *begin, int64_t n, struct llm_err *e)
{
    llm_kv_init(kv, begin->pool);
    return llm_kv_fork(kv, begin, e) < 0 ? -1 : llm_kv_reserve(kv, begin->n + n, e);
}

int llm_speed_prompt(struct llm_engine *g, int64_t depth, int64_t n, int64_t runs, struct llm_speed *out, struct llm_err *e)
{
    double rates[LLM_SPEED_MAX_RUNS], shares[LLM_SPEED_MAX_RUNS];
    struct llm_cost cost;
    struct llm_kv begin, kv;
    int32_t *ids = some_tokens(depth + n, g->model->config.vocab_size, e);
    *out = (struct llm_speed){.limit = g->predictor->arithmetic(g->model, g->ctx.compute)};
    if (!ids || llm_cost_of(&cost, &g->model->config, depth + (n + 1) / 2, e) < 0) {
        free(ids);
        return -1;
    }
    double flops = (cost.forward_flops - cost.head_flops) * (double)n + cost.head_flops;
    llm_kv_init(&begin, &g->pool);
    int status = depth > 0 ? feed(g, &begin, ids, depth, e) : 0;
    for (int64_t run = -WARM_PROMPTS; run < runs && status == 0; run++) {
        status = copy(&kv, &begin, n, e);
        double peak = llm_peaks_compute_once(out->limit), start = llm_now();
        if (status == 0) status = feed(g, &kv, ids + depth, n, e);
        double seconds = llm_now() - start;
        llm_kv_release(&kv);
        peak = (peak + llm_peaks_compute_once(out->limit)) / 2;
        if (run < 0) continue;
        rates[run] = (double)n / seconds;
        shares[run] = flops / seconds / peak;
    }
    if (status == 0) summarise(out, rates, shares, runs);
    llm_kv_release(&begin);
    free(ids);
    return status;
}

/* Decodes n tokens. *seconds without the probes, *bandwidth as the probes between them found it. */
static int decode(struct llm_engine *g, struct llm_kv *kv, const int32_t *ids, int64_t n, const void *probe, double *seconds,
                  double *bandwidth, struct llm_err *e)
{
    double reading = 0, since = PROBE_EVERY;
    int64_t probes = 0;
    int status = 0;
    *seconds = 0;
    for (int64_t i = 0; i < n && status == 0; i++) {
        if (since >= PROBE_EVERY) {
            reading += 1 / llm_peaks_read_once(probe, PROBE_BYTES);
            probes++;
            since = 0;
        }
        double start = llm_now(), took;
        status = feed(g, kv, ids + i, 1, e);
        took = llm_now() - start;
        *seconds += took;
        since += took;
    }
    reading += 1 / llm_peaks_read_once(probe, PROBE_BYTES);
    *bandwidth = (double)(probes + 1) / reading;
    return status;
}

int llm_speed_generate(struct llm_engine *g, int64_t depth, int64_t n, int64_t runs, struct llm_speed *out, struct llm_err *e)
{
    double rates[LLM_SPEED_MAX_RUNS], shares[LLM_SPEED_MAX_RUNS];
    struct llm_infer_plan plan;
    struct llm_kv begin, kv;
    int32_t *ids = some_tokens(depth + n, g->model->config.vocab_size, e);
    void *probe = aligned_alloc((size_t)2 << 20, PROBE_BYTES);
    int status = ids && probe ? llm_infer_plan(g, 1, true, &plan, e) : -1;
    if (ids && !probe) llm_no_memory(e, "the memory bandwidth test");
    if (status < 0) {
        free(ids);
        free(probe);
        return -1;
    }
    llm_pages_huge(probe, PROBE_BYTES);
    memset(probe, 1, PROBE_BYTES);
    double seen = (double)depth + (double)n / 2; /* tokens in the cache, on average */
    double bytes = plan.read_bytes_per_token - plan.cache_bytes_per_token * ((double)g->context - seen);
    *out = (struct llm_speed){.limit = "memory"};
    llm_kv_init(&begin, &g->pool);
    if (depth > 0) status = feed(g, &begin, ids, depth, e);
    for (int64_t run = -1; run < runs && status == 0; run++) {
        double seconds = 0, bandwidth = 0;
        status = copy(&kv, &begin, n, e);
        if (status == 0) status = decode(g, &kv, ids + depth, run < 0 && n > WARM_TOKENS ? WARM_TOKENS : n, probe, &seconds, &bandwidth, e);
        llm_kv_release(&kv);
        if (run < 0) continue; /* the first one warms up */
        rates[run] = (double)n / seconds;
        shares[run] = bytes * rates[run] / bandwidth;
    }
    if (status == 0) summarise(out, rates, shares, runs);
    llm_kv_release(&begin);
    free(ids);
    free(probe);
    return status;
}

/* Sequences that run in the same passes. */
struct together {
    struct llm_engine *engine;
    struct llm_kv *kv;      /* [sequences] */
    struct llm_feed *feeds; /* [sequences] */
    const int32_t *ids;     /* [sequences][n] */
    int64_t sequences, n;
};

/* One pass over `count` sequences from `first` on, of their tokens [at, at + part), with all logits. */
static int pass_together(const struct together *t, int64_t first, int64_t count, int64_t at, int64_t part, struct llm_err *e)
{
    struct llm_reading r;
    int64_t rows[LLM_SPAN_MAX];
    for (int64_t i = 0; i < count; i++) t->feeds[i] = (struct llm_feed){&t->kv[first + i], t->ids + (first + i) * t->n + at, part, false};
    if (llm_engine_advance(t->engine, t->feeds, count, &r, e) < 0) return -1;
    for (int64_t row = 0; row < count * part; row += LLM_SPAN_MAX) {
        int64_t some = count * part - row < LLM_SPAN_MAX ? count * part - row : LLM_SPAN_MAX;
        for (int64_t i = 0; i < some; i++) rows[i] = row + i;
        if (!llm_engine_predict(t->engine, &r, rows, some, e)) return -1;
    }
    return llm_signal_caught() ? 1 : 0;
}

/* Runs all tokens, `step` of a sequence in a pass and as many sequences as fit, on copies of `begin`. *rate: tokens a second. 0, 1, -1. */
static int run_together(const struct together *t, const struct llm_kv *begin, int64_t step, double *rate, struct llm_err *e)
{
    const int64_t fit = t->engine->batch / step < t->sequences ? t->engine->batch / step : t->sequences;
    int status = 0;
    for (int64_t s = 0; s < t->sequences; s++) llm_kv_init(&t->kv[s], begin->pool);
    for (int64_t s = 0; s < t->sequences && status == 0; s++) status = copy(&t->kv[s], begin, t->n, e);
    double start = llm_now();
    for (int64_t at = 0; at < t->n && status == 0; at += step) {
        int64_t part = t->n - at < step ? t->n - at : step;
        for (int64_t s = 0; s < t->sequences && status == 0; s += fit)
            status = pass_together(t, s, t->sequences - s < fit ? t->sequences - s : fit, at, part, e);
    }
    *rate = (double)(t->sequences * t->n) / (llm_now() - start);
    for (int64_t s = 0; s < t->sequences; s++) llm_kv_release(&t->kv[s]);
    return status;
}

int llm_speed_together(struct llm_engine *g, int64_t sequences, int64_t depth, int64_t n, int64_t runs, struct llm_speed *out, struct llm_err *e)
{
    double rates[LLM_SPEED_MAX_RUNS], shares[LLM_SPEED_MAX_RUNS];
    struct llm_kv begin;
    int32_t *ids = some_tokens(depth + sequences * n, g->model->config.vocab_size, e);
    struct together t = {.engine = g, .sequences = sequences, .n = n};
    t.kv = llm_alloc((size_t)sequences, sizeof *t.kv, "sequences", e);
    t.feeds = llm_alloc((size_t)sequences, sizeof *t.feeds, "sequences", e);
    int status = ids && t.kv && t.feeds ? 0 : -1;
    *out = (struct llm_speed){.limit = "prefill"};
    llm_kv_init(&begin, &g->pool);
    if (status == 0 && depth > 0) status = feed(g, &begin, ids, depth, e);
    if (ids) t.ids = ids + depth;
    for (int64_t run = -1; run < runs && status == 0; run++) {
        double rate = 0, prefill = 0;
        /* decoding gives the memory of a prefill's logits back: the prefill that counts is one that follows a prefill */
        for (int turn = 0; turn < 2 && status == 0; turn++) status = run_together(&t, &begin, n < g->batch ? n : g->batch, &prefill, e);
        if (status == 0) status = run_together(&t, &begin, 1, &rate, e);
        if (run < 0) continue; /* the first one warms up */
        rates[run] = rate;
        shares[run] = rate / prefill;
    }
    if (status == 0) summarise(out, rates, shares, runs);
    llm_kv_release(&begin);
    free(t.feeds);
    free(t.kv);
    free(ids);
    return status;
}

int llm_speed_once(struct llm_engine *g, int64_t prompt, int64_t generate, double seconds[2], struct llm_err *e)
{
    struct llm_kv kv;
    int32_t *ids = some_tokens(prompt + generate, g->model->config.vocab_size, e);
    if (!ids) return -1;
    llm_kv_init(&kv, &g->pool);
    double start = llm_now();
    int status = prompt > 0 ? feed(g, &kv, ids, prompt, e) : 0;
    seconds[0] = llm_now() - start;
    for (int64_t i = 0; i < generate && status == 0; i++) status = feed(g, &kv, ids + prompt + i, 1, e);
    seconds[1] = llm_now() - start - seconds[0];
    llm_kv_release(&kv);
    free(ids);
    return status;
}
