/* llm-infer: input a line at a time. */
#ifndef LLM_BIN_INFER_LINES_H
#define LLM_BIN_INFER_LINES_H

#include "base/buf.h"
#include "io/file.h"

struct lines {
    struct llm_file *file;
    struct llm_buf text;     /* read and not yet used, from `at` */
    size_t at;
    int64_t number;          /* of the line at hand, from 1 */
};
/* Zero-initialise; close either way. */
int lines_open(struct lines *l, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* 1: a line that is not blank, without its newline, until the next call; 0: no more; -1. */
int lines_next(struct lines *l, const char **line, size_t *n, struct llm_err *e) LLM_MUST_CHECK;
void lines_close(struct lines *l);

#endif
