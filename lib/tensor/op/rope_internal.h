/* The tables of cosines and sines that a context keeps (op/rope.c). */
#ifndef LLM_TENSOR_OP_ROPE_INTERNAL_H
#define LLM_TENSOR_OP_ROPE_INTERNAL_H

#include "tensor/tape.h"

struct llm_rope_tables;
void llm_rope_tables_destroy(struct llm_rope_tables *t); /* NULL is fine */

#endif
