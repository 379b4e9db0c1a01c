#include "model/shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_SHARDS = 9999, MAX_PATH = 4096 };

void llm_shards_close(struct llm_shards *s)
{
    for (size_t i = 0; i < s->n; i++) llm_checkpoint_close(s->v[i]);
    free(s->v);
    *s = (struct llm_shards){0};
}

const struct llm_entry *llm_shards_find(const struct llm_shards *s, const char *name, struct llm_checkpoint **file)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct llm_entry *t = llm_header_find(llm_checkpoint_header(s->v[i]), name);
        *file = s->v[i];
        if (t) return t;
    }
    return NULL;
}

/* Opens one more, and checks that its tensors are new. */
static int add(struct llm_shards *s, const char *path, struct llm_err *e)
{
    struct llm_checkpoint **grown = realloc(s->v, (s->n + 1) * sizeof *grown), *other;
    if (!grown) return llm_no_memory(e, "files of a model");
    s->v = grown;
    struct llm_checkpoint *f = llm_checkpoint_open(path, e);
    if (!f) return -1;
    const struct llm_header *h = llm_checkpoint_header(f);
    for (size_t i = 0; i < h->n_entries; i++) {
        if (!llm_shards_find(s, h->entries[i].name, &other)) continue;
        llm_fail(e, EX_DATAERR, "%s: tensor '%s': stands in %s too", path, h->entries[i].name, llm_checkpoint_name(other));
        llm_checkpoint_close(f);
        return -1;
    }
    s->v[s->n++] = f;
    return 0;
}

/* The others of a GGUF file that is split. */
static int add_gguf_rest(struct llm_shards *s, const char *path, struct llm_err *e)
{
    const struct llm_gguf *g = llm_checkpoint_gguf(s->v[0]);
    int64_t count = 1, number = 0, tensors = 0, found = 0;
    char name[MAX_PATH], tail[40];
    if (llm_gguf_int(g, "split.count", 0, MAX_SHARDS, &count, e) < 0 || llm_gguf_int(g, "split.no", 0, MAX_SHARDS, &number, e) < 0
        || llm_gguf_int(g, "split.tensors.count", 0, INT32_MAX, &tensors, e) < 0) return llm_in(e, "%s", path);
    if (count <= 1) return 0;
    if (number != 0) return llm_fail(e, EX_DATAERR, "%s: file %" PRId64 " of %" PRId64 ": expected the first", path, number + 1, count);
    int n = snprintf(tail, sizeof tail, "-00001-of-%05" PRId64 ".gguf", count);
    size_t stem = strlen(path) - (size_t)n;
    if (strlen(path) <= (size_t)n || strlen(path) >= sizeof name || strcmp(path + stem, tail) != 0) {
        return llm_fail(e, EX_DATAERR, "%s: the first of %" PRId64 " files: expected a name that ends in %s", path, count, tail);
    }
    for (int64_t i = 2; i <= count; i++) {
        int64_t no = -1, of = -1;
        snprintf(name, sizeof name, "%.*s-%05" PRId64 "-of-%05" PRId64 ".gguf", (int)stem, path, i, count);
        if (add(s, name, e) < 0) return -1;
        g = llm_checkpoint_gguf(s->v[s->n - 1]);
        if (!g) return llm_fail(e, EX_DATAERR, "%s: expected a GGUF file", name);
        if (llm_gguf_int(g, "split.no", 0, MAX_SHARDS, &no, e) < 0 || llm_gguf_int(g, "split.count", 0, MAX_SHARDS, &of, e) < 0) return llm_in(e, "%s", name);
        if (no != i - 1 || of != count) return llm_fail(e, EX_DATAERR, "%s: expected split.no %" PRId64 " of %" PRId64, name, i - 1, count);
    }
    for (size_t i = 0; i < s->n; i++) found += (int64_t)llm_checkpoint_header(s->v[i])->n_entries;
    if (tensors && found != tensors) {
        return llm_fail(e, EX_DATAERR, "%s: expected %" PRId64 " tensors in all files, found %" PRId64, path, tensors, found);
    }
    return 0;
}

int llm_shards_open(struct llm_shards *s, const char *path, struct llm_err *e)
{
    *s = (struct llm_shards){0};
    if (add(s, path, e) == 0 && (!llm_checkpoint_gguf(s->v[0]) || add_gguf_rest(s, path, e) == 0)) return 0;
    llm_shards_close(s);
    return -1;
}

static bool is_open(const struct llm_shards *s, const char *path)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(llm_checkpoint_name(s->v[i]), path) == 0) return true;
    }
    return false;
}

/* The files that weight_map names, each once, and every tensor in the file it is said to be in. */
static int open_map(struct llm_shards *s, const char *folder, json_t *map, struct llm_err *e)
{
    const char *tensor;
    json_t *v;
    char path[MAX_PATH];
    if (!json_is_object(map)) return llm_fail(e, EX_DATAERR, "weight_map: expected an object");
    json_object_foreach(map, tensor, v) {
        const char *file = json_string_value(v);
        struct llm_checkpoint *in;
        if (!file || !file[0] || strchr(file, '/') || strlen(file) != json_string_length(v)) {
            return llm_fail(e, EX_DATAERR, "weight_map: '%s': expected the name of a file in this folder", tensor);
        }
        if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path) return llm_fail(e, EX_NOINPUT, "%s: name too long", folder);
        if (!is_open(s, path)) {
            if (s->n == MAX_SHARDS) return llm_fail(e, EX_DATAERR, "weight_map: expected at most %d files", MAX_SHARDS);
            if (add(s, path, e) < 0) return -1;
        }
        if (!llm_shards_find(s, tensor, &in) || strcmp(llm_checkpoint_name(in), path) != 0) {
            return llm_fail(e, EX_DATAERR, "weight_map: tensor '%s' is not in %s", tensor, file);
        }
    }
    return s->n ? 0 : llm_fail(e, EX_DATAERR, "weight_map: expected tensors, found none");
}

int llm_shards_open_folder(struct llm_shards *s, const char *folder, struct llm_err *e)
{
    char path[MAX_PATH];
    struct stat st;
    *s = (struct llm_shards){0};
    if (snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder) >= (int)sizeof path) {
        return llm_fail(e, EX_NOINPUT, "%s: name too long", folder);
    }
    if (stat(path, &st) == 0) {
        json_t *index = llm_json_load(path, 64 << 20, e);
        if (!index) return -1;
        int r = open_map(s, folder, json_object_get(index, "weight_map"), e);
        json_decref(index);
        if (r == 0) return 0;
        if (e->status == EX_DATAERR && strncmp(e->text, "weight_map", 10) == 0) llm_in(e, "%s", path);
        llm_shards_close(s);
        return -1;
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (add(s, path, e) == 0) return 0;
    llm_shards_close(s);
    return -1;
}
