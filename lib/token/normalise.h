/* Normalizers of tokenizer.json: one row each. Text goes through in a stream; what may still combine with what comes is kept. */
#ifndef LLM_TOKEN_NORMALISE_H
#define LLM_TOKEN_NORMALISE_H

#include <stdbool.h>
#include "base/buf.h"

struct llm_normaliser_row {
    const char *name; /* "NFC" */
    /* Appends the normal form of the n bytes at p to `out` as far as it is certain (all of it when `last`). Bytes consumed, or -1. */
    long (*run)(const unsigned char *p, size_t n, bool last, struct llm_buf *out, struct llm_err *e);
};
extern const struct llm_normaliser_row llm_normaliser_rows[]; /* ends with a NULL name */
const struct llm_normaliser_row *llm_normaliser_find(const char *name);
/* Appends what utf8proc makes of valid UTF-8; options: UTF8PROC_… */
int llm_normalise(const unsigned char *p, size_t n, unsigned options, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;

#endif
