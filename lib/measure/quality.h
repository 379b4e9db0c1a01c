/* How well a model predicts a text. */
#ifndef LLM_MEASURE_QUALITY_H
#define LLM_MEASURE_QUALITY_H

#include "measure/convention.h"

struct llm_quality_text {
    const int32_t *ids;          /* [n] */
    const uint8_t *mask;         /* [n], or NULL; tokens with 0 are read and not scored */
    int64_t n;
    const uint64_t *ends;        /* [n_ends] where documents end, ascending, at most n; tokens after the last end form a document too */
    size_t n_ends;
    enum llm_convention convention;
    int64_t stride;              /* of LLM_BY_HF_STRIDE, in [1, context] */
    bool entropy;                /* the entropy of the predictions is wanted: it takes a pass over all logits of a token */
    int32_t begin;               /* the token that each piece of LLM_BY_LLAMA_CPP begins with; -1: none */
};
struct llm_quality {
    int64_t tokens;              /* scored */
    double nats, nats_error;     /* per token, and the standard error of that mean (measure/stats.h) */
    double perplexity;           /* e^nats */
    double bytes;                /* of the text of the scored tokens; special tokens have none; NaN without a tokenizer */
    double bits_per_byte, bits_per_byte_error;
    double entropy;              /* mean over the tokens of the entropy of their predictions, in nats; NaN: not wanted, or an n-gram model */
};
/* Each document by itself, as the convention says; at least one token must be scored. 0; 1 when a signal was caught; -1. */
int llm_quality_of(struct llm_engine *g, const struct llm_quality_text *text, struct llm_quality *q, struct llm_err *e) LLM_MUST_CHECK;

/* Rows [at, at + n) of a span. */
struct llm_span_rows { int64_t at, n; };
/* Those of the rows [first, first + n) of a window that predict a token which is scored; rows of tokens that a mask leaves out are among them. */
struct llm_span_rows llm_quality_rows(const struct llm_window *w, int64_t first, int64_t n);

/* Calls `window` with each window of each document: its ids, which are those of the text but for `begin`, and the number of its first token in the
 * text. Ends with the first status that is not 0. */
typedef int llm_quality_window(void *arg, const int32_t *ids, const struct llm_window *w, int64_t first, struct llm_err *e);
int llm_quality_windows(const struct llm_quality_text *text, int64_t context, llm_quality_window *window, void *arg, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
