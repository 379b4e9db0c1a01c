/* A mapped file that shrinks while it is used, or whose disk fails: the kernel raises SIGBUS at the first missing byte. The process then
 * says so in one line and ends with status 65, its temporary files removed (base/signals.h); a trainer can save its last complete step
 * first. Nothing is computed from bytes that are not there. */
#ifndef LLM_BASE_FAULT_H
#define LLM_BASE_FAULT_H

#include <stddef.h>
#include "base/err.h"

/* Remembers that n bytes at p are a mapping of the whole file `fd`, called `name` (copied). Returns a handle for llm_fault_unwatch;
 * NULL when memory is short: a fault there kills by SIGBUS. */
struct llm_fault_map;
struct llm_fault_map *llm_fault_watch(const void *p, size_t n, int fd, const char *name);
void llm_fault_unwatch(struct llm_fault_map *m); /* NULL is fine */

/* Runs work(arg, e) and returns what it returns. If the calling thread meets a fault meanwhile, outside of parallel work, the rest of the work is
 * skipped and 1 is returned: memory that the work allocated is leaked, and the caller must repair what the work changed. Faults of other threads
 * end the process as above. Guards do not nest. */
int llm_fault_guard(int (*work)(void *arg, struct llm_err *e), void *arg, struct llm_err *e) LLM_MUST_CHECK;
/* -1 and EX_DATAERR in `e` if a guard has met a fault ("t.tok: byte 8192: …"), else 0. */
int llm_fault_check(struct llm_err *e) LLM_MUST_CHECK;
/* The kernel raises no signal for the rest of the page in which a cut file ends: it reads as zeros. So what was computed from mapped files is used
 * only after this check of their sizes: before a step changes weights, before an output is complete. -1 and EX_DATAERR in `e` (may be NULL) if a
 * watched file is shorter than its mapping; llm_fault_check then says so, too. A file is reported once, whatever the number of its mappings. */
int llm_fault_check_sizes(struct llm_err *e) LLM_MUST_CHECK;
/* Reads n bytes at p one by one. After a system call failed with EFAULT this raises the fault in the process, where it is handled. */
void llm_fault_touch(const void *p, size_t n);

/* Switches the calling thread's guard off and on again, around its part of parallel work: other threads wait for that part, so it cannot be skipped.
 * Calls nest. */
void llm_fault_suspend(void);
void llm_fault_resume(void);

#endif
