/* The n-gram line: what counting reaches on the validation data, which a network has to clear; and what counting will take. */
#ifndef LLM_TRAIN_NGRAM_BAR_H
#define LLM_TRAIN_NGRAM_BAR_H

#include "io/table.h"
#include "measure/quality.h"
#include "train/ngram.h"
#include "train/trainer.h"

/* The tokens of `d` that are learned from, and the tokenizer's (NULL: none) beginning and end. */
struct llm_ngram_source llm_ngram_source_of(const struct llm_train_data *d, const struct llm_tokenizer *t, int64_t vocab_size);
/* How well a model predicts the validation data of `d`, document by document (measure/quality.h). 0, 1 (signal), -1. */
int llm_ngram_validate(struct llm_model *m, const struct llm_train_data *d, bool cross_document, struct llm_quality *q, struct llm_err *e)
    LLM_MUST_CHECK;

struct llm_ngram_bar { int order; double nats, bits_per_byte; };
/* o->order 0: the best order, found by trying 1, 2, … until one is no better. The tokenizer is borrowed. 0, 1 (signal), -1. */
int llm_ngram_bar(const struct llm_train_data *d, struct llm_tokenizer *t, int64_t vocab_size, const struct llm_ngram_options *o,
                  struct llm_ngram_bar *best, struct llm_err *e) LLM_MUST_CHECK;

struct llm_ngram_plan { double tokens, ngrams, model_bytes, memory_bytes, file_bytes, seconds; };
/* Counts the first tokens to see how long that takes, and estimates how many different n-grams all of them have. */
int llm_ngram_plan(const struct llm_ngram_source *s, const struct llm_ngram_options *o, struct llm_ngram_plan *p, struct llm_err *e) LLM_MUST_CHECK;
int llm_ngram_plan_print(const struct llm_ngram_plan *p, enum llm_table_form form, struct llm_err *e) LLM_MUST_CHECK;

#endif
