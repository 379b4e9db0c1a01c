/* Lines of a teacher's log-probabilities (formats/teacher.md) as training data. */
#ifndef LLM_TRAIN_TAUGHT_H
#define LLM_TRAIN_TAUGHT_H

#include "train/lines.h"

/* The places, in a record, of a token's most likely successors by the teacher. Those after the last token of a record are not learned. */
enum llm_taught_column {
    LLM_TAUGHT_IDS, LLM_TAUGHT_LOG_PROBS,   /* per choice; ids ascending */
    LLM_TAUGHT_TAIL                         /* log-probability of all others together; NaN: unknown */
};
#define LLM_TAUGHT_COLUMNS {"top_ids", LLM_PER_CHOICE, true}, {"top_logprobs", LLM_PER_CHOICE, true}, {"tail_logprobs", LLM_PER_TOKEN, true}
enum { LLM_N_TAUGHT_COLUMNS = 3 };
/* llm_objective.record. The columns of the record begin at number `first`. `why`: what the tail is needed for, so that lines without it are refused;
 * NULL: nothing. */
int llm_taught_record(struct llm_lines *l, const json_t *line, int first, const char *why, struct llm_err *e);

#endif
