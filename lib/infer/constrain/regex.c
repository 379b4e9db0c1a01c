#include "infer/constrain/regex.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/buf.h"
#include "base/utf8.h"

enum { MAX_NESTED = 200, LAST = 0x10FFFF, MAX_COUNT = 1000000 };

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
    const char *known = x && x < 128 ? strchr(letters, (int)x) : NULL;
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

/* Anchors: a JSON string begins and ends with a quote. Of whole texts they stand at the ends, where they say nothing. */
static llm_term anchor(struct reader *r, bool at_end)
{
    return r->use == LLM_REGEX_JSON_SEARCH ? llm_term_byte(r->t, '"') : at_end ? LLM_TERM_EMPTY_TEXT : LLM_TERM_NOTHING;
}

static llm_term read_either(struct reader *r, bool outermost);

static llm_term read_group(struct reader *r)
{
    if (take(r, "?")) {
        if (take(r, "<=") || take(r, "<!")) return fail(r, "lookbehind is not supported");
        if (take(r, "P<") || take(r, "<")) {
            while (more(r) && r->p[r->at] != '>') r->at++;
            if (!take(r, ">")) return fail(r, "expected > after the name of a group");
        } else if (!take(r, ":")) {
            return fail(r, r->at < r->n && strchr("=!", r->p[r->at]) ? "lookahead within a group is not supported"
                                                                       : "this kind of group is not supported");
        }
    }
    llm_term a = read_either(r, false);
    return take(r, ")") ? a : fail(r, "expected ) at the end of a group");
}

static llm_term read_atom(struct reader *r, bool begins)
{
    unsigned char c = r->p[r->at];
    struct llm_chars set = {0};
    llm_term a;
    if (take(r, "(")) return read_group(r);
    if (take(r, ".")) return any_char(r);
    if (take(r, "^") || take(r, "\\A")) return anchor(r, begins);
    if (take(r, "$") || take(r, "\\z") || take(r, "\\Z")) {
        return anchor(r, !more(r) || r->p[r->at] == '|' || r->p[r->at] == ')');
    }
    if (strchr("*+?", c) && c) return fail(r, "expected something to repeat");
    if (take(r, "[")) {
        read_class(r, &set);
    } else {
        uint32_t x = take(r, "\\") ? escape(r, &set, false) : class_item(r, &set);
        if (x != UINT32_MAX) put(r, &set, x, x);
        llm_chars_tidy(&set);
    }
    a = r->bad ? LLM_TERM_NOTHING : llm_term_chars(r->t, &set, r->spelling);
    llm_chars_release(&set);
    return a;
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

static llm_term read_repeats(struct reader *r, llm_term a)
{
    while (more(r)) {
        uint32_t min = 0, max = LLM_REPEAT_ALWAYS;
        size_t before = r->at;
        if (take(r, "+")) min = 1;
        else if (take(r, "?")) max = 1;
        else if (take(r, "*")) min = 0;
        else if (!take(r, "{") || !read_counts(r, &min, &max)) {
            r->at = before;
            return a;
        }
        if (min > MAX_COUNT || (max != LLM_REPEAT_ALWAYS && max > MAX_COUNT)) return fail(r, "expected a number of repetitions up to 1000000");
        if (min > max) return fail(r, "expected a minimum that is not above the maximum");
        a = llm_term_repeat(r->t, a, min, max);
        if (take(r, "+")) return fail(r, "possessive repetitions are not supported");
        (void)take(r, "?");
    }
    return a;
}

struct items { llm_term *v; size_t n, room; };

static void add(struct reader *r, struct items *all, llm_term a)
{
    if (llm_grow((void **)&all->v, &all->room, all->n + 1, sizeof *all->v, r->e) < 0) r->bad = true;
    else all->v[all->n++] = a;
}

static void read_items(struct reader *r, bool outermost, struct items *all);

/* The text that follows must begin, or must not begin, with what is in the group. */
static llm_term read_lookahead(struct reader *r, bool positive)
{
    struct items rest = {0};
    llm_term ahead = llm_term_join(r->t, read_either(r, false), LLM_TERM_ANYTHING), after = LLM_TERM_EMPTY_TEXT;
    if (!take(r, ")")) return fail(r, "expected ) at the end of a group");
    if (++r->nested > MAX_NESTED) return fail(r, "groups are nested too deeply");
    read_items(r, true, &rest);
    r->nested--;
    while (rest.n > 0) after = llm_term_join(r->t, rest.v[--rest.n], after);
    free(rest.v);
    return llm_term_and(r->t, positive ? ahead : llm_term_not(r->t, ahead), after);
}

/* The items of a sequence; what follows the whole pattern is the last one if it is `outermost`. */
static void read_items(struct reader *r, bool outermost, struct items *all)
{
    for (bool begins = true; more(r) && r->p[r->at] != '|' && r->p[r->at] != ')'; begins = false) {
        bool positive = take(r, "(?=");
        if (!positive && !take(r, "(?!")) {
            add(r, all, read_repeats(r, read_atom(r, begins)));
            continue;
        }
        if (r->use == LLM_REGEX_TERMINAL) (void)fail(r, "lookahead is not supported");
        else if (outermost) add(r, all, read_lookahead(r, positive));
        else (void)fail(r, "lookahead within a group is not supported");
        return;
    }
    if (outermost) add(r, all, r->tail);
}

static llm_term read_either(struct reader *r, bool outermost)
{
    struct items all = {0};
    if (++r->nested > MAX_NESTED) return fail(r, "groups are nested too deeply");
    do {
        struct items items = {0};
        llm_term sequence = LLM_TERM_EMPTY_TEXT;
        read_items(r, outermost, &items);
        while (items.n > 0) sequence = llm_term_join(r->t, items.v[--items.n], sequence);
        free(items.v);
        add(r, &all, sequence);
    } while (take(r, "|"));
    r->nested--;
    llm_term either = llm_term_either(r->t, all.v, all.n);
    free(all.v);
    return either;
}

llm_term llm_regex_term(struct llm_terms *t, const char *pattern, size_t n, enum llm_regex_use use, struct llm_err *e)
{
    struct llm_err own = {0};
    struct reader r = {.t = t, .p = (const unsigned char *)pattern, .n = n, .use = use, .e = &own, .tail = LLM_TERM_EMPTY_TEXT};
    llm_term before = LLM_TERM_EMPTY_TEXT;
    r.spelling = use == LLM_REGEX_JSON_SEARCH ? LLM_SPELL_JSON : LLM_SPELL_UTF8;
    if (use == LLM_REGEX_JSON_SEARCH) {
        static struct llm_char_range every[] = {{0, 0xD7FF}, {0xE000, LAST}};
        llm_term chars = llm_term_repeat(t, llm_term_chars(t, &(struct llm_chars){every, 2, 2}, LLM_SPELL_JSON), 0, LLM_REPEAT_ALWAYS);
        llm_term quote = llm_term_byte(t, '"');
        before = llm_term_or(t, LLM_TERM_EMPTY_TEXT, llm_term_join(t, quote, chars));
        r.tail = llm_term_or(t, LLM_TERM_EMPTY_TEXT, llm_term_join(t, chars, quote));
    }
    llm_term a = read_either(&r, true);
    if (!r.bad && r.at < r.n) a = fail(&r, "expected no ) here");
    if (r.bad) {
        if (e) *e = own;
        return LLM_TERM_NOTHING;
    }
    return llm_term_join(t, before, a);
}
