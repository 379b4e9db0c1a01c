/* GPT-2's pattern: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
#include "token/split/scan.h"
#include "token/split/split.h"
#include "token/split/window.h"

static size_t contraction(struct llm_scan *s, const unsigned char *p)
{
    size_t room = (size_t)(s->end - p);
    if (room < 3)
        s->touched = true;
    if (room < 2)
        return 0;
    if (p[1] == 's' || p[1] == 't' || p[1] == 'm' || p[1] == 'd')
        return 2;
    if (room < 3)
        return 0;
    return (p[1] == 'r' && p[2] == 'e') || (p[1] == 'v' && p[2] == 'e') || (p[1] == 'l' && p[2] == 'l') ? 3 : 0;
}

static size_t next(const unsigned char *p, const unsigned char *end, bool last)
{
    struct llm_scan s = {end, last, false};
    const unsigned char *q = p;
    size_t len;
    if (*p == '\'') {
        size_t n = contraction(&s, p);
        if (n)
            return n;
    }
    unsigned c = llm_scan_at(&s, q, &len);
    if (*p == ' ') {
        unsigned after = llm_scan_at(&s, p + 1, &len);
        if (!(after & (LLM_CH_SPACE | LLM_SCAN_NONE))) {
            q = p + 1;
            c = after;
        }
    }
    if (c & LLM_CH_LETTER)
        q = llm_scan_run(&s, q + len, LLM_CH_LETTER);
    else if (c & LLM_CH_NUMBER)
        q = llm_scan_run(&s, q + len, LLM_CH_NUMBER);
    else if (c & LLM_CH_SPACE)
        q = llm_scan_space(&s, p, false, false);
    else
        q = llm_scan_other(&s, q + len);
    return llm_scan_done(&s, p, q);
}

static uint64_t window(const struct llm_byte_masks *m, const unsigned char *p, int n)
{
    struct llm_window w = llm_window_open(m, n, 0);
    uint64_t same = (w.letters & w.letters << 1) | (w.digits & w.digits << 1) | (w.other & w.other << 1);
    uint64_t starts = (~w.space & ~same & ~(m->blank << 1)) | (w.space & ~(w.space << 1 & w.space >> 1)) | 1;
    for (uint64_t quotes = m->quote & starts & w.seen; quotes; quotes &= quotes - 1) {
        int at = llm_first_bit(quotes);
        if (at + 3 > w.n) {
            w.seen &= llm_bits_below(at);
            break;
        }
        int len = llm_window_contraction(p + at, false);
        if (len)
            starts = (starts & ~(UINT64_C(2) << at)) | (UINT64_C(1) << at) << len;
    }
    return llm_window_certain(&w, starts);
}

const struct llm_split_row llm_split_gpt2 = {
    "gpt2",
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s",
     "'s|'t|'re|'ve|'m|'ll|'d| ?[\\p{L}]+| ?[\\p{N}]+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    next, window};
