/* The model "bpe" over characters, as SentencePiece trains it: symbols are characters, user-defined symbols and bytes of unknown characters. */
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

/* Symbols of the text p[*at, n) go to en->ids, as far as `most` of them and those of one character more.
 * *after_unknown: the last is the unknown token. */
static int put_symbols(struct llm_encoder *en, const unsigned char *p, size_t n, size_t *at, size_t max, bool *after_unknown, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    size_t start = en->n_ids;
    while (*at < n && en->n_ids - start < max) {
        uint32_t cp;
        int32_t id;
        size_t len = llm_trie_longest(&t->kept, 0, p + *at, n - *at, &id);
        if (!len) {
            len = (size_t)llm_utf8_next(p + *at, n - *at, &cp);
            id = llm_char_token(t, cp, *at + len == n);
        }
        if (id >= 0) {
            en->ids[en->n_ids++] = id;
            *after_unknown = false;
        } else {
            size_t before = en->n_ids;
            if (llm_put_unknown(en, p + *at, len, e) < 0)
                return -1;
            bool unknown = en->n_ids == before + 1 && en->ids[before] == t->unknown;
            if (unknown && *after_unknown && t->fuse_unknown)
                en->n_ids--;
            *after_unknown = unknown;
        }
        *at += len;
    }
    return 0;
}

/* ---- long words in windows of symbols, as bpe_windows.c has them of bytes ---- */

enum { TAIL = 32 }; /* tokens before a window's end that its symbols may not decide */
struct windows {
    int32_t *symbols, *tokens; /* [size]: of the window, before and after merging */
    uint32_t *starts;          /* [size]: of each token its first symbol */
    size_t size;
};

/* 1: symbols [from, middle) and [middle, end) are one token each when they are merged together, too. */
static int fits(struct llm_encoder *en, const int32_t *left, size_t n_left, const int32_t *right, size_t n_right, int32_t left_id, int32_t right_id,
                struct llm_err *e)
{
    size_t n = n_left + n_right;
    int32_t *both = llm_alloc(n, sizeof *both, "two tokens", e);
    if (!both)
        return -1;
    memcpy(both, left, n_left * sizeof *both);
    memcpy(both + n_left, right, n_right * sizeof *both);
    int bad = llm_bpe_merge_ids(&en->t->bpe, &en->work, both, &n, NULL, e);
    bool same = bad == 0 && n == 2 && both[0] == left_id && both[1] == right_id;
    free(both);
    return bad < 0 ? -1 : same;
}

/* One pass over the text. put: tokens go to en->ids, and from there to en->flush if there is one; else seams are only checked.
 * 1: done; 0: a seam does not fit. */
static int run_windows(struct llm_encoder *en, const struct windows *w, const unsigned char *p, size_t n, bool put, struct llm_err *e)
{
    const size_t first = en->n_ids;
    size_t at = 0, held = 0, n_left = 0; /* symbols held back; of the last token of the window before, which are symbols[0, n_left) */
    int32_t left_id = -1;
    bool after_unknown = false;
    for (;;) {
        size_t before = en->n_ids, fresh = n_left + held;
        if (put_symbols(en, p, n, &at, w->size - fresh - LLM_BPE_SHORT, &after_unknown, e) < 0)
            return -1;
        size_t added = en->n_ids - before, count = held + added;
        memcpy(w->symbols + fresh, en->ids + before, added * sizeof *w->symbols);
        en->n_ids = before;
        memcpy(w->tokens, w->symbols + n_left, count * sizeof *w->tokens);
        size_t all = count, n_tokens = count;
        if (count > 0 && llm_bpe_merge_parts(&en->t->bpe, &en->work, w->tokens, &n_tokens, w->starts, e) < 0)
            return -1;
        bool last = at == n;
        if (!last && n_tokens <= TAIL)
            return 0;
        if (n_left > 0 && n_tokens > 0) {
            size_t n_right = n_tokens > 1 ? w->starts[1] : all;
            int fit = fits(en, w->symbols, n_left, w->symbols + n_left, n_right, left_id, w->tokens[0], e);
            if (fit <= 0) {
                en->n_ids = first;
                return fit;
            }
        }
        n_tokens -= last ? 0 : TAIL;
        if (put) {
            memcpy(en->ids + en->n_ids, w->tokens, n_tokens * sizeof *en->ids);
            en->n_ids += n_tokens;
            if (en->flush && !last) {
                if (en->flush(en->flush_arg, en->ids, en->n_ids, e) < 0)
                    return -1;
                en->n_ids = 0;
            }
        }
        if (last)
            return 1;
        /* the last token kept and what is held back go to the front */
        size_t from = w->starts[n_tokens - 1], to = w->starts[n_tokens];
        left_id = w->tokens[n_tokens - 1];
        memmove(w->symbols, w->symbols + n_left + from, (all - from) * sizeof *w->symbols);
        n_left = to - from;
        held = all - to;
    }
}

/* 1: encoded; 0: windows of this size do not fit. */
static int encode_windows(struct llm_encoder *en, const unsigned char *p, size_t n, size_t size, struct llm_err *e)
{
    struct windows w = {llm_alloc(size, sizeof(int32_t), "symbols", e), llm_alloc(size, sizeof(int32_t), "symbols", e),
                        llm_alloc(size, sizeof(uint32_t), "symbols", e), size};
    int got = w.symbols && w.tokens && w.starts ? 1 : -1;
    if (got == 1 && en->flush)
        got = run_windows(en, &w, p, n, false, e); /* what is flushed cannot be taken back */
    if (got == 1)
        got = run_windows(en, &w, p, n, true, e);
    free(w.symbols);
    free(w.tokens);
    free(w.starts);
    return got;
}

static int encode_new(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    size_t start = en->n_ids, at = 0;
    bool after_unknown = false;
    if (t->ignore_merges) {
        int32_t id = llm_tokenizer_whole(t, p, n);
        if (id >= 0) {
            en->ids[en->n_ids++] = id;
            return 0;
        }
    }
    for (size_t size = LLM_BPE_WINDOW; size < n / 2; size *= 4) {
        int got = encode_windows(en, p, n, size, e);
        if (got != 0)
            return got < 0 ? -1 : 0;
    }
    if (put_symbols(en, p, n, &at, SIZE_MAX, &after_unknown, e) < 0)
        return -1;
    size_t count = en->n_ids - start;
    if (llm_bpe_merge_ids(&t->bpe, &en->work, en->ids + start, &count, NULL, e) < 0)
        return -1;
    en->n_ids = start + count;
    return 0;
}

int llm_bpe_chars_derive(const struct llm_tokenizer *t, struct llm_bpe_work *w, const unsigned char *p, size_t n, bool ends, int32_t *ids,
                         size_t *n_ids, struct llm_bpe_merge *last, struct llm_err *e)
{
    *n_ids = 0;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        int len = llm_utf8_next(p + at, n - at, &cp);
        int32_t id = len > 0 ? llm_char_token(t, cp, ends && at + (size_t)len == n) : -1;
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
