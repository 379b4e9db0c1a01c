/* The model "bpe" over characters, as SentencePiece trains it: symbols are characters, user-defined symbols and bytes of unknown characters. */
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

static int encode_new(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    size_t start = en->n_ids;
    bool after_unknown = false;
    if (t->ignore_merges) {
        int32_t id = llm_tokenizer_whole(t, p, n);
        if (id >= 0) {
            en->ids[en->n_ids++] = id;
            return 0;
        }
    }
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        int32_t id;
        size_t len = llm_trie_longest(&t->kept, 0, p + at, n - at, &id);
        if (!len) {
            len = (size_t)llm_utf8_next(p + at, n - at, &cp);
            id = llm_char_token(t, cp);
        }
        if (id >= 0) {
            en->ids[en->n_ids++] = id;
            after_unknown = false;
        } else {
            size_t before = en->n_ids;
            if (llm_put_unknown(en, p + at, len, e) < 0)
                return -1;
            bool unknown = en->n_ids == before + 1 && en->ids[before] == t->unknown;
            if (unknown && after_unknown && t->fuse_unknown)
                en->n_ids--;
            after_unknown = unknown;
        }
        at += len;
    }
    size_t count = en->n_ids - start;
    if (llm_bpe_merge_ids(&t->bpe, &en->work, en->ids + start, &count, NULL, e) < 0)
        return -1;
    en->n_ids = start + count;
    return 0;
}

int llm_bpe_chars_derive(const struct llm_tokenizer *t, struct llm_bpe_work *w, const unsigned char *p, size_t n, int32_t *ids, size_t *n_ids,
                         struct llm_bpe_merge *last, struct llm_err *e)
{
    *n_ids = 0;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        int len = llm_utf8_next(p + at, n - at, &cp);
        int32_t id = len > 0 ? llm_char_token(t, cp) : -1;
        if (id < 0)
            return llm_fail(e, EX_DATAERR, "a character has no token");
        ids[(*n_ids)++] = id;
        at += (size_t)len;
    }
    return llm_bpe_merge_ids(&t->bpe, w, ids, n_ids, last, e);
}

/* Words, each of which begins with "▁", are encoded one by one where no token goes across: most are known already. */
static int encode(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    size_t from = 0;
    for (size_t at = 1; en->t->words && at + 3 <= n; at++) {
        if (p[at] != 0xE2 || p[at + 1] != 0x96 || p[at + 2] != 0x81 || (at >= 3 && memcmp(p + at - 3, p + at, 3) == 0))
            continue;
        if (llm_word_encode(en, p + from, at - from, e) < 0)
            return -1;
        from = at;
    }
    return llm_word_encode(en, p + from, n - from, e);
}

const struct llm_model_row llm_model_bpe_chars = {"bpe", encode, encode_new, NULL, NULL, false, false};
