#include "infer/constrain/grammar_internal.h"

#include <stdlib.h>
#include "base/buf.h"

/* ---- what rules are ---- */

static bool nullable(const struct llm_grammar *g, int32_t i)
{
    const struct llm_grammar_node *n = &g->nodes[i];
    switch (n->kind) {
    case LLM_NODE_TERM: return llm_term_nullable(g->t, n->term);
    case LLM_NODE_CHARS: return false;
    case LLM_NODE_RULE: return g->rules[n->rule].nullable;
    case LLM_NODE_REPEAT: return n->min == 0 || nullable(g, n->child);
    case LLM_NODE_EITHER:
        for (int32_t c = n->child; c != LLM_NO_NODE; c = g->nodes[c].next)
            if (nullable(g, c)) return true;
        return false;
    default:
        for (int32_t c = n->child; c != LLM_NO_NODE; c = g->nodes[c].next)
            if (!nullable(g, c)) return false;
        return true;
    }
}

/* Whether a text can come of it, as far as is known of rules. */
static bool productive(const struct llm_grammar *g, int32_t i)
{
    const struct llm_grammar_node *n = &g->nodes[i];
    switch (n->kind) {
    case LLM_NODE_TERM: return llm_term_live(g->t, n->term);
    case LLM_NODE_CHARS: return n->chars.n > 0;
    case LLM_NODE_RULE: return g->rules[n->rule].productive;
    case LLM_NODE_REPEAT: return n->min == 0 || productive(g, n->child);
    case LLM_NODE_EITHER:
        for (int32_t c = n->child; c != LLM_NO_NODE; c = g->nodes[c].next)
            if (productive(g, c)) return true;
        return false;
    default:
        for (int32_t c = n->child; c != LLM_NO_NODE; c = g->nodes[c].next)
            if (!productive(g, c)) return false;
        return true;
    }
}

static bool regular(const struct llm_grammar *g, int32_t i)
{
    const struct llm_grammar_node *n = &g->nodes[i];
    if (n->kind == LLM_NODE_RULE) return g->rules[n->rule].regular;
    for (int32_t c = n->child; c != LLM_NO_NODE; c = g->nodes[c].next)
        if (!regular(g, c)) return false;
    return true;
}

/* Whether many characters are repeated in a node, which may itself be repeated. Only a rule that is repeated is looked into. */
static bool wide(const struct llm_grammar *g, int32_t i, bool repeated)
{
    const struct llm_grammar_node *n = &g->nodes[i];
    if (n->kind == LLM_NODE_CHARS) return repeated && n->chars.n > 0 && n->chars.v[n->chars.n - 1].high - n->chars.v[n->chars.n - 1].low > 64;
    if (n->kind == LLM_NODE_RULE) return false;
    if (n->kind == LLM_NODE_TERM) return true;
    repeated |= n->kind == LLM_NODE_REPEAT && n->max > 8;
    for (int32_t c = n->child; c != LLM_NO_NODE; c = g->nodes[c].next) {
        const bool rule = n->kind == LLM_NODE_REPEAT && g->nodes[c].kind == LLM_NODE_RULE;
        if (rule ? g->rules[g->nodes[c].rule].wide[repeated] : wide(g, c, repeated)) return true;
    }
    return false;
}

/* Notes what is known of a rule by what is known of others. Whether that is more than before. */
static bool learn(const struct llm_grammar *g, struct llm_grammar_rule *r)
{
    const struct llm_grammar_rule before = *r;
    r->nullable = nullable(g, r->body);
    r->productive = productive(g, r->body);
    r->regular = regular(g, r->body);
    for (int k = 0; k < 2; k++) r->wide[k] = wide(g, r->body, k);
    return r->nullable != before.nullable || r->productive != before.productive || r->regular != before.regular || r->wide[0] != before.wide[0]
        || r->wide[1] != before.wide[1];
}

/* What rules are, as least fixed points. Rules often follow, or precede, those that they use: sweeps go both ways. */
static void learn_all(struct llm_grammar *g)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < g->n_rules; i++) changed |= learn(g, &g->rules[i]);
        for (size_t i = g->n_rules; changed && i-- > 0;) (void)learn(g, &g->rules[i]);
    }
}

static int visit_rule(struct llm_grammar *g, int32_t rule);

/* Follows what may stand at the beginning. -1: a rule begins with itself. */
static int visit_left(struct llm_grammar *g, int32_t i)
{
    const struct llm_grammar_node *n = &g->nodes[i];
    if (n->kind == LLM_NODE_RULE) return visit_rule(g, n->rule);
    for (int32_t c = n->child; c != LLM_NO_NODE; c = g->nodes[c].next) {
        if (visit_left(g, c) < 0) return -1;
        if (n->kind == LLM_NODE_SEQUENCE && !nullable(g, c)) break;
    }
    return 0;
}

static int visit_rule(struct llm_grammar *g, int32_t rule)
{
    struct llm_grammar_rule *r = &g->rules[rule];
    if (r->visit == 2) return 0;
    if (r->visit == 1) {
        return llm_fail(g->e, EX_DATAERR, "line %d: rule '%.*s' begins with itself (left recursion): write it as a repetition", r->line,
                        (int)(r->n < 80 ? r->n : 80), r->name);
    }
    if (++g->nested > LLM_GRAMMAR_MAX_NESTED) {
        return llm_fail(g->e, EX_DATAERR, "line %d: rules begin with one another more than %d deep", r->line, LLM_GRAMMAR_MAX_NESTED);
    }
    r->visit = 1;
    if (visit_left(g, r->body) < 0) return -1;
    r->visit = 2;
    g->nested--;
    return 0;
}

/* Whether rule `from` may come to rule `to`. `seen` is by rule. */
static bool reaches(const struct llm_grammar *g, int32_t i, int32_t to, char *seen, int32_t *stack)
{
    size_t n = 0;
    stack[n++] = i;
    memset(seen, 0, g->n_rules);
    while (n > 0) {
        i = stack[--n];
        const struct llm_grammar_node *x = &g->nodes[i];
        if (x->next != LLM_NO_NODE) stack[n++] = x->next;
        if (x->child != LLM_NO_NODE) stack[n++] = x->child;
        if (x->kind != LLM_NODE_RULE) continue;
        if (x->rule == to) return true;
        if (!seen[x->rule]) stack[n++] = g->rules[x->rule].body;
        seen[x->rule] = 1;
    }
    return false;
}

/* A rule that is regular and repeats many characters (a string) is a lexeme: what it allows is remembered without regard to its surroundings. */
static int find_lexemes(struct llm_grammar *g)
{
    char *seen = llm_alloc(g->n_rules + 1, 1, "rules", g->e);
    int32_t *stack = llm_alloc(3 * g->n_nodes + g->n_rules + 3, sizeof *stack, "rules", g->e);
    int status = seen && stack ? 0 : -1;
    for (size_t i = 0; status == 0 && i < g->n_rules; i++) {
        struct llm_grammar_rule *r = &g->rules[i];
        r->lexeme = r->regular && r->wide[0];
        if (r->terminal && !r->regular && reaches(g, r->body, (int32_t)i, seen, stack)) {
            status = llm_fail(g->e, EX_DATAERR, "line %d: terminal '%.*s' contains itself", r->line, (int)(r->n < 80 ? r->n : 80), r->name);
        }
    }
    free(seen);
    free(stack);
    return status;
}

/* ---- terms ---- */

/* Room for n terms. An error takes a kilobyte, which the frames of term_of would have for each level. NULL: no memory, which is noted. */
static __attribute__((noinline)) llm_term *make_room(struct llm_grammar *g, size_t n)
{
    struct llm_err e = {0};
    llm_term *v = llm_alloc(n + 1, sizeof *v, "a rule", &e);
    if (!v) llm_terms_fail(g->t, &e);
    return v;
}

static llm_term term_of(struct llm_grammar *g, int32_t i)
{
    const struct llm_grammar_node *n = &g->nodes[i];
    llm_term all = LLM_TERM_EMPTY_TEXT;
    if (!productive(g, i)) return LLM_TERM_NOTHING;
    if (n->kind == LLM_NODE_CHARS) return llm_term_chars(g->t, &n->chars, LLM_SPELL_UTF8);
    if (n->kind == LLM_NODE_REPEAT) return llm_term_repeat(g->t, term_of(g, n->child), n->min, n->max);
    if (n->kind == LLM_NODE_TERM) return llm_term_lexeme(g->t, n->term);
    if (n->kind == LLM_NODE_RULE) return llm_term_lazy(g->t, g->lazy, (uint32_t)n->rule, 0, g->rules[n->rule].nullable);
    size_t count = 0;
    for (int32_t c = n->child; c != LLM_NO_NODE; c = g->nodes[c].next) count++;
    llm_term *v = make_room(g, count);
    if (!v) return LLM_TERM_NOTHING;
    count = 0;
    for (int32_t c = n->child; c != LLM_NO_NODE; c = g->nodes[c].next) v[count++] = term_of(g, c);
    if (n->kind == LLM_NODE_EITHER) all = llm_term_either(g->t, v, count);
    else while (count > 0) all = llm_term_join(g->t, v[--count], all);
    free(v);
    return all;
}

static llm_term expand(void *arg, uint32_t x, uint32_t y)
{
    struct llm_grammar *g = arg;
    struct llm_grammar_rule *r = &g->rules[x];
    (void)y;
    if (!r->made) {
        llm_term body = term_of(g, r->body);
        r->term = r->lexeme ? llm_term_lexeme(g->t, body) : body;
        r->made = true;
    }
    return r->term;
}

static int check_rules(struct llm_grammar *g, const char *name, int32_t *root)
{
    *root = LLM_NO_NODE;
    for (size_t i = 0; i < g->n_rules; i++) {
        const struct llm_grammar_rule *r = &g->rules[i];
        if (r->body == LLM_NO_NODE) {
            return llm_fail(g->e, EX_DATAERR, "line %d: rule '%.*s' is not defined", r->line, (int)(r->n < 80 ? r->n : 80), r->name);
        }
        if (r->n == strlen(name) && memcmp(r->name, name, r->n) == 0) *root = (int32_t)i;
    }
    if (*root == LLM_NO_NODE) return llm_fail(g->e, EX_DATAERR, "expected a rule '%s'", name);
    learn_all(g);
    if (!g->rules[*root].productive) return llm_fail(g->e, EX_DATAERR, "line %d: no text satisfies rule '%s'", g->rules[*root].line, name);
    for (size_t i = 0; i < g->n_rules; i++) {
        g->nested = 0;
        if (visit_rule(g, (int32_t)i) < 0) return -1;
    }
    return find_lexemes(g);
}

/* Whether the text is in Lark's form: it begins with a statement (%…) or a rule `name: …`. */
static bool is_lark(struct llm_grammar *g)
{
    llm_grammar_skip(g, true, "//");
    bool statement = llm_grammar_peek(g) == '%';
    while (llm_grammar_take(g, "?") || llm_grammar_take(g, "!")) continue;
    while (llm_grammar_is_name(llm_grammar_peek(g)) || llm_grammar_peek(g) == '.') g->at++;
    llm_grammar_skip(g, false, NULL);
    int c = llm_grammar_peek(g);
    bool lark = statement || c == '[' || c == '{' || (c == ':' && !llm_grammar_take(g, "::="));
    g->at = 0;
    g->line = 1;
    return lark;
}

struct llm_grammar *llm_grammar_create(struct llm_terms *t, const char *text, size_t n, llm_term *root, struct llm_err *e)
{
    struct llm_grammar *g = llm_calloc(1, sizeof *g, "a grammar", e);
    int32_t rule = LLM_NO_NODE;
    if (!g) return NULL;
    *g = (struct llm_grammar){.t = t, .p = (const unsigned char *)text, .n = n, .line = 1, .ignored = LLM_NO_NODE, .e = e};
    g->lazy = llm_terms_kind(t, expand, g);
    bool lark = is_lark(g);
    if (lark) llm_lark_read(g);
    else llm_gbnf_read(g);
    if (g->bad || check_rules(g, lark ? "start" : "root", &rule) < 0) {
        llm_grammar_destroy(g);
        return NULL;
    }
    *root = expand(g, (uint32_t)rule, 0);
    if (g->ignored != LLM_NO_NODE) *root = llm_term_join(t, expand(g, (uint32_t)g->ignored, 0), *root);
    g->p = NULL; /* the text is the caller's */
    for (size_t i = 0; i < g->n_rules; i++) g->rules[i].name = NULL;
    g->e = NULL;
    return g;
}

void llm_grammar_destroy(struct llm_grammar *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->n_nodes; i++) llm_chars_release(&g->nodes[i].chars);
    free(g->nodes);
    free(g->rules);
    free(g);
}
