/* Training tokenizers from text: documents go in as a stream, a tokenizer comes out. The result does not depend on the number of threads.
 * Memory is bounded by the distinct words of the text. */
#ifndef LLM_TOKEN_TRAIN_H
#define LLM_TOKEN_TRAIN_H

#include "base/cli.h"
#include "token/tokenizer.h"

enum llm_train_model { LLM_TRAIN_BPE, LLM_TRAIN_BYTE, LLM_TRAIN_CHAR, LLM_TRAIN_UNIGRAM, LLM_TRAIN_WORDPIECE };
const char *llm_train_model_word(int i); /* the name of a model by index, NULL after the last */
/* Which of the pairs that are equally frequent is merged first. */
enum llm_train_ties {
    LLM_TIES_ID,     /* the lower ids, left then right: Hugging Face's trainer */
    LLM_TIES_LEXICAL /* the greater bytes, left then right: CS336's reference */
};

struct llm_train_options {
    enum llm_train_model model;
    int64_t vocab_size;      /* everything counted: specials, alphabet, merges; 0 for "char": no limit */
    const char *pattern;     /* as llm_split_init takes it */
    int64_t min_frequency;   /* pairs (characters) rarer than this are left alone */
    enum llm_train_ties ties;
    bool cased;              /* "wordpiece": letters keep their case and accents */
    bool seen_bytes_only;    /* the alphabet is the bytes of the text, not all 256 */
    const struct llm_strs *specials; /* ids 0, 1, … of "bpe"; from 3 on of "unigram", from 5 on of "wordpiece"; the last ids of the others */
};

struct llm_trainer;
struct llm_trainer *llm_trainer_create(const struct llm_train_options *o, struct llm_err *e) LLM_MUST_CHECK;
int llm_trainer_put(struct llm_trainer *r, const char *text, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_encode_stream_label. */
void llm_trainer_label(struct llm_trainer *r, const char *name, const char *what, uint64_t number);
int llm_trainer_end_document(struct llm_trainer *r, struct llm_err *e) LLM_MUST_CHECK;
/* The tokenizer; the trainer is then empty. */
struct llm_tokenizer *llm_trainer_finish(struct llm_trainer *r, struct llm_err *e) LLM_MUST_CHECK;
void llm_trainer_destroy(struct llm_trainer *r);

#endif
