/* Shared by the files cli*.c, which implement base/cli.h. */
#ifndef LLM_BASE_CLI_INTERNAL_H
#define LLM_BASE_CLI_INTERNAL_H

#include <stdbool.h>
#include "base/cli.h"
#include "base/suggest.h"

/* All rows of a program, headings included: its own, then the common ones it takes. Returns their number. */
size_t llm_cli_rows(const struct llm_cli *cli, const struct llm_opt *rows[LLM_MAX_OPTIONS]);
/* Whether the program's own option or one of all programs is called `name` ("top-k", "top_k"). */
bool llm_cli_is_named(const struct llm_opt *o, const char *name, size_t n);
/* The table of words of an option (NULL: of the operands), or NULL. */
const struct llm_words *llm_cli_words(const struct llm_cli *cli, const char *option);
/* The index of `word` among "a|b|c", in any case; -1. */
int llm_choose(const char *choices, const char *word);
/* Adds all long options and aliases of the program. */
void llm_cli_suggest(const struct llm_cli *cli, struct llm_suggest *s);

/* Exits 2 if an output is the same file as an input or another output: of the options in `args`, and of the operands. */
void llm_cli_check_paths(const struct llm_cli *cli, const void *args, char *const *operands, int n_operands);

void llm_cli_print_help(const struct llm_cli *cli, bool all);
void llm_cli_print_complete(const struct llm_cli *cli);
void llm_cli_print_aliases(const struct llm_cli *cli);

#endif
