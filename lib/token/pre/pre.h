/* Pre-tokenizers of tokenizer.json, one row each, that cut whole texts into the pieces that the model sees, and may change them.
 * (A byte-level tokenizer whose splits are all of one kind does not come here: split/split.h has the streaming form.) */
#ifndef LLM_TOKEN_PRE_H
#define LLM_TOKEN_PRE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/json.h"
#include "token/split/split.h"

/* What becomes of the matches of a pattern. */
enum llm_behaviour { LLM_ISOLATED, LLM_REMOVED, LLM_CONTIGUOUS, LLM_WITH_PREVIOUS, LLM_WITH_NEXT };
enum llm_prepend { LLM_PREPEND_ALWAYS, LLM_PREPEND_FIRST, LLM_PREPEND_NEVER };

struct llm_encoder;
struct llm_pre_row;
/* One pre-tokenizer with its parameters. */
struct llm_pre {
    const struct llm_pre_row *row;
    struct llm_split split;         /* Split, ByteLevel: a pattern that is no plain string */
    struct llm_buf text;            /* Split: the plain string; Metaspace: the replacement */
    unsigned chars;                 /* … or characters of any of these classes (LLM_PRE_…) */
    enum llm_behaviour behaviour;
    bool invert;
    enum llm_prepend prepend;       /* Metaspace, ByteLevel (a space): ALWAYS or NEVER */
    bool cut;                       /* Metaspace, ByteLevel: it also splits */
};
struct llm_pre_row {
    const char *name; /* "Whitespace" */
    int (*read)(struct llm_pre *s, const json_t *o, struct llm_err *e);
    /* Cuts the n > 0 bytes at p, gives each piece to llm_pre_run(en, stage + 1, …). `first`: the document begins here. */
    int (*run)(struct llm_encoder *en, int stage, const unsigned char *p, size_t n, bool first, struct llm_err *e);
};
/* To add one: its row here and in pre.c. */
extern const struct llm_pre_row llm_pre_split, llm_pre_byte_level, llm_pre_metaspace, llm_pre_whitespace, llm_pre_whitespace_split, llm_pre_digits,
    llm_pre_punctuation, llm_pre_bert, llm_pre_delimiter;

int llm_pre_init(struct llm_pre *s, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
void llm_pre_release(struct llm_pre *s);
/* Through the pre-tokenizers from `stage` on to the model; ids go to en->ids. */
int llm_pre_run(struct llm_encoder *en, int stage, const unsigned char *p, size_t n, bool first, struct llm_err *e) LLM_MUST_CHECK;
/* Is white space gone afterwards? */
bool llm_pre_drops_space(const struct llm_pre *s);
/* Is a cut before a space that follows something else one that it makes too, or that changes nothing? `spaces`: there may be spaces. */
bool llm_pre_cuts(const struct llm_pre *s, bool spaces);

/* ---- classes of characters (chars.c) ---- */
enum { LLM_PRE_SPACE = 1,   /* White_Space */
       LLM_PRE_PUNCT = 2,   /* ASCII punctuation and symbols, \p{P} */
       LLM_PRE_WORD = 4,    /* \w */
       LLM_PRE_NUMERIC = 8 }; /* \p{N} */
unsigned llm_pre_class(uint32_t cp);

#endif
