/* llm-kvinspect quant: what attention loses in each type of cache. */
#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "bin/kvinspect/kvinspect.h"
#include "cpu/pool.h"
#include "measure/kv.h"
#include "measure/rounding.h"

struct args {
    struct llm_common common;
    int by;
};
static const struct llm_opt options[] = {
    {0, "by", "WHAT", "a line for all heads, for each layer or for each head [all]", LLM_CHOICE, offsetof(struct args, by), 0, 0, BY_WORDS},
    {0}};
const struct llm_cli kv_quant_cli = {
    .name = "llm-kvinspect quant", .summary = "Measure what attention of the traced queries loses in each type of cache.",
    .usage = "[OPTION]... [FILE]",
    .options = options, .operands = LLM_OPERANDS_INPUT, .foreign = kv_foreign,
    .examples = "llm-kvinspect quant cache.kv\nllm-kvinspect quant --by layer cache.kv",
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG | LLM_COMMON_THREADS};

static double relative(double error, double size)
{
    return size == 0 ? 0 : sqrt(error / size);
}

/* A line for one type in heads [from, to) of n types. */
static void put_row(struct llm_table *t, const struct llm_rounding *rows, int64_t from, int64_t to, int64_t n, enum by by)
{
    struct llm_rounding s = rows[from * n];
    for (int64_t h = from + 1; h < to; h++) {
        const struct llm_rounding *x = &rows[h * n];
        s.kl += x->kl;
        s.error += x->error;
        s.size += x->size;
        s.k_error += x->k_error;
        s.k_size += x->k_size;
        s.v_error += x->v_error;
        s.v_size += x->v_size;
        s.queries += x->queries;
    }
    llm_table_text(t, llm_dtypes[s.type].name);
    llm_table_count(t, by == BY_ALL ? (double)NAN : (double)s.layer);
    llm_table_count(t, by == BY_HEAD ? (double)s.head : (double)NAN);
    llm_table_printed(t, s.kl / (double)s.queries, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(t, relative(s.error, s.size), LLM_NUMBER_GENERAL, 6);
    llm_table_printed(t, relative(s.k_error, s.k_size), LLM_NUMBER_GENERAL, 6);
    llm_table_printed(t, relative(s.v_error, s.v_size), LLM_NUMBER_GENERAL, 6);
}

static int quant(const struct llm_kv_file *f, const struct args *a, struct llm_err *e)
{
    static const char *const columns[] = {"type", "layer", "head", "kl", "output_error", "k_error", "v_error", NULL};
    enum llm_dtype types[LLM_ROUNDING_TYPES];
    int64_t n = llm_rounding_types(f, types), heads = llm_kv_heads_rows(f, -1);
    struct llm_rounding *rows = llm_calloc((size_t)heads, (size_t)n * sizeof *rows, "a table of heads", e);
    int status = rows ? llm_rounding_of(f, types, n, rows, e) : -1;
    struct llm_table t;
    llm_table_init(&t, columns);
    t.as_shown = true;
    for (int64_t k = 0; k < n && status == 0; k++) {
        for (int64_t from = 0, to; from < heads; from = to) {
            to = a->by == BY_ALL ? heads : from + 1;
            while (a->by == BY_LAYER && to < heads && rows[to * n].layer == rows[from * n].layer) to++;
            put_row(&t, rows + k, from, to, n, (enum by)a->by);
        }
    }
    free(rows);
    if (status == 0) return print_table(&t, &a->common, e);
    llm_table_release(&t);
    return -1;
}

int kv_quant(int argc, char **argv, struct llm_err *e)
{
    struct args a = {0};
    struct llm_kv_file f = {0};
    const char *path = one_operand(&kv_quant_cli, llm_cli_parse(&kv_quant_cli, &a, argc, argv), argc, argv);
    llm_config_force(a.common.force_config);
    int status = llm_pool_start(a.common.threads, e);
    if (status == 0) status = llm_kv_file_read(&f, path, e);
    if (status == 0) status = quant(&f, &a, e);
    llm_kv_file_release(&f);
    llm_pool_stop();
    return status;
}
