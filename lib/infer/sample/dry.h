/* What ends a repetition of DRY (dry.c). */
#ifndef LLM_INFER_SAMPLE_DRY_H
#define LLM_INFER_SAMPLE_DRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "token/tokenizer.h"

/* Of a text the first bytes count, and of what follows a token the first tokens, as in llama.cpp: a text of n bytes has n tails. */
enum { LLM_DRY_TEXT = 40, LLM_DRY_TAIL = 20 };
struct llm_dry_tail { int32_t *ids; size_t n; };
struct llm_dry_sequence { int32_t head; size_t tail; }; /* a token, and the index of the tail that follows it */
enum { LLM_DRY_ENDS = 1, LLM_DRY_BEGINS = 2 };          /* a token alone ends a repetition; sequences begin with it */

/* Texts as tokens: those with a whole text in them, and sequences of a token that ends in the beginning of a text and the tokens of the text's
 * rest. */
struct llm_dry_breakers {
    uint8_t *marks;              /* [vocab_size]; NULL: there are none */
    struct llm_dry_sequence *v;  /* [n] by heads */
    size_t n, room;
    struct llm_dry_tail *tails;  /* [n_tails] */
    size_t n_tails, tails_room;
};
/* `b` is zeroed. No texts, or "none" alone: there are none. -1: see `e`; it can be released. */
int llm_dry_breakers_init(struct llm_dry_breakers *b, const struct llm_tokenizer *t, int64_t vocab_size, const char *const *texts, size_t n_texts,
                          struct llm_err *e) LLM_MUST_CHECK;
void llm_dry_breakers_release(struct llm_dry_breakers *b);
/* Whether the token alone ends a repetition. b NULL: none does. */
static inline bool llm_dry_ends(const struct llm_dry_breakers *b, int32_t id) { return b && b->marks && (b->marks[id] & LLM_DRY_ENDS); }
/* How many tokens after ids[at], of n, belong to the longest breaker that begins with it; -1: none does. b NULL: none does. */
int64_t llm_dry_breaker_at(const struct llm_dry_breakers *b, const int32_t *ids, int64_t n, int64_t at);

#endif
