/* llm-infer: what texts must be, by options and by lines: --grammar, --regex, --choices, --json-schema, --json-object. */
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/utf8.h"
#include "bin/infer/infer.h"
#include "io/file.h"

enum { MAX_FILE = 64 << 20 /* bytes of a grammar */, MAX_KEPT = 32 /* constraints that no line uses now */ };

/* Constraints in use, and some that were used: lines often ask for the same one. */
struct constraints {
    struct llm_tokens *tokens;
    struct kept {
        enum llm_constraint_kind kind;
        struct llm_buf text;
        struct llm_constraint *c;
        int64_t users, used; /* lines that use it; when it was asked for last */
        bool old;            /* further lines get a new one */
    } *v;
    size_t n, room;
    int64_t asked;
};

/* Members of a line. Those that begin with guided_ are vLLM's names. */
enum member_form { PLAIN, TRUTH, RESPONSE };
static const struct member { const char *name; enum llm_constraint_kind kind; enum member_form form; } kinds[] = {
    {"grammar", LLM_CONSTRAIN_GRAMMAR, PLAIN}, {"regex", LLM_CONSTRAIN_REGEX, PLAIN}, {"choices", LLM_CONSTRAIN_CHOICES, PLAIN},
    {"json_schema", LLM_CONSTRAIN_SCHEMA, PLAIN}, {"json-schema", LLM_CONSTRAIN_SCHEMA, PLAIN}, {"json_object", LLM_CONSTRAIN_SCHEMA, TRUTH},
    {"json-object", LLM_CONSTRAIN_SCHEMA, TRUTH}, {"response_format", LLM_CONSTRAIN_SCHEMA, RESPONSE},
    {"guided_grammar", LLM_CONSTRAIN_GRAMMAR, PLAIN}, {"guided_regex", LLM_CONSTRAIN_REGEX, PLAIN},
    {"guided_choice", LLM_CONSTRAIN_CHOICES, PLAIN}, {"guided_json", LLM_CONSTRAIN_SCHEMA, PLAIN}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };
static const char any_object[] = "{\"type\":\"object\"}";

static struct constraints *open_tokens(struct session *s, struct llm_err *e)
{
    struct constraints *all = s->constraints;
    if (!s->model->tokenizer) {
        llm_fail(e, EX_UNAVAILABLE, "what a text must be cannot be checked without a tokenizer");
        return NULL;
    }
    if (!all) all = s->constraints = llm_calloc(1, sizeof *all, "constraints", e);
    if (all && !all->tokens) all->tokens = llm_tokens_create(s->model->tokenizer, e);
    return all && all->tokens ? all : NULL;
}

static void kept_release(struct kept *k)
{
    llm_constraint_destroy(k->c);
    llm_buf_release(&k->text);
}

/* Drops the constraint without users that was asked for longest ago, if there are many, and old ones. */
static void drop_oldest(struct constraints *all)
{
    for (size_t i = all->n; i-- > 0;) {
        if (!all->v[i].old || all->v[i].users > 0) continue;
        kept_release(&all->v[i]);
        all->v[i] = all->v[--all->n];
    }
    size_t unused = 0, oldest = SIZE_MAX;
    for (size_t i = 0; i < all->n; i++) {
        if (all->v[i].users > 0) continue;
        unused++;
        if (oldest == SIZE_MAX || all->v[i].used < all->v[oldest].used) oldest = i;
    }
    if (unused <= MAX_KEPT) return;
    kept_release(&all->v[oldest]);
    all->v[oldest] = all->v[--all->n];
}

/* The constraint for a text, one user more. NULL: it cannot be made. */
static struct llm_constraint *find(struct session *s, enum llm_constraint_kind kind, const char *text, size_t n, struct llm_err *e)
{
    struct constraints *all = open_tokens(s, e);
    if (!all) return NULL;
    size_t i = 0;
    while (i < all->n && !(!all->v[i].old && all->v[i].kind == kind && all->v[i].text.n == n && memcmp(all->v[i].text.p, text, n) == 0)) i++;
    if (i < all->n && llm_constraint_is_half_full(all->v[i].c)) {
        all->v[i].old = true;
        i = all->n;
    }
    if (i == all->n) {
        struct kept k = {.kind = kind};
        drop_oldest(all);
        i = all->n;
        if (llm_grow((void **)&all->v, &all->room, all->n + 1, sizeof *all->v, e) < 0 || llm_buf_put(&k.text, text, n, e) < 0
            || !(k.c = llm_constraint_create(kind, text, n, all->tokens, e))) {
            kept_release(&k);
            return NULL;
        }
        all->v[all->n++] = k;
    }
    all->v[i].users++;
    all->v[i].used = ++all->asked;
    return all->v[i].c;
}

int constraints_find_tools(struct session *s, const char *text, size_t n, struct llm_constraint **c, struct llm_err *e)
{
    *c = find(s, LLM_CONSTRAIN_TOOLS, text, n, e);
    return *c ? 0 : -1;
}

void constraints_drop(struct session *s, struct llm_constraint *c)
{
    for (size_t i = 0; c && i < s->constraints->n; i++)
        if (s->constraints->v[i].c == c) s->constraints->v[i].users--;
}

void constraints_release(struct session *s)
{
    if (!s->constraints) return;
    for (size_t i = 0; i < s->constraints->n; i++) kept_release(&s->constraints->v[i]);
    free(s->constraints->v);
    llm_tokens_destroy(s->constraints->tokens);
    free(s->constraints);
}

static int read_file(const char *path, struct llm_buf *text, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    int64_t got = f ? 1 : -1;
    while (got > 0) {
        if (text->n > MAX_FILE) got = llm_fail(e, EX_DATAERR, "%s: expected at most %d bytes", path, MAX_FILE);
        else if (llm_buf_reserve(text, text->n + (1 << 16), e) < 0) got = -1;
        else got = llm_file_read_some(f, text->p + text->n, 1 << 16, e);
        if (got > 0) text->n += (size_t)got;
    }
    llm_file_close(f);
    const size_t mark = got < 0 ? 0 : llm_utf8_mark(text->p, text->n);
    if (mark > 0) memmove(text->p, text->p + mark, text->n -= mark);
    return got < 0 ? -1 : 0;
}

/* Choices of a file are its lines; NUL separates choices. */
static int split_lines(struct llm_buf *text, struct llm_err *e)
{
    size_t n = 0;
    if (text->n > 0 && memchr(text->p, 0, text->n)) return llm_fail(e, EX_DATAERR, "expected a text, found a zero byte");
    for (size_t i = 0; i < text->n; i++) {
        if (text->p[i] == '\r' && i + 1 < text->n && text->p[i + 1] == '\n') continue;
        text->p[n++] = text->p[i] == '\n' ? 0 : text->p[i];
    }
    text->n = n;
    return 0;
}

int constraints_open(struct session *s, struct llm_err *e)
{
    const struct args *a = s->a;
    const char *path = a->grammar ? a->grammar : a->choices ? a->choices : a->json_schema;
    enum llm_constraint_kind kind = a->grammar ? LLM_CONSTRAIN_GRAMMAR : a->choices ? LLM_CONSTRAIN_CHOICES : LLM_CONSTRAIN_SCHEMA;
    struct llm_buf text = {0};
    int status = 0;
    if (a->regex) {
        s->constraint = find(s, LLM_CONSTRAIN_REGEX, a->regex, strlen(a->regex), e);
        return s->constraint ? 0 : llm_in(e, "--regex");
    }
    if (a->json_object) {
        s->constraint = find(s, LLM_CONSTRAIN_SCHEMA, any_object, sizeof any_object - 1, e);
        return s->constraint ? 0 : -1;
    }
    if (!path) return 0;
    status = read_file(path, &text, e);
    if (status == 0) {
        if (a->choices) status = split_lines(&text, e);
        if (status == 0) s->constraint = find(s, kind, text.p ? text.p : "", text.n, e);
        if (!s->constraint) status = llm_in(e, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
    }
    llm_buf_release(&text);
    return status;
}

/* OpenAI's "response_format": a schema; *v is NULL if any text will do. */
static int response_schema(const json_t **v, struct llm_err *e)
{
    const char *type = json_string_value(json_object_get(*v, "type"));
    const json_t *form = json_object_get(*v, "json_schema"), *schema = json_object_get(form, "schema");
    if (type && strcmp(type, "json_schema") == 0) {
        const bool described = json_object_get(form, "name") || json_object_get(form, "strict") || json_object_size(form) == 0;
        if (!form || (!schema && described)) /* these are no keywords: the schema itself is missing, and all would be allowed */
            return llm_fail(e, EX_DATAERR, "expected \"json_schema\": {\"schema\": …}, found none");
        *v = schema ? schema : form;
    } else if (type && strcmp(type, "json_object") == 0) *v = json_object_get(*v, "schema");
    else if (!type || strcmp(type, "text") != 0) type = NULL;
    if (!type) return llm_fail(e, EX_DATAERR, "expected \"type\": \"text\", \"json_object\" or \"json_schema\"");
    return strcmp(type, "text") == 0;
}

/* The text of a member: a string, choices as a list of strings, or a schema. 1: it demands nothing. */
static int member_text(const json_t *v, const struct member *m, struct llm_buf *text, struct llm_err *e)
{
    const enum llm_constraint_kind kind = m->kind;
    const json_t *choice;
    size_t i;
    if (m->form == TRUTH) {
        if (!json_is_boolean(v)) return llm_fail(e, EX_DATAERR, "expected true or false");
        return json_is_true(v) ? llm_buf_put(text, any_object, sizeof any_object - 1, e) : 1;
    }
    if (m->form == RESPONSE) {
        int any = response_schema(&v, e);
        if (any) return any;
        if (!v) return llm_buf_put(text, any_object, sizeof any_object - 1, e);
    }
    if (kind == LLM_CONSTRAIN_SCHEMA && !json_is_string(v)) {
        if (!json_is_object(v) && !json_is_boolean(v)) return llm_fail(e, EX_DATAERR, "expected a JSON Schema");
        return llm_json_dump(v, text, e);
    }
    if (kind != LLM_CONSTRAIN_CHOICES) {
        if (!json_is_string(v)) return llm_fail(e, EX_DATAERR, "expected a string");
        return llm_buf_put(text, json_string_value(v), json_string_length(v), e);
    }
    if (!json_is_array(v)) return llm_fail(e, EX_DATAERR, "expected a list of strings");
    json_array_foreach(v, i, choice) {
        const char *p = json_string_value(choice);
        size_t n = json_string_length(choice);
        if (!p || n == 0 || memchr(p, 0, n)) return llm_fail(e, EX_DATAERR, "expected strings that are not empty, without NUL");
        if (llm_buf_put(text, p, n + 1, e) < 0) return -1;
    }
    return 0;
}

bool constraints_know(const char *name)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0) return true;
    return false;
}

int constraints_take(struct session *s, json_t *object, struct llm_constraint **c, struct llm_err *e)
{
    struct llm_buf text = {0};
    const char *name = NULL;
    int status = 0;
    bool none = false;
    *c = NULL;
    for (size_t i = 0; status == 0 && i < N_KINDS; i++) {
        const json_t *v = json_object_get(object, kinds[i].name);
        if (!v) continue;
        none = none || json_is_null(v);
        if (!json_is_null(v) && name) {
            status = llm_fail(e, EX_DATAERR, "expected one of \"%s\" and \"%s\"", name, kinds[i].name);
        } else if (!json_is_null(v)) {
            name = kinds[i].name;
            status = member_text(v, &kinds[i], &text, e);
            if (status == 0 && !(*c = find(s, kinds[i].kind, text.p ? text.p : "", text.n, e))) status = -1;
            if (status < 0) (void)llm_in(e, "\"%s\"", name);
            else status = 0;
        }
    }
    llm_buf_release(&text);
    text = (struct llm_buf){0};
    if (status < 0) {
        constraints_drop(s, *c);
        *c = NULL;
        return -1;
    }
    for (size_t i = 0; i < N_KINDS; i++) json_object_del(object, kinds[i].name);
    if (name || none || !s->constraint) return 0;
    size_t i = 0;
    while (s->constraints->v[i].c != s->constraint) i++;
    if (!llm_constraint_is_half_full(s->constraint)) {
        s->constraints->v[i].users++;
        *c = s->constraint;
        return 0;
    }
    /* The session is a user of the option's constraint as well. */
    const struct kept k = s->constraints->v[i];
    struct llm_constraint *fresh = NULL;
    if (llm_buf_put(&text, k.text.p, k.text.n, e) == 0) fresh = find(s, k.kind, text.p, text.n, e);
    llm_buf_release(&text);
    if (!fresh) return -1;
    constraints_drop(s, s->constraint);
    for (i = 0; s->constraints->v[i].c != fresh;) i++;
    s->constraints->v[i].users++;
    *c = s->constraint = fresh;
    return 0;
}
