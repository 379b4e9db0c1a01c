/* The model "wordpiece": a word is the longest token that begins it, then the longest that goes on, and so forth; unknown, or its
 * bytes, when that ends. */
#include "token/internal.h"
#include "token/unicode.h"

static int encode_new(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    size_t start = en->n_ids, chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += (p[i] & 0xC0) != 0x80;
    for (size_t at = 0, len; at < n; at += len) {
        int32_t id;
        len = (int64_t)chars > t->max_word ? 0 : llm_trie_longest(&t->trie, at ? LLM_TRIE_SECOND : 0, p + at, n - at, &id);
        if (!len) {
            en->n_ids = start;
            return llm_put_unknown(en, p, n, e);
        }
        en->ids[en->n_ids++] = id;
    }
    return 0;
}

static int encode(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    size_t start = en->n_ids;
    if (llm_word_encode(en, p, n, e) < 0)
        return -1;
    if (en->t->fuse_unknown && en->n_ids == start + 1 && en->ids[start] == en->t->unknown) {
        en->n_ids -= en->unknown_end == start;
        en->unknown_end = en->n_ids;
    }
    return 0;
}

const struct llm_model_row llm_model_wordpiece = {"wordpiece", encode, encode_new, NULL, NULL, false, false};
