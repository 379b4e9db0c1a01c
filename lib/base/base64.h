/* Bytes as text: base64 (RFC 4648). */
#ifndef LLM_BASE_BASE64_H
#define LLM_BASE_BASE64_H

#include "base/buf.h"

/* Appends n bytes as base64, with padding and without line breaks. 0, or -1 when memory is short. */
int llm_base64_put(struct llm_buf *b, const void *bytes, size_t n, struct llm_err *e) LLM_MUST_CHECK;

#endif
