/* Tables of evaluation results, and the comparison of two runs over the same items. */
#ifndef LLM_MEASURE_EVAL_REPORT_H
#define LLM_MEASURE_EVAL_REPORT_H

#include "io/table.h"
#include "measure/eval/run.h"

extern const char *const llm_eval_columns[];
/* Adds a row for each metric of the results (an array of llm_eval_run's objects): mean, standard error, and how the number is made. */
int llm_eval_report(struct llm_table *t, const struct llm_eval *v, const json_t *results, struct llm_err *e) LLM_MUST_CHECK;

/* Two-sided exact p of McNemar's test: `b` items that only the first run has right, `c` that only the second has. */
double llm_mcnemar(int64_t b, int64_t c);
extern const char *const llm_eval_compare_columns[];
/* A row for each metric that both have, over the items that both have. EX_DATAERR if there are none. */
int llm_eval_compare(struct llm_table *t, const json_t *a, const json_t *b, uint64_t seed, struct llm_err *e) LLM_MUST_CHECK;

#endif
