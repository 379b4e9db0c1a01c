/* The n-gram baseline (--ngram-bar): the validation loss that counting reaches and a network has to beat, and the time that counting will take. */
#ifndef LLM_TRAIN_NGRAM_BAR_H
#define LLM_TRAIN_NGRAM_BAR_H

#include "io/table.h"
#include "measure/quality.h"
#include "train/ngram.h"
#include "train/trainer.h"

/* The training tokens of `d`, and the tokenizer's beginning and end of text (NULL: no tokenizer). */
struct llm_ngram_source llm_ngram_source_of(const struct llm_train_data *d, const struct llm_tokenizer *t, int64_t vocab_size);
/* Scores the validation data of `d`, document by document (measure/quality.h). 0, 1 if a signal was caught, -1. */
int llm_ngram_validate(struct llm_model *m, const struct llm_train_data *d, bool cross_document, struct llm_quality *q, struct llm_err *e)
    LLM_MUST_CHECK;

struct llm_ngram_bar { int order; double nats, bits_per_byte; };
/* If o->order is 0, tries orders 1, 2, … until one is no better than the one before. The tokenizer is borrowed. 0, 1 if a signal was caught, -1. */
int llm_ngram_bar(const struct llm_train_data *d, struct llm_tokenizer *t, int64_t vocab_size, const struct llm_ngram_options *o,
                  struct llm_ngram_bar *best, struct llm_err *e) LLM_MUST_CHECK;

struct llm_ngram_plan { double tokens, ngrams, model_bytes, memory_bytes, file_bytes, seconds; };
/* Counts the first tokens to measure the time, and estimates the number of distinct n-grams of all tokens. */
int llm_ngram_plan(const struct llm_ngram_source *s, const struct llm_ngram_options *o, struct llm_ngram_plan *p, struct llm_err *e) LLM_MUST_CHECK;
int llm_ngram_plan_print(const struct llm_ngram_plan *p, enum llm_table_form form, struct llm_err *e) LLM_MUST_CHECK;

#endif
