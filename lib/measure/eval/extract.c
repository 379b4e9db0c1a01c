#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "measure/eval/extract.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"

struct llm_extract {
    pcre2_code *pattern;      /* NULL: the answer is the whole text */
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
    pcre2_code *p = pcre2_compile((PCRE2_SPTR)json_string_value(text), json_string_length(text), PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &code, &at,
                                  NULL);
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

/* The first or last match of a pattern: bytes [*begin, *end). 1, 0 or -1. */
static int find(const pcre2_code *p, const char *text, size_t n, size_t from, bool last, bool group, size_t *begin, size_t *end, struct llm_err *e)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(p, NULL);
    int found = 0;
    if (!data) return llm_no_memory(e, "a match");
    while (from <= n) {
        int got = pcre2_match(p, (PCRE2_SPTR)text, n, from, 0, data, NULL);
        if (got < 0 && got != PCRE2_ERROR_NOMATCH) {
            pcre2_match_data_free(data);
            return llm_fail(e, EX_DATAERR, "a pattern takes too long on a generated text");
        }
        if (got < 0) break;
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(data);
        size_t k = 0; /* the first group that took part */
        for (int i = 1; group && i < got && k == 0; i++) k = v[2 * i] == PCRE2_UNSET ? 0 : (size_t)i;
        *begin = v[2 * k];
        *end = v[2 * k + 1];
        found = 1;
        if (!last) break;
        from = v[1] > v[0] ? v[1] : v[1] + 1;
    }
    pcre2_match_data_free(data);
    return found;
}

int llm_extract_answer(const struct llm_extract *x, const char *text, size_t n, struct llm_buf *out, struct llm_err *e)
{
    size_t begin = 0, end = n, at = out->n;
    int got = x->pattern ? find(x->pattern, text, n, 0, x->last, true, &begin, &end, e) : 1;
    if (got <= 0) return got;
    if (llm_buf_reserve(out, out->n + 1, e) < 0 || llm_buf_put(out, text + begin, end - begin, e) < 0) return -1;
    for (size_t i = 0; i < x->n_ignore; i++) {
        for (size_t from = at; (got = find(x->ignore[i], out->p, out->n, from, false, false, &begin, &end, e)) == 1; from = begin) {
            if (begin == end) break;
            memmove(out->p + begin, out->p + end, out->n - end);
            out->n -= end - begin;
        }
        if (got < 0) return -1;
    }
    const size_t skip = llm_utf8_skip_space(out->p + at, out->n - at, 0), left = llm_utf8_trim_end(out->p + at, out->n - at);
    out->n = at + (left > skip ? left - skip : 0);
    memmove(out->p + at, out->p + at + skip, out->n - at);
    out->p[out->n] = 0;
    for (size_t i = at; x->any_case && i < out->n; i++) out->p[i] = (char)tolower((unsigned char)out->p[i]);
    return 1;
}
