/* Lark's form of grammars, the part of it that describes languages, with llguidance's {N,M}, names with '-' and comments with '#'. The tree that Lark
 * would build is of no interest here: aliases, the marks ? and ! of rules and priorities are read and change nothing. */
#include <utf8proc.h>
#include "base/buf.h"
#include "infer/constrain/grammar_internal.h"
#include "infer/constrain/regex.h"

/* What %import common.NAME names, from the definitions in Lark's manual. */
static const struct { const char *name, *pattern; } common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"NUMBER", "([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "\\/\\/[^\\n]*"},
    {"C_COMMENT", "\\/\\*([^*]|\\*+[^*\\/])*\\*+\\/"},
    {"SQL_COMMENT", "--[^\\n]*"},
    {NULL, NULL}};

struct lark {
    struct llm_grammar *g;
    bool in_terminal;        /* its parts are no terminals of their own */
    int32_t ignored;         /* alternatives of %ignore, whose last is `last_ignored` */
    int32_t last_ignored;
};

static const char template[] = "a template (name{…})", attribute[] = "an attribute of a rule (name[…])";

static int32_t unsupported(struct lark *l, const char *what, size_t n)
{
    struct llm_grammar *g = l->g;
    if (!g->bad) llm_fail(g->e, EX_DATAERR, "line %d: %.*s is not supported", g->line, (int)(n < 80 ? n : 80), what);
    g->bad = true;
    return LLM_NO_NODE;
}

static void skip(struct lark *l, bool lines)
{
    llm_grammar_skip(l->g, lines, "//");
}

/* A name; *n is 0 if there is none. */
static const char *read_name(struct lark *l, size_t *n)
{
    struct llm_grammar *g = l->g;
    size_t from = g->at;
    int c = llm_grammar_peek(g);
    if (c != '-' && (c < '0' || c > '9')) {
        while (llm_grammar_is_name(llm_grammar_peek(g)) && !(g->p[g->at] == '-' && g->at + 1 < g->n && g->p[g->at + 1] == '>')) g->at++;
    }
    *n = g->at - from;
    return (const char *)g->p + from;
}

static bool names_terminal(const char *name, size_t n)
{
    while (n > 0 && *name == '_') name++, n--;
    return n > 0 && *name >= 'A' && *name <= 'Z';
}

/* A terminal in a rule, with what is ignored after it. */
static int32_t terminal(struct lark *l, int32_t item)
{
    struct llm_grammar *g = l->g;
    if (l->in_terminal || g->ignored == LLM_NO_NODE) return item;
    int32_t all = llm_grammar_node(g, LLM_NODE_SEQUENCE), last = LLM_NO_NODE;
    llm_grammar_append(g, all, &last, item);
    llm_grammar_append(g, all, &last, llm_grammar_use(g, g->ignored));
    return all;
}

static int32_t regex(struct lark *l, const char *pattern, size_t n)
{
    struct llm_grammar *g = l->g;
    struct llm_err e = {0};
    int32_t i = llm_grammar_node(g, LLM_NODE_TERM);
    if (i == LLM_NO_NODE) return i;
    g->nodes[i].term = llm_regex_term(g->t, pattern, n, LLM_REGEX_TERMINAL, &e);
    if (!e.status) return i;
    llm_fail(g->e, e.status, "line %d: /%.*s/: %s", g->line, (int)(n < 80 ? n : 80), pattern, e.text);
    g->bad = true;
    return LLM_NO_NODE;
}

/* After the opening slash. */
static int32_t read_regex(struct lark *l)
{
    struct llm_grammar *g = l->g;
    size_t from = g->at;
    for (; llm_grammar_peek(g) >= 0 && g->p[g->at] != '/' && g->p[g->at] != '\n'; g->at++)
        if (g->p[g->at] == '\\' && g->at + 1 < g->n) g->at++;
    size_t n = g->at - from;
    if (!llm_grammar_take(g, "/")) return llm_grammar_fail(g, "expected / at the end of a regular expression");
    int flag = llm_grammar_peek(g);
    if (flag > 0 && strchr("imslux", flag)) {
        char text[] = "flag ? of a regular expression";
        text[5] = (char)flag;
        return unsupported(l, text, sizeof text - 1);
    }
    return terminal(l, regex(l, (const char *)g->p + from, n));
}

/* After the opening quote, with its closing one. `only`: the character if it is the only one, else UINT32_MAX. */
static int32_t read_text(struct lark *l, uint32_t *only)
{
    struct llm_grammar *g = l->g;
    int32_t all = llm_grammar_node(g, LLM_NODE_SEQUENCE), last = LLM_NO_NODE;
    size_t count = 0;
    *only = UINT32_MAX;
    while (llm_grammar_peek(g) >= 0 && llm_grammar_peek(g) != '"' && llm_grammar_peek(g) != '\n') {
        uint32_t x = llm_grammar_text_char(g);
        llm_grammar_append(g, all, &last, llm_grammar_char(g, x, x));
        *only = count++ == 0 ? x : UINT32_MAX;
    }
    return llm_grammar_take(g, "\"") ? all : llm_grammar_fail(g, "expected \" at the end of a text");
}

/* Letters in the characters of the text get their other cases. */
static void ignore_case(struct lark *l, int32_t all)
{
    struct llm_grammar *g = l->g;
    for (int32_t i = g->nodes[all].child; i != LLM_NO_NODE; i = g->nodes[i].next) {
        struct llm_chars *c = &g->nodes[i].chars;
        int32_t x = (int32_t)c->v[0].low, cases[] = {utf8proc_tolower(x), utf8proc_toupper(x), utf8proc_totitle(x)};
        for (int k = 0; k < 3; k++)
            if (llm_chars_put(c, (uint32_t)cases[k], (uint32_t)cases[k], g->e) < 0) g->bad = true;
        llm_chars_tidy(c);
    }
}

static int32_t read_text_or_range(struct lark *l)
{
    struct llm_grammar *g = l->g;
    uint32_t low, high = UINT32_MAX;
    int32_t all = read_text(l, &low);
    if (g->bad) return LLM_NO_NODE;
    bool any_case = llm_grammar_take(g, "i");
    if (any_case) ignore_case(l, all);
    skip(l, false);
    if (!llm_grammar_take(g, "..")) return terminal(l, all);
    skip(l, false);
    if (!llm_grammar_take(g, "\"")) return llm_grammar_fail(g, "expected a text after ..");
    (void)read_text(l, &high);
    if (llm_grammar_take(g, "i") || any_case) return llm_grammar_fail(g, "a range with i is not supported");
    if (low == UINT32_MAX || high == UINT32_MAX || high < low) return llm_grammar_fail(g, "expected a range \"A\"..\"B\" of characters that ascends");
    return terminal(l, llm_grammar_char(g, low, high));
}

static int32_t read_either(struct lark *l, bool lines);

static int32_t read_group(struct lark *l, const char *end)
{
    struct llm_grammar *g = l->g;
    int32_t i = read_either(l, true);
    if (!llm_grammar_take(g, end)) return llm_grammar_fail(g, *end == ')' ? "expected ) at the end of a group" : "expected ] at the end of a group");
    return *end == ')' ? i : llm_grammar_repeat(g, i, 0, 1);
}

static int32_t read_atom(struct lark *l)
{
    static const struct { char first; const char *what; } others[] = {
        {'<', "a special token (<…>)"}, {'@', "another grammar (@name)"}, {'&', "& between terminals"}, {'~', "~ before a terminal"}, {0, NULL}};
    struct llm_grammar *g = l->g;
    size_t n;
    if (llm_grammar_take(g, "(")) return read_group(l, ")");
    if (llm_grammar_take(g, "[")) return read_group(l, "]");
    if (llm_grammar_take(g, "\"")) return read_text_or_range(l);
    if (llm_grammar_take(g, "/")) return read_regex(l);
    for (int i = 0; others[i].what; i++)
        if (llm_grammar_peek(g) == others[i].first) return unsupported(l, others[i].what, strlen(others[i].what));
    if (llm_grammar_take(g, "%")) {
        const char *name = read_name(l, &n);
        return unsupported(l, name - 1, n + 1);
    }
    const char *name = read_name(l, &n);
    if (n == 0) return llm_grammar_fail(g, "expected a text, a regular expression, a group or a name");
    if (llm_grammar_peek(g) == '{' && g->at + 1 < g->n && (g->p[g->at + 1] | 32) >= 'a') return unsupported(l, template, sizeof template - 1);
    int32_t i = llm_grammar_use(g, llm_grammar_rule(g, name, n));
    if (names_terminal(name, n)) return terminal(l, i);
    return l->in_terminal ? llm_grammar_fail(g, "a terminal consists of texts, regular expressions and terminals, not of rules") : i;
}

/* After ~: N or N..M. */
static void read_range(struct lark *l, uint32_t *min, uint32_t *max)
{
    struct llm_grammar *g = l->g;
    skip(l, false);
    bool good = llm_grammar_number(g, min);
    *max = *min;
    skip(l, false);
    if (good && llm_grammar_take(g, "..")) {
        skip(l, false);
        good = llm_grammar_number(g, max);
    }
    if (!good) (void)llm_grammar_fail(g, "expected ~N or ~N..M");
    else (void)llm_grammar_check_counts(g, *min, *max);
}

static int32_t read_item(struct lark *l, bool lines)
{
    struct llm_grammar *g = l->g;
    int32_t item = read_atom(l);
    for (int suffixes = 0;; suffixes++) {
        uint32_t min = 0, max = LLM_REPEAT_ALWAYS;
        skip(l, lines);
        if (llm_grammar_take(g, "+")) min = 1;
        else if (llm_grammar_take(g, "?")) max = 1;
        else if (llm_grammar_take(g, "~")) read_range(l, &min, &max);
        else if (llm_grammar_take(g, "{")) llm_grammar_counts(g, &min, &max);
        else if (!llm_grammar_take(g, "*")) return item;
        if (suffixes == LLM_GRAMMAR_MAX_SUFFIXES) return llm_grammar_fail(g, "expected at most 8 repetitions after one another");
        item = llm_grammar_repeat(g, item, min, max);
    }
}

static int32_t read_sequence(struct lark *l, bool lines)
{
    struct llm_grammar *g = l->g;
    int32_t all = llm_grammar_node(g, LLM_NODE_SEQUENCE), last = LLM_NO_NODE;
    skip(l, lines);
    for (int c; (c = llm_grammar_peek(g)) >= 0 && !strchr("|)]\n\r", c);) {
        if (llm_grammar_take(g, "->")) { /* the name of an alternative in Lark's tree */
            size_t n;
            skip(l, false);
            (void)read_name(l, &n);
            skip(l, lines);
            if (n == 0) return llm_grammar_fail(g, "expected a name after ->");
            break;
        }
        llm_grammar_append(g, all, &last, read_item(l, lines));
    }
    return all;
}

static int32_t read_either(struct lark *l, bool lines)
{
    struct llm_grammar *g = l->g;
    int32_t all = llm_grammar_node(g, LLM_NODE_EITHER), last = LLM_NO_NODE;
    if (++g->nested > LLM_GRAMMAR_MAX_NESTED) return llm_grammar_fail(g, "groups are nested too deeply");
    for (;;) {
        llm_grammar_append(g, all, &last, read_sequence(l, lines));
        size_t at = g->at;
        int line = g->line;
        skip(l, true); /* the next alternative may stand on the next line */
        if (!llm_grammar_take(g, "|")) {
            if (!lines) {
                g->at = at;
                g->line = line;
            }
            break;
        }
    }
    g->nested--;
    return all;
}

/* The rule's body without left recursion, if its alternatives begin with the rule itself: a: a x | b is b x*. */
static int32_t repeat_left(struct llm_grammar *g, int32_t rule, int32_t body)
{
    if (g->bad) return body;
    int32_t begins = llm_grammar_node(g, LLM_NODE_EITHER), last_begin = LLM_NO_NODE;
    int32_t goes_on = llm_grammar_node(g, LLM_NODE_EITHER), last_on = LLM_NO_NODE;
    for (int32_t c = g->bad ? LLM_NO_NODE : g->nodes[body].child, next; c != LLM_NO_NODE; c = next) {
        int32_t first = g->nodes[c].child;
        next = g->nodes[c].next;
        g->nodes[c].next = LLM_NO_NODE;
        bool itself = first != LLM_NO_NODE && g->nodes[first].kind == LLM_NODE_RULE && g->nodes[first].rule == rule;
        if (itself && g->nodes[first].next == LLM_NO_NODE) continue;
        if (itself) g->nodes[c].child = g->nodes[first].next;
        llm_grammar_append(g, itself ? goes_on : begins, itself ? &last_on : &last_begin, c);
    }
    if (last_on == LLM_NO_NODE) return begins;
    int32_t all = llm_grammar_node(g, LLM_NODE_SEQUENCE), last = LLM_NO_NODE;
    llm_grammar_append(g, all, &last, begins);
    llm_grammar_append(g, all, &last, llm_grammar_repeat(g, goes_on, 0, LLM_REPEAT_ALWAYS));
    return all;
}

static void read_rule(struct lark *l)
{
    struct llm_grammar *g = l->g;
    size_t n, number;
    while (llm_grammar_take(g, "?") || llm_grammar_take(g, "!")) continue;
    const char *name = read_name(l, &n);
    if (llm_grammar_peek(g) == '{') unsupported(l, template, sizeof template - 1);
    if (llm_grammar_peek(g) == '[') unsupported(l, attribute, sizeof attribute - 1);
    if (llm_grammar_take(g, ".")) { /* a priority */
        (void)llm_grammar_take(g, "-");
        (void)read_name(l, &number);
        for (uint32_t x; llm_grammar_number(g, &x);) continue;
    }
    skip(l, false);
    if (n == 0 || !llm_grammar_take(g, ":")) {
        (void)llm_grammar_fail(g, "expected a rule: name: …");
        return;
    }
    int32_t rule = llm_grammar_begin(g, name, n);
    if (g->bad) return;
    l->in_terminal = g->rules[rule].terminal = names_terminal(name, n);
    skip(l, false);
    int32_t body = read_either(l, false);
    body = l->in_terminal ? body : repeat_left(g, rule, body);
    l->in_terminal = false;
    if (!g->bad) g->rules[rule].body = body;
}

static void define_common(struct lark *l, const char *name, size_t n, const char *as, size_t n_as)
{
    struct llm_grammar *g = l->g;
    int i = 0;
    while (common[i].name && !(strlen(common[i].name) == n && memcmp(common[i].name, name, n) == 0)) i++;
    if (!common[i].name) {
        unsupported(l, name, n);
        return;
    }
    int32_t rule = llm_grammar_begin(g, as, n_as), body = regex(l, common[i].pattern, strlen(common[i].pattern));
    if (g->bad) return;
    g->rules[rule].terminal = true;
    g->rules[rule].body = body;
}

/* After %import: common.NAME, common.NAME -> OTHER or common (NAME, NAME). */
static void read_import(struct lark *l)
{
    struct llm_grammar *g = l->g;
    size_t n, n_as;
    size_t from = g->at - strlen("%import");
    skip(l, false);
    const char *library = read_name(l, &n);
    if (n != 6 || memcmp(library, "common", 6) != 0) {
        while (llm_grammar_peek(g) > ' ') g->at++;
        unsupported(l, (const char *)g->p + from, g->at - from);
        return;
    }
    if (llm_grammar_take(g, ".")) {
        const char *name = read_name(l, &n), *as = name;
        n_as = n;
        skip(l, false);
        if (llm_grammar_take(g, "->")) {
            skip(l, false);
            as = read_name(l, &n_as);
        }
        if (n == 0 || n_as == 0) (void)llm_grammar_fail(g, "expected %import common.NAME or common.NAME -> OTHER");
        else define_common(l, name, n, as, n_as);
        return;
    }
    skip(l, false);
    if (!llm_grammar_take(g, "(")) (void)llm_grammar_fail(g, "expected %import common.NAME or common (NAME, …)");
    for (bool more = !g->bad; more;) {
        skip(l, true);
        const char *name = read_name(l, &n);
        if (n == 0) (void)llm_grammar_fail(g, "expected a name in %import common (…)");
        else define_common(l, name, n, name, n);
        skip(l, true);
        more = llm_grammar_take(g, ",");
        if (!more && !llm_grammar_take(g, ")")) (void)llm_grammar_fail(g, "expected ) after %import common (…");
    }
}

static void read_statement(struct lark *l)
{
    struct llm_grammar *g = l->g;
    size_t n;
    const char *name = read_name(l, &n);
    if (n == 6 && memcmp(name, "ignore", 6) == 0) {
        l->in_terminal = true;
        llm_grammar_append(g, l->ignored, &l->last_ignored, read_either(l, false));
        l->in_terminal = false;
    } else if (n == 6 && memcmp(name, "import", 6) == 0) {
        read_import(l);
    } else {
        bool begins = n == 10 && memcmp(name, "llguidance", 10) == 0;
        skip(l, false);
        if (!begins || !llm_grammar_take(g, "{}")) unsupported(l, name - 1, n + 1);
    }
}

void llm_lark_read(struct llm_grammar *g)
{
    struct lark l = {.g = g, .ignored = LLM_NO_NODE, .last_ignored = LLM_NO_NODE};
    if (memmem(g->p, g->n, "%ignore", 7)) {
        g->ignored = llm_grammar_rule(g, "%ignore", 7);
        l.ignored = llm_grammar_node(g, LLM_NODE_EITHER);
        int32_t body = llm_grammar_repeat(g, l.ignored, 0, LLM_REPEAT_ALWAYS);
        if (!g->bad) g->rules[g->ignored].body = body;
    }
    for (skip(&l, true); llm_grammar_peek(g) >= 0; skip(&l, true)) {
        if (llm_grammar_take(g, "%")) read_statement(&l);
        else read_rule(&l);
        skip(&l, false);
        int c = llm_grammar_peek(g);
        if (c >= 0 && c != '\n' && c != '\r') (void)llm_grammar_fail(g, "expected the end of the rule");
    }
}
