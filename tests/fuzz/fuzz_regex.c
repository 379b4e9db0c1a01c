/* Split patterns: any pattern (up to the first NUL), any text behind it. Pieces cover the text, and what is certain of a part of the text
 * is so for the whole. */
#include "fuzz.h"
#include "token/split/split.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    char pattern[128];
    const uint8_t *zero = memchr(data, 0, n);
    size_t len = zero ? (size_t)(zero - data) : n;
    if (len >= sizeof pattern) return 0;
    memcpy(pattern, data, len);
    pattern[len] = 0;
    const unsigned char *text = zero ? zero + 1 : data + n;
    size_t room = n - (size_t)(text - data);
    if (room > 512) room = 512;
    struct llm_regex *r = llm_regex_create(pattern, "pattern", &e);
    MUST(r || e.status);
    struct llm_regex_state *m = r ? llm_regex_state_create(r, &e) : NULL;
    for (size_t at = 0, cut = room / 2; m && at < room;) {
        long whole = llm_regex_next(m, text, at, room, true, &e);
        long early = at < cut ? llm_regex_next(m, text, at, cut, false, &e) : 0;
        if (whole < 0 || early < 0) break; /* it gave up */
        MUST(whole > 0 && (size_t)whole <= room - at && (early == 0 || early == whole));
        at += (size_t)whole;
    }
    llm_regex_state_destroy(m);
    llm_regex_destroy(r);
    return 0;
}
