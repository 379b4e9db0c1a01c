#include "infer/text.h"

#include <string.h>
#include "token/tokenizer.h"

int llm_text_put(struct llm_text *t, const char *bytes, size_t n, struct llm_err *e)
{
    size_t before = t->bytes.n;
    if (n == 0 || t->stopped) return 0;
    if (llm_buf_put(&t->bytes, bytes, n, e) < 0) return -1;
    size_t cut = t->bytes.n;
    for (size_t i = 0; i < t->n_stops; i++) { /* the earliest match wins; one that is new must reach into the new bytes */
        size_t length = strlen(t->stops[i]), from = before > length ? before - length : 0;
        if (from < t->shown) from = t->shown;
        const char *at = memmem(t->bytes.p + from, t->bytes.n - from, t->stops[i], length);
        if (at && (size_t)(at - t->bytes.p) < cut) {
            cut = (size_t)(at - t->bytes.p);
            t->stopped = true;
        }
    }
    t->bytes.n = cut;
    return 0;
}

size_t llm_text_ready(const struct llm_text *t, bool last)
{
    size_t n = t->bytes.n - t->shown;
    const char *p = t->bytes.p + t->shown;
    if (last || t->stopped || n == 0) return n;
    size_t held = 0; /* the longest end of the text that begins a stop string */
    for (size_t i = 0; i < t->n_stops; i++) {
        size_t length = strlen(t->stops[i]), max = length - 1 < n ? length - 1 : n;
        for (size_t k = max; k > held; k--) {
            if (memcmp(p + n - k, t->stops[i], k) == 0) held = k;
        }
    }
    return llm_utf8_complete(p, n - held);
}

void llm_text_release(struct llm_text *t)
{
    llm_buf_release(&t->bytes);
    t->bytes = (struct llm_buf){0};
}

int llm_text_put_token(struct llm_text *t, const struct llm_model *m, int32_t id, struct llm_err *e)
{
    size_t n = 0;
    if (!m->tokenizer || id >= llm_tokenizer_vocab_size(m->tokenizer) || llm_tokenizer_is_special(m->tokenizer, id)) return 0;
    const char *piece = llm_tokenizer_piece(m->tokenizer, id, &n);
    return piece ? llm_text_put(t, piece, n, e) : 0;
}
