/* Templates made and rendered. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "token/chat/render.h"
#include "token/unicode.h"

enum { MAX_TEMPLATE = 1 << 20 };
struct llm_chat_template { struct template t; };

static int begin_work(struct work *w, const struct llm_chat_limits *limits, struct llm_err *e)
{
    *w = (struct work){.e = e, .line = 1, .steps = 50000000, .depth = 1000, .memory = (size_t)256 << 20};
    if (limits && limits->steps) w->steps = limits->steps;
    if (limits && limits->depth) w->depth = limits->depth;
    if (limits && limits->memory) w->memory = limits->memory;
    return llm_arena_init(&w->arena, w->memory, e);
}

static void end_work(struct work *w)
{
    llm_arena_release(&w->arena);
    llm_buf_release(&w->out);
}

struct llm_chat_template *llm_chat_template_create(const char *text, size_t n, const struct llm_chat_limits *limits, struct llm_err *e)
{
    struct llm_err own = {0};
    struct llm_chat_template *c = NULL;
    if (!e) e = &own;
    size_t bad = llm_utf8_invalid((const unsigned char *)text, n);
    if (n > MAX_TEMPLATE) {
        llm_fail(e, EX_DATAERR, "template: expected at most %d bytes, found %zu", MAX_TEMPLATE, n);
    } else if (bad < n) {
        llm_fail(e, EX_DATAERR, "template: byte %zu: not UTF-8", bad);
    } else {
        c = llm_calloc(1, sizeof *c, "template", e);
    }
    if (!c) return NULL;
    struct work *w = &c->t.work;
    struct token *tokens = begin_work(w, limits, e) < 0 ? NULL : llm_jinja_lex(w, text, n);
    c->t.body = tokens ? llm_jinja_parse(w, &c->t, tokens) : NULL;
    llm_buf_release(&w->out);
    w->e = NULL;
    if (c->t.body) return c;
    llm_chat_template_destroy(c);
    return NULL;
}

void llm_chat_template_destroy(struct llm_chat_template *t)
{
    if (!t) return;
    end_work(&t->t.work);
    free(t);
}

void llm_chat_spans_release(struct llm_chat_spans *s)
{
    free(s->v);
    *s = (struct llm_chat_spans){0};
}

/* A message with its reasoning under the two names that templates read, as transformers gives it to them. */
static struct value message_value(struct work *w, const json_t *message)
{
    static const char *const fields[] = {"reasoning_content", "thinking", "reasoning"};
    const struct value error = {.type = V_ERROR};
    struct value v = llm_jinja_from_json(w, message), *reasoning = NULL;
    if (is_error(v)) return v;
    if (v.type != V_DICT) return llm_jinja_fail(w, "messages: expected objects, found %s", llm_jinja_type(v));
    for (int i = 0; i < 3 && !reasoning; i++) {
        reasoning = llm_jinja_dict_find(v.as.dict, fields[i]);
        if (reasoning && reasoning->type == V_NONE) reasoning = NULL;
    }
    if (!reasoning) return v;
    struct value out = llm_jinja_dict(w), text = *reasoning;
    if (is_error(out) || llm_jinja_dict_set(w, out.as.dict, llm_jinja_borrow(w, fields[1], strlen(fields[1])), text) < 0) return error;
    for (size_t i = 0; i < v.as.dict->n; i++)
        if (llm_jinja_dict_set(w, out.as.dict, v.as.dict->keys[i], v.as.dict->values[i]) < 0) return error;
    if (llm_jinja_dict_set(w, out.as.dict, llm_jinja_borrow(w, fields[0], strlen(fields[0])), text) < 0) return error;
    return out;
}

static struct value messages_value(struct work *w, const json_t *messages, size_t n)
{
    struct value list = llm_jinja_sequence(w, S_LIST, n);
    for (size_t i = 0; i < n && !is_error(list); i++)
        if (llm_jinja_append(w, list.as.sequence, message_value(w, json_array_get(messages, i))) < 0) return (struct value){.type = V_ERROR};
    return list;
}

/* A variable that the template speaks of. */
static int define(struct work *w, struct scope *s, const char *name, struct value v)
{
    const struct name *known = llm_jinja_known_name(w->template, name, strlen(name));
    return is_error(v) ? -1 : known ? llm_jinja_set(w, s, known, v) : 0;
}

static int define_text(struct work *w, struct scope *s, const char *name, const char *text)
{
    return text ? define(w, s, name, llm_jinja_borrow(w, text, strlen(text))) : 0;
}

/* The template of firefunction-v2 has no `tools`: llama.cpp gives it their JSON as a text, and the date. */
static int define_functions(struct work *w, struct scope *s, const struct llm_chat_request *r)
{
    char date[64];
    if (!r->options->functions || !llm_jinja_known_name(w->template, "functions", 9) || !llm_jinja_known_name(w->template, "datetime", 8)) return 0;
    struct value functions = llm_jinja_borrow(w, "", 0);
    if (r->tools) {
        const struct value options[5] = {llm_jinja_from_json(w, r->tools), {.type = V_ABSENT}, v_int(2), {.type = V_ABSENT}, {.type = V_ABSENT}};
        functions = is_error(options[0]) ? options[0] : llm_jinja_to_json(w, options);
    }
    if (define(w, s, "functions", functions) < 0) return -1;
    if (!r->options->now) return 0;
    size_t n = strftime(date, sizeof date, "%b %d %Y %H:%M:%S GMT", r->options->now);
    return define(w, s, "datetime", llm_jinja_text(w, date, n));
}

static int define_all(struct work *w, struct scope *s, const struct llm_chat_request *r)
{
    const json_t *v;
    const char *key;
    for (const struct function *f = llm_jinja_functions; f->name; f++) {
        if (!r->options->now && strcmp(f->name, "strftime_now") == 0) continue;
        if (define(w, s, f->name, (struct value){.type = V_FUNCTION, .as.function = f}) < 0) return -1;
    }
    if (define(w, s, "messages", messages_value(w, r->messages, r->n)) < 0) return -1;
    if (define(w, s, "tools", r->tools ? llm_jinja_from_json(w, r->tools) : v_none()) < 0 || define(w, s, "documents", v_none()) < 0) return -1;
    if (define(w, s, "add_generation_prompt", v_bool(r->add_generation_prompt)) < 0) return -1;
    if (define_text(w, s, "bos_token", r->options->bos) < 0 || define_text(w, s, "eos_token", r->options->eos) < 0) return -1;
    if (define_functions(w, s, r) < 0) return -1;
    json_object_foreach((json_t *)(uintptr_t)r->options->variables, key, v) {
        if (define(w, s, key, llm_jinja_from_json(w, v)) < 0) return -1;
    }
    return 0;
}

bool llm_chat_marks_spans(const struct llm_chat_template *t)
{
    return t->t.has_generation;
}

/* Renders into w->out. The caller has begun the work and ends it. */
static int run(struct work *w, const struct llm_chat_template *t, const struct llm_chat_request *r)
{
    w->template = &t->t;
    w->now = r->options->now;
    w->strings = r->options->strings;
    struct scope *s = llm_jinja_scope(w, NULL);
    return !s || define_all(w, s, r) < 0 || llm_jinja_run(w, s, t->t.body) == FLOW_ERROR ? -1 : 0;
}

int llm_chat_render_once(const struct llm_chat_template *t, const struct llm_chat_request *r, struct llm_buf *out, struct llm_chat_spans *spans,
                         struct llm_err *e)
{
    struct work w;
    struct llm_err own = {0};
    if (begin_work(&w, &r->options->limits, e ? e : &own) < 0) return -1;
    w.spans = spans;
    size_t first = spans ? spans->n : 0;
    int status = run(&w, t, r);
    for (size_t i = first; status == 0 && spans && i < spans->n; i++) {
        spans->v[i].begin += out->n;
        spans->v[i].end += out->n;
    }
    if (status == 0 && out->n == 0 && w.out.p) { /* moved instead of copied */
        llm_buf_release(out);
        *out = w.out;
        w.out = (struct llm_buf){0};
    } else if (status == 0) {
        status = llm_buf_put(out, w.out.p ? w.out.p : "", w.out.n, e);
    }
    end_work(&w);
    return status;
}

int llm_chat_render_against(const struct llm_chat_template *t, const struct llm_chat_request *r, const char *whole, size_t n_whole,
                            struct llm_chat_cut *cut, struct llm_err *e)
{
    struct work w;
    struct llm_err own = {0};
    if (begin_work(&w, &r->options->limits, e ? e : &own) < 0) return -1;
    w.whole = whole;
    w.n_whole = n_whole;
    int status = run(&w, t, r);
    if (status == 0) {
        size_t same = w.out.n ? llm_jinja_same(whole + w.same, n_whole - w.same, w.out.p, w.out.n) : 0;
        if (same) memmove(w.out.p, w.out.p + same, w.out.n - same);
        w.out.n -= same;
        *cut = (struct llm_chat_cut){w.same + same, w.out};
        w.out = (struct llm_buf){0};
    }
    end_work(&w);
    return status;
}
