/* Checkpoints: any bytes, as a file (mapped) and as they come from a pipe. What both accept is the same. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "io/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* All tensors read: 0 and their checksum; else -1. Shapes that claim much are not believed here either. */
static int read_all(struct llm_file *f, uint64_t *sum)
{
    struct llm_err e = {0};
    struct llm_checkpoint *c = f ? llm_checkpoint_from_file(f, &e) : NULL;
    if (!c) return -1;
    const struct llm_header *h = llm_checkpoint_header(c);
    int got = 0;
    *sum = h->n_entries;
    for (size_t i = 0; got == 0 && i < h->n_entries; i++) {
        const struct llm_entry *t = &h->entries[i];
        unsigned char *p = t->bytes > 16 << 20 ? NULL : malloc(t->bytes + 1);
        got = p ? llm_checkpoint_read(c, t, p, &e) : -1;
        if (got == 0) *sum = llm_xxh64(p, t->bytes, *sum);
        free(p);
    }
    llm_checkpoint_close(c);
    return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    uint64_t from_file = 0, from_pipe = 0;
    char path[40];
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int file = read_all(llm_file_open(path, &e), &from_file);
    int pipe = read_all(llm_file_from_memory(data, n, "fuzz", &e), &from_pipe);
    close(fd);
    if (file != pipe || (file == 0 && from_file != from_pipe)) abort();
    return 0;
}
