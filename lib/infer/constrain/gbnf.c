#include "infer/constrain/gbnf.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/utf8.h"

enum { MAX_NESTED = 200, MAX_NODES = 1 << 18, MAX_RULES = 4096, MAX_LEXEME_RULES = 500, MAX_COUNT = 1000000, NONE = -1 };
enum node_kind { CHARS, RULE, SEQUENCE, EITHER, REPEAT };

/* A part of a rule. Children are a list linked by `next`. */
struct node {
    enum node_kind kind;
    int32_t child, next;
    uint32_t min, max;       /* REPEAT */
    int32_t rule;
    struct llm_chars chars;
};

struct rule {
    const char *name;        /* in the text */
    size_t n;
    int32_t body;            /* NONE: not defined */
    int line;                /* where it is defined, else where it was used first */
    bool nullable, productive, recursive, lexeme;
    char visit;              /* of the search for left recursion: 0 not yet, 1 on the way, 2 done */
    llm_term term;           /* of its body, once `made` */
    bool made;
};

struct llm_gbnf {
    struct llm_terms *t;
    uint32_t lazy;
    struct node *nodes;
    size_t n_nodes, nodes_room;
    struct rule *rules;
    size_t n_rules, rules_room;
    /* while reading: */
    const unsigned char *p;
    size_t n, at;
    int line, nested;
    struct llm_err *e;
    bool bad;
};

static int32_t fail(struct llm_gbnf *g, const char *what)
{
    if (!g->bad) llm_fail(g->e, EX_DATAERR, "line %d: %s", g->line, what);
    g->bad = true;
    return NONE;
}

static int peek(const struct llm_gbnf *g)
{
    return g->at < g->n && !g->bad ? g->p[g->at] : -1;
}

static bool take(struct llm_gbnf *g, const char *text)
{
    size_t n = strlen(text);
    if (g->bad || g->n - g->at < n || memcmp(g->p + g->at, text, n) != 0) return false;
    g->at += n;
    return true;
}

static void skip_space(struct llm_gbnf *g, bool lines)
{
    for (int c; (c = peek(g)) >= 0;) {
        if (c == '#') {
            while (peek(g) >= 0 && peek(g) != '\n') g->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            g->line += c == '\n';
            g->at++;
        } else {
            return;
        }
    }
}

static bool is_name(int c)
{
    return c == '-' || c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int32_t new_node(struct llm_gbnf *g, enum node_kind kind)
{
    if (g->bad) return NONE;
    if (g->n_nodes >= MAX_NODES) return fail(g, "the grammar is too large");
    if (llm_grow((void **)&g->nodes, &g->nodes_room, g->n_nodes + 1, sizeof *g->nodes, g->e) < 0) {
        g->bad = true;
        return NONE;
    }
    g->nodes[g->n_nodes] = (struct node){.kind = kind, .child = NONE, .next = NONE};
    return (int32_t)g->n_nodes++;
}

static int32_t find_rule(struct llm_gbnf *g, const char *name, size_t n)
{
    for (size_t i = 0; i < g->n_rules; i++)
        if (g->rules[i].n == n && memcmp(g->rules[i].name, name, n) == 0) return (int32_t)i;
    if (g->n_rules >= MAX_RULES) return fail(g, "the grammar has too many rules");
    if (llm_grow((void **)&g->rules, &g->rules_room, g->n_rules + 1, sizeof *g->rules, g->e) < 0) {
        g->bad = true;
        return NONE;
    }
    g->rules[g->n_rules] = (struct rule){.name = name, .n = n, .body = NONE, .line = g->line};
    return (int32_t)g->n_rules++;
}

static uint32_t hex(struct llm_gbnf *g, int digits)
{
    uint32_t x = 0;
    for (int i = 0; i < digits; i++) {
        int c = peek(g), v = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (c < 0 || v < 0) return (uint32_t)fail(g, "expected a hexadecimal digit");
        x = x * 16 + (uint32_t)v;
        g->at++;
    }
    if (x > 0x10FFFF || (x >= 0xD800 && x < 0xE000)) return (uint32_t)fail(g, "expected the number of a character");
    return x;
}

/* A character of a text or a class. */
static uint32_t read_char(struct llm_gbnf *g)
{
    static const char letters[] = "nrt", meanings[] = "\n\r\t";
    uint32_t x = 0;
    if (take(g, "\\")) {
        int c = peek(g);
        if (c >= 0) g->at++;
        if (c == 'x') return hex(g, 2);
        if (c == 'u') return hex(g, 4);
        if (c == 'U') return hex(g, 8);
        const char *known = c > 0 ? strchr(letters, c) : NULL;
        if (known) return (unsigned char)meanings[known - letters];
        if (c > 0 && strchr("\\\"[]-^/'", c)) return (uint32_t)c;
        return (uint32_t)fail(g, "expected one of \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH");
    }
    int step = g->at < g->n ? llm_utf8_next(g->p + g->at, g->n - g->at, &x) : 0;
    if (step <= 0) return (uint32_t)fail(g, "expected UTF-8");
    g->at += (size_t)step;
    g->line += x == '\n';
    return x;
}

static int32_t one_char(struct llm_gbnf *g, uint32_t low, uint32_t high)
{
    int32_t i = new_node(g, CHARS);
    if (i != NONE && llm_chars_put(&g->nodes[i].chars, low, high, g->e) < 0) g->bad = true;
    return i;
}

static void append(struct llm_gbnf *g, int32_t parent, int32_t *last, int32_t child)
{
    if (g->bad) return;
    if (*last == NONE) g->nodes[parent].child = child;
    else g->nodes[*last].next = child;
    *last = child;
}

static int32_t read_text(struct llm_gbnf *g)
{
    int32_t all = new_node(g, SEQUENCE), last = NONE;
    while (peek(g) >= 0 && peek(g) != '"') {
        uint32_t x = read_char(g);
        append(g, all, &last, one_char(g, x, x));
    }
    if (!take(g, "\"")) return fail(g, "expected \" at the end of a text");
    return all;
}

static int32_t read_class(struct llm_gbnf *g)
{
    bool others = take(g, "^");
    int32_t all = new_node(g, CHARS);
    while (peek(g) >= 0 && peek(g) != ']') {
        uint32_t low = read_char(g), high = low;
        if (g->n - g->at >= 2 && g->p[g->at] == '-' && g->p[g->at + 1] != ']' && take(g, "-")) high = read_char(g);
        if (high < low) return fail(g, "expected a range that ascends");
        if (!g->bad && llm_chars_put(&g->nodes[all].chars, low, high, g->e) < 0) g->bad = true;
    }
    if (!take(g, "]")) return fail(g, "expected ] at the end of a class");
    if (!g->bad && others && llm_chars_invert(&g->nodes[all].chars, g->e) < 0) g->bad = true;
    if (!g->bad) llm_chars_tidy(&g->nodes[all].chars);
    return all;
}

static int32_t read_either(struct llm_gbnf *g, bool lines);

static int32_t read_atom(struct llm_gbnf *g)
{
    if (take(g, "\"")) return read_text(g);
    if (take(g, "[")) return read_class(g);
    if (take(g, ".")) {
        int32_t i = new_node(g, CHARS);
        if (i != NONE && llm_chars_invert(&g->nodes[i].chars, g->e) < 0) g->bad = true;
        return i;
    }
    if (take(g, "(")) {
        skip_space(g, true);
        int32_t i = read_either(g, true);
        return take(g, ")") ? i : fail(g, "expected ) at the end of a group");
    }
    if (peek(g) == '<' || peek(g) == '!') return fail(g, "tokens within a grammar are not supported: expected a text, a class or a rule");
    size_t from = g->at;
    while (is_name(peek(g))) g->at++;
    if (g->at == from) return fail(g, "expected a text, a class, a group or the name of a rule");
    int32_t i = new_node(g, RULE), rule = find_rule(g, (const char *)g->p + from, g->at - from);
    if (i != NONE) g->nodes[i].rule = rule;
    return i;
}

static bool number(struct llm_gbnf *g, uint32_t *x)
{
    size_t from = g->at;
    for (*x = 0; peek(g) >= '0' && peek(g) <= '9'; g->at++)
        if (*x <= MAX_COUNT) *x = *x * 10 + (g->p[g->at] - '0');
    return g->at > from;
}

static void read_counts(struct llm_gbnf *g, uint32_t *min, uint32_t *max)
{
    skip_space(g, false);
    bool some = number(g, min);
    *max = *min;
    skip_space(g, false);
    if (take(g, ",")) {
        skip_space(g, false);
        *max = LLM_REPEAT_ALWAYS;
        uint32_t most;
        if (number(g, &most)) {
            *max = most;
            some = true;
        }
        skip_space(g, false);
    }
    if (!some || !take(g, "}")) (void)fail(g, "expected {N}, {N,} or {N,M}");
    else if (*min > MAX_COUNT || (*max != LLM_REPEAT_ALWAYS && (*max > MAX_COUNT || *max < *min))) {
        (void)fail(g, "expected repetitions from N to M, at most 1000000");
    }
}

/* An item with its repetitions. */
static int32_t read_item(struct llm_gbnf *g, bool lines)
{
    int32_t item = read_atom(g);
    for (;;) {
        uint32_t min = 0, max = LLM_REPEAT_ALWAYS;
        skip_space(g, lines);
        if (take(g, "+")) min = 1;
        else if (take(g, "?")) max = 1;
        else if (take(g, "{")) read_counts(g, &min, &max);
        else if (!take(g, "*")) return item;
        int32_t i = new_node(g, REPEAT);
        if (i == NONE) return NONE;
        g->nodes[i].child = item;
        g->nodes[i].min = min;
        g->nodes[i].max = max;
        item = i;
    }
}

/* Whether `name ::=` begins here, which ends a rule that goes over several lines. */
static bool at_rule(const struct llm_gbnf *g)
{
    size_t i = g->at;
    while (i < g->n && is_name(g->p[i])) i++;
    if (i == g->at) return false;
    while (i < g->n && (g->p[i] == ' ' || g->p[i] == '\t')) i++;
    return g->n - i >= 3 && memcmp(g->p + i, "::=", 3) == 0;
}

static int32_t read_sequence(struct llm_gbnf *g, bool lines)
{
    int32_t all = new_node(g, SEQUENCE), last = NONE;
    skip_space(g, lines);
    for (int c; (c = peek(g)) >= 0 && c != '|' && c != ')' && c != '\n' && c != '\r' && !at_rule(g);) append(g, all, &last, read_item(g, lines));
    return all;
}

static int32_t read_either(struct llm_gbnf *g, bool lines)
{
    int32_t all = new_node(g, EITHER), last = NONE;
    if (++g->nested > MAX_NESTED) return fail(g, "groups are nested too deeply");
    for (;;) {
        append(g, all, &last, read_sequence(g, lines));
        size_t at = g->at;
        int line = g->line;
        skip_space(g, true); /* the next alternative may stand on the next line */
        if (!take(g, "|")) {
            if (!lines) {
                g->at = at;
                g->line = line;
            }
            break;
        }
        skip_space(g, true);
    }
    g->nested--;
    return all;
}

static void read_rules(struct llm_gbnf *g)
{
    for (skip_space(g, true); peek(g) >= 0; skip_space(g, true)) {
        size_t from = g->at;
        while (is_name(peek(g))) g->at++;
        size_t n = g->at - from;
        skip_space(g, false);
        if (n == 0 || !take(g, "::=")) {
            (void)fail(g, "expected a rule: name ::= …");
            return;
        }
        int32_t rule = find_rule(g, (const char *)g->p + from, n);
        if (g->bad) return;
        if (g->rules[rule].body != NONE) {
            llm_fail(g->e, EX_DATAERR, "line %d: rule '%.*s' is defined twice", g->line, (int)(n < 80 ? n : 80), (const char *)g->p + from);
            g->bad = true;
            return;
        }
        g->rules[rule].line = g->line;
        skip_space(g, true);
        int32_t body = read_either(g, false);
        g->rules[rule].body = body;
        if (!g->bad && peek(g) >= 0 && peek(g) != '\n' && peek(g) != '\r') (void)fail(g, "expected the end of the rule");
    }
}

/* ---- what rules are ---- */

static bool nullable(const struct llm_gbnf *g, int32_t i)
{
    const struct node *n = &g->nodes[i];
    switch (n->kind) {
    case CHARS: return false;
    case RULE: return g->rules[n->rule].nullable;
    case REPEAT: return n->min == 0 || nullable(g, n->child);
    case EITHER:
        for (int32_t c = n->child; c != NONE; c = g->nodes[c].next)
            if (nullable(g, c)) return true;
        return false;
    default:
        for (int32_t c = n->child; c != NONE; c = g->nodes[c].next)
            if (!nullable(g, c)) return false;
        return true;
    }
}

/* Whether a text can come of it, as far as is known of rules. */
static bool productive(const struct llm_gbnf *g, int32_t i)
{
    const struct node *n = &g->nodes[i];
    switch (n->kind) {
    case CHARS: return n->chars.n > 0;
    case RULE: return g->rules[n->rule].productive;
    case REPEAT: return n->min == 0 || productive(g, n->child);
    case EITHER:
        for (int32_t c = n->child; c != NONE; c = g->nodes[c].next)
            if (productive(g, c)) return true;
        return false;
    default:
        for (int32_t c = n->child; c != NONE; c = g->nodes[c].next)
            if (!productive(g, c)) return false;
        return true;
    }
}

static void settle(struct llm_gbnf *g)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < g->n_rules; i++) {
            struct rule *r = &g->rules[i];
            bool may = nullable(g, r->body), can = productive(g, r->body);
            changed |= may != r->nullable || can != r->productive;
            r->nullable = may;
            r->productive = can;
        }
    }
}

static int visit_rule(struct llm_gbnf *g, int32_t rule);

/* Follows what may stand at the beginning. -1: a rule begins with itself. */
static int visit_left(struct llm_gbnf *g, int32_t i)
{
    const struct node *n = &g->nodes[i];
    if (n->kind == RULE) return visit_rule(g, n->rule);
    for (int32_t c = n->child; c != NONE; c = g->nodes[c].next) {
        if (visit_left(g, c) < 0) return -1;
        if (n->kind == SEQUENCE && !nullable(g, c)) break;
    }
    return 0;
}

static int visit_rule(struct llm_gbnf *g, int32_t rule)
{
    struct rule *r = &g->rules[rule];
    if (r->visit == 2) return 0;
    if (r->visit == 1) {
        return llm_fail(g->e, EX_DATAERR, "line %d: rule '%.*s' begins with itself (left recursion): write it as a repetition", r->line,
                        (int)(r->n < 80 ? r->n : 80), r->name);
    }
    if (++g->nested > MAX_NESTED) return llm_fail(g->e, EX_DATAERR, "line %d: rules begin with one another more than %d deep", r->line, MAX_NESTED);
    r->visit = 1;
    if (visit_left(g, r->body) < 0) return -1;
    r->visit = 2;
    g->nested--;
    return 0;
}

/* Whether rule `from` may come to rule `to`. `seen` is by rule. */
static bool reaches(const struct llm_gbnf *g, int32_t i, int32_t to, char *seen, int32_t *stack)
{
    size_t n = 0;
    stack[n++] = i;
    memset(seen, 0, g->n_rules);
    while (n > 0) {
        i = stack[--n];
        const struct node *x = &g->nodes[i];
        if (x->next != NONE) stack[n++] = x->next;
        if (x->child != NONE) stack[n++] = x->child;
        if (x->kind != RULE) continue;
        if (x->rule == to) return true;
        if (!seen[x->rule]) stack[n++] = g->rules[x->rule].body;
        seen[x->rule] = 1;
    }
    return false;
}

static bool has_wide_repeat(const struct llm_gbnf *g, int32_t i, int depth)
{
    const struct node *n = &g->nodes[i];
    if (n->kind == CHARS) return depth > 0 && n->chars.n > 0 && n->chars.v[n->chars.n - 1].high - n->chars.v[n->chars.n - 1].low > 64;
    if (n->kind == RULE) return false;
    for (int32_t c = n->child; c != NONE; c = g->nodes[c].next) {
        int32_t inner = n->kind == REPEAT && g->nodes[c].kind == RULE ? g->rules[g->nodes[c].rule].body : c;
        if (has_wide_repeat(g, inner, depth + (n->kind == REPEAT && n->max > 8))) return true;
    }
    return false;
}

/* A rule that is regular and repeats many characters (a string) is a lexeme: what it allows is remembered without regard to its surroundings. */
static int find_lexemes(struct llm_gbnf *g)
{
    char *seen = llm_alloc(g->n_rules + 1, 1, "rules", g->e);
    int32_t *stack = llm_alloc(3 * g->n_nodes + g->n_rules + 3, sizeof *stack, "rules", g->e);
    int status = seen && stack ? 0 : -1;
    for (size_t i = 0; status == 0 && g->n_rules <= MAX_LEXEME_RULES && i < g->n_rules; i++) {
        struct rule *r = &g->rules[i];
        if (!has_wide_repeat(g, r->body, 0)) continue;
        r->lexeme = true;
        for (size_t k = 0; k < g->n_rules && r->lexeme; k++) { /* no rule that it comes to comes to itself */
            if ((k == i || reaches(g, r->body, (int32_t)k, seen, stack)) && reaches(g, g->rules[k].body, (int32_t)k, seen, stack)) r->lexeme = false;
        }
    }
    free(seen);
    free(stack);
    return status;
}

/* ---- terms ---- */

static llm_term term_of(struct llm_gbnf *g, int32_t i)
{
    const struct node *n = &g->nodes[i];
    llm_term all = LLM_TERM_EMPTY_TEXT;
    if (!productive(g, i)) return LLM_TERM_NOTHING;
    if (n->kind == CHARS) return llm_term_chars(g->t, &n->chars, LLM_SPELL_UTF8);
    if (n->kind == REPEAT) return llm_term_repeat(g->t, term_of(g, n->child), n->min, n->max);
    if (n->kind == RULE) return llm_term_lazy(g->t, g->lazy, (uint32_t)n->rule, 0, g->rules[n->rule].nullable);
    size_t count = 0;
    for (int32_t c = n->child; c != NONE; c = g->nodes[c].next) count++;
    struct llm_err e = {0};
    llm_term *v = llm_alloc(count + 1, sizeof *v, "a rule", &e);
    if (!v) {
        llm_terms_fail(g->t, &e);
        return LLM_TERM_NOTHING;
    }
    count = 0;
    for (int32_t c = n->child; c != NONE; c = g->nodes[c].next) v[count++] = term_of(g, c);
    if (n->kind == EITHER) all = llm_term_either(g->t, v, count);
    else while (count > 0) all = llm_term_join(g->t, v[--count], all);
    free(v);
    return all;
}

static llm_term expand(void *arg, uint32_t x, uint32_t y)
{
    struct llm_gbnf *g = arg;
    struct rule *r = &g->rules[x];
    (void)y;
    if (!r->made) {
        llm_term body = term_of(g, r->body);
        r->term = r->lexeme ? llm_term_lexeme(g->t, body) : body;
        r->made = true;
    }
    return r->term;
}

static int check_rules(struct llm_gbnf *g, int32_t *root)
{
    *root = NONE;
    for (size_t i = 0; i < g->n_rules; i++) {
        const struct rule *r = &g->rules[i];
        if (r->body == NONE) {
            return llm_fail(g->e, EX_DATAERR, "line %d: rule '%.*s' is not defined", r->line, (int)(r->n < 80 ? r->n : 80), r->name);
        }
        if (r->n == 4 && memcmp(r->name, "root", 4) == 0) *root = (int32_t)i;
    }
    if (*root == NONE) return llm_fail(g->e, EX_DATAERR, "expected a rule 'root'");
    settle(g);
    if (!g->rules[*root].productive) return llm_fail(g->e, EX_DATAERR, "line %d: no text satisfies rule 'root'", g->rules[*root].line);
    for (size_t i = 0; i < g->n_rules; i++) {
        g->nested = 0;
        if (visit_rule(g, (int32_t)i) < 0) return -1;
    }
    return find_lexemes(g);
}

struct llm_gbnf *llm_gbnf_create(struct llm_terms *t, const char *text, size_t n, llm_term *root, struct llm_err *e)
{
    struct llm_gbnf *g = llm_calloc(1, sizeof *g, "a grammar", e);
    int32_t rule = NONE;
    if (!g) return NULL;
    g->t = t;
    g->p = (const unsigned char *)text;
    g->n = n;
    g->line = 1;
    g->e = e;
    g->lazy = llm_terms_kind(t, expand, g);
    read_rules(g);
    if (g->bad || check_rules(g, &rule) < 0) {
        llm_gbnf_destroy(g);
        return NULL;
    }
    *root = expand(g, (uint32_t)rule, 0);
    g->p = NULL; /* the text is the caller's */
    for (size_t i = 0; i < g->n_rules; i++) g->rules[i].name = NULL;
    g->e = NULL;
    return g;
}

void llm_gbnf_destroy(struct llm_gbnf *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->n_nodes; i++) llm_chars_release(&g->nodes[i].chars);
    free(g->nodes);
    free(g->rules);
    free(g);
}
