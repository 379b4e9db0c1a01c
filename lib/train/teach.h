/* Reinforcement in one process: samples completions with the weights in training, has a command judge them, learns from them, and does so again.
 * An iteration gives the bits that a pipe gives: llm-infer --jsonl --rollout, the command, llm-train - . */
#ifndef LLM_TRAIN_TEACH_H
#define LLM_TRAIN_TEACH_H

#include "infer/sample/sampler.h"
#include "train/judge.h"
#include "train/loop.h"
#include "train/prompts.h"

struct llm_teach_options {
    const char *prompts;        /* file; NULL: the run has data of its own */
    const char *log;            /* completions with their rewards are appended to this file; NULL */
    int64_t samples;            /* completions of a prompt */
    int64_t iterations;         /* in all, those that the log has included */
    int64_t take;               /* prompts of an iteration, shuffled; 0: all of the file, in its order */
    int64_t tokens;             /* maximum of a completion; -1: until the context is full */
    int64_t parallel;           /* maximum of completions sampled at the same time */
    int64_t lag;                /* 1: completions of the next iteration are sampled before this one is learned from, and judged meanwhile */
    int64_t redraw;             /* groups whose rewards are all equal are drawn again, so often at most */
    struct llm_judge_options judge;
    struct llm_sampling sampling;
};
/* Runs all iterations; l->t is made without data, and l->save_every counts steps, but saves between iterations only. The model's path `from` is where
 * a chat template is looked for.
 *
 * The log is a file of rollouts (formats/rollouts.md) with "iteration" in each line. If it exists, it is continued: the iterations that the weights
 * have seen are passed over by their "policy_step"; the lines of those after them are learned from as they stand, so that a run that was killed goes
 * on to the same bits whatever the command would say now. A last line that was cut is removed. With a lag it also has what the weights of the
 * iteration before have sampled, which cannot be sampled again. Groups that were drawn again are in it several times, in the order of the draws.
 *
 * 0, also if a signal was caught: sampling and judging end, and the state before the iteration is saved; learning ends after its iteration. */
int llm_teach_run(struct llm_loop *l, const struct llm_teach_options *o, const char *from, struct llm_err *e) LLM_MUST_CHECK;

#endif
