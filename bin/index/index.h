/* llm-index: shared by its sub-commands. Each returns 0 or -1. */
#ifndef LLM_BIN_INDEX_H
#define LLM_BIN_INDEX_H

#include "base/cli.h"
#include "search/index.h"

extern const struct llm_cli index_build_cli, index_add_cli, index_delete_cli, index_search_cli, index_stat_cli, index_check_cli;
extern const struct llm_alias index_build_aliases[], index_search_aliases[];
extern const struct llm_foreign index_foreign[];
int index_build(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int index_add(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int index_delete(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int index_search(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int index_stat(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;
int index_check(int argc, char **argv, struct llm_err *e) LLM_MUST_CHECK;

/* The index that the command line names: `option` (-x, -o) if it was given, else the first operand, argv[*rest], which is taken; NULL: neither. */
const char *take_index(const char *option, int argc, char **argv, int *rest);
/* Writes the index to `path`, whole or not at all. 0 or -1. */
int write_index(struct llm_index *x, const char *path, bool plain, struct llm_err *e) LLM_MUST_CHECK;

#endif
