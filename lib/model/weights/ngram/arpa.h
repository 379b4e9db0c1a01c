/* An ARPA file in memory while tables are made from it. */
#ifndef LLM_MODEL_NGRAM_ARPA_H
#define LLM_MODEL_NGRAM_ARPA_H

#include "model/weights/ngram.h"
#include "model/weights/ngram/records.h"

struct llm_arpa {
    int order;
    uint64_t count[LLM_NGRAM_MAX_ORDER]; /* [k]: n-grams of k + 1 words, as the file's header says */
    char section[64];                    /* the line that began the current section */
    struct llm_buf words;                /* NUL-terminated, by id */
    size_t *word, n_words, room;         /* [n_words]: where each begins */
    uint32_t *slots;                     /* [n_slots], a power of 2: id + 1 by hash; 0: free */
    size_t n_slots;
    float *unigram, *backoff;            /* [n_words + 1]: natural logarithms */
    size_t unigram_room, backoff_room;
    int bits;                            /* of a word in keys */
    struct llm_ngram_record *records[LLM_NGRAM_MAX_ORDER]; /* [k]: n-grams of k + 1 words: context newest first, last word; the two logarithms */
    size_t n_records[LLM_NGRAM_MAX_ORDER], records_room[LLM_NGRAM_MAX_ORDER];
};
/* The id of a word, or -1. */
int64_t llm_arpa_word(const struct llm_arpa *a, const char *word);
int llm_arpa_add_word(struct llm_arpa *a, const char *word, float log_prob, float backoff, struct llm_err *e) LLM_MUST_CHECK;
/* To be called after the last unigram: fixes the number of words, from which the width of keys follows. 0 or -1. */
int llm_arpa_fix_words(struct llm_arpa *a, struct llm_err *e) LLM_MUST_CHECK;
/* Adds the n-gram of the words ids[k + 1], in the order of the text. 0 or -1. */
int llm_arpa_add_ngram(struct llm_arpa *a, int k, const uint32_t *ids, float log_prob, float backoff, struct llm_err *e) LLM_MUST_CHECK;
struct llm_model *llm_arpa_model(struct llm_arpa *a, struct llm_err *e) LLM_MUST_CHECK;
void llm_arpa_release(struct llm_arpa *a);

#endif
