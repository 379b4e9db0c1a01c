/* Documents grouped into batches of at most a number of tokens: documents of like length together, each as long as the longest of its batch. */
#ifndef LLM_DATA_GROUPS_H
#define LLM_DATA_GROUPS_H

#include <stdint.h>
#include "base/err.h"

struct llm_groups {
    int64_t n;             /* batches; 0: there are none */
    int64_t *first;        /* [n + 1] batch b has documents[first[b]] to documents[first[b + 1] - 1]. Owned */
    int64_t *documents;    /* each document's number once. Owned */
    int64_t *length;       /* [n] of the longest document of each batch, in tokens. Owned */
    int64_t most;          /* documents of the largest batch */
};
/* Groups n documents of lengths[i] tokens, 1 ≤ lengths[i] ≤ tokens, so that the documents of a batch times its length are at most `tokens`. The
 * longest documents come first; of equal ones `seed` chooses. The result depends on the arguments alone. Zero-initialise; release either way.
 * 0 or -1. */
int llm_groups_make(struct llm_groups *b, const int64_t *lengths, int64_t n, int64_t tokens, uint64_t seed, struct llm_err *e) LLM_MUST_CHECK;
void llm_groups_release(struct llm_groups *b);

#endif
