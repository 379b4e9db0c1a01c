/* What any language that a reader made must keep to. */
#ifndef LLM_TESTS_FUZZ_LANGUAGE_H
#define LLM_TESTS_FUZZ_LANGUAGE_H

#include "fuzz.h"
#include "infer/constrain/term.h"

enum { LANGUAGE_TERMS = 1 << 16, LANGUAGE_STEPS = 64 };

/* Some byte that may follow, beginning at `from`; -1: none may. */
static inline int language_next(struct llm_terms *t, llm_term a, int from)
{
    for (int i = 0; i < 256; i++)
        if (llm_term_after(t, a, (unsigned char)(from + i)) != LLM_TERM_NOTHING) return (from + i) & 255;
    return -1;
}

/* Reads bytes as far as the language allows, then others that it allows: no state is a dead end. */
static inline void language_walk(struct llm_terms *t, llm_term a, const uint8_t *p, size_t n)
{
    struct llm_err e = {0};
    if (llm_terms_failed(t, &e) < 0 || !llm_term_live(t, a)) return;
    for (size_t i = 0; i < n + LANGUAGE_STEPS; i++) {
        int byte = i < n ? p[i] : language_next(t, a, (int)(i * 37));
        llm_term to = byte < 0 ? LLM_TERM_NOTHING : llm_term_after(t, a, (unsigned char)byte);
        if (llm_terms_failed(t, &e) < 0) return;
        if (byte < 0) MUST(llm_term_nullable(t, a));
        if (to == LLM_TERM_NOTHING && i >= n) return;
        if (to != LLM_TERM_NOTHING) a = to;
        if (i % 16 == 0) llm_terms_trim(t);
    }
}

/* The text up to the first zero byte, and what follows it. */
static inline size_t language_split(const uint8_t *data, size_t n, const uint8_t **rest, size_t *n_rest)
{
    const uint8_t *zero = memchr(data, 0, n);
    *rest = zero ? zero + 1 : data + n;
    *n_rest = n - (size_t)(*rest - data);
    if (*n_rest > 256) *n_rest = 256;
    return zero ? (size_t)(zero - data) : n;
}

#endif
