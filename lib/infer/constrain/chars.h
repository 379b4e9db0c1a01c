/* Sets of Unicode characters, and the terms of their bytes: as UTF-8, or as everything that stands for them inside a JSON string. */
#ifndef LLM_INFER_CONSTRAIN_CHARS_H
#define LLM_INFER_CONSTRAIN_CHARS_H

#include "infer/constrain/term.h"

/* Ranges that do not overlap, ascending, once llm_chars_tidy was called. Zero-initialise. */
struct llm_chars {
    struct llm_char_range { uint32_t low, high; } *v;
    size_t n, room;
};
int llm_chars_put(struct llm_chars *c, uint32_t low, uint32_t high, struct llm_err *e) LLM_MUST_CHECK;
void llm_chars_tidy(struct llm_chars *c);
/* The other characters; surrogates are none. */
int llm_chars_invert(struct llm_chars *c, struct llm_err *e) LLM_MUST_CHECK;
void llm_chars_release(struct llm_chars *c);

enum llm_spelling {
    LLM_SPELL_UTF8,   /* as it is */
    LLM_SPELL_JSON,   /* inside a JSON string, in every way that JSON knows: as it is where that is allowed, short escapes, \uXXXX */
    LLM_SPELL_USUAL   /* the same without escapes that writers of JSON do not use: of ASCII only those that are needed */
};
/* One character of the set, which is tidy. */
llm_term llm_term_chars(struct llm_terms *t, const struct llm_chars *c, enum llm_spelling s);
/* A text of UTF-8, character by character. What is not UTF-8: no text. */
llm_term llm_term_spelled(struct llm_terms *t, const char *p, size_t n, enum llm_spelling s);

#endif
