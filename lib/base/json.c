#include "base/json.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/paths.h"

json_t *llm_json_parse(const char *text, size_t n, struct llm_err *e)
{
    json_error_t err;
    const size_t mark = llm_utf8_mark(text, n);
    json_t *v = json_loadb(text + mark, n - mark, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &err);
    if (!v && !err.text[0]) llm_no_memory(e, "JSON"); /* jansson has a message for every other failure */
    else if (!v) llm_fail(e, EX_DATAERR, "JSON: line %d, column %d: %s", err.line, err.column, err.text);
    return v;
}

json_t *llm_json_parse_front(const char *text, size_t n, size_t *used)
{
    json_error_t err;
    json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, &err);
    *used = v ? (size_t)err.position : 0;
    return v;
}

/* Rewrites an integer of n digits that has no place in 64 bits as a number with an exponent, in as many characters. */
static void shorten_integer(char *digits, size_t n)
{
    char exponent[8];
    const size_t length = (size_t)snprintf(exponent, sizeof exponent, "e%zu", n - 1);
    memmove(digits + 2, digits + 1, n - 2 - length);
    digits[1] = '.';
    memcpy(digits + n - length, exponent, length);
}

/* The bytes of a JSON number's characters that p begins with. */
static size_t number_length(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] && strchr("+-.0123456789Ee", p[i])) i++;
    return i;
}

/* Brings what Python's json writes outside of strings into the range of jansson's numbers, each in as many characters: Infinity, and integers of more
 * than 64 bits (model_max_length, where transformers know of none: 10^30). */
static void replace_large(char *text, size_t n)
{
    enum { INT64_DIGITS = 18, MAX_DIGITS = 1000 }; /* all integers of 18 digits fit in 64 bits; no double has 1000 */
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (in_string && text[i] == '\\') i++;
        else if (text[i] == '"') in_string = !in_string;
        else if (!in_string && n - i >= 8 && memcmp(text + i, "Infinity", 8) == 0) memcpy(text + i, "1e308   ", 8);
        else if (!in_string && text[i] >= '0' && text[i] <= '9') {
            const size_t length = number_length(text + i, n - i);
            size_t digits = 0;
            while (digits < length && text[i + digits] >= '0' && text[i + digits] <= '9') digits++;
            const int beyond = digits == INT64_DIGITS + 1 ? memcmp(text + i, "9223372036854775808", digits) : 0; /* 2^63, which a minus admits */
            bool large = digits > INT64_DIGITS + 1 || beyond > 0 || (digits == INT64_DIGITS + 1 && beyond == 0 && (i == 0 || text[i - 1] != '-'));
            if (large && digits == length && digits < MAX_DIGITS && text[i] != '0') shorten_integer(text + i, digits);
            i += length - 1;
        }
    }
}

json_t *llm_json_parse_python(char *text, size_t n, struct llm_err *e)
{
    struct llm_err strict;
    json_t *v = llm_json_parse(text, n, &strict); /* nearly every text; only others are rewritten */
    if (v) return v;
    replace_large(text, n);
    return llm_json_parse(text, n, e);
}

json_t *llm_json_load(const char *path, size_t max, struct llm_err *e)
{
    bool is_stdin = strcmp(path, "-") == 0;
    struct llm_buf b = {0};
    json_t *v = NULL;
    if (llm_paths_check_input(path, e) < 0) return NULL;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        llm_fail_errno(e, EX_NOINPUT, "%s", path);
        return NULL;
    }
    ssize_t got = 0;
    do {
        if (b.n >= max) {
            llm_fail(e, EX_DATAERR, "larger than %zu bytes", max);
            goto done;
        }
        if (llm_buf_reserve(&b, b.n + 65536, e) < 0) goto done;
        got = read(fd, b.p + b.n, 65536);
        if (got < 0 && errno != EINTR) {
            llm_fail_errno(e, errno == EISDIR ? EX_NOINPUT : EX_IOERR, "cannot read");
            goto done;
        }
        if (got > 0) b.n += (size_t)got;
    } while (got != 0);
    v = llm_json_parse_python(b.p, b.n, e);
done:
    if (!v) llm_in(e, "%s", is_stdin ? "standard input" : path);
    if (!is_stdin) close(fd);
    llm_buf_release(&b);
    return v;
}

struct dump { struct llm_buf *out; bool failed; };

static int dump_piece(const char *p, size_t n, void *arg)
{
    struct dump *d = arg;
    d->failed |= llm_buf_put(d->out, p, n, NULL) < 0;
    return d->failed ? -1 : 0;
}

int llm_json_dump(const json_t *v, struct llm_buf *out, struct llm_err *e)
{
    struct dump d = {out, false};
    const int got = json_dump_callback(v, dump_piece, &d, JSON_COMPACT | JSON_ENCODE_ANY); /* 0 after failures in keys */
    return got < 0 || d.failed ? llm_no_memory(e, "JSON text") : 0;
}

static const json_t *member(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return v && !json_is_null(v) ? v : NULL;
}

int llm_json_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *out, struct llm_err *e)
{
    const json_t *v = member(o, key);
    if (!v) return 0;
    double r = json_number_value(v);
    if (!json_is_integer(v) && !(json_is_real(v) && r == floor(r) && fabs(r) < 9e15))
        return llm_fail(e, EX_DATAERR, "'%s': expected an integer", key);
    int64_t i = json_is_integer(v) ? (int64_t)json_integer_value(v) : (int64_t)r;
    if (i < min || i > max)
        return llm_fail(e, EX_DATAERR, "'%s': expected %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT
                        ", found %" JSON_INTEGER_FORMAT, key, (json_int_t)min, (json_int_t)max, (json_int_t)i);
    *out = i;
    return 0;
}

int llm_json_real(const json_t *o, const char *key, double *out, struct llm_err *e)
{
    const json_t *v = member(o, key);
    if (!v) return 0;
    if (!json_is_number(v)) return llm_fail(e, EX_DATAERR, "'%s': expected a number", key);
    *out = json_number_value(v);
    return 0;
}

int llm_json_bool(const json_t *o, const char *key, bool *out, struct llm_err *e)
{
    const json_t *v = member(o, key);
    if (!v) return 0;
    if (!json_is_boolean(v)) return llm_fail(e, EX_DATAERR, "'%s': expected true or false", key);
    *out = json_is_true(v);
    return 0;
}

int llm_json_str(const json_t *o, const char *key, const char **out, struct llm_err *e)
{
    const json_t *v = member(o, key);
    if (!v) return 0;
    if (!json_is_string(v)) return llm_fail(e, EX_DATAERR, "'%s': expected a string", key);
    if (strlen(json_string_value(v)) != json_string_length(v)) return llm_fail(e, EX_DATAERR, "'%s': NUL in a string", key);
    *out = json_string_value(v);
    return 0;
}

int llm_json_quote(struct llm_buf *b, const char *s, size_t n, struct llm_err *e)
{
    if (llm_buf_put(b, "\"", 1, e) < 0) return -1;
    for (size_t i = 0; i < n;) {
        unsigned char ch = (unsigned char)s[i];
        uint32_t cp;
        int valid = llm_utf8_next((const unsigned char *)s + i, n - i, &cp);
        size_t length = valid > 0 ? (size_t)valid : 0;
        int got;
        if (ch == '"' || ch == '\\') got = llm_buf_printf(b, e, "\\%c", ch);
        else if (ch == '\n') got = llm_buf_put(b, "\\n", 2, e);
        else if (ch == '\t') got = llm_buf_put(b, "\\t", 2, e);
        else if (ch == '\r') got = llm_buf_put(b, "\\r", 2, e);
        else if (ch < 0x20 || ch == 0x7f) got = llm_buf_printf(b, e, "\\u%04x", ch);
        else if (length == 0) got = llm_buf_put(b, "\xEF\xBF\xBD", 3, e);
        else got = llm_buf_put(b, s + i, length, e);
        if (got < 0) return -1;
        i += length ? length : 1;
    }
    return llm_buf_put(b, "\"", 1, e);
}

json_t *llm_json_text(const char *s, size_t n)
{
    struct llm_buf quoted = {0};
    json_t *v = json_stringn(s, n); /* fails if the bytes are not UTF-8 */
    if (!v && llm_json_quote(&quoted, s, n, NULL) == 0) v = json_loadb(quoted.p, quoted.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    llm_buf_release(&quoted);
    return v;
}

int llm_json_number(struct llm_buf *b, double v, struct llm_err *e)
{
    char text[40];
    if (!isfinite(v)) return llm_buf_put(b, "null", 4, e);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        double back;
        if (sscanf(text, "%lf", &back) == 1 && back == v) break;
    }
    return llm_buf_put(b, text, strlen(text), e);
}
