/* The two long lists of a tokenizer.json, its vocabulary and its merges, read without a tree of values: hundreds of thousands of small objects would
 * be made, only to be looked at once. */
#ifndef LLM_TOKEN_JSON_TEXTS_H
#define LLM_TOKEN_JSON_TEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/json.h"

/* A vocabulary: texts and their ids, in the order of the file. */
struct llm_json_texts {
    struct llm_json_text { const char *p; uint32_t n, hash; int64_t id; } *v; /* texts are borrowed, or in `decoded` */
    size_t n, room;
    uint32_t *slots;        /* index + 1 into v, 2^bits; 0: empty */
    int bits;
    struct llm_buf decoded; /* texts with escapes; kept in place by reserving all of it first */
};
void llm_json_texts_release(struct llm_json_texts *t);
/* From an object of integers (borrowed; it must stay). An entry that is no integer is EX_DATAERR. */
int llm_json_texts_from_value(struct llm_json_texts *t, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
/* The id of a text, or -1; its place in v in *at (NULL: not wanted). */
int64_t llm_json_texts_find(const struct llm_json_texts *t, const char *p, size_t n, size_t *at);

/* A tokenizer.json without the contents of "vocab": {…} and "merges": […] of its "model". */
struct llm_json_cut {
    struct llm_buf rest;        /* the text with {} and [] in their place */
    const char *vocab, *merges; /* borrowed, brackets included; NULL: not of this kind, or no merges at all: left where they were */
    size_t n_vocab, n_merges;
};
/* 1: something was cut out; 0: nothing, or the text is not what it seems: it is to be read as a whole. Neither the rest nor what was cut out is
 * known to be JSON yet. */
int llm_json_cut(const char *json, size_t n, struct llm_json_cut *c, struct llm_err *e) LLM_MUST_CHECK;
/* 1; 0: it is not an object of plain integers, keys stand twice, or there is something else about it that the reader of whole texts may judge. */
int llm_json_texts_from_text(struct llm_json_texts *t, const char *p, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Calls `put` for each element of an array of strings "left right", or of arrays of two strings. 1; 0 as above; -1. */
typedef int llm_json_merge_sink(void *arg, size_t i, const char *left, size_t n_left, const char *right, size_t n_right, struct llm_err *e);
int llm_json_merges_from_text(const char *p, size_t n, llm_json_merge_sink *put, void *arg, struct llm_err *e) LLM_MUST_CHECK;
#endif
