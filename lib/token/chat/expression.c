/* Tokens of an expression to nodes, with Jinja's precedence: if else, or, and, not, comparisons, + -, ~, * / // %, **, unary, postfix. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "token/chat/jinja.h"
#include "token/unicode.h"

void *llm_jinja_syntax(struct parser *p, const char *fmt, ...)
{
    char text[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    p->w->line = p->at->line;
    if (p->at->type == T_END) llm_jinja_error(p->w, "%s, found the end of the template", text);
    else llm_jinja_error(p->w, "%s, found '%.*s'", text, (int)(p->at->n < 40 ? p->at->n : 40), p->at->p);
    return NULL;
}

struct node *llm_jinja_node(struct parser *p, enum node_kind kind, int line)
{
    struct node *n = llm_jinja_alloc(p->w, sizeof *n);
    if (n) *n = (struct node){.kind = kind, .line = line};
    return n;
}

static bool is_token(const struct parser *p, enum token_type type, const char *what)
{
    return p->at->type == type && p->at->n == strlen(what) && memcmp(p->at->p, what, p->at->n) == 0;
}

bool llm_jinja_at_operator(const struct parser *p, const char *op)
{
    return is_token(p, T_OPERATOR, op);
}

bool llm_jinja_at_name(const struct parser *p, const char *name)
{
    return is_token(p, T_NAME, name);
}

bool llm_jinja_skip_operator(struct parser *p, const char *op)
{
    bool is = llm_jinja_at_operator(p, op);
    p->at += is;
    return is;
}

bool llm_jinja_skip_name(struct parser *p, const char *name)
{
    bool is = llm_jinja_at_name(p, name);
    p->at += is;
    return is;
}

int llm_jinja_expect_operator(struct parser *p, const char *op)
{
    if (llm_jinja_skip_operator(p, op)) return 0;
    llm_jinja_syntax(p, "expected '%s'", op);
    return -1;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

/* Up to `max` digits of a base at *i. -1: fewer than `min`. */
static int escape_digits(const struct token *t, size_t *i, int base, int min, int max, uint32_t *cp)
{
    int n = 0;
    *cp = 0;
    while (n < max && *i < t->n && digit_of(t->p[*i]) < base) {
        *cp = *cp * (uint32_t)base + (uint32_t)digit_of(t->p[(*i)++]);
        n++;
    }
    return n < min ? -1 : 0;
}

/* What a backslash at *i - 1 stands for. 1: *cp; 0: nothing (a joined line); 2: the backslash itself; -1: an error. */
static int escape(const struct token *t, size_t *i, uint32_t *cp)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    char c = t->p[*i];
    const char *known = c ? strchr(from, c) : NULL;
    int got = 1;
    if (c >= '0' && c <= '7') return escape_digits(t, i, 8, 1, 3, cp) < 0 ? -1 : 1;
    ++*i;
    if (c == '\n') return 0;
    if (known) *cp = (unsigned char)to[known - from];
    else if (c == 'x') got = escape_digits(t, i, 16, 2, 2, cp) < 0 ? -1 : 1;
    else if (c == 'u') got = escape_digits(t, i, 16, 4, 4, cp) < 0 ? -1 : 1;
    else if (c == 'U') got = escape_digits(t, i, 16, 8, 8, cp) < 0 ? -1 : 1;
    else if (c == 'N') return -1;
    else --*i, got = 2;
    return got;
}

static int put_string(struct parser *p, const struct token *t)
{
    for (size_t i = 0; i < t->n;) {
        unsigned char out[4];
        uint32_t cp;
        if (t->p[i] != '\\' || i + 1 == t->n) {
            if (llm_jinja_put(p->w, t->p + i++, 1) < 0) return -1;
            continue;
        }
        i++;
        int got = escape(t, &i, &cp);
        if (got < 0 || (got == 1 && (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)))) {
            llm_jinja_syntax(p, "an escape that is no character");
            return -1;
        }
        if (got == 1 && llm_jinja_put(p->w, (char *)out, (size_t)llm_utf8_put(cp, out)) < 0) return -1;
        if (got == 2 && llm_jinja_put(p->w, "\\", 1) < 0) return -1;
    }
    return 0;
}

/* A number without its underscores. */
static int parse_number(struct parser *p, struct value *out)
{
    char text[400];
    size_t n = 0;
    const struct token *t = p->at;
    for (size_t i = 0; i < t->n && n + 1 < sizeof text; i++)
        if (t->p[i] != '_') text[n++] = t->p[i];
    text[n] = 0;
    bool prefixed = n > 2 && text[0] == '0' && strchr("xXoObB", text[1]);
    int base = !prefixed ? 10 : strchr("xX", text[1]) ? 16 : strchr("oO", text[1]) ? 8 : 2;
    char *end = NULL;
    errno = 0;
    if (t->type == T_REAL) *out = v_real(strtod(text, &end));
    else *out = v_int(strtoll(text + (prefixed ? 2 : 0), &end, base));
    if (*end || n == 0 || (t->type == T_INTEGER && errno == ERANGE)) {
        llm_jinja_syntax(p, "expected a number that 64 bits hold");
        return -1;
    }
    return 0;
}

/* Members separated by commas up to `end`; pairs when `is_dict`: a key, its value in a. */
static struct node *parse_members(struct parser *p, enum node_kind kind, const char *end)
{
    struct node *list = llm_jinja_node(p, kind, p->at->line), **tail;
    if (!list) return NULL;
    tail = &list->a;
    p->at++;
    while (!llm_jinja_at_operator(p, end)) {
        if (list->a && llm_jinja_expect_operator(p, ",") < 0) return NULL;
        if (llm_jinja_at_operator(p, end)) break;
        struct node *item = llm_jinja_expression(p, true), *pair;
        if (!item) return NULL;
        /* Expressions may be shared by nothing else: a member links to the next through a node of its own. */
        pair = llm_jinja_node(p, N_CONST, item->line);
        if (!pair) return NULL;
        pair->a = item;
        if (kind == N_DICT && (llm_jinja_expect_operator(p, ":") < 0 || !(pair->b = llm_jinja_expression(p, true)))) return NULL;
        *tail = pair;
        tail = &pair->next;
    }
    p->at++;
    return list;
}

static struct node *parse_name(struct parser *p, bool with_namespace)
{
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    const struct token *t = p->at;
    struct node *n = llm_jinja_node(p, N_NAME, t->line);
    if (!n) return NULL;
    for (int i = 0; i < 6; i++) {
        if (!llm_jinja_skip_name(p, words[i])) continue;
        n->kind = N_CONST;
        n->value = i < 4 ? v_bool(i < 2) : v_none();
        return n;
    }
    p->at++;
    n->name = llm_jinja_name(p->w, p->t, t->p, t->n);
    if (!n->name) return NULL;
    if (p->inside) {
        p->inside->takes_rest |= strcmp(n->name->p, "varargs") == 0;
        p->inside->takes_keywords |= strcmp(n->name->p, "kwargs") == 0;
        p->inside->takes_caller |= strcmp(n->name->p, "caller") == 0;
    }
    if (!with_namespace || !llm_jinja_skip_operator(p, ".")) return n;
    if (p->at->type != T_NAME) return llm_jinja_syntax(p, "expected a name");
    struct node *attribute = llm_jinja_node(p, N_NAMESPACE, t->line);
    if (!attribute) return NULL;
    attribute->a = n;
    attribute->value = llm_jinja_text(p->w, p->at->p, p->at->n);
    p->at++;
    return is_error(attribute->value) ? NULL : attribute;
}

static struct node *parse_primary(struct parser *p, bool with_namespace)
{
    struct node *n;
    size_t mark = p->w->out.n;
    switch (p->at->type) {
    case T_NAME: return parse_name(p, with_namespace);
    case T_STRING:
        n = llm_jinja_node(p, N_CONST, p->at->line);
        for (; n && p->at->type == T_STRING; p->at++)
            if (put_string(p, p->at) < 0) return NULL;
        if (n) n->value = llm_jinja_take(p->w, mark);
        return n && !is_error(n->value) ? n : NULL;
    case T_INTEGER: case T_REAL:
        n = llm_jinja_node(p, N_CONST, p->at->line);
        if (!n || parse_number(p, &n->value) < 0) return NULL;
        p->at++;
        return n;
    default: break;
    }
    if (llm_jinja_skip_operator(p, "(")) {
        n = llm_jinja_tuple(p, true, NULL, true);
        return n && llm_jinja_expect_operator(p, ")") == 0 ? n : NULL;
    }
    if (llm_jinja_at_operator(p, "[")) return parse_members(p, N_LIST, "]");
    if (llm_jinja_at_operator(p, "{")) return parse_members(p, N_DICT, "}");
    return llm_jinja_syntax(p, "expected an expression");
}

static int parse_argument(struct parser *p, struct arguments *a, struct node ***positional, struct node ***named)
{
    const struct token *t = p->at;
    if (llm_jinja_skip_operator(p, "**")) return a->star_star ? -1 : (a->star_star = llm_jinja_expression(p, true)) ? 0 : -1;
    if (llm_jinja_skip_operator(p, "*")) return a->star || a->star_star ? -1 : (a->star = llm_jinja_expression(p, true)) ? 0 : -1;
    struct node *n = llm_jinja_node(p, N_NAME, t->line);
    bool is_named = t->type == T_NAME && t[1].type == T_OPERATOR && t[1].n == 1 && t[1].p[0] == '=';
    if (!n || a->star_star || (!is_named && (a->star || a->n_named))) return -1;
    if (is_named) {
        p->at += 2;
        n->name = llm_jinja_name(p->w, p->t, t->p, t->n);
        if (!n->name) return -1;
    }
    if (!(n->a = llm_jinja_expression(p, true))) return -1;
    if (is_named) {
        **named = n;
        *named = &n->next;
        a->n_named++;
    } else {
        **positional = n;
        *positional = &n->next;
        a->n++;
    }
    return 0;
}

/* (a, b=c, *d, **e) */
static struct arguments *parse_arguments(struct parser *p)
{
    struct arguments *a = llm_jinja_alloc(p->w, sizeof *a);
    if (!a) return NULL;
    *a = (struct arguments){0};
    struct node **positional = &a->positional, **named = &a->named;
    p->at++;
    for (bool more = false; !llm_jinja_at_operator(p, ")"); more = true) {
        if (more && llm_jinja_expect_operator(p, ",") < 0) return NULL;
        if (llm_jinja_at_operator(p, ")")) break;
        p->w->e->status = 0;
        if (parse_argument(p, a, &positional, &named) < 0)
            return p->w->e->status ? NULL : llm_jinja_syntax(p, "arguments out of order");
    }
    p->at++;
    return a;
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *n = llm_jinja_node(p, N_CALL, p->at->line);
    if (!n) return NULL;
    n->a = callee;
    return (n->args = parse_arguments(p)) ? n : NULL;
}

/* a:b:c within brackets; what is left out is NULL. */
static struct node *parse_subscript(struct parser *p)
{
    int line = p->at->line;
    struct node *part[3] = {NULL, NULL, NULL};
    if (!llm_jinja_at_operator(p, ":") && !(part[0] = llm_jinja_expression(p, true))) return NULL;
    if (!llm_jinja_at_operator(p, ":")) return part[0];
    for (int i = 1; i < 3 && llm_jinja_skip_operator(p, ":"); i++) {
        if (llm_jinja_at_operator(p, ":") || llm_jinja_at_operator(p, "]")) continue;
        if (!(part[i] = llm_jinja_expression(p, true))) return NULL;
    }
    struct node *n = llm_jinja_node(p, N_SLICE, line);
    if (!n) return NULL;
    n->a = part[0];
    n->b = part[1];
    n->c = part[2];
    return n;
}

static struct node *parse_access(struct parser *p, struct node *of)
{
    struct node *n = llm_jinja_node(p, N_ITEM, p->at->line);
    if (!n) return NULL;
    n->a = of;
    if (llm_jinja_skip_operator(p, "[")) {
        if (!(n->b = parse_subscript(p))) return NULL;
        return llm_jinja_expect_operator(p, "]") == 0 ? n : NULL;
    }
    p->at++;
    if (p->at->type == T_NAME) {
        n->kind = N_ATTRIBUTE;
        n->value = llm_jinja_text(p->w, p->at->p, p->at->n);
        if (is_error(n->value)) return NULL;
    } else if (p->at->type == T_INTEGER) {
        if (!(n->b = llm_jinja_node(p, N_CONST, p->at->line)) || parse_number(p, &n->b->value) < 0) return NULL;
    } else {
        return llm_jinja_syntax(p, "expected a name or a number");
    }
    p->at++;
    return n;
}

struct node *llm_jinja_postfix(struct parser *p, struct node *n)
{
    while (n) {
        if (llm_jinja_at_operator(p, ".") || llm_jinja_at_operator(p, "[")) n = parse_access(p, n);
        else if (llm_jinja_at_operator(p, "(")) n = parse_call(p, n);
        else break;
    }
    return n;
}

/* The name of a filter or a test. */
static const struct name *parse_callee_name(struct parser *p)
{
    const struct token *first = p->at;
    if (first->type != T_NAME) return llm_jinja_syntax(p, "expected a name");
    p->at++;
    return llm_jinja_name(p->w, p->t, first->p, first->n);
}

struct node *llm_jinja_filters(struct parser *p, struct node *input, bool begun)
{
    while (begun || llm_jinja_skip_operator(p, "|")) {
        struct node *n = llm_jinja_node(p, N_FILTER, p->at->line);
        if (!n || !(n->name = parse_callee_name(p))) return NULL;
        n->a = input;
        if (llm_jinja_at_operator(p, "(") && !(n->args = parse_arguments(p))) return NULL;
        input = n;
        begun = false;
    }
    return input;
}

/* is [not] NAME, with arguments in parentheses or one bare argument. */
static struct node *parse_test(struct parser *p, struct node *of)
{
    struct node *n = llm_jinja_node(p, N_TEST, p->at->line), *negated = NULL;
    if (!n) return NULL;
    p->at++;
    if (llm_jinja_skip_name(p, "not") && !(negated = llm_jinja_node(p, N_NOT, n->line))) return NULL;
    n->a = of;
    if (!(n->name = parse_callee_name(p))) return NULL;
    enum token_type type = p->at->type;
    bool ends = llm_jinja_at_name(p, "else") || llm_jinja_at_name(p, "or") || llm_jinja_at_name(p, "and");
    if (llm_jinja_at_operator(p, "(")) {
        if (!(n->args = parse_arguments(p))) return NULL;
    } else if (!ends && (type == T_NAME || type == T_STRING || type == T_INTEGER || type == T_REAL || llm_jinja_at_operator(p, "[")
                         || llm_jinja_at_operator(p, "{"))) {
        if (llm_jinja_at_name(p, "is")) return llm_jinja_syntax(p, "expected one test");
        n->args = llm_jinja_alloc(p->w, sizeof *n->args);
        struct node *argument = llm_jinja_node(p, N_NAME, p->at->line);
        if (!n->args || !argument || !(argument->a = llm_jinja_postfix(p, parse_primary(p, false)))) return NULL;
        *n->args = (struct arguments){.positional = argument, .n = 1};
    }
    if (!negated) return n;
    negated->a = n;
    return negated;
}

static struct node *parse_unary(struct parser *p, bool with_filter)
{
    struct node *n;
    int line = p->at->line;
    if (llm_jinja_enter(p->w) < 0) return NULL;
    bool minus = llm_jinja_skip_operator(p, "-"), plus = !minus && llm_jinja_skip_operator(p, "+");
    if (minus || plus) {
        n = llm_jinja_node(p, minus ? N_NEGATIVE : N_POSITIVE, line);
        if (n && !(n->a = parse_unary(p, false))) n = NULL;
    } else {
        n = parse_primary(p, false);
    }
    n = llm_jinja_postfix(p, n);
    while (n && with_filter) {
        if (llm_jinja_at_operator(p, "|")) n = llm_jinja_filters(p, n, false);
        else if (llm_jinja_at_name(p, "is")) n = parse_test(p, n);
        else if (llm_jinja_at_operator(p, "(")) n = parse_call(p, n);
        else break;
    }
    llm_jinja_leave(p->w);
    return n;
}

/* Binary operators, the loosest level first. */
static const struct { const char *sign; enum op op; } levels[][6] = {
    {{"+", OP_ADD}, {"-", OP_SUB}, {0}},
    {{"~", OP_ADD}, {0}},
    {{"*", OP_MUL}, {"/", OP_DIV}, {"//", OP_FLOORDIV}, {"%", OP_MOD}, {0}},
    {{"**", OP_POW}, {0}},
};
enum { LEVEL_CONCAT = 1, N_LEVELS = 4 };

static struct node *parse_binary(struct parser *p, int level)
{
    if (level == N_LEVELS) return parse_unary(p, true);
    struct node *left = parse_binary(p, level + 1);
    while (left) {
        int i = 0;
        while (levels[level][i].sign && !llm_jinja_at_operator(p, levels[level][i].sign)) i++;
        if (!levels[level][i].sign) break;
        struct node *n = llm_jinja_node(p, level == LEVEL_CONCAT ? N_CONCAT : N_BINARY, p->at->line);
        p->at++;
        if (!n || !(n->b = parse_binary(p, level + 1))) return NULL;
        n->a = left;
        n->op = levels[level][i].op;
        left = n;
    }
    return left;
}

/* a < b <= c: the first in a, then each in a node of its own. */
static struct node *parse_compare(struct parser *p)
{
    static const struct { const char *sign; enum op op; } operators[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT}, {"<=", OP_LE},
                                                                         {">", OP_GT}, {">=", OP_GE}};
    struct node *first = parse_binary(p, 0), *compare = NULL, **tail = NULL;
    while (first) {
        enum op op;
        size_t i = 0;
        while (i < 6 && !llm_jinja_at_operator(p, operators[i].sign)) i++;
        if (i < 6) {
            op = operators[i].op;
        } else if (llm_jinja_at_name(p, "in")) {
            op = OP_IN;
        } else if (llm_jinja_at_name(p, "not") && p->at[1].type == T_NAME && p->at[1].n == 2 && memcmp(p->at[1].p, "in", 2) == 0) {
            op = OP_NOT_IN;
            p->at++;
        } else {
            break;
        }
        p->at++;
        struct node *n = llm_jinja_node(p, N_COMPARE, p->at->line);
        if (!n || !(n->a = parse_binary(p, 0))) return NULL;
        n->op = op;
        if (!compare) {
            if (!(compare = llm_jinja_node(p, N_COMPARE, first->line))) return NULL;
            compare->a = first;
            tail = &compare->b;
        }
        *tail = n;
        tail = &n->next;
    }
    return first && compare ? compare : first;
}

static struct node *parse_not(struct parser *p)
{
    if (!llm_jinja_at_name(p, "not")) return parse_compare(p);
    struct node *n = llm_jinja_node(p, N_NOT, p->at->line);
    p->at++;
    if (!n || llm_jinja_enter(p->w) < 0 || !(n->a = parse_not(p))) return NULL;
    llm_jinja_leave(p->w);
    return n;
}

static struct node *parse_logic(struct parser *p, bool is_or)
{
    struct node *left = is_or ? parse_logic(p, false) : parse_not(p);
    while (left && llm_jinja_at_name(p, is_or ? "or" : "and")) {
        struct node *n = llm_jinja_node(p, is_or ? N_OR : N_AND, p->at->line);
        p->at++;
        if (!n || !(n->b = is_or ? parse_logic(p, false) : parse_not(p))) return NULL;
        n->a = left;
        left = n;
    }
    return left;
}

struct node *llm_jinja_expression(struct parser *p, bool with_condition)
{
    if (llm_jinja_enter(p->w) < 0) return NULL;
    struct node *n = parse_logic(p, true);
    while (n && with_condition && llm_jinja_at_name(p, "if")) {
        struct node *condition = llm_jinja_node(p, N_CONDITION, p->at->line);
        p->at++;
        if (!condition || !(condition->b = parse_logic(p, true))) return NULL;
        condition->a = n;
        if (llm_jinja_skip_name(p, "else") && !(condition->c = llm_jinja_expression(p, true))) return NULL;
        n = condition;
    }
    llm_jinja_leave(p->w);
    return n;
}

static struct node *parse_list(struct parser *p, bool is_target, bool flag, const char *ends, bool parentheses)
{
    struct node *tuple = llm_jinja_node(p, N_TUPLE, p->at->line), **tail;
    bool comma = false;
    if (!tuple) return NULL;
    tail = &tuple->a;
    for (;;) {
        if (p->at->type == T_PRINT_END || p->at->type == T_BLOCK_END || llm_jinja_at_operator(p, ")") || (ends && llm_jinja_at_name(p, ends))) break;
        struct node *item = is_target ? parse_primary(p, flag) : llm_jinja_expression(p, flag), *member = llm_jinja_node(p, N_CONST, p->at->line);
        if (!item || !member) return NULL;
        member->a = item;
        *tail = member;
        tail = &member->next;
        if (!llm_jinja_skip_operator(p, ",")) break;
        comma = true;
    }
    if (comma) return tuple;
    if (tuple->a) return tuple->a->a;
    return parentheses ? tuple : llm_jinja_syntax(p, "expected an expression");
}

struct node *llm_jinja_tuple(struct parser *p, bool with_condition, const char *ends, bool parentheses)
{
    if (llm_jinja_enter(p->w) < 0) return NULL;
    struct node *n = parse_list(p, false, with_condition, ends, parentheses);
    llm_jinja_leave(p->w);
    return n;
}

static bool can_assign(const struct node *n)
{
    if (n->kind != N_TUPLE) return n->kind == N_NAME || n->kind == N_NAMESPACE;
    for (n = n->a; n; n = n->next)
        if (!can_assign(n->a)) return false;
    return true;
}

struct node *llm_jinja_target(struct parser *p, bool with_namespace, const char *ends)
{
    struct node *n = parse_list(p, true, with_namespace, ends, false);
    if (n && !can_assign(n)) return llm_jinja_syntax(p, "expected a name to assign to");
    return n;
}
