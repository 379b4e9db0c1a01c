/* llm-bench: declarations that its sub-commands share. */
#ifndef LLM_BIN_BENCH_H
#define LLM_BIN_BENCH_H

#include "base/cli.h"
#include "measure/peaks.h"
#include "io/table.h"
#include "model/model.h"

extern const struct llm_cli bench_speed_cli, bench_train_cli, bench_kernels_cli, bench_cost_cli, bench_quality_cli, bench_zoo_cli, bench_eval_cli,
    bench_steer_cli, bench_plot_cli, bench_scaling_cli, bench_dictionary_cli, bench_comm_cli;
/* This program, as it was called. */
extern const char *bench_program;
/* Tables of the command lines: words.c. */
extern const struct llm_words bench_speed_words[], bench_quality_words[], bench_train_words[], bench_cost_words[], bench_zoo_words[],
    bench_eval_words[], bench_dictionary_words[];
extern const struct llm_alias bench_speed_aliases[], bench_quality_aliases[], bench_train_aliases[], bench_eval_aliases[];
extern const struct llm_foreign bench_foreign[];
int bench_speed(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int bench_train(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int bench_kernels(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int bench_cost(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int bench_quality(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int bench_zoo(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int bench_eval(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int bench_steer(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int bench_scaling(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int bench_dictionary(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int bench_comm(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int bench_plot(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;

/* The configuration that `what` names: a preset, a config.json, a folder that holds one, or a model. `sets` apply to the first three. */
int bench_config(struct llm_config *c, const char *what, const struct llm_strs *sets, struct llm_err *e) LLM_MUST_CHECK;
/* Ends the program with a usage error unless `types` is NULL or the types of a cache (infer/kvtypes.h). */
void bench_check_cache(const struct llm_cli *cli, const char *types);
/* Called before the work: checks that the output can be created, and starts the threads. */
int bench_begin(const struct llm_common *common, struct llm_err *e) LLM_MUST_CHECK;
/* Writes the tables to common->output in the form that --format and --json ask for, and releases them. */
int bench_print(const struct llm_common *common, struct llm_table *const *tables, size_t n, struct llm_err *e) LLM_MUST_CHECK;

#endif
