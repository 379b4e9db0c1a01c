/* Numbers in decimal notation as languages: JSON's syntax without exponents, bounds and multiples by automata over the digits. */
#ifndef LLM_INFER_CONSTRAIN_NUMBER_H
#define LLM_INFER_CONSTRAIN_NUMBER_H

#include "infer/constrain/term.h"

/* At most so many digits follow the point: enough for what writes doubles, and for what reads them as doubles to see the same number. */
enum { LLM_NUMBER_FRACTION = 20 };

struct llm_numbers; /* the automata; must live as long as the terms */
struct llm_numbers *llm_numbers_create(struct llm_terms *t, struct llm_err *e) LLM_MUST_CHECK;
void llm_numbers_destroy(struct llm_numbers *n);

/* Every number in decimal notation; with `exponents` also d.ddde±dd. */
llm_term llm_number_any(struct llm_terms *t, bool exponents);
/* Integers, with at most so many zeros after a point. */
llm_term llm_number_integer(struct llm_terms *t, uint32_t zeros);
/* Numbers that do not end in needless zeros, but for one after the point. */
llm_term llm_number_tidy(struct llm_terms *t);
/* Which numbers, compared with a bound, belong to the language. */
enum llm_relation { LLM_LESS = 1, LLM_EQUAL = 2, LLM_GREATER = 4, LLM_ANY_RELATION = 7 };
/* To be intersected with llm_number_any(t, false). `bound`: a JSON number, exponents allowed. LLM_TERM_NOTHING and a noted failure if it is none, or
 * has too many digits. */
llm_term llm_number_compared(struct llm_numbers *n, const char *bound, int relations);
/* Multiples of a positive JSON number. */
llm_term llm_number_multiple(struct llm_numbers *n, const char *of);

#endif
