#include "train/objective.h"

#include <string.h>

extern const struct llm_objective llm_objective_lm, llm_objective_ngram, llm_objective_mlm;
const struct llm_objective *const llm_objectives[] = {&llm_objective_lm, &llm_objective_ngram, &llm_objective_mlm, NULL};

const struct llm_objective *llm_objective_find(const char *name)
{
    for (size_t i = 0; llm_objectives[i]; i++) {
        if (strcmp(llm_objectives[i]->name, name) == 0) return llm_objectives[i];
    }
    return NULL;
}
