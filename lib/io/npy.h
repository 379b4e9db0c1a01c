/* NumPy's .npy files, version 1.0. */
#ifndef LLM_IO_NPY_H
#define LLM_IO_NPY_H

#include "cpu/dtype.h"
#include "io/output.h"

/* Writes an array in C order. F32, F16, F64 and integers as they are; BF16 and block types, which NumPy does not know, as F32. `o` is not committed.
 */
int llm_npy_write(struct llm_output *o, enum llm_dtype dtype, int n_dims, const int64_t *shape, const void *data, struct llm_err *e) LLM_MUST_CHECK;

#endif
