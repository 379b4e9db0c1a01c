#include "bin/infer/prefix_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/hash.h"
#include "base/log.h"
#include "cpu/detect.h"

enum { LEAST = 64, /* tokens of a beginning that is worth a file */
       NAME = 96 };

/* The file "MODEL-TOKENS-HASH.kv": MODEL is a hash of all that the bits depend on, HASH one of the tokens. */
struct stored {
    int64_t n;
    uint64_t hash;
    bool loaded;             /* in the index, or unusable */
};

struct prefix_cache {
    struct session *s;
    struct llm_prefix *index;
    char model[17];
    struct stored *files;    /* [n_files] of this model */
    size_t n_files, room;
    struct llm_err *e;       /* of the visit that runs */
};

static void name_of(const struct prefix_cache *c, int64_t n, uint64_t hash, char name[NAME])
{
    snprintf(name, NAME, "%s-%" PRId64 "-%016" PRIx64 ".kv", c->model, n, hash);
}

static uint64_t hash_of(const int32_t *ids, int64_t n)
{
    return llm_xxh64(ids, (size_t)n * sizeof *ids, 0);
}

/* Whether a name is of this form; `model` gets its first part. */
static bool parse_name(const char *name, char model[17], int64_t *n, uint64_t *hash)
{
    int end = 0;
    return sscanf(name, "%16[0-9a-f]-%" SCNd64 "-%16" SCNx64 ".kv%n", model, n, hash, &end) == 3 && end > 0 && !name[end] && *n >= LEAST
           && strlen(model) == 16;
}

static int path_of(const struct prefix_cache *c, const char *name, struct llm_buf *path, struct llm_err *e)
{
    path->n = 0;
    return llm_buf_printf(path, e, "%s/%s", c->s->a->prefix_cache, name);
}

static int read_names(struct prefix_cache *c, struct llm_err *e)
{
    const char *folder = c->s->a->prefix_cache;
    DIR *d = mkdir(folder, 0777) < 0 && errno != EEXIST ? NULL : opendir(folder);
    int status = d ? 0 : llm_fail_errno(e, EX_CANTCREAT, "%s", folder);
    for (const struct dirent *f; d && status == 0 && (f = readdir(d));) {
        struct stored one = {0};
        char model[17];
        if (!parse_name(f->d_name, model, &one.n, &one.hash) || strcmp(model, c->model) != 0) continue;
        status = llm_grow((void **)&c->files, &c->room, c->n_files + 1, sizeof *c->files, e);
        if (status == 0) c->files[c->n_files++] = one;
    }
    if (d) closedir(d);
    return status;
}

struct prefix_cache *prefix_cache_open(struct session *s, struct llm_prefix *index, struct llm_err *e)
{
    struct prefix_cache *c = llm_calloc(1, sizeof *c, "cached beginnings", e);
    if (!c || llm_model_fingerprint(s->model, e) < 0) {
        free(c);
        return NULL;
    }
    c->s = s;
    c->index = index;
    char all[200];
    snprintf(all, sizeof all, "%s %s %s %016" PRIx64 " %" PRId64, s->model->fingerprint, llm_isa_name(), llm_compute_word((int)s->engine.ctx.compute),
             llm_xxh64(s->engine.pool.types, strlen(s->engine.pool.types), 0), s->model->rope_context);
    snprintf(c->model, sizeof c->model, "%016" PRIx64, llm_xxh64(all, strlen(all), 0));
    if (read_names(c, e) == 0) return c;
    prefix_cache_close(c);
    return NULL;
}

void prefix_cache_close(struct prefix_cache *c)
{
    if (!c) return;
    free(c->files);
    free(c);
}

/* Puts a file's cache into the index, and marks the file as used now. A file that cannot be used only costs time. 0 or -1. */
static int load(struct prefix_cache *c, const struct stored *one, const int32_t *ids, struct llm_err *e)
{
    struct llm_kv_file f = {0};
    struct llm_kv kv;
    struct llm_buf path = {0};
    struct llm_err why = {0};
    char name[NAME];
    llm_kv_init(&kv, &c->s->engine.pool);
    name_of(c, one->n, one->hash, name);
    int status = path_of(c, name, &path, e), usable = status;
    if (status == 0) usable = llm_kv_file_read(&f, path.p, &why);
    if (usable == 0 && (f.n != one->n || memcmp(f.ids, ids, (size_t)f.n * sizeof *ids) != 0)) usable = llm_fail(&why, EX_DATAERR, "other tokens");
    if (usable == 0) usable = llm_kv_file_restore(&f, f.n, c->s->model, &kv, &why);
    if (usable == 0) status = llm_prefix_put(c->index, &kv, e);
    else if (status == 0) llm_warn("%s: not used: %s", path.p, why.text);
    if (usable == 0) utimensat(AT_FDCWD, path.p, NULL, 0);
    llm_kv_release(&kv);
    llm_kv_file_release(&f);
    llm_buf_release(&path);
    return status;
}

int prefix_cache_find(struct prefix_cache *c, const int32_t *ids, int64_t n, struct llm_err *e)
{
    struct stored *best = NULL;
    for (size_t i = 0; i < c->n_files; i++) {
        struct stored *one = &c->files[i];
        if (one->loaded || one->n > n || (best && one->n <= best->n) || hash_of(ids, one->n) != one->hash) continue;
        best = one;
    }
    if (!best || llm_prefix_match(c->index, ids, n) >= best->n) return 0;
    best->loaded = true;
    return load(c, best, ids, e);
}

static int write_one(void *arg, const struct llm_kv *kv)
{
    struct prefix_cache *c = arg;
    struct llm_buf path = {0};
    char name[NAME];
    name_of(c, kv->n, hash_of(kv->ids, kv->n), name);
    int status = path_of(c, name, &path, c->e);
    if (status == 0 && access(path.p, F_OK) < 0) {
        struct llm_output *o = llm_output_open(path.p, true, c->e);
        if (!o || llm_kv_file_write(kv, c->s->model, o, c->e) < 0) {
            llm_output_abandon(o);
            status = -1;
        } else {
            status = llm_output_commit(o, c->e);
        }
    }
    llm_buf_release(&path);
    return status;
}

struct aged {
    char name[NAME];
    int64_t bytes;
    struct timespec used;
};

static int by_age(const void *a, const void *b)
{
    const struct aged *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

/* Files of all models count. Only files with names of this form are looked at. */
static int shrink(const struct prefix_cache *c, struct llm_err *e)
{
    struct aged *v = NULL;
    size_t n = 0, room = 0;
    int64_t all = 0;
    DIR *d = opendir(c->s->a->prefix_cache);
    int status = d ? 0 : llm_fail_errno(e, EX_IOERR, "%s", c->s->a->prefix_cache);
    for (const struct dirent *f; d && status == 0 && (f = readdir(d));) {
        char model[17];
        int64_t tokens;
        uint64_t hash;
        struct stat st;
        if (!parse_name(f->d_name, model, &tokens, &hash) || fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) continue;
        status = llm_grow((void **)&v, &room, n + 1, sizeof *v, e);
        if (status < 0) break;
        snprintf(v[n].name, sizeof v[n].name, "%.*s", NAME - 1, f->d_name);
        v[n].bytes = st.st_size;
        v[n++].used = st.st_mtim;
        all += st.st_size;
    }
    if (n > 0) qsort(v, n, sizeof *v, by_age);
    for (size_t i = 0; i < n && status == 0 && all > c->s->a->prefix_cache_size; i++) {
        if (unlinkat(dirfd(d), v[i].name, 0) == 0) all -= v[i].bytes;
    }
    if (d) closedir(d);
    free(v);
    return status;
}

int prefix_cache_save(struct prefix_cache *c, struct llm_err *e)
{
    c->e = e;
    return llm_prefix_shared(c->index, LEAST, write_one, c) < 0 ? -1 : shrink(c, e);
}
