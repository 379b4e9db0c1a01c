/* Files without a name, in TMPDIR or else in /tmp: they hold what does not fit in memory, or what comes through a pipe and has to be mapped, and are
 * gone with the program. */
#ifndef LLM_IO_TEMPORARY_H
#define LLM_IO_TEMPORARY_H

#include "io/file.h"

/* Where they are made. */
const char *llm_temporary_folder(void);
/* A new empty file, for reading and writing: its descriptor, which the caller closes. -1: EX_CANTCREAT. */
int llm_temporary_open(struct llm_err *e) LLM_MUST_CHECK;
/* Maps all of `f`, which may have been peeked but not read: a regular file itself, else a temporary copy. */
int llm_temporary_map(struct llm_map *m, struct llm_file *f, struct llm_err *e) LLM_MUST_CHECK;

#endif
