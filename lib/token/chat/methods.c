/* Methods of strings, dicts, lists and loops. */
#include <string.h>
#include <utf8proc.h>
#include "token/chat/jinja.h"
#include "token/unicode.h"

static const struct value error = {.type = V_ERROR};

/* Every method that Python's types have: such a name is never a key of the dict it is asked of. */
static const char text_methods[] =
    " capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha isascii isdecimal isdigit "
    "isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip maketrans partition removeprefix removesuffix "
    "replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title translate upper zfill ";
static const char dict_methods[] = " copy fromkeys get items keys values ";
static const char list_methods[] = " copy count index ";
static const char dict_forbidden[] = " clear pop popitem setdefault update ";
static const char list_forbidden[] = " append clear extend insert pop remove reverse sort ";

static const char *word_in(const char *words, const struct text *name)
{
    if (memchr(name->p, ' ', name->n) || name->n == 0) return NULL;
    for (const char *p = words; (p = memmem(p, strlen(p), name->p, name->n)) != NULL; p++)
        if (p[-1] == ' ' && p[name->n] == ' ') return p;
    return NULL;
}

static struct value bound(struct work *w, struct value self, const struct text *name)
{
    struct method *m = llm_jinja_alloc(w, sizeof *m);
    char *copy = llm_jinja_alloc(w, name->n + 1);
    if (!m || !copy) return error;
    memcpy(copy, name->p, name->n);
    copy[name->n] = 0;
    *m = (struct method){self, copy};
    return (struct value){.type = V_METHOD, .as.method = m};
}

struct value llm_jinja_find_method(struct work *w, struct value self, const struct text *name)
{
    bool is_dict = self.type == V_DICT && !self.as.dict->is_namespace, is_list = is_kind(self, S_LIST);
    const char *words = self.type == V_TEXT ? text_methods : is_dict ? dict_methods : is_list || is_kind(self, S_TUPLE) ? list_methods
        : self.type == V_LOOP ? " cycle changed " : NULL;
    const char *forbidden = is_dict ? dict_forbidden : is_list ? list_forbidden : NULL;
    if (forbidden && word_in(forbidden, name))
        return llm_jinja_undefined(w, NULL, v_none(), "a template may not change a list or a dict (append, pop, update and their like)");
    return words && word_in(words, name) ? bound(w, self, name) : (struct value){.type = V_ABSENT};
}

static int64_t integer_or(struct value v, int64_t otherwise)
{
    return is_whole(v) ? whole(v) : otherwise;
}

static struct value need_text(struct work *w, const char *method, struct value v)
{
    return v.type == V_TEXT ? v : llm_jinja_fail(w, "%s: expected a string, found %s", method, llm_jinja_type(v));
}

/* The part of `self` that [start, end) selects, as str.find and its like take them; *offset: bytes before it. */
static struct value within(struct work *w, struct value self, const struct value range[2], size_t *offset)
{
    const struct value full[3] = {range[0], range[1], {.type = V_ABSENT}};
    *offset = 0;
    if (range[0].type == V_ABSENT && range[1].type == V_ABSENT) return self;
    struct value v = llm_jinja_slice(w, self, full);
    if (!is_error(v)) *offset = (size_t)(v.as.text->p - self.as.text->p);
    return v;
}

static bool has_affix(const struct text *t, const struct text *affix, bool at_end)
{
    return affix->n <= t->n && memcmp(at_end ? t->p + t->n - affix->n : t->p, affix->p, affix->n) == 0;
}

static struct value text_affix(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value arg[3];
    size_t offset;
    bool at_end = name[0] == 'e';
    if (llm_jinja_bind(w, name, "prefix start end", c, arg) < 0) return error;
    self = within(w, self, arg + 1, &offset);
    if (is_error(self)) return self;
    if (arg[0].type == V_TEXT) return v_bool(has_affix(self.as.text, arg[0].as.text, at_end));
    if (!is_kind(arg[0], S_TUPLE)) return llm_jinja_fail(w, "%s: expected a string or a tuple of strings, found %s", name, llm_jinja_type(arg[0]));
    for (size_t i = 0; i < arg[0].as.sequence->n; i++) {
        struct value v = need_text(w, name, arg[0].as.sequence->v[i]);
        if (is_error(v)) return v;
        if (has_affix(self.as.text, v.as.text, at_end)) return v_bool(true);
    }
    return v_bool(false);
}

static struct value text_split(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value arg[2];
    if (llm_jinja_bind(w, name, "sep maxsplit", c, arg) < 0) return error;
    return llm_jinja_split(w, self.as.text, arg[0], integer_or(arg[1], -1), name[0] == 'r');
}

static struct value text_strip(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value chars;
    if (llm_jinja_bind(w, name, "chars", c, &chars) < 0) return error;
    return llm_jinja_strip(w, self.as.text, chars, name[0] == 'l' ? STRIP_LEFT : name[0] == 'r' ? STRIP_RIGHT : STRIP_LEFT | STRIP_RIGHT);
}

static struct value text_case(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value none;
    if (llm_jinja_bind(w, name, "", c, &none) < 0) return error;
    return llm_jinja_case(w, self.as.text, name[0] == 'u' ? CASE_UPPER : name[0] == 'l' ? CASE_LOWER : name[0] == 't' ? CASE_TITLE
                          : name[0] == 's' ? CASE_SWAP : strcmp(name, "casefold") == 0 ? CASE_FOLD : CASE_CAPITAL);
}

static struct value text_replace(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value arg[3];
    if (llm_jinja_bind(w, name, "old new count", c, arg) < 0) return error;
    if (is_error(need_text(w, name, arg[0])) || is_error(need_text(w, name, arg[1]))) return error;
    return llm_jinja_replace(w, self.as.text, arg[0].as.text, arg[1].as.text, integer_or(arg[2], -1));
}

static long find_last(const struct text *t, const struct text *needle)
{
    if (needle->n > t->n) return -1;
    for (size_t at = t->n - needle->n + 1; at-- > 0;)
        if (memcmp(t->p + at, needle->p, needle->n) == 0) return (long)at;
    return -1;
}

/* find, rfind, index, rindex: in characters. */
static struct value text_find(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value arg[3];
    size_t offset;
    bool last = name[0] == 'r';
    if (llm_jinja_bind(w, name, "sub start end", c, arg) < 0 || is_error(need_text(w, name, arg[0]))) return error;
    struct value in = within(w, self, arg + 1, &offset);
    if (is_error(in) || llm_jinja_step(w, in.as.text->n / 16) < 0) return error;
    long at = last ? find_last(in.as.text, arg[0].as.text) : llm_jinja_find(in.as.text, arg[0].as.text, 0);
    if (at < 0) return strcmp(name + last, "index") == 0 ? llm_jinja_fail(w, "substring not found") : v_int(-1);
    struct text before = {self.as.text->p, offset + (size_t)at, SIZE_MAX, false};
    return v_int((int64_t)llm_jinja_chars(&before));
}

static struct value text_count(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value needle;
    int64_t n = 0;
    long at;
    if (llm_jinja_bind(w, name, "sub", c, &needle) < 0 || is_error(need_text(w, name, needle))) return error;
    if (needle.as.text->n == 0) return v_int((int64_t)llm_jinja_chars(self.as.text) + 1);
    if (llm_jinja_step(w, self.as.text->n / 16) < 0) return error;
    for (size_t from = 0; (at = llm_jinja_find(self.as.text, needle.as.text, from)) >= 0; from = (size_t)at + needle.as.text->n) n++;
    return v_int(n);
}

static struct value text_join(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value over;
    struct sequence *items;
    if (llm_jinja_bind(w, name, "iterable", c, &over) < 0) return error;
    if (over.type == V_ABSENT) return llm_jinja_fail(w, "join: expected what to join");
    if (llm_jinja_items(w, over, &items) < 0) return error;
    for (size_t i = 0; i < items->n; i++)
        if (is_error(need_text(w, name, items->v[i]))) return error;
    return llm_jinja_join(w, self.as.text, items);
}

static struct value text_affix_removed(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value affix;
    if (llm_jinja_bind(w, name, "affix", c, &affix) < 0 || is_error(need_text(w, name, affix))) return error;
    const struct text *t = self.as.text;
    size_t n = affix.as.text->n;
    bool at_end = strcmp(name, "removesuffix") == 0;
    if (!has_affix(t, affix.as.text, at_end)) return self;
    return llm_jinja_borrow(w, at_end ? t->p : t->p + n, t->n - n);
}

static struct value text_partition(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value separator, tuple = llm_jinja_sequence(w, S_TUPLE, 3);
    if (llm_jinja_bind(w, name, "sep", c, &separator) < 0 || is_error(need_text(w, name, separator)) || is_error(tuple)) return error;
    const struct text *t = self.as.text, *s = separator.as.text;
    if (s->n == 0) return llm_jinja_fail(w, "empty separator");
    if (llm_jinja_step(w, t->n / 16) < 0) return error;
    bool last = name[0] == 'r';
    long at = last ? find_last(t, s) : llm_jinja_find(t, s, 0);
    size_t cut[4] = {0, (size_t)at, (size_t)at + s->n, t->n};
    if (at < 0) cut[1] = cut[2] = last ? 0 : t->n;
    for (int i = 0; i < 3; i++)
        if (llm_jinja_append(w, tuple.as.sequence, llm_jinja_borrow(w, t->p + cut[i], cut[i + 1] - cut[i])) < 0) return error;
    return tuple;
}

static struct value text_lines(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value keep;
    if (llm_jinja_bind(w, name, "keepends", c, &keep) < 0) return error;
    return llm_jinja_lines(w, self.as.text, keep.type != V_ABSENT && llm_jinja_truth(keep));
}

/* ljust, rjust, center, zfill */
static struct value text_pad(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value arg[2];
    size_t mark = w->out.n, n = llm_jinja_chars(self.as.text), left;
    if (llm_jinja_bind(w, name, "width fillchar", c, arg) < 0) return error;
    if (!is_whole(arg[0])) return llm_jinja_fail(w, "%s: expected a width", name);
    if (arg[1].type != V_ABSENT && (arg[1].type != V_TEXT || llm_jinja_chars(arg[1].as.text) != 1))
        return llm_jinja_fail(w, "%s: expected one character to fill with", name);
    if (whole(arg[0]) <= (int64_t)n) return self;
    if ((uint64_t)whole(arg[0]) > w->memory) return llm_jinja_fail(w, "more than %zu MiB of text", w->memory >> 20);
    size_t pad = (size_t)whole(arg[0]) - n, skip = 0;
    const struct text fill = arg[1].type == V_TEXT ? *arg[1].as.text : (struct text){name[0] == 'z' ? "0" : " ", 1, 1, false};
    left = name[0] == 'l' ? 0 : name[0] == 'c' ? pad / 2 + (pad & (size_t)whole(arg[0]) & 1) : pad;
    if (name[0] == 'z' && self.as.text->n && strchr("+-", self.as.text->p[0]) && self.as.text->p[0]) skip = 1;
    if (llm_jinja_put(w, self.as.text->p, skip) < 0) return error;
    for (size_t i = 0; i <= pad; i++) {
        if (i == left && llm_jinja_put(w, self.as.text->p + skip, self.as.text->n - skip) < 0) return error;
        if (i < pad && llm_jinja_put(w, fill.p, fill.n) < 0) return error;
    }
    return llm_jinja_take(w, mark);
}

/* isupper, islower: what is cased is of that case, and something is. The others: all characters are, and there is one. */
static struct value text_is(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value none;
    struct sequence *chars;
    const bool by_case = strcmp(name, "isupper") == 0 || strcmp(name, "islower") == 0;
    bool seen = strcmp(name, "isascii") == 0 || strcmp(name, "isprintable") == 0; /* what an empty text is */
    if (llm_jinja_bind(w, name, "", c, &none) < 0 || llm_jinja_items(w, self, &chars) < 0) return error;
    for (size_t i = 0; i < chars->n; i++) {
        uint32_t cp = 0;
        llm_utf8_next((const unsigned char *)chars->v[i].as.text->p, chars->v[i].as.text->n, &cp);
        int kind = utf8proc_category((utf8proc_int32_t)cp);
        bool upper = kind == UTF8PROC_CATEGORY_LU, lower = kind == UTF8PROC_CATEGORY_LL;
        if (by_case && kind == UTF8PROC_CATEGORY_LT) return v_bool(false);
        if (by_case ? (name[2] == 'u' ? lower : upper) : !llm_jinja_char_is(name + 2, cp)) return v_bool(false);
        seen |= by_case ? upper || lower : true;
    }
    return v_bool(seen);
}

/* Upper case begins each run of cased characters, lower case goes on, and there is one. */
static struct value text_is_title(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value none;
    struct sequence *chars;
    bool seen = false, within_word = false;
    if (llm_jinja_bind(w, name, "", c, &none) < 0 || llm_jinja_items(w, self, &chars) < 0) return error;
    for (size_t i = 0; i < chars->n; i++) {
        uint32_t cp = 0;
        llm_utf8_next((const unsigned char *)chars->v[i].as.text->p, chars->v[i].as.text->n, &cp);
        const int kind = utf8proc_category((utf8proc_int32_t)cp);
        const bool lower = kind == UTF8PROC_CATEGORY_LL;
        const bool cased = lower || kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LT;
        if (cased && lower != within_word) return v_bool(false);
        within_word = cased;
        seen |= cased;
    }
    return v_bool(seen);
}

static struct value text_expand_tabs(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value size;
    struct sequence *chars;
    size_t mark = w->out.n;
    if (llm_jinja_bind(w, name, "tabsize", c, &size) < 0 || llm_jinja_items(w, self, &chars) < 0) return error;
    const int64_t to = integer_or(size, 8);
    int64_t column = 0;
    for (size_t i = 0; i < chars->n; i++) {
        const struct text *t = chars->v[i].as.text;
        if (t->p[0] != '\t') {
            column = t->p[0] == '\n' || t->p[0] == '\r' ? 0 : column + 1;
            if (llm_jinja_put(w, t->p, t->n) < 0) return error;
            continue;
        }
        for (int64_t more = to > 0 ? to - column % to : 0; more > 0; more--, column++)
            if (llm_jinja_put(w, " ", 1) < 0) return error;
    }
    return llm_jinja_take(w, mark);
}

static struct value text_format(struct work *w, struct value self, const char *name, const struct call *c)
{
    (void)name;
    return llm_jinja_format_braces(w, self.as.text, c);
}

static struct value dict_get(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value arg[2];
    if (llm_jinja_bind(w, name, "key default", c, arg) < 0) return error;
    if (arg[0].type == V_ABSENT) return llm_jinja_fail(w, "get: expected a key");
    struct value *found = llm_jinja_dict_get(self.as.dict, arg[0]);
    return found ? *found : arg[1].type == V_ABSENT ? v_none() : arg[1];
}

/* items, keys, values, copy */
static struct value dict_view(struct work *w, struct value self, const char *name, const struct call *c)
{
    const struct dict *d = self.as.dict;
    struct value none, out;
    if (llm_jinja_bind(w, name, "", c, &none) < 0) return error;
    if (name[0] == 'c') return self; /* nothing changes a dict */
    out = llm_jinja_sequence(w, name[0] == 'i' ? S_ITEMS : name[0] == 'k' ? S_KEYS : S_VALUES, d->n);
    for (size_t i = 0; i < d->n && !is_error(out); i++) {
        struct value item = name[0] == 'k' ? d->keys[i] : d->values[i];
        if (name[0] == 'i') {
            item = llm_jinja_sequence(w, S_TUPLE, 2);
            if (is_error(item) || llm_jinja_append(w, item.as.sequence, d->keys[i]) < 0) return error;
            if (llm_jinja_append(w, item.as.sequence, d->values[i]) < 0) return error;
        }
        if (llm_jinja_append(w, out.as.sequence, item) < 0) return error;
    }
    return out;
}

/* count, index */
static struct value list_search(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value item;
    int64_t n = 0;
    if (llm_jinja_bind(w, name, "value", c, &item) < 0) return error;
    for (size_t i = 0; i < self.as.sequence->n; i++) {
        int same = llm_jinja_equal(w, self.as.sequence->v[i], item);
        if (same < 0) return error;
        if (same && name[0] == 'i') return v_int((int64_t)i);
        n += same;
    }
    return name[0] == 'i' ? llm_jinja_fail(w, "the value is not in the list") : v_int(n);
}

static struct value list_copy(struct work *w, struct value self, const char *name, const struct call *c)
{
    struct value none;
    return llm_jinja_bind(w, name, "", c, &none) < 0 ? error : self;
}

static struct value loop_cycle(struct work *w, struct value self, const char *name, const struct call *c)
{
    (void)name;
    return c->n ? c->v[self.as.loop->index % c->n] : llm_jinja_fail(w, "no items for cycling given");
}

static struct value loop_changed(struct work *w, struct value self, const char *name, const struct call *c)
{
    (void)name;
    struct value now = llm_jinja_sequence(w, S_TUPLE, 0);
    for (size_t i = 0; i < c->n && !is_error(now); i++)
        if (llm_jinja_append(w, now.as.sequence, c->v[i]) < 0) return error;
    if (is_error(now)) return now;
    int same = self.as.loop->changed.type == V_ABSENT ? 0 : llm_jinja_equal(w, self.as.loop->changed, now);
    self.as.loop->changed = now;
    return same < 0 ? error : v_bool(!same);
}

struct value llm_jinja_method(struct work *w, struct value self, const char *name, const struct call *c)
{
    static const struct {
        enum value_type of;
        const char *name;
        struct value (*run)(struct work *w, struct value self, const char *name, const struct call *c);
    } methods[] = {
        {V_TEXT, "startswith", text_affix}, {V_TEXT, "endswith", text_affix}, {V_TEXT, "split", text_split}, {V_TEXT, "rsplit", text_split},
        {V_TEXT, "strip", text_strip}, {V_TEXT, "lstrip", text_strip}, {V_TEXT, "rstrip", text_strip}, {V_TEXT, "upper", text_case},
        {V_TEXT, "lower", text_case}, {V_TEXT, "capitalize", text_case}, {V_TEXT, "title", text_case}, {V_TEXT, "swapcase", text_case},
        {V_TEXT, "casefold", text_case}, {V_TEXT, "istitle", text_is_title}, {V_TEXT, "isprintable", text_is},
        {V_TEXT, "expandtabs", text_expand_tabs},
        {V_TEXT, "replace", text_replace}, {V_TEXT, "find", text_find}, {V_TEXT, "rfind", text_find}, {V_TEXT, "index", text_find},
        {V_TEXT, "rindex", text_find}, {V_TEXT, "count", text_count}, {V_TEXT, "join", text_join}, {V_TEXT, "format", text_format},
        {V_TEXT, "removeprefix", text_affix_removed}, {V_TEXT, "removesuffix", text_affix_removed}, {V_TEXT, "partition", text_partition},
        {V_TEXT, "rpartition", text_partition}, {V_TEXT, "splitlines", text_lines}, {V_TEXT, "ljust", text_pad}, {V_TEXT, "rjust", text_pad},
        {V_TEXT, "center", text_pad}, {V_TEXT, "zfill", text_pad}, {V_TEXT, "isspace", text_is}, {V_TEXT, "isalpha", text_is},
        {V_TEXT, "isalnum", text_is}, {V_TEXT, "isdigit", text_is}, {V_TEXT, "isdecimal", text_is}, {V_TEXT, "isnumeric", text_is},
        {V_TEXT, "isupper", text_is}, {V_TEXT, "islower", text_is}, {V_TEXT, "isascii", text_is},
        {V_DICT, "get", dict_get}, {V_DICT, "items", dict_view}, {V_DICT, "keys", dict_view}, {V_DICT, "values", dict_view},
        {V_DICT, "copy", dict_view}, {V_SEQUENCE, "count", list_search}, {V_SEQUENCE, "index", list_search}, {V_SEQUENCE, "copy", list_copy},
        {V_LOOP, "cycle", loop_cycle}, {V_LOOP, "changed", loop_changed},
    };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].of == self.type && strcmp(methods[i].name, name) == 0) return methods[i].run(w, self, name, c);
    return llm_jinja_fail(w, "the method %s of %s is not known here", name, llm_jinja_type(self));
}
