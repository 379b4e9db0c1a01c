/* Writing: outputs appear whole or not at all.
 * An absent or regular target (symbolic links followed) is written to a temporary file beside it, fsynced, renamed, and
 * the directory fsynced; temporary files that killed processes left for this target are removed first. Anything else
 * (stdout, /dev/null, a FIFO) is written straight through. */
#ifndef LLM_IO_OUTPUT_H
#define LLM_IO_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include "base/err.h"
#include "io/file.h"

struct llm_output; /* opaque; buffered; one thread at a time */

/* `path` NULL or "-": stdout. `binary`: refuses a terminal (status 2). */
struct llm_output *llm_output_open(const char *path, bool binary, struct llm_err *e) LLM_MUST_CHECK;
/* Opens a regular file, or makes one, to append to: it is locked (flock), is written in place, and keeps what was written whatever happens. *before
 * maps the bytes that it holds; the caller closes the map. A file that another process appends to is refused. */
struct llm_output *llm_output_append(const char *path, struct llm_map *before, struct llm_err *e) LLM_MUST_CHECK;
/* Of llm_output_append, before anything is written: removes all but the first n bytes of the file. 0 or -1. */
int llm_output_cut(struct llm_output *o, uint64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Flushes, and waits until the bytes of a file that is appended to are on the disk; of other outputs only flushes. 0 or -1. */
int llm_output_sync(struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* Checks, before the work is done, that llm_output_open would succeed. NULL: nothing to check. A FIFO or a device is not opened. 0 or -1. */
int llm_output_try(const char *path, bool binary, struct llm_err *e) LLM_MUST_CHECK;
const char *llm_output_name(const struct llm_output *o);
/* Several processes may write parts of one file: one opens it and commits it, after the others have joined it and finished. */
/* The name, without a folder, of the temporary file that is renamed in the end; NULL: the output is written straight through. */
const char *llm_output_temporary(const struct llm_output *o);
/* Opens the temporary file of that name, which another process has made for the same target. NULL in *o: it is not there, so the target's folder is
 * another one here. 0 or -1. Only llm_output_finish and llm_output_abandon end such an output, which neither renames nor removes the file. */
int llm_output_join(struct llm_output **o, const char *path, const char *temporary, struct llm_err *e) LLM_MUST_CHECK;
/* Goes to byte `at` of a file, from which on the next bytes are written. Nothing is done if it is there already. 0 or -1. */
int llm_output_seek(struct llm_output *o, uint64_t at, struct llm_err *e) LLM_MUST_CHECK;
int llm_output_write(struct llm_output *o, const void *p, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Text for people, in parts that may end within a character. On a terminal each byte that is not UTF-8 becomes U+FFFD; elsewhere bytes stay as they
 * are. */
int llm_output_text(struct llm_output *o, const char *text, size_t n, struct llm_err *e) LLM_MUST_CHECK;
int llm_output_printf(struct llm_output *o, struct llm_err *e, const char *fmt, ...) LLM_PRINTF(3, 4) LLM_MUST_CHECK;
/* Pushes the buffer out (a stream of text that a person watches). */
int llm_output_flush(struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
uint64_t llm_output_offset(const struct llm_output *o); /* bytes written so far */
/* Flushes, fsyncs, renames; only then does the target change. Frees `o` either way. 0 or -1. */
int llm_output_commit(struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* Flushes, fsyncs and closes the file, so that only llm_output_commit remains to be called. So a set of many outputs need not keep all its files
 * open. 0 or -1; the caller still owns `o`. */
int llm_output_finish(struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* Commits all outputs of v, one after another. If one fails, or a signal ends the process, those already committed are removed again, so that no part
 * of a set remains. Frees all outputs either way, but not v. 0 or -1. */
int llm_output_commit_all(struct llm_output **v, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Discards the output: removes the temporary file and frees `o`. NULL is fine. */
void llm_output_abandon(struct llm_output *o);

#endif
