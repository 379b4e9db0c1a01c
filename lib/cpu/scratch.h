/* Scratch of lib/cpu's own, apart from llm_scratch (cpu/pool.h), so that a product called from inside a piece leaves the piece's alone. */
#ifndef LLM_CPU_SCRATCH_H
#define LLM_CPU_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

enum llm_scratch_use {
    LLM_SCRATCH_PIECE,  /* llm_scratch */
    LLM_SCRATCH_PANEL,  /* matmul: what one piece packs */
    LLM_SCRATCH_CALL,   /* matmul: operands converted once a call; by the calling thread's number */
    LLM_SCRATCH_DECODED, /* matmul: rows of a weight as floats on their way into a panel */
    LLM_SCRATCH_BLOCK,  /* matmul: a block of a product that is not stored */
    LLM_SCRATCH_SLOTS
};

/* As llm_scratch. */
void *llm_scratch_slot(int thread, enum llm_scratch_use use, size_t bytes);
/* The number of the thread this is called on, as a piece is told it. */
int llm_pool_current(void);
/* Whether a work item is running on this thread, and setting that, for the pool; returns what was set before (inside.c). */
bool llm_pool_inside(void);
bool llm_pool_set_inside(bool on);

#endif
