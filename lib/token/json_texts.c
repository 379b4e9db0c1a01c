#include "token/json_texts.h"
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

/* ---- the table ---- */

void llm_json_texts_release(struct llm_json_texts *t)
{
    free(t->v);
    free(t->slots);
    llm_buf_release(&t->decoded);
    *t = (struct llm_json_texts){0};
}

static int add(struct llm_json_texts *t, const char *p, size_t n, int64_t id, struct llm_err *e)
{
    if (n > UINT32_MAX / 4)
        return llm_fail(e, EX_DATAERR, "a token of %zu bytes", n);
    if (llm_grow((void **)&t->v, &t->room, t->n + 1, sizeof *t->v, e) < 0)
        return -1;
    t->v[t->n++] = (struct llm_json_text){p, (uint32_t)n, llm_piece_hash((const unsigned char *)p, n), id};
    return 0;
}

static bool is(const struct llm_json_text *x, uint32_t hash, const char *p, size_t n)
{
    return x->hash == hash && x->n == n && memcmp(x->p, p, n) == 0;
}

/* All entries into slots. 1; 0: two have the same text. */
static int make_index(struct llm_json_texts *t, struct llm_err *e)
{
    for (t->bits = 8; (size_t)1 << t->bits < t->n * 2; t->bits++) {
    }
    size_t mask = ((size_t)1 << t->bits) - 1;
    t->slots = t->n < UINT32_MAX ? llm_calloc(mask + 1, sizeof *t->slots, "a vocabulary's index", e) : NULL;
    if (!t->slots)
        return -1;
    for (size_t i = 0; i < t->n; i++) {
        const struct llm_json_text *x = &t->v[i];
        size_t at = x->hash & mask;
        for (; t->slots[at]; at = (at + 1) & mask)
            if (is(&t->v[t->slots[at] - 1], x->hash, x->p, x->n))
                return 0;
        t->slots[at] = (uint32_t)i + 1;
    }
    return 1;
}

int llm_json_texts_from_value(struct llm_json_texts *t, const json_t *o, struct llm_err *e)
{
    const char *text;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o, text, value) {
        if (!json_is_integer(value))
            return llm_fail(e, EX_DATAERR, "vocab: '%s': expected an integer", text);
        if (add(t, text, strlen(text), json_integer_value(value), e) < 0)
            return -1;
    }
    return make_index(t, e) < 0 ? -1 : 0;
}

int64_t llm_json_texts_find(const struct llm_json_texts *t, const char *p, size_t n, size_t *at)
{
    size_t mask = ((size_t)1 << t->bits) - 1;
    uint32_t hash = llm_piece_hash((const unsigned char *)p, n);
    for (size_t i = hash & mask; t->n && t->slots[i]; i = (i + 1) & mask) {
        size_t found = t->slots[i] - 1;
        if (!is(&t->v[found], hash, p, n))
            continue;
        if (at)
            *at = found;
        return t->v[found].id;
    }
    return -1;
}

/* ---- text ---- */

struct cursor { const char *p, *end; };

static void skip_space(struct cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t' || *c->p == '\r'))
        c->p++;
}

static bool take(struct cursor *c, char what)
{
    skip_space(c);
    bool there = c->p < c->end && *c->p == what;
    c->p += there;
    return there;
}

/* Behind the quote that ends the string whose first quote c is behind; false: there is none. *plain: its bytes are its text. */
static bool end_string(struct cursor *c, bool *plain)
{
    *plain = true;
    for (; c->p < c->end && *c->p != '"'; c->p++) {
        if ((unsigned char)*c->p < 0x20)
            return false;
        if (*c->p == '\\') {
            *plain = false;
            if (++c->p == c->end)
                return false;
        }
    }
    return c->p < c->end && *c->p++ == '"';
}

/* A string: *text, *n borrowed, or appended to `out` where it has escapes. 1, 0, -1. */
static int take_string(struct cursor *c, struct llm_buf *out, const char **text, size_t *n, struct llm_err *e)
{
    bool plain;
    if (!take(c, '"'))
        return 0;
    *text = c->p;
    if (!end_string(c, &plain))
        return 0;
    *n = (size_t)(c->p - 1 - *text);
    if (plain)
        return 1;
    json_t *v = json_loadb(*text - 1, *n + 2, JSON_DECODE_ANY, NULL); /* escapes are rare */
    size_t at = out->n;
    *n = json_string_length(v);
    int bad = json_is_string(v) ? llm_buf_put(out, json_string_value(v), *n, e) : 1;
    json_decref(v);
    if (bad)
        return bad < 0 ? -1 : 0;
    *text = out->p + at;
    return 1;
}

/* A whole number without a fraction. */
static bool take_integer(struct cursor *c, int64_t *v)
{
    skip_space(c);
    bool minus = c->p < c->end && *c->p == '-';
    const char *first = c->p += minus;
    for (*v = 0; c->p < c->end && *c->p >= '0' && *c->p <= '9' && c->p - first < 16; c->p++)
        *v = *v * 10 + (*c->p - '0');
    if (c->p == first || (*first == '0' && c->p - first > 1) || c->p == c->end || strchr(".eE0123456789", *c->p))
        return false;
    *v = minus ? -*v : *v;
    return true;
}

int llm_json_texts_from_text(struct llm_json_texts *t, const char *p, size_t n, struct llm_err *e)
{
    struct cursor c = {p, p + n};
    if (llm_utf8_invalid((const unsigned char *)p, n) < n || !take(&c, '{'))
        return 0;
    if (llm_buf_reserve(&t->decoded, n, e) < 0) /* it never gets longer: pointers stay */
        return -1;
    for (bool more = !take(&c, '}'); more;) {
        const char *text;
        size_t len;
        int64_t id;
        int got = take_string(&c, &t->decoded, &text, &len, e);
        if (got <= 0)
            return got;
        if (!take(&c, ':') || !take_integer(&c, &id))
            return 0;
        if (add(t, text, len, id, e) < 0)
            return -1;
        more = take(&c, ',');
        if (!more && !take(&c, '}'))
            return 0;
    }
    return c.p == c.end ? make_index(t, e) : 0;
}

/* One element of "merges": "left right", or ["left", "right"]. */
static int take_merge(struct cursor *c, struct llm_buf both[2], const char *text[2], size_t n[2], struct llm_err *e)
{
    both[0].n = both[1].n = 0;
    if (take(c, '[')) {
        int got = take_string(c, &both[0], &text[0], &n[0], e);
        if (got > 0)
            got = take(c, ',') ? take_string(c, &both[1], &text[1], &n[1], e) : 0;
        return got > 0 ? take(c, ']') : got;
    }
    int got = take_string(c, &both[0], &text[0], &n[0], e);
    if (got <= 0)
        return got;
    const char *space = memchr(text[0], ' ', n[0]);
    if (!space || space == text[0] || space + 1 == text[0] + n[0])
        return 0;
    text[1] = space + 1;
    n[1] = n[0] - (size_t)(text[1] - text[0]);
    n[0] = (size_t)(space - text[0]);
    return 1;
}

int llm_json_merges_from_text(const char *p, size_t n, llm_json_merge_sink *put, void *arg, struct llm_err *e)
{
    struct cursor c = {p, p + n};
    struct llm_buf both[2] = {{0}, {0}};
    int got = llm_utf8_invalid((const unsigned char *)p, n) == n && take(&c, '[');
    bool more = got && !take(&c, ']');
    for (size_t i = 0; got > 0 && more; i++) {
        const char *text[2];
        size_t len[2];
        got = take_merge(&c, both, text, len, e);
        if (got > 0 && put(arg, i, text[0], len[0], text[1], len[1], e) < 0)
            got = -1;
        more = got > 0 && take(&c, ',');
        if (got > 0 && !more)
            got = take(&c, ']');
    }
    llm_buf_release(&both[0]);
    llm_buf_release(&both[1]);
    return got > 0 ? c.p == c.end : got;
}

/* ---- cutting ---- */

/* Behind the value at c, by its brackets and quotes alone. */
static bool skip_value(struct cursor *c)
{
    int depth = 0;
    bool plain;
    do {
        if (c->p == c->end)
            return false;
        char x = *c->p++;
        if (x == '"' && !end_string(c, &plain))
            return false;
        depth += (x == '{' || x == '[') - (x == '}' || x == ']');
    } while (depth > 0);
    return depth == 0;
}

static bool is_key(const char *key, size_t n, const char *name)
{
    return n == strlen(name) && memcmp(key, name, n) == 0;
}

/* The members of an object: `seen` for each that begins with a bracket. */
static bool each_member(struct cursor *c, void (*seen)(void *, const char *key, size_t n_key, struct cursor value), void *arg)
{
    bool plain;
    if (!take(c, '{'))
        return false;
    while (take(c, '"')) {
        const char *key = c->p;
        if (!end_string(c, &plain))
            return false;
        size_t n = (size_t)(c->p - 1 - key);
        if (!take(c, ':'))
            return false;
        skip_space(c);
        struct cursor value = *c;
        if (c->p < c->end && (*c->p == '{' || *c->p == '[')) {
            if (!skip_value(c))
                return false;
            value.end = c->p;
            seen(arg, key, n, value);
        }
        while (c->p < c->end && *c->p != ',' && *c->p != '}') /* a number, a word, a string */
            if (*c->p++ == '"' && !end_string(c, &plain))
                return false;
        if (!take(c, ','))
            break;
        skip_space(c);
    }
    return take(c, '}');
}

/* An array of nothing? */
static bool is_empty(struct cursor v)
{
    return take(&v, '[') && take(&v, ']');
}

static void see_part(void *arg, const char *key, size_t n, struct cursor v)
{
    struct llm_json_cut *c = arg;
    if (*v.p == '{' && is_key(key, n, "vocab") && !c->vocab) {
        c->vocab = v.p;
        c->n_vocab = (size_t)(v.end - v.p);
    } else if (*v.p == '[' && is_key(key, n, "merges") && !c->merges && !is_empty(v)) {
        c->merges = v.p;
        c->n_merges = (size_t)(v.end - v.p);
    }
}

static void see_model(void *arg, const char *key, size_t n, struct cursor v)
{
    struct cursor *model = arg;
    if (*v.p == '{' && is_key(key, n, "model") && !model->p)
        *model = v;
}

int llm_json_cut(const char *json, size_t n, struct llm_json_cut *c, struct llm_err *e)
{
    struct cursor all = {json, json + n}, model = {NULL, NULL};
    *c = (struct llm_json_cut){.vocab = NULL};
    if (!each_member(&all, see_model, &model) || !model.p || !each_member(&model, see_part, c) || !(c->vocab || c->merges))
        return 0;
    const char *from[2] = {c->vocab, c->merges}, *with[2] = {"{}", "[]"}, *at = json;
    size_t len[2] = {c->n_vocab, c->n_merges};
    bool swapped = c->vocab && c->merges && c->merges < c->vocab;
    for (int i = 0; i < 2; i++) {
        int k = swapped ? 1 - i : i;
        if (!from[k])
            continue;
        if (llm_buf_put(&c->rest, at, (size_t)(from[k] - at), e) < 0 || llm_buf_put(&c->rest, with[k], 2, e) < 0)
            return -1;
        at = from[k] + len[k];
    }
    return llm_buf_put(&c->rest, at, (size_t)(json + n - at), e) < 0 ? -1 : 1;
}
