/* llm-kvinspect spectrum: how many directions keys and values use. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "bin/kvinspect/kvinspect.h"
#include "cpu/pool.h"
#include "measure/spectrum.h"

struct args {
    struct llm_common common;
    int64_t layer;
    int centre, values;
    struct picture_args picture;
};
static const struct llm_opt options[] = {
    {'l', "layer", "N", "only layer N, from 0 [all]", LLM_INT, offsetof(struct args, layer), 0, 1 << 20, NULL},
    {0, "centre", NULL, "subtract the mean over the tokens first", LLM_FLAG, offsetof(struct args, centre), 0, 0, NULL},
    {0, "values", NULL, "print a line for each singular value instead of each head", LLM_FLAG, offsetof(struct args, values), 0, 0, NULL},
    {0, "png", "FILE", "also draw a heat map: a row for each head, a column for each singular value", LLM_OUTPUT,
     offsetof(struct args, picture.png), 0, 0, NULL},
    {0, "svg", "FILE", "also draw the heat map as SVG", LLM_OUTPUT, offsetof(struct args, picture.svg), 0, 0, NULL},
    {0}};
const struct llm_cli kv_spectrum_cli = {
    .name = "llm-kvinspect spectrum", .summary = "Print singular values and effective ranks of the keys and the values of each head.",
    .usage = "[OPTION]... [FILE]",
    .options = options, .operands = LLM_OPERANDS_INPUT, .foreign = kv_foreign,
    .examples = "llm-kvinspect spectrum cache.kv\nllm-kvinspect spectrum --values -l 0 cache.kv | llm-bench plot -x i -y value --log-y",
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG | LLM_COMMON_THREADS};

static bool wanted(const struct llm_spectrum *s, const struct args *a)
{
    return a->layer < 0 || s->layer == a->layer;
}

static void begin_row(struct llm_table *t, const struct llm_spectrum *s)
{
    llm_table_count(t, (double)s->layer);
    llm_table_count(t, (double)s->kv_head);
    llm_table_text(t, s->what == 'k' ? "k" : "v");
}

static int print(const struct llm_spectra *all, const struct args *a, struct llm_err *e)
{
    static const char *const columns[] = {"layer", "kv_head", "tensor", "effective_rank", "stable_rank", "rank_90", "rank_99", "of", "largest",
                                          "smallest", NULL};
    static const char *const each[] = {"layer", "kv_head", "tensor", "i", "value", NULL};
    struct llm_table t;
    llm_table_init(&t, a->values ? each : columns);
    t.as_shown = true;
    for (int64_t r = 0; r < all->n_rows; r++) {
        const struct llm_spectrum *s = &all->rows[r];
        if (!wanted(s, a)) continue;
        for (int64_t i = 0; a->values && i < s->n; i++) {
            begin_row(&t, s);
            llm_table_count(&t, (double)i);
            llm_table_printed(&t, s->values[i], LLM_NUMBER_GENERAL, 6);
        }
        if (a->values) continue;
        begin_row(&t, s);
        llm_table_printed(&t, s->effective_rank, LLM_NUMBER_GENERAL, 6);
        llm_table_printed(&t, s->stable_rank, LLM_NUMBER_GENERAL, 6);
        llm_table_count(&t, s->rank_90 < 0 ? (double)NAN : (double)s->rank_90);
        llm_table_count(&t, s->rank_99 < 0 ? (double)NAN : (double)s->rank_99);
        llm_table_count(&t, (double)s->n);
        llm_table_printed(&t, s->values[0], LLM_NUMBER_GENERAL, 6);
        llm_table_printed(&t, s->values[s->n - 1], LLM_NUMBER_GENERAL, 6);
    }
    return print_table(&t, &a->common, e);
}

static int draw(const struct llm_kv_file *f, const struct llm_spectra *all, const struct args *a, struct llm_err *e)
{
    int64_t *layers = llm_calloc((size_t)all->n_rows, sizeof *layers, "a heat map", e), n = 0;
    char (*texts)[24] = layers ? llm_calloc((size_t)all->n_rows, sizeof *texts, "a heat map", e) : NULL;
    const char **labels = texts ? llm_calloc((size_t)all->n_rows, sizeof *labels, "a heat map", e) : NULL;
    float *map = labels ? llm_calloc((size_t)all->n_rows, (size_t)all->widest * sizeof *map, "a heat map", e) : NULL;
    for (int64_t r = 0; map && r < all->n_rows; r++) {
        const struct llm_spectrum *s = &all->rows[r];
        if (!wanted(s, a)) continue;
        for (int64_t i = 0; i < all->widest; i++) {
            map[n * all->widest + i] = i < s->n && s->values[0] > 0 ? (float)(s->values[i] / s->values[0]) : (float)NAN;
        }
        snprintf(texts[n], sizeof *texts, "%c %lld", s->what, (long long)s->kv_head);
        labels[n] = texts[n];
        layers[n++] = s->layer;
    }
    char subtitle[200];
    snprintf(subtitle, sizeof subtitle, "%s; %lld tokens%s", f->config.model_type, (long long)f->rows, a->centre ? ", their mean subtracted" : "");
    const struct llm_heatmap h = {
        .title = "Singular values of keys and values", .subtitle = subtitle, .value = "share of the largest", .v = map, .scale = LLM_SCALE_LOG,
        .x = {.n = all->widest, .name = "singular value"},
        .y = {.n = n, .name = "keys (k) and values (v) of a head", .labels = labels, .groups = layers, .group_name = "layer"}};
    int status = map ? write_pictures(&a->picture, &h, e) : -1;
    free(layers);
    free(texts);
    free(labels);
    free(map);
    return status;
}

int kv_spectrum(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.layer = -1};
    struct llm_kv_file f = {0};
    struct llm_spectra all = {0};
    const char *path = one_operand(&kv_spectrum_cli, llm_cli_parse(&kv_spectrum_cli, &a, argc, argv), argc, argv);
    llm_config_force(a.common.force_config);
    check_picture(&kv_spectrum_cli, &a.common, &a.picture);
    int status = llm_pool_start(a.common.threads, e);
    if (status == 0) status = llm_kv_file_read(&f, path, e);
    if (status == 0) status = check_layer(&f, a.layer, e);
    if (status == 0) status = llm_spectra_of(&all, &f, a.centre, e);
    if (status == 0 && wants_picture(&a.picture)) status = draw(&f, &all, &a, e);
    if (status == 0) status = print(&all, &a, e);
    llm_spectra_release(&all);
    llm_kv_file_release(&f);
    llm_pool_stop();
    return status;
}
