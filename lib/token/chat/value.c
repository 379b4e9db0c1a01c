/* Values: making them, comparing them, looking into them. */
#include <math.h>
#include <string.h>
#include <xxhash.h>
#include "token/chat/jinja.h"
#include "token/unicode.h"

static const struct value error = {.type = V_ERROR};

struct value llm_jinja_borrow(struct work *w, const char *p, size_t n)
{
    struct text *t = llm_jinja_alloc(w, sizeof *t);
    if (!t) return error;
    *t = (struct text){p, n, SIZE_MAX, false};
    return (struct value){.type = V_TEXT, .as.text = t};
}

struct value llm_jinja_text(struct work *w, const char *p, size_t n)
{
    if (llm_jinja_step(w, n / 64) < 0) return error;
    char *copy = llm_jinja_alloc(w, n ? n : 1);
    if (!copy) return error;
    if (n) memcpy(copy, p, n);
    return llm_jinja_borrow(w, copy, n);
}

struct value llm_jinja_take(struct work *w, size_t mark)
{
    struct value v = llm_jinja_text(w, w->out.p ? w->out.p + mark : "", w->out.n - mark);
    w->out.n = mark;
    if (w->out.p) w->out.p[mark] = 0;
    return v;
}

/* Bytes of all terms, which are texts. -1: more than there can be. */
static int terms_length(struct work *w, const struct terms *t, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < t->n; i++)
        if (__builtin_add_overflow(*n, t->v[i].as.text->n, n)) return llm_jinja_error(w, "more than %zu MiB of memory", w->memory >> 20);
    return 0;
}

struct value llm_jinja_join_terms(struct work *w, const struct terms *t)
{
    size_t n;
    if (t->n == 1) return t->v[0];
    char *text = terms_length(w, t, &n) < 0 || llm_jinja_step(w, n / 64) < 0 ? NULL : llm_jinja_alloc(w, n ? n : 1);
    if (!text) return error;
    for (size_t i = 0, at = 0; i < t->n; at += t->v[i++].as.text->n)
        if (t->v[i].as.text->n) memcpy(text + at, t->v[i].as.text->p, t->v[i].as.text->n);
    return llm_jinja_borrow(w, text, n);
}

struct value llm_jinja_keep_terms(struct work *w, const struct terms *t)
{
    enum { LONG_TEXT = 1 << 16 }; /* bytes */
    size_t n;
    if (t->n == 1) return t->v[0];
    if (terms_length(w, t, &n) < 0) return error;
    if (n < LONG_TEXT) return llm_jinja_join_terms(w, t);
    struct terms *kept = llm_jinja_alloc(w, sizeof *kept);
    if (!kept) return error;
    *kept = *t;
    return (struct value){.type = V_SUM, .as.sum = kept};
}

struct value llm_jinja_undefined(struct work *w, const char *owner, struct value name, const char *hint)
{
    struct undefined *u = llm_jinja_alloc(w, sizeof *u);
    if (!u) return error;
    *u = (struct undefined){owner, hint, name};
    return (struct value){.type = V_UNDEFINED, .as.undefined = u};
}

struct value llm_jinja_sequence(struct work *w, enum sequence_kind kind, size_t room)
{
    size_t bytes;
    if (__builtin_mul_overflow(room, sizeof(struct value), &bytes)) return llm_jinja_fail(w, "a list of %zu items", room);
    if (llm_jinja_step(w, room / 4) < 0) return error;
    struct sequence *s = llm_jinja_alloc(w, sizeof *s);
    if (!s) return error;
    *s = (struct sequence){kind, NULL, 0, room};
    if (room && !(s->v = llm_jinja_alloc(w, bytes))) return error;
    return (struct value){.type = V_SEQUENCE, .as.sequence = s};
}

int llm_jinja_append(struct work *w, struct sequence *s, struct value v)
{
    if (is_error(v)) return -1;
    if (s->n == s->room) {
        size_t room = s->room ? s->room * 2 : 4;
        struct value *grown = llm_jinja_alloc(w, room * sizeof *grown);
        if (!grown || llm_jinja_step(w, room / 4) < 0) return -1;
        if (s->n) memcpy(grown, s->v, s->n * sizeof *grown);
        s->v = grown;
        s->room = room;
    }
    s->v[s->n++] = v;
    return 0;
}

struct value llm_jinja_dict(struct work *w)
{
    struct dict *d = llm_jinja_alloc(w, sizeof *d);
    if (!d) return error;
    *d = (struct dict){0};
    return (struct value){.type = V_DICT, .as.dict = d};
}

/* Equal keys have equal hashes: 1, 1.0 and true are one key. */
static uint32_t hash(struct value k)
{
    double d = 0;
    uint64_t h = 0;
    if (k.type == V_TEXT) return (uint32_t)XXH3_64bits(k.as.text->p, k.as.text->n);
    if (is_number(k)) {
        d = number(k);
        if (d == 0) d = 0; /* -0 too */
        return (uint32_t)XXH3_64bits(&d, sizeof d);
    }
    if (k.type == V_SEQUENCE)
        for (size_t i = 0; i < k.as.sequence->n && i < 8; i++) h = h * 31 + (is_kind(k.as.sequence->v[i], S_TUPLE) ? 7 : hash(k.as.sequence->v[i]));
    return (uint32_t)(h * 2654435761u) + k.type;
}

static bool same_key(struct value a, struct value b)
{
    if (a.type == V_TEXT && b.type == V_TEXT)
        return a.as.text->n == b.as.text->n && memcmp(a.as.text->p, b.as.text->p, a.as.text->n) == 0;
    if (is_whole(a) && is_whole(b)) return whole(a) == whole(b);
    if (is_number(a) && is_number(b)) return number(a) == number(b);
    if (a.type != b.type) return false;
    if (a.type == V_SEQUENCE) {
        if (a.as.sequence->n != b.as.sequence->n) return false;
        for (size_t i = 0; i < a.as.sequence->n; i++)
            if (!same_key(a.as.sequence->v[i], b.as.sequence->v[i])) return false;
    }
    return a.type != V_DICT || a.as.dict == b.as.dict;
}

/* Tuples of tuples are keys in Python; here tuples of what is no tuple, so that no key is deep. */
static bool can_be_key(struct value k)
{
    if (k.type == V_SEQUENCE) {
        if (k.as.sequence->kind != S_TUPLE) return false;
        for (size_t i = 0; i < k.as.sequence->n; i++)
            if (k.as.sequence->v[i].type == V_SEQUENCE || !can_be_key(k.as.sequence->v[i])) return false;
        return true;
    }
    return k.type != V_DICT || k.as.dict->is_namespace;
}

/* Where the key is, or where it would be put; a small dict has no slots and is searched in order. */
static size_t find_key(const struct dict *d, struct value key, bool *found)
{
    *found = true;
    if (!d->slots) {
        for (size_t i = 0; i < d->n; i++)
            if (same_key(d->keys[i], key)) return i;
    } else {
        for (size_t at = hash(key) & (d->n_slots - 1); d->slots[at]; at = (at + 1) & (d->n_slots - 1))
            if (same_key(d->keys[d->slots[at] - 1], key)) return d->slots[at] - 1;
    }
    *found = false;
    return d->n;
}

static void put_slot(struct dict *d, size_t i)
{
    size_t at = hash(d->keys[i]) & (d->n_slots - 1);
    while (d->slots[at]) at = (at + 1) & (d->n_slots - 1);
    d->slots[at] = (uint32_t)i + 1;
}

static int grow_dict(struct work *w, struct dict *d)
{
    size_t room = d->room ? d->room * 2 : 8;
    struct value *keys = llm_jinja_alloc(w, room * sizeof *keys), *values = llm_jinja_alloc(w, room * sizeof *values);
    if (!keys || !values || llm_jinja_step(w, room) < 0) return -1;
    if (room > UINT32_MAX / 4) return llm_jinja_error(w, "a dict of %zu items", room);
    if (d->n) {
        memcpy(keys, d->keys, d->n * sizeof *keys);
        memcpy(values, d->values, d->n * sizeof *values);
    }
    d->keys = keys;
    d->values = values;
    d->room = room;
    if (room <= 8) return 0;
    d->n_slots = room * 2;
    d->slots = llm_jinja_alloc(w, d->n_slots * sizeof *d->slots);
    if (!d->slots) return -1;
    memset(d->slots, 0, d->n_slots * sizeof *d->slots);
    for (size_t i = 0; i < d->n; i++) put_slot(d, i);
    return 0;
}

int llm_jinja_dict_set(struct work *w, struct dict *d, struct value key, struct value v)
{
    bool found;
    if (is_error(key) || is_error(v)) return -1;
    if (!can_be_key(key)) return llm_jinja_error(w, "a %s cannot be the key of a dict", llm_jinja_type(key));
    size_t i = find_key(d, key, &found);
    if (!found) {
        if (d->n == d->room && grow_dict(w, d) < 0) return -1;
        i = d->n++;
        d->keys[i] = key;
        if (d->slots) put_slot(d, i);
    }
    d->values[i] = v;
    return 0;
}

struct value *llm_jinja_dict_get(const struct dict *d, struct value key)
{
    bool found;
    if (!can_be_key(key)) return NULL;
    size_t i = find_key(d, key, &found);
    return found ? &d->values[i] : NULL;
}

struct value *llm_jinja_dict_find(const struct dict *d, const char *key)
{
    struct text t = {key, strlen(key), SIZE_MAX, false};
    return llm_jinja_dict_get(d, (struct value){.type = V_TEXT, .as.text = &t});
}

size_t llm_jinja_chars(struct text *t)
{
    if (t->chars == SIZE_MAX) {
        size_t n = 0;
        for (size_t i = 0; i < t->n; i++) n += ((unsigned char)t->p[i] & 0xC0) != 0x80;
        t->chars = n;
    }
    return t->chars;
}

bool llm_jinja_truth(struct value v)
{
    switch (v.type) {
    case V_BOOL: return v.as.truth;
    case V_INT: return v.as.integer != 0;
    case V_REAL: return v.as.real != 0;
    case V_TEXT: return v.as.text->n > 0;
    case V_SEQUENCE: return v.as.sequence->kind == S_GENERATOR || v.as.sequence->n > 0;
    case V_DICT: return v.as.dict->is_namespace || v.as.dict->n > 0;
    case V_MACRO: case V_METHOD: case V_FUNCTION: case V_LOOP: return true;
    default: return false;
    }
}

static int equal_dicts(struct work *w, const struct dict *a, const struct dict *b)
{
    if (a == b) return 1;
    if (a->is_namespace || b->is_namespace || a->n != b->n) return 0;
    for (size_t i = 0; i < a->n; i++) {
        struct value *other = llm_jinja_dict_get(b, a->keys[i]);
        int same = other ? llm_jinja_equal(w, a->values[i], *other) : 0;
        if (same <= 0) return same;
    }
    return 1;
}

static int equal_sequences(struct work *w, const struct sequence *a, const struct sequence *b)
{
    if (a == b) return 1;
    if (a->kind != b->kind || a->n != b->n || a->kind == S_GENERATOR || a->kind == S_VALUES) return 0;
    for (size_t i = 0; i < a->n; i++) {
        int same = llm_jinja_equal(w, a->v[i], b->v[i]);
        if (same <= 0) return same;
    }
    return 1;
}

int llm_jinja_equal(struct work *w, struct value a, struct value b)
{
    int same = 0;
    if (llm_jinja_step(w, 1) < 0 || llm_jinja_enter(w) < 0) return -1;
    if (is_number(a) && is_number(b)) {
        same = is_whole(a) && is_whole(b) ? whole(a) == whole(b) : number(a) == number(b);
    } else if (a.type == b.type) {
        switch (a.type) {
        case V_UNDEFINED: case V_NONE: same = 1; break;
        case V_TEXT:
            if (a.as.text->n != b.as.text->n) break;
            same = llm_jinja_step(w, a.as.text->n / 64) < 0 ? -1 : memcmp(a.as.text->p, b.as.text->p, a.as.text->n) == 0;
            break;
        case V_SEQUENCE: same = equal_sequences(w, a.as.sequence, b.as.sequence); break;
        case V_DICT: same = equal_dicts(w, a.as.dict, b.as.dict); break;
        case V_MACRO: same = a.as.macro == b.as.macro; break;
        case V_FUNCTION: same = a.as.function == b.as.function; break;
        case V_LOOP: same = a.as.loop == b.as.loop; break;
        default: break;
        }
    }
    llm_jinja_leave(w);
    return same;
}

static int order_sequences(struct work *w, const struct sequence *a, const struct sequence *b, const char *op, int *out)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        int same = llm_jinja_equal(w, a->v[i], b->v[i]);
        if (same < 0) return -1;
        if (!same) return llm_jinja_order(w, a->v[i], b->v[i], op, out);
    }
    *out = (a->n > b->n) - (a->n < b->n);
    return 0;
}

int llm_jinja_order(struct work *w, struct value a, struct value b, const char *op, int *out)
{
    int status = llm_jinja_step(w, 1);
    if (status < 0 || llm_jinja_enter(w) < 0) return -1;
    if (is_whole(a) && is_whole(b)) {
        *out = (whole(a) > whole(b)) - (whole(a) < whole(b));
    } else if (is_number(a) && is_number(b)) {
        double x = number(a), y = number(b);
        /* A NaN is neither below nor above: what makes every comparison false. */
        *out = isnan(x) || isnan(y) ? (op[0] == '<' ? 2 : -2) : (x > y) - (x < y);
    } else if (a.type == V_TEXT && b.type == V_TEXT) {
        size_t n = a.as.text->n < b.as.text->n ? a.as.text->n : b.as.text->n;
        int c = memcmp(a.as.text->p, b.as.text->p, n);
        status = llm_jinja_step(w, n / 64);
        *out = c ? c : (a.as.text->n > b.as.text->n) - (a.as.text->n < b.as.text->n);
    } else if ((is_kind(a, S_LIST) && is_kind(b, S_LIST)) || (is_kind(a, S_TUPLE) && is_kind(b, S_TUPLE))) {
        status = order_sequences(w, a.as.sequence, b.as.sequence, op, out);
    } else {
        status = llm_jinja_error(w, "'%s' not supported between instances of '%s' and '%s'", op, llm_jinja_type(a), llm_jinja_type(b));
    }
    llm_jinja_leave(w);
    return status;
}

static int text_items(struct work *w, struct text *t, struct sequence **out)
{
    struct value list = llm_jinja_sequence(w, S_LIST, llm_jinja_chars(t));
    if (is_error(list)) return -1;
    for (size_t i = 0; i < t->n;) {
        uint32_t cp;
        int n = llm_utf8_next((const unsigned char *)t->p + i, t->n - i, &cp);
        if (n <= 0) n = 1;
        if (llm_jinja_step(w, 1) < 0 || llm_jinja_append(w, list.as.sequence, llm_jinja_borrow(w, t->p + i, (size_t)n)) < 0) return -1;
        i += (size_t)n;
    }
    *out = list.as.sequence;
    return 0;
}

int llm_jinja_items(struct work *w, struct value v, struct sequence **out)
{
    struct value list;
    if (v.type == V_TEXT) return text_items(w, v.as.text, out);
    if (v.type == V_SEQUENCE && v.as.sequence->kind != S_GENERATOR) {
        *out = v.as.sequence;
        return llm_jinja_step(w, v.as.sequence->n / 16);
    }
    if (v.type == V_SEQUENCE || v.type == V_UNDEFINED || (v.type == V_DICT && !v.as.dict->is_namespace)) {
        list = llm_jinja_sequence(w, S_LIST, 0);
        if (is_error(list)) return -1;
        *out = list.as.sequence;
        if (v.type == V_SEQUENCE) {
            **out = *v.as.sequence;
            (*out)->kind = S_LIST;
            *v.as.sequence = (struct sequence){S_GENERATOR, NULL, 0, 0};
        } else if (v.type == V_DICT) {
            /* The keys as they are now: a dict only ever grows at its end. */
            **out = (struct sequence){S_LIST, v.as.dict->keys, v.as.dict->n, v.as.dict->n};
        }
        return 0;
    }
    return llm_jinja_error(w, "'%s' object is not iterable", llm_jinja_type(v));
}

const char *llm_jinja_type(struct value v)
{
    static const char *const sequences[] = {"list", "tuple", "range", "generator", "dict_keys", "dict_values", "dict_items"};
    switch (v.type) {
    case V_UNDEFINED: return "Undefined";
    case V_NONE: return "NoneType";
    case V_BOOL: return "bool";
    case V_INT: return "int";
    case V_REAL: return "float";
    case V_TEXT: return v.as.text->safe ? "Markup" : "str";
    case V_SEQUENCE: return sequences[v.as.sequence->kind];
    case V_DICT: return v.as.dict->is_namespace ? "Namespace" : "dict";
    case V_MACRO: return "Macro";
    case V_METHOD: return "builtin_function_or_method";
    case V_LOOP: return "LoopContext";
    default: return "function";
    }
}

struct value llm_jinja_from_json(struct work *w, const json_t *j)
{
    struct value out = error, item;
    const char *key, *text;
    json_t *member;
    size_t i, n = 0;
    if (llm_jinja_step(w, 1) < 0 || llm_jinja_enter(w) < 0) return error;
    switch (json_typeof(j)) {
    case JSON_NULL: out = v_none(); break;
    case JSON_TRUE: case JSON_FALSE: out = v_bool(json_is_true(j)); break;
    case JSON_INTEGER: out = v_int((int64_t)json_integer_value(j)); break;
    case JSON_REAL: out = v_real(json_real_value(j)); break;
    case JSON_STRING:
        text = llm_json_long_string(w->strings, j, &n);
        out = llm_jinja_borrow(w, text, n);
        break;
    case JSON_ARRAY:
        out = llm_jinja_sequence(w, S_LIST, json_array_size(j));
        for (i = 0; i < json_array_size(j) && !is_error(out); i++) {
            item = llm_jinja_from_json(w, json_array_get(j, i));
            if (llm_jinja_append(w, out.as.sequence, item) < 0) out = error;
        }
        break;
    case JSON_OBJECT:
        out = llm_jinja_dict(w);
        if (is_error(out)) break;
        json_object_foreach((json_t *)(uintptr_t)j, key, member) {
            item = llm_jinja_from_json(w, member);
            if (is_error(item) || llm_jinja_dict_set(w, out.as.dict, llm_jinja_borrow(w, key, strlen(key)), item) < 0) {
                out = error;
                break;
            }
        }
        break;
    }
    llm_jinja_leave(w);
    return out;
}
