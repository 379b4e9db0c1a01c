/* Makes one call fail that a writer of files depends on, to see that it copes. Built as a shared object and put into a program with LD_PRELOAD.
 *
 *   FAIL_CALL    read, open, write, fsync, fchmod, close or rename; "write-short" writes half of it and fails the next time
 *   FAIL_AT      which of these calls fails, from 1; the others are done
 *   FAIL_ERRNO   with which number [ENOSPC]
 *   FAIL_SIGNAL  the call does not fail, but this signal (a number) reaches the process just before it
 *   FAIL_UNDER   only calls that touch a path, or a descriptor that was opened, under this folder count
 *   FAIL_FILE    where to write "failed" once the call has failed: without it the program made fewer such calls
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int calls, broken_fd = -1;

static int under(const char *path)
{
    const char *folder = getenv("FAIL_UNDER");
    char full[4200];
    if (!folder || !path) return 0;
    if (path[0] != '/') {
        char cwd[4096];
        if (!getcwd(cwd, sizeof cwd)) return 0;
        snprintf(full, sizeof full, "%s/%.90s", cwd, path);
        path = full;
    }
    return strncmp(path, folder, strlen(folder)) == 0;
}

static int fd_under(int fd)
{
    char link[40], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return under(path);
}

/* Is it this call's turn? */
static int turn(const char *call)
{
    const char *wanted = getenv("FAIL_CALL"), *at = getenv("FAIL_AT"), *told = getenv("FAIL_FILE");
    if (!wanted || !at || strcmp(wanted, call) != 0 || ++calls != atoi(at)) return 0;
    if (told) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, told, O_WRONLY | O_CREAT, 0666);
        if (fd >= 0) {
            syscall(SYS_write, fd, "failed\n", 7);
            syscall(SYS_close, fd);
        }
    }
    return 1;
}

static int fails(const char *call)
{
    const char *number = getenv("FAIL_ERRNO");
    if (!turn(call)) return 0;
    if (getenv("FAIL_SIGNAL")) {
        raise(atoi(getenv("FAIL_SIGNAL")));
        return 0;
    }
    errno = number ? atoi(number) : ENOSPC;
    return 1;
}

static void *next(const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);
    if (!p) abort();
    return p;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (flags & (O_CREAT | O_WRONLY | O_RDWR) && under(path) && fails("open")) return -1;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

/* glibc opens within mkostemp without going through open(). */
int mkostemp(char *template, int flags)
{
    int (*real)(char *, int) = next("mkostemp");
    return under(template) && fails("open") ? -1 : real(template, flags);
}

int mkostemp64(char *template, int flags) __attribute__((alias("mkostemp")));

ssize_t write(int fd, const void *p, size_t n)
{
    if (fd_under(fd)) {
        if (fd == broken_fd) {
            errno = ENOSPC;
            return -1;
        }
        if (fails("write")) return -1;
        if (getenv("FAIL_SIGNAL") && n > 1 && turn("write-short")) { /* the signal comes in the middle of the bytes */
            ssize_t got = (ssize_t)syscall(SYS_write, fd, p, n / 2);
            raise(atoi(getenv("FAIL_SIGNAL")));
            return got;
        }
        if (n > 1 && fails("write-short")) {
            broken_fd = fd;
            n /= 2;
        }
    }
    return (ssize_t)syscall(SYS_write, fd, p, n);
}

ssize_t read(int fd, void *p, size_t n)
{
    return fd_under(fd) && fails("read") ? -1 : (ssize_t)syscall(SYS_read, fd, p, n);
}

int fsync(int fd)
{
    return fd_under(fd) && fails("fsync") ? -1 : (int)syscall(SYS_fsync, fd);
}

int fchmod(int fd, mode_t mode)
{
    return fd_under(fd) && fails("fchmod") ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

int close(int fd)
{
    int failed = (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY && fd_under(fd) && fails("close"), saved = errno, got = (int)syscall(SYS_close, fd);
    if (!failed) return got;
    errno = saved;
    return -1;
}

int rename(const char *from, const char *to)
{
    return under(to) && fails("rename") ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
