/* llm-kvinspect attention: where the traced queries of a head look. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/kvinspect/kvinspect.h"
#include "cpu/pool.h"
#include "measure/heatmap_html.h"
#include "measure/kv.h"

struct args {
    struct llm_common common;
    int64_t layer, head;
    const char *html;
    struct picture_args picture;
};
static const struct llm_opt options[] = {
    {'l', "layer", "N", "layer N, from 0 [0]", LLM_INT, offsetof(struct args, layer), 0, 1 << 20, NULL},
    {0, "head", "N", "query head N, from 0 [the mean of all heads of the layer]", LLM_INT, offsetof(struct args, head), 0, 1 << 20, NULL},
    PICTURE_OPTIONS(struct args, picture),
    {0, "html", "FILE", "also write a page with the map, which shows both tokens and the number under the pointer", LLM_OUTPUT,
     offsetof(struct args, html), 0, 0, NULL},
    {0}};
const struct llm_cli kv_attention_cli = {
    .name = "llm-kvinspect attention", .summary = "Show where the traced queries of a head look: a table, a heat map, a page.",
    .usage = "[OPTION]... [FILE]",
    .options = options, .operands = LLM_OPERANDS_INPUT, .foreign = kv_foreign,
    .examples = "llm-kvinspect attention -l 5 --head 3 -T model.llm --png head.png --html head.html cache.kv",
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG | LLM_COMMON_THREADS};

static const char *const columns[] = {"query", "key", "p", "second_key", "second_p", "entropy", NULL};

/* The likeliest keys of each query. */
static int print(const struct llm_kv_file *f, const float *p, const struct llm_common *common, struct llm_err *e)
{
    struct llm_table t;
    llm_table_init(&t, columns);
    t.as_shown = true;
    for (int64_t i = 0; i < f->n_queries; i++) {
        const float *row = p + i * f->n;
        int64_t best = 0, second = -1;
        double entropy = 0;
        for (int64_t j = 1; j < f->n; j++) best = row[j] > row[best] ? j : best;
        for (int64_t j = 0; j < f->n; j++) {
            if (row[j] > 0) entropy -= (double)row[j] * log((double)row[j]);
            if (j != best && (second < 0 || row[j] > row[second])) second = j;
        }
        llm_table_count(&t, (double)f->positions[f->n - f->n_queries + i]);
        llm_table_count(&t, (double)f->positions[best]);
        llm_table_printed(&t, (double)row[best], LLM_NUMBER_GENERAL, 6);
        llm_table_count(&t, second < 0 ? (double)NAN : (double)f->positions[second]);
        llm_table_printed(&t, second < 0 ? (double)NAN : (double)row[second], LLM_NUMBER_GENERAL, 6);
        llm_table_printed(&t, entropy, LLM_NUMBER_GENERAL, 6);
    }
    return print_table(&t, common, e);
}

static int draw(const struct llm_kv_file *f, float *p, const struct args *a, struct llm_err *e)
{
    static const enum llm_scaling scales[] = {LLM_SCALE_AUTO, LLM_SCALE_LINEAR, LLM_SCALE_LOG};
    struct llm_buf text = {0};
    const char **labels = NULL;
    char title[120], subtitle[200];
    int64_t first = f->n - f->n_queries;
    int status = 0;
    if (a->picture.tokenizer && !(labels = token_labels(a->picture.tokenizer, f, f->n, &text, e))) status = -1;
    if (a->head < 0) snprintf(title, sizeof title, "Attention of layer %" PRId64 ", mean of its heads", a->layer);
    else snprintf(title, sizeof title, "Attention of layer %" PRId64 ", head %" PRId64, a->layer, a->head);
    snprintf(subtitle, sizeof subtitle, "%s; %" PRId64 " queries, %" PRId64 " keys", f->config.model_type, f->n_queries, f->n);
    for (int64_t i = 0; i < f->n_queries; i++) { /* what a query cannot see has no number */
        for (int64_t j = first + i + 1; j < f->n; j++) p[i * f->n + j] = (float)NAN;
    }
    const struct llm_heatmap h = {
        .title = title, .subtitle = subtitle, .value = "probability", .v = p, .scale = scales[a->picture.scale],
        .x = {.n = f->n, .name = "key", .labels = labels, .numbers = f->positions, .numbered = labels != NULL},
        .y = {.n = f->n_queries, .name = "query", .labels = labels ? labels + first : NULL, .numbers = f->positions + first}};
    if (status == 0 && a->picture.png) status = write_picture(a->picture.png, &h, llm_heatmap_write, true, e);
    if (status == 0 && a->html) status = write_picture(a->html, &h, llm_heatmap_html, false, e);
    free(labels);
    llm_buf_release(&text);
    return status;
}

static int attention(const struct llm_kv_file *f, const struct args *a, struct llm_err *e)
{
    int64_t heads = f->config.num_attention_heads;
    size_t n;
    if (check_layer(f, a->layer, e) < 0) return -1;
    if (a->head >= heads) return llm_fail(e, LLM_EX_USAGE, "--head: expected below %" PRId64 ", found %" PRId64, heads, a->head);
    if (__builtin_mul_overflow((size_t)f->n, (size_t)f->n_queries, &n)) return llm_no_memory(e, "an attention map");
    float *p = llm_calloc(n, sizeof *p, "an attention map", e), *one = a->head < 0 ? llm_calloc(n, sizeof *one, "an attention map", e) : NULL;
    int status = p && (one || a->head >= 0) ? 0 : -1;
    if (status == 0 && a->head >= 0) status = llm_kv_attention(f, a->layer, a->head, p, e);
    for (int64_t h = 0; h < heads && a->head < 0 && status == 0; h++) {
        status = llm_kv_attention(f, a->layer, h, one, e);
        for (size_t i = 0; i < n && status == 0; i++) p[i] += one[i] / (float)heads;
    }
    if (status == 0) status = print(f, p, &a->common, e);
    if (status == 0 && (a->picture.png || a->html)) status = draw(f, p, a, e);
    free(p);
    free(one);
    return status;
}

int kv_attention(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.head = -1};
    struct llm_kv_file f = {0};
    const char *path = one_operand(&kv_attention_cli, llm_cli_parse(&kv_attention_cli, &a, argc, argv), argc, argv);
    llm_config_force(a.common.force_config);
    if (!a.html || a.picture.png) check_picture(&kv_attention_cli, &a.common, &a.picture);
    if (a.html && strcmp(a.html, "-") == 0 && (!a.common.output || strcmp(a.common.output, "-") == 0)) {
        llm_usage(&kv_attention_cli, "standard output has one owner: write the table (-o) or the page (--html) to a file");
    }
    int status = llm_pool_start(a.common.threads, e);
    if (status == 0) status = llm_kv_file_read(&f, path, e);
    if (status == 0) status = attention(&f, &a, e);
    llm_kv_file_release(&f);
    llm_pool_stop();
    return status;
}
