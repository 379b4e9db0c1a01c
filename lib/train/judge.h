/* A reward command as co-processes: it reads completions as lines of JSON (formats/rollouts.md) and answers each with a line, which has its reward.
 *
 * An answer is the line again with "reward" or "rewards" (and whatever else the command adds), or a number alone. An object that has "group" and
 * "sample" is the answer to that completion; other answers are taken in the order of the lines. The shell runs the command once in each job for the
 * completions of an iteration; it sees the end of its input when they are over, so that filters which buffer their output need no flag. */
#ifndef LLM_TRAIN_JUDGE_H
#define LLM_TRAIN_JUDGE_H

#include "base/json.h"

struct llm_judge_options {
    const char *command;     /* of /bin/sh; NULL: there are no rewards, and no judge is made */
    int64_t jobs;            /* processes at the same time; completion i goes to job i mod jobs */
    double seconds;          /* after the end of its input a process may be silent for so long */
    double fallback;         /* the reward of a completion on which the command hangs, dies or writes nonsense; NaN: that ends the run */
};
/* A completion has its reward. `failed`: NULL, or why it is the fallback. 0 or -1. */
typedef int llm_judge_done(void *arg, json_t *line, const char *failed, struct llm_err *e);

struct llm_judge;
struct llm_judge *llm_judge_create(const struct llm_judge_options *o, llm_judge_done *done, void *arg, struct llm_err *e) LLM_MUST_CHECK;
/* Gives a completion, of which the judge takes a reference, and reads answers that have come. Does not wait. 0 or -1. */
int llm_judge_give(struct llm_judge *j, json_t *line, struct llm_err *e) LLM_MUST_CHECK;
/* Sends and reads what can be sent and read without waiting. 0 or -1. */
int llm_judge_pump(struct llm_judge *j, struct llm_err *e) LLM_MUST_CHECK;
/* No more completions: waits until each has its reward. 0; 1: a signal was caught; -1: the command failed (65, or 69 if the shell did not find
 * it). */
int llm_judge_finish(struct llm_judge *j, struct llm_err *e) LLM_MUST_CHECK;
/* Ends processes that still run. NULL is fine. */
void llm_judge_destroy(struct llm_judge *j);

#endif
