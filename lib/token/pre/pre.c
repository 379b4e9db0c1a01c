#include "token/pre/pre.h"
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

static const struct llm_pre_row *const rows[] = {
    &llm_pre_split,  &llm_pre_byte_level,  &llm_pre_metaspace, &llm_pre_whitespace, &llm_pre_whitespace_split,
    &llm_pre_digits, &llm_pre_punctuation, &llm_pre_bert,      &llm_pre_delimiter,  NULL};

int llm_pre_init(struct llm_pre *s, const json_t *o, struct llm_err *e)
{
    const char *type = NULL;
    *s = (struct llm_pre){0};
    if (!json_is_object(o))
        return llm_fail(e, EX_DATAERR, "pre_tokenizer: expected an object");
    if (llm_json_str(o, "type", &type, e) < 0)
        return llm_in(e, "pre_tokenizer");
    if (!type)
        return llm_fail(e, EX_DATAERR, "pre_tokenizer: expected a type");
    for (size_t i = 0; rows[i]; i++)
        if (strcmp(rows[i]->name, type) == 0)
            s->row = rows[i];
    if (!s->row)
        return llm_fail(e, EX_UNAVAILABLE, "pre_tokenizer '%s' is not supported", type);
    if (s->row->read && s->row->read(s, o, e) < 0) {
        llm_pre_release(s);
        return llm_in(e, "pre_tokenizer %s", type);
    }
    return 0;
}

void llm_pre_release(struct llm_pre *s)
{
    llm_split_release(&s->split);
    llm_buf_release(&s->text);
    *s = (struct llm_pre){0};
}

int llm_pre_run(struct llm_encoder *en, int stage, const unsigned char *p, size_t n, bool first, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    if (n == 0)
        return 0;
    if (stage < t->n_pres)
        return t->pres[stage].row->run(en, stage, p, n, first, e);
    return llm_encoder_room(en, n + 16, e) < 0 ? -1 : t->model->encode(en, p, n, e);
}

bool llm_pre_drops_space(const struct llm_pre *s)
{
    return s->row == &llm_pre_whitespace || s->row == &llm_pre_whitespace_split || s->row == &llm_pre_bert;
}

bool llm_pre_cuts(const struct llm_pre *s, bool spaces)
{
    if (s->row == &llm_pre_split) /* a known pattern, which matches everything */
        return s->split.row && s->behaviour == LLM_ISOLATED;
    if (s->row == &llm_pre_byte_level)
        return s->prepend == LLM_PREPEND_NEVER;
    if (s->row == &llm_pre_metaspace)
        return s->cut || !spaces;
    return llm_pre_drops_space(s);
}

/* ---- matches ---- */

/* Items of a text in order: matches and what lies between them. */
struct items {
    struct llm_encoder *en;
    int stage;
    bool first;
    const unsigned char *text;
    /* the piece that waits: [from, to) */
    size_t from, to;
    bool waiting, was_match;
};

static int emit(struct items *it, size_t from, size_t to, struct llm_err *e)
{
    return llm_pre_run(it->en, it->stage + 1, it->text + from, to - from, it->first && from == 0, e);
}

static int put_item(struct items *it, size_t from, size_t to, bool match, struct llm_err *e)
{
    const struct llm_pre *s = &it->en->t->pres[it->stage];
    if (from == to)
        return 0;
    match ^= s->invert;
    if (s->behaviour == LLM_REMOVED)
        return match ? 0 : emit(it, from, to, e);
    bool join = s->behaviour == LLM_CONTIGUOUS      ? match == it->was_match
                : s->behaviour == LLM_WITH_PREVIOUS ? match && !it->was_match
                : s->behaviour == LLM_WITH_NEXT     ? !match && it->was_match
                                                    : false;
    if (it->waiting && join) {
        it->to = to;
    } else {
        if (it->waiting && emit(it, it->from, it->to, e) < 0)
            return -1;
        it->from = from;
        it->to = to;
        it->waiting = true;
    }
    it->was_match = match;
    return 0;
}

static int end_items(struct items *it, struct llm_err *e)
{
    return it->waiting ? emit(it, it->from, it->to, e) : 0;
}

static int find_string(struct items *it, const struct llm_buf *what, size_t n, struct llm_err *e)
{
    size_t at = 0;
    const unsigned char *found;
    while ((found = memmem(it->text + at, n - at, what->p, what->n)) != NULL) {
        size_t from = (size_t)(found - it->text);
        if (put_item(it, at, from, false, e) < 0 || put_item(it, from, from + what->n, true, e) < 0)
            return -1;
        at = from + what->n;
    }
    return put_item(it, at, n, false, e);
}

static int find_chars(struct items *it, unsigned classes, size_t n, struct llm_err *e)
{
    size_t gap = 0;
    for (size_t at = 0, len; at < n; at += len) {
        uint32_t cp = 0;
        int got = llm_utf8_next(it->text + at, n - at, &cp);
        len = got > 0 ? (size_t)got : 1;
        if (got <= 0 || !(llm_pre_class(cp) & classes))
            continue;
        if (put_item(it, gap, at, false, e) < 0 || put_item(it, at, at + len, true, e) < 0)
            return -1;
        gap = at + len;
    }
    return put_item(it, gap, n, false, e);
}

/* Bytes that are no characters lie between matches. */
static int find_regex(struct items *it, struct llm_regex_state *regex, size_t n, struct llm_err *e)
{
    size_t gap = 0;
    for (size_t at = 0; at < n; at++) {
        size_t end = at + llm_utf8_invalid(it->text + at, n - at), from, to;
        int got = 0;
        for (size_t i = at; i < end && (got = llm_regex_find(regex, it->text + at, i - at, end - at, &from, &to, e)) > 0; i = at + to) {
            if (put_item(it, gap, at + from, false, e) < 0 || put_item(it, at + from, at + to, true, e) < 0)
                return -1;
            gap = at + to;
        }
        if (got < 0)
            return -1;
        at = end;
    }
    return put_item(it, gap, n, false, e);
}

static int find_row(struct items *it, const struct llm_split_row *row, size_t n, struct llm_err *e)
{
    for (size_t at = 0, len; at < n; at += len) {
        len = row->next(it->text + at, it->text + n, true);
        if (put_item(it, at, at + len, true, e) < 0)
            return -1;
    }
    return 0;
}

static int run_split(struct llm_encoder *en, int stage, const unsigned char *p, size_t n, bool first, struct llm_err *e)
{
    const struct llm_pre *s = &en->t->pres[stage];
    struct items it = {en, stage, first, p, 0, 0, false, false};
    int bad;
    if (s->split.row)
        bad = find_row(&it, s->split.row, n, e);
    else if (s->chars)
        bad = find_chars(&it, s->chars, n, e);
    else if (!s->split.regex)
        bad = find_string(&it, &s->text, n, e);
    else if (!en->regex[stage] && !(en->regex[stage] = llm_regex_state_create(s->split.regex, e)))
        bad = -1;
    else
        bad = find_regex(&it, en->regex[stage], n, e);
    return bad < 0 ? -1 : end_items(&it, e);
}

/* ---- Split ---- */

static int read_behaviour(struct llm_pre *s, const json_t *o, struct llm_err *e)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    const char *name = NULL;
    if (llm_json_str(o, "behavior", &name, e) < 0)
        return -1;
    for (int i = 0; name && i < 5; i++)
        if (strcmp(names[i], name) == 0) {
            s->behaviour = (enum llm_behaviour)i;
            return 0;
        }
    return name ? llm_fail(e, EX_UNAVAILABLE, "behavior '%s' is not supported", name) : 0;
}

static int read_split(struct llm_pre *s, const json_t *o, struct llm_err *e)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const char *regex = NULL, *string = NULL;
    if (!json_is_object(pattern))
        return llm_fail(e, EX_DATAERR, "pattern: expected an object");
    if (llm_json_str(pattern, "Regex", &regex, e) < 0 || llm_json_str(pattern, "String", &string, e) < 0
        || llm_json_bool(o, "invert", &s->invert, e) < 0 || read_behaviour(s, o, e) < 0)
        return -1;
    if (regex)
        return llm_split_init(&s->split, regex, e);
    if (!string || !*string)
        return llm_fail(e, EX_DATAERR, "pattern: expected 'Regex' or 'String'");
    return llm_buf_put(&s->text, string, strlen(string), e);
}

static int read_delimiter(struct llm_pre *s, const json_t *o, struct llm_err *e)
{
    const char *text = NULL;
    if (llm_json_str(o, "delimiter", &text, e) < 0)
        return -1;
    if (!text || !*text)
        return llm_fail(e, EX_DATAERR, "delimiter: expected a character");
    s->behaviour = LLM_REMOVED;
    return llm_buf_put(&s->text, text, strlen(text), e);
}

static int read_whitespace_split(struct llm_pre *s, const json_t *o, struct llm_err *e)
{
    (void)o, (void)e;
    s->chars = LLM_PRE_SPACE;
    s->behaviour = LLM_REMOVED;
    return 0;
}

static int read_punctuation(struct llm_pre *s, const json_t *o, struct llm_err *e)
{
    s->chars = LLM_PRE_PUNCT;
    return read_behaviour(s, o, e);
}

static int read_digits(struct llm_pre *s, const json_t *o, struct llm_err *e)
{
    bool each = false;
    s->chars = LLM_PRE_NUMERIC;
    if (llm_json_bool(o, "individual_digits", &each, e) < 0)
        return -1;
    s->behaviour = each ? LLM_ISOLATED : LLM_CONTIGUOUS;
    return 0;
}

const struct llm_pre_row llm_pre_split = {"Split", read_split, run_split}, llm_pre_delimiter = {"CharDelimiterSplit", read_delimiter, run_split},
                         llm_pre_whitespace_split = {"WhitespaceSplit", read_whitespace_split, run_split},
                         llm_pre_punctuation = {"Punctuation", read_punctuation, run_split},
                         llm_pre_digits = {"Digits", read_digits, run_split};

/* ---- Whitespace: \w+|[^\w\s]+ ; BertPreTokenizer: words, punctuation one by one ---- */

static int run_words(struct llm_encoder *en, int stage, const unsigned char *p, size_t n, bool first, struct llm_err *e)
{
    bool bert = en->t->pres[stage].row == &llm_pre_bert;
    size_t from = 0;
    unsigned kind = 0; /* of the piece that begins at `from`: 0 none, 1 and 2 */
    for (size_t at = 0, len; at < n; at += len) {
        uint32_t cp = 0;
        int got = llm_utf8_next(p + at, n - at, &cp);
        unsigned c = got > 0 ? llm_pre_class(cp) : 0;
        unsigned now = c & LLM_PRE_SPACE ? 0 : bert ? (c & LLM_PRE_PUNCT ? 2 : 1) : c & LLM_PRE_WORD ? 1 : 2;
        len = got > 0 ? (size_t)got : 1;
        if (now == kind && !(bert && now == 2))
            continue;
        if (kind && llm_pre_run(en, stage + 1, p + from, at - from, first && from == 0, e) < 0)
            return -1;
        from = at;
        kind = now;
    }
    return kind ? llm_pre_run(en, stage + 1, p + from, n - from, first && from == 0, e) : 0;
}

const struct llm_pre_row llm_pre_whitespace = {"Whitespace", NULL, run_words}, llm_pre_bert = {"BertPreTokenizer", NULL, run_words};

/* ---- Metaspace, ByteLevel: text that changes ---- */

static int read_metaspace(struct llm_pre *s, const json_t *o, struct llm_err *e)
{
    const char *replacement = "\xE2\x96\x81", *scheme = NULL;
    bool old = true;
    s->cut = true;
    if (llm_json_str(o, "replacement", &replacement, e) < 0 || llm_json_str(o, "prepend_scheme", &scheme, e) < 0
        || llm_json_bool(o, "split", &s->cut, e) < 0 || llm_json_bool(o, "add_prefix_space", &old, e) < 0)
        return -1;
    if (!scheme)
        scheme = old ? "always" : "never";
    s->prepend = strcmp(scheme, "always") == 0 ? LLM_PREPEND_ALWAYS : strcmp(scheme, "first") == 0 ? LLM_PREPEND_FIRST : LLM_PREPEND_NEVER;
    if (s->prepend == LLM_PREPEND_NEVER && strcmp(scheme, "never") != 0)
        return llm_fail(e, EX_UNAVAILABLE, "prepend_scheme '%s' is not supported", scheme);
    if (!*replacement)
        return llm_fail(e, EX_DATAERR, "replacement: expected a character");
    s->behaviour = LLM_WITH_NEXT;
    return llm_buf_put(&s->text, replacement, strlen(replacement), e);
}

static bool begins_with(const unsigned char *p, size_t n, const struct llm_buf *text)
{
    return n >= text->n && memcmp(p, text->p, text->n) == 0;
}

static int run_metaspace(struct llm_encoder *en, int stage, const unsigned char *p, size_t n, bool first, struct llm_err *e)
{
    const struct llm_pre *s = &en->t->pres[stage];
    struct llm_buf *b = &en->stages[stage];
    bool prepend = s->prepend == LLM_PREPEND_ALWAYS || (s->prepend == LLM_PREPEND_FIRST && first);
    b->n = 0;
    if (prepend && *p != ' ' && !begins_with(p, n, &s->text) && llm_buf_put(b, s->text.p, s->text.n, e) < 0)
        return -1;
    for (size_t at = 0; at < n;) {
        const unsigned char *space = memchr(p + at, ' ', n - at);
        size_t plain = (space ? (size_t)(space - p) : n) - at;
        if (llm_buf_put(b, p + at, plain, e) < 0 || (space && llm_buf_put(b, s->text.p, s->text.n, e) < 0))
            return -1;
        at += plain + (space != NULL);
    }
    if (llm_buf_reserve(b, b->n + 16, e) < 0)
        return -1;
    if (n >= LLM_LARGE_TEXT && p == (const unsigned char *)en->normal.p && n == en->normal.n && en->normal_set.n == 0)
        llm_buf_release(&en->normal); /* nobody reads it any more */
    if (!s->cut)
        return llm_pre_run(en, stage + 1, (const unsigned char *)b->p, b->n, first, e);
    struct items it = {en, stage, first, (const unsigned char *)b->p, 0, 0, false, false};
    return find_string(&it, &s->text, b->n, e) < 0 ? -1 : end_items(&it, e);
}

const struct llm_pre_row llm_pre_metaspace = {"Metaspace", read_metaspace, run_metaspace};

static int read_byte_level(struct llm_pre *s, const json_t *o, struct llm_err *e)
{
    bool prefix = true;
    s->cut = true;
    if (llm_json_bool(o, "add_prefix_space", &prefix, e) < 0 || llm_json_bool(o, "use_regex", &s->cut, e) < 0)
        return -1;
    s->prepend = prefix ? LLM_PREPEND_ALWAYS : LLM_PREPEND_NEVER;
    return llm_split_init(&s->split, "gpt2", e);
}

static int run_byte_level(struct llm_encoder *en, int stage, const unsigned char *p, size_t n, bool first, struct llm_err *e)
{
    const struct llm_pre *s = &en->t->pres[stage];
    struct llm_buf *b = &en->stages[stage];
    if (s->prepend == LLM_PREPEND_ALWAYS && *p != ' ') {
        b->n = 0;
        if (llm_buf_put(b, " ", 1, e) < 0 || llm_buf_put(b, p, n, e) < 0 || llm_buf_reserve(b, b->n + 16, e) < 0)
            return -1;
        p = (const unsigned char *)b->p;
        n = b->n;
    }
    return s->cut ? run_split(en, stage, p, n, first, e) : llm_pre_run(en, stage + 1, p, n, first, e);
}

const struct llm_pre_row llm_pre_byte_level = {"ByteLevel", read_byte_level, run_byte_level};
