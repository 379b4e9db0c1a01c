/* The types in which a cache stores the keys and values of each layer, as a text: parts divided by '/', each "K[,V]" or "LAYERS:K[,V]". LAYERS is
 * "3" or "2-5" (from 0), V is K without rotation unless given: "q8_0", "q8_0_rot,q4_0", "q8_0,q4_0/0-1:bf16". A part without layers is of all of
 * them; later parts win. */
#ifndef LLM_INFER_KVTYPES_H
#define LLM_INFER_KVTYPES_H

#include "base/err.h"
#include "cpu/dtype.h"

/* The dtypes a cache can have; LLM_NO_DTYPE ends them. */
extern const enum llm_dtype llm_kv_types[];
/* Name of type i, NULL after the last (struct llm_words). */
const char *llm_kv_word(int i);

struct llm_kv_pair { enum llm_dtype k, v; };
/* Reads `text` for n layers into of[n]. LLM_EX_USAGE for other words, layers that are not there, and layers without a type. 0 or -1. */
int llm_kv_types_read(const char *text, struct llm_kv_pair *of, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_kv_types_read, before the number of layers is known. NULL is fine. 0 or -1. */
int llm_kv_types_check(const char *text, struct llm_err *e) LLM_MUST_CHECK;
/* The shortest such text of n layers, the same for the same types: parts for runs of layers, in their order. The caller frees it. NULL: no memory. */
char *llm_kv_types_text(const struct llm_kv_pair *of, int64_t n, struct llm_err *e) LLM_MUST_CHECK;

#endif
