/* The text of a growing completion. Bytes are held back while they are an incomplete UTF-8 character or may begin a stop string. */
#ifndef LLM_INFER_TEXT_H
#define LLM_INFER_TEXT_H

#include <stdbool.h>
#include "base/buf.h"
#include "model/model.h"

struct llm_text {
    struct llm_buf bytes;      /* everything so far; ends before the stop string once one has come */
    size_t shown;              /* bytes given out by llm_text_ready */
    const char *const *stops;  /* borrowed; none is empty */
    size_t n_stops;
    bool stopped;
};
/* Adds a token's bytes. */
int llm_text_put(struct llm_text *t, const char *bytes, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Adds the text of a token; special tokens have none, nor has any token of a model without a tokenizer. */
int llm_text_put_token(struct llm_text *t, const struct llm_model *m, int32_t id, struct llm_err *e) LLM_MUST_CHECK;
/* The number of bytes from t->bytes.p + t->shown that may be shown now; the caller adds what it shows to t->shown. `last`: the completion has ended,
 * so nothing is held back. */
size_t llm_text_ready(const struct llm_text *t, bool last);
void llm_text_release(struct llm_text *t);

#endif
