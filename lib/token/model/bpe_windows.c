/* BPE of long pieces in windows: merging takes 28 bytes of memory for each byte of a piece.
 *
 * A sequence of tokens is the encoding of its text exactly if any two neighbours are the encoding of their own text. For up to the first merge across
 * a boundary the merges within both tokens are those of the two alone, in the same order, so that this merge would be made there, too. So each window
 * begins at a token of the one before, some tokens before that window's end, and the two tokens at the seam are encoded together. If words end in
 * tokens of their own there are no windows, whose ends would be taken for ends of words. */
#include <stdlib.h>
#include "base/buf.h"
#include "token/internal.h"

enum { TAIL = 32 }; /* tokens before a window's end that its text may not decide */

/* 1: the last token before text[at] and the first after it are the encoding of their text; 0: they are not. */
static int fits(const struct llm_tokenizer *t, struct llm_bpe_work *w, const unsigned char *text, size_t at, int32_t left, int32_t right,
                struct llm_err *e)
{
    size_t before, after, n = 0;
    int32_t few[LLM_BPE_SHORT], *ids = few;
    llm_model_piece(t, left, &before);
    llm_model_piece(t, right, &after);
    if (before + after > LLM_BPE_SHORT && !(ids = llm_alloc(before + after, sizeof *ids, "two tokens", e))) return -1;
    int bad = llm_bpe_encode(&t->bpe, w, text + at - before, before + after, ids, &n, e);
    bool same = bad == 0 && n == 2 && ids[0] == left && ids[1] == right;
    if (ids != few) free(ids);
    return bad < 0 ? -1 : same;
}

/* The bytes of n tokens. */
static size_t length_of(const struct llm_tokenizer *t, const int32_t *ids, size_t n)
{
    size_t all = 0, one;
    for (size_t i = 0; i < n; i++) {
        llm_model_piece(t, ids[i], &one);
        all += one;
    }
    return all;
}

/* How windows' tokens go out: one after another into out[]; nowhere, to see whether seams fit; or each window's to `flush`. */
enum way { KEEP, CHECK, FLUSH };
struct piece {
    const struct llm_tokenizer *t;
    struct llm_bpe_work *w;
    const unsigned char *p;
    size_t n;
    llm_bpe_flush *flush;
    void *arg;
};

/* With windows of one size. 1: done; 0: a seam does not fit, or tokens have other texts than their merges. */
static int by_windows(const struct piece *v, enum way way, size_t window, int32_t *out, size_t *n_out, struct llm_err *e)
{
    size_t from = 0, kept = 0;
    int32_t left = -1;
    for (;;) {
        size_t length = v->n - from < window ? v->n - from : window, count;
        int32_t *ids = out + (way == KEEP ? kept : 0);
        if (llm_bpe_encode(&v->t->bpe, v->w, v->p + from, length, ids, &count, e) < 0) return -1;
        if (length_of(v->t, ids, count) != length) return 0;
        int fit = from > 0 && way != FLUSH ? fits(v->t, v->w, v->p, from, left, ids[0], e) : 1;
        if (fit <= 0) return fit;
        bool last = from + length == v->n;
        if (!last && count <= TAIL) return 0;
        count -= last ? 0 : TAIL;
        if (way == FLUSH && v->flush(v->arg, ids, count, e) < 0) return -1;
        kept += count;
        *n_out = way == KEEP ? kept : 0;
        if (last) return 1;
        from += length_of(v->t, ids, count);
        left = ids[count - 1];
    }
}

int llm_bpe_encode_long(const struct llm_tokenizer *t, struct llm_bpe_work *w, const unsigned char *p, size_t n, size_t window, int32_t *out,
                        size_t *n_out, llm_bpe_flush *flush, void *arg, struct llm_err *e)
{
    const struct piece v = {t, w, p, n, flush, arg};
    for (; !t->suffix && window < n / 2; window *= 4) {
        int got = by_windows(&v, flush ? CHECK : KEEP, window, out, n_out, e);
        if (got == 1 && flush) got = by_windows(&v, FLUSH, window, out, n_out, e);
        if (got != 0) return got < 0 ? -1 : 0;
    }
    return llm_bpe_encode(&t->bpe, w, p, n, out, n_out, e);
}
