/* Memory that ranks of one machine have together. */
#ifndef LLM_DIST_MEMORY_H
#define LLM_DIST_MEMORY_H

#include "dist/comm.h"

struct llm_node_memory {
    void *p;            /* [bytes] 64-byte aligned, zeros at first; NULL: this rank has none */
    size_t bytes;
    int *node;          /* [ranks] the lowest rank that has the same memory as each; of one that has none: itself. Owned */
};
/* Collective: the ranks of a machine get the same `bytes`, or, if they are one or have no room, none. LLM_NODE_MEMORY=no in the environment of one of
 * them: none. Zero-initialise; release either way. 0 or -1. */
int llm_node_memory_create(struct llm_node_memory *m, struct llm_comm *c, size_t bytes, struct llm_err *e) LLM_MUST_CHECK;
void llm_node_memory_release(struct llm_node_memory *m);

#endif
