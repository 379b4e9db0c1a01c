/* JSON through jansson, with checked getters that name the key in the error. Objects with duplicate keys are refused. */
#ifndef LLM_BASE_JSON_H
#define LLM_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"

/* Parses `n` bytes as one JSON value (nothing may follow but white space); a byte order mark before it is skipped (RFC 8259, section 8.1).
 * NULL: `e` has line and column. Own: json_decref. */
json_t *llm_json_parse(const char *text, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* The JSON value that a text begins with; *used: its bytes. NULL: it begins with none. Own: json_decref. */
json_t *llm_json_parse_front(const char *text, size_t n, size_t *used) LLM_MUST_CHECK;
/* As llm_json_parse, of what Python may have written; `text` may change. Infinity, which is no JSON, reads as LLM_JSON_INFINITY, and integers of more
 * than 64 bits as real numbers of at least 15 of their digits: what must have them all may not come so (a template would write it otherwise). */
#define LLM_JSON_INFINITY 1e308
json_t *llm_json_parse_python(char *text, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Reads a whole file ("-": stdin) as llm_json_parse_python does; `max` bounds its size. */
json_t *llm_json_load(const char *path, size_t max, struct llm_err *e) LLM_MUST_CHECK;
/* Compact text, keys in insertion order, non-ASCII kept as UTF-8. 0 or -1. */
int llm_json_dump(const json_t *v, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;

/* Getters: *out keeps its value (the default) when `key` is absent or null. Wrong type or out of range: -1. */
int llm_json_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *out, struct llm_err *e) LLM_MUST_CHECK;
int llm_json_real(const json_t *o, const char *key, double *out, struct llm_err *e) LLM_MUST_CHECK; /* integers too */
int llm_json_bool(const json_t *o, const char *key, bool *out, struct llm_err *e) LLM_MUST_CHECK;
/* Borrowed from `o`. Strings with NUL inside are refused. */
int llm_json_str(const json_t *o, const char *key, const char **out, struct llm_err *e) LLM_MUST_CHECK;

/* Appends a JSON string literal, quotes included; invalid UTF-8 becomes U+FFFD. */
int llm_json_quote(struct llm_buf *b, const char *s, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* A JSON string of n bytes; invalid UTF-8 becomes U+FFFD. NULL: no memory. Own: json_decref. */
json_t *llm_json_text(const char *s, size_t n) LLM_MUST_CHECK;
/* Appends a double as JSON, the shortest text that reads back the same; NaN and infinities as null. */
int llm_json_number(struct llm_buf *b, double v, struct llm_err *e) LLM_MUST_CHECK;

#endif
