/* Names that checkpoints use besides those of weights: of metadata and of further tensors (formats/checkpoint.md). */
#ifndef LLM_MODEL_WEIGHTS_NAMES_H
#define LLM_MODEL_WEIGHTS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#define LLM_META_CONFIG "llm.config"
#define LLM_META_TRAINING "llm.training"
#define LLM_META_CHAT_TEMPLATE "llm.chat_template"
#define LLM_META_PREPROCESSOR "llm.preprocessor"
#define LLM_META_FINGERPRINT "llm.fingerprint"
#define LLM_NAME_TOKENIZER "tokenizer."          /* the tokenizer's tensors begin with this */
#define LLM_NAME_TOKENIZER_JSON "tokenizer.json"
#define LLM_NAME_TRAINING "training."            /* masters and moments: training.master.<name>, training.m.<name>, … */

/* The matrix [rows, cols] of elements of `element` bytes, transposed to [cols, rows], malloced. NULL: out of memory. */
void *llm_transposed(const void *data, size_t element, int64_t rows, int64_t cols, struct llm_err *e) LLM_MUST_CHECK;
/* Reorders the rows of a fused projection, each of row_bytes bytes, between the order of some files (q, k, v of head 0, then of head 1, …) and that
 * of models (all queries, all keys, all values). */
struct llm_config;
void llm_rows_by_head(const struct llm_config *c, const void *data, size_t row_bytes, bool to_file, void *out);
/* The model's row that those files have at place `row`. */
size_t llm_row_by_head(const struct llm_config *c, size_t row);
/* Reorders the rows of a projection to queries or keys within each head: the two channels of a RoPE pair become adjacent (to_pairs), or the first and
 * the second of all pairs become the halves of what is rotated. */
void llm_rows_in_pairs(const struct llm_config *c, const void *data, int64_t rows, size_t row_bytes, bool to_pairs, void *out);

#endif
