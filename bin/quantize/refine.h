/* llm-quantize --refine. */
#ifndef BIN_QUANTIZE_REFINE_H
#define BIN_QUANTIZE_REFINE_H

#include "bin/quantize/load.h"
#include "quant/refine.h"

struct refine_request {
    struct quantize_in in;        /* is read again, and so is the text */
    const char *text;
    int64_t max, context, steps;  /* the text's first tokens that are read, 0: all; tokens of a window, 0: 512 */
};
/* Refines `m`, whose blocks `r` took, on the text but its last eighth (64 tokens at least), and says on standard error how far the predictions
 * for that are from IN's before and after. If they are not nearer, `m` is as before; else the errors in reports [m->n_params] are those of the
 * refined matrices. 0, 1 if a signal was caught, -1. */
int quantize_refine(const struct refine_request *q, struct llm_refine *r, struct llm_model *m, struct llm_quant_report *reports,
                    struct llm_err *e) LLM_MUST_CHECK;

#endif
