/* llm-quantize --drop-layers. */
#ifndef BIN_QUANTIZE_DROP_H
#define BIN_QUANTIZE_DROP_H

#include "quant/drop.h"

struct drop_request {
    const char *in, *text;        /* the model and the text, which is read again */
    int64_t layers, tokens, context; /* how many go; tokens of the text, 0: 2,048; of a window, 0: 512 */
};
/* Leaves the layers of *m out that IN's predictions on the text need least, and says which on standard error. 0, 1 if a signal was caught, -1. */
int quantize_drop(const struct drop_request *q, struct llm_model **m, struct llm_err *e) LLM_MUST_CHECK;

#endif
