#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/paths.h"
#include "base/signals.h"

enum { BUFFER = 1 << 18, PEEK = 1 << 16 };

struct llm_file {
    int fd;
    bool owns_fd, regular, ended;
    uint64_t size;            /* of a regular file */
    const unsigned char *memory; /* instead of a descriptor */
    size_t memory_left;
    uint64_t consumed;        /* bytes handed out */
    size_t begin, end;        /* what the buffer holds */
    char *name;
    unsigned char buffer[BUFFER];
};

struct llm_file *llm_file_open(const char *path, struct llm_err *e)
{
    struct stat st;
    if (llm_paths_check_input(path, e) < 0) return NULL;
    struct llm_file *f = llm_calloc(1, sizeof *f, path, e);
    if (!f) return NULL;
    bool is_stdin = strcmp(path, "-") == 0;
    f->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    f->owns_fd = !is_stdin;
    f->name = strdup(is_stdin ? "standard input" : path);
    if (!f->name) {
        llm_no_memory(e, path);
    } else if (f->fd < 0 || fstat(f->fd, &st) < 0) {
        llm_fail_errno(e, EX_NOINPUT, "%s", f->name);
    } else if (S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        llm_fail_errno(e, EX_NOINPUT, "%s", f->name);
    } else {
        off_t at = S_ISREG(st.st_mode) ? lseek(f->fd, 0, SEEK_CUR) : -1;
        f->regular = at == 0;
        f->size = f->regular ? (uint64_t)st.st_size : 0;
        return f;
    }
    llm_file_close(f);
    return NULL;
}

struct llm_file *llm_file_from_memory(const void *p, size_t n, const char *name, struct llm_err *e)
{
    struct llm_file *f = llm_calloc(1, sizeof *f, name, e);
    if (!f) return NULL;
    f->fd = -1;
    f->memory = p ? p : (const unsigned char *)"";
    f->memory_left = n;
    f->name = strdup(name);
    if (f->name) return f;
    llm_no_memory(e, name);
    llm_file_close(f);
    return NULL;
}

void llm_file_close(struct llm_file *f)
{
    if (!f) return;
    int saved = errno;
    if (f->owns_fd && f->fd >= 0) close(f->fd);
    free(f->name);
    free(f);
    errno = saved;
}

const char *llm_file_name(const struct llm_file *f)
{
    return f->name;
}

uint64_t llm_file_offset(const struct llm_file *f)
{
    return f->consumed;
}

bool llm_file_ready(const struct llm_file *f)
{
    struct pollfd p = {.fd = f->fd, .events = POLLIN};
    return f->memory || f->begin < f->end || f->ended || poll(&p, 1, 0) != 0;
}

int llm_file_regular(const struct llm_file *f, uint64_t *size)
{
    if (size) *size = f->size;
    return f->regular ? f->fd : -1;
}

/* read(2) that goes on after a signal, unless that is one to end by. */
static int64_t read_once(struct llm_file *f, void *p, size_t n, struct llm_err *e)
{
    ssize_t got;
    if (f->memory) {
        if (n > f->memory_left) n = f->memory_left;
        memcpy(p, f->memory, n);
        f->memory += n;
        f->memory_left -= n;
        f->ended = n == 0;
        return (int64_t)n;
    }
    do got = read(f->fd, p, n);
    while (got < 0 && errno == EINTR && !llm_signal_caught());
    if (got < 0) return llm_fail_errno(e, EX_IOERR, "%s: byte %llu", f->name, (unsigned long long)f->consumed);
    if (got == 0) f->ended = true;
    return got;
}

/* Reads until the buffer holds at least `want` bytes, fewer only at the end of the file, and at most `max`. */
static int fill(struct llm_file *f, size_t want, size_t max, struct llm_err *e)
{
    if (f->end - f->begin >= want) return 0;
    if (f->begin) {
        memmove(f->buffer, f->buffer + f->begin, f->end - f->begin);
        f->end -= f->begin;
        f->begin = 0;
    }
    while (f->end < want && !f->ended) {
        int64_t got = read_once(f, f->buffer + f->end, max - f->end, e);
        if (got < 0) return -1;
        f->end += (size_t)got;
    }
    return 0;
}

const unsigned char *llm_file_peek(struct llm_file *f, size_t n, size_t *got, struct llm_err *e)
{
    *got = 0;
    if (n > PEEK) n = PEEK;
    if (fill(f, n, n < 4096 ? 4096 : n, e) < 0) return NULL; /* a file that is mapped then is read no further */
    *got = f->end - f->begin < n ? f->end - f->begin : n;
    return f->buffer + f->begin;
}

int llm_file_at_end(struct llm_file *f, struct llm_err *e)
{
    if (fill(f, 1, BUFFER, e) < 0) return -1;
    return f->begin == f->end;
}

int64_t llm_file_read_some(struct llm_file *f, void *p, size_t n, struct llm_err *e)
{
    int64_t got;
    if (n == 0) return 0;
    if (f->begin == f->end && n >= BUFFER && !f->ended) { /* large reads need no copy */
        got = read_once(f, p, n, e);
    } else {
        if (fill(f, 1, BUFFER, e) < 0) return -1;
        size_t have = f->end - f->begin;
        if (have > n) have = n;
        memcpy(p, f->buffer + f->begin, have);
        f->begin += have;
        got = (int64_t)have;
    }
    if (got > 0) f->consumed += (uint64_t)got;
    return got;
}

int llm_file_read(struct llm_file *f, void *p, size_t n, struct llm_err *e)
{
    uint64_t start = f->consumed;
    for (size_t have = 0; have < n;) {
        int64_t got = llm_file_read_some(f, (char *)p + have, n - have, e);
        if (got < 0) return -1;
        if (got == 0)
            return llm_fail(e, EX_DATAERR, "%s: byte %llu: cut short: expected %zu bytes, found %zu", f->name, (unsigned long long)start, n,
                            have);
        have += (size_t)got;
    }
    return 0;
}

int llm_file_bad(const struct llm_file *f, struct llm_err *e, const char *fmt, ...)
{
    char text[800];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return llm_fail(e, EX_DATAERR, "%s: byte %llu: %s", f->name, (unsigned long long)f->consumed, text);
}

int llm_map_fd(struct llm_map *m, int fd, uint64_t size, const char *name, struct llm_err *e)
{
    *m = (struct llm_map){0};
    if (size == 0) return 0;
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return llm_fail_errno(e, EX_UNAVAILABLE, "%s: cannot map", name);
    m->p = p;
    m->n = size;
    m->watch = llm_fault_watch(p, size, fd, name);
    return 0;
}

int llm_map_open(struct llm_map *m, const char *path, struct llm_err *e)
{
    struct stat st;
    *m = (struct llm_map){0};
    if (llm_paths_check_input(path, e) < 0) return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        llm_fail_errno(e, EX_NOINPUT, "%s", path);
        if (fd >= 0) close(fd);
        return -1;
    }
    int got = -1;
    if (!S_ISREG(st.st_mode)) llm_fail(e, EX_NOINPUT, "%s: not a regular file", path);
    else got = llm_map_fd(m, fd, (uint64_t)st.st_size, path, e);
    close(fd);
    return got;
}

void llm_map_close(struct llm_map *m)
{
    if (m->p) munmap((void *)m->p, m->n);
    llm_fault_unwatch(m->watch);
    *m = (struct llm_map){0};
}
