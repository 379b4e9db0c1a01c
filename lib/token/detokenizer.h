/* Decoders of tokenizer.json: what becomes of the texts of ids, one step after another, one row each. */
#ifndef LLM_TOKEN_DETOKENIZER_H
#define LLM_TOKEN_DETOKENIZER_H

#include <stdbool.h>
#include "base/json.h"

struct llm_decode_row;
/* One decoder with its parameters. */
struct llm_decode_step {
    const struct llm_decode_row *row;
    struct llm_buf text;     /* what is looked for, or stripped; a prefix; SentencePiece: how unknown tokens show */
    struct llm_buf content;  /* Replace: what is put instead */
    bool first;              /* Metaspace, SentencePiece: the first token loses its "▁" */
    bool every;              /* SentencePiece: … and so do those after it while there is no text */
    bool cleanup;            /* WordPiece */
    int64_t start, stop;     /* Strip: at most so many */
};
struct llm_detokenizer;
struct llm_decode_row {
    const char *name;
    int (*read)(struct llm_decode_step *s, const json_t *o, struct llm_err *e);
    /* A token's text; its result goes to step i + 1. `id`: -1 when the text is no longer that of one id. */
    int (*put)(struct llm_detokenizer *d, int i, int32_t id, const char *p, size_t n, struct llm_err *e);
    /* The text ends: what is held back; NULL: nothing is. */
    int (*end)(struct llm_detokenizer *d, int i, struct llm_err *e);
};
int llm_decode_step_init(struct llm_decode_step *s, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
void llm_decode_step_release(struct llm_decode_step *s);
bool llm_decode_step_is(const struct llm_decode_step *s, const char *name);

/* The byte that "<0x0A>" stands for, or -1. */
int llm_byte_piece(const unsigned char *p, size_t n);
struct llm_tokenizer;
/* What an id puts into the middle of a text; stays with `t`. NULL: memory is short. */
const char *llm_detokenizer_show(const struct llm_tokenizer *t, int32_t id, size_t *n);

#endif
