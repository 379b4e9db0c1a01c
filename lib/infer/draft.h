/* Drafts for speculative decoding by the model itself (DeepSeek-V3, 2024, 2.2): the first of the layers that predict further tokens takes the hidden
 * state of a token and the token that follows, and predicts the one after that; for more tokens it continues from its own prediction. Its keys and
 * values lie in the sequences' caches beside those of the model's layers. Drafts are proposals: the model itself decides. */
#ifndef LLM_INFER_DRAFT_H
#define LLM_INFER_DRAFT_H

#include "infer/engine.h"

/* Hidden states of a sequence's tokens [first, first + n) that the layer has not seen yet. Zero-initialise. */
struct llm_draft {
    float *rows;                /* [n, hidden_size] */
    size_t room;
    int64_t first, n;
};
void llm_draft_release(struct llm_draft *d);
/* Appends rows [row, row + n) of `hidden`: those of tokens [first, first + n), appended to those noted. */
int llm_draft_note(struct llm_draft *d, const struct llm_tensor *hidden, int64_t row, int64_t first, int64_t n, struct llm_err *e) LLM_MUST_CHECK;

struct llm_draft_feed {
    struct llm_draft *draft;
    struct llm_kv *kv;
    int32_t (*next)(void *arg, int64_t position); /* the token after `position`, a noted position */
    void *arg;
    int64_t n;                  /* rows to run, whose next tokens are known, ≤ draft->n; they are removed from the draft */
    int64_t wanted;             /* tokens to draft after the last noted one; then n = draft->n ≥ 1 */
    int32_t *out;               /* [wanted] */
};
/* Over all feeds at once. 0 or -1. */
int llm_engine_draft(struct llm_engine *g, const struct llm_draft_feed *feeds, int64_t n, struct llm_err *e) LLM_MUST_CHECK;

#endif
