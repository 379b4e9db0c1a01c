/* Languages of bytes as terms: regular expressions with intersection and complement (Brzozowski 1964), rules that may refer to themselves, and terms
 * that are made when they are first read. Equal terms are one number (hash consing), so a term is also a state of the automaton that reads its
 * language: the state after a byte is the term's derivative, kept in a row of 256 when it was first needed.
 *
 * A term with references is read from the left: its derivative is again the rest of a lexeme followed by what comes after it, which is the stack of a
 * parser. Alternatives that begin with the same term are joined, so that ambiguous grammars need linear memory. Left recursion is refused by whoever
 * makes the rules. Intersection and complement are of regular terms only, as their emptiness must be decided. */
#ifndef LLM_INFER_CONSTRAIN_TERM_H
#define LLM_INFER_CONSTRAIN_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

typedef uint32_t llm_term;
enum { LLM_TERM_NOTHING, LLM_TERM_EMPTY_TEXT, LLM_TERM_ANYTHING }; /* no text; the empty text alone; every text */
#define LLM_REPEAT_ALWAYS UINT32_MAX

struct llm_byte_set { uint64_t w[4]; };
struct llm_terms; /* opaque; one thread at a time */

/* `max_terms` bounds the memory: about 100 bytes a term. NULL: no memory. */
struct llm_terms *llm_terms_create(uint32_t max_terms, struct llm_err *e) LLM_MUST_CHECK;
void llm_terms_destroy(struct llm_terms *t);
/* After a failure (no memory, too many terms, rules nested too deeply) terms are wrong: every caller that returns to its own caller asks. -1: failed,
 * `e` says how. */
int llm_terms_failed(const struct llm_terms *t, struct llm_err *e) LLM_MUST_CHECK;
/* Notes a failure of who makes terms. The first one stays. */
void llm_terms_fail(struct llm_terms *t, const struct llm_err *e);

llm_term llm_term_set(struct llm_terms *t, const struct llm_byte_set *s);
llm_term llm_term_byte(struct llm_terms *t, unsigned char byte);
llm_term llm_term_range(struct llm_terms *t, unsigned char low, unsigned char high);
llm_term llm_term_text(struct llm_terms *t, const char *p, size_t n);
llm_term llm_term_join(struct llm_terms *t, llm_term first, llm_term rest);
llm_term llm_term_either(struct llm_terms *t, const llm_term *v, size_t n);
llm_term llm_term_or(struct llm_terms *t, llm_term a, llm_term b);
/* Of regular terms: */
llm_term llm_term_and(struct llm_terms *t, llm_term a, llm_term b);
llm_term llm_term_not(struct llm_terms *t, llm_term a);
/* At least min, at most max (LLM_REPEAT_ALWAYS: any number) texts of `a` after one another. */
llm_term llm_term_repeat(struct llm_terms *t, llm_term a, uint32_t min, uint32_t max);
/* The same language, kept apart from what follows it: what a state inside of it allows is remembered without regard to its surroundings. */
llm_term llm_term_lexeme(struct llm_terms *t, llm_term a);
/* A term that `expand(arg, x, y)` makes when it is first read. `nullable`: whether the empty text belongs to it. */
typedef llm_term llm_term_expand(void *arg, uint32_t x, uint32_t y);
llm_term llm_term_lazy(struct llm_terms *t, uint32_t kind, uint32_t x, uint32_t y, bool nullable);
/* Kinds are small numbers, registered once. */
uint32_t llm_terms_kind(struct llm_terms *t, llm_term_expand *expand, void *arg);
/* A deterministic automaton over bytes: x names it, (y, z) is its state. `step`: false: no text from here on. */
struct llm_term_machine {
    bool (*step)(void *arg, uint32_t x, uint32_t *y, uint32_t *z, unsigned char byte);
    bool (*accepts)(void *arg, uint32_t x, uint32_t y, uint32_t z);
    void *arg;
};
uint32_t llm_terms_machine(struct llm_terms *t, const struct llm_term_machine *m);
llm_term llm_term_machine(struct llm_terms *t, uint32_t machine, uint32_t x, uint32_t y, uint32_t z);

/* Whether the empty text belongs to it. */
bool llm_term_nullable(const struct llm_terms *t, llm_term a);
/* Whether any text belongs to it. Lazy terms are taken to have one: who makes them sees to it. */
bool llm_term_live(struct llm_terms *t, llm_term a);
/* What may follow after `byte`; LLM_TERM_NOTHING if no text does. */
llm_term llm_term_after(struct llm_terms *t, llm_term a, unsigned char byte);
/* The row of 256 such terms, valid until llm_terms_trim. */
const llm_term *llm_term_row(struct llm_terms *t, llm_term a);
/* How many there are. */
uint32_t llm_terms_count(const struct llm_terms *t);
/* Bounds the memory of rows: called where no row is in use. Another text may begin: that one had rules that are nested too deeply is no failure of
 * others. */
void llm_terms_trim(struct llm_terms *t);
/* If the term is a lexeme or begins with one, `*first` and what follows it. Else the term itself and the empty text. */
void llm_term_split(const struct llm_terms *t, llm_term a, llm_term *first, llm_term *rest);
bool llm_term_is_lexeme(const struct llm_terms *t, llm_term a);
/* Alternatives of which the term consists: [*n]; the term itself if it has none. Valid until the next term is made. */
const llm_term *llm_term_members(const struct llm_terms *t, const llm_term *a, size_t *n);

#endif
