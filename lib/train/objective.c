#include "train/objective.h"

#include <math.h>
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

int llm_task_init(struct llm_task *t, const struct llm_objective *o, struct llm_model *m, const struct llm_train_options *options, struct llm_err *e)
{
    if (o->check(m, e) < 0) return llm_in(e, "--objective %s", o->name);
    *t = (struct llm_task){.objective = o, .model = m, .o = *options};
    return o->create && o->create(t, e) < 0 ? llm_in(e, "--objective %s", o->name) : 0;
}

void llm_task_release(struct llm_task *t)
{
    if (t->objective && t->objective->destroy) t->objective->destroy(t);
    *t = (struct llm_task){.objective = NULL};
}

void llm_task_reset(struct llm_task *t)
{
    memset(t->means, 0, sizeof t->means);
    t->beside = 0;
    t->routers = (struct llm_router_report){0};
}

double llm_task_mean(const struct llm_task *t, int i)
{
    return t->means[i].n > 0 ? t->means[i].sum / t->means[i].n : NAN;
}

struct llm_batch llm_rows_batch(struct llm_task *t, const struct llm_rows *rows)
{
    return (struct llm_batch){.ids = rows->ids, .positions = rows->positions, .n_tokens = rows->n_rows * rows->row_len,
                              .checkpoint_every = t->o.checkpoint_every, .routers = &t->routers};
}

struct llm_batch llm_rows_source(const struct llm_rows *rows)
{
    return (struct llm_batch){.ids = rows->source, .positions = rows->positions, .n_tokens = rows->n_rows * rows->row_len,
                              .lengths = rows->source_len};
}
