/* llm-infer --jsonl: progress of a batch for a person: a bar on a terminal, and a line at the end. */
#ifndef LLM_BIN_INFER_BATCH_H
#define LLM_BIN_INFER_BATCH_H

#include "base/progress.h"
#include "bin/infer/infer.h"
#include "bin/infer/lines.h"

struct batch {
    struct llm_progress bar;
    const struct session *s;
    const struct lines *in;
    int64_t items;           /* lines answered, refused ones among them */
    int64_t read, generated; /* tokens */
    double synced;           /* with --resume: when the output was synced last */
    bool shares;             /* the results go to a terminal too: the bar must not stand in their lines */
};
/* After the input was opened. Both are borrowed. */
void batch_begin(struct batch *b, const struct session *s, const struct lines *in);
/* Before results are written. */
void batch_hide(const struct batch *b);
/* Counts an answered line: `read` tokens of the prompt and `generated` tokens of completions. */
void batch_item(struct batch *b, int64_t read, int64_t generated);
/* After the last line, or where the batch was interrupted or failed. Says nothing if no line was answered. */
void batch_end(struct batch *b);
/* Writes the object as a line, at once; with --resume a line is on the disk a second later, if others follow. 0 or -1. */
int batch_put(struct batch *b, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
/* Writes the answer to a line that cannot be used (lines_refuse). 0 or -1. */
int batch_refuse(struct batch *b, struct lines *in, const json_t *object, const struct llm_err *why, struct llm_err *e) LLM_MUST_CHECK;
/* A whole batch whose lines are answered one by one: opens the input (-f, the operand, else standard input), calls `line` for each line that is not
 * blank (text NULL: it is too long), then `finish` (NULL: nothing is left to do), and closes it. Both return 0, 1 when a signal was caught, or -1; so
 * does this function. s->refused says afterwards whether lines were refused. */
int batch_lines(struct batch *b, struct session *s, struct lines *in, const char *operand,
                int (*line)(void *arg, const char *text, size_t n, struct llm_err *e), int (*finish)(void *arg, struct llm_err *e), void *arg,
                struct llm_err *e) LLM_MUST_CHECK;

#endif
