#include "bin/quantize/budget.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/log.h"
#include "data/input.h"
#include "quant/spool.h"

uint64_t quantize_budget_bytes(const char *text, const struct llm_model *m)
{
    static const struct { const char *suffix; double factor; } units[] = {{"", 1}, {"k", 1024}, {"KiB", 1024}, {"M", 1048576}, {"MiB", 1048576},
                                                                          {"G", 1073741824}, {"GiB", 1073741824}};
    char *end;
    double v = strtod(text, &end), elements = 0;
    if (end == text || !(v > 0)) return 0;
    for (size_t i = 0; i < m->n_params; i++) elements += (double)llm_param_count(&m->params[i]);
    if (strcasecmp(end, "bpw") == 0) return v < 64 ? (uint64_t)(v * elements / 8) : 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(end, units[i].suffix) == 0) return v * units[i].factor < 1e18 ? (uint64_t)(v * units[i].factor) : 0;
    }
    return 0;
}

int64_t quantize_tokens_before(const char *option, const char *text, const struct llm_model *m, int64_t max, struct llm_err *e)
{
    struct llm_input of = {0};
    int status = llm_input_read(&of, text, m, e);
    const size_t n = max > 0 && of.n > (size_t)max ? (size_t)max : of.n;
    llm_input_release(&of);
    if (status < 0) return -1;
    if (n < 256) return llm_fail(e, EX_DATAERR, "%s: --%s: expected at least 256 tokens, found %zu", text, option, n);
    return (int64_t)(n - (n / 8 < 64 ? 64 : n / 8));
}

static int no_row(void *arg, const struct llm_quant_report *r, struct llm_err *e)
{
    (void)arg;
    (void)r;
    (void)e;
    return 0;
}

/* Quantises a fresh copy of the model by the plan and measures the divergence of its predictions on the text that was held out. */
static int measure_plan(const struct quantize_in *in, const struct llm_quant_plan *plan, const char *cache, struct llm_kl_base *held,
                        struct llm_kl *kl, double *windows, struct llm_err *e)
{
    struct llm_model *m = quantize_load(in, e);
    struct llm_quant_spool spool = {0};
    struct llm_quant_plan with = *plan;
    with.spool = &spool;
    int status = m ? llm_quantize_model(m, &with, no_row, NULL, e) : -1;
    if (status == 0) status = llm_kl_measure_cache(held, m, cache, kl, windows, e);
    llm_model_destroy(m);
    llm_quant_spool_release(&spool);
    return status;
}

/* The largest mix that fits in so many bytes, NULL: none does; and the smallest one. */
static const struct llm_quant_type *largest_mix(const struct llm_model *m, const struct llm_quant_plan *plan, uint64_t bytes,
                                                const struct llm_quant_type **smallest)
{
    const struct llm_quant_type *best = NULL;
    uint64_t size_of_best = 0, least = UINT64_MAX;
    struct llm_quant_plan with = *plan;
    for (int i = 0; llm_quant_word(i); i++) {
        with.type = &llm_quant_types[i];
        if (with.type->mix == LLM_MIX_NONE) continue;
        const uint64_t size = llm_budget_bytes(m, &with);
        if (size < least) {
            least = size;
            *smallest = with.type;
        }
        if (size > bytes || size <= size_of_best) continue;
        best = with.type;
        size_of_best = size;
    }
    return best;
}

const struct llm_quant_type *quantize_budget_mix(const struct llm_model *m, const struct llm_quant_plan *plan, uint64_t bytes)
{
    const struct llm_quant_type *smallest = NULL, *best = largest_mix(m, plan, bytes, &smallest);
    return best ? best : smallest;
}

/* The plan's own mix if it fits in so many bytes, else the largest one that does; NULL: none fits. */
static const struct llm_quant_type *mix_that_fits(const struct llm_model *m, const struct llm_quant_plan *plan, uint64_t bytes)
{
    const struct llm_quant_type *smallest;
    return llm_budget_bytes(m, plan) <= bytes ? plan->type : largest_mix(m, plan, bytes, &smallest);
}

/* What is compared: the budget's choice, and a mix with one type for all keys and values. */
struct rival {
    const struct llm_quant_type *mix;
    const char *cache;             /* NULL: the cache is not within the budget */
    uint64_t bytes;
};

static struct rival rival_of(const struct budget_request *r, const struct llm_model *m, const struct llm_quant_plan *plan, enum llm_dtype cache)
{
    const uint64_t cached = r->room.tokens > 0 ? llm_budget_cache_bytes(m, cache, r->room.tokens) : 0;
    struct rival x = {.cache = r->room.tokens > 0 ? llm_dtypes[cache].name : NULL};
    struct llm_quant_plan with = *plan;
    if (cached >= r->room.bytes || !(x.mix = mix_that_fits(m, plan, r->room.bytes - cached))) return x;
    with.type = x.mix;
    x.bytes = llm_budget_bytes(m, &with) + cached;
    return x;
}

/* Measures a rival. *best: the difference of the best one so far (0: the budget's choice); `windows`: of the budget's choice, and room for
 * another. */
static int measure_rival(const struct budget_request *r, const struct llm_quant_plan *plan, const struct rival *x, struct llm_kl_base *held,
                         const struct llm_kl *ours, double *windows, double *best, struct llm_err *e)
{
    const int64_t n = llm_kl_windows(held);
    struct llm_quant_plan with = *plan;
    struct llm_kl kl;
    with.type = x->mix;
    int status = measure_plan(&r->in, &with, x->cache, held, &kl, windows + n, e);
    if (status != 0) return status;
    for (int64_t i = 0; i < n; i++) windows[n + i] = windows[i] - windows[n + i];
    const double difference = ours->mean - kl.mean;
    llm_note("budget: %s%s%s, %" PRIu64 " bytes: KL %.6f; difference %.6f%s", x->mix->name, x->cache ? " with a cache of " : "",
             x->cache ? x->cache : "", x->bytes, kl.mean, difference, llm_kl_interval(llm_kl_mean_of(windows + n, n).half).text);
    if (difference > *best) *best = difference;
    return 0;
}

static int compare(const struct budget_request *r, const struct llm_model *m, const struct llm_quant_plan *plan, struct llm_kl_base *held,
                   const struct llm_budget *b, struct rival *better, struct llm_err *e)
{
    struct llm_quant_plan ours = *plan;
    const int64_t n = llm_kl_windows(held);
    double *windows = llm_calloc((size_t)(2 * n), sizeof *windows, "windows", e), best = 0;
    struct llm_kl a;
    ours.chosen = b->types;
    int status = windows ? measure_plan(&r->in, &ours, b->cache_types, held, &a, windows, e) : -1;
    if (status == 0) {
        llm_note("budget: %" PRIu64 " of %" PRIu64 " bytes; KL %.6f predicted, %.6f%s measured on %" PRId64 " tokens held out%s", b->bytes,
                 r->room.bytes, b->predicted, a.mean, llm_kl_interval(a.half).text, a.tokens, n > 1 ? " (95%)" : "");
    }
    for (const enum llm_dtype *t = llm_budget_cache_types; *t != LLM_N_DTYPES && status == 0; t++) {
        const struct rival x = rival_of(r, m, plan, *t);
        const double before = best;
        if (x.mix && (status = measure_rival(r, plan, &x, held, &a, windows, &best, e)) == 0 && best > before) *better = x;
        if (r->room.tokens == 0) break;
    }
    if (status == 0) llm_note("budget: %s is written", better->mix ? better->mix->name : "the budget's choice");
    const char *cache = better->mix ? better->cache : b->cache_types;
    if (status == 0 && cache) llm_note("budget: the cache of %" PRId64 " tokens is counted as --cache-type %s", r->room.tokens, cache);
    free(windows);
    return status;
}

int quantize_budget(const struct budget_request *r, struct llm_model *m, const struct llm_quant_plan *plan, struct llm_budget *b,
                    const struct llm_quant_type **type, struct llm_err *e)
{
    struct llm_kl_base probe = {0}, held = {0};
    struct llm_model *base = llm_model_load(r->in.path, e);
    struct rival better = {0};
    struct llm_input text = {0};
    int status = base ? llm_input_read(&text, r->text, base, e) : -1;
    const size_t n = r->max > 0 && text.n > (size_t)r->max ? (size_t)r->max : text.n;
    const int64_t probe_tokens = r->probe < r->first_held_out ? r->probe : r->first_held_out;
    if (status == 0) status = llm_kl_base_init(&probe, base, text.ids, probe_tokens, r->context, e);
    if (status == 0) status = llm_kl_base_init(&held, base, text.ids + r->first_held_out, (int64_t)n - r->first_held_out, r->context, e);
    if (status == 0) status = llm_budget_choose(m, plan, &r->room, &probe, b, e);
    if (status == 0) status = compare(r, m, plan, &held, b, &better, e);
    if (status == 0 && better.mix) {
        free(b->types);
        free(b->cache);
        b->types = NULL;
        b->cache = NULL;
        *type = better.mix;
    }
    llm_kl_base_release(&probe);
    llm_kl_base_release(&held);
    llm_model_destroy(base);
    llm_input_release(&text);
    return status;
}
