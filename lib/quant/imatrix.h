/* llama.cpp's importance files: second moments by the names of GGUF's tensors. Two forms exist: GGUF files (tensors NAME.in_sum2 and NAME.counts) and
 * the older .dat files (a count of entries, then for each a name, the number of calls, and mean squares times that number). */
#ifndef LLM_QUANT_IMATRIX_H
#define LLM_QUANT_IMATRIX_H

#include "quant/moments.h"

/* Reads either form, recognised by content, into the records of `m` (llm_moments_init of `model`). *unknown: entries that are of no matrix of the
 * model. EX_DATAERR if the file is malformed, if an entry has another number of channels than the matrix, or if no entry is of the model. */
int llm_imatrix_read(struct llm_moments *m, const struct llm_model *model, const char *path, size_t *unknown, struct llm_err *e) LLM_MUST_CHECK;
/* Writes GGUF, or the older form if `old`. `dataset`: the name of the text. A model whose tensors have no names in GGUF is EX_UNAVAILABLE. */
int llm_imatrix_write(const struct llm_moments *m, const struct llm_model *model, bool old, const char *dataset, int64_t chunk_size,
                      struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;

#endif
