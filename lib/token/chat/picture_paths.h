/* Where lines of JSON and conversations name pictures. */
#ifndef LLM_TOKEN_CHAT_PICTURE_PATHS_H
#define LLM_TOKEN_CHAT_PICTURE_PATHS_H

#include "base/json.h"

/* Paths, borrowed from the JSON that has them. Zero-initialise; `v` is freed by the caller. */
struct llm_picture_paths { const char **v; size_t n, room; };
/* Adds "image" or "images" of an object: a path or a list. Standard input ("-") is refused. 0 or -1. */
int llm_picture_paths_line(const json_t *o, struct llm_picture_paths *p, struct llm_err *e) LLM_MUST_CHECK;
/* How many these are. */
size_t llm_picture_paths_count(const json_t *o);
/* Adds the paths of the parts {"type": "image", "path": ...} of messages, in order ("image" and "url" are other names of "path"). Parts without one
 * take those of `line`, all of them. 0 or -1. */
int llm_picture_paths_messages(const json_t *messages, const struct llm_picture_paths *line, struct llm_picture_paths *p, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
