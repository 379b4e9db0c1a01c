#include "io/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/buf.h"

#define COPIED ((size_t)1 << 20) /* bytes at a time */

const char *llm_temporary_folder(void)
{
    const char *dir = getenv("TMPDIR");
    return dir && *dir ? dir : "/tmp";
}

int llm_temporary_open(struct llm_err *e)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/llmutils.XXXXXX", llm_temporary_folder()), fd = -1;
    if (n > 0 && (size_t)n < sizeof path) fd = mkostemp(path, O_CLOEXEC);
    else errno = ENAMETOOLONG;
    if (fd < 0) return llm_fail_errno(e, EX_CANTCREAT, "%s: cannot create a temporary file", llm_temporary_folder());
    unlink(path);
    return fd;
}

static int write_all(int fd, const unsigned char *p, size_t n, struct llm_err *e)
{
    for (size_t at = 0; at < n;) {
        ssize_t put = write(fd, p + at, n - at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return llm_fail_errno(e, EX_IOERR, "%s: a temporary file", llm_temporary_folder());
        at += (size_t)put;
    }
    return 0;
}

/* Copies what `f` still has. */
static int copy(struct llm_file *f, int fd, uint64_t *size, struct llm_err *e)
{
    unsigned char *buffer = llm_alloc(COPIED, 1, "a temporary file", e);
    int64_t got = buffer ? 1 : -1;
    *size = 0;
    while (got > 0 && (got = llm_file_read_some(f, buffer, COPIED, e)) > 0) {
        if (write_all(fd, buffer, (size_t)got, e) < 0) got = -1;
        else *size += (uint64_t)got;
    }
    free(buffer);
    return got < 0 ? llm_in(e, "%s", llm_file_name(f)) : 0;
}

int llm_temporary_map(struct llm_map *m, struct llm_file *f, struct llm_err *e)
{
    uint64_t size = 0;
    int fd = llm_file_regular(f, &size);
    if (fd >= 0) return llm_map_fd(m, fd, size, llm_file_name(f), e);
    if ((fd = llm_temporary_open(e)) < 0) return llm_in(e, "%s", llm_file_name(f));
    int got = copy(f, fd, &size, e);
    if (got == 0) got = llm_map_fd(m, fd, size, llm_file_name(f), e);
    close(fd);
    return got;
}
