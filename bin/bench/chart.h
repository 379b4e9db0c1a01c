/* Charts that commands of llm-bench write. */
#ifndef LLM_BIN_BENCH_CHART_H
#define LLM_BIN_BENCH_CHART_H

#include "measure/plot.h"

/* Forms of charts, in the order of the words of --to. */
enum bench_form { BENCH_AUTO, BENCH_PNG, BENCH_SVG, BENCH_TEXT };
/* AUTO is decided by the end of the path: text unless it is .png or .svg. NULL or "-": standard output. */
enum bench_form bench_form_of(const char *path, int form);
/* Writes a chart, whole or not at all. Text is as large as the plot says if `sized`, else as the terminal. */
int bench_chart(const struct llm_plot *p, const char *path, enum bench_form form, bool sized, struct llm_err *e) LLM_MUST_CHECK;

#endif
