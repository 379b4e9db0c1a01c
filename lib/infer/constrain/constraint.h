/* Constraints: which tokens may follow, so that a completion's text belongs to a language. Before each token the bytes that may follow are known (a
 * term, infer/constrain/term.h); a token is allowed if all of its bytes may follow. An end token is allowed exactly where the text is complete.
 *
 * llguidance does the same in Rust; the toolkit is built with a C compiler alone, so this is its own.
 *
 * What is allowed depends on the language and on the text so far alone: not on the batch, threads, or what was asked before. */
#ifndef LLM_INFER_CONSTRAIN_CONSTRAINT_H
#define LLM_INFER_CONSTRAIN_CONSTRAINT_H

#include "infer/constrain/tokens.h"

enum llm_constraint_kind {
    LLM_CONSTRAIN_REGEX,   /* the whole text matches a regular expression */
    LLM_CONSTRAIN_CHOICES, /* the text is one of these, each followed by a zero byte (the last may lack it) */
    LLM_CONSTRAIN_GRAMMAR, /* in GBNF or Lark's form (infer/constrain/grammar.h) */
    LLM_CONSTRAIN_SCHEMA,  /* JSON that a JSON Schema allows (infer/constrain/schema.h) */
    LLM_CONSTRAIN_TOOLS,   /* calls of tools (infer/constrain/tools.h) */
};

/* A language over the tokens of a vocabulary; any number of threads may use one. `v` is borrowed. NULL: `e` says why, with EX_DATAERR if `text`
 * cannot be read or says what is not supported. */
struct llm_constraint;
struct llm_constraint *llm_constraint_create(enum llm_constraint_kind kind, const char *text, size_t n, const struct llm_tokens *v,
                                             struct llm_err *e) LLM_MUST_CHECK;
void llm_constraint_destroy(struct llm_constraint *c);
/* Whether half of the states that a constraint may remember are in use, or it has failed: further texts had better begin with a new one. */
bool llm_constraint_is_half_full(struct llm_constraint *c);

/* A completion's place in the language. It is plain data: a copy is the place to go back to. */
struct llm_matcher {
    struct llm_constraint *constraint; /* NULL: everything is allowed */
    uint32_t state;
    struct llm_end_ids { const int32_t *v; size_t n; } ends[2]; /* tokens that end a completion */
    bool ignore_ends;        /* they are never chosen */
    bool stuck;              /* llm_matcher_apply found no token that may follow */
    bool failed;             /* the constraint has failed at this text: it needs too many states, or what is not supported */
};
/* At the beginning of the text; the other fields of a matcher are the caller's, or zero. */
void llm_matcher_begin(struct llm_matcher *m, struct llm_constraint *c);
/* Whether the token may follow. */
bool llm_matcher_allows(const struct llm_matcher *m, int32_t id);
/* The tokens that may follow, as a set [words of llm_tokens]. 0; -1: memory is short. */
int llm_matcher_mask(const struct llm_matcher *m, uint64_t *mask, struct llm_err *e) LLM_MUST_CHECK;
/* Sets the logits [n] of tokens that may not follow to -infinity. 0; -1: no token may, which is noted, or memory is short. */
int llm_matcher_apply(struct llm_matcher *m, float *logits, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Takes a token. -1: it is not allowed. An end token changes nothing. */
int llm_matcher_take(struct llm_matcher *m, int32_t id, struct llm_err *e) LLM_MUST_CHECK;
/* Takes bytes, which need be no tokens. 1: they are not allowed, and nothing was taken; 0; -1. */
int llm_matcher_take_text(struct llm_matcher *m, const char *text, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Tokens of the bytes that must follow, up to the first place where there is a choice: at most `max`. The vocabulary may have other tokens for the
 * same bytes, among which the model chooses, so that these are guesses: those that the tokenizer makes of the bytes. Returns how many. */
int64_t llm_matcher_guess(const struct llm_matcher *m, int32_t *ids, int64_t max);
/* Whether the text so far is complete; and whether nothing can follow it. */
bool llm_matcher_may_end(const struct llm_matcher *m);
bool llm_matcher_must_end(const struct llm_matcher *m);

#endif
