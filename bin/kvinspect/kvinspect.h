/* llm-kvinspect: what its sub-commands share. Each returns 0, -1, or (diff) 1 when the caches differ. */
#ifndef LLM_BIN_KVINSPECT_H
#define LLM_BIN_KVINSPECT_H

#include "base/cli.h"
#include "io/output.h"

extern const struct llm_cli kv_summary_cli, kv_heads_cli, kv_size_cli, kv_export_cli, kv_diff_cli;
int kv_summary(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_heads(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_size(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_export(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int kv_diff(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;

/* A table: TSV with a heading, or JSON Lines. Errors are sticky: table_close tells. */
struct table {
    struct llm_output *o;
    const char *const *columns;
    int json, column;
    struct llm_err *e;
    int failed;
};
/* `columns` ends with NULL. */
int table_open(struct table *t, const char *path, int json, const char *const *columns, struct llm_err *e) LLM_MUST_CHECK;
void table_text(struct table *t, const char *v);
void table_integer(struct table *t, int64_t v);
void table_number(struct table *t, double v); /* NaN: "-", null */
int table_close(struct table *t, int status) LLM_MUST_CHECK; /* commits when status is not negative */

/* The only operand, or "-". */
const char *one_operand(const struct llm_cli *cli, int rest, int argc, char **argv);
/* A matrix as a PNG file. */
int paint(const char *path, const float *v, int64_t rows, int64_t cols, struct llm_err *e) LLM_MUST_CHECK;
/* Standard output has one owner: status 2 when the table and the picture both want it. */
void check_png(const struct llm_cli *cli, const struct llm_common *common, const char *png);

#endif
