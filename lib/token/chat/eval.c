/* Expressions to values. */
#include <string.h>
#include "token/chat/jinja.h"

static const struct value error = {.type = V_ERROR};

struct scope *llm_jinja_scope(struct work *w, struct scope *outer)
{
    struct scope *s = llm_jinja_alloc(w, sizeof *s);
    if (s) *s = (struct scope){.outer = outer};
    return s;
}

int llm_jinja_set(struct work *w, struct scope *s, const struct name *name, struct value v)
{
    if (is_error(v)) return -1;
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].name != name) continue;
        s->v[i].v = v;
        return 0;
    }
    if (s->n == s->room) {
        size_t room = s->room ? s->room * 2 : 4;
        struct variable *grown = llm_jinja_alloc(w, room * sizeof *grown);
        if (!grown) return -1;
        if (s->n) memcpy(grown, s->v, s->n * sizeof *grown);
        s->v = grown;
        s->room = room;
    }
    s->v[s->n++] = (struct variable){name, v};
    return 0;
}

static struct variable *find_variable(const struct scope *s, const struct name *name)
{
    for (; s; s = s->outer)
        for (size_t i = 0; i < s->n; i++)
            if (s->v[i].name == name) return &s->v[i];
    return NULL;
}

static struct value look_up(struct work *w, const struct scope *s, const struct name *name)
{
    struct variable *found = find_variable(s, name);
    if (!found) return llm_jinja_undefined(w, NULL, llm_jinja_borrow(w, name->p, name->n), NULL);
    if (found->v.type == V_SUM) {
        struct value joined = llm_jinja_join_terms(w, found->v.as.sum);
        if (is_error(joined)) return joined;
        found->v = joined;
    }
    return found->v;
}

static int assign_tuple(struct work *w, struct scope *s, const struct node *target, struct value v)
{
    struct sequence *items;
    size_t n = 0;
    for (const struct node *t = target->a; t; t = t->next) n++;
    if (llm_jinja_items(w, v, &items) < 0) return -1;
    if (items->n > n) return llm_jinja_error(w, "too many values to unpack (expected %zu)", n);
    if (items->n < n) return llm_jinja_error(w, "not enough values to unpack (expected %zu, got %zu)", n, items->n);
    n = 0;
    for (const struct node *t = target->a; t; t = t->next)
        if (llm_jinja_assign(w, s, t->a, items->v[n++]) < 0) return -1;
    return 0;
}

int llm_jinja_assign(struct work *w, struct scope *s, const struct node *target, struct value v)
{
    if (is_error(v)) return -1;
    if (target->kind == N_NAME) return llm_jinja_set(w, s, target->name, v);
    if (target->kind == N_TUPLE) return assign_tuple(w, s, target, v);
    struct value space = look_up(w, s, target->a->name);
    if (is_error(space)) return -1;
    if (space.type != V_DICT || !space.as.dict->is_namespace) return llm_jinja_error(w, "cannot assign attribute on non-namespace object");
    if (target->value.as.text->n && target->value.as.text->p[0] == '_')
        return llm_jinja_error(w, "a namespace holds no attribute that begins with an underscore");
    return llm_jinja_dict_set(w, space.as.dict, target->value, v);
}

static int add_positional(struct work *w, struct scope *s, const struct arguments *a, struct sequence *out)
{
    struct sequence *more;
    for (const struct node *n = a->positional; n; n = n->next)
        if (llm_jinja_append(w, out, llm_jinja_eval(w, s, n->a)) < 0) return -1;
    if (!a->star) return 0;
    struct value v = llm_jinja_eval(w, s, a->star);
    if (is_error(v) || llm_jinja_items(w, v, &more) < 0) return -1;
    for (size_t i = 0; i < more->n; i++)
        if (llm_jinja_append(w, out, more->v[i]) < 0) return -1;
    return 0;
}

int llm_jinja_arguments(struct work *w, struct scope *s, const struct arguments *a, struct call *c)
{
    *c = (struct call){0};
    if (!a) return 0;
    struct value list = llm_jinja_sequence(w, S_LIST, a->n), more = {.type = V_ABSENT};
    if (is_error(list) || add_positional(w, s, a, list.as.sequence) < 0) return -1;
    size_t room = a->n_named, n = 0;
    c->v = list.as.sequence->v;
    c->n = list.as.sequence->n;
    if (a->star_star) {
        more = llm_jinja_eval(w, s, a->star_star);
        if (is_error(more)) return -1;
        if (more.type != V_DICT || more.as.dict->is_namespace) return llm_jinja_error(w, "argument after ** must be a mapping");
        room += more.as.dict->n;
    }
    if (!room) return 0;
    struct keyword *kw = llm_jinja_alloc(w, room * sizeof *kw);
    if (!kw) return -1;
    for (const struct node *k = a->named; k; k = k->next, n++) {
        kw[n] = (struct keyword){k->name->p, llm_jinja_eval(w, s, k->a)};
        if (is_error(kw[n].v)) return -1;
    }
    for (size_t i = 0; a->star_star && i < more.as.dict->n; i++, n++) {
        struct value key = more.as.dict->keys[i];
        char *name = key.type == V_TEXT ? llm_jinja_alloc(w, key.as.text->n + 1) : NULL;
        if (!name) return key.type == V_TEXT ? -1 : llm_jinja_error(w, "keywords must be strings");
        memcpy(name, key.as.text->p, key.as.text->n);
        name[key.as.text->n] = 0;
        kw[n] = (struct keyword){name, more.as.dict->values[i]};
    }
    c->kw = kw;
    c->n_kw = n;
    return 0;
}

static struct value eval_list(struct work *w, struct scope *s, const struct node *n)
{
    struct value list = llm_jinja_sequence(w, n->kind == N_LIST ? S_LIST : S_TUPLE, 0);
    if (is_error(list)) return list;
    for (const struct node *m = n->a; m; m = m->next)
        if (llm_jinja_append(w, list.as.sequence, llm_jinja_eval(w, s, m->a)) < 0) return error;
    return list;
}

static struct value eval_dict(struct work *w, struct scope *s, const struct node *n)
{
    struct value d = llm_jinja_dict(w);
    if (is_error(d)) return d;
    for (const struct node *m = n->a; m; m = m->next) {
        struct value key = llm_jinja_eval(w, s, m->a), v = is_error(key) ? key : llm_jinja_eval(w, s, m->b);
        if (is_error(v) || llm_jinja_dict_set(w, d.as.dict, key, v) < 0) return error;
    }
    return d;
}

static struct value eval_item(struct work *w, struct scope *s, const struct node *n)
{
    struct value of = llm_jinja_eval(w, s, n->a), range[3];
    if (is_error(of)) return of;
    if (n->b->kind != N_SLICE) {
        struct value key = llm_jinja_eval(w, s, n->b);
        return is_error(key) ? key : llm_jinja_item(w, of, key);
    }
    const struct node *const parts[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++) {
        range[i] = parts[i] ? llm_jinja_eval(w, s, parts[i]) : (struct value){.type = V_ABSENT};
        if (is_error(range[i])) return error;
    }
    return llm_jinja_slice(w, of, range);
}

static struct value eval_call(struct work *w, struct scope *s, const struct node *n)
{
    struct value callee = llm_jinja_eval(w, s, n->a);
    struct call c;
    if (is_error(callee) || llm_jinja_arguments(w, s, n->args, &c) < 0) return error;
    return llm_jinja_call(w, callee, &c);
}

struct value llm_jinja_eval_filters(struct work *w, struct scope *s, const struct node *n, struct value v)
{
    struct call c;
    if (n->kind == N_FILTER) {
        if (llm_jinja_enter(w) < 0) return error;
        v = n->a ? n->a->kind == N_FILTER ? llm_jinja_eval_filters(w, s, n->a, v) : llm_jinja_eval(w, s, n->a) : v;
        llm_jinja_leave(w);
        if (is_error(v) || llm_jinja_arguments(w, s, n->args, &c) < 0) return error;
        w->line = n->line;
        return llm_jinja_filter(w, n->name->p, v, &c);
    }
    return v;
}

static struct value eval_test(struct work *w, struct scope *s, const struct node *n)
{
    struct value v = llm_jinja_eval(w, s, n->a);
    struct call c;
    if (is_error(v) || llm_jinja_arguments(w, s, n->args, &c) < 0) return error;
    int got = llm_jinja_test(w, n->name->p, v, &c);
    return got < 0 ? error : v_bool(got);
}

static struct value eval_compare(struct work *w, struct scope *s, const struct node *n)
{
    struct value left = llm_jinja_eval(w, s, n->a);
    for (const struct node *m = n->b; m; m = m->next) {
        struct value right = is_error(left) ? left : llm_jinja_eval(w, s, m->a);
        if (is_error(right)) return right;
        int got = llm_jinja_compare(w, m->op, left, right);
        if (got <= 0) return got < 0 ? error : v_bool(false);
        left = right;
    }
    return v_bool(true);
}

/* `v` as ~ joins it: str(v), without the mark of safe text. */
static struct value plain(struct work *w, struct value v)
{
    if (!is_error(v)) v = llm_jinja_str(w, v);
    return is_error(v) || !v.as.text->safe ? v : llm_jinja_borrow(w, v.as.text->p, v.as.text->n);
}

static bool is_plain_text(struct value v)
{
    return v.type == V_TEXT && !v.as.text->safe;
}

/* Adds `b` to the sum. */
static int append_term(struct work *w, struct terms *t, struct value b)
{
    bool texts = is_plain_text(t->v[0]) && is_plain_text(b);
    if (!texts || t->n == MAX_TERMS) {
        struct value a = llm_jinja_join_terms(w, t);
        if (is_error(a)) return -1;
        *t = (struct terms){{a}, 1};
    }
    if (texts) t->v[t->n++] = b;
    else t->v[0] = llm_jinja_binary(w, OP_ADD, t->v[0], b);
    return is_error(t->v[0]) ? -1 : 0;
}

/* Adds the terms of `right`, which are the text of one variable if there are several, to the sum. */
static int append_terms(struct work *w, struct terms *t, const struct terms *right)
{
    if (!is_plain_text(t->v[0])) {
        struct value b = llm_jinja_join_terms(w, right);
        return is_error(b) ? -1 : append_term(w, t, b);
    }
    for (size_t i = 0; i < right->n; i++)
        if (append_term(w, t, right->v[i]) < 0) return -1;
    return 0;
}

/* The terms of what is no sum: those of a variable that keeps some, or one value. */
static int single_term(struct work *w, struct scope *s, const struct node *n, struct terms *t)
{
    const struct variable *v = n->kind == N_NAME ? find_variable(s, n->name) : NULL;
    if (v && v->v.type == V_SUM) {
        *t = *v->v.as.sum;
        return llm_jinja_step(w, 1);
    }
    *t = (struct terms){{llm_jinja_eval(w, s, n)}, 1};
    return is_error(t->v[0]) ? -1 : 0;
}

int llm_jinja_terms(struct work *w, struct scope *s, const struct node *n, struct terms *t)
{
    bool concat = n->kind == N_CONCAT;
    int line = w->line;
    struct terms right;
    if (!concat && !(n->kind == N_BINARY && n->op == OP_ADD)) return single_term(w, s, n, t);
    if (llm_jinja_step(w, 1) < 0) return -1;
    w->line = n->line;
    if (llm_jinja_enter(w) < 0 || llm_jinja_terms(w, s, n->a, t) < 0 || single_term(w, s, n->b, &right) < 0) return -1;
    if (concat) {
        right.v[0] = plain(w, right.v[0]);
        t->v[0] = plain(w, t->v[0]);
    }
    if (is_error(right.v[0]) || is_error(t->v[0]) || append_terms(w, t, &right) < 0) return -1;
    llm_jinja_leave(w);
    w->line = line;
    return 0;
}

static struct value eval_condition(struct work *w, struct scope *s, const struct node *n)
{
    struct value v = llm_jinja_eval(w, s, n->b);
    if (is_error(v)) return v;
    if (llm_jinja_truth(v)) return llm_jinja_eval(w, s, n->a);
    if (n->c) return llm_jinja_eval(w, s, n->c);
    return llm_jinja_undefined(w, NULL, v_none(), "the inline if-expression evaluated to false and no else section was defined");
}

static struct value eval_operator(struct work *w, struct scope *s, const struct node *n)
{
    struct value a = llm_jinja_eval(w, s, n->a), b;
    if (is_error(a)) return a;
    switch (n->kind) {
    case N_NOT: return v_bool(!llm_jinja_truth(a));
    case N_AND: return llm_jinja_truth(a) ? llm_jinja_eval(w, s, n->b) : a;
    case N_OR: return llm_jinja_truth(a) ? a : llm_jinja_eval(w, s, n->b);
    case N_NEGATIVE: case N_POSITIVE: return llm_jinja_negative(w, a, n->kind == N_POSITIVE);
    case N_ATTRIBUTE: return llm_jinja_attribute(w, a, n->value);
    default:
        b = llm_jinja_eval(w, s, n->b);
        return is_error(b) ? b : llm_jinja_binary(w, n->op, a, b);
    }
}

struct value llm_jinja_eval(struct work *w, struct scope *s, const struct node *n)
{
    struct value v;
    int line = w->line;
    if (n->kind == N_CONCAT || (n->kind == N_BINARY && n->op == OP_ADD)) {
        struct terms t;
        return llm_jinja_terms(w, s, n, &t) < 0 ? error : llm_jinja_join_terms(w, &t);
    }
    if (llm_jinja_step(w, 1) < 0) return error;
    if (n->kind == N_CONST) return n->value;
    w->line = n->line;
    if (n->kind == N_NAME) {
        v = look_up(w, s, n->name);
        w->line = line;
        return v;
    }
    if (llm_jinja_enter(w) < 0) return error;
    switch (n->kind) {
    case N_LIST: case N_TUPLE: v = eval_list(w, s, n); break;
    case N_DICT: v = eval_dict(w, s, n); break;
    case N_ITEM: v = eval_item(w, s, n); break;
    case N_CALL: v = eval_call(w, s, n); break;
    case N_FILTER: v = llm_jinja_eval_filters(w, s, n, error); break;
    case N_TEST: v = eval_test(w, s, n); break;
    case N_COMPARE: v = eval_compare(w, s, n); break;
    case N_CONDITION: v = eval_condition(w, s, n); break;
    default: v = eval_operator(w, s, n); break;
    }
    llm_jinja_leave(w);
    w->line = line;
    return v;
}
