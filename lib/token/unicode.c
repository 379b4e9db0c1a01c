#include "token/unicode.h"
#include <pthread.h>
#include <utf8proc.h>
#include "token/tokenizer.h"

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
