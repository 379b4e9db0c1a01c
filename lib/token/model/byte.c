/* The model "byte": an id for each byte, nothing merged. */
#include "token/internal.h"

static int encode(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    const uint32_t *id = en->t->bpe.byte_id;
    int32_t *out = en->ids + en->n_ids;
    for (size_t i = 0; i < n; i++) {
        if (id[p[i]] == LLM_BPE_NONE)
            return llm_fail(e, EX_DATAERR, "byte 0x%02X has no token in this vocabulary", p[i]);
        out[i] = (int32_t)id[p[i]];
    }
    en->n_ids += n;
    return 0;
}

const struct llm_model_row llm_model_byte = {"byte", encode, NULL, NULL, NULL, true, false};
