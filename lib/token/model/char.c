/* The model "char": an id for each character of the training text. */
#include "token/internal.h"
#include "token/unicode.h"

static int encode(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        int len = llm_utf8_next(p + at, n - at, &cp);
        if (len <= 0)
            return llm_fail(e, EX_DATAERR, "byte 0x%02X is not UTF-8, and a character vocabulary knows only characters", p[at]);
        int32_t id = llm_char_token(en->t, cp, false);
        if (id < 0)
            id = en->t->unknown;
        if (id < 0)
            return llm_fail(e, EX_DATAERR, "character U+%04X has no token in this vocabulary", cp);
        en->ids[en->n_ids++] = id;
        at += (size_t)len;
    }
    return 0;
}

const struct llm_model_row llm_model_char = {"char", encode, NULL, NULL, NULL, true, false};
