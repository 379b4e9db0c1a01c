#include "model/config/files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"

enum { MAX_FILES = 1024, INDEX_BYTES = 64 << 20 };

int llm_model_files_take(struct llm_model_files *f, struct llm_file *file, struct llm_err *e)
{
    struct llm_checkpoint *c = llm_checkpoint_from_file(file, e);
    if (!c) return -1;
    struct llm_checkpoint **v = realloc(f->v, (f->n + 1) * sizeof *v);
    if (!v) {
        llm_checkpoint_close(c);
        return llm_no_memory(e, "a model's files");
    }
    f->v = v;
    f->v[f->n++] = c;
    return 0;
}

int llm_model_files_open(struct llm_model_files *f, const char *path, struct llm_err *e)
{
    struct llm_file *file = llm_file_open(path, e);
    return file ? llm_model_files_take(f, file, e) : -1;
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

/* Opens the file `name` in the folder of `index`. A name with a path is refused: an index must not make us read other folders. */
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
    const char *names[MAX_FILES], *tensor;
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
        else if (f->n == MAX_FILES) status = llm_fail(e, EX_DATAERR, "%s: expected at most %d files, found more", path, MAX_FILES);
        else names[f->n] = name, status = open_named(f, path, name, e);
    }
    json_decref(index);
    if (status < 0) llm_model_files_close(f);
    return status;
}

const struct llm_entry *llm_model_files_find(const struct llm_model_files *f, const char *name, struct llm_checkpoint **file)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct llm_entry *t = llm_header_find(llm_checkpoint_header(f->v[i]), name);
        *file = f->v[i];
        if (t) return t;
    }
    return NULL;
}

static int read_split(const struct llm_checkpoint *c, int64_t *number, int64_t *count, int64_t *tensors, struct llm_err *e)
{
    const struct llm_gguf *g = llm_checkpoint_gguf(c);
    if (!g) return llm_fail(e, EX_DATAERR, "%s: expected a GGUF file", llm_checkpoint_name(c));
    if (llm_gguf_int(g, "split.no", 0, MAX_FILES, number, e) < 0 || llm_gguf_int(g, "split.count", 0, MAX_FILES, count, e) < 0
        || llm_gguf_int(g, "split.tensors.count", 0, INT32_MAX, tensors, e) < 0) return llm_in(e, "%s", llm_checkpoint_name(c));
    return 0;
}

/* Checks that no tensor is in two files. */
static int check_once(const struct llm_model_files *f, struct llm_err *e)
{
    for (size_t i = 1; i < f->n; i++) {
        const struct llm_header *h = llm_checkpoint_header(f->v[i]);
        const struct llm_model_files before = {f->v, i};
        for (size_t k = 0; k < h->n_entries; k++) {
            struct llm_checkpoint *file;
            if (!llm_model_files_find(&before, h->entries[k].name, &file)) continue;
            return llm_fail(e, EX_DATAERR, "%s: tensor '%s': expected once, found in %s too", llm_checkpoint_name(f->v[i]), h->entries[k].name,
                            llm_checkpoint_name(file));
        }
    }
    return 0;
}

static int open_split(struct llm_model_files *f, const char *path, struct llm_err *e)
{
    int64_t number = 0, count = 1, tensors = 0, found = 0;
    char name[4096], tail[40];
    if (read_split(f->v[0], &number, &count, &tensors, e) < 0) return -1;
    if (count <= 1) return 0;
    const char *first = llm_checkpoint_name(f->v[0]);
    if (number != 0) return llm_fail(e, EX_DATAERR, "%s: part %" PRId64 " of %" PRId64 ": expected the first", first, number + 1, count);
    size_t n = (size_t)snprintf(tail, sizeof tail, "-00001-of-%05" PRId64 ".gguf", count), length = strlen(path);
    if (length <= n || length >= sizeof name || strcmp(path + length - n, tail) != 0) {
        return llm_fail(e, EX_DATAERR, "%s: the first of %" PRId64 " parts: expected a name that ends in %s", first, count, tail);
    }
    for (int64_t i = 1; i < count; i++) {
        int64_t no = -1, of = -1, sum = tensors;
        snprintf(name, sizeof name, "%.*s-%05" PRId64 "-of-%05" PRId64 ".gguf", (int)(length - n), path, i + 1, count);
        if (llm_model_files_open(f, name, e) < 0 || read_split(f->v[f->n - 1], &no, &of, &sum, e) < 0) return -1;
        if (sum != tensors) {
            return llm_fail(e, EX_DATAERR, "%s: expected split.tensors.count %" PRId64 ", found %" PRId64, name, tensors, sum);
        }
        if (no != i || of != count) return llm_fail(e, EX_DATAERR, "%s: expected split.no %" PRId64 " of %" PRId64, name, i, count);
    }
    if (check_once(f, e) < 0) return -1;
    for (size_t i = 0; i < f->n; i++) found += (int64_t)llm_checkpoint_header(f->v[i])->n_entries;
    if (!tensors || found == tensors) return 0;
    return llm_fail(e, EX_DATAERR, "%s: expected %" PRId64 " tensors in all parts, found %" PRId64, path, tensors, found);
}

int llm_model_files_open_split(struct llm_model_files *f, const char *path, struct llm_err *e)
{
    if (open_split(f, path, e) == 0) return 0;
    llm_model_files_close(f);
    return -1;
}

int llm_model_no_folder(const char *folder, struct llm_err *e)
{
    return llm_fail(e, EX_NOINPUT, "%s: expected a model's folder (config.json, tokenizer.json and model.safetensors, or " LLM_MODEL_INDEX
                    " and its parts), found no config.json", folder);
}
