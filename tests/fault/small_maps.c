/* A system that maps at most 2 GiB at a time and nothing at an address of the program's choice, as under valgrind.
 * Put into a program by LD_PRELOAD. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (bytes > (size_t)2 << 30 || (flags & MAP_FIXED_NOREPLACE)) {
        errno = bytes > (size_t)2 << 30 ? EINVAL : ENOENT;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) __attribute__((alias("mmap")));
