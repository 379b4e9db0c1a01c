/* Evaluation: the items of a task, judged by a model. Each item's result is a JSON object (formats/task.md); report.h makes tables of them. A result
 * is a function of the model, the task, the item and the options below: neither the other items nor the size of a pass change it. */
#ifndef LLM_MEASURE_EVAL_RUN_H
#define LLM_MEASURE_EVAL_RUN_H

#include "infer/generate.h"
#include "measure/eval/continuations.h"
#include "measure/eval/extract.h"
#include "measure/eval/task.h"
#include "token/chat/find.h"

struct llm_eval {
    /* The caller's: */
    const struct llm_eval_task *task;
    const struct llm_eval_data *data;
    const struct llm_eval_data *shots_data; /* where examples come from; `data` itself: the item is left out */
    int64_t shots;
    uint64_t seed;
    struct llm_engine *engine;
    const struct llm_chat *chat;            /* NULL: plain texts */
    int bos;                                /* 0: never, 1: always, -1: as the tokenizer does */
    int64_t samples;                        /* of a generation, ≥ 1 */
    double temperature;                     /* of a generation; 0: the most likely token */
    int64_t parallel;                       /* generations at a time */
    /* Its own: */
    struct llm_continuations continuations;
    struct llm_extract *extract;
    int32_t begin;                          /* the token that texts begin with; -1: none */
    int32_t fallback;                       /* the token before a text without a beginning, when there is no context; -1: none */
    int64_t cut;                            /* items that were longer than the context, whose first tokens were dropped */
};
/* After the caller's fields are set, the others zero. Release either way. */
int llm_eval_begin(struct llm_eval *v, struct llm_err *e) LLM_MUST_CHECK;
void llm_eval_release(struct llm_eval *v);
/* Judges items [from, to). `put` gets each result, which it then owns, in order. 0; 1 if a signal was caught, after results that were complete; -1:
 * "item 12: …". */
int llm_eval_run(struct llm_eval *v, int64_t from, int64_t to, int (*put)(void *arg, json_t *result, struct llm_err *e), void *arg, struct llm_err *e)
    LLM_MUST_CHECK;
/* After all items: refuses (status 1) a model that gives every token the same probability, or whose probabilities are no numbers. */
int llm_eval_check(const struct llm_eval *v, struct llm_err *e) LLM_MUST_CHECK;
/* What texts begin with, for a table: "bos", "none", "chat". */
const char *llm_eval_beginning(const struct llm_eval *v);

#endif
