/* Rotary frequencies beyond the context that a model was first trained for, as transformers computes them. */
#ifndef LLM_MODEL_CONFIG_ROPE_SCALING_H
#define LLM_MODEL_CONFIG_ROPE_SCALING_H

#include "base/json.h"

#define LLM_MAX_ROTARY_PAIRS 256

enum llm_rope_scaling_kind {
    LLM_ROPE_PLAIN,
    LLM_ROPE_LINEAR,  /* positions / factor (kaiokendev 2023) */
    LLM_ROPE_DYNAMIC, /* the base grows with the context beyond max_position_embeddings (NTK-aware) */
    LLM_ROPE_YARN,    /* Peng et al. 2023 */
    LLM_ROPE_LLAMA3,  /* Llama 3.1: low frequencies divided, high ones kept, a ramp between */
    LLM_ROPE_LONGROPE,/* Ding et al. 2024: a factor for each frequency, one list within the original context, one beyond */
    LLM_N_ROPE_SCALINGS
};
struct llm_rope_scaling {
    enum llm_rope_scaling_kind kind;
    double factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow, mscale, mscale_all_dim;
    double attention_factor;       /* 0: by the kind's own formula; factor 0: not given */
    int64_t original_context;      /* 0: max_position_embeddings */
    bool truncate;                 /* YaRN: the ramp's ends are whole channels */
    int n_factors;                 /* longrope: rotary_dim / 2 */
    float short_factors[LLM_MAX_ROTARY_PAIRS], long_factors[LLM_MAX_ROTARY_PAIRS];
};

/* Reads and checks config.json's object "rope_scaling" or "rope_parameters" (`key`). *theta is set if the object has one. An unknown kind is refused
 * by name. 0 or -1. */
int llm_rope_scaling_from_json(struct llm_rope_scaling *s, double *theta, const json_t *o, const char *key, struct llm_err *e) LLM_MUST_CHECK;
/* The kind of scaling that such an object names, by either of its two keys; NULL: it names none. */
const char *llm_rope_type(const json_t *o);
/* The object from which llm_rope_scaling_from_json reads `s`. New reference; NULL: out of memory. */
json_t *llm_rope_scaling_to_json(const struct llm_rope_scaling *s);
/* Whether frequencies depend on the context: on how long a text may become, never on how long one is, so that a token's bits do not depend on what
 * follows it. */
bool llm_rope_follows_context(const struct llm_rope_scaling *s);
/* The context if the user gives none: max_context, but for longrope with different long factors its original context, up to which the short factors
 * apply. */
int64_t llm_rope_default_context(const struct llm_rope_scaling *s, int64_t max_context);
/* Whether frequencies are the same for both contexts. */
bool llm_rope_same_context(const struct llm_rope_scaling *s, int64_t a, int64_t b, int64_t max_context);
/* inv_freq[rotary_dim / 2] and the magnitude of cosines and sines, for texts of up to `context` tokens of a model made for `max_context`. */
void llm_rope_frequencies(const struct llm_rope_scaling *s, double theta, int64_t rotary_dim, int64_t context, int64_t max_context, float *inv_freq,
                          float *magnitude);

#endif
