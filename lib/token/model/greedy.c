/* The model "greedy": at each place the longest token that the bytes there begin with, as RWKV's "World" tokenizer has it. */
#include "token/internal.h"

/* Ids of p[0, *used): all of it when it is the last, else as far as later bytes cannot make a token longer. */
static int encode_front(struct llm_encoder *en, const unsigned char *p, size_t n, bool last, size_t *used, struct llm_err *e)
{
    const struct llm_trie *trie = &en->t->trie;
    size_t at = 0;
    while (at < n) {
        size_t len = 0, i = at;
        int32_t id = -1, value;
        uint32_t node = 0;
        for (; i < n && (node = llm_trie_next(trie, node, p[i], &value)) != LLM_TRIE_NONE; i++)
            if (value >= 0) {
                id = value;
                len = i + 1 - at;
            }
        if (i == n && !last)
            break;
        if (id < 0)
            return llm_fail(e, EX_DATAERR, "byte 0x%02X has no token in this vocabulary", p[at]);
        en->ids[en->n_ids++] = id;
        at += len;
    }
    *used = at;
    return 0;
}

static int encode(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    size_t used;
    return encode_front(en, p, n, true, &used, e);
}

int llm_greedy_prepare(struct llm_tokenizer *t, struct llm_err *e)
{
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        int32_t first = -1;
        const unsigned char *p = llm_model_piece(t, id, &n);
        if (!(t->flags[id] & LLM_TOKEN_MODEL))
            continue;
        if (n == 0)
            return llm_fail(e, EX_DATAERR, "token %d: expected at least one byte", id);
        if (llm_trie_put(&t->trie, 0, p, n, id, e) < 0)
            return -1;
        if (llm_trie_longest(&t->trie, 0, p, n, &first) == n && first != id)
            return llm_fail(e, EX_DATAERR, "tokens %d and %d have the same bytes", first, id);
    }
    return 0;
}

const struct llm_model_row llm_model_greedy = {"greedy", encode, NULL, NULL, encode_front, false, false};
