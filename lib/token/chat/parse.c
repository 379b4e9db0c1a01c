/* Statements to nodes. */
#include <string.h>
#include "token/chat/jinja.h"

static struct node *parse_statement(struct parser *p);

/* Text, output and statements up to a block that begins with one of `ends` (its name is the current token then), or, without `ends`, the
 * end of the template. *out is a chain that may be empty. */
static int parse_body(struct parser *p, const char *const *ends, struct node **out)
{
    *out = NULL;
    while (p->at->type != T_END) {
        struct node *n = NULL;
        const struct token *t = p->at++;
        if (t->type == T_DATA) {
            if ((n = llm_jinja_node(p, N_DATA, t->line)) != NULL) n->value = llm_jinja_borrow(p->w, t->p, t->n);
            if (!n || is_error(n->value)) return -1;
        } else if (t->type == T_PRINT_BEGIN) {
            if (!(n = llm_jinja_node(p, N_PRINT, t->line)) || !(n->a = llm_jinja_tuple(p, true, NULL, false))) return -1;
            if (p->at->type != T_PRINT_END) {
                llm_jinja_syntax(p, "expected '}}'");
                return -1;
            }
            p->at++;
        } else {
            for (int i = 0; ends && ends[i]; i++)
                if (llm_jinja_at_name(p, ends[i])) return 0;
            if (!(n = parse_statement(p))) return -1;
            if (p->at->type != T_BLOCK_END) {
                llm_jinja_syntax(p, "expected '%%}'");
                return -1;
            }
            p->at++;
        }
        *out = n;
        out = &n->next;
    }
    if (!ends) return 0;
    llm_jinja_syntax(p, "expected {%% %s %%}", ends[1] ? ends[1] : ends[0]);
    return -1;
}

/* The end of a statement's first block, and what follows up to its end. The last of `ends` is the one that closes. */
static int parse_block(struct parser *p, const char *const *ends, struct node **out)
{
    llm_jinja_skip_operator(p, ":");
    if (p->at->type != T_BLOCK_END) {
        llm_jinja_syntax(p, "expected '%%}'");
        return -1;
    }
    p->at++;
    if (llm_jinja_enter(p->w) < 0 || parse_body(p, ends, out) < 0) return -1;
    llm_jinja_leave(p->w);
    return 0;
}

/* As parse_block, up to the one word that closes, which is read too. */
static int parse_closed(struct parser *p, const char *end, struct node **out)
{
    const char *const ends[] = {end, NULL};
    if (parse_block(p, ends, out) < 0) return -1;
    p->at++;
    return 0;
}

/* a: condition, b: what runs when it holds, c: else (for elif an N_IF with the flag set). */
static struct node *parse_if(struct parser *p, int line)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node *first = llm_jinja_node(p, N_IF, line), *n = first;
    while (n) {
        if (!(n->a = llm_jinja_tuple(p, false, NULL, false)) || parse_block(p, ends, &n->b) < 0) return NULL;
        if (llm_jinja_skip_name(p, "elif")) {
            n = n->c = llm_jinja_node(p, N_IF, p->at->line);
            if (n) n->flag = true;
            continue;
        }
        if (llm_jinja_skip_name(p, "else")) return parse_closed(p, "endif", &n->c) < 0 ? NULL : first;
        p->at++;
        return first;
    }
    return NULL;
}

/* a: target, b: what is looped over, c: a node whose a is the condition, b the body, c the else. flag: recursive. */
static struct node *parse_for(struct parser *p, int line)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    struct node *n = llm_jinja_node(p, N_FOR, line);
    if (!n || !(n->c = llm_jinja_node(p, N_FOR, line)) || !(n->a = llm_jinja_target(p, false, "in"))) return NULL;
    if (!llm_jinja_skip_name(p, "in")) return llm_jinja_syntax(p, "expected 'in'");
    if (!(n->b = llm_jinja_tuple(p, false, "recursive", false))) return NULL;
    if (llm_jinja_skip_name(p, "if") && !(n->c->a = llm_jinja_expression(p, true))) return NULL;
    n->flag = llm_jinja_skip_name(p, "recursive");
    p->loops++;
    if (parse_block(p, ends, &n->c->b) < 0) return NULL;
    p->loops--;
    if (llm_jinja_skip_name(p, "else")) return parse_closed(p, "endfor", &n->c->c) < 0 ? NULL : n;
    p->at++;
    return n;
}

/* a: target; b: the value, or for N_SET_BLOCK the body, with c: the filters it goes through. */
static struct node *parse_set(struct parser *p, int line)
{
    struct node *n = llm_jinja_node(p, N_SET, line);
    if (!n || !(n->a = llm_jinja_target(p, true, NULL))) return NULL;
    if (llm_jinja_skip_operator(p, "=")) return (n->b = llm_jinja_tuple(p, true, NULL, false)) ? n : NULL;
    n->kind = N_SET_BLOCK;
    if (llm_jinja_at_operator(p, "|") && !(n->c = llm_jinja_filters(p, NULL, false))) return NULL;
    return parse_closed(p, "endset", &n->b) < 0 ? NULL : n;
}

/* (a, b=1): the parameters of a macro. */
static int parse_signature(struct parser *p, struct signature *s)
{
    struct node **tail = &s->parameters;
    bool defaults = false;
    if (llm_jinja_expect_operator(p, "(") < 0) return -1;
    while (!llm_jinja_at_operator(p, ")")) {
        if (s->parameters && llm_jinja_expect_operator(p, ",") < 0) return -1;
        struct node *n = llm_jinja_node(p, N_NAME, p->at->line);
        if (!n) return -1;
        if (p->at->type != T_NAME) {
            llm_jinja_syntax(p, "expected the name of a parameter");
            return -1;
        }
        if (!(n->name = llm_jinja_name(p->w, p->t, p->at->p, p->at->n))) return -1;
        p->at++;
        if (llm_jinja_skip_operator(p, "=")) {
            defaults = true;
            if (!(n->a = llm_jinja_expression(p, true))) return -1;
        } else if (defaults) {
            llm_jinja_syntax(p, "expected a default, as the parameter before has one");
            return -1;
        }
        *tail = n;
        tail = &n->next;
        s->n++;
    }
    p->at++;
    return 0;
}

/* The body of a macro or of a call block, which has a scope of its own. */
static int parse_macro_body(struct parser *p, struct node *n, const char *end)
{
    struct signature *outer = p->inside;
    int loops = p->loops;
    p->inside = n->signature;
    p->loops = 0;
    if (parse_closed(p, end, &n->b) < 0) return -1;
    p->inside = outer;
    p->loops = loops;
    return 0;
}

static struct node *make_macro(struct parser *p, enum node_kind kind, int line)
{
    struct node *n = llm_jinja_node(p, kind, line);
    if (!n || !(n->signature = llm_jinja_alloc(p->w, sizeof *n->signature))) return NULL;
    *n->signature = (struct signature){0};
    return n;
}

/* b: the body. */
static struct node *parse_macro(struct parser *p, int line)
{
    struct node *n = make_macro(p, N_MACRO, line);
    if (!n) return NULL;
    if (p->at->type != T_NAME) return llm_jinja_syntax(p, "expected the macro's name");
    if (!(n->name = llm_jinja_name(p->w, p->t, p->at->p, p->at->n))) return NULL;
    p->at++;
    return parse_signature(p, n->signature) < 0 || parse_macro_body(p, n, "endmacro") < 0 ? NULL : n;
}

/* a: the call, which gets the body (b) as `caller`. */
static struct node *parse_call_block(struct parser *p, int line)
{
    struct node *n = make_macro(p, N_CALL_BLOCK, line);
    if (!n || (llm_jinja_at_operator(p, "(") && parse_signature(p, n->signature) < 0)) return NULL;
    n->name = llm_jinja_name(p->w, p->t, "caller", 6);
    if (!n->name || !(n->a = llm_jinja_expression(p, true))) return NULL;
    if (n->a->kind != N_CALL) return llm_jinja_syntax(p, "expected a call");
    return parse_macro_body(p, n, "endcall") < 0 ? NULL : n;
}

/* a: a chain of targets, the value of each in its node's b; b: the body. */
static struct node *parse_with(struct parser *p, int line)
{
    struct node *n = llm_jinja_node(p, N_WITH, line), **tail;
    if (!n) return NULL;
    tail = &n->a;
    while (p->at->type != T_BLOCK_END) {
        if (n->a && llm_jinja_expect_operator(p, ",") < 0) return NULL;
        struct node *set = llm_jinja_node(p, N_SET, p->at->line);
        if (!set || p->at->type != T_NAME) return set ? llm_jinja_syntax(p, "expected a name") : NULL;
        if (!(set->a = llm_jinja_node(p, N_NAME, p->at->line))) return NULL;
        if (!(set->a->name = llm_jinja_name(p->w, p->t, p->at->p, p->at->n))) return NULL;
        p->at++;
        if (llm_jinja_expect_operator(p, "=") < 0 || !(set->b = llm_jinja_expression(p, true))) return NULL;
        *tail = set;
        tail = &set->next;
    }
    return parse_closed(p, "endwith", &n->b) < 0 ? NULL : n;
}

static struct node *parse_print(struct parser *p, int line)
{
    struct node *n = llm_jinja_node(p, N_PRINT, line);
    return n && (n->a = llm_jinja_expression(p, true)) ? n : NULL;
}

static struct node *parse_filter_block(struct parser *p, int line)
{
    struct node *n = llm_jinja_node(p, N_FILTER_BLOCK, line);
    if (!n || !(n->c = llm_jinja_filters(p, NULL, true))) return NULL;
    return parse_closed(p, "endfilter", &n->b) < 0 ? NULL : n;
}

static struct node *parse_generation(struct parser *p, int line)
{
    struct node *n = llm_jinja_node(p, N_GENERATION, line);
    p->t->has_generation = true;
    return n && parse_closed(p, "endgeneration", &n->b) == 0 ? n : NULL;
}

static struct node *parse_flow(struct parser *p, enum node_kind kind, int line)
{
    if (!p->loops) return llm_jinja_syntax(p, "break and continue stand within a loop");
    return llm_jinja_node(p, kind, line);
}

static struct node *parse_break(struct parser *p, int line)
{
    return parse_flow(p, N_BREAK, line);
}

static struct node *parse_continue(struct parser *p, int line)
{
    return parse_flow(p, N_CONTINUE, line);
}

static struct node *parse_statement(struct parser *p)
{
    static const struct { const char *name; struct node *(*parse)(struct parser *p, int line); } statements[] = {
        {"if", parse_if}, {"for", parse_for}, {"set", parse_set}, {"macro", parse_macro}, {"call", parse_call_block},
        {"filter", parse_filter_block}, {"with", parse_with}, {"print", parse_print}, {"generation", parse_generation},
        {"break", parse_break}, {"continue", parse_continue},
    };
    int line = p->at->line;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (llm_jinja_skip_name(p, statements[i].name)) return statements[i].parse(p, line);
    return llm_jinja_syntax(p, "expected a statement that chat templates have");
}

struct node *llm_jinja_parse(struct work *w, struct template *t, const struct token *tokens)
{
    struct parser p = {.w = w, .t = t, .at = tokens};
    struct node *body = NULL, *empty;
    if (parse_body(&p, NULL, &body) < 0) return NULL;
    if (body) return body;
    empty = llm_jinja_node(&p, N_DATA, 1);
    if (empty) empty->value = llm_jinja_borrow(w, "", 0);
    return empty;
}
