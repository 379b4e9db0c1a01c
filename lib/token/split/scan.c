#include "token/split/scan.h"

size_t llm_scan_contraction(struct llm_scan *s, const unsigned char *q)
{
    size_t room = (size_t)(s->end - q);
    if (room < 3)
        s->touched = true;
    if (room < 2 || q[0] != '\'')
        return 0;
    unsigned a = q[1] | 0x20u, b = room > 2 ? q[2] | 0x20u : 0;
    if (q[1] < 0x80) {
        if (a == 's' || a == 't' || a == 'm' || a == 'd')
            return 2;
        if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
            return q[2] < 0x80 ? 3 : 0;
        return 0;
    }
    return room > 2 && q[1] == 0xC5 && q[2] == 0xBF ? 3 : 0;
}

const unsigned char *llm_scan_space(struct llm_scan *s, const unsigned char *p, bool newlines, bool all_at_end)
{
    const unsigned char *q = p, *before_last = p, *after_newline = NULL;
    for (;;) {
        size_t len;
        unsigned c = llm_scan_at(s, q, &len);
        if (!(c & LLM_CH_SPACE))
            break;
        before_last = q;
        q += len;
        if (c & LLM_CH_NEWLINE)
            after_newline = q;
    }
    bool at_end = q >= s->end;
    if (at_end && all_at_end)
        return q;
    if (newlines && after_newline)
        return after_newline;
    return at_end || before_last == p ? q : before_last;
}
