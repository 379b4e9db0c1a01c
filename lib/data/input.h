/* What a program reads to score or to calibrate: a text, or a token stream (formats/tok.md), whichever the file holds. */
#ifndef LLM_DATA_INPUT_H
#define LLM_DATA_INPUT_H

#include "data/tokens.h"
#include "model/model.h"

struct llm_input {
    int32_t *ids;              /* owned; each is below the model's vocab_size */
    uint8_t *mask;             /* owned: the stream's loss mask, an element for each id; NULL for a text */
    size_t n;                  /* elements of ids */
    struct llm_tokens *stream; /* owned: the stream, for its documents' ends; NULL for a text */
};

/* Reads all of `path` ("-": standard input). A text is encoded by the model's tokenizer, with the special tokens that begin and end a text; a stream
 * must have been made with that tokenizer. The caller zero-initialises `in` and releases it also after a failure.
 * EX_DATAERR: the file is of another kind, a text comes without a tokenizer, or an id is not below vocab_size. 0 or -1; `e` names the file. */
int llm_input_read(struct llm_input *in, const char *path, const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
void llm_input_release(struct llm_input *in);

#endif
