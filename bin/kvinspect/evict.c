/* llm-kvinspect evict: which keys can go, and what attention loses by them. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/kvinspect/kvinspect.h"
#include "cpu/pool.h"
#include "measure/evict.h"
#include "measure/kv.h"

enum { ALL_METHODS, MAX_BUDGETS = 32 };
struct args {
    struct llm_common common;
    int method, by;
    const char *keep, *kv_out;
    int64_t sinks, recent, hold;
};
static const struct llm_opt options[] = {
    {0, "method", "WHAT", "keep the last tokens; the first ones too (sinks); those with most attention; those with most from the last queries [all]",
     LLM_CHOICE, offsetof(struct args, method), 0, 0, "all|window|sinks|h2o|snapkv"},
    {0, "keep", "N,...", "keep N tokens in each head [a half, a quarter, an eighth and a sixteenth of them]", LLM_STR,
     offsetof(struct args, keep), 0, 0, NULL},
    {0, "sinks", "N", "sinks: first tokens among those [4]", LLM_INT, offsetof(struct args, sinks), 0, 1 << 24, NULL},
    {0, "recent", "N", "h2o, snapkv: last tokens among those [a half; snapkv: at most 32]", LLM_INT, offsetof(struct args, recent), 1, 1 << 24,
     NULL},
    {0, "hold", "N", "measure with the queries of the last N tokens, and choose with those before [half of the traced ones]", LLM_INT,
     offsetof(struct args, hold), 1, 1 << 24, NULL},
    {0, "by", "WHAT", "a line for all heads, for each layer or for each head [all]", LLM_CHOICE, offsetof(struct args, by), 0, 0, BY_WORDS},
    {0, "kv-out", "FILE", "write the cache that is left, for llm-infer --kv-in, instead of measuring", LLM_OUTPUT,
     offsetof(struct args, kv_out), 0, 0, NULL},
    {0}};
const struct llm_cli kv_evict_cli = {
    .name = "llm-kvinspect evict", .summary = "Measure what attention loses when keys are evicted, or write the cache that is left.",
    .usage = "[OPTION]... [FILE]",
    .options = options, .operands = LLM_OPERANDS_INPUT, .foreign = kv_foreign,
    .examples = "llm-kvinspect evict cache.kv\n"
                "llm-kvinspect evict --method snapkv --keep 64 --kv-out small.kv cache.kv",
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG | LLM_COMMON_THREADS};

/* ---- measuring ---- */

/* A line for the losses of heads [from, to) with method m of n. */
static void put_row(struct llm_table *t, const struct llm_evict *m, const struct llm_evict_loss *losses, int64_t from, int64_t to, int64_t n,
                    enum by by)
{
    double lost = 0, kl = 0, error = 0, size = 0, queries = 0;
    for (int64_t h = from; h < to; h++) {
        const struct llm_evict_loss *x = &losses[h * n];
        lost += x->lost;
        kl += x->kl;
        error += x->error;
        size += x->size;
        queries += (double)x->queries;
    }
    llm_table_text(t, llm_evict_word((int)m->method));
    llm_table_count(t, (double)m->keep);
    llm_table_count(t, by == BY_ALL ? (double)NAN : (double)losses[from * n].layer);
    llm_table_count(t, by == BY_HEAD ? (double)losses[from * n].head : (double)NAN);
    llm_table_printed(t, lost / queries, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(t, kl / queries, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(t, size == 0 ? 0 : sqrt(error / size), LLM_NUMBER_GENERAL, 6);
}

static int print(const struct llm_evict *m, const struct llm_evict_loss *losses, int64_t rows, int64_t n, const struct args *a, struct llm_err *e)
{
    static const char *const columns[] = {"method", "keep", "layer", "head", "lost", "kl", "output_error", NULL};
    struct llm_table t;
    llm_table_init(&t, columns);
    t.as_shown = true;
    for (int64_t k = 0; k < n; k++) {
        for (int64_t from = 0, to; from < rows; from = to) {
            to = a->by == BY_ALL ? rows : from + 1;
            while (a->by == BY_LAYER && to < rows && losses[to * n].layer == losses[from * n].layer) to++;
            put_row(&t, &m[k], losses + k, from, to, n, (enum by)a->by);
        }
    }
    return print_table(&t, &a->common, e);
}

/* The methods and budgets that are asked for: m [LLM_N_EVICT × MAX_BUDGETS]. Returns how many. */
static int64_t list(const struct args *a, const int64_t *keep, int64_t n_keep, struct llm_evict *m)
{
    int64_t n = 0;
    for (int method = 0; method < LLM_N_EVICT; method++) {
        for (int64_t i = 0; i < n_keep; i++) {
            if (a->method != ALL_METHODS && method != a->method - 1) continue;
            m[n] = llm_evict_of((enum llm_evict_method)method, keep[i]);
            if (a->sinks >= 0) m[n].sinks = a->sinks < keep[i] ? a->sinks : keep[i] - 1;
            if (a->recent > 0) m[n].recent = a->recent < keep[i] ? a->recent : keep[i];
            n++;
        }
    }
    return n;
}

static int measure(const struct llm_kv_file *f, const struct args *a, int64_t *keep, int64_t n_keep, struct llm_err *e)
{
    struct llm_evict m[LLM_N_EVICT * MAX_BUDGETS];
    int64_t hold = a->hold > 0 ? a->hold : f->n_queries > 1 ? f->n_queries / 2 : 1, rows = llm_kv_heads_rows(f, -1);
    for (int64_t part = 2; !a->keep && part <= 16; part *= 2) keep[n_keep++] = (f->n - hold) / part > 0 ? (f->n - hold) / part : 1;
    int64_t n = list(a, keep, n_keep, m);
    struct llm_evict_loss *losses = llm_calloc((size_t)rows, (size_t)n * sizeof *losses, "losses", e);
    int status = losses ? llm_evict_losses(f, m, n, hold, losses, e) : -1;
    if (status == 0) status = print(m, losses, rows, n, a, e);
    free(losses);
    return status;
}

/* ---- the cache that is left ---- */

static int write(struct llm_kv_file *f, const struct args *a, int64_t keep, struct llm_err *e)
{
    struct llm_evict m[LLM_N_EVICT * MAX_BUDGETS];
    (void)list(a, &keep, 1, m);
    if (llm_evict(f, m, e) < 0) return -1;
    return write_cache(f, a->kv_out, e);
}

int kv_evict(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.sinks = -1, .by = -1};
    struct llm_kv_file f = {0};
    int64_t keep[MAX_BUDGETS] = {0};
    const char *path = one_operand(&kv_evict_cli, llm_cli_parse(&kv_evict_cli, &a, argc, argv), argc, argv);
    llm_config_force(a.common.force_config);
    int64_t n = a.keep ? (int64_t)llm_cli_numbers(&kv_evict_cli, "keep", a.keep, 1, 1 << 24, keep, MAX_BUDGETS) : 0;
    if (a.kv_out && (a.method == ALL_METHODS || n != 1)) llm_usage(&kv_evict_cli, "--kv-out needs one --method and one --keep");
    if (a.kv_out && (a.common.output || a.hold || a.by >= 0 || a.common.json || a.common.format)) {
        llm_usage(&kv_evict_cli, "--kv-out writes the cache and no table: --%s does not go with it",
                  a.hold ? "hold" : a.by >= 0 ? "by" : a.common.json ? "json" : a.common.format ? "format" : "output");
    }
    if (a.by < 0) a.by = 0;
    const int method = a.method - 1;
    if (a.method != ALL_METHODS && a.sinks >= 0 && method != LLM_EVICT_SINKS) llm_usage(&kv_evict_cli, "--sinks goes with --method sinks");
    if (a.method != ALL_METHODS && a.recent > 0 && method != LLM_EVICT_H2O && method != LLM_EVICT_SNAPKV) {
        llm_usage(&kv_evict_cli, "--recent goes with --method h2o and snapkv");
    }
    int status = llm_pool_start(a.common.threads, e);
    if (status == 0) status = llm_kv_file_read(&f, path, e);
    if (status == 0) status = a.kv_out ? write(&f, &a, keep[0], e) : measure(&f, &a, keep, n, e);
    llm_kv_file_release(&f);
    llm_pool_stop();
    return status;
}
