/* What models over characters look up, made once a vocabulary is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

static bool is_user(const struct llm_tokenizer *t, int32_t id)
{
    return t->flags[id] & LLM_TOKEN_USER && !(t->flags[id] & LLM_TOKEN_ADDED);
}

int llm_all_merges(const struct llm_tokenizer *t, const uint32_t *rank, struct llm_bpe_merge **merges, size_t *n, struct llm_err *e)
{
    size_t room = 0;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t len;
        const unsigned char *p = llm_model_piece(t, id, &len);
        if (!(t->flags[id] & LLM_TOKEN_MODEL) || is_user(t, id))
            continue;
        for (size_t cut = 1; cut < len; cut++) {
            int32_t left = llm_tokenizer_whole(t, p, cut), right = left < 0 ? -1 : llm_tokenizer_whole(t, p + cut, len - cut);
            if (right < 0 || is_user(t, left) || is_user(t, right))
                continue;
            if (llm_grow((void **)merges, &room, *n + 1, sizeof **merges, e) < 0)
                return -1;
            (*merges)[(*n)++] = (struct llm_bpe_merge){(uint32_t)left, (uint32_t)right, rank ? rank[id] : (uint32_t)id, (uint32_t)id};
        }
    }
    return 0;
}

uint32_t llm_joined(const struct llm_tokenizer *t, uint32_t left, uint32_t right)
{
    unsigned char both[LLM_MAX_JOINED];
    size_t n, m;
    if (!(t->flags[left] & t->flags[right] & LLM_TOKEN_MODEL) || is_user(t, (int32_t)left) || is_user(t, (int32_t)right))
        return LLM_BPE_NONE;
    const unsigned char *p = llm_model_piece(t, (int32_t)left, &n), *q = llm_model_piece(t, (int32_t)right, &m);
    if (n + m > sizeof both)
        return LLM_BPE_NONE;
    memcpy(both, p, n);
    memcpy(both + n, q, m);
    int32_t id = llm_tokenizer_whole(t, both, n + m);
    return id < 0 || is_user(t, id) ? LLM_BPE_NONE : (uint32_t)id;
}

static int list_merges(struct llm_tokenizer *t, struct llm_err *e)
{
    if (!t->bpe.joined) {
        t->bpe.merges = llm_alloc(t->bpe.n_merges, sizeof *t->bpe.merges, "merges", e);
        if (!t->bpe.merges)
            return -1;
        llm_bpe_list(&t->bpe, t->bpe.merges);
        return 0;
    }
    struct llm_bpe_merge *merges = NULL;
    size_t n = 0;
    if (llm_all_merges(t, t->bpe.ranks, &merges, &n, e) < 0) {
        free(merges);
        return -1;
    }
    t->bpe.merges = merges;
    t->bpe.n_merges = n;
    return 0;
}

const struct llm_bpe_merge *llm_tokenizer_merges(const struct llm_tokenizer *t, size_t *n, struct llm_err *e)
{
    struct llm_tokenizer *own = (struct llm_tokenizer *)(uintptr_t)t; /* a cache behind a lock: the object stays the same */
    pthread_mutex_lock(&own->lock);
    int bad = (t->bpe.joined || t->bpe.n_merges) && !t->bpe.merges ? list_merges(own, e) : 0;
    *n = bad < 0 ? 1 : t->bpe.n_merges;
    pthread_mutex_unlock(&own->lock);
    return bad < 0 ? NULL : t->bpe.merges;
}

/* Ids of "<0x00>" to "<0xFF>". */
static void find_byte_tokens(struct llm_tokenizer *t)
{
    for (int i = 0; i < 256; i++)
        t->byte_token[i] = -1;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        int byte = llm_byte_piece(llm_model_piece(t, id, &n), t->offsets[id + 1] - t->offsets[id]);
        if (byte >= 0 && t->flags[id] && t->byte_token[byte] < 0)
            t->byte_token[byte] = id;
    }
}

/* Whether some token of the model has "▁", or a space, after its first character. */
static bool crosses_words(const struct llm_tokenizer *t)
{
    bool known = false;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        const unsigned char *p = llm_model_piece(t, id, &n);
        if (!(t->flags[id] & LLM_TOKEN_MODEL))
            continue;
        known = known || (n == 3 && memcmp(p, "\xE2\x96\x81", 3) == 0);
        for (size_t i = 1; i < n; i++) {
            bool mark = i + 3 <= n && memcmp(p + i, "\xE2\x96\x81", 3) == 0;
            if (mark && !(i >= 3 && memcmp(p + i - 3, "\xE2\x96\x81", 3) == 0))
                return true;
        }
    }
    return !known; /* an unknown "▁" could run together with unknown characters before it */
}

static int by_character(const void *a, const void *b)
{
    const struct llm_char_id *x = a, *y = b;
    return x->cp != y->cp ? (x->cp > y->cp) - (x->cp < y->cp) : (x->id > y->id) - (x->id < y->id);
}

size_t llm_without_suffix(const struct llm_tokenizer *t, const unsigned char *p, size_t n, bool *ends)
{
    size_t n_suffix = t->suffix ? strlen(t->suffix) : 0;
    *ends = n_suffix && n > n_suffix && memcmp(p + n - n_suffix, t->suffix, n_suffix) == 0;
    return *ends ? n - n_suffix : n;
}

/* Of all tokens of one character those that end a word, or those that do not. */
static int index_chars(const struct llm_tokenizer *t, bool end, struct llm_char_ids *c, struct llm_err *e)
{
    c->v = llm_alloc((size_t)t->vocab_size, sizeof *c->v, "a vocabulary", e);
    if (!c->v)
        return -1;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        bool ends;
        const unsigned char *p = llm_model_piece(t, id, &n);
        uint32_t cp;
        n = llm_without_suffix(t, p, n, &ends);
        if (n && ends == end && t->flags[id] & LLM_TOKEN_MODEL && llm_utf8_next(p, n, &cp) == (int)n)
            c->v[c->n++] = (struct llm_char_id){cp, id};
    }
    if (c->n)
        qsort(c->v, c->n, sizeof *c->v, by_character);
    struct llm_char_id *fewer = realloc(c->v, (c->n + 1) * sizeof *c->v);
    c->v = fewer ? fewer : c->v;
    return 0;
}

int llm_index_chars(struct llm_tokenizer *t, struct llm_err *e)
{
    return index_chars(t, false, &t->chars, e) < 0 || (t->suffix && index_chars(t, true, &t->end_chars, e) < 0) ? -1 : 0;
}

int32_t llm_char_token(const struct llm_tokenizer *t, uint32_t cp, bool ends)
{
    const struct llm_char_ids *c = ends && t->suffix ? &t->end_chars : &t->chars;
    size_t low = 0, high = c->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (c->v[mid].cp < cp)
            low = mid + 1;
        else
            high = mid;
    }
    return low < c->n && c->v[low].cp == cp ? c->v[low].id : -1;
}

static int index_user(struct llm_tokenizer *t, struct llm_err *e)
{
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        const unsigned char *p = llm_model_piece(t, id, &n);
        if (n && is_user(t, id) && llm_trie_put(&t->kept, 0, p, n, id, e) < 0)
            return -1;
    }
    return 0;
}

/* SentencePiece leaves what is not of the model out; Hugging Face's library knows the whole vocabulary. */
static int index_unigram(struct llm_tokenizer *t, struct llm_err *e)
{
    double worst = 0;
    bool any = false;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        const unsigned char *p = llm_model_piece(t, id, &n);
        if (!n || !(t->flags[id] & LLM_TOKEN_MODEL))
            continue;
        if (llm_trie_put(&t->trie, 0, p, n, id, e) < 0)
            return -1;
        if (t->sentencepiece && is_user(t, id))
            continue;
        worst = any && worst < t->scores[id] ? worst : t->scores[id];
        any = true;
    }
    t->unknown_score = t->sentencepiece ? (double)((float)worst - 10.0f) : worst - 10.0;
    return 0;
}

static int index_wordpiece(struct llm_tokenizer *t, struct llm_err *e)
{
    size_t n_prefix = strlen(t->prefix);
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        const unsigned char *p = llm_model_piece(t, id, &n);
        if (!n || !(t->flags[id] & LLM_TOKEN_MODEL))
            continue;
        if (llm_trie_put(&t->trie, 0, p, n, id, e) < 0)
            return -1;
        if (n > n_prefix && memcmp(p, t->prefix, n_prefix) == 0
            && llm_trie_put(&t->trie, LLM_TRIE_SECOND, p + n_prefix, n - n_prefix, id, e) < 0)
            return -1;
    }
    return 0;
}

int llm_model_prepare(struct llm_tokenizer *t, struct llm_err *e)
{
    find_byte_tokens(t);
    if (index_user(t, e) < 0)
        return -1;
    if (t->model == &llm_model_unigram)
        return index_unigram(t, e);
    if (t->model == &llm_model_wordpiece)
        return t->unknown < 0 ? llm_fail(e, EX_DATAERR, "a WordPiece model needs an unknown token") : index_wordpiece(t, e);
    t->words = !t->suffix && !crosses_words(t); /* a piece that is cut is still one word */
    return llm_index_chars(t, e);
}

int llm_put_unknown(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    bool bytes = t->byte_fallback;
    for (size_t i = 0; i < n && bytes; i++)
        bytes = t->byte_token[p[i]] >= 0;
    if (bytes) {
        for (size_t i = 0; i < n; i++)
            en->ids[en->n_ids++] = t->byte_token[p[i]];
        return 0;
    }
    if (t->unknown < 0)
        return llm_fail(e, EX_DATAERR, "'%.*s' has no token in this vocabulary, which has none for the unknown either", n < 40 ? (int)n : 40,
                        (const char *)p);
    en->ids[en->n_ids++] = t->unknown;
    return 0;
}
