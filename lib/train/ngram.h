/* n-gram models by interpolated modified Kneser-Ney smoothing (Chen & Goodman 1998, equations 24 to 26), as KenLM's lmplz has it (Heafield et al.
 * 2013): discounts of each order from its own counts of counts; adjusted counts (in how many contexts a lower-order n-gram appears, or how often,
 * where it begins a text); unigrams interpolated with the uniform distribution over all ids and one more, for what no id stands for.
 *
 * n-grams are sorted in `memory` bytes; what does not fit is kept in unlinked files in $TMPDIR. The result depends neither on `memory` nor on
 * threads. */
#ifndef LLM_TRAIN_NGRAM_H
#define LLM_TRAIN_NGRAM_H

#include "data/tokens.h"
#include "model/model.h"
#include "model/weights/ngram.h"

struct llm_ngram_options {
    int order;
    int64_t memory;                        /* bytes; 0: half of the machine's */
    uint64_t prune[LLM_NGRAM_MAX_ORDER];   /* [k]: n-grams of k + 1 tokens that came so often or less are left out; ascending, [0] is 0 */
    bool cross_document;                   /* the data is one text */
};
struct llm_ngram_source {
    const struct llm_tokens *tokens;
    uint64_t n;                            /* the first n of them */
    int64_t vocab_size, bos, eos;          /* of the tokenizer; -1: none. Before a text stands bos, else eos, else what no id stands for */
};
struct llm_ngram_order_report {
    uint64_t types, kept;                  /* different n-grams; those in the model */
    double discount[4];                    /* [1], [2], [3 or more] */
    uint64_t short_of;                     /* 1, 2, 3 or 4: no n-grams of that count, so discounts of .5, 1, 1.5; 0: estimated */
};
struct llm_ngram_report {
    uint64_t tokens, runs, file_bytes;     /* counted; sorted apart and merged; most that lay in files */
    struct llm_ngram_order_report order[LLM_NGRAM_MAX_ORDER]; /* [k]: of k + 1 tokens */
};
/* *out is owned by the caller. 0; 1 if a signal was caught; -1. */
int llm_ngram_estimate(const struct llm_ngram_source *s, const struct llm_ngram_options *o, struct llm_ngram **out, struct llm_ngram_report *report,
                       struct llm_err *e) LLM_MUST_CHECK;
/* The bytes that options.memory = 0 stands for. */
uint64_t llm_ngram_memory(void);
/* The largest order that so many distinct tokens allow. */
int llm_ngram_order_limit(uint64_t vocab_size);

#endif
