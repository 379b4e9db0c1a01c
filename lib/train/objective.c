#include "train/objective.h"

#include <string.h>

extern const struct llm_objective llm_objective_lm, llm_objective_ngram, llm_objective_mlm, llm_objective_seq2seq, llm_objective_prefix,
    llm_objective_fim, llm_objective_classify, llm_objective_contrastive;
const struct llm_objective *const llm_objectives[] = {&llm_objective_lm, &llm_objective_ngram, &llm_objective_mlm, &llm_objective_seq2seq,
                                                   &llm_objective_prefix, &llm_objective_fim, &llm_objective_classify,
                                                   &llm_objective_contrastive, NULL};

const struct llm_objective *llm_objective_find(const char *name)
{
    for (size_t i = 0; llm_objectives[i]; i++) {
        if (strcmp(llm_objectives[i]->name, name) == 0) return llm_objectives[i];
    }
    return NULL;
}

bool llm_objective_by_pass(const struct llm_objective *o, const struct llm_config *c)
{
    return o->by_pass || c->norm == LLM_NORM_BATCH;
}

struct llm_batch llm_rows_source(const struct llm_rows *rows)
{
    return (struct llm_batch){.ids = rows->source, .positions = rows->positions, .n_tokens = rows->n_rows * rows->row_len,
                              .lengths = rows->source_len};
}
