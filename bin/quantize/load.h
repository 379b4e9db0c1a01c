/* Loads IN of llm-quantize again, which is compared with what becomes of it. */
#ifndef BIN_QUANTIZE_LOAD_H
#define BIN_QUANTIZE_LOAD_H

#include <stdbool.h>
#include "model/weights/model.h"

struct quantize_in {
    const char *path;
    bool rotate;
};
/* The model as it is before it is quantised: with --rotate, rotated. NULL: see `e`. */
struct llm_model *quantize_load(const struct quantize_in *in, struct llm_err *e) LLM_MUST_CHECK;

#endif
