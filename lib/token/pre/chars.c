#include <pthread.h>
#include <utf8proc.h>
#include "token/pre/pre.h"
#include "token/unicode.h"

/* Letters by property, not by category: circled and squared ones. */
static bool is_other_alphabetic(uint32_t cp)
{
    return (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) || (cp >= 0x1F150 && cp <= 0x1F169)
           || (cp >= 0x1F170 && cp <= 0x1F189);
}

static unsigned class_of(uint32_t cp)
{
    unsigned general = llm_char_class(cp), c = general & LLM_CH_SPACE ? LLM_PRE_SPACE : 0;
    if (general & LLM_CH_NUMBER)
        c |= LLM_PRE_NUMERIC;
    if (general & LLM_CH_LETTER || cp == 0x200C || cp == 0x200D || is_other_alphabetic(cp))
        c |= LLM_PRE_WORD;
    if ((cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') || (cp >= '{' && cp <= '~'))
        c |= LLM_PRE_PUNCT;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_PC:
        return c | LLM_PRE_PUNCT | LLM_PRE_WORD;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return c | LLM_PRE_PUNCT;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return c | LLM_PRE_WORD;
    default:
        return c;
    }
}

static unsigned char basic_plane[0x10000];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(void)
{
    for (uint32_t cp = 0; cp < 0x10000; cp++)
        basic_plane[cp] = (unsigned char)class_of(cp);
}

unsigned llm_pre_class(uint32_t cp)
{
    if (cp >= 0x10000)
        return class_of(cp);
    pthread_once(&once, fill);
    return basic_plane[cp];
}
