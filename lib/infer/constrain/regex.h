/* Regular expressions as terms: ECMA-262's syntax as far as it describes regular languages. Groups, alternatives, classes, repetitions (lazy ones
 * are the same language), anchors, lookahead outside of groups; \d and \w are of ASCII, \s has Unicode's spaces; \p{…} by general category. */
#ifndef LLM_INFER_CONSTRAIN_REGEX_H
#define LLM_INFER_CONSTRAIN_REGEX_H

#include "infer/constrain/chars.h"

enum llm_regex_use {
    LLM_REGEX_WHOLE,       /* texts in UTF-8 that match from begin to end */
    LLM_REGEX_TERMINAL,    /* the same within a longer text, into which lookahead would reach: there is none */
    LLM_REGEX_JSON_SEARCH  /* JSON strings, quotes included, in which it matches somewhere; to be intersected with the term of JSON strings */
};
/* LLM_TERM_NOTHING with e->status set: it cannot be read; the text says at which character. */
llm_term llm_regex_term(struct llm_terms *t, const char *pattern, size_t n, enum llm_regex_use use, struct llm_err *e);
/* Characters of an escape with a class letter, one of "dDwWsS". */
int llm_regex_class(struct llm_chars *c, char letter, struct llm_err *e) LLM_MUST_CHECK;

#endif
