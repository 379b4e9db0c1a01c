/* The words of an ARPA file: a table from their texts to their numbers. */
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "model/weights/ngram/arpa.h"

static size_t slot_of(const struct llm_arpa *a, const char *word, size_t n)
{
    size_t at = (size_t)llm_xxh64(word, n, 0) & (a->n_slots - 1);
    while (a->slots[at] != 0 && strcmp(a->words.p + a->word[a->slots[at] - 1], word) != 0) at = (at + 1) & (a->n_slots - 1);
    return at;
}

static int grow_slots(struct llm_arpa *a, struct llm_err *e)
{
    size_t n = a->n_slots ? a->n_slots * 2 : 1024;
    uint32_t *slots = llm_calloc(n, sizeof *slots, "words", e);
    if (!slots) return -1;
    free(a->slots);
    a->slots = slots;
    a->n_slots = n;
    for (size_t i = 0; i < a->n_words; i++) {
        const char *word = a->words.p + a->word[i];
        a->slots[slot_of(a, word, strlen(word))] = (uint32_t)i + 1;
    }
    return 0;
}

int64_t llm_arpa_word(const struct llm_arpa *a, const char *word)
{
    return a->n_slots == 0 ? -1 : (int64_t)a->slots[slot_of(a, word, strlen(word))] - 1;
}

int llm_arpa_add_word(struct llm_arpa *a, const char *word, float log_prob, float backoff, struct llm_err *e)
{
    size_t n = strlen(word);
    if (a->n_words >= 1 << 24) return llm_fail(e, EX_DATAERR, "expected at most %d words", 1 << 24);
    if (2 * (a->n_words + 1) > a->n_slots && grow_slots(a, e) < 0) return -1;
    size_t slot = slot_of(a, word, n);
    if (a->slots[slot]) return llm_fail(e, EX_DATAERR, "the word '%.60s' is listed twice", word);
    if (llm_grow((void **)&a->word, &a->room, a->n_words + 1, sizeof *a->word, e) < 0
        || llm_grow((void **)&a->unigram, &a->unigram_room, a->n_words + 2, sizeof *a->unigram, e) < 0
        || llm_grow((void **)&a->backoff, &a->backoff_room, a->n_words + 2, sizeof *a->backoff, e) < 0) return -1;
    a->word[a->n_words] = a->words.n;
    a->unigram[a->n_words] = log_prob;
    a->backoff[a->n_words] = backoff;
    if (llm_buf_put(&a->words, word, n + 1, e) < 0) return -1;
    a->slots[slot] = (uint32_t)++a->n_words;
    return 0;
}
