#include "measure/eval/task.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/rng.h"
#include "base/suggest.h"
#include "base/utf8.h"

/* ---- templates ---- */

static void release_templates(struct llm_eval_templates *t)
{
    for (size_t i = 0; i < t->n; i++) llm_chat_template_destroy(t->v[i]);
    free(t->v);
    *t = (struct llm_eval_templates){0};
}

/* A text, or a list of them. */
static int make_templates(struct llm_eval_templates *t, const json_t *task, const char *key, struct llm_err *e)
{
    const json_t *given = json_object_get(task, key);
    size_t n = json_is_array(given) ? json_array_size(given) : given != NULL;
    if (n == 0) return 0;
    t->v = llm_calloc(n, sizeof(struct llm_chat_template *), "templates", e);
    if (!t->v) return -1;
    for (; t->n < n; t->n++) {
        const json_t *text = json_is_array(given) ? json_array_get(given, t->n) : given;
        if (!json_is_string(text)) return llm_fail(e, EX_DATAERR, "\"%s\": expected a text or a list of texts", key);
        struct llm_buf b = {0};
        bool ends_line = llm_ends_with(json_string_value(text), "\n"); /* Jinja drops a newline at the end of a template */
        int status = llm_buf_printf(&b, e, "%s%s", json_string_value(text), ends_line ? "\n" : "");
        t->v[t->n] = status == 0 ? llm_chat_template_create(b.p, b.n, NULL, e) : NULL;
        llm_buf_release(&b);
        if (!t->v[t->n]) return llm_in(e, "\"%s\"", key);
    }
    return 0;
}

static int render(const struct llm_chat_template *t, const json_t *record, struct llm_buf *out, struct llm_err *e)
{
    const struct llm_chat_options o = {.variables = record};
    json_t *none = json_array();
    int status = none ? llm_chat_render(t, none, NULL, &o, out, NULL, e) : llm_no_memory(e, "a text");
    json_decref(none);
    return status < 0 ? -1 : llm_buf_reserve(out, out->n + 1, e); /* an empty text has its NUL too */
}

/* ---- the task ---- */

static int known_members(const json_t *o, struct llm_err *e)
{
    static const char *const known[] = {"name", "description", "context", "choices", "answer", "answer_names", "answer_from", "target", "text",
                                        "delimiter", "separator", "data", "split", "labels", "shots", "shots_from", "shots_pick", "clean", "generate",
                                        "max_tokens", "stop", "extract", "extract_last", "ignore", "ignore_case", NULL};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o, key, value) {
        struct llm_suggest s;
        bool found = false;
        llm_suggest_begin(&s, key);
        for (int i = 0; known[i]; i++) {
            found |= strcmp(known[i], key) == 0;
            llm_suggest_add(&s, known[i], known[i]);
        }
        if (!found) return llm_fail(e, EX_DATAERR, "\"%s\": there is no such member of a task%s", key, llm_suggest_text(&s, ""));
    }
    return 0;
}

/* "data" is a file, or an object of files by the name of their split, of which "split" names the one to evaluate. */
static int take_files(struct llm_eval_task *t, struct llm_err *e)
{
    const json_t *files = json_object_get(t->o, "data");
    const char *split = NULL, *from = NULL;
    if (llm_json_str(t->o, "labels", &t->labels, e) < 0 || llm_json_str(t->o, "split", &split, e) < 0
        || llm_json_str(t->o, "shots_from", &from, e) < 0) return -1;
    if (!json_is_object(files)) {
        t->shots_from = from;
        return llm_json_str(t->o, "data", &t->data, e);
    }
    if (!split) return llm_fail(e, EX_DATAERR, "\"data\" names several splits: expected \"split\", the one to evaluate");
    t->data = json_string_value(json_object_get(files, split));
    t->shots_from = from ? json_string_value(json_object_get(files, from)) : NULL;
    if (!t->data) return llm_fail(e, EX_DATAERR, "\"split\": expected a member of \"data\", found '%s'", split);
    if (from && !t->shots_from) return llm_fail(e, EX_DATAERR, "\"shots_from\": expected a member of \"data\", found '%s'", from);
    return 0;
}

static int take_members(struct llm_eval_task *t, struct llm_err *e)
{
    const char *pick = "seed", *clean = NULL;
    bool generate = false;
    t->delimiter = " ";
    t->separator = "\n\n";
    t->max_tokens = 256;
    if (known_members(t->o, e) < 0 || llm_json_str(t->o, "name", &t->name, e) < 0 || llm_json_str(t->o, "delimiter", &t->delimiter, e) < 0
        || llm_json_str(t->o, "separator", &t->separator, e) < 0 || llm_json_int(t->o, "shots", 0, 1000, &t->shots, e) < 0
        || llm_json_int(t->o, "answer_from", 0, 1, &t->answer_from, e) < 0 || llm_json_str(t->o, "shots_pick", &pick, e) < 0
        || llm_json_int(t->o, "max_tokens", 1, 1 << 20, &t->max_tokens, e) < 0 || llm_json_bool(t->o, "generate", &generate, e) < 0
        || llm_json_str(t->o, "clean", &clean, e) < 0 || take_files(t, e) < 0) return -1;
    t->first_shots = strcmp(pick, "first") == 0;
    if (!t->first_shots && strcmp(pick, "seed") != 0) return llm_fail(e, EX_DATAERR, "\"shots_pick\": expected seed or first, found '%s'", pick);
    if (clean && strcmp(clean, "wikihow") != 0) return llm_fail(e, EX_DATAERR, "\"clean\": expected wikihow, found '%s'", clean);
    const json_t *choices = json_object_get(t->o, "choices"), *target = json_object_get(t->o, "target"), *text = json_object_get(t->o, "text");
    if ((choices != NULL) + (target != NULL) + (text != NULL) != 1) {
        return llm_fail(e, EX_DATAERR, "expected one of \"choices\", \"target\" and \"text\", found %s",
                        choices || target || text ? "several" : "a task without choices, target or text");
    }
    t->kind = choices ? LLM_EVAL_CHOICE : text ? LLM_EVAL_TEXT : generate ? LLM_EVAL_GENERATE : LLM_EVAL_CLOZE;
    if (!text && !json_object_get(t->o, "context")) return llm_fail(e, EX_DATAERR, "expected \"context\"");
    const char *answer = json_string_value(json_object_get(t->o, "answer"));
    if (make_templates(&t->description, t->o, "description", e) < 0 || make_templates(&t->context, t->o, "context", e) < 0
        || (json_is_array(choices) && make_templates(&t->choices, t->o, "choices", e) < 0)
        || (answer && strchr(answer, '{') && make_templates(&t->answer, t->o, "answer", e) < 0)
        || make_templates(&t->text, t->o, text ? "text" : "target", e) < 0) return -1;
    if (choices && !json_is_array(choices) && !json_is_string(choices)) {
        return llm_fail(e, EX_DATAERR, "\"choices\": expected a list of texts, or the name of a record's list");
    }
    if (json_is_array(choices) && json_array_size(choices) == 0) return llm_fail(e, EX_DATAERR, "\"choices\": expected texts, found none");
    return 0;
}

int llm_eval_task_load(struct llm_eval_task *t, const char *what, struct llm_err *e)
{
    const char *text = llm_eval_task_text(what);
    struct llm_suggest s;
    t->o = text ? llm_json_parse(text, strlen(text), e) : llm_json_load(what, 16 << 20, e);
    if (!t->o && e->status == EX_NOINPUT && !strpbrk(what, "./")) {
        llm_suggest_begin(&s, what);
        for (int i = 0; llm_eval_task_word(i); i++) llm_suggest_add(&s, llm_eval_task_word(i), llm_eval_task_word(i));
        return llm_fail(e, LLM_EX_USAGE, "task '%s': expected a file or a built-in task%s", what, llm_suggest_text(&s, ""));
    }
    if (!t->o) return -1;
    const char *slash = strrchr(what, '/');
    t->name = slash ? slash + 1 : what;
    if (!json_is_object(t->o)) return llm_fail(e, EX_DATAERR, "%s: expected a task: an object", what);
    return take_members(t, e) < 0 ? llm_in(e, "task %s", what) : 0;
}

void llm_eval_task_release(struct llm_eval_task *t)
{
    release_templates(&t->description);
    release_templates(&t->context);
    release_templates(&t->choices);
    release_templates(&t->answer);
    release_templates(&t->text);
    json_decref(t->o);
    *t = (struct llm_eval_task){0};
}

/* ---- items ---- */

/* A member by its path, "choices.text". */
static const json_t *member(const json_t *o, const char *path)
{
    for (const char *p = path; o && *p;) {
        size_t n = strcspn(p, ".");
        char key[128];
        if (n >= sizeof key) return NULL;
        memcpy(key, p, n);
        key[n] = 0;
        o = json_object_get(o, key);
        p += n + (p[n] == '.');
    }
    return o;
}

static struct llm_eval_choice *add_choice(struct llm_eval_item *item, struct llm_err *e)
{
    if (llm_grow((void **)&item->v, &item->room, item->n + 1, sizeof *item->v, e) < 0) return NULL;
    item->v[item->n] = (struct llm_eval_choice){0};
    return &item->v[item->n++];
}

static int put_text(struct llm_buf *b, const char *text, size_t n, struct llm_err *e)
{
    return llm_buf_reserve(b, b->n + n + 1, e) < 0 ? -1 : llm_buf_put(b, text, n, e);
}

/* Choices that the record lists: texts; or an object of texts and labels, or of a list of each ({"choices": …, "labels": …}). */
static int list_choices(struct llm_eval_item *item, const json_t *record, const char *path, struct llm_err *e)
{
    const json_t *list = member(record, path), *labels = NULL, *v;
    const char *key;
    size_t i;
    if (!list && llm_ends_with(path, ".text")) { /* the form of the original files: choices is a list of {"text", "label"} */
        char first[128];
        snprintf(first, sizeof first, "%.*s", (int)(strlen(path) - 5), path);
        list = member(record, first);
        if (!list) list = member(member(record, "question"), first);
    }
    if (json_is_object(list) && json_is_array(json_object_get(list, "choices"))) {
        labels = json_object_get(list, "labels");
        list = json_object_get(list, "choices");
    } else if (json_is_object(list)) {
        json_object_foreach((json_t *)(uintptr_t)list, key, v) {
            struct llm_eval_choice *c = add_choice(item, e);
            if (!c || put_text(&c->text, key, strlen(key), e) < 0) return -1;
            c->right = json_integer_value(v) == 1;
        }
        return 0;
    }
    if (!json_is_array(list)) return llm_fail(e, EX_DATAERR, "\"%s\": expected a list of choices, found none", path);
    json_array_foreach((json_t *)(uintptr_t)list, i, v) {
        const json_t *text = json_is_object(v) ? json_object_get(v, "text") : v;
        struct llm_eval_choice *c = add_choice(item, e);
        if (!c) return -1;
        if (!json_is_string(text)) return llm_fail(e, EX_DATAERR, "\"%s\": element %zu: expected a text", path, i);
        if (put_text(&c->text, json_string_value(text), json_string_length(text), e) < 0) return -1;
        c->right = json_integer_value(json_array_get(labels, i)) == 1;
    }
    return 0;
}

static int make_choices(struct llm_eval_item *item, const struct llm_eval_task *t, const json_t *record, struct llm_err *e)
{
    const char *path = json_string_value(json_object_get(t->o, "choices"));
    if (t->kind != LLM_EVAL_CHOICE) {
        struct llm_eval_choice *c = add_choice(item, e);
        if (c) c->right = true;
        return c ? render(t->text.v[0], record, &c->text, e) : -1;
    }
    if (path) return list_choices(item, record, path, e);
    size_t n = t->choices.n > t->context.n ? t->choices.n : t->context.n;
    for (size_t i = 0; i < n; i++) {
        struct llm_eval_choice *c = add_choice(item, e);
        if (!c || render(t->choices.v[i % t->choices.n], record, &c->text, e) < 0) return -1;
    }
    return 0;
}

/* Whether answer_names has the name at i: a list of the task or of the record. */
static bool named(const struct llm_eval_task *t, const json_t *record, size_t i, const char *name)
{
    const json_t *names = json_object_get(t->o, "answer_names");
    const char *path = json_string_value(names), *text;
    if (path) {
        names = member(record, path);
        if (!names) { /* choices as a list of {"text", "label"} */
            const json_t *list = member(record, "choices");
            if (!list) list = member(member(record, "question"), "choices");
            text = json_string_value(json_object_get(json_array_get(list, i), "label"));
            return text && strcmp(text, name) == 0;
        }
    }
    text = json_string_value(json_array_get(names, i));
    return text && strcmp(text, name) == 0;
}

static int mark_right(struct llm_eval_item *item, const struct llm_eval_task *t, const json_t *record, struct llm_err *e)
{
    const char *path = json_string_value(json_object_get(t->o, "answer"));
    if (!path) return 0; /* the choices have labels */
    const json_t *v = t->answer.n > 0 ? NULL : member(record, path);
    char text[64] = "";
    int64_t index = -1;
    if (t->answer.n > 0) {
        struct llm_buf b = {0};
        int status = render(t->answer.v[0], record, &b, e);
        if (status == 0) snprintf(text, sizeof text, "%s", b.p);
        llm_buf_release(&b);
        if (status < 0) return -1;
    } else if (json_is_integer(v)) {
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    } else if (json_is_string(v)) {
        snprintf(text, sizeof text, "%s", json_string_value(v) + strspn(json_string_value(v), " \t"));
    }
    if (!*text) return llm_fail(e, EX_DATAERR, "\"%s\": expected the answer, found %s", path, v ? "an empty one" : "none");
    for (size_t i = 0; i < item->n && index < 0; i++) {
        if (named(t, record, i, text)) index = (int64_t)i;
    }
    if (index < 0 && llm_parse_int(text, &index) == 0) index -= t->answer_from;
    if (index < 0 || index >= (int64_t)item->n) {
        return llm_fail(e, EX_DATAERR, "\"%s\": expected one of %zu choices, found '%s'", path, item->n, text);
    }
    item->v[index].right = true;
    return 0;
}

static void replace(struct llm_buf *b, const char *from, const char *to) /* `to` is no longer than `from` */
{
    size_t n = strlen(from), m = strlen(to), out = 0;
    for (size_t i = 0; i < b->n; out++) {
        if (b->n - i >= n && memcmp(b->p + i, from, n) == 0) {
            memcpy(b->p + out, to, m);
            out += m - 1;
            i += n;
        } else {
            b->p[out] = b->p[i++];
        }
    }
    b->n = out;
    if (b->p) b->p[out] = 0;
}

/* WikiHow's marks in HellaSwag: " [title]" ends a sentence, other text in brackets is dropped, and so are white space at both ends and doubled
 * spaces. */
static void clean_wikihow(struct llm_buf *b)
{
    size_t out = 0, from = llm_utf8_skip_space(b->p, b->n, 0);
    if (b->n > from) b->n = llm_utf8_trim_end(b->p, b->n);
    if (b->n > from) memmove(b->p, b->p + from, b->n - from);
    b->n -= from;
    replace(b, " [title]", ". ");
    for (size_t i = 0; i < b->n; i++) {
        const char *end = b->p[i] == '[' ? memchr(b->p + i, ']', b->n - i) : NULL;
        const char *line = end ? memchr(b->p + i, '\n', (size_t)(end - b->p) - i) : NULL;
        if (end && !line) i = (size_t)(end - b->p);
        else b->p[out++] = b->p[i];
    }
    b->n = out;
    if (b->p) b->p[out] = 0;
    replace(b, "  ", " ");
}

static int check_item(const struct llm_eval_item *item, const struct llm_eval_task *t, struct llm_err *e)
{
    size_t right = 0;
    for (size_t i = 0; i < item->n; i++) {
        right += item->v[i].right;
        if (item->v[i].text.n > 0) continue;
        if (t->kind != LLM_EVAL_CHOICE) {
            return llm_fail(e, EX_DATAERR, "expected %s, found an empty one", t->kind == LLM_EVAL_TEXT ? "a text" : "an answer");
        }
        return llm_fail(e, EX_DATAERR, "choice %zu: expected a text, found an empty one", i + 1);
    }
    if (t->kind == LLM_EVAL_CHOICE && item->n < 2) return llm_fail(e, EX_DATAERR, "expected at least 2 choices, found %zu", item->n);
    if (right == 0) return llm_fail(e, EX_DATAERR, "expected a right choice, found none");
    return 0;
}

int llm_eval_item_make(struct llm_eval_item *item, const struct llm_eval_task *t, const json_t *record, struct llm_err *e)
{
    if (t->description.n > 0 && render(t->description.v[0], record, &item->description, e) < 0) return -1;
    if (make_choices(item, t, record, e) < 0 || (t->kind == LLM_EVAL_CHOICE && mark_right(item, t, record, e) < 0)) return -1;
    for (size_t i = 0; i < item->n; i++) {
        struct llm_eval_choice *c = &item->v[i];
        if (t->context.n > 0 && render(t->context.v[i % t->context.n], record, &c->context, e) < 0) return -1;
        if (llm_buf_reserve(&c->context, c->context.n + 1, e) < 0) return -1;
        if (!json_object_get(t->o, "clean")) continue;
        clean_wikihow(&c->context);
        clean_wikihow(&c->text);
    }
    return check_item(item, t, e);
}

void llm_eval_item_release(struct llm_eval_item *item)
{
    for (size_t i = 0; i < item->n; i++) {
        llm_buf_release(&item->v[i].context);
        llm_buf_release(&item->v[i].text);
    }
    llm_buf_release(&item->description);
    free(item->v);
    *item = (struct llm_eval_item){0};
}

void llm_eval_pick_shots(const struct llm_eval_task *t, uint64_t seed, int64_t number, bool same, int64_t available, int64_t *picked, int64_t n)
{
    struct llm_rng rng = llm_rng_of_item(seed, 0, (uint64_t)number, LLM_RNG_ORDER, 0, 0);
    for (int64_t i = 0, draw = 0; i < n;) {
        int64_t one = t->first_shots ? draw : (int64_t)llm_rng_below(&rng, (uint32_t)draw, (uint64_t)available);
        bool taken = same && one == number;
        draw++;
        for (int64_t k = 0; k < i; k++) taken |= picked[k] == one;
        if (!taken) picked[i++] = one;
    }
}
