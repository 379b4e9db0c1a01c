/* What the tests of lib/io share: a folder of their own that disappears, files from bytes, pipes that deliver bytes. */
#ifndef TESTS_UNIT_IO_FIXTURE_H
#define TESTS_UNIT_IO_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char fixture_dir[64];

static inline int fixture_setup(void **state)
{
    (void)state;
    strcpy(fixture_dir, "/tmp/llm-test.XXXXXX");
    return mkdtemp(fixture_dir) && chdir(fixture_dir) == 0 ? 0 : -1;
}

static inline int fixture_teardown(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", fixture_dir);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static inline void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    if (n) assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* The whole file; malloced. */
static inline unsigned char *get_file(const char *path, size_t *n)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    unsigned char *p = malloc((size_t)st.st_size + 1);
    assert_non_null(p);
    *n = fread(p, 1, (size_t)st.st_size, f);
    assert_int_equal(*n, st.st_size);
    fclose(f);
    return p;
}

/* Makes standard input a pipe that a child fills with these bytes, `step` at a time. Returns the child. */
static inline pid_t pipe_in(const void *bytes, size_t n, size_t step)
{
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fd[0]);
        for (size_t at = 0; at < n;) {
            ssize_t put = write(fd[1], (const char *)bytes + at, n - at < step ? n - at : step);
            if (put < 0) _exit(0); /* the reader has seen enough */
            at += (size_t)put;
        }
        _exit(0);
    }
    close(fd[1]);
    dup2(fd[0], STDIN_FILENO);
    close(fd[0]);
    return pid;
}

static inline void pipe_done(pid_t pid)
{
    assert_non_null(freopen("/dev/null", "r", stdin)); /* keeps descriptor 0 taken */
    waitpid(pid, NULL, 0);
}

#endif
