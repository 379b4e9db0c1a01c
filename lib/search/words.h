/* Searches by words: BM25 over the texts of an index. */
#ifndef LLM_SEARCH_WORDS_H
#define LLM_SEARCH_WORDS_H

#include "search/search.h"

/* Makes the words and postings of x->texts. A word is a run of letters, marks and digits in lower case; of writing without spaces (from U+2E80 on)
 * each character is a word. 0 or -1. */
int llm_words_make(struct llm_index *x, struct llm_err *e) LLM_MUST_CHECK;
/* The k best rows for the words of a text, among those that `s` allows: BM25 with k1 = 1.2, b = .75 and idf = ln(1 + (N − df + .5) / (df + .5)); a
 * word that stands twice in the query counts twice. hits [k]; rows with none of the words are no hits. Returns their number, or -1. */
int64_t llm_words_search(const struct llm_index *x, const char *text, size_t n, const struct llm_lookup *s, struct llm_hit *hits, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
