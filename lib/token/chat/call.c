/* Attributes, items, calls, and the functions that every template has. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "token/chat/jinja.h"

enum { MAX_RANGE = 100000 }; /* jinja2's sandbox has the same */
static const struct value error = {.type = V_ERROR};

/* The place of a name in "a b c", or -1. */
static int parameter_index(const char *params, const char *name, int *count)
{
    int found = -1, i = 0;
    size_t n = strlen(name);
    for (const char *p = params; *p; i++) {
        size_t length = strcspn(p, " ");
        if (length == n && memcmp(p, name, n) == 0) found = i;
        p += length;
        p += strspn(p, " ");
    }
    *count = i;
    return found;
}

int llm_jinja_bind(struct work *w, const char *what, const char *params, const struct call *c, struct value *out)
{
    int count;
    parameter_index(params, "", &count);
    for (int i = 0; i < count; i++) out[i] = (struct value){.type = V_ABSENT};
    if (c->n > (size_t)count) return llm_jinja_error(w, "%s: expected at most %d argument(s), found %zu", what, count, c->n);
    for (size_t i = 0; i < c->n; i++) out[i] = c->v[i];
    for (size_t i = 0; i < c->n_kw; i++) {
        int at = parameter_index(params, c->kw[i].name, &count);
        if (at < 0) return llm_jinja_error(w, "%s: no argument is named '%s'", what, c->kw[i].name);
        if (out[at].type != V_ABSENT) return llm_jinja_error(w, "%s: two values for '%s'", what, c->kw[i].name);
        out[at] = c->kw[i].v;
    }
    return 0;
}

static struct value say_undefined(struct work *w, const struct undefined *u)
{
    size_t mark = w->out.n;
    if (u->hint) return llm_jinja_fail(w, "%s", u->hint);
    if (llm_jinja_repr(w, u->name) < 0) return error;
    struct value name = llm_jinja_take(w, mark);
    if (is_error(name)) return name;
    int n = (int)(name.as.text->n < 100 ? name.as.text->n : 100);
    if (!u->owner) return llm_jinja_fail(w, "%.*s is undefined", n, name.as.text->p);
    bool none = strcmp(u->owner, "NoneType") == 0;
    if (u->name.type == V_TEXT)
        return llm_jinja_fail(w, "'%s%s' has no attribute %.*s", none ? "None" : u->owner, none ? "" : " object", n, name.as.text->p);
    return llm_jinja_fail(w, "%s%s has no element %.*s", none ? "None" : u->owner, none ? "" : " object", n, name.as.text->p);
}

/* v[key] without falling back to attributes; V_ABSENT: there is none. */
static struct value plain_item(struct work *w, struct value v, struct value key)
{
    const struct value absent = {.type = V_ABSENT};
    if (v.type == V_DICT && !v.as.dict->is_namespace) {
        struct value *found = llm_jinja_dict_get(v.as.dict, key);
        return found ? *found : absent;
    }
    if (!is_whole(key)) return absent;
    if (v.type == V_TEXT) return llm_jinja_char_at(w, v.as.text, whole(key));
    if (v.type != V_SEQUENCE || v.as.sequence->kind > S_RANGE) return absent;
    int64_t n = (int64_t)v.as.sequence->n, i = whole(key);
    if (i < 0) i += n;
    return i < 0 || i >= n ? absent : v.as.sequence->v[i];
}

static bool is_name(const struct text *t, const char *name)
{
    return t->n == strlen(name) && memcmp(t->p, name, t->n) == 0;
}

/* What Python's getattr gives; V_ABSENT: there is none. */
static struct value plain_attribute(struct work *w, struct value v, const struct text *name)
{
    struct value *found;
    if (v.type == V_DICT && v.as.dict->is_namespace) {
        struct text copy = *name;
        found = llm_jinja_dict_get(v.as.dict, (struct value){.type = V_TEXT, .as.text = &copy});
        return found ? *found : (struct value){.type = V_ABSENT};
    }
    if (v.type == V_SEQUENCE && v.as.sequence->is_group) {
        if (is_name(name, "grouper")) return v.as.sequence->v[0];
        if (is_name(name, "list")) return v.as.sequence->v[1];
    }
    if (v.type == V_LOOP) {
        struct value got = llm_jinja_loop_attribute(w, v.as.loop, name);
        if (got.type != V_ABSENT) return got;
    }
    return llm_jinja_find_method(w, v, name);
}

struct value llm_jinja_attribute(struct work *w, struct value v, struct value name)
{
    if (v.type == V_UNDEFINED) return say_undefined(w, v.as.undefined);
    struct value got = plain_attribute(w, v, name.as.text);
    if (got.type == V_ABSENT) got = plain_item(w, v, name);
    return got.type == V_ABSENT ? llm_jinja_undefined(w, llm_jinja_type(v), name, NULL) : got;
}

struct value llm_jinja_item(struct work *w, struct value v, struct value key)
{
    if (v.type == V_UNDEFINED) return say_undefined(w, v.as.undefined);
    struct value got = plain_item(w, v, key);
    if (got.type == V_ABSENT && key.type == V_TEXT) got = plain_attribute(w, v, key.as.text);
    return got.type == V_ABSENT ? llm_jinja_undefined(w, llm_jinja_type(v), key, NULL) : got;
}

struct value llm_jinja_call(struct work *w, struct value callee, const struct call *c)
{
    struct value out = error;
    if (llm_jinja_step(w, 1) < 0 || llm_jinja_enter(w) < 0) return error;
    switch (callee.type) {
    case V_UNDEFINED: out = say_undefined(w, callee.as.undefined); break;
    case V_MACRO: out = llm_jinja_call_macro(w, callee.as.macro, c); break;
    case V_METHOD: out = llm_jinja_method(w, callee.as.method->self, callee.as.method->name, c); break;
    case V_FUNCTION: out = callee.as.function->run(w, c); break;
    case V_LOOP: out = llm_jinja_loop_call(w, callee.as.loop, c); break;
    default: out = llm_jinja_fail(w, "'%s' object is not callable", llm_jinja_type(callee)); break;
    }
    llm_jinja_leave(w);
    return out;
}

static int parse_index(const char *p, size_t n, int64_t *out)
{
    *out = 0;
    if (n == 0 || n > 18) return -1;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return -1;
        *out = *out * 10 + (p[i] - '0');
    }
    return 0;
}

struct value llm_jinja_path(struct work *w, struct value v, struct value attribute, struct value fallback)
{
    int64_t index;
    if (attribute.type == V_ABSENT || attribute.type == V_NONE) return v;
    if (attribute.type != V_TEXT) {
        v = llm_jinja_item(w, v, attribute);
        return v.type == V_UNDEFINED && fallback.type != V_ABSENT ? fallback : v;
    }
    const struct text *path = attribute.as.text;
    for (size_t from = 0; from <= path->n && !is_error(v);) {
        const char *dot = memchr(path->p + from, '.', path->n - from);
        size_t n = dot ? (size_t)(dot - path->p) - from : path->n - from;
        struct value key = parse_index(path->p + from, n, &index) == 0 ? v_int(index) : llm_jinja_borrow(w, path->p + from, n);
        v = is_error(key) ? key : llm_jinja_item(w, v, key);
        if (v.type == V_UNDEFINED && fallback.type != V_ABSENT) v = fallback;
        from += n + 1;
    }
    return v;
}

static struct value function_range(struct work *w, const struct call *c)
{
    struct value arg[3];
    int64_t from = 0, to, step = 1;
    if (llm_jinja_bind(w, "range", "start stop step", c, arg) < 0) return error;
    for (int i = 0; i < 3; i++)
        if (arg[i].type != V_ABSENT && !is_whole(arg[i])) return llm_jinja_fail(w, "range: expected integers, found %s", llm_jinja_type(arg[i]));
    if (arg[0].type == V_ABSENT) return llm_jinja_fail(w, "range: expected at least 1 argument");
    to = whole(arg[0]);
    if (arg[1].type != V_ABSENT) from = to, to = whole(arg[1]);
    if (arg[2].type != V_ABSENT) step = whole(arg[2]);
    if (step == 0) return llm_jinja_fail(w, "range: the step is 0");
    /* Differences of 64-bit numbers, counted without overflow. */
    uint64_t distance = step > 0 ? (to > from ? (uint64_t)to - (uint64_t)from : 0) : (from > to ? (uint64_t)from - (uint64_t)to : 0);
    uint64_t by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step, n = distance ? (distance - 1) / by + 1 : 0;
    if (n > MAX_RANGE) return llm_jinja_fail(w, "range: expected at most %d numbers, found %" PRIu64, MAX_RANGE, n);
    struct value list = llm_jinja_sequence(w, S_RANGE, (size_t)n);
    if (is_error(list)) return list;
    for (uint64_t i = 0; i < n; i++)
        if (llm_jinja_append(w, list.as.sequence, v_int((int64_t)((uint64_t)from + i * (uint64_t)step))) < 0) return error;
    list.as.sequence->start = from;
    list.as.sequence->stop = to;
    list.as.sequence->step = step;
    return list;
}

/* dict(mapping or pairs, key=value, ...) */
static struct value function_dict(struct work *w, const struct call *c)
{
    struct value d = llm_jinja_dict(w);
    struct sequence *pairs, *pair;
    if (is_error(d)) return d;
    if (c->n > 1) return llm_jinja_fail(w, "dict: expected at most 1 argument, found %zu", c->n);
    if (c->n == 1 && c->v[0].type == V_DICT && !c->v[0].as.dict->is_namespace) {
        const struct dict *from = c->v[0].as.dict;
        for (size_t i = 0; i < from->n; i++)
            if (llm_jinja_dict_set(w, d.as.dict, from->keys[i], from->values[i]) < 0) return error;
    } else if (c->n == 1) {
        if (llm_jinja_items(w, c->v[0], &pairs) < 0) return error;
        for (size_t i = 0; i < pairs->n; i++) {
            if (llm_jinja_items(w, pairs->v[i], &pair) < 0) return error;
            if (pair->n != 2) return llm_jinja_fail(w, "dict: expected pairs, found a sequence of %zu", pair->n);
            if (llm_jinja_dict_set(w, d.as.dict, pair->v[0], pair->v[1]) < 0) return error;
        }
    }
    for (size_t i = 0; i < c->n_kw; i++)
        if (llm_jinja_dict_set(w, d.as.dict, llm_jinja_borrow(w, c->kw[i].name, strlen(c->kw[i].name)), c->kw[i].v) < 0) return error;
    return d;
}

static struct value function_namespace(struct work *w, const struct call *c)
{
    struct value d = function_dict(w, c);
    if (is_error(d)) return d;
    for (size_t i = 0; i < d.as.dict->n; i++) {
        const struct value key = d.as.dict->keys[i];
        if (key.type == V_TEXT && key.as.text->n && key.as.text->p[0] == '_')
            return llm_jinja_fail(w, "a namespace holds no attribute that begins with an underscore");
    }
    d.as.dict->is_namespace = true;
    return d;
}

static struct value function_raise(struct work *w, const struct call *c)
{
    struct value message;
    if (llm_jinja_bind(w, "raise_exception", "message", c, &message) < 0) return error;
    message = message.type == V_ABSENT ? llm_jinja_borrow(w, "an error", 8) : llm_jinja_str(w, message);
    if (is_error(message)) return message;
    return llm_jinja_fail(w, "%.*s", (int)(message.as.text->n < 500 ? message.as.text->n : 500), message.as.text->p);
}

static struct value function_strftime(struct work *w, const struct call *c)
{
    size_t mark = w->out.n;
    struct value format;
    if (llm_jinja_bind(w, "strftime_now", "format", c, &format) < 0) return error;
    if (format.type != V_TEXT) return llm_jinja_fail(w, "strftime_now: expected a format");
    const char *p = format.as.text->p, *end = p + format.as.text->n;
    while (p < end) {
        /* One directive at a time, of a known letter: a stranger's format never sees a width. */
        char directive[4] = "%", text[64];
        size_t n = 1;
        if (*p != '%' || p + 1 == end) {
            if (llm_jinja_put(w, p++, 1) < 0) return error;
            continue;
        }
        if (*++p == '-' && p + 1 < end) directive[n++] = *p++;
        if (!*p || !strchr("aAbBcCdDeFgGhHIjmMnpRStTuUVwWxXyYZz%", *p)) return llm_jinja_fail(w, "strftime_now: an unknown directive");
        directive[n++] = *p++;
        directive[n] = 0;
        n = strftime(text, sizeof text, directive, w->now);
        if (llm_jinja_put(w, text, n) < 0) return error;
    }
    return llm_jinja_take(w, mark);
}

const struct function llm_jinja_functions[] = {
    {"range", function_range}, {"dict", function_dict}, {"namespace", function_namespace}, {"raise_exception", function_raise},
    {"strftime_now", function_strftime}, {0}};
