#include "infer/constrain/regex.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/buf.h"
#include "base/utf8.h"

enum { MAX_NESTED = 200, LAST = 0x10FFFF, MAX_COUNT = 1000000, MAX_SUFFIXES = 8 };

/* Texts that a part of a pattern matches: after those of `open` any text may follow, after those of `closed` none, as `$` demands. */
struct ends { llm_term open, closed; };
/* What a part matches where the text begins, and elsewhere: `^` tells them apart. */
struct piece { struct ends first, later; };
static const struct ends no_ends = {LLM_TERM_NOTHING, LLM_TERM_NOTHING}, empty_ends = {LLM_TERM_EMPTY_TEXT, LLM_TERM_NOTHING};
static const struct ends end_of_text = {LLM_TERM_NOTHING, LLM_TERM_EMPTY_TEXT};

struct reader {
    struct llm_terms *t;
    const unsigned char *p;
    size_t n, at;
    enum llm_regex_use use;
    enum llm_spelling spelling;
    llm_term tail;           /* what follows the whole pattern */
    int nested;
    struct llm_err *e;
    bool bad;
};

static llm_term fail(struct reader *r, const char *what)
{
    if (!r->bad) llm_fail(r->e, EX_DATAERR, "character %zu: %s", r->at + 1, what);
    r->bad = true;
    return LLM_TERM_NOTHING;
}

static struct piece piece_of(struct ends a)
{
    return (struct piece){a, a};
}

static struct piece fail_piece(struct reader *r, const char *what)
{
    (void)fail(r, what);
    return piece_of(no_ends);
}

static struct piece open_piece(llm_term a)
{
    return piece_of((struct ends){a, LLM_TERM_NOTHING});
}

static bool same(struct ends a, struct ends b)
{
    return a.open == b.open && a.closed == b.closed;
}

static llm_term whole(const struct reader *r, struct ends a)
{
    return llm_term_or(r->t, a.open, a.closed);
}

static struct ends ends_or(const struct reader *r, struct ends a, struct ends b)
{
    return (struct ends){llm_term_or(r->t, a.open, b.open), llm_term_or(r->t, a.closed, b.closed)};
}

static bool ends_nullable(const struct reader *r, struct ends a)
{
    return llm_term_nullable(r->t, a.open) || llm_term_nullable(r->t, a.closed);
}

static struct ends ends_join(const struct reader *r, struct ends a, struct ends b)
{
    llm_term closed = llm_term_join(r->t, a.open, b.closed);
    if (ends_nullable(r, b)) closed = llm_term_or(r->t, closed, a.closed);
    return (struct ends){llm_term_join(r->t, a.open, b.open), closed};
}

static struct ends ends_repeat(const struct reader *r, struct ends a, uint32_t min, uint32_t max)
{
    struct ends all = {llm_term_repeat(r->t, a.open, min, max), LLM_TERM_NOTHING};
    if (a.closed == LLM_TERM_NOTHING || max == 0) return all;
    llm_term before = llm_term_repeat(r->t, a.open, min == 0 || ends_nullable(r, a) ? 0 : min - 1, max == LLM_REPEAT_ALWAYS ? max : max - 1);
    all.closed = llm_term_join(r->t, before, a.closed);
    return all;
}

/* The texts that are not empty. */
static struct ends some(const struct reader *r, struct ends a)
{
    llm_term *of[] = {&a.open, &a.closed};
    for (int i = 0; i < 2; i++)
        if (llm_term_nullable(r->t, *of[i])) *of[i] = llm_term_and(r->t, *of[i], llm_term_not(r->t, LLM_TERM_EMPTY_TEXT));
    return a;
}

/* The empty text, if it is one of them. */
static struct ends blank(const struct reader *r, struct ends a)
{
    return (struct ends){llm_term_nullable(r->t, a.open) ? LLM_TERM_EMPTY_TEXT : LLM_TERM_NOTHING,
                         llm_term_nullable(r->t, a.closed) ? LLM_TERM_EMPTY_TEXT : LLM_TERM_NOTHING};
}

static struct piece piece_join(const struct reader *r, struct piece a, struct piece b)
{
    struct piece all = {.later = ends_join(r, a.later, b.later)};
    if (same(b.first, b.later)) all.first = ends_join(r, a.first, b.later);
    else all.first = ends_or(r, ends_join(r, some(r, a.first), b.later), ends_join(r, blank(r, a.first), b.first));
    return all;
}

static struct piece piece_repeat(const struct reader *r, struct piece a, uint32_t min, uint32_t max)
{
    struct piece all = piece_of(ends_repeat(r, a.later, min, max));
    if (same(a.first, a.later) || max == 0) return all;
    const uint32_t least = min == 0 || llm_term_nullable(r->t, a.first.open) ? 0 : min - 1;
    const struct ends others = ends_repeat(r, a.later, least, max == LLM_REPEAT_ALWAYS ? max : max - 1);
    all.first = ends_or(r, ends_join(r, some(r, a.first), others), min == 0 ? empty_ends : blank(r, a.first));
    return all;
}

static bool more(const struct reader *r)
{
    return r->at < r->n && !r->bad;
}

static bool take(struct reader *r, const char *text)
{
    size_t n = strlen(text);
    if (r->bad || r->n - r->at < n || memcmp(r->p + r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

static void put(struct reader *r, struct llm_chars *c, uint32_t low, uint32_t high)
{
    if (!r->bad && llm_chars_put(c, low, high, r->e) < 0) r->bad = true;
}

int llm_regex_class(struct llm_chars *c, char letter, struct llm_err *e)
{
    static const uint32_t digits[][2] = {{'0', '9'}}, words[][2] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                          spaces[][2] = {{9, 13}, {32, 32}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                         {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    char kind = (char)(letter | 32);
    const uint32_t(*v)[2] = kind == 'd' ? digits : kind == 'w' ? words : spaces;
    size_t n = kind == 'd' ? 1 : kind == 'w' ? 4 : sizeof spaces / sizeof *spaces;
    struct llm_chars own = {0};
    int status = 0;
    for (size_t i = 0; status == 0 && i < n; i++) status = llm_chars_put(&own, v[i][0], v[i][1], e);
    if (status == 0 && kind != letter) status = llm_chars_invert(&own, e);
    for (size_t i = 0; status == 0 && i < own.n; i++) status = llm_chars_put(c, own.v[i].low, own.v[i].high, e);
    llm_chars_release(&own);
    return status;
}

/* Unicode's long names of general categories, and what they begin with in utf8proc's names (PropertyValueAliases.txt). */
static const struct { const char *name, *letters; } categories[] = {
    {"Letter", "L"}, {"Uppercase_Letter", "Lu"}, {"Lowercase_Letter", "Ll"}, {"Titlecase_Letter", "Lt"}, {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"}, {"Mark", "M"}, {"Combining_Mark", "M"}, {"Nonspacing_Mark", "Mn"}, {"Spacing_Mark", "Mc"}, {"Enclosing_Mark", "Me"},
    {"Number", "N"}, {"Decimal_Number", "Nd"}, {"digit", "Nd"}, {"Letter_Number", "Nl"}, {"Other_Number", "No"}, {"Punctuation", "P"}, {"punct", "P"},
    {"Connector_Punctuation", "Pc"}, {"Dash_Punctuation", "Pd"}, {"Open_Punctuation", "Ps"}, {"Close_Punctuation", "Pe"},
    {"Initial_Punctuation", "Pi"}, {"Final_Punctuation", "Pf"}, {"Other_Punctuation", "Po"}, {"Symbol", "S"}, {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"}, {"Modifier_Symbol", "Sk"}, {"Other_Symbol", "So"}, {"Separator", "Z"}, {"Space_Separator", "Zs"},
    {"Line_Separator", "Zl"}, {"Paragraph_Separator", "Zp"}, {"Other", "C"}, {"Control", "Cc"}, {"cntrl", "Cc"}, {"Format", "Cf"},
    {"Private_Use", "Co"}, {"Unassigned", "Cn"}};

/* The letters of a category that is named by them or by its long name, perhaps after "gc="; NULL: it is not known. */
static const char *category(const char *text, size_t n, size_t *length)
{
    static const char *const prefixes[] = {"gc=", "General_Category="};
    for (int i = 0; i < 2; i++) {
        const size_t skip = strlen(prefixes[i]);
        if (n <= skip || memcmp(text, prefixes[i], skip) != 0) continue;
        text += skip;
        n -= skip;
        break;
    }
    *length = n;
    if (n == 1 || n == 2) return text;
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        if (strlen(categories[i].name) != n || memcmp(categories[i].name, text, n) != 0) continue;
        *length = strlen(categories[i].letters);
        return categories[i].letters;
    }
    return NULL;
}

/* \p{Lu}, \p{L}, \P{L}, \p{Letter}: characters by general category. */
static void put_category(struct reader *r, struct llm_chars *c, bool others)
{
    size_t from = r->at + 1, length = 0;
    const unsigned char *end = more(r) && r->p[r->at] == '{' ? memchr(r->p + r->at, '}', r->n - r->at) : NULL;
    size_t n = end ? (size_t)(end - r->p) - from : 0;
    const char *letters = category(end ? (const char *)r->p + from : "", n, &length);
    struct llm_chars own = {0};
    uint32_t first = UINT32_MAX;
    bool some = false;
    if (!letters) {
        (void)fail(r, "expected a general category, as in \\p{L}, \\p{Lu} or \\p{Uppercase_Letter}");
        return;
    }
    for (uint32_t x = 0; x <= LAST + 1; x++) {
        const char *name = x <= LAST ? utf8proc_category_string((utf8proc_int32_t)x) : "";
        bool in = x <= LAST && (x < 0xD800 || x > 0xDFFF) && strncmp(name, letters, length) == 0;
        if (in && first == UINT32_MAX) first = x;
        if (!in && first != UINT32_MAX) {
            put(r, &own, first, x - 1);
            first = UINT32_MAX;
            some = true;
        }
    }
    if (!some) (void)fail(r, "this general category is not known");
    if (others && !r->bad && llm_chars_invert(&own, r->e) < 0) r->bad = true;
    for (size_t i = 0; i < own.n; i++) put(r, c, own.v[i].low, own.v[i].high);
    llm_chars_release(&own);
    r->at = from + n + 1;
}

static uint32_t hex(struct reader *r, int digits)
{
    uint32_t x = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        int c = more(r) ? r->p[r->at] : 0, v = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (v < 0) {
            (void)fail(r, "expected a hexadecimal digit");
            return 0;
        }
        x = x * 16 + (uint32_t)v;
    }
    return x;
}

static uint32_t unicode_escape(struct reader *r)
{
    if (take(r, "{")) {
        uint32_t x = 0;
        for (int i = 0; i < 7 && more(r) && r->p[r->at] != '}'; i++) x = x * 16 + hex(r, 1);
        if (!take(r, "}") || x > LAST) (void)fail(r, "expected the number of a character");
        return x;
    }
    uint32_t x = hex(r, 4);
    if (x >= 0xD800 && x < 0xDC00 && take(r, "\\u")) {
        uint32_t low = hex(r, 4);
        if (low < 0xDC00 || low > 0xDFFF) (void)fail(r, "expected the second half of a pair of surrogates");
        return 0x10000 + ((x - 0xD800) << 10) + (low & 0x3FF);
    }
    if (x >= 0xD800 && x < 0xE000) (void)fail(r, "half of a pair of surrogates is no character");
    return x;
}

/* What follows a backslash. Returns one character; UINT32_MAX: several, which were put into `c`. */
static uint32_t escape(struct reader *r, struct llm_chars *c, bool in_class)
{
    static const char letters[] = "tnrfv0", meanings[] = "\t\n\r\f\v";
    uint32_t x = 0;
    if (!more(r)) return (void)fail(r, "expected a character after \\"), 0;
    int step = llm_utf8_next(r->p + r->at, r->n - r->at, &x);
    if (step <= 0) return (void)fail(r, "expected UTF-8"), 0;
    r->at += (size_t)step;
    if (x < 128 && strchr("dDwWsS", (int)x) && x) {
        if (llm_regex_class(c, (char)x, r->e) < 0) r->bad = true;
        return UINT32_MAX;
    }
    if (x == 'p' || x == 'P') {
        put_category(r, c, x == 'P');
        return UINT32_MAX;
    }
    if (x == 'x') return hex(r, 2);
    if (x == 'u') return unicode_escape(r);
    if (x == 'c') return more(r) ? r->p[r->at++] & 31u : (uint32_t)fail(r, "expected a letter");
    if (x == 'b' && in_class) return '\b';
    if (x == 'b' || x == 'B') return (uint32_t)fail(r, "word boundaries are not supported");
    if ((x >= '1' && x <= '9') || x == 'k') return (uint32_t)fail(r, "references to groups are not regular");
    if (x == '0' && more(r) && r->p[r->at] >= '0' && r->p[r->at] <= '9') return (uint32_t)fail(r, "octal numbers of characters are not supported");
    const char *known = x && x < 128 ? strchr(letters, (int)x) : NULL;
    if (!known && ((x | 32) >= 'a' && (x | 32) <= 'z')) return (uint32_t)fail(r, "this escape is not supported");
    return known ? (unsigned char)meanings[known - letters] : x;
}

/* One character of a class, or several, in which case it returns UINT32_MAX. */
static uint32_t class_item(struct reader *r, struct llm_chars *c)
{
    uint32_t x = 0;
    if (take(r, "\\")) return escape(r, c, true);
    int step = llm_utf8_next(r->p + r->at, r->n - r->at, &x);
    if (step <= 0) return (uint32_t)fail(r, "expected UTF-8");
    r->at += (size_t)step;
    return x;
}

static void read_class(struct reader *r, struct llm_chars *c)
{
    bool others = take(r, "^");
    for (bool first = true; more(r) && (r->p[r->at] != ']' || (first && r->use != LLM_REGEX_JSON_SEARCH)); first = false) {
        uint32_t low = class_item(r, c), high = low;
        if (low == UINT32_MAX || r->bad) continue;
        if (r->n - r->at >= 2 && r->p[r->at] == '-' && r->p[r->at + 1] != ']') {
            r->at++;
            high = class_item(r, c);
            if (high == UINT32_MAX) { /* [a-\d]: the hyphen stands for itself */
                put(r, c, '-', '-');
                high = low;
            }
        }
        if (high < low) (void)fail(r, "expected a range that ascends");
        put(r, c, low, high);
    }
    if (!take(r, "]")) (void)fail(r, "expected ] at the end of a class");
    if (others && !r->bad && llm_chars_invert(c, r->e) < 0) r->bad = true;
    llm_chars_tidy(c);
}

static llm_term any_char(struct reader *r)
{
    struct llm_chars c = {0};
    put(r, &c, '\n', '\n');
    if (r->use == LLM_REGEX_JSON_SEARCH) {
        put(r, &c, '\r', '\r');
        put(r, &c, 0x2028, 0x2029);
    }
    if (!r->bad && llm_chars_invert(&c, r->e) < 0) r->bad = true;
    llm_term a = llm_term_chars(r->t, &c, r->spelling);
    llm_chars_release(&c);
    return a;
}

static struct piece read_either(struct reader *r, bool outermost);

static struct piece read_group(struct reader *r)
{
    if (take(r, "?")) {
        if (take(r, "<=") || take(r, "<!")) return fail_piece(r, "lookbehind is not supported");
        if (take(r, "P<") || take(r, "<")) {
            while (more(r) && r->p[r->at] != '>') r->at++;
            if (!take(r, ">")) return fail_piece(r, "expected > after the name of a group");
        } else if (!take(r, ":")) {
            return fail_piece(r, r->at < r->n && strchr("=!", r->p[r->at]) ? "lookahead within a group is not supported"
                                                                             : "this kind of group is not supported");
        }
    }
    struct piece a = read_either(r, false);
    return take(r, ")") ? a : fail_piece(r, "expected ) at the end of a group");
}

static struct piece read_atom(struct reader *r)
{
    unsigned char c = r->p[r->at];
    struct llm_chars set = {0};
    llm_term a;
    if (take(r, "(")) return read_group(r);
    if (take(r, ".")) return open_piece(any_char(r));
    if (take(r, "^") || take(r, "\\A")) return (struct piece){empty_ends, no_ends};
    if (take(r, "$") || take(r, "\\z") || take(r, "\\Z")) return piece_of(end_of_text);
    if (strchr("*+?", c) && c) return fail_piece(r, "expected something to repeat");
    if (take(r, "[")) {
        read_class(r, &set);
    } else {
        uint32_t x = take(r, "\\") ? escape(r, &set, false) : class_item(r, &set);
        if (x != UINT32_MAX) put(r, &set, x, x);
        llm_chars_tidy(&set);
    }
    a = r->bad ? LLM_TERM_NOTHING : llm_term_chars(r->t, &set, r->spelling);
    llm_chars_release(&set);
    return open_piece(a);
}

static bool number(struct reader *r, uint32_t *x)
{
    size_t from = r->at;
    for (*x = 0; more(r) && r->p[r->at] >= '0' && r->p[r->at] <= '9'; r->at++)
        if (*x <= MAX_COUNT) *x = *x * 10 + (r->p[r->at] - '0');
    return r->at > from;
}

/* {2}, {2,}, {2,5}, {,5}. False: the brace is none of these and stands for itself. */
static bool read_counts(struct reader *r, uint32_t *min, uint32_t *max)
{
    size_t from = r->at;
    *min = 0;
    bool some = number(r, min);
    *max = *min;
    if (take(r, ",")) {
        *max = LLM_REPEAT_ALWAYS;
        some |= number(r, max);
        if (r->p[r->at - 1] == ',') *max = LLM_REPEAT_ALWAYS;
    }
    if (some && take(r, "}")) return true;
    r->at = from;
    return false;
}

static struct piece read_repeated(struct reader *r)
{
    struct piece a = read_atom(r);
    for (int suffixes = 0; more(r); suffixes++) {
        uint32_t min = 0, max = LLM_REPEAT_ALWAYS;
        size_t before = r->at;
        if (take(r, "+")) min = 1;
        else if (take(r, "?")) max = 1;
        else if (take(r, "*")) min = 0;
        else if (!take(r, "{") || !read_counts(r, &min, &max)) {
            r->at = before;
            return a;
        }
        if (min > MAX_COUNT || (max != LLM_REPEAT_ALWAYS && max > MAX_COUNT)) {
            return fail_piece(r, "expected a number of repetitions up to 1000000");
        }
        if (min > max) return fail_piece(r, "expected a minimum that is not above the maximum");
        if (suffixes == MAX_SUFFIXES) return fail_piece(r, "expected at most 8 repetitions after one another");
        a = piece_repeat(r, a, min, max);
        if (take(r, "+")) return fail_piece(r, "possessive repetitions are not supported");
        (void)take(r, "?");
    }
    return a;
}

struct items { struct piece *v; size_t n, room; };

static void add(struct reader *r, struct items *all, struct piece a)
{
    if (llm_grow((void **)&all->v, &all->room, all->n + 1, sizeof *all->v, r->e) < 0) r->bad = true;
    else all->v[all->n++] = a;
}

static struct piece join_items(struct reader *r, struct items *all)
{
    struct piece a = piece_of(empty_ends);
    while (all->n > 0) a = piece_join(r, all->v[--all->n], a);
    free(all->v);
    return a;
}

static void read_items(struct reader *r, bool outermost, struct items *all);

static struct ends look(const struct reader *r, struct ends ahead, struct ends after, bool positive)
{
    const llm_term all = llm_term_or(r->t, llm_term_join(r->t, ahead.open, LLM_TERM_ANYTHING), ahead.closed);
    return (struct ends){llm_term_and(r->t, positive ? all : llm_term_not(r->t, all), whole(r, after)), LLM_TERM_NOTHING};
}

/* The text that follows must begin, or must not begin, with what is in the group. */
static struct piece read_lookahead(struct reader *r, bool positive)
{
    struct items rest = {0};
    const struct piece ahead = read_either(r, false);
    if (!take(r, ")")) return fail_piece(r, "expected ) at the end of a group");
    if (++r->nested > MAX_NESTED) return fail_piece(r, "groups are nested too deeply");
    read_items(r, true, &rest);
    r->nested--;
    const struct piece after = join_items(r, &rest);
    return (struct piece){look(r, ahead.first, after.first, positive), look(r, ahead.later, after.later, positive)};
}

/* The items of a sequence; what follows the whole pattern is the last one if it is `outermost`. */
static void read_items(struct reader *r, bool outermost, struct items *all)
{
    while (more(r) && r->p[r->at] != '|' && r->p[r->at] != ')') {
        bool positive = take(r, "(?=");
        if (!positive && !take(r, "(?!")) {
            add(r, all, read_repeated(r));
            continue;
        }
        if (r->use == LLM_REGEX_TERMINAL) (void)fail(r, "lookahead is not supported");
        else if (outermost) add(r, all, read_lookahead(r, positive));
        else (void)fail(r, "lookahead within a group is not supported");
        return;
    }
    if (outermost) add(r, all, open_piece(r->tail));
}

static struct ends either_of(const struct reader *r, const struct items *all, bool later)
{
    struct ends either = no_ends;
    llm_term *v = llm_alloc(2 * all->n + 1, sizeof *v, "a pattern", r->e);
    for (size_t i = 0; v && i < all->n; i++) {
        const struct ends a = later ? all->v[i].later : all->v[i].first;
        v[i] = a.open;
        v[all->n + i] = a.closed;
    }
    if (v) either = (struct ends){llm_term_either(r->t, v, all->n), llm_term_either(r->t, v + all->n, all->n)};
    free(v);
    return either;
}

static struct piece read_either(struct reader *r, bool outermost)
{
    struct items all = {0};
    if (++r->nested > MAX_NESTED) return fail_piece(r, "groups are nested too deeply");
    do {
        struct items items = {0};
        read_items(r, outermost, &items);
        add(r, &all, join_items(r, &items));
    } while (take(r, "|"));
    r->nested--;
    const struct piece either = {either_of(r, &all, false), either_of(r, &all, true)};
    free(all.v);
    return either;
}

llm_term llm_regex_term(struct llm_terms *t, const char *pattern, size_t n, enum llm_regex_use use, struct llm_err *e)
{
    static struct llm_char_range every[] = {{0, 0xD7FF}, {0xE000, LAST}};
    const bool json = use == LLM_REGEX_JSON_SEARCH;
    struct llm_err own = {0};
    struct reader r = {.t = t, .p = (const unsigned char *)pattern, .n = n, .use = use, .spelling = json ? LLM_SPELL_JSON : LLM_SPELL_UTF8,
                       .tail = LLM_TERM_EMPTY_TEXT, .e = &own};
    const llm_term one = json ? llm_term_chars(t, &(struct llm_chars){every, 2, 2}, LLM_SPELL_JSON) : LLM_TERM_NOTHING;
    if (json) r.tail = llm_term_repeat(t, one, 0, LLM_REPEAT_ALWAYS);
    const struct piece found = read_either(&r, true);
    if (!r.bad && r.at < r.n) (void)fail(&r, "expected no ) here");
    if (own.status != 0) r.bad = true; /* memory */
    if (r.bad) {
        if (e) *e = own;
        return LLM_TERM_NOTHING;
    }
    llm_term all = whole(&r, found.first);
    if (!json) return all;
    /* It may be found anywhere between the quotes. */
    if (same(found.first, found.later)) all = llm_term_join(t, r.tail, all);
    else all = llm_term_or(t, all, llm_term_join(t, llm_term_repeat(t, one, 1, LLM_REPEAT_ALWAYS), whole(&r, found.later)));
    const llm_term quote = llm_term_byte(t, '"');
    return llm_term_join(t, quote, llm_term_join(t, all, quote));
}
