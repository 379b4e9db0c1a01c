/* One pool of threads a process. Work is cut by the shape of the problem and never by the number of threads, so results do not depend
 * on it; threads take pieces in turn, each beginning with a range of its own. Spin briefly, then sleep. */
#ifndef LLM_CPU_POOL_H
#define LLM_CPU_POOL_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#define LLM_MAX_THREADS 256

/* -j, else LLM_THREADS, else the CPUs in the affinity mask and the cgroup quota. `want` 0: not given. Status 2 for a bad LLM_THREADS. */
int llm_pool_start(int64_t want, struct llm_err *e) LLM_MUST_CHECK;
/* `n` processes of one job share this machine: the next llm_pool_start without -j or LLM_THREADS takes a share of its CPUs. */
void llm_pool_share(int n);
void llm_pool_stop(void);
int llm_pool_threads(void); /* 1 before llm_pool_start */

/* Runs piece(arg, i, thread) for i in [0, n), thread in [0, llm_pool_threads()); returns when all are done. Pieces must be independent.
 * Which thread runs which piece is not determined: use `thread` for scratch only. Calls from inside a piece run inline. */
void llm_parallel(size_t n, void (*piece)(void *arg, size_t i, int thread), void *arg);

/* The thread that calls llm_parallel calls poll(arg) before each job: what goes on beside the work (messages) makes progress. `poll` may itself call
 * llm_parallel. NULL: nothing is polled. */
void llm_pool_set_poll(void (*poll)(void *arg), void *arg);

/* Per-thread scratch that grows and is kept: at least `bytes`, 64-byte aligned, content undefined. NULL when memory is short. */
void *llm_scratch(int thread, size_t bytes);
/* Bytes of scratch that pieces like those so far can take, over all threads, whichever threads ran them. */
size_t llm_scratch_bytes(void);
/* Frees all threads' scratch; never while pieces run. */
void llm_scratch_release(void);

#endif
