#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "bin/kvinspect/kvinspect.h"
#include "measure/kv.h"

struct args {
    struct llm_common common;
    int64_t layer;
    int map;
    struct picture_args picture;
};
static const struct llm_opt options[] = {
    {'l', "layer", "N", "only layer N, from 0 [all]", LLM_INT, offsetof(struct args, layer), 0, 1 << 20, NULL},
    PICTURE_OPTIONS(struct args, picture),
    {0, "map", "WHAT", "what --png shows: norms of k or v, or attention [k]", LLM_CHOICE, offsetof(struct args, map), 0, 0, "k|v|attention"},
    {0}};
const struct llm_cli kv_heads_cli = {
    .name = "llm-kvinspect heads", .summary = "Print norms of keys and values, and attention statistics of traced queries, per head.",
    .usage = "[OPTION]... [FILE]",
    .options = options, .operands = LLM_OPERANDS_INPUT, .foreign = kv_foreign,
    .examples = "llm-kvinspect heads cache.kv\nllm-kvinspect heads --png attention.png --map attention -T model.llm cache.kv",
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG | LLM_COMMON_THREADS};

static const char *const columns[] = {"layer", "head", "kv_head", "k_norm", "k_norm_sd", "k_norm_first", "v_norm", "v_norm_sd", "v_norm_first",
                                      "entropy", "entropy_most", "sink", "largest", "distance", "previous", "duplicate", "induction", NULL};

static int print(const struct llm_kv_head *rows, int64_t first, int64_t last, const struct args *a, struct llm_err *e)
{
    struct llm_table t;
    llm_table_init(&t, columns);
    t.as_shown = true;
    for (int64_t i = first; i < last; i++) {
        const struct llm_kv_head *h = &rows[i];
        const double numbers[] = {h->k_norm, h->k_norm_sd, h->k_norm_first, h->v_norm, h->v_norm_sd, h->v_norm_first,
                                  h->entropy, h->entropy_most, h->sink, h->largest, h->distance,
                                  h->previous, h->duplicate, h->induction};
        llm_table_count(&t, (double)h->layer);
        llm_table_count(&t, (double)h->head);
        llm_table_count(&t, (double)h->kv_head);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) llm_table_printed(&t, numbers[k], LLM_NUMBER_GENERAL, 6);
    }
    return print_table(&t, &a->common, e);
}

static int draw(const struct llm_kv_file *f, const struct llm_kv_head *rows, int64_t n, const float *map, const struct args *a, struct llm_err *e)
{
    static const char *const titles[] = {"Norms of keys", "Norms of values", "Attention to each token"};
    char value[80] = "Euclidean norm";
    int64_t *layers = llm_calloc((size_t)n, sizeof *layers, "a heat map", e);
    int32_t *numbers = layers ? llm_calloc((size_t)n, sizeof *numbers, "a heat map", e) : NULL;
    for (int64_t i = 0; numbers && i < n; i++) {
        layers[i] = rows[i].layer;
        numbers[i] = (int32_t)rows[i].head;
    }
    if (a->map == 2) snprintf(value, sizeof value, "probability, mean over the last %lld queries", (long long)f->n_queries);
    struct llm_heatmap h = {.title = titles[a->map], .value = value, .v = map, .x.n = f->n,
                            .y = {.n = n, .name = "head", .numbers = numbers, .groups = layers, .group_name = "layer"}};
    int status = numbers ? draw_picture(&a->picture, f, &h, e) : -1;
    free(layers);
    free(numbers);
    return status;
}

static int heads(const struct llm_kv_file *f, const struct args *a, struct llm_err *e)
{
    int64_t all = llm_kv_heads_rows(f, -1), first = 0, last = all;
    if (check_layer(f, a->layer, e) < 0) return -1;
    if (a->layer >= 0) {
        first = llm_kv_heads_rows(f, a->layer);
        last = llm_kv_heads_rows(f, a->layer + 1);
    }
    if (first == last) return llm_fail(e, EX_DATAERR, "expected keys of attention, found none: the model keeps a state (llm-kvinspect summary)");
    struct llm_kv_head *rows = llm_calloc((size_t)all, sizeof *rows, "a table of heads", e);
    float *maps = wants_picture(&a->picture) ? llm_calloc((size_t)all, (size_t)f->n * sizeof *maps, "a heat map", e) : NULL;
    int status = rows && (maps || !wants_picture(&a->picture)) ? llm_kv_heads(f, rows, "kva"[a->map], maps, e) : -1;
    if (status == 0 && wants_picture(&a->picture)) status = draw(f, rows + first, last - first, maps + first * f->n, a, e);
    if (status == 0) status = print(rows, first, last, a, e);
    free(rows);
    free(maps);
    return status;
}

int kv_heads(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.layer = -1};
    struct llm_kv_file f = {0};
    const char *path = one_operand(&kv_heads_cli, llm_cli_parse(&kv_heads_cli, &a, argc, argv), argc, argv);
    llm_config_force(a.common.force_config);
    check_picture(&kv_heads_cli, &a.common, &a.picture);
    if (a.map && !wants_picture(&a.picture)) llm_usage(&kv_heads_cli, "--map needs --png or --svg");
    int status = llm_pool_start(a.common.threads, e);
    if (status == 0) status = llm_kv_file_read(&f, path, e);
    if (status == 0) status = heads(&f, &a, e);
    llm_kv_file_release(&f);
    llm_pool_stop();
    return status;
}
