/* Normalizers of tokenizer.json, one row each, that work on whole texts. (A byte-level tokenizer with none or NFC alone does not come here:
 * normalise.h has the streaming form.) */
#ifndef LLM_TOKEN_NORM_H
#define LLM_TOKEN_NORM_H

#include <stdbool.h>
#include <stdint.h>
#include "base/json.h"
#include "token/split/split.h"
#include "token/trie.h"

struct llm_norm_row;
/* One normalizer with its parameters. */
struct llm_norm {
    const struct llm_norm_row *row;
    unsigned flags;           /* LLM_NORM_… */
    struct llm_buf text;      /* what is prepended, or looked for when there is no regex */
    struct llm_buf content;   /* what is put instead */
    struct llm_regex *regex;
    struct llm_buf map;       /* SentencePiece's compiled rules (charsmap.h); empty: none */
};
enum {
    LLM_NORM_LEFT = 1, LLM_NORM_RIGHT = 2,                                               /* Strip */
    LLM_NORM_CLEAN = 1, LLM_NORM_CHINESE = 2, LLM_NORM_ACCENTS = 4, LLM_NORM_LOWER = 8,   /* BertNormalizer; LOWER: SigLIP */
    LLM_NORM_DUMMY = 1, LLM_NORM_EXTRA = 2, LLM_NORM_ESCAPE = 4, LLM_NORM_AFTER = 8       /* SentencePiece; AFTER: as if text came before */
};

/* Where the text stands, and what belongs to the caller's thread. */
struct llm_norm_place {
    bool first, last;                /* it begins, ends a segment: the text between two added tokens */
    bool begins;                     /* it begins the whole text */
    const struct llm_trie *kept;     /* SentencePiece: symbols that stay as they are */
    struct llm_regex_state **regex;  /* made when first needed; the caller destroys it */
    size_t limit;                    /* bytes that `out` may have in all; what would exceed them is refused (llm_norm_check) */
    bool *beheaded;                  /* set where the text's first character goes: Metaspace's `first` then begins nothing; NULL: not needed */
};
/* The most bytes that normalisers may make of n. Of Unicode's forms and of real rules no character becomes more than 18. */
#define LLM_NORM_GROWTH 32
#define LLM_NORM_MARGIN 1024
static inline size_t llm_norm_limit(size_t n)
{
    return n > (SIZE_MAX - LLM_NORM_MARGIN) / LLM_NORM_GROWTH ? SIZE_MAX : n * LLM_NORM_GROWTH + LLM_NORM_MARGIN;
}

struct llm_norm_row {
    const char *name; /* "Lowercase" */
    /* Parameters from tokenizer.json; NULL: it has none. */
    int (*read)(struct llm_norm *s, const json_t *o, struct llm_err *e);
    /* Appends the normal form of the n bytes of UTF-8 (SentencePiece: of any kind) at p to `out`. */
    int (*run)(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e);
};
/* To add one: its file, its row here and in norm.c. */
extern const struct llm_norm_row llm_norm_nfc, llm_norm_nfd, llm_norm_nfkc, llm_norm_nfkd, llm_norm_lowercase, llm_norm_strip,
    llm_norm_strip_accents, llm_norm_replace, llm_norm_prepend, llm_norm_nmt, llm_norm_bert, llm_norm_precompiled, llm_norm_sentencepiece,
    llm_norm_siglip;
extern const struct llm_norm_row *const llm_norm_rows[]; /* NULL-terminated */

/* By its type; unknown ones are refused by name. */
int llm_norm_init(struct llm_norm *s, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
void llm_norm_release(struct llm_norm *s);
/* 0, or -1 (EX_DATAERR) when `out` has more bytes than place->limit. Normalisers whose rules are data call it as they write. */
int llm_norm_check(const struct llm_norm *s, const struct llm_norm_place *at, const struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;
/* Whether the text may be cut at a space after a letter or ASCII: normalising both parts then equals normalising the whole. */
bool llm_norm_cuts(const struct llm_norm *s);
/* Whether it takes bytes that are no UTF-8 too, and keeps them. */
bool llm_norm_takes_bytes(const struct llm_norm *s);
/* Does no space come out of it? */
bool llm_norm_no_spaces(const struct llm_norm *s);

/* Base64 text to bytes appended to `out`; what is none is EX_DATAERR. */
int llm_base64_decode(const char *text, size_t n, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;
int llm_base64_encode(const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;

#endif
