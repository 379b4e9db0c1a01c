/* IDX files (MNIST's): arrays of bytes, sizes as big-endian numbers before them. */
#ifndef LLM_IO_IDX_H
#define LLM_IO_IDX_H

#include <stdbool.h>
#include "io/file.h"

struct llm_idx {
    struct llm_file *f;            /* borrowed: stands at the first element */
    int n_dims;
    int64_t shape[3];
};
/* Whether a file that has not been read begins as an IDX file of bytes. */
bool llm_idx_begins(struct llm_file *f);
/* Reads the header: `n_dims` dimensions, none 0. Errors name the file. */
int llm_idx_open(struct llm_idx *x, struct llm_file *f, int n_dims, struct llm_err *e) LLM_MUST_CHECK;
/* EX_DATAERR if bytes follow the array, which has been read. */
int llm_idx_end(struct llm_idx *x, struct llm_err *e) LLM_MUST_CHECK;

#endif
