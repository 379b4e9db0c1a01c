/* Splitting 64 bytes at once: with a bit for each byte, where pieces begin is a matter of shifts. Only ASCII is seen so; a window ends before the
 * first byte that is not. What is certain within the window comes out, the rest is for the next window or the splitter of single pieces. */
#ifndef LLM_TOKEN_SPLIT_WINDOW_H
#define LLM_TOKEN_SPLIT_WINDOW_H

#include <stdbool.h>
#include "cpu/kernels/bytes.h"

struct llm_window {
    uint64_t seen, letters, digits, space, other; /* each byte of the window is of one of the last four */
    int n;                                        /* bytes that are seen */
};

static inline uint64_t llm_bits_below(int n) { return n >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1; }
static inline int llm_first_bit(uint64_t x) { return __builtin_ctzll(x); } /* x is not 0 */
static inline int llm_last_bit(uint64_t x) { return 63 - __builtin_clzll(x); }

/* The first n ≤ 64 bytes, as far as they are ASCII and not in `stop`. */
static inline struct llm_window llm_window_open(const struct llm_byte_masks *m, int n, uint64_t stop)
{
    struct llm_window w = {.n = n};
    stop = (stop | m->high) & llm_bits_below(n);
    if (stop)
        w.n = llm_first_bit(stop);
    w.seen = llm_bits_below(w.n);
    w.letters = (m->upper | m->lower) & w.seen;
    w.digits = m->digit & w.seen;
    w.space = m->space & w.seen;
    w.other = w.seen & ~(w.letters | w.digits | w.space);
    return w;
}

/* The `starts` that no text after the window can change: of white space that reaches the window's end, only its beginning is certain. */
static inline uint64_t llm_window_certain(const struct llm_window *w, uint64_t starts)
{
    uint64_t solid = w->seen & ~w->space;
    return solid ? starts & w->seen & ~UINT64_C(1) & llm_bits_below(llm_last_bit(solid) + 2) : 0;
}

/* Length of the contraction at a quote with three bytes to look at: 2, 3 or 0. `fold`: in either case. */
static inline int llm_window_contraction(const unsigned char *p, bool fold)
{
    unsigned a = p[1], b = p[2];
    if (fold) {
        a |= 0x20; /* no other byte becomes a letter */
        b |= 0x20;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* How the patterns that are like cl100k's differ. */
struct llm_window_style {
    bool digits_alone; /* each digit is a piece; else up to three together */
    bool suffixes;     /* contractions end words instead of being pieces; words are cut where an upper letter follows a lower one */
};

/* Each third digit of a run begins a piece. */
static inline uint64_t llm_window_digits(uint64_t digits, bool alone)
{
    uint64_t starts = digits & ~(digits << 1), fourth = digits & digits << 1 & digits << 2 & digits << 3;
    if (alone)
        return digits;
    for (uint64_t at = fourth ? starts : 0; at; at = at << 3 & fourth)
        starts |= at << 3 & fourth;
    return starts;
}

/* Contractions, from left to right; what cannot be seen whole ends the window. */
static inline uint64_t llm_window_contractions(struct llm_window *w, const unsigned char *p, uint64_t quotes, uint64_t starts, bool suffixes)
{
    uint64_t forced = 1;
    for (; quotes; quotes &= quotes - 1) {
        int at = llm_first_bit(quotes);
        if (at + 3 > w->n) {
            starts &= llm_bits_below(at); /* with `suffixes` not even the quote's own place is certain */
            w->seen &= llm_bits_below(at);
            break;
        }
        int len = llm_window_contraction(p + at, true);
        bool suffix = suffixes && w->letters << 1 >> at & 1 && !(forced >> at & 1);
        if (!len || (suffixes && !suffix))
            continue;
        uint64_t here = UINT64_C(1) << at, behind = here << len;
        starts &= ~(behind - here);
        starts |= behind | (suffix ? 0 : here);
        forced |= behind;
    }
    return starts;
}

/* Where pieces end: (?i:'s|…)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+, and o200k's pattern. */
static inline uint64_t llm_window_words(const struct llm_byte_masks *m, const unsigned char *p, int n, struct llm_window_style style)
{
    /* o200k: newlines after other characters may have slashes among them */
    struct llm_window w = llm_window_open(m, n, style.suffixes ? m->slash & m->newline << 1 : 0);
    uint64_t newline = m->newline & w.seen;
    uint64_t first_other = w.other & ~(w.other << 1);
    uint64_t taken = newline & ~(newline + (w.other << 1 & newline)); /* new lines that belong to what stands before them */
    uint64_t space = w.space & ~taken, indent = space & ~newline;
    uint64_t alone = first_other & ~(m->blank << 1); /* begins a piece, which a letter may continue */
    uint64_t starts = alone | (space & ~(space << 1)) | (indent & ~(space >> 1)) | llm_window_digits(w.digits, style.digits_alone);
    starts |= w.letters & ~(w.letters << 1 | indent << 1 | alone << 1);
    if (style.suffixes)
        starts |= m->upper & m->lower << 1 & w.seen;
    /* white space after the last newline of its run is a piece of its own */
    for (uint64_t behind = (space & newline) << 1 & indent; behind; behind &= behind - 1) {
        uint64_t here = behind & -behind, end = (indent + here) & ~indent; /* carries to where the blanks end */
        if (!(end & newline))
            starts |= here;
    }
    starts = llm_window_contractions(&w, p, m->quote & alone, starts, style.suffixes);
    return llm_window_certain(&w, starts);
}

#endif
