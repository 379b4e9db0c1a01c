/* llm-kvinspect: shared by its sub-commands. Each returns 0 or -1; diff returns 1 if the caches differ. */
#ifndef LLM_BIN_KVINSPECT_H
#define LLM_BIN_KVINSPECT_H

#include "base/buf.h"
#include "base/cli.h"
#include "infer/kvfile.h"
#include "io/table.h"
#include "measure/heatmap.h"

extern const struct llm_cli kv_summary_cli, kv_heads_cli, kv_attention_cli, kv_spectrum_cli, kv_quant_cli, kv_evict_cli, kv_slice_cli, kv_cat_cli,
    kv_size_cli, kv_export_cli, kv_diff_cli;
extern const struct llm_foreign kv_foreign[];
int kv_summary(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_heads(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_slice(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_cat(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_size(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_export(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_diff(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_attention(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_spectrum(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_quant(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_evict(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;

/* Writes the table to common->output and releases it. 0 or -1. */
int print_table(struct llm_table *t, const struct llm_common *common, struct llm_err *e) LLM_MUST_CHECK;

/* Writes a cache to `path`, whole or not at all. 0 or -1. */
int write_cache(const struct llm_kv_file *f, const char *path, struct llm_err *e) LLM_MUST_CHECK;

/* The only operand, or "-". */
const char *one_operand(const struct llm_cli *cli, int rest, int argc, char **argv);
/* Status 2 if the cache has no layer of this number; -1 is none. 0 or -1. */
int check_layer(const struct llm_kv_file *f, int64_t layer, struct llm_err *e) LLM_MUST_CHECK;
/* Which lines a table of heads has, and the words of --by. */
enum by { BY_ALL, BY_LAYER, BY_HEAD };
#define BY_WORDS "all|layer|head"
/* The options of pictures: --png, --svg, -T, --scale. */
struct picture_args {
    const char *png, *svg, *tokenizer;
    int scale;
};
#define PICTURE_OPTIONS(type, field)                                                                                                                \
    {0, "png", "FILE", "also draw a heat map: a row for each head, a column for each token", LLM_OUTPUT, offsetof(type, field.png), 0, 0, NULL},    \
    {0, "svg", "FILE", "also draw the heat map as SVG", LLM_OUTPUT, offsetof(type, field.svg), 0, 0, NULL},                                         \
    {'T', "tokenizer", "TOK", "label the columns of the heat map with the texts of tokens: a tokenizer or a model", LLM_INPUT,                      \
     offsetof(type, field.tokenizer), 0, 0, NULL},                                                                                                  \
    {0, "scale", "WHAT", "scale of the heat map's colours; auto: logarithmic if few numbers outshine all others [auto]", LLM_CHOICE,                \
     offsetof(type, field.scale), 0, 0, "auto|linear|log"}
/* Whether a picture is asked for. */
bool wants_picture(const struct picture_args *a);
/* Status 2 if --tokenizer or --scale comes without a picture, or if two of the table and the pictures want standard output. */
void check_picture(const struct llm_cli *cli, const struct llm_common *common, const struct picture_args *a);
/* The texts of the first n tokens by the tokenizer in `path`, one after another in *text; the caller frees the list. NULL: see `e`. */
const char **token_labels(const char *path, const struct llm_kv_file *f, int64_t n, struct llm_buf *text, struct llm_err *e) LLM_MUST_CHECK;
/* Draws h, whose columns are the first h->x.n tokens of `f`: fills in the columns' labels, the subtitle and the scale. 0 or -1. */
int draw_picture(const struct picture_args *a, const struct llm_kv_file *f, struct llm_heatmap *h, struct llm_err *e) LLM_MUST_CHECK;

/* Writes the pictures that are asked for. 0 or -1. */
int write_pictures(const struct picture_args *a, const struct llm_heatmap *h, struct llm_err *e) LLM_MUST_CHECK;
/* Writes h to `path` by `write`, whole or not at all. 0 or -1. */
typedef int write_heatmap(struct llm_output *o, const struct llm_heatmap *h, struct llm_err *e);
int write_picture(const char *path, const struct llm_heatmap *h, write_heatmap *write, bool binary, struct llm_err *e) LLM_MUST_CHECK;

#endif
