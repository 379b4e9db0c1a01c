#include "io/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/paths.h"
#include "base/signals.h"
#include "base/utf8.h"

enum { BUFFER = 1 << 18, LONGEST_NAME = 200 };

struct llm_output {
    int fd;
    bool owns_fd, finished, is_terminal;
    bool appends;            /* the file is written in place, and synced */
    bool joins;              /* another process's temporary file */
    char *name;              /* for messages */
    char *target, *temporary; /* both set when the file is renamed at the end */
    int slot;                /* in base/signals.h */
    int guard;               /* a descriptor that keeps the temporary file locked after fd is closed; -1: none */
    uint64_t written;
    char held[4];            /* the beginning of a character that the next text may complete; on terminals */
    size_t n_held;
    size_t used;
    unsigned char buffer[BUFFER];
};

static int write_all(struct llm_output *o, const void *p, size_t n, struct llm_err *e)
{
    while (n) {
        ssize_t got = write(o->fd, p, n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            if (errno == EFAULT) llm_fault_touch(p, n); /* the bytes are of a mapped file that has shrunk */
            return llm_fail_errno(e, EX_IOERR, "%s: cannot write", o->name);
        }
        p = (const char *)p + got;
        n -= (size_t)got;
    }
    return 0;
}

/* A temporary file lies beside its target, so that rename never crosses a file system, and is called after it, as far as names may be long:
 * "model.llm.llm-tmp-Ab3xY9". Its owner holds a shared lock (flock) on it for as long as it lives. A process that can lock it exclusively knows
 * that the owner has been killed, and removes the file. */
#define TEMPORARY_MARK ".llm-tmp-"
enum { TEMPORARY_RANDOM = 6, LOCK_TRIES = 100 };

/* Removes a file if it is a regular one of this user's that nobody has locked. */
static void remove_if_abandoned(int folder, const char *name)
{
    struct stat st;
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    bool ours = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1;
    if (ours && flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(folder, name, 0);
    close(fd);
}

/* Removes what killed processes have left beside the target. What cannot be read or removed stays: it harms no output. */
static void remove_abandoned(const char *target)
{
    char prefix[LONGEST_NAME + sizeof TEMPORARY_MARK], folder[PATH_MAX] = ".";
    const char *slash = strrchr(target, '/'), *base = slash ? slash + 1 : target;
    size_t n = (size_t)snprintf(prefix, sizeof prefix, "%.*s" TEMPORARY_MARK, LONGEST_NAME, base);
    if (slash) snprintf(folder, sizeof folder, "%.*s", slash == target ? 1 : (int)(slash - target), target);
    DIR *d = opendir(folder);
    if (!d) return;
    for (const struct dirent *f; (f = readdir(d));) {
        if (strncmp(f->d_name, prefix, n) == 0 && strlen(f->d_name) == n + TEMPORARY_RANDOM) remove_if_abandoned(dirfd(d), f->d_name);
    }
    closedir(d);
}

/* A temporary file that is locked before anybody could take it for an abandoned one. `path` ends with XXXXXX. -1: see errno. */
static int make_temporary(char *path)
{
    struct stat st;
    size_t n = strlen(path);
    for (int i = 0; i < LOCK_TRIES; i++) {
        memset(path + n - TEMPORARY_RANDOM, 'X', TEMPORARY_RANDOM);
        int fd = mkostemp(path, O_CLOEXEC);
        if (fd < 0) return -1;
        bool refused = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK; /* other errors: this file system has no locks */
        if (!refused && fstat(fd, &st) == 0 && st.st_nlink > 0) return fd;
        close(fd);
        unlink(path);
    }
    errno = EAGAIN;
    return -1;
}

static int open_temporary(struct llm_output *o, mode_t mode, struct llm_err *e)
{
    const char *slash = strrchr(o->target, '/'), *base = slash ? slash + 1 : o->target;
    size_t room = strlen(o->target) + sizeof TEMPORARY_MARK + TEMPORARY_RANDOM, folder = (size_t)(base - o->target);
    o->temporary = llm_alloc(room, 1, o->target, e);
    if (!o->temporary) return -1;
    snprintf(o->temporary, room, "%.*s%.*s" TEMPORARY_MARK "XXXXXX", (int)folder, o->target, LONGEST_NAME, base);
    remove_abandoned(o->target);
    o->fd = make_temporary(o->temporary);
    if (o->fd < 0) {
        free(o->temporary);
        o->temporary = NULL;
        return llm_fail_errno(e, EX_CANTCREAT, "%s: cannot create", o->name);
    }
    o->slot = llm_signal_unlink_add(o->temporary);
    if (fchmod(o->fd, mode) < 0) return llm_fail_errno(e, EX_CANTCREAT, "%s: cannot set the mode", o->name);
    return 0;
}

static mode_t default_mode(void)
{
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

/* The path to which `path` leads, with symbolic links followed, also one whose target does not exist yet. NULL: see `e`. */
static char *resolve(const char *path, struct llm_err *e)
{
    char full[PATH_MAX];
    if (llm_path_resolve(path, full) < 0) {
        llm_fail_errno(e, EX_CANTCREAT, "%s", path);
        return NULL;
    }
    char *copy = strdup(full);
    if (!copy) llm_no_memory(e, path);
    return copy;
}

static int open_target(struct llm_output *o, const char *path, struct llm_err *e)
{
    struct stat st;
    bool exists = stat(path, &st) == 0;
    if (exists && !S_ISREG(st.st_mode)) {
        o->fd = open(path, O_WRONLY | O_CLOEXEC);
        o->owns_fd = true;
        return o->fd < 0 ? llm_fail_errno(e, EX_CANTCREAT, "%s: cannot write", path) : 0;
    }
    if (exists && access(path, W_OK) < 0) return llm_fail_errno(e, EX_CANTCREAT, "%s: cannot write", path);
    o->target = resolve(path, e);
    o->owns_fd = true;
    if (!o->target) return -1;
    return open_temporary(o, exists ? st.st_mode & 07777 : default_mode(), e);
}

struct llm_output *llm_output_open(const char *path, bool binary, struct llm_err *e)
{
    bool is_stdout = !path || strcmp(path, "-") == 0;
    if (!is_stdout && llm_paths_check_output(path, e) < 0) return NULL;
    struct llm_output *o = llm_calloc(1, sizeof *o, is_stdout ? "output" : path, e);
    if (!o) return NULL;
    o->fd = is_stdout ? STDOUT_FILENO : -1;
    o->slot = o->guard = -1;
    o->name = strdup(is_stdout ? "standard output" : path);
    int got = 0;
    if (!o->name) got = llm_no_memory(e, "output");
    else if (!is_stdout) got = open_target(o, path, e);
    o->is_terminal = got == 0 && isatty(o->fd);
    if (got == 0 && binary && o->is_terminal)
        got = llm_fail(e, LLM_EX_USAGE, "%s: refusing to write binary data to a terminal (redirect it, or give -o FILE)", o->name);
    if (got == 0) return o;
    llm_output_abandon(o);
    return NULL;
}

struct llm_output *llm_output_append(const char *path, struct llm_map *before, struct llm_err *e)
{
    struct stat st;
    *before = (struct llm_map){0};
    if (llm_paths_check_output(path, e) < 0) return NULL;
    struct llm_output *o = llm_calloc(1, sizeof *o, path, e);
    if (!o) return NULL;
    o->slot = o->guard = -1;
    o->owns_fd = o->appends = true;
    o->name = strdup(path);
    o->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    int got = 0;
    if (!o->name) got = llm_no_memory(e, "output");
    else if (o->fd < 0 || fstat(o->fd, &st) < 0) got = llm_fail_errno(e, EX_CANTCREAT, "%s: cannot append", path);
    else if (!S_ISREG(st.st_mode)) got = llm_fail(e, EX_CANTCREAT, "%s: expected a regular file to append to", path);
    else if (flock(o->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) got = llm_fail(e, EX_CANTCREAT, "%s: another process appends to it", path);
    else if (fstat(o->fd, &st) < 0) got = llm_fail_errno(e, EX_CANTCREAT, "%s: cannot append", path); /* its size, now that it is ours */
    else got = llm_map_fd(before, o->fd, (uint64_t)st.st_size, path, e);
    if (got == 0) return o;
    llm_output_abandon(o);
    return NULL;
}

int llm_output_cut(struct llm_output *o, uint64_t n, struct llm_err *e)
{
    return ftruncate(o->fd, (off_t)n) < 0 ? llm_fail_errno(e, EX_IOERR, "%s: cannot cut", o->name) : 0;
}

int llm_output_try(const char *path, bool binary, struct llm_err *e)
{
    struct stat st;
    bool is_stdout = path && strcmp(path, "-") == 0;
    if (!path || (!is_stdout && stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) return 0;
    struct llm_output *o = llm_output_open(path, binary, e);
    llm_output_abandon(o);
    return o ? 0 : -1;
}

const char *llm_output_name(const struct llm_output *o)
{
    return o->name;
}

uint64_t llm_output_offset(const struct llm_output *o)
{
    return o->written;
}

const char *llm_output_temporary(const struct llm_output *o)
{
    const char *slash = o->temporary ? strrchr(o->temporary, '/') : NULL;
    return slash ? slash + 1 : o->temporary;
}

int llm_output_join(struct llm_output **out, const char *path, const char *temporary, struct llm_err *e)
{
    struct stat st;
    *out = NULL;
    struct llm_output *o = llm_calloc(1, sizeof *o, path, e);
    if (!o) return -1;
    o->fd = o->slot = o->guard = -1;
    o->owns_fd = o->joins = true;
    o->name = strdup(path);
    o->target = resolve(path, e);
    const char *slash = o->target ? strrchr(o->target, '/') : NULL;
    char file[PATH_MAX];
    const int n = snprintf(file, sizeof file, "%.*s%s", slash ? (int)(slash + 1 - o->target) : 0, slash ? o->target : "", temporary);
    if (!o->name || !o->target) {
        llm_output_abandon(o);
        return o->name ? -1 : llm_no_memory(e, path);
    }
    if (n < (int)sizeof file) o->fd = open(file, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (o->fd >= 0 && fstat(o->fd, &st) == 0 && S_ISREG(st.st_mode)) *out = o;
    else llm_output_abandon(o);
    return 0;
}

int llm_output_seek(struct llm_output *o, uint64_t at, struct llm_err *e)
{
    if (at == o->written) return 0;
    if (llm_output_flush(o, e) < 0) return -1;
    if (lseek(o->fd, (off_t)at, SEEK_SET) < 0) return llm_fail_errno(e, EX_IOERR, "%s: cannot write at byte %llu", o->name, (unsigned long long)at);
    o->written = at;
    return 0;
}

int llm_output_flush(struct llm_output *o, struct llm_err *e)
{
    size_t n = o->used;
    o->used = 0;
    return write_all(o, o->buffer, n, e);
}

int llm_output_sync(struct llm_output *o, struct llm_err *e)
{
    if (llm_output_flush(o, e) < 0) return -1;
    if (o->appends && fsync(o->fd) < 0) return llm_fail_errno(e, EX_IOERR, "%s: cannot sync", o->name);
    return 0;
}

static int put_bytes(struct llm_output *o, const void *p, size_t n, struct llm_err *e)
{
    o->written += n;
    if (n > BUFFER - o->used && llm_output_flush(o, e) < 0) return -1;
    if (n >= BUFFER) return write_all(o, p, n, e);
    if (n) memcpy(o->buffer + o->used, p, n);
    o->used += n;
    return 0;
}

/* Characters as they are, any other byte as U+FFFD. */
static int put_valid(struct llm_output *o, const char *text, size_t n, struct llm_err *e)
{
    const unsigned char *p = (const unsigned char *)text;
    int got = 0;
    for (size_t i = 0; i < n && got == 0;) {
        size_t valid = llm_utf8_invalid(p + i, n - i);
        got = put_bytes(o, p + i, valid, e);
        i += valid;
        if (got == 0 && i < n) got = put_bytes(o, "\xEF\xBF\xBD", 3, e);
        i += i < n;
    }
    return got;
}

/* Writes the held bytes: no text will complete their character. */
static int put_held(struct llm_output *o, struct llm_err *e)
{
    size_t n = o->n_held;
    o->n_held = 0;
    return put_valid(o, o->held, n, e);
}

int llm_output_write(struct llm_output *o, const void *p, size_t n, struct llm_err *e)
{
    if (o->n_held > 0 && put_held(o, e) < 0) return -1;
    return put_bytes(o, p, n, e);
}

int llm_output_text(struct llm_output *o, const char *text, size_t n, struct llm_err *e)
{
    if (!o->is_terminal) return llm_output_write(o, text, n, e);
    while (o->n_held > 0 && n > 0) { /* a byte at a time, until the character is whole or cannot be */
        char joined[5];
        size_t k = o->n_held;
        memcpy(joined, o->held, k);
        joined[k] = *text;
        if (llm_utf8_complete(joined, k + 1) == 0) {
            o->held[o->n_held++] = *text++;
            n--;
            continue;
        }
        bool whole = llm_utf8_invalid((const unsigned char *)joined, k + 1) == k + 1;
        o->n_held = 0;
        if (put_valid(o, joined, whole ? k + 1 : k, e) < 0) return -1;
        text += whole;
        n -= whole;
    }
    if (n == 0) return 0;
    size_t complete = llm_utf8_complete(text, n);
    o->n_held = n - complete; /* at most 3 */
    memcpy(o->held, text + complete, o->n_held);
    return put_valid(o, text, complete, e);
}

int llm_output_printf(struct llm_output *o, struct llm_err *e, const char *fmt, ...)
{
    char small[1024], *text = small;
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, fmt, args), got = -1;
    va_end(args);
    if (n >= (int)sizeof small) {
        text = llm_alloc((size_t)n + 1, 1, o->name, e);
        if (text) vsnprintf(text, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    if (text && n >= 0) got = llm_output_write(o, text, (size_t)n, e);
    if (text != small) free(text);
    return got;
}

/* The rename is durable once its directory is. Some file systems cannot sync a directory (EINVAL): nothing more can be done there. */
static int sync_directory(const struct llm_output *o, struct llm_err *e)
{
    const char *slash = strrchr(o->target, '/');
    char dir[PATH_MAX] = ".";
    if (slash) snprintf(dir, sizeof dir, "%.*s", slash == o->target ? 1 : (int)(slash - o->target), o->target);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), got = 0;
    if (fd < 0) return errno == EACCES ? 0 : llm_fail_errno(e, EX_IOERR, "%s", dir);
    if (fsync(fd) < 0 && errno != EINVAL) got = llm_fail_errno(e, EX_IOERR, "%s: cannot sync", dir);
    close(fd);
    return got;
}

int llm_output_finish(struct llm_output *o, struct llm_err *e)
{
    if (o->finished) return 0;
    int got = llm_fault_check_sizes(e) < 0 || put_held(o, e) < 0 ? -1 : llm_output_flush(o, e);
    if (got == 0 && (o->temporary || o->appends || o->joins) && fsync(o->fd) < 0) got = llm_fail_errno(e, EX_IOERR, "%s: cannot sync", o->name);
    if (o->owns_fd || o->fd == STDOUT_FILENO) {
        int fd = o->fd;
        o->fd = -1;
        if (o->temporary) o->guard = open(o->temporary, O_RDONLY | O_CLOEXEC); /* without it, only a moment's protection is lost */
        if (o->guard >= 0) flock(o->guard, LOCK_SH | LOCK_NB);
        /* close reports what NFS and quotas kept back; stdout too, since nothing is written after a commit. */
        if (close(fd) < 0 && got == 0 && errno != EINTR) got = llm_fail_errno(e, EX_IOERR, "%s: cannot write", o->name);
    }
    o->finished = got == 0;
    return got;
}

/* Renames the finished file to its target. `keep`: the slot then names the target, so that a signal still removes it. */
static int publish(struct llm_output *o, bool keep, struct llm_err *e)
{
    if (!o->temporary) return 0;
    if (rename(o->temporary, o->target) < 0) return llm_fail_errno(e, EX_CANTCREAT, "%s: cannot create", o->name);
    int slot = keep ? llm_signal_unlink_add(o->target) : -1;
    llm_signal_unlink_drop(o->slot);
    free(o->temporary);
    o->temporary = NULL;
    o->slot = slot;
    if (o->guard >= 0) close(o->guard);
    o->guard = -1;
    return sync_directory(o, e);
}

int llm_output_commit(struct llm_output *o, struct llm_err *e)
{
    int got = llm_output_finish(o, e);
    if (got == 0) got = publish(o, false, e);
    llm_output_abandon(o);
    return got;
}

int llm_output_commit_all(struct llm_output **v, size_t n, struct llm_err *e)
{
    int got = 0;
    for (size_t i = 0; i < n && got == 0; i++) got = llm_output_finish(v[i], e);
    for (size_t i = 0; i < n && got == 0; i++) got = publish(v[i], true, e);
    for (size_t i = 0; i < n; i++) {
        if (got < 0 && v[i]->finished && v[i]->target && !v[i]->temporary) unlink(v[i]->target);
        llm_output_abandon(v[i]);
    }
    return got;
}

void llm_output_abandon(struct llm_output *o)
{
    if (!o) return;
    int saved = errno;
    if (o->owns_fd && o->fd >= 0) close(o->fd);
    if (o->guard >= 0) close(o->guard);
    if (o->temporary) unlink(o->temporary);
    llm_signal_unlink_drop(o->slot);
    free(o->temporary);
    free(o->target);
    free(o->name);
    free(o);
    errno = saved;
}
