/* How far the predictions of a model are from those of another, on a text: both read it in turns, window by window,
 * or the other one has read it before and its logits come from a stream. */
#ifndef LLM_MEASURE_COMPARE_H
#define LLM_MEASURE_COMPARE_H

#include "measure/logits.h"
#include "measure/quality.h"

/* A value and the interval of 95 percent of it: bootstrap over runs of 64 neighbouring scored tokens (LLM_RUN), 2,000 resamples. The same runs are
 * drawn for all values, so that an interval of a difference is of paired differences. NaN: without an interval. */
struct llm_estimate { double value, low, high; };

/* p: the base's distribution of the next token; q: the model's; Δp: q - p of the token that comes. */
struct llm_comparison {
    int64_t tokens;            /* scored */
    size_t runs;               /* that intervals draw from */
    struct llm_estimate base_perplexity, perplexity;
    struct llm_estimate log_ratio;         /* log(perplexity / base_perplexity) */
    struct llm_estimate kl;                /* mean of KL(p ‖ q), in nats */
    double kl_median, kl_p99, kl_max;
    struct llm_estimate same_top;          /* share of the tokens of which both find the same next token the most probable */
    struct llm_estimate delta_p, delta_p_rms; /* mean, and root of the mean square */
    struct llm_estimate against_kl;        /* with llm_compare_base.against r: mean of KL(p ‖ r) */
    struct llm_estimate kl_ratio;          /* with `against`: kl / against_kl, its interval that of paired runs */
};
/* The base: an engine, or the logits that one wrote. */
struct llm_compare_base {
    struct llm_engine *engine;   /* NULL: `logits` */
    struct llm_logits *logits;
    struct llm_engine *against;  /* a second model that is compared with the base, or NULL */
};
/* The base and `against` have the vocabulary and the context of `g`; no model is a table of n-grams (EX_UNAVAILABLE).
 * 0; 1 when a signal was caught; -1. */
int llm_compare(const struct llm_compare_base *base, struct llm_engine *g, const struct llm_quality_text *text, struct llm_comparison *c,
                struct llm_err *e) LLM_MUST_CHECK;

#endif
