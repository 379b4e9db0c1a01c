/* Buffered reading of a file or stdin that can peek, so that content is recognised on a pipe too; and mapping. Waiting for bytes ends with an error
 * when a signal is caught (base/signals.h). */
#ifndef LLM_IO_FILE_H
#define LLM_IO_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct llm_file; /* opaque; one thread at a time */

/* Opens `path` ("-": stdin, named "standard input" in messages). Missing: EX_NOINPUT; a directory: EX_NOINPUT. */
struct llm_file *llm_file_open(const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Reads `n` bytes of memory, borrowed, as if they were a file called `name` (not a regular one). */
struct llm_file *llm_file_from_memory(const void *p, size_t n, const char *name, struct llm_err *e) LLM_MUST_CHECK;
void llm_file_close(struct llm_file *f); /* NULL is fine */
const char *llm_file_name(const struct llm_file *f);
uint64_t llm_file_offset(const struct llm_file *f); /* bytes consumed */
/* Up to `n` ≤ 64 KiB bytes ahead without consuming them; *got says how many there are (fewer only at the end). */
const unsigned char *llm_file_peek(struct llm_file *f, size_t n, size_t *got, struct llm_err *e);
/* 1 at the end, 0 not, -1 read error. */
int llm_file_at_end(struct llm_file *f, struct llm_err *e) LLM_MUST_CHECK;
/* Exactly n bytes, or -1: "file: byte 123: cut short: expected 8 bytes, found 3" (EX_DATAERR). */
int llm_file_read(struct llm_file *f, void *p, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* At most n bytes; 0 only at the end; -1 on error. */
int64_t llm_file_read_some(struct llm_file *f, void *p, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Whether llm_file_read_some would return without waiting: bytes are available, or the end is reached, or reading fails. */
bool llm_file_ready(const struct llm_file *f);
/* EX_DATAERR: "file: byte OFFSET: text". Returns -1. */
int llm_file_bad(const struct llm_file *f, struct llm_err *e, const char *fmt, ...) LLM_PRINTF(3, 4);
/* The descriptor when this is a regular file read from its start (mapping serves), else -1. */
int llm_file_regular(const struct llm_file *f, uint64_t *size);

/* A read-only private mapping of a whole regular file. base/fault.h says what happens if the file shrinks while it is used. */
struct llm_map { const unsigned char *p; uint64_t n; struct llm_fault_map *watch; };
int llm_map_open(struct llm_map *m, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Maps `size` bytes of an open descriptor, which may be closed afterwards. An empty file gives p = NULL. */
int llm_map_fd(struct llm_map *m, int fd, uint64_t size, const char *name, struct llm_err *e) LLM_MUST_CHECK;
void llm_map_close(struct llm_map *m);

#endif
