/* GPT-2's pattern: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
#include "token/split/scan.h"
#include "token/split/split.h"

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

const struct llm_split_row llm_split_gpt2 = {
    "gpt2",
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s",
     "'s|'t|'re|'ve|'m|'ll|'d| ?[\\p{L}]+| ?[\\p{N}]+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    next};
