/* How fast a model runs, and what share of the machine's limit that is. */
#ifndef LLM_MEASURE_SPEED_H
#define LLM_MEASURE_SPEED_H

#include "infer/engine.h"
#include "measure/peaks.h"

#define LLM_SPEED_MAX_RUNS 1000

struct llm_speed {
    double rate, deviation;    /* tokens a second over the runs: mean, deviation of the sample */
    double median;
    const char *limit;         /* what bounds it: "bf16", "int8", "f32" peak, "memory", or "prefill" */
    double share;              /* of that limit: median over the runs of what the same run measured */
};
/* Reads `n` tokens after `depth` others in one go (prefill), `runs` times after two that are not counted. The share is of arithmetic,
 * whose peak is measured before and after each run. 0, -1, or 1 when a signal was caught. */
int llm_speed_prompt(struct llm_engine *g, int64_t depth, int64_t n, int64_t runs, struct llm_speed *out, struct llm_err *e) LLM_MUST_CHECK;
/* Generates `n` tokens one by one after `depth` (at least one) others. The share is of memory bandwidth: bytes that a token reads, weights and
 * cache, against plain reads that alternate with it every 50 ms. Four tokens that are not counted come first, in which weights are packed. */
int llm_speed_generate(struct llm_engine *g, int64_t depth, int64_t n, int64_t runs, struct llm_speed *out, struct llm_err *e) LLM_MUST_CHECK;
/* Generates `n` tokens of each of `sequences` sequences (at most g->batch), one token of each in a pass; each follows the same `depth` tokens. The
 * rate counts the tokens of all. The share is of a prefill: the rate of the same tokens read as prompts, with the logits of every token. */
int llm_speed_together(struct llm_engine *g, int64_t sequences, int64_t depth, int64_t n, int64_t runs, struct llm_speed *out, struct llm_err *e)
    LLM_MUST_CHECK;

/* Reads `prompt` tokens and then generates `generate` one by one, once and without warming up, as a program does that was just started. *seconds: of
 * the two. 0, 1, -1. */
int llm_speed_once(struct llm_engine *g, int64_t prompt, int64_t generate, double seconds[2], struct llm_err *e) LLM_MUST_CHECK;

#endif
