/* Deterministic searches for a completion, in place of drawing token by token.
 *
 * Beam search keeps the `beams` most likely unfinished texts, as transformers' generate does: log-probabilities are summed, ended texts are compared
 * by sum / length^length_penalty. Diverse beam search (Vijayakumar et al. 2016) divides the beams into groups; a group's tokens lose
 * diversity_penalty for each beam of an earlier group that chose the same token in the same step.
 *
 * Contrastive search (Su et al. 2022) takes, of the top_k most likely tokens, the one with the largest
 * (1 - alpha) · probability - alpha · (largest cosine of its final hidden state with those of all tokens before it). */
#ifndef LLM_INFER_BEAMS_H
#define LLM_INFER_BEAMS_H

#include "infer/generate.h"

enum llm_early { LLM_EARLY_NO, LLM_EARLY_YES, LLM_EARLY_NEVER }; /* transformers' early_stopping: False, True, "never" */
struct llm_beams {
    int64_t beams;               /* ≥ 2: beam search; else contrastive search */
    int64_t groups;              /* divides `beams` */
    double diversity_penalty, length_penalty;
    enum llm_early early;
    double alpha;                /* of contrastive search, in [0, 1]; its top_k is prompt.sampling.top_k */
};

/* As llm_generate, prompt after prompt: `next`, `text`, `done` and `fail_alone` of g are used, its drafts, sharing and bounds are not. Of the
 * sampling options the edits of logits act, in beam search on log-probabilities. prompt.samples ≤ beams completions are delivered, the best first,
 * each with its score; stop strings cut the texts of beams when the search has ended. 0, 1 when a signal was caught, -1. */
int llm_beams_search(const struct llm_generate *g, const struct llm_beams *o, struct llm_err *e) LLM_MUST_CHECK;

#endif
