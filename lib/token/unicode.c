#include "token/unicode.h"
#include <pthread.h>
#include <utf8proc.h>
#include "token/tokenizer.h"

int llm_utf8_next(const unsigned char *p, size_t n, uint32_t *cp)
{
    unsigned c = p[0], low = 0x80, high = 0xBF;
    int len;
    if (c < 0x80) {
        *cp = c;
        return 1;
    }
    if (c < 0xC2 || c > 0xF4)
        return 0;
    len = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    /* overlong forms, surrogates and values above 10FFFF show in the second byte */
    if (c == 0xE0)
        low = 0xA0;
    else if (c == 0xED)
        high = 0x9F;
    else if (c == 0xF0)
        low = 0x90;
    else if (c == 0xF4)
        high = 0x8F;
    uint32_t v = c & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n)
            return -1;
        if (p[i] < low || p[i] > high)
            return 0;
        v = v << 6 | (p[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *cp = v;
    return len;
}

int llm_utf8_put(uint32_t cp, unsigned char out[4])
{
    if (cp < 0x80) {
        out[0] = (unsigned char)cp;
        return 1;
    }
    int len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int i = len - 1; i > 0; i--, cp >>= 6)
        out[i] = (unsigned char)(0x80 | (cp & 0x3F));
    out[0] = (unsigned char)(lead[len] | cp);
    return len;
}

size_t llm_utf8_invalid(const unsigned char *p, size_t n)
{
    uint32_t cp;
    size_t at = 0;
    while (at < n) {
        if (p[at] < 0x80) {
            at++;
            continue;
        }
        int len = llm_utf8_next(p + at, n - at, &cp);
        if (len <= 0)
            return at;
        at += (size_t)len;
    }
    return n;
}

size_t llm_utf8_complete(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    uint32_t cp;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = p[n - back];
        if (c < 0x80)
            break;
        if (c >= 0xC0)
            return llm_utf8_next(p + n - back, back, &cp) < 0 ? n - back : n;
    }
    return n;
}

#define U (LLM_CH_LETTER | LLM_CH_UPPER)
#define W (LLM_CH_LETTER | LLM_CH_LOWER)
#define N LLM_CH_NUMBER
#define S LLM_CH_SPACE
#define R (LLM_CH_SPACE | LLM_CH_NEWLINE)
const unsigned char llm_ascii_class[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, S, R, S, S, R, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    S, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, N, N, N, N, N, N, N, N, N, N, 0, 0, 0, 0, 0, 0,
    0, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, 0, 0, 0, 0, 0,
    0, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, 0, 0, 0, 0, 0};

static unsigned class_of(uint32_t cp)
{
    if (cp < 0x80)
        return llm_ascii_class[cp];
    if (cp == 0x85)
        return LLM_CH_SPACE; /* the one White_Space character beyond ASCII that is no separator */
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return U;
    case UTF8PROC_CATEGORY_LL:
        return W;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return U | W;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return LLM_CH_UPPER | LLM_CH_LOWER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return LLM_CH_NUMBER;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return LLM_CH_SPACE;
    default:
        return 0;
    }
}
#undef U
#undef W
#undef N
#undef S
#undef R

static unsigned char basic_plane[0x10000];
static pthread_once_t basic_plane_once = PTHREAD_ONCE_INIT;

static void fill_basic_plane(void)
{
    for (uint32_t cp = 0; cp < 0x10000; cp++)
        basic_plane[cp] = (unsigned char)class_of(cp);
}

unsigned llm_char_class(uint32_t cp)
{
    if (cp >= 0x10000)
        return class_of(cp);
    pthread_once(&basic_plane_once, fill_basic_plane);
    return basic_plane[cp];
}
