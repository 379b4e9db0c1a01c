/* llm-quantize: what is known of the inputs of a model's matrices: from a text, or from a file of importances. */
#ifndef BIN_QUANTIZE_CALIBRATE_H
#define BIN_QUANTIZE_CALIBRATE_H

#include "quant/moments.h"

struct calibration {
    const char *text;             /* a text or a token stream; NULL */
    const char *importances;      /* llama.cpp's importance file; NULL */
    const char *out;              /* where importances are written; NULL */
    int64_t tokens;               /* the text's first tokens that are read; 0: all */
    int64_t context;              /* tokens of a window; 0: 512 */
    uint64_t memory;              /* bytes of sums that are gathered at a time; 0: all */
    bool products;                /* collect sums of products of pairs of inputs, for GPTQ */
    bool curvature;               /* collect the factors of the curvature, for KL */
};
/* Fills `m`, which the caller released or zero-initialised and releases; writes c->out. 0, 1 if a signal was caught, -1. */
int quantize_calibrate(const struct calibration *c, struct llm_model *model, struct llm_moments *m, struct llm_err *e) LLM_MUST_CHECK;

#endif
