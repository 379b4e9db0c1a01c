/* Keys: a hash of all that determines the result of a command line, so that make knows whether a result is what its command would make again.
 *
 * Of options, the values count, not how they are written, and a value that is the default counts as nothing. Files count by their contents. Options
 * that write files (LLM_OUTPUT), and those that the program lists as neutral (llm_cli.neutral), do not count: threads, names of outputs, messages.
 * Every other option does, so an option that is added counts until someone lists it. */
#ifndef LLM_IO_KEY_H
#define LLM_IO_KEY_H

#include "base/cli.h"

struct llm_key;
/* Begins with the program's name and version. NULL: see `e`. */
struct llm_key *llm_key_create(const struct llm_cli *cli, struct llm_err *e) LLM_MUST_CHECK;
void llm_key_destroy(struct llm_key *k);
/* Adds a name with a text, or with the contents of what `path` leads to: a file; a folder, whose files count with their names; a set of GGUF parts,
 * of which one is named. Standard input cannot be read twice: status 2. */
void llm_key_text(struct llm_key *k, const char *name, const char *text);
int llm_key_file(struct llm_key *k, const char *name, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Adds the options of `args` that differ from `defaults`, but those whose names `apart` ("a|b|c") lists: the caller adds what they mean. A LLM_INPUT
 * that names no file counts as a text. */
int llm_key_options(struct llm_key *k, const struct llm_cli *cli, const void *args, const void *defaults, const char *apart, struct llm_err *e)
    LLM_MUST_CHECK;
/* The key as 16 hexadecimal digits and NUL: XXH64 of all that was added. */
void llm_key_hex(const struct llm_key *k, char hex[17]);

#endif
