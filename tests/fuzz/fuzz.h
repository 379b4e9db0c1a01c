/* What the fuzzers share: the input as a file, and requirements that abort. */
#ifndef LLM_TESTS_FUZZ_H
#define LLM_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MUST(what)                                            \
    do {                                                      \
        if (!(what)) {                                        \
            fprintf(stderr, "fuzz: ERROR: not true: %s\n", #what); \
            abort();                                          \
        }                                                     \
    } while (0)

/* The bytes as a regular file that has a path. The descriptor is the caller's. */
static inline int fuzz_file(const void *data, size_t n, char path[40])
{
    int fd = memfd_create("fuzz", 0);
    MUST(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    snprintf(path, 40, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
