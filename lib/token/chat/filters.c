/* Filters: value|name(arguments). Those of sequences are in filters_sequence.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "token/chat/filters.h"

static const struct value error = {.type = V_ERROR};

static bool truth_or(struct value v, bool otherwise)
{
    return v.type == V_ABSENT ? otherwise : llm_jinja_truth(v);
}

static struct value filter_trim(struct work *w, struct value v, const struct value *arg)
{
    v = llm_jinja_str(w, v);
    return is_error(v) ? v : llm_jinja_strip(w, v.as.text, arg[0], STRIP_LEFT | STRIP_RIGHT);
}

static struct value filter_tojson(struct work *w, struct value v, const struct value *arg)
{
    /* transformers puts ensure_ascii first. */
    const struct value all[5] = {v, arg[0], arg[1], arg[2], arg[3]};
    return llm_jinja_to_json(w, all);
}

static struct value filter_length(struct work *w, struct value v, const struct value *arg)
{
    (void)arg;
    if (v.type == V_TEXT) return v_int((int64_t)llm_jinja_chars(v.as.text));
    if (v.type == V_SEQUENCE && v.as.sequence->kind != S_GENERATOR) return v_int((int64_t)v.as.sequence->n);
    if (v.type == V_DICT && !v.as.dict->is_namespace) return v_int((int64_t)v.as.dict->n);
    return v.type == V_UNDEFINED ? v_int(0) : llm_jinja_fail(w, "object of type '%s' has no len()", llm_jinja_type(v));
}

static struct value filter_default(struct work *w, struct value v, const struct value *arg)
{
    bool use = v.type == V_UNDEFINED || (truth_or(arg[1], false) && !llm_jinja_truth(v));
    return !use ? v : arg[0].type == V_ABSENT ? llm_jinja_borrow(w, "", 0) : arg[0];
}

static struct value filter_string(struct work *w, struct value v, const struct value *arg)
{
    (void)arg;
    return llm_jinja_str(w, v);
}

/* A copy of str(v), which is not safe. */
static struct value plain_text(struct work *w, struct value v)
{
    v = llm_jinja_str(w, v);
    return is_error(v) ? v : llm_jinja_borrow(w, v.as.text->p, v.as.text->n);
}

static struct value filter_safe(struct work *w, struct value v, const struct value *arg)
{
    (void)arg;
    v = plain_text(w, v);
    if (!is_error(v)) v.as.text->safe = true;
    return v;
}

static struct value filter_escape(struct work *w, struct value v, const struct value *arg)
{
    (void)arg;
    return llm_jinja_escape(w, v);
}

static struct value filter_forceescape(struct work *w, struct value v, const struct value *arg)
{
    (void)arg;
    v = plain_text(w, v);
    return is_error(v) ? v : llm_jinja_escape(w, v);
}

/* Runs of letters, digits and underscores. */
static struct value filter_wordcount(struct work *w, struct value v, const struct value *arg)
{
    (void)arg;
    int64_t n = 0;
    bool inside = false;
    v = llm_jinja_str(w, v);
    if (is_error(v) || llm_jinja_step(w, v.as.text->n) < 0) return error;
    for (size_t i = 0; i < v.as.text->n;) {
        uint32_t cp = 0;
        const int length = llm_utf8_next((const unsigned char *)v.as.text->p + i, v.as.text->n - i, &cp);
        const bool word = length > 0 && (cp == '_' || llm_jinja_char_is("alnum", cp));
        n += word && !inside;
        inside = word;
        i += length > 0 ? (size_t)length : 1;
    }
    return v_int(n);
}

/* Percent signs for what may not stand in a URL. in_query: between = and &, where a space is +. */
static int put_quoted(struct work *w, struct value v, bool in_query)
{
    v = llm_jinja_str(w, v);
    if (is_error(v)) return -1;
    for (size_t i = 0; i < v.as.text->n; i++) {
        const unsigned char c = (unsigned char)v.as.text->p[i];
        const bool same = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c && strchr(in_query ? "_.-~" : "_.-~/", c));
        char text[8];
        if (same || (in_query && c == ' ')) snprintf(text, sizeof text, "%c", same ? c : '+');
        else snprintf(text, sizeof text, "%%%02X", c);
        if (llm_jinja_puts(w, text) < 0) return -1;
    }
    return 0;
}

static struct value filter_urlencode(struct work *w, struct value v, const struct value *arg)
{
    (void)arg;
    size_t mark = w->out.n;
    const bool is_dict = v.type == V_DICT && !v.as.dict->is_namespace;
    struct sequence *pairs, *pair;
    if (!is_dict && v.type != V_SEQUENCE && v.type != V_UNDEFINED) return put_quoted(w, v, false) < 0 ? error : llm_jinja_take(w, mark);
    if (is_dict) v = llm_jinja_method(w, v, "items", &(struct call){0});
    if (is_error(v) || llm_jinja_items(w, v, &pairs) < 0) return error;
    for (size_t i = 0; i < pairs->n; i++) {
        if (llm_jinja_items(w, pairs->v[i], &pair) < 0) return error;
        if (pair->n != 2) return llm_jinja_fail(w, "urlencode: expected pairs, found a sequence of %zu", pair->n);
        if ((i && llm_jinja_puts(w, "&") < 0) || put_quoted(w, pair->v[0], true) < 0 || llm_jinja_puts(w, "=") < 0
            || put_quoted(w, pair->v[1], true) < 0) return error;
    }
    return llm_jinja_take(w, mark);
}

static struct value change_case(struct work *w, struct value v, enum text_case to)
{
    v = llm_jinja_str(w, v);
    return is_error(v) ? v : llm_jinja_case(w, v.as.text, to);
}

static struct value filter_upper(struct work *w, struct value v, const struct value *arg) { (void)arg; return change_case(w, v, CASE_UPPER); }
static struct value filter_lower(struct work *w, struct value v, const struct value *arg) { (void)arg; return change_case(w, v, CASE_LOWER); }
static struct value filter_title(struct work *w, struct value v, const struct value *arg)
{
    (void)arg;
    return change_case(w, v, CASE_JINJA_TITLE);
}
static struct value filter_capitalize(struct work *w, struct value v, const struct value *arg)
{
    (void)arg;
    return change_case(w, v, CASE_CAPITAL);
}

static struct value filter_replace(struct work *w, struct value v, const struct value *arg)
{
    if (arg[0].type == V_ABSENT || arg[1].type == V_ABSENT) return llm_jinja_fail(w, "replace: expected what to replace and with what");
    struct value old = llm_jinja_str(w, arg[0]), with = llm_jinja_str(w, arg[1]);
    v = plain_text(w, v);
    if (is_error(old) || is_error(with) || is_error(v)) return error;
    return llm_jinja_replace(w, v.as.text, old.as.text, with.as.text, is_whole(arg[2]) ? whole(arg[2]) : -1);
}

/* Python's int() or float() of a string: white space around, underscores between digits. The number, or an error in *bad. */
static double parse_real(const struct text *t, bool *bad)
{
    char text[128];
    size_t n = 0, from = llm_utf8_skip_space(t->p, t->n, 0), to = llm_utf8_trim_end(t->p, t->n);
    *bad = true;
    for (size_t i = from; i < to; i++) {
        if (n + 1 == sizeof text || t->p[i] == 0) return 0;
        if (t->p[i] != '_') text[n++] = t->p[i];
        else if (i == from || i + 1 == to || t->p[i - 1] == '_') return 0;
    }
    text[n] = 0;
    /* strtod takes hexadecimal too, which float() does not. */
    if (n == 0 || strpbrk(text, "xXpP(")) return 0;
    char *end;
    double d = strtod(text, &end);
    *bad = *end != 0;
    return d;
}

static struct value parse_integer(struct work *w, const struct text *t, int64_t base)
{
    size_t from = llm_utf8_skip_space(t->p, t->n, 0), to = llm_utf8_trim_end(t->p, t->n), digits = 0;
    const struct value bad = {.type = V_ABSENT};
    bool minus = from < to && t->p[from] == '-';
    if (from < to && (t->p[from] == '-' || t->p[from] == '+')) from++;
    if (to - from > 2 && to > from && t->p[from] == '0') {
        char c = (char)(t->p[from + 1] | 0x20);
        if ((c == 'x' && (base == 16 || base == 0)) || (c == 'o' && (base == 8 || base == 0)) || (c == 'b' && (base == 2 || base == 0))) {
            base = c == 'x' ? 16 : c == 'o' ? 8 : 2;
            from += 2;
        }
    }
    if (base == 0) base = 10;
    if (base < 2 || base > 36) return bad;
    int64_t n = 0;
    for (size_t i = from; i < to; i++) {
        char c = t->p[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10 : 99;
        if (c == '_' && digits && i + 1 < to && t->p[i - 1] != '_') continue;
        if (digit >= base) return bad;
        digits++;
        if (__builtin_mul_overflow(n, base, &n) || __builtin_add_overflow(n, minus ? -digit : digit, &n))
            return llm_jinja_fail(w, "an integer of more than 64 bits");
    }
    return digits ? v_int(n) : bad;
}

static struct value filter_int(struct work *w, struct value v, const struct value *arg)
{
    struct value fallback = arg[0].type == V_ABSENT ? v_int(0) : arg[0];
    double d = 0;
    bool bad = false;
    if (is_whole(v)) return v_int(whole(v));
    if (v.type == V_UNDEFINED) return llm_jinja_item(w, v, v_none()); /* says so */
    if (v.type == V_TEXT) {
        struct value got = parse_integer(w, v.as.text, is_whole(arg[1]) ? whole(arg[1]) : 10);
        if (got.type != V_ABSENT) return got;
        d = parse_real(v.as.text, &bad);
    } else if (v.type == V_REAL) {
        d = v.as.real;
    } else {
        bad = true;
    }
    if (bad || !isfinite(d)) return fallback;
    if (fabs(d) >= 9223372036854775808.0) return llm_jinja_fail(w, "an integer of more than 64 bits");
    return v_int((int64_t)d);
}

static struct value filter_float(struct work *w, struct value v, const struct value *arg)
{
    bool bad = !is_number(v);
    if (v.type == V_UNDEFINED) return llm_jinja_item(w, v, v_none());
    double d = is_number(v) ? number(v) : v.type == V_TEXT ? parse_real(v.as.text, &bad) : 0;
    return !bad ? v_real(d) : arg[0].type == V_ABSENT ? v_real(0) : arg[0];
}

static struct value filter_abs(struct work *w, struct value v, const struct value *arg)
{
    (void)arg;
    if (v.type == V_REAL) return v_real(fabs(v.as.real));
    if (!is_whole(v)) return llm_jinja_fail(w, "bad operand type for abs(): '%s'", llm_jinja_type(v));
    return whole(v) < 0 ? llm_jinja_negative(w, v, false) : v_int(whole(v));
}

/* Half to even at `precision` decimals, by the number's exact decimal value, as Python's round. */
static double round_common(double d, int precision)
{
    char text[400];
    if (precision < 0) {
        double unit = pow(10, -precision);
        return nearbyint(d / unit) * unit;
    }
    if (precision > 60 || fabs(d) >= 1e16) return d;
    snprintf(text, sizeof text, "%.*f", precision, d);
    return strtod(text, NULL);
}

static struct value filter_round(struct work *w, struct value v, const struct value *arg)
{
    int64_t precision = is_whole(arg[0]) ? whole(arg[0]) : 0;
    const struct text common = {"common", 6, 6, false}, *method = arg[1].type == V_TEXT ? arg[1].as.text : &common;
    if (!is_number(v)) return llm_jinja_fail(w, "type %s has no round", llm_jinja_type(v));
    if (precision < -300 || precision > 300) return llm_jinja_fail(w, "round: a precision of at most 300");
    if (method->n == 6 && memcmp(method->p, "common", 6) == 0)
        return is_whole(v) && precision >= 0 ? v_int(whole(v)) : is_whole(v) ? v_int((int64_t)round_common(number(v), (int)precision))
            : v_real(round_common(number(v), (int)precision));
    bool ceil_it = method->n == 4 && memcmp(method->p, "ceil", 4) == 0;
    if (!ceil_it && !(method->n == 5 && memcmp(method->p, "floor", 5) == 0)) return llm_jinja_fail(w, "method must be common, ceil or floor");
    double unit = pow(10, (double)precision), scaled = number(v) * unit;
    return v_real((ceil_it ? ceil(scaled) : floor(scaled)) / unit);
}

static struct value filter_indent(struct work *w, struct value v, const struct value *arg)
{
    size_t mark = w->out.n;
    bool first = truth_or(arg[1], false), blank = truth_or(arg[2], false);
    struct value width = arg[0].type == V_ABSENT ? v_int(4) : arg[0], spaces = llm_jinja_borrow(w, " ", 1);
    if (v.type != V_TEXT) return llm_jinja_fail(w, "indent: expected a string, found %s", llm_jinja_type(v));
    if (width.type != V_TEXT) width = is_error(spaces) ? spaces : llm_jinja_binary(w, OP_MUL, spaces, width);
    struct value lines = llm_jinja_lines(w, v.as.text, false);
    if (is_error(width) || is_error(lines)) return error;
    const struct sequence *s = lines.as.sequence;
    /* A line end is put after the text before it is cut into lines: one that ends with a line end has an empty last line. */
    const struct text *t = v.as.text, *by = width.as.text;
    bool ends = t->n == 0 || t->p[t->n - 1] == '\n';
    for (size_t i = 0; i < s->n + ends; i++) {
        const struct text empty = {"", 0, 0, false}, *line = i < s->n ? s->v[i].as.text : &empty;
        bool indented = i == 0 ? first : blank || line->n > 0;
        if ((i && llm_jinja_put(w, "\n", 1) < 0) || (indented && llm_jinja_put(w, by->p, by->n) < 0) || llm_jinja_put(w, line->p, line->n) < 0)
            return error;
    }
    return llm_jinja_take(w, mark);
}

static struct value filter_truncate(struct work *w, struct value v, const struct value *arg)
{
    int64_t length = is_whole(arg[0]) ? whole(arg[0]) : 255, leeway = is_whole(arg[3]) ? whole(arg[3]) : 5;
    struct value end = arg[2].type == V_TEXT ? arg[2] : llm_jinja_borrow(w, "...", 3), range[3] = {{0}};
    const struct value size = filter_length(w, v, NULL);
    if (is_error(size) || is_error(end)) return error;
    int64_t end_chars = (int64_t)llm_jinja_chars(end.as.text);
    if (length < end_chars || leeway < 0 || leeway > INT32_MAX || length > INT32_MAX)
        return llm_jinja_fail(w, "truncate: a length that does not fit");
    if (size.as.integer <= length + leeway) return v; /* a list, too */
    if (v.type != V_TEXT) return llm_jinja_fail(w, "truncate: expected a string, found %s", llm_jinja_type(v));
    range[1] = v_int(length - end_chars);
    v = llm_jinja_slice(w, v, range);
    if (is_error(v)) return v;
    if (!truth_or(arg[1], false)) {
        const char *space = memrchr(v.as.text->p, ' ', v.as.text->n);
        if (space) v = llm_jinja_borrow(w, v.as.text->p, (size_t)(space - v.as.text->p));
    }
    return is_error(v) ? v : llm_jinja_binary(w, OP_ADD, v, end);
}

static struct value filter_center(struct work *w, struct value v, const struct value *arg)
{
    const struct value width = arg[0].type == V_ABSENT ? v_int(80) : arg[0];
    const struct call c = {.v = &width, .n = 1};
    v = llm_jinja_str(w, v);
    return is_error(v) ? v : llm_jinja_method(w, v, "center", &c);
}

static struct value filter_attr(struct work *w, struct value v, const struct value *arg)
{
    if (arg[0].type != V_TEXT) return llm_jinja_fail(w, "attr: expected a name");
    if (v.type == V_DICT && !v.as.dict->is_namespace) {
        struct value method = llm_jinja_find_method(w, v, arg[0].as.text);
        return method.type == V_ABSENT ? llm_jinja_undefined(w, llm_jinja_type(v), arg[0], NULL) : method;
    }
    return llm_jinja_attribute(w, v, arg[0]);
}

static const struct filter filters[] = {
    {"trim", "chars", filter_trim}, {"tojson", "ensure_ascii indent separators sort_keys", filter_tojson}, {"length", "", filter_length},
    {"count", "", filter_length}, {"default", "default_value boolean", filter_default}, {"d", "default_value boolean", filter_default},
    {"string", "", filter_string}, {"safe", "", filter_safe}, {"escape", "", filter_escape}, {"e", "", filter_escape},
    {"forceescape", "", filter_forceescape}, {"wordcount", "", filter_wordcount}, {"urlencode", "", filter_urlencode},
    {"upper", "", filter_upper}, {"lower", "", filter_lower}, {"capitalize", "", filter_capitalize}, {"title", "", filter_title},
    {"replace", "old new count", filter_replace}, {"int", "default base", filter_int}, {"float", "default", filter_float},
    {"abs", "", filter_abs}, {"round", "precision method", filter_round}, {"indent", "width first blank", filter_indent},
    {"truncate", "length killwords end leeway", filter_truncate}, {"center", "width", filter_center}, {"attr", "name", filter_attr}, {0}};

static const struct filter *find(const char *name)
{
    for (const struct filter *f = filters; f->name; f++)
        if (strcmp(f->name, name) == 0) return f;
    for (const struct filter *f = llm_jinja_sequence_filters; f->name; f++)
        if (strcmp(f->name, name) == 0) return f;
    return NULL;
}

bool llm_jinja_is_filter(const char *name)
{
    return find(name) != NULL || llm_jinja_selects(name) || strcmp(name, "map") == 0 || strcmp(name, "format") == 0;
}

static struct value format(struct work *w, struct value v, const struct call *c)
{
    struct value args = llm_jinja_sequence(w, S_TUPLE, c->n), by_name = llm_jinja_dict(w);
    v = llm_jinja_str(w, v);
    if (is_error(v) || is_error(args) || is_error(by_name)) return error;
    if (c->n && c->n_kw) return llm_jinja_fail(w, "format: expected arguments by place or by name, found both");
    for (size_t i = 0; i < c->n; i++)
        if (llm_jinja_append(w, args.as.sequence, c->v[i]) < 0) return error;
    for (size_t i = 0; i < c->n_kw; i++)
        if (llm_jinja_dict_set(w, by_name.as.dict, llm_jinja_borrow(w, c->kw[i].name, strlen(c->kw[i].name)), c->kw[i].v) < 0) return error;
    return llm_jinja_format(w, v, c->n_kw ? by_name : args);
}

struct value llm_jinja_filter(struct work *w, const char *name, struct value v, const struct call *c)
{
    struct value arg[MAX_FILTER_ARGUMENTS];
    if (llm_jinja_step(w, 1) < 0) return error;
    if (llm_jinja_selects(name)) return llm_jinja_select(w, name, v, c);
    if (strcmp(name, "map") == 0) return llm_jinja_map(w, v, c);
    if (strcmp(name, "format") == 0) return format(w, v, c);
    const struct filter *f = find(name);
    if (!f) return llm_jinja_fail(w, "No filter named '%s'.", name);
    if (llm_jinja_bind(w, name, f->params, c, arg) < 0) return error;
    return f->run(w, v, arg);
}
