/* What Python says of a character. */
#include <string.h>
#include <utf8proc.h>
#include "token/chat/jinja.h"
#include "token/unicode.h"

bool llm_jinja_char_is(const char *what, uint32_t cp)
{
    const int c = utf8proc_category((utf8proc_int32_t)cp);
    const bool letter = c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO, decimal = c == UTF8PROC_CATEGORY_ND;
    const bool numeric = decimal || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
    if (strcmp(what, "space") == 0) return llm_utf8_is_space(cp);
    if (strcmp(what, "alpha") == 0) return letter;
    if (strcmp(what, "alnum") == 0) return letter || numeric;
    if (strcmp(what, "numeric") == 0) return numeric;
    if (strcmp(what, "ascii") == 0) return cp < 0x80;
    if (strcmp(what, "printable") == 0) {
        if (cp < 0x7f) return cp >= 0x20;
        return c != UTF8PROC_CATEGORY_CC && c != UTF8PROC_CATEGORY_CF && c != UTF8PROC_CATEGORY_CS && c != UTF8PROC_CATEGORY_CO
            && c != UTF8PROC_CATEGORY_CN && c != UTF8PROC_CATEGORY_ZL && c != UTF8PROC_CATEGORY_ZP && c != UTF8PROC_CATEGORY_ZS;
    }
    return decimal; /* digit, decimal */
}
