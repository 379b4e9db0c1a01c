/* Splitting text into the pieces that a model encodes one by one. A known pattern is a hand-written splitter, one file and one row; any
 * other pattern runs through PCRE2. Both never look beyond what is there: while more text may come, a piece is given only when no
 * continuation could change it. */
#ifndef LLM_TOKEN_SPLIT_H
#define LLM_TOKEN_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"
#include "cpu/kernels/bytes.h"

/* Length of the first piece of [p, end), p < end. `last`: the text ends at `end`; otherwise 0 means that more text is needed. */
typedef size_t llm_split_next(const unsigned char *p, const unsigned char *end, bool last);

/* Many pieces at once, in ASCII: of [p, p + n), n ≤ 64, with their classes in `m`: bit i > 0 says that a piece ends and another begins at p + i,
 * whatever follows. Not all need be there: where there are none, llm_split_next says more. */
typedef uint64_t llm_split_window(const struct llm_byte_masks *m, const unsigned char *p, int n);

struct llm_split_row {
    const char *name;             /* "gpt2": what --pattern takes and identities hold */
    const char *patterns[3];      /* spellings of the same pattern in tokenizer.json files; the first is the one we write */
    llm_split_next *next;
    llm_split_window *window;
};
/* NULL-terminated by name. To add one: a file with its row, and its address in split.c. */
extern const struct llm_split_row *const llm_split_rows[];
/* Name of row i, NULL after the last (struct llm_words). */
const char *llm_split_word(int i);
extern const struct llm_split_row llm_split_gpt2, llm_split_llama3, llm_split_cl100k, llm_split_qwen2, llm_split_o200k;

/* A splitter: a row, or a compiled pattern. Immutable; shared by threads. */
struct llm_split {
    const struct llm_split_row *row; /* NULL: regex */
    struct llm_regex *regex;
    char *pattern;                   /* as written by the tokenizer's author */
};
/* `pattern`: a row's name, one of its spellings, or any PCRE2 pattern. A pattern that does not compile is EX_DATAERR. */
int llm_split_init(struct llm_split *s, const char *pattern, struct llm_err *e) LLM_MUST_CHECK;
void llm_split_release(struct llm_split *s);

/* ---- patterns that no row knows (regex.c) ---- */
struct llm_regex;
/* `what` (kept): what the pattern is called in messages, "split pattern". */
struct llm_regex *llm_regex_create(const char *pattern, const char *what, struct llm_err *e) LLM_MUST_CHECK;
void llm_regex_destroy(struct llm_regex *r);
size_t llm_regex_lookbehind(const struct llm_regex *r); /* bytes before a piece that its match may look at */
struct llm_regex_state; /* a thread's working memory */
struct llm_regex_state *llm_regex_state_create(const struct llm_regex *r, struct llm_err *e) LLM_MUST_CHECK;
void llm_regex_state_destroy(struct llm_regex_state *m);
/* The next piece at [at, n) of text that begins at `text` (bytes before `at` serve look-behind): its length; 0: more text is needed;
 * -1: the pattern gave up (EX_DATAERR). Text between matches is a piece of its own. */
long llm_regex_next(struct llm_regex_state *m, const unsigned char *text, size_t at, size_t n, bool last, struct llm_err *e);
/* The first match at or after `at` in n bytes of valid UTF-8. 1: [*from, *to) of `text`; 0: none; -1: the pattern gave up (EX_DATAERR). */
int llm_regex_find(struct llm_regex_state *m, const unsigned char *text, size_t at, size_t n, size_t *from, size_t *to, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
