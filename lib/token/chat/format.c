/* "%s and %d" % (a, b), and "{} and {0:>8}".format(a, b). */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "token/chat/jinja.h"

enum { MAX_WIDTH = 10000 };
static const struct value error = {.type = V_ERROR};

struct spec {
    char fill[4], align, sign, type; /* align: '<', '>', '^', '=' (after the sign) or 0; type 0: by the value */
    int width, precision;            /* precision -1: not given */
    bool alternate;
};

/* Digits at *p as a number; -1: too many. */
static int small_number(const char **p, const char *end)
{
    int n = 0;
    for (; *p < end && isdigit((unsigned char)**p); ++*p) {
        n = n * 10 + (**p - '0');
        if (n > MAX_WIDTH) return -1;
    }
    return n;
}

/* The body that stands in the field, on top of the text under way. */
static int put_integer(struct work *w, const struct spec *s, int64_t i)
{
    char text[80];
    const char *sign = i < 0 ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const char *prefix = !s->alternate ? "" : s->type == 'x' ? "0x" : s->type == 'X' ? "0X" : s->type == 'o' ? "0o" : "";
    int precision = s->precision > 60 ? 60 : s->precision < 0 ? 1 : s->precision;
    const char *format = s->type == 'x' ? "%s%s%.*" PRIx64 : s->type == 'X' ? "%s%s%.*" PRIX64 : s->type == 'o' ? "%s%s%.*" PRIo64 : "%s%s%.*" PRIu64;
    snprintf(text, sizeof text, format, sign, prefix, precision, u);
    return llm_jinja_puts(w, text);
}

static int put_real(struct work *w, const struct spec *s, double d)
{
    char format[16], text[512];
    const char *sign = signbit(d) ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    int precision = s->precision < 0 ? 6 : s->precision;
    if (llm_jinja_puts(w, sign) < 0) return -1;
    if (!isfinite(d)) return llm_jinja_puts(w, isnan(d) ? "nan" : "inf");
    bool percent = s->type == '%';
    snprintf(format, sizeof format, "%%.*%c%s", percent ? 'f' : s->type, percent ? "%%" : "");
    if (precision > 100) return llm_jinja_error(w, "a format of more than 100 digits");
    snprintf(text, sizeof text, format, precision, fabs(percent ? d * 100 : d));
    return llm_jinja_puts(w, text);
}

static int put_body(struct work *w, const struct spec *s, struct value v)
{
    if (s->type == 'r') return llm_jinja_repr(w, v);
    if (s->type && strchr("dixXo", s->type)) {
        if (v.type == V_REAL && fabs(v.as.real) < 9e18) v = v_int((int64_t)v.as.real);
        if (!is_whole(v)) return llm_jinja_error(w, "%%%c format: a real number is required, not %s", s->type, llm_jinja_type(v));
        return put_integer(w, s, whole(v));
    }
    if (s->type && strchr("fFeEgG%", s->type)) {
        if (!is_number(v)) return llm_jinja_error(w, "%%%c format: a real number is required, not %s", s->type, llm_jinja_type(v));
        return put_real(w, s, number(v));
    }
    if (s->type && s->type != 's') return llm_jinja_error(w, "a format of type '%c'", s->type);
    if (s->precision < 0) return llm_jinja_show(w, v);
    const struct value range[3] = {{.type = V_ABSENT}, v_int(s->precision), {.type = V_ABSENT}};
    v = llm_jinja_str(w, v);
    if (!is_error(v)) v = llm_jinja_slice(w, v, range);
    return is_error(v) ? -1 : llm_jinja_show(w, v);
}

static int put_fill(struct work *w, const struct spec *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (llm_jinja_puts(w, s->fill) < 0) return -1;
    return 0;
}

static int put_field(struct work *w, const struct spec *s, struct value v)
{
    size_t mark = w->out.n, skip = 0;
    if (put_body(w, s, v) < 0) return -1;
    if (s->width == 0) return 0;
    struct value body = llm_jinja_take(w, mark);
    if (is_error(body)) return -1;
    struct text *t = body.as.text;
    size_t n = llm_jinja_chars(t), pad = (size_t)s->width > n ? (size_t)s->width - n : 0;
    size_t left = s->align == '<' ? 0 : s->align == '^' ? pad / 2 : pad;
    if (s->align == '=' && t->n && strchr("+- ", t->p[0])) skip = 1;
    if (llm_jinja_put(w, t->p, skip) < 0 || put_fill(w, s, left) < 0) return -1;
    return llm_jinja_put(w, t->p + skip, t->n - skip) < 0 ? -1 : put_fill(w, s, pad - left);
}

struct fields { struct value args; size_t next; bool is_tuple; };

static struct value next_argument(struct work *w, struct fields *f)
{
    if (!f->is_tuple) {
        if (f->next++ > 0) return llm_jinja_fail(w, "not enough arguments for format string");
        return f->args;
    }
    if (f->next >= f->args.as.sequence->n) return llm_jinja_fail(w, "not enough arguments for format string");
    return f->args.as.sequence->v[f->next++];
}

/* One directive after its '%', at *p. */
static int put_directive(struct work *w, struct fields *f, const char **p, const char *end)
{
    struct spec s = {.fill = " ", .align = '>', .precision = -1};
    struct value v = {.type = V_ABSENT};
    if (*p < end && **p == '(') {
        const char *close = memchr(*p, ')', (size_t)(end - *p));
        if (!close || f->args.type != V_DICT) return llm_jinja_error(w, "format requires a mapping");
        struct value key = llm_jinja_borrow(w, *p + 1, (size_t)(close - *p) - 1);
        struct value *found = is_error(key) ? NULL : llm_jinja_dict_get(f->args.as.dict, key);
        if (!found) return llm_jinja_error(w, "the format names a key that is not there");
        v = *found;
        f->next = 1;
        *p = close + 1;
    }
    for (; *p < end && strchr("-+ 0#", **p); ++*p) {
        if (**p == '-') s.align = '<';
        else if (**p == '0') s.fill[0] = s.align == '<' ? ' ' : '0', s.align = s.align == '<' ? '<' : '=';
        else if (**p == '#') s.alternate = true;
        else s.sign = **p;
    }
    s.width = small_number(p, end);
    if (*p < end && **p == '.') ++*p, s.precision = small_number(p, end);
    if (s.width < 0 || s.precision > MAX_WIDTH || *p >= end) return llm_jinja_error(w, "an incomplete format");
    s.type = *(*p)++;
    if (s.type == '%') return llm_jinja_puts(w, "%");
    if (v.type == V_ABSENT) v = next_argument(w, f);
    if (s.fill[0] == '0' && strchr("sr", s.type)) s.fill[0] = ' ', s.align = '>';
    return is_error(v) ? -1 : put_field(w, &s, v);
}

struct value llm_jinja_format(struct work *w, struct value format, struct value args)
{
    struct fields f = {args, 0, is_kind(args, S_TUPLE)};
    size_t mark = w->out.n;
    const char *p = format.as.text->p, *end = p + format.as.text->n;
    while (p < end) {
        const char *percent = memchr(p, '%', (size_t)(end - p));
        if (llm_jinja_put(w, p, (size_t)((percent ? percent : end) - p)) < 0) return error;
        if (!percent) break;
        p = percent + 1;
        if (put_directive(w, &f, &p, end) < 0) return error;
    }
    size_t n = f.is_tuple ? args.as.sequence->n : args.type == V_DICT || args.type == V_SEQUENCE ? f.next : 1;
    if (f.next < n) return llm_jinja_fail(w, "not all arguments converted during string formatting");
    return llm_jinja_take(w, mark);
}

/* What follows the ':' of a replacement field. */
static int parse_spec(struct work *w, const char *p, const char *end, struct value v, struct spec *s)
{
    *s = (struct spec){.fill = " ", .precision = -1};
    if (end - p >= 2 && strchr("<>^=", p[1]) && p[1]) s->fill[0] = *p++;
    if (p < end && strchr("<>^=", *p)) s->align = *p++;
    if (p < end && strchr("+- ", *p)) s->sign = *p++;
    if (p < end && *p == '#') s->alternate = true, p++;
    if (p < end && *p == '0') {
        p++;
        if (!s->align) s->align = '=', s->fill[0] = '0';
    }
    s->width = small_number(&p, end);
    if (p < end && *p == '.') p++, s->precision = small_number(&p, end);
    if (p < end) s->type = *p++;
    if (p < end || s->width < 0) return llm_jinja_error(w, "a format that is not known here");
    if (!s->align) s->align = is_number(v) ? '>' : '<';
    if (!s->type && is_whole(v) && v.type == V_INT) s->type = 'd';
    return 0;
}

/* name.attribute[index]: the value a replacement field speaks of. */
static struct value field_value(struct work *w, const char *p, const char *end, const struct call *c, size_t *next)
{
    struct value v = {.type = V_ABSENT};
    const char *q = p;
    while (q < end && *q != '.' && *q != '[') q++;
    size_t n = (size_t)(q - p), index = 0;
    bool numeric = true;
    for (size_t i = 0; i < n && numeric; i++) {
        numeric = isdigit((unsigned char)p[i]) && index < 10000;
        index = index * 10 + (size_t)(p[i] - '0');
    }
    if (n == 0) index = (*next)++;
    if (numeric && index < c->n) v = c->v[index];
    for (size_t i = 0; i < c->n_kw && !numeric; i++)
        if (strlen(c->kw[i].name) == n && memcmp(c->kw[i].name, p, n) == 0) v = c->kw[i].v;
    if (v.type == V_ABSENT) return llm_jinja_fail(w, "the format names an argument that is not there");
    while (q < end && !is_error(v)) {
        bool attribute = *q++ == '.';
        const char *stop = q;
        while (stop < end && (attribute ? *stop != '.' && *stop != '[' : *stop != ']')) stop++;
        struct value key = llm_jinja_borrow(w, q, (size_t)(stop - q));
        if (is_error(key)) return key;
        v = attribute ? llm_jinja_attribute(w, v, key) : llm_jinja_path(w, v, key, (struct value){.type = V_ABSENT});
        q = stop + (!attribute && stop < end);
    }
    return v;
}

struct value llm_jinja_format_braces(struct work *w, const struct text *format, const struct call *c)
{
    size_t mark = w->out.n, next = 0;
    const char *p = format->p, *end = p + format->n;
    for (; p < end; p++) {
        struct spec s;
        if ((*p == '{' || *p == '}') && p + 1 < end && p[1] == *p) {
            if (llm_jinja_put(w, p++, 1) < 0) return error;
            continue;
        }
        if (*p == '}') return llm_jinja_fail(w, "Single '}' encountered in format string");
        if (*p != '{') {
            if (llm_jinja_put(w, p, 1) < 0) return error;
            continue;
        }
        const char *close = memchr(p, '}', (size_t)(end - p));
        if (!close) return llm_jinja_fail(w, "expected '}' before end of string");
        const char *colon = memchr(p, ':', (size_t)(close - p)), *name_end = colon ? colon : close, *bang = memchr(p, '!', (size_t)(name_end - p));
        struct value v = field_value(w, p + 1, bang ? bang : name_end, c, &next);
        if (is_error(v) || parse_spec(w, colon ? colon + 1 : close, close, v, &s) < 0) return error;
        if (bang && bang[1] == 'r') s.type = 'r';
        if (put_field(w, &s, v) < 0) return error;
        p = close;
    }
    return llm_jinja_take(w, mark);
}
