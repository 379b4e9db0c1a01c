/* Statements: output, branches, loops, macros. */
#include <string.h>
#include "token/chat/jinja.h"

static const struct value error = {.type = V_ERROR};

/* Output from here on is taken by capture_end instead of being part of what is rendered. */
static size_t capture_begin(struct work *w)
{
    if (w->captures++ == 0) w->root = w->out.n;
    return w->out.n;
}

static struct value capture_end(struct work *w, size_t mark)
{
    w->captures--;
    return llm_jinja_take(w, mark);
}

/* Runs a body with its output as a text in *out. */
static enum flow run_captured(struct work *w, struct scope *s, const struct node *body, struct value *out)
{
    size_t mark = capture_begin(w);
    enum flow flow = s ? llm_jinja_run(w, s, body) : FLOW_ERROR;
    if (flow == FLOW_ERROR) return FLOW_ERROR;
    *out = capture_end(w, mark);
    return is_error(*out) ? FLOW_ERROR : flow;
}

int llm_jinja_loop_step(struct work *w, struct loop *l, size_t want, bool *there)
{
    const struct node *condition = l->node->c->a;
    while (l->kept->n <= want && l->looked < l->all->n) {
        struct value item = l->all->v[l->looked++], v;
        struct scope *s = llm_jinja_scope(w, l->outer);
        if (!s || llm_jinja_assign(w, s, l->node->a, item) < 0) return -1;
        v = llm_jinja_eval(w, s, condition);
        if (is_error(v) || (llm_jinja_truth(v) && llm_jinja_append(w, l->kept, item) < 0)) return -1;
    }
    *there = l->kept->n > want;
    return 0;
}

static struct loop *make_loop(struct work *w, struct scope *outer, const struct node *n, struct value over, int depth)
{
    struct loop *l = llm_jinja_alloc(w, sizeof *l);
    struct value kept;
    if (!l) return NULL;
    *l = (struct loop){.node = n, .outer = outer, .depth = depth};
    if (llm_jinja_items(w, over, &l->all) < 0) return NULL;
    l->kept = l->all;
    l->looked = l->all->n;
    if (!n->c->a) return l;
    kept = llm_jinja_sequence(w, S_LIST, 0);
    if (is_error(kept)) return NULL;
    l->kept = kept.as.sequence;
    l->looked = 0;
    return l;
}

static enum flow run_loop(struct work *w, struct loop *l)
{
    const struct name *loop_name = llm_jinja_known_name(w->template, "loop", 4);
    const struct node *n = l->node;
    struct scope *s = llm_jinja_scope(w, l->outer);
    bool there, completed = false;
    if (!s) return FLOW_ERROR;
    for (l->index = 0;; l->index++) {
        if (llm_jinja_step(w, 1) < 0 || llm_jinja_loop_step(w, l, l->index, &there) < 0) return FLOW_ERROR;
        if (!there) break;
        s->n = 0; /* what a turn sets is gone in the next */
        if (loop_name && llm_jinja_set(w, s, loop_name, (struct value){.type = V_LOOP, .as.loop = l}) < 0) return FLOW_ERROR;
        if (llm_jinja_assign(w, s, n->a, l->kept->v[l->index]) < 0) return FLOW_ERROR;
        enum flow flow = llm_jinja_run(w, s, n->c->b);
        if (flow == FLOW_ERROR) return flow;
        if (flow == FLOW_BREAK) break;
        completed |= flow == FLOW_NEXT;
    }
    /* As Jinja has it: else runs unless a turn came to its end. */
    if (completed || !n->c->c) return FLOW_NEXT;
    s = llm_jinja_scope(w, l->outer);
    return s ? llm_jinja_run(w, s, n->c->c) : FLOW_ERROR;
}

static enum flow run_for(struct work *w, struct scope *s, const struct node *n)
{
    struct value over = llm_jinja_eval(w, s, n->b);
    struct loop *l = is_error(over) ? NULL : make_loop(w, s, n, over, 0);
    return l ? run_loop(w, l) : FLOW_ERROR;
}

struct value llm_jinja_loop_call(struct work *w, struct loop *l, const struct call *c)
{
    struct value over;
    if (!l->node->flag) return llm_jinja_fail(w, "The loop must have the 'recursive' marker to be called recursively.");
    if (llm_jinja_bind(w, "loop", "iterable", c, &over) < 0) return error;
    if (over.type == V_ABSENT) return llm_jinja_fail(w, "loop: expected what to loop over");
    size_t mark = capture_begin(w);
    struct loop *inner = make_loop(w, l->outer, l->node, over, l->depth + 1);
    if (!inner || run_loop(w, inner) == FLOW_ERROR) return error;
    return capture_end(w, mark);
}

static struct value loop_neighbour(struct work *w, struct loop *l, int64_t by)
{
    bool there = false;
    if (by < 0 && l->index == 0) return llm_jinja_undefined(w, NULL, v_none(), "there is no previous item");
    if (llm_jinja_loop_step(w, l, l->index + (size_t)by, &there) < 0) return error;
    return there ? l->kept->v[l->index + (size_t)by] : llm_jinja_undefined(w, NULL, v_none(), "there is no next item");
}

static bool is_text(const struct text *t, const char *s)
{
    return t->n == strlen(s) && memcmp(t->p, s, t->n) == 0;
}

struct value llm_jinja_loop_attribute(struct work *w, struct loop *l, const struct text *name)
{
    bool there = false;
    int64_t index = (int64_t)l->index;
    if (is_text(name, "index")) return v_int(index + 1);
    if (is_text(name, "index0")) return v_int(index);
    if (is_text(name, "first")) return v_bool(index == 0);
    if (is_text(name, "depth")) return v_int(l->depth + 1);
    if (is_text(name, "depth0")) return v_int(l->depth);
    if (is_text(name, "previtem")) return loop_neighbour(w, l, -1);
    if (is_text(name, "nextitem")) return loop_neighbour(w, l, 1);
    if (is_text(name, "last")) return llm_jinja_loop_step(w, l, l->index + 1, &there) < 0 ? error : v_bool(!there);
    bool length = is_text(name, "length"), from_end = is_text(name, "revindex"), from_end0 = is_text(name, "revindex0");
    if (!length && !from_end && !from_end0) return (struct value){.type = V_ABSENT};
    if (llm_jinja_loop_step(w, l, SIZE_MAX, &there) < 0) return error;
    return v_int((int64_t)l->kept->n - (length ? 0 : index + from_end0));
}

static struct value *keyword_of(struct keyword *kw, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (kw[i].v.type != V_ABSENT && strcmp(kw[i].name, name) == 0) return &kw[i].v;
    return NULL;
}

/* Parameters from the call: by place, by name, by default. Keywords that were used are made absent in `kw`. */
static int bind_parameters(struct work *w, struct scope *s, const struct signature *sig, const struct call *c, struct keyword *kw)
{
    size_t i = 0;
    for (const struct node *p = sig->parameters; p; p = p->next, i++) {
        struct value v, *named = i < c->n ? NULL : keyword_of(kw, c->n_kw, p->name->p);
        if (i < c->n) {
            v = c->v[i];
        } else if (named) {
            v = *named;
            named->type = V_ABSENT;
        } else if (p->a) {
            v = llm_jinja_eval(w, s, p->a);
        } else {
            v = llm_jinja_undefined(w, NULL, llm_jinja_borrow(w, p->name->p, p->name->n), "a parameter that was not given");
        }
        if (llm_jinja_set(w, s, p->name, v) < 0) return -1;
    }
    return 0;
}

static int set_by_name(struct work *w, struct scope *s, const char *name, struct value v)
{
    const struct name *known = llm_jinja_known_name(w->template, name, strlen(name));
    return known ? llm_jinja_set(w, s, known, v) : is_error(v) ? -1 : 0;
}

/* What the parameters leave over: varargs, kwargs, caller; an error where the macro's body does not speak of them. */
static int bind_rest(struct work *w, struct scope *s, const struct node *macro, const struct call *c, struct keyword *kw)
{
    const struct signature *sig = macro->signature;
    struct value *caller = sig->takes_caller ? keyword_of(kw, c->n_kw, "caller") : NULL;
    if (caller) {
        if (set_by_name(w, s, "caller", *caller) < 0) return -1;
        caller->type = V_ABSENT;
    }
    if (c->n > sig->n && !sig->takes_rest)
        return llm_jinja_error(w, "macro '%s' takes not more than %zu argument(s)", macro->name->p, sig->n);
    if (sig->takes_rest) {
        struct value rest = llm_jinja_sequence(w, S_TUPLE, 0);
        if (is_error(rest)) return -1;
        for (size_t i = sig->n; i < c->n; i++)
            if (llm_jinja_append(w, rest.as.sequence, c->v[i]) < 0) return -1;
        if (set_by_name(w, s, "varargs", rest) < 0) return -1;
    }
    struct value more = sig->takes_keywords ? llm_jinja_dict(w) : v_none();
    for (size_t i = 0; i < c->n_kw && !is_error(more); i++) {
        if (kw[i].v.type == V_ABSENT) continue;
        if (!sig->takes_keywords) return llm_jinja_error(w, "macro '%s' takes no keyword argument '%s'", macro->name->p, kw[i].name);
        if (llm_jinja_dict_set(w, more.as.dict, llm_jinja_borrow(w, kw[i].name, strlen(kw[i].name)), kw[i].v) < 0) return -1;
    }
    return is_error(more) ? -1 : sig->takes_keywords ? set_by_name(w, s, "kwargs", more) : 0;
}

struct value llm_jinja_call_macro(struct work *w, struct macro *m, const struct call *c)
{
    struct scope *s = llm_jinja_scope(w, m->scope);
    struct keyword *kw = llm_jinja_alloc(w, (c->n_kw + 1) * sizeof *kw);
    struct value out;
    if (!s || !kw) return error;
    if (c->n_kw) memcpy(kw, c->kw, c->n_kw * sizeof *kw);
    if (bind_parameters(w, s, m->node->signature, c, kw) < 0 || bind_rest(w, s, m->node, c, kw) < 0) return error;
    return run_captured(w, s, m->node->b, &out) == FLOW_ERROR ? error : out;
}

static struct value make_macro(struct work *w, struct scope *s, const struct node *n)
{
    struct macro *m = llm_jinja_alloc(w, sizeof *m);
    if (!m) return error;
    *m = (struct macro){n, s};
    return (struct value){.type = V_MACRO, .as.macro = m};
}

static enum flow run_call_block(struct work *w, struct scope *s, const struct node *n)
{
    struct value callee = llm_jinja_eval(w, s, n->a->a), caller = make_macro(w, s, n), out;
    struct call c;
    if (is_error(callee) || is_error(caller) || llm_jinja_arguments(w, s, n->a->args, &c) < 0) return FLOW_ERROR;
    struct keyword *kw = llm_jinja_alloc(w, (c.n_kw + 1) * sizeof *kw);
    if (!kw) return FLOW_ERROR;
    if (c.n_kw) memcpy(kw, c.kw, c.n_kw * sizeof *kw);
    kw[c.n_kw] = (struct keyword){"caller", caller};
    c.kw = kw;
    c.n_kw++;
    out = llm_jinja_call(w, callee, &c);
    return is_error(out) || llm_jinja_show(w, out) < 0 ? FLOW_ERROR : FLOW_NEXT;
}

/* {% set x %}…{% endset %} and {% filter x %}…{% endfilter %}. */
static enum flow run_captured_block(struct work *w, struct scope *s, const struct node *n)
{
    struct scope *inner = llm_jinja_scope(w, s);
    struct value v;
    enum flow flow = run_captured(w, inner, n->b, &v);
    if (flow != FLOW_NEXT) return flow;
    if (n->c) v = llm_jinja_eval_filters(w, inner, n->c, v);
    if (is_error(v)) return FLOW_ERROR;
    int status = n->kind == N_FILTER_BLOCK ? llm_jinja_show(w, v) : llm_jinja_assign(w, s, n->a, v);
    return status < 0 ? FLOW_ERROR : FLOW_NEXT;
}

static enum flow run_with(struct work *w, struct scope *s, const struct node *n)
{
    struct scope *inner = llm_jinja_scope(w, s);
    if (!inner) return FLOW_ERROR;
    for (const struct node *set = n->a; set; set = set->next)
        if (llm_jinja_assign(w, inner, set->a, llm_jinja_eval(w, s, set->b)) < 0) return FLOW_ERROR;
    return llm_jinja_run(w, inner, n->b);
}

static enum flow run_generation(struct work *w, struct scope *s, const struct node *n)
{
    struct scope *inner = llm_jinja_scope(w, s);
    size_t begin = w->captures ? w->root : w->out.n, before = w->out.n;
    enum flow flow = inner ? llm_jinja_run(w, inner, n->b) : FLOW_ERROR;
    if (flow == FLOW_ERROR || !w->spans) return flow;
    void *v = w->spans->v;
    if (llm_grow(&v, &w->spans->room, w->spans->n + 1, sizeof *w->spans->v, w->e) < 0) return FLOW_ERROR;
    w->spans->v = v;
    w->spans->v[w->spans->n++] = (struct llm_chat_span){begin, begin + (w->out.n - before)};
    return flow;
}

static enum flow run_if(struct work *w, struct scope *s, const struct node *n)
{
    for (;;) {
        w->line = n->line;
        struct value v = llm_jinja_eval(w, s, n->a);
        if (is_error(v)) return FLOW_ERROR;
        if (llm_jinja_truth(v)) return llm_jinja_run(w, s, n->b);
        if (!n->c || n->c->kind != N_IF || !n->c->flag) return llm_jinja_run(w, s, n->c);
        n = n->c;
    }
}

/* Puts text out. What is the same as in the text that the output is compared with is not kept. */
static int emit(struct work *w, const struct text *t)
{
    size_t same = 0;
    if (w->whole && !w->captures && w->out.n == 0) same = llm_jinja_same(w->whole + w->same, w->n_whole - w->same, t->p, t->n);
    w->same += same;
    return llm_jinja_step(w, same / 64) < 0 ? -1 : llm_jinja_put(w, t->p + same, t->n - same);
}

/* The terms of a sum are put out one by one: joined they would be a copy of a long message. */
static enum flow run_print(struct work *w, struct scope *s, const struct node *n)
{
    struct terms t;
    if (llm_jinja_terms(w, s, n->a, &t) < 0) return FLOW_ERROR;
    for (size_t i = 0; i < t.n; i++) {
        struct value v = llm_jinja_str(w, t.v[i]);
        if (is_error(v) || emit(w, v.as.text) < 0) return FLOW_ERROR;
    }
    return FLOW_NEXT;
}

/* {% set x = … %}. Long texts that are added up stay apart: templates put a turn together in a variable before they print it. */
static enum flow run_set(struct work *w, struct scope *s, const struct node *n)
{
    struct terms t;
    if (n->a->kind != N_NAME) return llm_jinja_assign(w, s, n->a, llm_jinja_eval(w, s, n->b)) < 0 ? FLOW_ERROR : FLOW_NEXT;
    if (llm_jinja_terms(w, s, n->b, &t) < 0) return FLOW_ERROR;
    return llm_jinja_set(w, s, n->a->name, llm_jinja_keep_terms(w, &t)) < 0 ? FLOW_ERROR : FLOW_NEXT;
}

static enum flow run_statement(struct work *w, struct scope *s, const struct node *n)
{
    switch (n->kind) {
    case N_DATA: return emit(w, n->value.as.text) < 0 ? FLOW_ERROR : FLOW_NEXT;
    case N_PRINT: return run_print(w, s, n);
    case N_IF: return run_if(w, s, n);
    case N_FOR: return run_for(w, s, n);
    case N_SET: return run_set(w, s, n);
    case N_SET_BLOCK: case N_FILTER_BLOCK: return run_captured_block(w, s, n);
    case N_MACRO: return llm_jinja_set(w, s, n->name, make_macro(w, s, n)) < 0 ? FLOW_ERROR : FLOW_NEXT;
    case N_CALL_BLOCK: return run_call_block(w, s, n);
    case N_WITH: return run_with(w, s, n);
    case N_GENERATION: return run_generation(w, s, n);
    default: return n->kind == N_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
    }
}

enum flow llm_jinja_run(struct work *w, struct scope *s, const struct node *body)
{
    enum flow flow = FLOW_NEXT;
    int line = w->line;
    if (llm_jinja_enter(w) < 0) return FLOW_ERROR;
    for (const struct node *n = body; n && flow == FLOW_NEXT; n = n->next) {
        w->line = n->line;
        flow = llm_jinja_step(w, 1) < 0 ? FLOW_ERROR : run_statement(w, s, n);
    }
    llm_jinja_leave(w);
    w->line = line;
    return flow;
}
