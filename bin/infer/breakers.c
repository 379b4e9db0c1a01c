/* What ends a repetition of DRY, of the option and of lines. */
#include <string.h>
#include "base/buf.h"
#include "bin/infer/infer.h"

int breakers_mark(const struct session *s, const char *const *texts, size_t n_texts, uint8_t **marks, struct llm_err *e)
{
    const struct llm_tokenizer *t = s->model->tokenizer;
    int64_t vocab = s->model->config.vocab_size, n_ids = t ? llm_tokenizer_vocab_size(t) : 0;
    *marks = NULL;
    if (n_texts == 0 || (n_texts == 1 && strcmp(texts[0], "none") == 0)) return 0;
    *marks = llm_calloc((size_t)vocab, 1, "sequence breakers", e);
    if (!*marks) return -1;
    for (int32_t id = 0; id < vocab && id < n_ids; id++) {
        size_t n = 0;
        const char *piece = llm_tokenizer_piece(t, id, &n);
        for (size_t i = 0; piece && i < n_texts; i++) (*marks)[id] |= memmem(piece, n, texts[i], strlen(texts[i])) != NULL;
    }
    return 0;
}
