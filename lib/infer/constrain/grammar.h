/* Grammars in one of two forms. GBNF, which llama.cpp reads: rules `name ::= …` over texts, classes of characters and other rules; `root` is the
 * whole text. Lark's form (github.com/lark-parser/lark), the part of it that describes languages: rules `name: …` and TERMINALS of texts, regular
 * expressions and ranges, %ignore, %import of common terminals; `start` is the whole text. A text belongs to the language if some division into
 * terminals satisfies the rules (as with Lark's lexer "dynamic_complete"), so priorities of terminals and rules change nothing. */
#ifndef LLM_INFER_CONSTRAIN_GRAMMAR_H
#define LLM_INFER_CONSTRAIN_GRAMMAR_H

#include "infer/constrain/chars.h"

struct llm_grammar; /* the rules; must live as long as the terms */
/* The form is recognised by the first rule. *root: the term of the whole text. NULL: `e` says line and reason (EX_DATAERR). Refused are rules that
 * are missing, that begin with themselves (left recursion; in Lark's form only if several rules do so together), and a root that no text can
 * satisfy. */
struct llm_grammar *llm_grammar_create(struct llm_terms *t, const char *text, size_t n, llm_term *root, struct llm_err *e) LLM_MUST_CHECK;
void llm_grammar_destroy(struct llm_grammar *g);

#endif
