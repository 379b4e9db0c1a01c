/* Checks of an index that cost more than opening it. */
#ifndef LLM_SEARCH_CHECK_H
#define LLM_SEARCH_CHECK_H

#include "search/index.h"

struct llm_check {
    double recall;     /* part of the 10 nearest rows by the exact vectors that a search finds, over a sample of rows as queries; NaN: there are no
                        * rows or no vectors */
    double found;      /* part of the sample whose search finds the row itself, or one that is as near */
};
/* Checks that numbers are finite, that rounded vectors and words are those that the exact vectors and the texts give, and measures `c`. 0, or -1
 * (EX_DATAERR says what is wrong where). */
int llm_index_check(const struct llm_index *x, struct llm_check *c, struct llm_err *e) LLM_MUST_CHECK;
/* Measures `c` alone. 0 or -1. */
int llm_index_recall(const struct llm_index *x, struct llm_check *c, struct llm_err *e) LLM_MUST_CHECK;

#endif
