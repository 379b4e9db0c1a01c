#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "measure/eval/extract.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/utf8.h"

struct llm_extract {
    pcre2_code *pattern;      /* NULL: the answer is the whole text */
    uint32_t groups;          /* of the pattern */
    pcre2_code **ignore;
    size_t n_ignore;
    bool last, any_case;
};

static pcre2_code *compile(const char *key, const json_t *text, struct llm_err *e)
{
    int code;
    PCRE2_SIZE at;
    PCRE2_UCHAR why[120] = "";
    if (!json_is_string(text)) {
        llm_fail(e, EX_DATAERR, "\"%s\": expected a pattern", key);
        return NULL;
    }
    pcre2_code *p = pcre2_compile((PCRE2_SPTR)json_string_value(text), json_string_length(text), PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF,
                                  &code, &at, NULL);
    if (p) return p;
    pcre2_get_error_message(code, why, sizeof why);
    llm_fail(e, EX_DATAERR, "\"%s\": character %zu: %s", key, (size_t)at, (const char *)why);
    return NULL;
}

struct llm_extract *llm_extract_create(const json_t *task, struct llm_err *e)
{
    struct llm_extract *x = llm_calloc(1, sizeof *x, "patterns", e);
    const json_t *pattern = json_object_get(task, "extract"), *ignore = json_object_get(task, "ignore");
    size_t n = json_array_size(ignore);
    if (!x) return NULL;
    x->ignore = llm_calloc(n, sizeof *x->ignore, "patterns", e);
    bool ok = x->ignore && llm_json_bool(task, "extract_last", &x->last, e) == 0 && llm_json_bool(task, "ignore_case", &x->any_case, e) == 0;
    if (ok && pattern) ok = (x->pattern = compile("extract", pattern, e)) != NULL;
    if (x->pattern) pcre2_pattern_info(x->pattern, PCRE2_INFO_CAPTURECOUNT, &x->groups);
    for (; ok && x->n_ignore < n; x->n_ignore += ok) {
        x->ignore[x->n_ignore] = compile("ignore", json_array_get(ignore, x->n_ignore), e);
        ok = x->ignore[x->n_ignore] != NULL;
    }
    if (ok) return x;
    llm_extract_destroy(x);
    return NULL;
}

void llm_extract_destroy(struct llm_extract *x)
{
    if (!x) return;
    pcre2_code_free(x->pattern);
    for (size_t i = 0; i < x->n_ignore; i++) pcre2_code_free(x->ignore[i]);
    free(x->ignore);
    free(x);
}

/* The matches of a pattern in a text, one after another, as Python's re.finditer finds them. */
struct matches {
    const pcre2_code *pattern;
    pcre2_match_data *data;
    const char *text;
    size_t n, from;           /* bytes of the text; where the next match is looked for */
    bool empty;               /* the last one was empty, and ended at `from` */
};

static int matches_begin(struct matches *m, const pcre2_code *pattern, const char *text, size_t n, struct llm_err *e)
{
    *m = (struct matches){.pattern = pattern, .data = pcre2_match_data_create_from_pattern(pattern, NULL), .text = text, .n = n};
    return m->data ? 0 : llm_no_memory(e, "a match");
}

/* *v: begins and ends of the next match and its groups. 1, 0 or -1. */
static int matches_next(struct matches *m, const PCRE2_SIZE **v, struct llm_err *e)
{
    for (;;) {
        const uint32_t how = m->empty ? PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED : 0;
        int got = pcre2_match(m->pattern, (PCRE2_SPTR)m->text, m->n, m->from, how, m->data, NULL);
        if (got < 0 && got != PCRE2_ERROR_NOMATCH) return llm_fail(e, EX_DATAERR, "a pattern takes too long on a generated text");
        if (got >= 0) {
            *v = pcre2_get_ovector_pointer(m->data);
            m->empty = (*v)[1] <= (*v)[0];
            if ((*v)[1] > m->from) m->from = (*v)[1];
            return 1;
        }
        if (!m->empty || m->from == m->n) return 0;
        uint32_t character;
        int length = llm_utf8_next((const unsigned char *)m->text + m->from, m->n - m->from, &character);
        m->from += length > 0 ? (size_t)length : 1;
        m->empty = false;
    }
}

/* What a match says: all of it, its only group, or the first group of several that is not empty. False: they all are. */
static bool said_by(const struct llm_extract *x, const PCRE2_SIZE *v, size_t *begin, size_t *end)
{
    uint32_t k = x->groups > 0;
    while (x->groups > 1 && k <= x->groups && v[2 * k] == v[2 * k + 1]) k++; /* groups that took no part have both ends unset */
    if (k > x->groups) return false;
    *begin = v[2 * k] == PCRE2_UNSET ? 0 : v[2 * k];
    *end = v[2 * k] == PCRE2_UNSET ? 0 : v[2 * k + 1];
    return true;
}

/* The answer in a text: bytes [*begin, *end). 1, 0 or -1. */
static int find(const struct llm_extract *x, const char *text, size_t n, size_t *begin, size_t *end, struct llm_err *e)
{
    struct matches m;
    const PCRE2_SIZE *v;
    int got, found = 0;
    *begin = 0;
    *end = n;
    if (!x->pattern) return 1;
    if (matches_begin(&m, x->pattern, text, n, e) < 0) return -1;
    while ((got = matches_next(&m, &v, e)) == 1) {
        found = said_by(x, v, begin, end);
        if (!x->last) break;
    }
    pcre2_match_data_free(m.data);
    return got < 0 ? -1 : found;
}

static void strip(struct llm_buf *b)
{
    const size_t skip = llm_utf8_skip_space(b->p, b->n, 0), left = llm_utf8_trim_end(b->p, b->n);
    b->n = left > skip ? left - skip : 0;
    if (b->n > 0) memmove(b->p, b->p + skip, b->n);
}

/* Puts `from` into `to` without the matches of a pattern. */
static int without(const pcre2_code *pattern, const struct llm_buf *from, struct llm_buf *to, struct llm_err *e)
{
    struct matches m;
    const PCRE2_SIZE *v;
    size_t at = 0;
    int got;
    to->n = 0;
    if (matches_begin(&m, pattern, from->p, from->n, e) < 0) return -1;
    while ((got = matches_next(&m, &v, e)) == 1) {
        if (v[0] > at && llm_buf_put(to, from->p + at, v[0] - at, e) < 0) break;
        at = v[1] > at ? v[1] : at;
    }
    pcre2_match_data_free(m.data);
    return got == 0 ? llm_buf_put(to, from->p + at, from->n - at, e) : -1;
}

/* Puts `from` into `to` in lower case; bytes that are not UTF-8 as they are. */
static int lower(const struct llm_buf *from, struct llm_buf *to, struct llm_err *e)
{
    to->n = 0;
    for (size_t i = 0; i < from->n;) {
        uint32_t c;
        unsigned char out[4];
        int length = llm_utf8_next((const unsigned char *)from->p + i, from->n - i, &c);
        size_t n = length > 0 ? (size_t)llm_utf8_put((uint32_t)utf8proc_tolower((utf8proc_int32_t)c), out) : 1;
        if (llm_buf_put(to, length > 0 ? (const char *)out : from->p + i, n, e) < 0) return -1;
        i += length > 0 ? (size_t)length : 1;
    }
    return 0;
}

static void exchange(struct llm_buf *a, struct llm_buf *b)
{
    struct llm_buf t = *a;
    *a = *b;
    *b = t;
}

/* Puts what is compared of an answer into `out`. 1 or -1. */
static int put_clean(const struct llm_extract *x, const char *text, size_t n, struct llm_buf *out, struct llm_err *e)
{
    struct llm_buf a = {0}, b = {0};
    int status = llm_buf_reserve(&a, n + 1, e) < 0 || llm_buf_put(&a, text, n, e) < 0 ? -1 : 0;
    if (status == 0) strip(&a);
    for (size_t i = 0; i < x->n_ignore && status == 0; i++) {
        status = without(x->ignore[i], &a, &b, e);
        exchange(&a, &b);
    }
    if (status == 0) strip(&a);
    if (status == 0 && x->any_case) {
        status = lower(&a, &b, e);
        exchange(&a, &b);
    }
    if (status == 0) status = llm_buf_put(out, a.p, a.n, e);
    llm_buf_release(&a);
    llm_buf_release(&b);
    return status < 0 ? -1 : 1;
}

int llm_extract_answer(const struct llm_extract *x, const char *text, size_t n, struct llm_buf *out, struct llm_err *e)
{
    size_t begin, end;
    int got = find(x, text, n, &begin, &end, e);
    return got == 1 ? put_clean(x, text + begin, end - begin, out, e) : got;
}

int llm_extract_gold(const struct llm_extract *x, const char *text, size_t n, struct llm_buf *out, struct llm_err *e)
{
    int got = llm_extract_answer(x, text, n, out, e);
    if (got == 0) got = put_clean(x, text, n, out, e);
    return got < 0 ? -1 : 0;
}
