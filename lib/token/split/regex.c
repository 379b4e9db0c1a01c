/* Any pattern, through PCRE2 with its JIT, in Oniguruma's meaning (oniguruma.h). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "token/split/oniguruma.h"
#include "token/split/split.h"
#include "token/unicode.h"

struct llm_regex {
    pcre2_code *code;
    size_t lookbehind; /* bytes */
    const char *what;  /* in messages */
};

struct llm_regex_state {
    const struct llm_regex *regex;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* May this be a pattern that calls itself? Compiled to machine code, PCRE2 does not notice when such a call goes round for ever. */
static bool may_recurse(const char *p)
{
    for (; (p = strpbrk(p, "(\\")) != NULL; p++) {
        if (p[0] == '\\' && p[1] == 'g')
            return true;
        if (p[0] != '(' || p[1] != '?')
            continue;
        const char *q = p + 2 + (p[2] == '+' || p[2] == '-');
        if (*q == 'R' || *q == '&' || (*q >= '0' && *q <= '9') || (q[0] == 'P' && q[1] == '>'))
            return true;
    }
    return false;
}

struct llm_regex *llm_regex_create(const char *pattern, const char *what, struct llm_err *e)
{
    struct llm_buf text = {0};
    int code;
    PCRE2_SIZE where;
    pcre2_compile_context *context;
    uint32_t behind = 0;
    struct llm_regex *r = llm_calloc(1, sizeof *r, what, e);
    if (!r)
        return NULL;
    r->what = what;
    if (*pattern == '\0' || llm_oniguruma_translate(pattern, &text, e) < 0) {
        if (*pattern == '\0')
            llm_fail(e, EX_DATAERR, "%s: expected a regular expression, found nothing", what);
        goto fail;
    }
    context = pcre2_compile_context_create(NULL);
    if (context)
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    r->code = pcre2_compile((PCRE2_SPTR)text.p, text.n, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &where, context);
    pcre2_compile_context_free(context);
    if (!r->code) {
        PCRE2_UCHAR why[200] = "";
        pcre2_get_error_message(code, why, sizeof why);
        llm_fail(e, EX_DATAERR, "%s '%s': %s", what, pattern, (const char *)why);
        goto fail;
    }
    if (!may_recurse(pattern))
        (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD); /* without JIT it is only slower */
    pcre2_pattern_info(r->code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
    r->lookbehind = (size_t)(behind == 0 && strchr(pattern, '^') ? 1 : behind) * 4; /* "^" looks for a new line, which PCRE2 does not count */
    llm_buf_release(&text);
    return r;
fail:
    llm_buf_release(&text);
    llm_regex_destroy(r);
    return NULL;
}

void llm_regex_destroy(struct llm_regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    free(r);
}

size_t llm_regex_lookbehind(const struct llm_regex *r)
{
    return r->lookbehind;
}

struct llm_regex_state *llm_regex_state_create(const struct llm_regex *r, struct llm_err *e)
{
    struct llm_regex_state *m = llm_calloc(1, sizeof *m, "a pattern's state", e);
    if (!m)
        return NULL;
    m->regex = r;
    m->data = pcre2_match_data_create_from_pattern(r->code, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create((size_t)32 << 10, (size_t)8 << 20, NULL);
    if (!m->data || !m->context || !m->stack) {
        llm_no_memory(e, "a pattern's state");
        llm_regex_state_destroy(m);
        return NULL;
    }
    pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return m;
}

void llm_regex_state_destroy(struct llm_regex_state *m)
{
    if (!m)
        return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    free(m);
}

/* Length of the valid UTF-8 at p. *more: what follows is not known yet. */
static size_t valid_until(const unsigned char *p, size_t n, bool last, bool *more)
{
    size_t at = llm_utf8_invalid(p, n);
    uint32_t cp;
    *more = !last && (at == n || llm_utf8_next(p + at, n - at, &cp) < 0);
    return at;
}

/* A match may take this many steps: some for each byte that it can look at, and then as many as a pattern that explodes needs for a fraction of a
 * second. */
static void limit_steps(struct llm_regex_state *m, size_t n)
{
    size_t steps = n < 400000000 ? 1000000 + 8 * n : UINT32_MAX;
    pcre2_set_match_limit(m->context, (uint32_t)steps);
}

static int gave_up(const struct llm_regex *r, int code, struct llm_err *e)
{
    PCRE2_UCHAR why[200] = "";
    pcre2_get_error_message(code, why, sizeof why);
    return llm_fail(e, EX_DATAERR, "%s gave up: %s", r->what, (const char *)why);
}

int llm_regex_find(struct llm_regex_state *m, const unsigned char *text, size_t at, size_t n, size_t *from, size_t *to, struct llm_err *e)
{
    limit_steps(m, n - at);
    int got = pcre2_match(m->regex->code, text, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, m->data, m->context);
    if (got == PCRE2_ERROR_NOMATCH)
        return 0;
    if (got < 0)
        return gave_up(m->regex, got, e);
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
    *from = v[0] < at ? at : v[0]; /* \K in a look-behind can move a match back */
    *to = v[1];
    return *to > *from;
}

long llm_regex_next(struct llm_regex_state *m, const unsigned char *text, size_t at, size_t n, bool last, struct llm_err *e)
{
    /* A match looks at no more than this at first: checking all that is there for every piece would be quadratic. */
    for (size_t window = 4096;; window *= 8) {
        bool whole = window >= n - at, more;
        size_t look = whole ? n - at : window;
        size_t valid = valid_until(text + at, look, whole && last, &more);
        if (valid == 0)
            return more ? 0 : 1; /* a byte that is no character */
        size_t start = at < m->regex->lookbehind ? 0 : at - m->regex->lookbehind;
        while (start < at && (text[start] & 0xC0) == 0x80)
            start++;
        if (llm_utf8_invalid(text + start, at - start) < at - start)
            start = at; /* looking behind ends at bytes that are no characters */
        limit_steps(m, valid);
        int got = pcre2_match(m->regex->code, text + start, at + valid - start, at - start,
                              PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | (more ? PCRE2_PARTIAL_HARD : 0), m->data, m->context);
        if (got == PCRE2_ERROR_PARTIAL || (got == PCRE2_ERROR_NOMATCH && more)) {
            if (!whole)
                continue;
            return 0;
        }
        if (got == PCRE2_ERROR_NOMATCH)
            return (long)valid;
        if (got < 0)
            return gave_up(m->regex, got, e);
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
        size_t from = v[0] + start, to = v[1] + start;
        if (from > at)
            return (long)(from - at);
        return to > at ? (long)(to - at) : 1;
    }
}
