#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "cpu/pool.h"
#include "bin/kvinspect/kvinspect.h"
#include "measure/kv.h"

struct args {
    struct llm_common common;
    const char *png;
};
static const struct llm_opt options[] = {
    {0, "png", "FILE", "also paint a heat map: a line a head of k and of v, a column a token", LLM_STR, offsetof(struct args, png), 0, 0, NULL}, {0}};
const struct llm_cli kv_diff_cli = {.name = "llm-kvinspect diff",
                                    .summary = "how two caches differ, head by head; status 1 when they do",
                                    .usage = "[OPTION]... A B",
                                    .options = options,
                                    .examples = "llm-kvinspect diff f32.kv q8_0.kv",
                                    .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_THREADS};

static int print(const struct llm_kv_difference *rows, int64_t n, const struct args *a, bool *differ, struct llm_err *e)
{
    static const char *const columns[] = {"layer", "kv_head", "tensor", "rmse", "max_error", "relative", "cosine", NULL};
    struct table t;
    if (table_open(&t, a->common.output, a->common.json, columns, e) < 0) return -1;
    for (int64_t i = 0; i < n; i++) {
        table_integer(&t, rows[i].layer);
        if (rows[i].kv_head < 0) table_number(&t, (double)NAN);
        else table_integer(&t, rows[i].kv_head);
        table_text(&t, rows[i].what);
        table_number(&t, rows[i].rmse);
        table_number(&t, rows[i].max_error);
        table_number(&t, rows[i].relative);
        table_number(&t, rows[i].cosine);
        *differ |= rows[i].max_error != 0;
    }
    return table_close(&t, 0);
}

static int compare(const struct llm_kv_file *x, const struct llm_kv_file *y, const struct args *a, struct llm_err *e)
{
    int64_t n = llm_kv_diff_rows(x), common = llm_kv_common(x, y);
    bool differ = common < x->n || common < y->n;
    struct llm_kv_difference *rows = llm_calloc((size_t)n, sizeof *rows, "a table of heads", e);
    float *maps = a->png ? llm_calloc((size_t)n, (size_t)(common + 1) * sizeof *maps, "a heat map", e) : NULL;
    int status = rows && (maps || !a->png) ? llm_kv_diff(x, y, rows, maps, e) : -1;
    if (status == 0 && differ) {
        llm_note("%lld and %lld tokens, of which the first %lld are the same", (long long)x->n, (long long)y->n, (long long)common);
    }
    if (status == 0) status = print(rows, n, a, &differ, e);
    if (status == 0 && a->png) status = paint(a->png, maps, n, common, e);
    free(rows);
    free(maps);
    return status < 0 ? -1 : differ;
}

int kv_diff(int argc, char **argv, struct llm_err *e)
{
    struct args a = {0};
    struct llm_kv_file x = {0}, y = {0};
    int rest = llm_cli_parse(&kv_diff_cli, &a, argc, argv);
    if (argc - rest != 2) llm_usage(&kv_diff_cli, "expected two files, found %d", argc - rest);
    if (strcmp(argv[rest], "-") == 0 && strcmp(argv[rest + 1], "-") == 0) llm_usage(&kv_diff_cli, "standard input cannot be two inputs at once");
    check_png(&kv_diff_cli, &a.common, a.png);
    int status = llm_pool_start(a.common.threads, e);
    if (status == 0) status = llm_kv_file_read(&x, argv[rest], e);
    if (status == 0) status = llm_kv_file_read(&y, argv[rest + 1], e);
    if (status == 0) status = compare(&x, &y, &a, e);
    llm_kv_file_release(&x);
    llm_kv_file_release(&y);
    llm_pool_stop();
    return status;
}
