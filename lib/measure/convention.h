/* Which tokens of a text are scored, and how much of the text each of them sees: what published perplexities differ in. */
#ifndef LLM_MEASURE_CONVENTION_H
#define LLM_MEASURE_CONVENTION_H

#include "infer/score.h"

enum llm_convention {
    LLM_BY_DOCUMENT, /* each token but the first of a document, in llm_score's windows */
    /* llama-perplexity of llama.cpp: the text in pieces of the context's length, the rest dropped; the second half of each is scored. If the text
     * begins with the token that begins texts, so does each piece, in place of the token that stands there. */
    LLM_BY_LLAMA_CPP,
    /* "Perplexity of fixed-length models" of transformers' documentation: windows that begin a stride apart, in which the tokens that no window
     * before had are scored; the mean of each window weighs as many tokens less one. */
    LLM_BY_HF_STRIDE,
    /* lm-eval's rolling windows: all tokens, the first given the token that begins texts (else the one that ends them), in windows with one token
     * of context, the last of them moved back so that it is full; the sum is divided by words, of which white space separates one more than it has
     * runs. */
    LLM_BY_WORD
};
const char *llm_convention_word(int i); /* NULL after the last */

struct llm_window {
    int64_t at, n, skip; /* as struct llm_score_part */
    int64_t weight;      /* of the mean over the tokens scored */
};
/* The windows of a text of n tokens, one after another; the first after a zeroed `w`. False after the last. */
bool llm_window_next(enum llm_convention convention, int64_t context, int64_t stride, int64_t n, struct llm_window *w);

/* Words of a text as Python's re.split("\\s+") counts them. */
int64_t llm_count_words(const char *text, size_t n);

#endif
