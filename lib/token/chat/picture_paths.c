#include "token/chat/picture_paths.h"

#include <string.h>
#include "base/buf.h"

static int add_path(struct llm_picture_paths *p, const json_t *v, const char *what, struct llm_err *e)
{
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v)) return llm_fail(e, EX_DATAERR, "%s: expected a path", what);
    if (strcmp(json_string_value(v), "-") == 0) return llm_fail(e, EX_DATAERR, "%s: expected the path of a file, found '-'", what);
    if (llm_grow((void **)&p->v, &p->room, p->n + 1, sizeof *p->v, e) < 0) return -1;
    p->v[p->n++] = json_string_value(v);
    return 0;
}

static const json_t *paths_of(const json_t *o)
{
    const json_t *v = json_object_get(o, "image");
    return v ? v : json_object_get(o, "images");
}

size_t llm_picture_paths_count(const json_t *o)
{
    const json_t *v = paths_of(o);
    return json_is_string(v) ? 1 : json_array_size(v);
}

int llm_picture_paths_line(const json_t *o, struct llm_picture_paths *p, struct llm_err *e)
{
    const json_t *v = paths_of(o);
    if (!v || json_is_null(v)) return 0;
    if (json_is_string(v)) return add_path(p, v, "\"image\"", e);
    if (!json_is_array(v)) return llm_fail(e, EX_DATAERR, "\"images\": expected a path, or a list of paths");
    for (size_t i = 0; i < json_array_size(v); i++)
        if (add_path(p, json_array_get(v, i), "\"images\"", e) < 0) return -1;
    return 0;
}

static const json_t *path_of(const json_t *part)
{
    static const char *const keys[] = {"path", "image", "url", NULL};
    for (size_t i = 0; keys[i]; i++)
        if (json_object_get(part, keys[i])) return json_object_get(part, keys[i]);
    return NULL;
}

int llm_picture_paths_messages(const json_t *messages, const struct llm_picture_paths *line, struct llm_picture_paths *p, struct llm_err *e)
{
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        for (size_t k = 0; k < json_array_size(content); k++) {
            const json_t *part = json_array_get(content, k), *path = path_of(part);
            const char *type = json_string_value(json_object_get(part, "type"));
            if (!type || strcmp(type, "image") != 0) continue;
            if (path) {
                if (add_path(p, path, "a part of type \"image\"", e) < 0) return -1;
            } else if (used < line->n) {
                if (llm_grow((void **)&p->v, &p->room, p->n + 1, sizeof *p->v, e) < 0) return -1;
                p->v[p->n++] = line->v[used++];
            } else {
                return llm_fail(e, EX_DATAERR, "\"messages\": element %zu: \"content\": element %zu: expected the path of a picture, "
                                "found none", i, k);
            }
        }
    }
    if (used == line->n) return 0;
    return llm_fail(e, EX_DATAERR, "expected as many parts of type \"image\" without a path as there are other pictures, %zu, found %zu", line->n,
                    used);
}
