/* Grammars in GBNF, the form that llama.cpp reads: rules `name ::= …` over texts, classes of characters and other rules; `root` is the whole
 * text. */
#ifndef LLM_INFER_CONSTRAIN_GBNF_H
#define LLM_INFER_CONSTRAIN_GBNF_H

#include "infer/constrain/chars.h"

struct llm_gbnf; /* the rules; must live as long as the terms */
/* *root: the term of the whole text. NULL: `e` says line and reason (EX_DATAERR). Refused are rules that are missing, that begin with themselves
 * (left recursion), and a root that no text can satisfy. */
struct llm_gbnf *llm_gbnf_create(struct llm_terms *t, const char *text, size_t n, llm_term *root, struct llm_err *e) LLM_MUST_CHECK;
void llm_gbnf_destroy(struct llm_gbnf *g);

#endif
