#include "token/split/oniguruma.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* \p{Alphabetic}, which not every PCRE2 knows, is letters, numbers that are letters, some marks, and letters in circles and squares. */
#define WORD "\\p{L}\\p{M}\\p{Nl}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}\\p{Nd}\\p{Pc}"
/* Of other numbers Oniguruma has those of Latin-1, outside of classes only. */
#define WORD_ALONE "[" WORD "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}]"
#define NO_WORD_ALONE "[^" WORD "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}]"
#define MAX_DEPTH 8 /* of classes within classes; deeper ones are left as they are */

/* Is there a script of this name? A PCRE2 that cannot tell has the scripts of characters alone. */
static bool is_script(const char *name, size_t n)
{
    char text[64];
    int code, len = n < 40 ? snprintf(text, sizeof text, "\\p{sc:%.*s}", (int)n, name) : 0;
    PCRE2_SIZE where;
    pcre2_code *c = len > 0 ? pcre2_compile((PCRE2_SPTR)text, (PCRE2_SIZE)len, PCRE2_UTF | PCRE2_UCP, &code, &where, NULL) : NULL;
    pcre2_code_free(c);
    return c != NULL;
}

/* The escape at p, "\", which is not the pattern's last character. Returns its length, or -1. */
static long put_escape(const char *p, bool in_class, struct llm_buf *out, struct llm_err *e)
{
    const char *with = p[1] == 's'                ? "\\p{White_Space}"
                       : p[1] == 'S'              ? "\\P{White_Space}"
                       : p[1] == 'w'              ? in_class ? WORD : WORD_ALONE
                       : p[1] == 'W' && !in_class ? NO_WORD_ALONE
                                                  : NULL;
    const char *end = (p[1] == 'p' || p[1] == 'P') && p[2] == '{' ? strchr(p, '}') : NULL;
    size_t name = p[1] && p[2] && p[3] == '^' ? 4 : 3;
    if (with)
        return llm_buf_put(out, with, strlen(with), e) < 0 ? -1 : 2;
    if (end && (size_t)(end - p) > name + 2 && is_script(p + name, (size_t)(end - p) - name)) /* categories have one letter or two */
        return llm_buf_printf(out, e, "%.*ssc:%.*s", (int)name, p, (int)((size_t)(end + 1 - p) - name), p + name) < 0 ? -1 : end + 1 - p;
    return llm_buf_put(out, p, 2, e) < 0 ? -1 : 2;
}

/* Where the class ends that begins at p, "[", if "[" stands for itself within: at its "]". */
static const char *plain_end(const char *p)
{
    p += 1 + (p[1] == '^');
    p += *p == ']';
    for (; *p && *p != ']'; p++) {
        const char *name = p[0] == '[' && p[1] == ':' ? strstr(p + 2, ":]") : NULL;
        if (name)
            p = name + 1;
        else if (*p == '\\' && p[1])
            p++;
    }
    return p;
}

static long put_class(const char *p, int depth, struct llm_buf *out, struct llm_err *e);

/* What stands in a class up to its "]" or "&&": an expression for one character of it. Returns its length; 0: there is no such end; -1. */
static long put_operand(const char *p, bool first, int depth, struct llm_buf *out, struct llm_err *e)
{
    struct llm_buf plain = {0}, nested = {0};
    const char *from = p;
    long len = 1;
    for (; len > 0 && *p && (*p != ']' || (first && p == from)) && (p[0] != '&' || p[1] != '&'); p += len) {
        const char *name = p[0] == '[' && p[1] == ':' ? strstr(p + 2, ":]") : NULL;
        len = 1;
        if (*p == '\\' && p[1]) {
            len = put_escape(p, true, &plain, e);
        } else if (*p == '[' && !name) {
            len = llm_buf_put(&nested, "|", 1, e) < 0 ? -1 : put_class(p, depth + 1, &nested, e);
        } else {
            len = name ? name + 2 - p : 1;
            if (llm_buf_put(&plain, p, (size_t)len, e) < 0)
                len = -1;
        }
    }
    if (len > 0 && !*p)
        len = 0;
    if (len > 0 && nested.n == 0) /* nothing in it: PCRE2 says what is wrong with that */
        len = llm_buf_printf(out, e, "[%.*s]", (int)plain.n, plain.p ? plain.p : "") < 0 ? -1 : p - from;
    else if (len > 0)
        len = llm_buf_printf(out, e, "(?:%s%.*s%s%.*s)", plain.n ? "[" : "", (int)plain.n, plain.n ? plain.p : "", plain.n ? "]" : "",
                             (int)(plain.n ? nested.n : nested.n - 1), plain.n ? nested.p : nested.p + 1) < 0 ? -1 : p - from;
    llm_buf_release(&plain);
    llm_buf_release(&nested);
    return len;
}

/* The class at p, "[". Returns its length; 0: it does not end; -1. */
static long put_class(const char *p, int depth, struct llm_buf *out, struct llm_err *e)
{
    struct llm_buf all = {0};
    bool negated = p[1] == '^', simple = false;
    const char *from = p;
    long len = depth < MAX_DEPTH;
    p += 1 + negated;
    for (int i = 0; len > 0; i++) { /* each operand but the last looks ahead */
        struct llm_buf one = {0};
        len = put_operand(p, i == 0, depth, &one, e);
        bool last = len > 0 && p[len] == ']';
        simple = last && i == 0 && one.p[0] == '[';
        if (len > 0 && llm_buf_printf(&all, e, last ? "%.*s" : "(?=%.*s)", (int)one.n, one.p) < 0)
            len = -1;
        llm_buf_release(&one);
        if (len <= 0)
            break;
        p += len + (last ? 1 : 2);
        if (last)
            break;
    }
    if (len > 0) {
        int bad = simple && negated ? llm_buf_printf(out, e, "[^%.*s", (int)all.n - 1, all.p + 1)
                  : simple          ? llm_buf_put(out, all.p, all.n, e)
                  : negated         ? llm_buf_printf(out, e, "(?:(?!%.*s)(?s:.))", (int)all.n, all.p)
                                    : llm_buf_printf(out, e, "(?:%.*s)", (int)all.n, all.p);
        len = bad < 0 ? -1 : p - from;
    }
    llm_buf_release(&all);
    return len;
}

int llm_oniguruma_translate(const char *pattern, struct llm_buf *out, struct llm_err *e)
{
    const char *end = pattern; /* before it: within a class that is left as it is */
    long len;
    for (const char *p = pattern; *p; p += len) {
        len = 0;
        if (*p == '[' && p >= end && (len = put_class(p, 0, out, e)) == 0)
            end = plain_end(p);
        if (len == 0 && *p == '\\' && p[1])
            len = put_escape(p, p < end, out, e);
        else if (len == 0)
            len = llm_buf_put(out, p, 1, e) < 0 ? -1 : 1;
        if (len < 0)
            return -1;
    }
    return 0;
}
