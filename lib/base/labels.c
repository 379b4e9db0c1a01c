#include "base/labels.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

void llm_labels_release(struct llm_labels *l)
{
    json_decref(l->names);
    json_decref(l->numbers);
    *l = (struct llm_labels){NULL, NULL};
}

int64_t llm_labels_count(const struct llm_labels *l) { return (int64_t)json_array_size(l->names); }
const char *llm_labels_name(const struct llm_labels *l, int64_t i) { return json_string_value(json_array_get(l->names, (size_t)i)); }

int64_t llm_labels_find(const struct llm_labels *l, const char *name)
{
    const json_t *number = json_object_get(l->numbers, name);
    return number ? json_integer_value(number) : -1;
}

int64_t llm_labels_add(struct llm_labels *l, const char *name, struct llm_err *e)
{
    int64_t n = llm_labels_count(l), known = llm_labels_find(l, name);
    if (known >= 0) return known;
    if (n >= LLM_MAX_LABELS) return llm_fail(e, EX_DATAERR, "labels: expected at most %d, found more", LLM_MAX_LABELS);
    if (!l->names) l->names = json_array();
    if (!l->numbers) l->numbers = json_object();
    if (l->names && l->numbers && json_array_append_new(l->names, json_string(name)) == 0
        && json_object_set_new(l->numbers, name, json_integer(n)) == 0) {
        return n;
    }
    return llm_fail(e, EX_DATAERR, "label: expected UTF-8 text, or memory for it");
}

int llm_labels_to_text(const struct llm_labels *l, struct llm_buf *out, struct llm_err *e)
{
    return l->names ? llm_json_dump(l->names, out, e) : llm_buf_put(out, "[]", 2, e);
}

int llm_labels_from_text(struct llm_labels *l, const char *text, struct llm_err *e)
{
    json_t *list = llm_json_parse(text, strlen(text), e), *name;
    size_t i;
    int status = !list ? -1 : json_is_array(list) ? 0 : llm_fail(e, EX_DATAERR, "labels: expected a list");
    json_array_foreach(list, i, name) {
        if (status == 0 && !json_is_string(name)) status = llm_fail(e, EX_DATAERR, "labels: expected texts");
        if (status == 0 && llm_labels_find(l, json_string_value(name)) >= 0) {
            status = llm_fail(e, EX_DATAERR, "labels: expected each once, found '%s' again", json_string_value(name));
        }
        if (status == 0 && llm_labels_add(l, json_string_value(name), e) < 0) status = -1;
    }
    json_decref(list);
    return status;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int llm_labels_sorted(struct llm_labels *l, const struct llm_labels *from, struct llm_err *e)
{
    int64_t n = llm_labels_count(from);
    const char **names = llm_alloc((size_t)n + 1, sizeof *names, "labels", e);
    int status = names ? 0 : -1;
    for (int64_t i = 0; i < n && names; i++) names[i] = llm_labels_name(from, i);
    if (names) qsort(names, (size_t)n, sizeof *names, by_bytes);
    for (int64_t i = 0; i < n && status == 0; i++) status = llm_labels_add(l, names[i], e) < 0 ? -1 : 0;
    free(names);
    return status;
}
