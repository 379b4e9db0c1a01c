/* The Jinja2 of chat templates: what its files share. Source text becomes tokens (lex.c), nodes (parse.c, expression.c), and output
 * (run.c, eval.c). Values follow Python: what a template prints here is what it prints under transformers.
 *
 * Nothing is freed singly: nodes and values live in the arena of their struct work. Every node evaluated, item visited and 64 bytes
 * moved is a step; steps, depth of recursion and memory are bounded. Functions that give a value give one of type V_ERROR when they
 * fail, the others -1; work->e is then filled with "template: line N: message". */
#ifndef LLM_TOKEN_CHAT_JINJA_H
#define LLM_TOKEN_CHAT_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include "base/arena.h"
#include "base/buf.h"
#include "base/json_long.h"
#include "token/chat/chat.h"

enum value_type {
    V_ABSENT, /* an argument that was not given */
    V_ERROR, V_UNDEFINED, V_NONE, V_BOOL, V_INT, V_REAL, V_TEXT, V_SEQUENCE, V_DICT, V_MACRO, V_METHOD, V_FUNCTION, V_LOOP,
    V_SUM /* a variable's long text whose terms have not been joined; llm_jinja_eval never returns it */
};

struct value {
    enum value_type type;
    union {
        bool truth;
        int64_t integer;
        double real;
        struct text *text;
        struct sequence *sequence;
        struct dict *dict;
        struct undefined *undefined;
        struct macro *macro;
        struct method *method;
        const struct function *function;
        struct loop *loop;
        const struct terms *sum;
    } as;
};

/* UTF-8. `safe`: markupsafe's Markup, which the filters safe and escape give: what is added to it is escaped for HTML. */
struct text { const char *p; size_t n, chars; bool safe; }; /* chars: SIZE_MAX until counted */
enum sequence_kind { S_LIST, S_TUPLE, S_RANGE, S_GENERATOR, S_KEYS, S_VALUES, S_ITEMS };
struct sequence {
    enum sequence_kind kind;
    struct value *v;
    size_t n, room;
    int64_t start, stop, step; /* S_RANGE: as it is shown */
    bool is_group;             /* a tuple of filter groupby: its members are the attributes grouper and list, too */
};
struct dict { struct value *keys, *values; size_t n, room; uint32_t *slots; size_t n_slots; bool is_namespace; };
struct undefined { const char *owner, *hint; struct value name; }; /* owner: type that has no such attribute; hint: said instead */
struct method { struct value self; const char *name; };

/* Arguments of a call. Names of keywords are interned or string literals, NUL-terminated. */
struct keyword { const char *name; struct value v; };
struct call { const struct value *v; size_t n; const struct keyword *kw; size_t n_kw; };

struct work {
    struct llm_arena arena;
    char *next;
    size_t left;            /* bytes of the arena's block under way */
    struct llm_err *e;
    int line;               /* of the node under way */
    size_t steps, depth;    /* left */
    size_t memory;
    struct llm_buf out;     /* a stack of texts under way: a capture takes what was put since its mark */
    int captures;
    size_t root;            /* out.n where the outermost capture began */
    struct llm_chat_spans *spans;
    const char *whole;      /* a text that the output is compared with: its first `same` bytes are the output's and are not kept in `out`; or NULL */
    size_t n_whole, same;
    const struct llm_json_long *strings; /* of the messages, or NULL */
    const struct tm *now;
    const struct template *template;
};

/* ---- work.c: memory, errors, limits */
void *llm_jinja_alloc(struct work *w, size_t bytes);
int llm_jinja_error(struct work *w, const char *fmt, ...) LLM_PRINTF(2, 3);
struct value llm_jinja_fail(struct work *w, const char *fmt, ...) LLM_PRINTF(2, 3);
int llm_jinja_step(struct work *w, size_t n); /* -1 when the steps are used up */
int llm_jinja_enter(struct work *w);          /* one level deeper; -1 when too deep */
static inline void llm_jinja_leave(struct work *w) { w->depth++; }
/* Appends to the text under way; the text since `mark` as a value, taken off again. */
int llm_jinja_put(struct work *w, const char *p, size_t n);
int llm_jinja_puts(struct work *w, const char *s);
size_t llm_jinja_same(const char *a, size_t n_a, const char *b, size_t n_b); /* bytes with which both begin */
struct value llm_jinja_take(struct work *w, size_t mark);

/* ---- value.c */
static inline bool is_error(struct value v) { return v.type == V_ERROR; }
static inline struct value v_none(void) { return (struct value){.type = V_NONE}; }
static inline struct value v_bool(bool b) { return (struct value){.type = V_BOOL, .as.truth = b}; }
static inline struct value v_int(int64_t i) { return (struct value){.type = V_INT, .as.integer = i}; }
static inline struct value v_real(double d) { return (struct value){.type = V_REAL, .as.real = d}; }
static inline bool is_number(struct value v) { return v.type == V_BOOL || v.type == V_INT || v.type == V_REAL; }
static inline bool is_whole(struct value v) { return v.type == V_BOOL || v.type == V_INT; }
static inline int64_t whole(struct value v) { return v.type == V_BOOL ? v.as.truth : v.as.integer; }
static inline double number(struct value v) { return v.type == V_REAL ? v.as.real : (double)whole(v); }
static inline bool is_kind(struct value v, enum sequence_kind k) { return v.type == V_SEQUENCE && v.as.sequence->kind == k; }
struct value llm_jinja_text(struct work *w, const char *p, size_t n);   /* copied */
struct value llm_jinja_borrow(struct work *w, const char *p, size_t n); /* p outlives the value */
/* What an expression adds up to: several plain (not safe) texts, which have not been joined, or one value. */
enum { MAX_TERMS = 16 };
struct terms { struct value v[MAX_TERMS]; size_t n; };
struct value llm_jinja_join_terms(struct work *w, const struct terms *t);
/* The terms as the value of a variable: joined, or as V_SUM if that would copy 64 KiB or more. */
struct value llm_jinja_keep_terms(struct work *w, const struct terms *t);
struct value llm_jinja_undefined(struct work *w, const char *owner, struct value name, const char *hint);
struct value llm_jinja_sequence(struct work *w, enum sequence_kind kind, size_t room);
int llm_jinja_append(struct work *w, struct sequence *s, struct value v);
struct value llm_jinja_dict(struct work *w);
int llm_jinja_dict_set(struct work *w, struct dict *d, struct value key, struct value v);
/* NULL: not there. A key that cannot be one (a list) is not there. */
struct value *llm_jinja_dict_get(const struct dict *d, struct value key);
struct value *llm_jinja_dict_find(const struct dict *d, const char *key);
size_t llm_jinja_chars(struct text *t); /* characters in it */
bool llm_jinja_truth(struct value v);
/* 1, 0 or -1. */
int llm_jinja_equal(struct work *w, struct value a, struct value b);
/* *out < 0, 0, > 0; -1 when the two have no order (`op` is named). */
int llm_jinja_order(struct work *w, struct value a, struct value b, const char *op, int *out);
/* What a loop over `v` visits. A generator is used up by it. */
int llm_jinja_items(struct work *w, struct value v, struct sequence **out);
const char *llm_jinja_type(struct value v); /* Python's name of the type */
struct value llm_jinja_from_json(struct work *w, const json_t *j);

/* ---- show.c: str(), repr(), JSON; appended to the text under way */
int llm_jinja_show(struct work *w, struct value v);
int llm_jinja_repr(struct work *w, struct value v);
struct value llm_jinja_str(struct work *w, struct value v); /* as a text; texts are themselves */
int llm_jinja_show_real(struct work *w, double d);
struct value llm_jinja_to_json(struct work *w, const struct value arg[5]); /* value, ensure_ascii, indent, separators, sort_keys */
struct value llm_jinja_format(struct work *w, struct value format, struct value args);             /* format % args */
struct value llm_jinja_format_braces(struct work *w, const struct text *format, const struct call *c); /* format.format(...) */

/* ---- character.c */
/* Whether Python's str.is<what> has the character: space, alpha, alnum, numeric, ascii, digit, decimal, printable. */
bool llm_jinja_char_is(const char *what, uint32_t cp);

/* ---- text.c: strings */
enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
struct value llm_jinja_strip(struct work *w, struct text *t, struct value chars, int sides);
enum text_case { CASE_UPPER, CASE_LOWER, CASE_CAPITAL, CASE_TITLE, CASE_SWAP, CASE_FOLD, CASE_JINJA_TITLE };
struct value llm_jinja_case(struct work *w, struct text *t, enum text_case to);
struct value llm_jinja_replace(struct work *w, struct text *t, struct text *old, struct text *with, int64_t count);
struct value llm_jinja_split(struct work *w, struct text *t, struct value separator, int64_t count, bool from_right);
struct value llm_jinja_lines(struct work *w, struct text *t, bool keep_ends);
struct value llm_jinja_join(struct work *w, struct text *between, const struct sequence *s);
struct value llm_jinja_escape(struct work *w, struct value v); /* for HTML; safe text is itself */
struct value llm_jinja_char_at(struct work *w, struct text *t, int64_t index); /* V_ABSENT: out of range */
struct value llm_jinja_slice(struct work *w, struct value v, const struct value range[3]);
/* Byte offset of the needle at or after `from`, or -1. */
long llm_jinja_find(const struct text *t, const struct text *needle, size_t from);

/* ---- operators.c */
enum op { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW, OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN, OP_NOT_IN };
struct value llm_jinja_binary(struct work *w, enum op op, struct value a, struct value b);
int llm_jinja_compare(struct work *w, enum op op, struct value a, struct value b); /* 1, 0 or -1 */
struct value llm_jinja_negative(struct work *w, struct value v, bool plus);
int llm_jinja_contains(struct work *w, struct value item, struct value in);

/* ---- call.c, methods.c, filters.c, tests.c */
struct function { const char *name; struct value (*run)(struct work *w, const struct call *c); };
extern const struct function llm_jinja_functions[]; /* ends with a NULL name */
/* Arguments by the names in `params` ("indent first"): out[i] is V_ABSENT when not given. More or others: -1. */
int llm_jinja_bind(struct work *w, const char *what, const char *params, const struct call *c, struct value *out);
struct value llm_jinja_call(struct work *w, struct value callee, const struct call *c);
struct value llm_jinja_attribute(struct work *w, struct value v, struct value name); /* v.name: methods first */
struct value llm_jinja_item(struct work *w, struct value v, struct value key);       /* v[key]: items first */
struct value llm_jinja_method(struct work *w, struct value self, const char *name, const struct call *c);
/* The method of that name as a value, an undefined where the sandbox forbids it, V_ABSENT when the type has none. */
struct value llm_jinja_find_method(struct work *w, struct value self, const struct text *name);
struct value llm_jinja_filter(struct work *w, const char *name, struct value v, const struct call *c);
bool llm_jinja_is_filter(const char *name);
int llm_jinja_test(struct work *w, const char *name, struct value v, const struct call *c); /* 1, 0 or -1 */
bool llm_jinja_is_test(const char *name);
/* The attribute "a.b.0" of `v` (or an index); `fallback` where it is undefined, unless V_ABSENT. */
struct value llm_jinja_path(struct work *w, struct value v, struct value attribute, struct value fallback);

/* ---- lex.c, expression.c, parse.c */
enum token_type { T_DATA, T_BLOCK_BEGIN, T_BLOCK_END, T_PRINT_BEGIN, T_PRINT_END, T_NAME, T_STRING, T_INTEGER, T_REAL, T_OPERATOR, T_END };
struct token { enum token_type type; int line; const char *p; size_t n; };
/* The tokens of a template, T_END last; NULL: see work->e. */
struct token *llm_jinja_lex(struct work *w, const char *text, size_t n);

struct name { const char *p; size_t n; struct name *next; }; /* interned: equal names are one pointer */
enum node_kind {
    N_CONST, N_NAME, N_LIST, N_TUPLE, N_DICT, N_ATTRIBUTE, N_ITEM, N_SLICE, N_CALL, N_FILTER, N_TEST, N_NOT, N_NEGATIVE, N_POSITIVE, N_AND,
    N_OR, N_COMPARE, N_BINARY, N_CONCAT, N_CONDITION, N_NAMESPACE,
    N_DATA, N_PRINT, N_IF, N_FOR, N_SET, N_SET_BLOCK, N_MACRO, N_CALL_BLOCK, N_FILTER_BLOCK, N_WITH, N_GENERATION, N_BREAK, N_CONTINUE
};

/* What a, b, c are is said where the kind is made. */
struct node {
    enum node_kind kind;
    enum op op;
    bool flag;                /* N_FOR: recursive; N_IF: an elif */
    int line;
    struct node *next;        /* the statement or list member that follows */
    struct node *a, *b, *c;
    struct value value;       /* N_CONST, N_DATA */
    const struct name *name;
    struct arguments *args;   /* N_CALL, N_FILTER, N_TEST */
    struct signature *signature; /* N_MACRO, N_CALL_BLOCK */
};
struct arguments { struct node *positional, *named, *star, *star_star; size_t n, n_named; }; /* named: N_NAME with its value in a */
struct signature { struct node *parameters; size_t n; bool takes_rest, takes_keywords, takes_caller; }; /* N_NAME, default in a */

struct parser {
    struct work *w;
    struct template *t;
    const struct token *at;
    struct signature *inside; /* of the macro under way */
    int loops;                /* for loops around, within it */
};
struct node *llm_jinja_parse(struct work *w, struct template *t, const struct token *tokens);
const struct name *llm_jinja_name(struct work *w, struct template *t, const char *p, size_t n); /* interned */
const struct name *llm_jinja_known_name(const struct template *t, const char *p, size_t n);     /* NULL: the template has it nowhere */
struct node *llm_jinja_node(struct parser *p, enum node_kind kind, int line);
void *llm_jinja_syntax(struct parser *p, const char *fmt, ...) LLM_PRINTF(2, 3); /* NULL, with the error at the current token */
struct node *llm_jinja_expression(struct parser *p, bool with_condition);
/* Expressions with commas between are a tuple. `ends`: a name that ends it ("in"), or NULL. */
struct node *llm_jinja_tuple(struct parser *p, bool with_condition, const char *ends, bool parentheses);
struct node *llm_jinja_target(struct parser *p, bool with_namespace, const char *ends);
struct node *llm_jinja_filters(struct parser *p, struct node *input, bool begun); /* |a|b(c); input NULL: what a block captures */
struct node *llm_jinja_postfix(struct parser *p, struct node *n);
bool llm_jinja_at_operator(const struct parser *p, const char *op);
bool llm_jinja_skip_operator(struct parser *p, const char *op);
bool llm_jinja_at_name(const struct parser *p, const char *name);
bool llm_jinja_skip_name(struct parser *p, const char *name);
int llm_jinja_expect_operator(struct parser *p, const char *op);

enum { N_NAME_BUCKETS = 128 };
struct template {
    struct work work;       /* the arena of tokens and nodes */
    struct node *body;
    struct name *names[N_NAME_BUCKETS];
    bool has_generation;    /* {% generation %} marks the assistant's text */
};

/* ---- eval.c, run.c */
struct variable { const struct name *name; struct value v; };
struct scope { struct scope *outer; struct variable *v; size_t n, room; };
struct macro { const struct node *node; struct scope *scope; };
struct loop {
    const struct node *node;
    struct scope *outer;      /* where the loop stands */
    struct sequence *all, *kept; /* what is looped over; those of it that pass the loop's `if`, as far as was looked */
    size_t looked, index;     /* of `all`; 0-based among `kept` */
    int depth;                /* 0: outermost of a recursive loop */
    struct value changed;
};
enum flow { FLOW_ERROR = -1, FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };
struct value llm_jinja_eval(struct work *w, struct scope *s, const struct node *n);
/* The terms of a sum (+, ~), evaluated from left to right; of another expression its value. */
int llm_jinja_terms(struct work *w, struct scope *s, const struct node *n, struct terms *t);
enum flow llm_jinja_run(struct work *w, struct scope *s, const struct node *body);
struct scope *llm_jinja_scope(struct work *w, struct scope *outer);
int llm_jinja_set(struct work *w, struct scope *s, const struct name *name, struct value v);
/* Assigns to a name, a tuple of targets, or an attribute of a namespace. */
int llm_jinja_assign(struct work *w, struct scope *s, const struct node *target, struct value v);
/* Calls a macro with the caller that {% call %} gives (V_ABSENT: none). */
struct value llm_jinja_call_macro(struct work *w, struct macro *m, const struct call *c);
struct value llm_jinja_loop_attribute(struct work *w, struct loop *l, const struct text *name);
struct value llm_jinja_loop_call(struct work *w, struct loop *l, const struct call *c);
int llm_jinja_loop_step(struct work *w, struct loop *l, size_t want, bool *there); /* is there an item number `want`? */
/* Puts what `v` filtered by the chain of filters gives; `n` ends in an input of NULL that stands for v. */
struct value llm_jinja_eval_filters(struct work *w, struct scope *s, const struct node *n, struct value v);
/* Arguments evaluated. `first`: put before them (V_ABSENT: nothing). */
int llm_jinja_arguments(struct work *w, struct scope *s, const struct arguments *a, struct call *c);

#endif
