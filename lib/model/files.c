#include "model/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"

enum { MOST_FILES = 1024, INDEX_BYTES = 64 << 20 };

int llm_model_files_open(struct llm_model_files *f, const char *path, struct llm_err *e)
{
    struct llm_checkpoint *c = llm_checkpoint_open(path, e);
    if (!c) return -1;
    struct llm_checkpoint **v = realloc(f->v, (f->n + 1) * sizeof *v);
    if (!v) {
        llm_checkpoint_close(c);
        return llm_no_memory(e, path);
    }
    f->v = v;
    f->v[f->n++] = c;
    return 0;
}

void llm_model_files_close(struct llm_model_files *f)
{
    for (size_t i = 0; i < f->n; i++) llm_checkpoint_close(f->v[i]);
    free(f->v);
    *f = (struct llm_model_files){0};
}

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

/* A name in the index's own folder: one that leads elsewhere is not followed. */
static int open_named(struct llm_model_files *f, const char *index, const char *name, struct llm_err *e)
{
    char path[4096];
    const char *slash = strrchr(index, '/');
    int folder = slash ? (int)(slash - index) + 1 : 0;
    if (!name[0] || name[0] == '.' || strchr(name, '/')) {
        return llm_fail(e, EX_DATAERR, "%s: weight_map: expected names of files in this folder, found '%s'", index, name);
    }
    if (snprintf(path, sizeof path, "%.*s%s", folder, index, name) >= (int)sizeof path) return llm_fail(e, EX_DATAERR, "%s: name too long", index);
    return llm_model_files_open(f, path, e);
}

int llm_model_files_open_index(struct llm_model_files *f, const char *path, struct llm_err *e)
{
    const char *names[MOST_FILES], *tensor;
    json_t *index = llm_json_load(path, INDEX_BYTES, e), *map, *file;
    int status = index ? 0 : -1;
    if (!index) return -1;
    map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0) {
        status = llm_fail(e, EX_DATAERR, "%s: expected \"weight_map\", an object of tensors and the files that hold them", path);
    }
    json_object_foreach(map, tensor, file) {
        const char *name = json_string_value(file);
        if (status < 0 || (name && is_one_of(name, names, f->n))) continue;
        if (!name) status = llm_fail(e, EX_DATAERR, "%s: weight_map: tensor '%s': expected the name of a file", path, tensor);
        else if (f->n == MOST_FILES) status = llm_fail(e, EX_DATAERR, "%s: expected at most %d files, found more", path, MOST_FILES);
        else names[f->n] = name, status = open_named(f, path, name, e);
    }
    json_decref(index);
    if (status < 0) llm_model_files_close(f);
    return status;
}
