/* "Did you mean": the words of a list that are nearest to a word that is not in it. */
#ifndef LLM_BASE_SUGGEST_H
#define LLM_BASE_SUGGEST_H

#include <stddef.h>

enum { LLM_SUGGEST_MAX = 3 };

/* Usage: llm_suggest_begin, llm_suggest_add for each known word, llm_suggest_text. */
struct llm_suggest {
    const char *word;                      /* what was written; borrowed */
    int distance;                          /* of `nearest`; words farther away are not suggested */
    const char *nearest[LLM_SUGGEST_MAX];  /* borrowed, in the order in which they were added */
    size_t n;
    char text[200];
};
void llm_suggest_begin(struct llm_suggest *s, const char *word);
/* A word is near if few letters are wrong (llm_edit_distance), if only separators differ, or if one letter is missing and others changed places. */
/* `known` is compared with the word; `shown` is what to suggest if it is near (the option that an alias stands for). */
void llm_suggest_add(struct llm_suggest *s, const char *known, const char *shown);
/* " (did you mean PREFIXa or PREFIXb?)", or "" if nothing is near. Valid as long as `s`. */
const char *llm_suggest_text(struct llm_suggest *s, const char *prefix);

/* Edit distance of two words: insertions, deletions, substitutions and exchanges of neighbours count 1 each (optimal string alignment). Letters are
 * compared without case, '_' equals '-'. Words of more than 63 bytes have an infinite distance (INT_MAX). */
int llm_edit_distance(const char *a, const char *b);

#endif
