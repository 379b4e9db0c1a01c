/* JSON with long strings in little memory: jansson parses a copy in which short stand-ins replace the long strings. The long strings are decoded in
 * place in the original text. So a text of n bytes needs little more than n bytes; jansson alone needs several times as many. */
#ifndef LLM_BASE_JSON_LONG_H
#define LLM_BASE_JSON_LONG_H

#include "base/json.h"

/* Zero-initialise; release after the last use. */
struct llm_json_long {
    size_t least;            /* strings of more bytes are long; 0: 64 KiB */
    struct llm_json_span { char *p; size_t n; } *strings; /* the long strings: first as they are written, then decoded */
    size_t n, room;
    struct llm_buf reduced;
    char mark[24];           /* what the stand-ins of this object begin with: a NUL and its address, which no text contains */
    size_t n_mark;
};

/* As llm_json_parse_python, errors included, but `text` must outlive the result: long strings are decoded in place. NULL: see `e`. Own: json_decref.
 * Each call invalidates the result of the one before. */
json_t *llm_json_long_parse(struct llm_json_long *l, char *text, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* The content of a string of the last result, n bytes, whether it is long or not; NULL if `v` is not a string. l NULL: the result is
 * llm_json_parse's. */
const char *llm_json_long_string(const struct llm_json_long *l, const json_t *v, size_t *n);
void llm_json_long_release(struct llm_json_long *l);

#endif
