#include "train/snapshot.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/paths.h"
#include "model/weights/names.h"
#include "train/together.h"

enum { PIECE = 4 << 20 /* bytes of a part that travel at once */, NAME = 128 };
static const char prefix[] = "llm-snapshot-";

/* ---- files of parts: frames, extents, their number, a word that ends the file ---- */

static const char mark[8] = "llmpart1";
enum { TRAILER = sizeof(uint64_t) + sizeof mark };

/* What the name of a file says. */
struct part { uint64_t launch; int64_t step; int32_t part, parts; };

static void name_of(uint64_t run, const struct part *p, char name[NAME])
{
    snprintf(name, NAME, "%s%016llx-%016llx-%lld-%d-%d", prefix, (unsigned long long)run, (unsigned long long)p->launch, (long long)p->step,
             (int)p->part, (int)p->parts);
}

/* False: it is no whole part of the run. */
static bool read_name(const char *file, uint64_t run, struct part *p)
{
    char name[NAME];
    unsigned long long of, launch;
    long long step;
    int part, parts;
    if (sscanf(file, "llm-snapshot-%16llx-%16llx-%18lld-%9d-%9d", &of, &launch, &step, &part, &parts) != 5) return false;
    *p = (struct part){launch, step, part, parts};
    name_of(run, p, name);
    return strcmp(file, name) == 0 && step >= 0 && part >= 0 && part < parts && parts <= LLM_COMM_MAX_RANKS;
}

/* A part that was read: its extents follow its frames. */
struct part_file { struct llm_map map; struct llm_extent *extents; uint64_t n; };

static void close_part(struct part_file *f)
{
    free(f->extents);
    llm_map_close(&f->map);
}

/* False: it is not a part of this user's, or not whole. */
static bool open_part(struct part_file *f, const char *folder, const char *name)
{
    struct llm_err ignored;
    struct stat st;
    char path[PATH_MAX];
    uint64_t bytes = 0;
    *f = (struct part_file){.n = 0};
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    bool whole = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_size >= TRAILER
        && llm_map_fd(&f->map, fd, (uint64_t)st.st_size, path, &ignored) == 0;
    close(fd);
    if (whole) memcpy(&f->n, f->map.p + f->map.n - TRAILER, sizeof f->n);
    whole = whole && memcmp(f->map.p + f->map.n - sizeof mark, mark, sizeof mark) == 0
        && f->n <= (f->map.n - TRAILER) / sizeof *f->extents && (f->extents = llm_alloc(f->n + 1, sizeof *f->extents, path, &ignored));
    const uint64_t frames = whole ? f->map.n - TRAILER - f->n * sizeof *f->extents : 0;
    if (whole) memcpy(f->extents, f->map.p + frames, f->n * sizeof *f->extents);
    for (uint64_t i = 0; whole && i < f->n; i++) {
        whole = f->extents[i].bytes <= frames - bytes && f->extents[i].at <= INT64_MAX - f->extents[i].bytes;
        bytes += f->extents[i].bytes;
    }
    if (whole && bytes == frames) return true;
    close_part(f);
    return false;
}

/* The hash of the path to the run's checkpoint, as rank 0 sees it. */
static int hash_path(struct llm_comm *c, const char *path, uint64_t *run, struct llm_err *e)
{
    char full[2 * PATH_MAX] = "", *name = full;
    int got = 0;
    if (path[0] != '/' && getcwd(full, PATH_MAX)) {
        name += strlen(full);
        *name++ = '/';
    }
    if (llm_path_resolve(path, name) < 0) got = llm_fail_errno(e, EX_CANTCREAT, "%s", path);
    const char *from = name[0] == '/' ? name : full;
    *run = llm_xxh64(from, strlen(from), 0);
    got = llm_comm_agree(c, got, NULL, e);
    return got < 0 ? -1 : llm_comm_broadcast(c, 0, run, sizeof *run, e);
}

/* Removes all files of the run, those that a killed process has not finished too. */
static void clear(const char *folder, uint64_t run)
{
    char begin[NAME];
    const size_t n = (size_t)snprintf(begin, sizeof begin, "%s%016llx-", prefix, (unsigned long long)run);
    DIR *d = opendir(folder);
    for (const struct dirent *f; d && (f = readdir(d));) {
        if (strncmp(f->d_name, begin, n) == 0) unlinkat(dirfd(d), f->d_name, 0);
    }
    if (d) closedir(d);
}

/* ---- before a run goes on ---- */

/* A part that some rank has. */
struct found { struct part p; int32_t rank; };

static int by_step(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->p.step != y->p.step) return x->p.step > y->p.step ? -1 : 1;
    if (x->p.launch != y->p.launch) return x->p.launch < y->p.launch ? -1 : 1;
    if (x->p.parts != y->p.parts) return x->p.parts < y->p.parts ? -1 : 1;
    if (x->p.part != y->p.part) return x->p.part < y->p.part ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The parts in this rank's folder. */
static int look(const char *folder, uint64_t run, int rank, struct found **v, size_t *n, struct llm_err *e)
{
    size_t room = 0;
    DIR *d = opendir(folder);
    int got = d ? 0 : llm_fail_errno(e, EX_NOINPUT, "--snapshot: %s", folder);
    for (const struct dirent *f; got == 0 && (f = readdir(d));) {
        struct found k = {.rank = rank};
        struct part_file file;
        if (!read_name(f->d_name, run, &k.p) || !open_part(&file, folder, f->d_name)) continue;
        close_part(&file);
        got = llm_grow((void **)v, &room, *n + 1, sizeof **v, e);
        if (got == 0) (*v)[(*n)++] = k;
    }
    if (d) closedir(d);
    return got;
}

/* All ranks get the parts of all, the newest first. *v is replaced. */
static int gather(struct llm_comm *c, struct found **v, size_t *n, struct llm_err *e)
{
    const int ranks = llm_comm_size(c), rank = llm_comm_rank(c);
    size_t *bytes = llm_calloc((size_t)ranks, sizeof *bytes, "snapshots", e), total = 0;
    void **parts = llm_calloc((size_t)ranks, sizeof *parts, "snapshots", e);
    int got = llm_comm_agree(c, bytes && parts ? 0 : -1, NULL, e);
    if (got == 0) bytes[rank] = *n * sizeof **v;
    if (got == 0) got = llm_comm_gather_even(c, bytes, sizeof *bytes, e);
    for (int q = 0; q < ranks && got == 0; q++) total += bytes[q] / sizeof **v;
    struct found *all = got == 0 ? llm_calloc(total + 1, sizeof *all, "snapshots", e) : NULL;
    got = got < 0 ? -1 : llm_comm_agree(c, all ? 0 : -1, NULL, e);
    for (size_t q = 0, at = 0; q < (size_t)ranks && got == 0; at += bytes[q++] / sizeof **v) parts[q] = all + at;
    if (got == 0 && *n > 0) memcpy(parts[rank], *v, bytes[rank]);
    if (got == 0) got = llm_comm_gather(c, parts, bytes, e);
    if (got == 0) qsort(all, total, sizeof *all, by_step);
    free(*v);
    *v = all;
    *n = total;
    free(bytes);
    free(parts);
    return got;
}

/* The first of the newest parts that make a whole snapshot: providers of its parts are those from there on. NULL: there is none. */
static const struct found *newest(const struct found *v, size_t n, int64_t later_than)
{
    for (size_t i = 0, k; i < n && v[i].p.step > later_than; i = k) {
        int32_t have = 0;
        for (k = i; k < n && v[k].p.step == v[i].p.step && v[k].p.launch == v[i].p.launch && v[k].p.parts == v[i].p.parts; k++) {
            have += v[k].p.part == have;
        }
        if (have == v[i].p.parts) return &v[i];
    }
    return NULL;
}

/* What a checkpoint says of its run. The strings are of `training`, and of the header of a file that is open. */
struct about { json_t *training; const char *config, *data; int64_t step, seed; };

static bool read_about(const struct llm_checkpoint *file, struct about *a)
{
    struct llm_err ignored;
    const char *text = file ? llm_header_meta(llm_checkpoint_header(file), LLM_META_TRAINING) : NULL;
    *a = (struct about){.training = text ? llm_json_parse(text, strlen(text), &ignored) : NULL, .step = -1};
    if (!a->training) return false;
    a->config = llm_header_meta(llm_checkpoint_header(file), LLM_META_CONFIG);
    return llm_json_int(a->training, "step", 0, INT64_MAX / 2, &a->step, &ignored) == 0 && a->step >= 0
        && llm_json_int(json_object_get(a->training, "options"), "seed", INT64_MIN, INT64_MAX, &a->seed, &ignored) == 0
        && llm_json_str(json_object_get(a->training, "data"), "fingerprint", &a->data, &ignored) == 0;
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* The step of the checkpoint; -1 if there is no file: then any snapshot of the run is better. INT64_MAX: the file is no run's, and stays. */
static int64_t step_of(const char *path)
{
    struct llm_err ignored;
    struct about a;
    if (access(path, F_OK) < 0) return -1;
    struct llm_checkpoint *file = llm_checkpoint_open(path, &ignored);
    const int64_t step = read_about(file, &a) ? a.step : INT64_MAX;
    json_decref(a.training);
    llm_checkpoint_close(file);
    return step;
}

/* Whether the file `made` is a whole checkpoint of the step, and of the run of the file `path`, if there is one. */
static bool goes_on(const char *made, const char *path, int64_t step)
{
    struct llm_err ignored;
    struct about a, b;
    struct llm_checkpoint *new = llm_checkpoint_open(made, &ignored), *old = access(path, F_OK) == 0 ? llm_checkpoint_open(path, &ignored) : NULL;
    bool good = read_about(new, &a) && a.step == step;
    if (read_about(old, &b)) good = good && a.seed == b.seed && same(a.config, b.config) && same(a.data, b.data);
    json_decref(a.training);
    json_decref(b.training);
    llm_checkpoint_close(new);
    llm_checkpoint_close(old);
    return good;
}

/* Writes one part, which rank `from` has in `f`, to where it belongs. Ranks other than that, and the one that writes, have nothing to do. */
static int put_part(struct llm_together *w, struct llm_output *o, int from, struct part_file *f, struct llm_err *e)
{
    const int rank = w->team.rank, writer = w->writers[from];
    const bool passes = from != writer;
    if (rank != from && rank != writer) return 0;
    uint64_t n = f->n;
    if (passes && w->team.pass(w->team.arg, from, &n, sizeof n, e) < 0) return -1;
    unsigned char *p = llm_alloc(PIECE, 1, "snapshots", e);
    int got = p ? 0 : llm_comm_give_up(w->share->comm);
    const unsigned char *at = f->map.p;
    struct llm_err later;
    for (uint64_t i = 0; i < n && p; i++) {
        struct llm_extent s = rank == from ? f->extents[i] : (struct llm_extent){0, 0};
        if (passes && w->team.pass(w->team.arg, from, &s, sizeof s, e) < 0) got = -1;
        for (uint64_t done = 0, step; done < s.bytes && !(got < 0 && llm_comm_broken(w->share->comm)); done += step) {
            struct llm_err *err = got < 0 ? &later : e; /* what another rank sends is received, even if it cannot be written */
            step = s.bytes - done < PIECE ? s.bytes - done : PIECE;
            if (rank == from) memcpy(p, at, step);
            if (passes && w->team.pass(w->team.arg, from, p, step, err) < 0) got = -1;
            if (got == 0 && rank == writer && (llm_output_seek(o, s.at + done, err) < 0 || llm_output_write(o, p, step, err) < 0)) got = -1;
            at += step;
        }
    }
    free(p);
    return got;
}

/* Makes the checkpoint of a snapshot whose parts are k[0] and on. 0: it is in place; 1: it is not that of the run; -1. */
static int complete(struct llm_comm *c, const char *folder, uint64_t run, const char *path, const struct found *k, struct llm_err *e)
{
    struct llm_share ranks = {.comm = c, .rank = llm_comm_rank(c), .n = llm_comm_size(c)};
    struct llm_together w = {.share = &ranks};
    struct llm_output *o;
    int got = llm_together_open(&w, path, &o, e), other = 0;
    if (got < 0) return -1;
    for (int32_t part = 0; part < k->p.parts; part++) {
        struct part_file f = {.n = 0};
        struct llm_err later;
        const struct found *has = k;
        char name[NAME];
        while (has->p.part != part) has++;
        name_of(run, &has->p, name);
        bool readable = has->rank != ranks.rank || open_part(&f, folder, name);
        if (!readable) got = llm_fail(e, LLM_EX_FAILURE, "--snapshot: %s/%s: expected the part that was there a moment ago", folder, name);
        if (put_part(&w, o, has->rank, &f, got < 0 ? &later : e) < 0) got = -1;
        close_part(&f);
    }
    if (got == 0 && ranks.rank > 0 && o) got = llm_output_finish(o, e);
    if (got == 0 && ranks.rank == 0) got = llm_output_flush(o, e);
    got = llm_comm_agree(c, got, NULL, e);
    if (got == 0 && ranks.rank == 0) other = !goes_on(llm_output_temporary(o), path, k->p.step);
    if (got == 0) got = llm_comm_broadcast(c, 0, &other, sizeof other, e);
    if (got == 0 && other) llm_output_abandon(o);
    else got = llm_together_commit(&w, o, got, e);
    llm_together_release(&w);
    return got < 0 ? -1 : llm_comm_agree(c, other, NULL, e);
}

int llm_snapshots_recover(struct llm_comm *c, const char *folder, const char *path, struct llm_err *e)
{
    struct found *v = NULL;
    size_t n = 0;
    uint64_t run;
    llm_comm_set_place(c, "snapshots");
    int64_t step = llm_comm_rank(c) == 0 ? step_of(path) : 0;
    if (hash_path(c, path, &run, e) < 0 || llm_comm_broadcast(c, 0, &step, sizeof step, e) < 0) return -1;
    int got = llm_comm_agree(c, look(folder, run, llm_comm_rank(c), &v, &n, e), NULL, e);
    if (got == 0) got = gather(c, &v, &n, e);
    const struct found *k = got == 0 ? newest(v, n, step) : NULL;
    if (k) got = complete(c, folder, run, path, k, e);
    if (k && got == 0 && llm_comm_rank(c) == 0) llm_note("%s: completed with the snapshot of step %lld", path, (long long)k->p.step);
    if (k && got > 0 && llm_comm_rank(c) == 0) llm_note("%s: the snapshot of step %lld is another run's, and is removed", path, (long long)k->p.step);
    if (got >= 0) clear(folder, run);
    free(v);
    return got < 0 ? -1 : llm_comm_agree(c, 0, NULL, e);
}

/* ---- of a run ---- */

static void path_of(const struct llm_snapshots *s, int64_t step, int part, char path[PATH_MAX])
{
    char name[NAME];
    name_of(s->run, &(struct part){s->launch, step, part, llm_comm_size(s->comm)}, name);
    snprintf(path, PATH_MAX, "%s/%s", s->folder, name);
}

/* Decides which rank keeps a copy of each part. Candidates are the ranks that do not see this rank's folder, in ascending order from this rank's own
 * number plus the number of ranks that share its folder; the first candidate is chosen. So the ranks of one machine have their copies at different
 * ranks of the next machine. */
static int find_neighbours(struct llm_snapshots *s, struct llm_err *e)
{
    const int n = llm_comm_size(s->comm), rank = llm_comm_rank(s->comm);
    char (*names)[NAME] = llm_calloc((size_t)n, sizeof *names, "snapshots", e), path[PATH_MAX];
    s->copied_to = llm_calloc((size_t)n, sizeof *s->copied_to, "snapshots", e);
    int fd = -1, got = names && s->copied_to ? 0 : -1;
    if (got == 0 && snprintf(path, sizeof path, "%s/%s%016llx-XXXXXX", s->folder, prefix, (unsigned long long)s->run) >= (int)sizeof path - NAME) {
        got = llm_fail(e, LLM_EX_USAGE, "--snapshot: expected a shorter name, found %s", s->folder);
    }
    if (got == 0 && (fd = mkostemp(path, O_CLOEXEC)) < 0) got = llm_fail_errno(e, EX_CANTCREAT, "--snapshot: %s: cannot create", s->folder);
    if (fd >= 0) snprintf(names[rank], NAME, "%s", strrchr(path, '/') + 1);
    got = llm_comm_agree(s->comm, got, NULL, e);
    if (got == 0) got = llm_comm_gather_even(s->comm, names, sizeof *names, e);
    int to = -1;
    for (int q = 0; q < n && got == 0; q++) {
        char other[PATH_MAX];
        snprintf(other, sizeof other, "%s/%.*s", s->folder, NAME - 1, names[q]);
        if (access(other, F_OK) == 0) s->n_sharing++;
        else names[q][0] = 0;
    }
    for (int k = n - 1; k >= 0 && got == 0; k--) {
        const int q = (rank + s->n_sharing + k) % n;
        if (!names[q][0]) to = q;
    }
    if (got == 0) got = llm_comm_barrier(s->comm, e); /* all have looked */
    if (fd >= 0) unlink(path);
    if (fd >= 0) close(fd);
    if (got == 0) s->copied_to[rank] = to;
    if (got == 0) got = llm_comm_gather_even(s->comm, s->copied_to, sizeof *s->copied_to, e);
    free(names);
    return got;
}

/* That the folder has room for the parts of two snapshots, if nothing is compressed. */
static int check_room(const struct llm_snapshots *s, double checkpoint, struct llm_err *e)
{
    const int n = llm_comm_size(s->comm);
    struct statvfs fs;
    int copies = 0;
    for (int q = 0; q < n; q++) copies += s->copied_to[q] == llm_comm_rank(s->comm);
    const double needed = 2 * checkpoint / n * (1 + copies) * s->n_sharing;
    if (statvfs(s->folder, &fs) < 0) return llm_fail_errno(e, EX_CANTCREAT, "--snapshot: %s", s->folder);
    const double found = (double)fs.f_bavail * (double)fs.f_frsize;
    if (needed <= found) return 0;
    return llm_fail(e, EX_CANTCREAT, "--snapshot: %s: expected room for two snapshots, %.0f bytes, found %.0f", s->folder, needed, found);
}

int llm_snapshots_begin(struct llm_snapshots *s, struct llm_trainer *t, const char *folder, int64_t every, const char *path, struct llm_err *e)
{
    double bytes = 0;
    *s = (struct llm_snapshots){.comm = t->comm, .folder = folder, .every = every, .step = -1};
    llm_comm_set_place(s->comm, "snapshots");
    if (t->data_per_run) return llm_fail(e, LLM_EX_USAGE, "--snapshot: expected a run that goes on with the same data, not rollouts");
    if (hash_path(s->comm, path, &s->run, e) < 0) return -1;
    clear(folder, s->run);
    int got = getrandom(&s->launch, sizeof s->launch, 0) < 0 ? llm_fail_errno(e, LLM_EX_FAILURE, "random numbers") : 0;
    if ((got = llm_comm_agree(s->comm, got, NULL, e)) == 0) got = llm_comm_broadcast(s->comm, 0, &s->launch, sizeof s->launch, e);
    if (got < 0 || find_neighbours(s, e) < 0) return -1;
    got = llm_trainer_saved_bytes(t, &bytes, e);
    if (got == 0) got = check_room(s, bytes, e);
    return llm_comm_agree(s->comm, got, NULL, e);
}

static void remove_step(const struct llm_snapshots *s, int64_t step)
{
    char path[PATH_MAX];
    for (int q = 0; q < llm_comm_size(s->comm) && step >= 0; q++) {
        if (q != llm_comm_rank(s->comm) && s->copied_to[q] != llm_comm_rank(s->comm)) continue;
        path_of(s, step, q, path);
        unlink(path);
    }
}

void llm_snapshots_remove(struct llm_snapshots *s)
{
    remove_step(s, s->step);
    s->step = -1;
}

void llm_snapshots_release(struct llm_snapshots *s)
{
    free(s->copied_to);
    s->copied_to = NULL;
}

/* This rank's part. */
static int keep_part(const struct llm_snapshots *s, struct llm_trainer *t, struct llm_err *e)
{
    char path[PATH_MAX];
    struct llm_extents list = {0};
    path_of(s, t->step, llm_comm_rank(s->comm), path);
    struct llm_output *o = llm_output_open(path, true, e);
    int got = llm_comm_agree(s->comm, o ? 0 : -1, NULL, e);
    if (got == 0) got = llm_trainer_save_part(t, o, &list, e);
    const uint64_t n = list.n;
    if (got == 0 && (llm_output_write(o, list.v, list.n * sizeof *list.v, e) < 0 || llm_output_write(o, &n, sizeof n, e) < 0
                     || llm_output_write(o, mark, sizeof mark, e) < 0)) got = -1;
    if (got == 0) got = llm_output_commit(o, e);
    else llm_output_abandon(o);
    free(list.v);
    return llm_comm_agree(s->comm, got, NULL, e);
}

/* A part on its way to the rank that keeps a copy: what arrives of it, piece by piece. */
struct copy { int from; unsigned char *piece; struct llm_output *o; };

/* Sends this rank's part, and receives those that it keeps, all at once. `sizes` [ranks]. */
static int move_parts(const struct llm_snapshots *s, const struct llm_map *mine, struct copy *in, int n, const uint64_t *sizes, struct llm_err *e)
{
    const int rank = llm_comm_rank(s->comm), to = s->copied_to[rank];
    struct llm_transfer *t = llm_calloc((size_t)n + 1, sizeof *t, "snapshots", e);
    uint64_t longest = to >= 0 ? sizes[rank] : 0;
    int got = llm_comm_agree(s->comm, t ? 0 : -1, NULL, e);
    struct llm_err later;
    if (got < 0) {
        free(t);
        return -1;
    }
    for (int i = 0; i < n; i++) longest = sizes[in[i].from] > longest ? sizes[in[i].from] : longest;
    for (uint64_t at = 0; at < longest && !llm_comm_broken(s->comm); at += PIECE) {
        struct llm_err *err = got < 0 ? &later : e; /* what others send is received, even if it cannot be written */
        size_t k = 0;
        int moved = 0;
        for (int i = 0; i < n && moved == 0; i++) {
            const uint64_t left = sizes[in[i].from] > at ? sizes[in[i].from] - at : 0;
            if (left > 0) moved = llm_comm_receive(s->comm, in[i].from, in[i].piece, left < PIECE ? left : PIECE, &t[k++], err);
        }
        if (moved == 0 && to >= 0 && sizes[rank] > at) {
            moved = llm_comm_send(s->comm, to, mine->p + at, sizes[rank] - at < PIECE ? sizes[rank] - at : PIECE, &t[k++], err);
        }
        if (moved == 0) moved = llm_comm_wait(s->comm, t, k, err);
        if (moved < 0) got = -1;
        for (int i = 0; i < n && got == 0; i++) {
            const uint64_t left = sizes[in[i].from] > at ? sizes[in[i].from] - at : 0;
            got = llm_output_write(in[i].o, in[i].piece, left < PIECE ? left : PIECE, e);
        }
    }
    free(t);
    return got;
}

/* Every rank that keeps copies gets them. */
static int copy_parts(const struct llm_snapshots *s, int64_t step, struct llm_err *e)
{
    const int ranks = llm_comm_size(s->comm), rank = llm_comm_rank(s->comm);
    struct copy *in = llm_calloc((size_t)ranks, sizeof *in, "snapshots", e);
    uint64_t *sizes = llm_calloc((size_t)ranks, sizeof *sizes, "snapshots", e);
    struct llm_map mine = {.n = 0};
    char path[PATH_MAX];
    int got = in && sizes ? 0 : -1, n = 0, copies = 0;
    for (int q = 0; q < ranks; q++) copies += s->copied_to[q] >= 0;
    path_of(s, step, rank, path);
    if (got == 0 && copies > 0) got = llm_map_open(&mine, path, e);
    for (int q = 0; q < ranks && got == 0; q++) {
        if (s->copied_to[q] != rank) continue;
        path_of(s, step, q, path);
        in[n] = (struct copy){q, llm_alloc(PIECE, 1, "snapshots", e), llm_output_open(path, true, e)};
        if (!in[n].piece || !in[n].o) got = -1;
        n++;
    }
    if (got == 0) sizes[rank] = mine.n;
    got = llm_comm_agree(s->comm, got, NULL, e);
    if (got == 0) got = llm_comm_gather_even(s->comm, sizes, sizeof *sizes, e);
    if (got == 0) got = move_parts(s, &mine, in, n, sizes, e);
    for (int i = 0; i < n; i++) {
        if (got == 0) got = llm_output_commit(in[i].o, e);
        else llm_output_abandon(in[i].o);
        free(in[i].piece);
    }
    llm_map_close(&mine);
    free(in);
    free(sizes);
    return llm_comm_agree(s->comm, got, NULL, e);
}

int llm_snapshots_take(struct llm_snapshots *s, struct llm_trainer *t, struct llm_err *e)
{
    const double started = llm_now();
    int got = keep_part(s, t, e);
    if (got == 0) got = copy_parts(s, t->step, e);
    remove_step(s, got == 0 ? s->step : t->step);
    if (got < 0) return llm_in(e, "--snapshot");
    s->step = t->step;
    llm_verbose("step %lld: snapshot in %.2f s", (long long)t->step, llm_now() - started);
    return 0;
}
