/* llm-index stat and check. */
#include <math.h>
#include <string.h>
#include "bin/index/index.h"
#include "cpu/pool.h"
#include "io/table.h"
#include "search/check.h"

struct args { struct llm_common common; };
static const struct llm_opt options[] = {{0}};

const struct llm_cli index_stat_cli = {
    .name = "llm-index stat", .summary = "Print what an index holds.", .usage = "[OPTION]... INDEX", .options = options,
    .operands = LLM_OPERANDS_INPUT, .examples = "llm-index stat notes.idx",
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE, .foreign = index_foreign};
const struct llm_cli index_check_cli = {
    .name = "llm-index check", .summary = "Check everything in an index, and measure what it promises.", .usage = "[OPTION]... INDEX",
    .options = options, .operands = LLM_OPERANDS_INPUT, .examples = "llm-index check notes.idx",
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_THREADS | LLM_COMMON_JSON | LLM_COMMON_TABLE, .foreign = index_foreign};

static const char *one(const struct llm_cli *cli, int rest, int argc, char **argv)
{
    if (argc - rest != 1) llm_usage(cli, "expected one index");
    return argv[rest];
}

/* A count, which has no exponent in JSON either: readers take 4e+01 for a floating-point number. */
static void put_count(struct llm_table *t, uint64_t n)
{
    llm_table_printed(t, (double)n, LLM_NUMBER_INTEGER, 0);
}

static int print(struct llm_table *t, const struct llm_common *common, struct llm_err *e)
{
    t->record = true;
    return llm_tables_print(common->output, llm_table_form(common), &t, 1, e);
}

/* A number from 0 to 1; NaN: not measured. */
static void put_share(struct llm_table *t, double v)
{
    if (isnan(v)) llm_table_text(t, NULL);
    else llm_table_printed(t, v, LLM_NUMBER_FIXED, 4);
}

/* The kind of the index, and of a graph its settings and how many rows it links: those of an unfinished batch wait. */
static void put_graph(struct llm_table *t, const struct llm_index *x)
{
    const struct llm_graph *g = &x->graph;
    const int64_t counts[] = {g->m, g->ef_build, g->n};
    llm_table_text(t, x->dims == 0 ? NULL : g->m > 0 ? "hnsw" : "flat");
    for (int i = 0; i < 3; i++) {
        if (g->m > 0) put_count(t, (uint64_t)counts[i]);
        else llm_table_text(t, NULL);
    }
}

int index_stat(int argc, char **argv, struct llm_err *e)
{
    static const char *const columns[] = {"rows", "deleted", "dims", "metric", "vectors", "kind", "neighbours", "ef_build", "linked", "recall_at_10",
                                          "plain", "texts_bytes", "words", "postings", "seed", "fingerprint", "place", NULL};
    struct args a = {0};
    struct llm_index x = {0};
    struct llm_table t;
    const char *path = one(&index_stat_cli, llm_cli_parse(&index_stat_cli, &a, argc, argv), argc, argv);
    int status = llm_pool_start(1, e) < 0 ? -1 : llm_index_open(&x, path, false, e);
    if (status == 0) {
        llm_table_init(&t, columns);
        put_count(&t, (uint64_t)x.n);
        put_count(&t, (uint64_t)x.n_deleted);
        put_count(&t, (uint64_t)x.dims);
        llm_table_text(&t, x.dims > 0 ? llm_metrics[x.metric] : NULL);
        llm_table_text(&t, llm_coarses[x.coarse]);
        put_graph(&t, &x);
        put_share(&t, x.has_recall ? x.recall : NAN);
        llm_table_text(&t, x.plain ? "yes" : "no");
        put_count(&t, x.texts.at[x.n]);
        put_count(&t, (uint64_t)x.n_words);
        put_count(&t, x.postings_at[x.n_words]);
        put_count(&t, (uint64_t)x.seed);
        llm_table_text(&t, x.fingerprint[0] ? x.fingerprint : NULL);
        llm_table_text(&t, x.place[0] ? x.place : NULL);
        status = print(&t, &a.common, e);
    }
    llm_index_release(&x);
    return status;
}

int index_check(int argc, char **argv, struct llm_err *e)
{
    static const char *const columns[] = {"rows", "found_by_own_vector", "recall_at_10", "stored_recall_at_10", NULL};
    struct args a = {0};
    struct llm_index x = {0};
    struct llm_check c;
    struct llm_table t;
    const char *path = one(&index_check_cli, llm_cli_parse(&index_check_cli, &a, argc, argv), argc, argv);
    int status = llm_pool_start(a.common.threads, e) < 0 ? -1 : llm_index_open(&x, path, false, e);
    if (status == 0 && (status = llm_index_check(&x, &c, e)) < 0) llm_in(e, "%s", x.name);
    if (status == 0) {
        llm_table_init(&t, columns);
        put_count(&t, (uint64_t)x.n);
        put_share(&t, c.found);
        put_share(&t, c.recall);
        put_share(&t, x.has_recall ? x.recall : NAN);
        status = print(&t, &a.common, e);
    }
    llm_index_release(&x);
    return status;
}
