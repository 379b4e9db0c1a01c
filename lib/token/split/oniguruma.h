/* Patterns as Oniguruma reads them, which Hugging Face's library uses, in PCRE2's words. */
#ifndef LLM_TOKEN_ONIGURUMA_H
#define LLM_TOKEN_ONIGURUMA_H

#include "base/buf.h"

/* Appends `pattern` to `out` so that PCRE2 matches what Oniguruma would:
 *   \s, \S  White_Space (PCRE2's own also takes U+180E);
 *   \w, \W  alphabetic characters, marks, decimal digits and what connects words (PCRE2's own depends on its version: up to 10.42 it has neither
 *           marks nor connectors but "_", and all numbers); within a class \W is PCRE2's;
 *   \p{Han} a script: the characters that are of it (PCRE2's, since 10.40, are used in it: "、" too);
 *   [a[bc]] classes within a class, which are joined with it; [\p{L}&&[^\p{Han}]], which cuts it.
 * "^" and "$" are the ends of lines, which the caller asks PCRE2 for. A class that does not end so is left as PCRE2 has it, where "[" stands
 * for itself. */
int llm_oniguruma_translate(const char *pattern, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;

#endif
