/* Values as text, as Python's str(), repr() and json.dumps() write them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "token/chat/jinja.h"
#include "token/unicode.h"

int llm_jinja_show_real(struct work *w, double d)
{
    char text[40], digits[24], out[40];
    if (isnan(d)) return llm_jinja_puts(w, "nan");
    if (isinf(d)) return llm_jinja_puts(w, d < 0 ? "-inf" : "inf");
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, fabs(d));
        if (strtod(text, NULL) == fabs(d)) break;
    }
    const char *e = strchr(text, 'e');
    int exponent = (int)strtol(e + 1, NULL, 10), n = 0;
    for (const char *p = text; p < e; p++)
        if (*p != '.') digits[n++] = *p;
    const char *sign = signbit(d) ? "-" : "";
    if (exponent < -4 || exponent >= 16) {
        snprintf(out, sizeof out, "%s%c%s%.*se%+03d", sign, digits[0], n > 1 ? "." : "", n - 1, digits + 1, exponent);
    } else if (exponent < 0) {
        snprintf(out, sizeof out, "%s0.%.*s%.*s", sign, -exponent - 1, "0000", n, digits);
    } else {
        int before = n < exponent + 1 ? n : exponent + 1, zeros = exponent + 1 - before;
        snprintf(out, sizeof out, "%s%.*s%.*s.%.*s", sign, before, digits, zeros, "0000000000000000", n > before ? n - before : 1,
                 n > before ? digits + before : "0");
    }
    return llm_jinja_puts(w, out);
}

static int put_int(struct work *w, int64_t i)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, i);
    return llm_jinja_puts(w, text);
}

/* A quoted Python literal. */
static int repr_text(struct work *w, const struct text *t)
{
    char quote = memchr(t->p, '\'', t->n) && !memchr(t->p, '"', t->n) ? '"' : '\'', small[16];
    if (llm_jinja_put(w, &quote, 1) < 0) return -1;
    for (size_t i = 0; i < t->n;) {
        uint32_t cp;
        int n = llm_utf8_next((const unsigned char *)t->p + i, t->n - i, &cp), got;
        if (n <= 0) n = 1, cp = (unsigned char)t->p[i];
        if (cp == '\n' || cp == '\r' || cp == '\t') {
            snprintf(small, sizeof small, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
            got = llm_jinja_puts(w, small);
        } else if (cp == '\\' || cp == (uint32_t)quote) {
            snprintf(small, sizeof small, "\\%c", (char)cp);
            got = llm_jinja_puts(w, small);
        } else if (llm_jinja_char_is("printable", cp)) {
            got = llm_jinja_put(w, t->p + i, (size_t)n);
        } else {
            snprintf(small, sizeof small, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
            got = llm_jinja_puts(w, small);
        }
        if (got < 0 || llm_jinja_step(w, 1) < 0) return -1;
        i += (size_t)n;
    }
    return llm_jinja_put(w, &quote, 1);
}

static int repr_list(struct work *w, const struct value *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((i && llm_jinja_puts(w, ", ") < 0) || llm_jinja_repr(w, v[i]) < 0) return -1;
    return 0;
}

static int repr_sequence(struct work *w, const struct sequence *s)
{
    switch (s->kind) {
    case S_LIST: return llm_jinja_puts(w, "[") < 0 || repr_list(w, s->v, s->n) < 0 ? -1 : llm_jinja_puts(w, "]");
    case S_TUPLE: return llm_jinja_puts(w, "(") < 0 || repr_list(w, s->v, s->n) < 0 ? -1 : llm_jinja_puts(w, s->n == 1 ? ",)" : ")");
    case S_RANGE: case S_GENERATOR: {
        char text[96];
        if (s->kind == S_GENERATOR) return llm_jinja_puts(w, "<generator object>");
        snprintf(text, sizeof text, s->step == 1 ? "range(%" PRId64 ", %" PRId64 ")" : "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", s->start,
                 s->stop, s->step);
        return llm_jinja_puts(w, text);
    }
    default:
        if (llm_jinja_puts(w, s->kind == S_KEYS ? "dict_keys([" : s->kind == S_VALUES ? "dict_values([" : "dict_items([") < 0) return -1;
        return repr_list(w, s->v, s->n) < 0 ? -1 : llm_jinja_puts(w, "])");
    }
}

static int repr_dict(struct work *w, const struct dict *d)
{
    if (llm_jinja_puts(w, d->is_namespace ? "<Namespace {" : "{") < 0) return -1;
    for (size_t i = 0; i < d->n; i++) {
        if ((i && llm_jinja_puts(w, ", ") < 0) || llm_jinja_repr(w, d->keys[i]) < 0 || llm_jinja_puts(w, ": ") < 0
            || llm_jinja_repr(w, d->values[i]) < 0) return -1;
    }
    return llm_jinja_puts(w, d->is_namespace ? "}>" : "}");
}

int llm_jinja_repr(struct work *w, struct value v)
{
    int status;
    if (llm_jinja_step(w, 1) < 0 || llm_jinja_enter(w) < 0) return -1;
    switch (v.type) {
    case V_UNDEFINED: status = llm_jinja_puts(w, "Undefined"); break;
    case V_NONE: status = llm_jinja_puts(w, "None"); break;
    case V_BOOL: status = llm_jinja_puts(w, v.as.truth ? "True" : "False"); break;
    case V_INT: status = put_int(w, v.as.integer); break;
    case V_REAL: status = llm_jinja_show_real(w, v.as.real); break;
    case V_TEXT:
        status = v.as.text->safe ? llm_jinja_puts(w, "Markup(") : 0;
        if (status == 0) status = repr_text(w, v.as.text);
        if (status == 0 && v.as.text->safe) status = llm_jinja_puts(w, ")");
        break;
    case V_SEQUENCE: status = repr_sequence(w, v.as.sequence); break;
    case V_DICT: status = repr_dict(w, v.as.dict); break;
    case V_METHOD:
        status = llm_jinja_puts(w, "<built-in method ") < 0 || llm_jinja_puts(w, v.as.method->name) < 0 ? -1 : llm_jinja_puts(w, ">");
        break;
    default: status = llm_jinja_puts(w, "<") < 0 || llm_jinja_puts(w, llm_jinja_type(v)) < 0 ? -1 : llm_jinja_puts(w, ">"); break;
    }
    llm_jinja_leave(w);
    return status;
}

int llm_jinja_show(struct work *w, struct value v)
{
    if (v.type == V_UNDEFINED) return 0;
    if (v.type == V_TEXT) return llm_jinja_put(w, v.as.text->p, v.as.text->n);
    return llm_jinja_repr(w, v);
}

struct value llm_jinja_str(struct work *w, struct value v)
{
    size_t mark = w->out.n;
    if (v.type == V_TEXT) return v;
    if (llm_jinja_show(w, v) < 0) return (struct value){.type = V_ERROR};
    return llm_jinja_take(w, mark);
}

struct json_style { bool ascii, sort; const struct text *indent, *comma, *colon; };

static int json_text(struct work *w, const struct text *t, bool ascii)
{
    if (llm_jinja_put(w, "\"", 1) < 0) return -1;
    for (size_t i = 0; i < t->n;) {
        char small[16];
        uint32_t cp;
        int n = llm_utf8_next((const unsigned char *)t->p + i, t->n - i, &cp), got;
        if (n <= 0) n = 1, cp = 0xFFFD;
        const char *named = cp == '"' || cp == '\\' ? (cp == '"' ? "\\\"" : "\\\\") : cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : cp == '\t' ? "\\t"
            : cp == '\b' ? "\\b" : cp == '\f' ? "\\f" : NULL;
        if (named) {
            got = llm_jinja_puts(w, named);
        } else if (cp < 0x20 || (ascii && cp >= 0x7f)) {
            if (cp < 0x10000) snprintf(small, sizeof small, "\\u%04x", cp);
            else snprintf(small, sizeof small, "\\u%04x\\u%04x", 0xD7C0 + (cp >> 10), 0xDC00 + (cp & 0x3FF));
            got = llm_jinja_puts(w, small);
        } else {
            got = llm_jinja_put(w, t->p + i, (size_t)n);
        }
        if (got < 0 || llm_jinja_step(w, 1) < 0) return -1;
        i += (size_t)n;
    }
    return llm_jinja_put(w, "\"", 1);
}

static int json_newline(struct work *w, const struct json_style *style, int depth)
{
    if (!style->indent) return 0;
    if (llm_jinja_put(w, "\n", 1) < 0) return -1;
    for (int i = 0; i < depth; i++)
        if (llm_jinja_put(w, style->indent->p, style->indent->n) < 0) return -1;
    return 0;
}

static int put_json_real(struct work *w, double d)
{
    if (isnan(d)) return llm_jinja_puts(w, "NaN");
    return isinf(d) ? llm_jinja_puts(w, d < 0 ? "-Infinity" : "Infinity") : llm_jinja_show_real(w, d);
}

static int json_scalar(struct work *w, const struct json_style *style, struct value v)
{
    switch (v.type) {
    case V_NONE: return llm_jinja_puts(w, "null");
    case V_BOOL: return llm_jinja_puts(w, v.as.truth ? "true" : "false");
    case V_INT: return put_int(w, v.as.integer);
    case V_REAL: return put_json_real(w, v.as.real);
    case V_TEXT: return json_text(w, v.as.text, style->ascii);
    default: return llm_jinja_error(w, "Object of type %s is not JSON serializable", llm_jinja_type(v));
    }
}

static int json_key(struct work *w, const struct json_style *style, struct value key)
{
    bool quoted = key.type == V_TEXT;
    if (key.type == V_SEQUENCE) return llm_jinja_error(w, "keys must be str, int, float, bool or None, not tuple");
    if (!quoted && llm_jinja_put(w, "\"", 1) < 0) return -1;
    if (json_scalar(w, style, key) < 0) return -1;
    return quoted ? 0 : llm_jinja_put(w, "\"", 1);
}

static int by_key(const void *a, const void *b, void *arg)
{
    const struct dict *d = arg;
    struct value x = d->keys[*(const uint32_t *)a], y = d->keys[*(const uint32_t *)b];
    if (x.type != V_TEXT || y.type != V_TEXT) return number(x) < number(y) ? -1 : number(x) > number(y);
    size_t n = x.as.text->n < y.as.text->n ? x.as.text->n : y.as.text->n;
    int c = memcmp(x.as.text->p, y.as.text->p, n);
    return c ? c : (x.as.text->n > y.as.text->n) - (x.as.text->n < y.as.text->n);
}

/* The order in which a dict's members are written. */
static uint32_t *json_order(struct work *w, const struct json_style *style, const struct dict *d)
{
    uint32_t *order = llm_jinja_alloc(w, (d->n + 1) * sizeof *order);
    if (!order || llm_jinja_step(w, d->n * 8) < 0) return NULL;
    for (size_t i = 0; i < d->n; i++) order[i] = (uint32_t)i;
    if (!style->sort || d->n < 2) return order;
    for (size_t i = 0; i < d->n; i++)
        if ((d->keys[i].type == V_TEXT) != (d->keys[0].type == V_TEXT) || (d->keys[i].type != V_TEXT && !is_number(d->keys[i]))) {
            llm_jinja_error(w, "sort_keys: keys of different types have no order");
            return NULL;
        }
    qsort_r(order, d->n, sizeof *order, by_key, (void *)(uintptr_t)d);
    return order;
}

static int json_value(struct work *w, const struct json_style *style, struct value v, int depth);

static int json_members(struct work *w, const struct json_style *style, struct value v, int depth)
{
    bool is_dict = v.type == V_DICT;
    size_t n = is_dict ? v.as.dict->n : v.as.sequence->n;
    uint32_t *order = is_dict ? json_order(w, style, v.as.dict) : NULL;
    if (is_dict && !order) return -1;
    if (n == 0) return llm_jinja_puts(w, is_dict ? "{}" : "[]");
    if (llm_jinja_puts(w, is_dict ? "{" : "[") < 0) return -1;
    for (size_t i = 0; i < n; i++) {
        if ((i && llm_jinja_put(w, style->comma->p, style->comma->n) < 0) || json_newline(w, style, depth + 1) < 0) return -1;
        if (is_dict && (json_key(w, style, v.as.dict->keys[order[i]]) < 0 || llm_jinja_put(w, style->colon->p, style->colon->n) < 0)) return -1;
        if (json_value(w, style, is_dict ? v.as.dict->values[order[i]] : v.as.sequence->v[i], depth + 1) < 0) return -1;
    }
    return json_newline(w, style, depth) < 0 ? -1 : llm_jinja_puts(w, is_dict ? "}" : "]");
}

static int json_value(struct work *w, const struct json_style *style, struct value v, int depth)
{
    int status;
    if (llm_jinja_step(w, 1) < 0 || llm_jinja_enter(w) < 0) return -1;
    if (is_kind(v, S_LIST) || is_kind(v, S_TUPLE) || (v.type == V_DICT && !v.as.dict->is_namespace)) status = json_members(w, style, v, depth);
    else status = json_scalar(w, style, v);
    llm_jinja_leave(w);
    return status;
}

struct value llm_jinja_to_json(struct work *w, const struct value arg[5])
{
    static const struct text comma = {",", 1, 1, false}, comma_space = {", ", 2, 2, false}, colon = {": ", 2, 2, false};
    struct json_style style = {arg[1].type != V_ABSENT && llm_jinja_truth(arg[1]), arg[4].type != V_ABSENT && llm_jinja_truth(arg[4]), NULL,
                               &comma_space, &colon};
    struct text spaces = {"", 0, 0, false};
    size_t mark = w->out.n;
    if (arg[2].type == V_TEXT) {
        style.indent = arg[2].as.text;
    } else if (is_whole(arg[2])) {
        int64_t n = whole(arg[2]) < 0 ? 0 : whole(arg[2]);
        char *p = n > 1 << 20 ? NULL : llm_jinja_alloc(w, (size_t)n + 1);
        if (!p) return n > 1 << 20 ? llm_jinja_fail(w, "tojson: an indent of %" PRId64, n) : (struct value){.type = V_ERROR};
        memset(p, ' ', (size_t)n);
        spaces = (struct text){p, (size_t)n, (size_t)n, false};
        style.indent = &spaces;
    }
    if (style.indent) style.comma = &comma;
    if (arg[3].type == V_SEQUENCE && arg[3].as.sequence->n == 2 && arg[3].as.sequence->v[0].type == V_TEXT
        && arg[3].as.sequence->v[1].type == V_TEXT) {
        style.comma = arg[3].as.sequence->v[0].as.text;
        style.colon = arg[3].as.sequence->v[1].as.text;
    } else if (arg[3].type != V_ABSENT && arg[3].type != V_NONE) {
        return llm_jinja_fail(w, "tojson: separators: expected two strings");
    }
    if (json_value(w, &style, arg[0], 0) < 0) return (struct value){.type = V_ERROR};
    return llm_jinja_take(w, mark);
}
