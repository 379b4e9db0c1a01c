/* llm-infer --context-from: sources that a conversation answers from. */
#ifndef LLM_BIN_INFER_SOURCES_H
#define LLM_BIN_INFER_SOURCES_H

#include "bin/infer/infer.h"

/* Reads the sources of --context-from, if it is given: lines of JSON with "id" and "text". An id that comes twice, or no source, is EX_DATAERR.
 * 0 or -1. */
int sources_open(struct session *s, struct llm_err *e) LLM_MUST_CHECK;
void sources_release(struct session *s);
/* A copy of a conversation with the sources before what its first user says; without sources as it is. The caller owns it. NULL: `e` says why. */
json_t *sources_put(const struct session *s, const json_t *messages, struct llm_err *e) LLM_MUST_CHECK;

/* What an answer cites: arrays of ids, each once, in the order in which they come. */
struct cited { json_t *known, *unknown; };
/* Finds "[ID]" and "[ID, ID]" in an answer, after "</think>" if it has one. Notes the first unknown id in s->sources.unknown. With 0 the caller
 * releases *c. 0 or -1. */
int sources_check(struct session *s, const char *answer, size_t n, struct cited *c, struct llm_err *e) LLM_MUST_CHECK;
void cited_release(struct cited *c);

#endif
