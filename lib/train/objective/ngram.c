/* n-grams: nothing is minimised, tokens are counted (train/ngram.h). The row has no `run`: programs count instead of training by steps. */
#include "train/objective.h"

static int check(const struct llm_model *m, struct llm_err *e)
{
    (void)m;
    return llm_fail(e, LLM_EX_USAGE, "n-grams are counted, not trained by steps");
}

extern const struct llm_objective llm_objective_ngram;
const struct llm_objective llm_objective_ngram = {.name = "ngram", .summary = "count n-grams", .check = check};
