/* A parameter in FP32 over memory of the test's. */
#ifndef TESTS_TENSOR_PARAM_OF_H
#define TESTS_TENSOR_PARAM_OF_H

#include "tensor/tensor.h"

/* w and its gradient g: [rows, cols], or with cols 0 a vector of rows. */
static struct llm_param param_of(float *w, float *g, int64_t rows, int64_t cols)
{
    return (struct llm_param){.name = "w", .n_dims = cols ? 2 : 1, .shape = {rows, cols}, .master = w, .grad = g,
                              .weight = {.data = w, .dtype = LLM_F32, .n = rows, .k = cols ? cols : 1}};
}

#endif
