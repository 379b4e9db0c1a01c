#include "infer/predictor.h"

#include <stddef.h>

/* The first row whose is_of accepts a model is its predictor; the last accepts every model. */
static const struct llm_predictor *const predictors[] = {&llm_predictor_ngram, &llm_predictor_network};

const struct llm_predictor *llm_predictor_of(const struct llm_model *m)
{
    size_t i = 0;
    while (predictors[i]->is_of && !predictors[i]->is_of(m)) i++;
    return predictors[i];
}
