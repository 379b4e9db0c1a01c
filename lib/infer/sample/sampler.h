/* Choosing the next token from logits. Two kinds of steps, each a row in sample/table.h, are applied in this order (llama.cpp's default chain):
 *   edits of logits      logit bias, penalties, DRY
 *   filters              top-n-sigma, top-k, typical, top-p, min-p, XTC
 *   temperature          divides the logits of the candidates that are left
 *   last filters         Mirostat (in place of the filters above), adaptive-p
 * Then one candidate is drawn by Gumbel-max (infer/sample/draw.h): its probability is the softmax of the candidates that are left. A temperature of 0
 * takes the most likely token after the edits, the lowest id among equals.
 *
 * The noise of a token depends on (seed, policy step, prompt, sample, position, token) alone, so a sequence does not depend on what else is in the
 * batch. To add a step: sample/<name>.c, and its row in sample/table.h. */
#ifndef LLM_INFER_SAMPLE_SAMPLER_H
#define LLM_INFER_SAMPLE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "infer/sample/table.h"

struct llm_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -infinity: never chosen */
};

#define LLM_SAMPLE_REAL_FIELD(type, member, field, ...) double field;
#define LLM_SAMPLE_INT_FIELD(type, member, field, ...) int64_t field;
struct llm_sampling {
    /* A field for each option of sample/table.h: double temperature, int64_t top_k, … */
    LLM_SAMPLE_TABLE(LLM_SAMPLE_NO_STEP, LLM_SAMPLE_REAL_FIELD, LLM_SAMPLE_INT_FIELD, , )
    const struct llm_logit_bias *bias; /* borrowed */
    size_t n_bias;
    const struct llm_dry_breakers *dry_breakers; /* what ends a repetition; borrowed; NULL: nothing does */
    uint64_t seed;
    uint64_t policy_step;       /* training steps that the weights have had, of rollouts; else 0 */
    uint64_t prompt;            /* which prompt this is: llm_draw_prompt of its id */
};
/* llama.cpp's defaults: temperature .8, top-k 40, top-p .95, min-p .05, the last 64 tokens; everything else off; seed 0. */
extern const struct llm_sampling llm_sampling_defaults;
/* Turns off temperature and filters: tokens are drawn from the softmax of the logits, as of rollouts. */
void llm_sampling_open(struct llm_sampling *p);
/* Ranges, and bias ids below the vocabulary: status 2. */
int llm_sampling_check(const struct llm_sampling *p, int64_t vocab_size, struct llm_err *e) LLM_MUST_CHECK;

/* Whether tokens are drawn from the softmax of the model's own logits: temperature 1, no filter, no edit. */
bool llm_sampling_is_plain(const struct llm_sampling *p, int64_t vocab_size);

/* A token that may still be chosen. */
struct llm_candidate {
    float logit;
    int32_t id;
};
/* What filters remember of a completion's earlier tokens. Zeros before the first. Only one of them is active at a time. */
struct llm_sample_state {
    bool begun;
    double mu;                /* Mirostat: the largest surprise that is kept, in bits */
    double weighted, weight;  /* adaptive-p: Σ decay^age · probability of the tokens chosen, Σ decay^age */
};

/* The tokens that may still be chosen. Filters reorder `v` and lower `n`, never to 0. */
struct llm_candidates {
    struct llm_candidate *v;
    double *scratch; /* one number for each id; of the filters */
    size_t n;
    size_t vocab;    /* tokens of the vocabulary */
    uint32_t sample, position; /* of the token to come: part of the keys of random numbers */
    struct llm_sample_state *state;
    size_t sorted;   /* so many at the front are in order: the larger logit first, of equals the lower id */
};

/* The tokens of the text so far, for the penalties. */
struct llm_history {
    const int32_t *ids;
    int64_t n;
};

struct llm_sample_step {
    const char *name;
    bool (*active)(const struct llm_sampling *p);
    /* One of the two. An edit changes logits of the whole vocabulary; scratch holds 3 · history->n ids. */
    void (*edit)(const struct llm_sampling *p, const struct llm_history *h, int32_t *scratch, float *logits, size_t n);
    void (*filter)(const struct llm_sampling *p, struct llm_candidates *c);
    /* Of a filter with a state: `token` was drawn from the candidates that are left. NULL: nothing is remembered. */
    void (*chosen)(const struct llm_sampling *p, struct llm_candidates *c, struct llm_candidate token);
    bool needs_all;           /* the filter looks at all candidates, also those that other filters would remove */
    bool alone;               /* when active, the filters before it are off, but for the temperature */
};
/* In the order of application; ends with a row without a name. */
extern const struct llm_sample_step *const llm_sample_steps[];

/* Whether a comes before b: its logit is larger, or equal and its id lower. */
bool llm_candidate_before(struct llm_candidate a, struct llm_candidate b);
/* Removes candidates whose logit is below the floor. */
void llm_candidates_floor(struct llm_candidates *c, double floor);
/* Brings the k largest (k ≤ n) to the front, sorted: linear in n, not a sort of all. */
void llm_candidates_sort(struct llm_candidates *c, size_t k);
/* The largest logit. */
float llm_candidates_max(const struct llm_candidates *c);
/* Σ exp(logit - max), summed in the order of `v`. */
double llm_candidates_mass(const struct llm_candidates *c);

/* What restricts a choice besides logits: a grammar (infer/constrain/constraint.h). */
struct llm_limit {
    bool (*allows)(void *arg, int32_t id);
    /* Sets the logits of all other tokens to -infinity. -1: none is left, or it failed. */
    int (*apply)(void *arg, float *logits, size_t n, struct llm_err *e);
    void *arg;
};

/* Memory for choosing, kept from token to token; one thread at a time. */
struct llm_sampler {
    struct llm_candidates c;
    size_t room;
    int32_t *seen;
    size_t seen_room;
    float *block_max;
    size_t blocks_room;
    struct llm_sample_state state; /* of the completion whose tokens are chosen */
    bool plain;      /* for tests: every filter sees all candidates. Same results */
    const struct llm_limit *limit; /* applied after the edits; borrowed. NULL: every token may be chosen */
};
/* Chooses. `logits` [n] are changed. `sample` and `position` (of the token to come) are part of the noise's key. Logits that are not finite (NaN,
 * +infinity, or all -infinity) fail with status 1. Zero-initialise the sampler. */
int llm_sampler_choose(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n,
                       uint32_t sample, uint32_t position, int32_t *id, struct llm_err *e) LLM_MUST_CHECK;
/* The edits alone. */
int llm_sampler_edit(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n,
                     struct llm_err *e) LLM_MUST_CHECK;
/* The edits and filters alone: s->c holds what is left, temperature applied. For tests and tools. */
int llm_sampler_filter(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n,
                       struct llm_err *e) LLM_MUST_CHECK;
/* The edits, the limit and the filters, for a token of this sample and position: s->c holds what is left, temperature applied. The temperature is not
 * 0. Returns 0 or -1. */
int llm_sampler_candidates(struct llm_sampler *s, const struct llm_sampling *p, const struct llm_history *h, float *logits, size_t n,
                           uint32_t sample, uint32_t position, struct llm_err *e) LLM_MUST_CHECK;
/* The log-probability with which llm_sampler_choose chose `id` just now, with the same p, and logits as it left them (overwritten). 0 at temperature
 * 0. */
float llm_sampler_log_prob(const struct llm_sampler *s, const struct llm_sampling *p, float *logits, size_t n, int32_t id);
void llm_sampler_release(struct llm_sampler *s);

#endif
