#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "cpu/pool.h"
#include "bin/kvinspect/kvinspect.h"
#include "measure/kv.h"

struct args {
    struct llm_common common;
    struct picture_args picture;
};
static const struct llm_opt options[] = {PICTURE_OPTIONS(struct args, picture), {0}};
const struct llm_cli kv_diff_cli = {.name = "llm-kvinspect diff",
                                    .summary = "Compare two caches head by head; exit status 1 if they differ.",
                                    .usage = "[OPTION]... A B",
                                    .options = options, .operands = LLM_OPERANDS_INPUT, .foreign = kv_foreign,
                                    .examples = "llm-kvinspect diff f32.kv q8_0.kv",
                                    .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG | LLM_COMMON_THREADS};

static int print(const struct llm_kv_difference *rows, int64_t n, const struct args *a, bool *differ, struct llm_err *e)
{
    static const char *const columns[] = {"layer", "kv_head", "tensor", "rmse", "max_error", "relative", "cosine", NULL};
    struct llm_table t;
    llm_table_init(&t, columns);
    t.as_shown = true;
    for (int64_t i = 0; i < n; i++) {
        llm_table_count(&t, (double)rows[i].layer);
        if (rows[i].kv_head < 0) llm_table_printed(&t, (double)NAN, LLM_NUMBER_GENERAL, 6);
        else llm_table_count(&t, (double)rows[i].kv_head);
        llm_table_text(&t, rows[i].what);
        llm_table_printed(&t, rows[i].rmse, LLM_NUMBER_GENERAL, 6);
        llm_table_printed(&t, rows[i].max_error, LLM_NUMBER_GENERAL, 6);
        llm_table_printed(&t, rows[i].relative, LLM_NUMBER_GENERAL, 6);
        llm_table_printed(&t, rows[i].cosine, LLM_NUMBER_GENERAL, 6);
        *differ |= rows[i].max_error != 0; /* NaN too */
    }
    return print_table(&t, &a->common, e);
}

/* Parts of states belong to no token: they are left out. */
static int draw(const struct llm_kv_file *f, const struct llm_kv_difference *rows, int64_t n, float *map, int64_t tokens, const struct args *a,
                struct llm_err *e)
{
    int64_t *layers = llm_calloc((size_t)n, sizeof *layers, "a heat map", e), drawn = 0;
    char (*texts)[24] = layers ? llm_calloc((size_t)n, sizeof *texts, "a heat map", e) : NULL;
    const char **labels = texts ? llm_calloc((size_t)n, sizeof *labels, "a heat map", e) : NULL;
    for (int64_t i = 0; labels && i < n; i++) {
        if (rows[i].kv_head < 0) continue;
        layers[drawn] = rows[i].layer;
        snprintf(texts[drawn], sizeof *texts, "%s %lld", rows[i].what, (long long)rows[i].kv_head);
        labels[drawn] = texts[drawn];
        memmove(map + drawn * tokens, map + i * tokens, (size_t)tokens * sizeof *map);
        drawn++;
    }
    struct llm_heatmap h = {.title = "Differences of two caches", .value = "root mean square of the differences", .v = map, .x.n = tokens,
                            .y = {.n = drawn, .name = "keys (k) and values (v) of a head", .labels = labels, .groups = layers,
                                  .group_name = "layer"}};
    int status = labels ? draw_picture(&a->picture, f, &h, e) : -1;
    free(layers);
    free(texts);
    free(labels);
    return status;
}

static int compare(const struct llm_kv_file *x, const struct llm_kv_file *y, const struct args *a, struct llm_err *e)
{
    int64_t n = llm_kv_diff_rows(x), common = llm_kv_common(x, y);
    bool differ = common < x->n || common < y->n;
    struct llm_kv_difference *rows = llm_calloc((size_t)n, sizeof *rows, "a table of heads", e);
    float *maps = wants_picture(&a->picture) ? llm_calloc((size_t)n, (size_t)(common + 1) * sizeof *maps, "a heat map", e) : NULL;
    int status = rows && (maps || !wants_picture(&a->picture)) ? llm_kv_diff(x, y, rows, maps, e) : -1;
    if (status == 0 && differ) {
        llm_note("%lld and %lld tokens, of which the first %lld are the same", (long long)x->n, (long long)y->n, (long long)common);
    }
    if (status == 0 && wants_picture(&a->picture)) status = draw(x, rows, n, maps, common, a, e);
    if (status == 0) status = print(rows, n, a, &differ, e);
    free(rows);
    free(maps);
    return status < 0 ? -1 : differ;
}

int kv_diff(int argc, char **argv, struct llm_err *e)
{
    struct args a = {0};
    struct llm_kv_file x = {0}, y = {0};
    int rest = llm_cli_parse(&kv_diff_cli, &a, argc, argv);
    llm_config_force(a.common.force_config);
    if (argc - rest != 2) llm_usage(&kv_diff_cli, "expected two files, found %d", argc - rest);
    if (strcmp(argv[rest], "-") == 0 && strcmp(argv[rest + 1], "-") == 0) llm_usage(&kv_diff_cli, "standard input cannot be two inputs at once");
    check_picture(&kv_diff_cli, &a.common, &a.picture);
    int status = llm_pool_start(a.common.threads, e);
    if (status == 0) status = llm_kv_file_read(&x, argv[rest], e);
    if (status == 0) status = llm_kv_file_read(&y, argv[rest + 1], e);
    if (status == 0) status = compare(&x, &y, &a, e);
    llm_kv_file_release(&x);
    llm_kv_file_release(&y);
    llm_pool_stop();
    return status;
}
