/* The option tables: numbers are strict, misuse exits 2 with one line, help exits 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cli.h"

struct args {
    struct llm_common common;
    int64_t layer, size;
    double temp;
    const char *name;
    struct llm_strs list;
    int kind, flag;
};
static const struct llm_opt options[] = {
    {'l', "layer", "N", "only layer N [all]", LLM_INT, offsetof(struct args, layer), 0, 100, NULL},
    {0, "size", "N", "bytes", LLM_SIZE, offsetof(struct args, size), 0, 0, NULL},
    {'t', "temp", "X", "temperature", LLM_REAL, offsetof(struct args, temp), 0, 10, NULL},
    {0, "name", "S", "a name", LLM_STR, offsetof(struct args, name), 0, 0, NULL},
    {0, "list", "S", "names", LLM_LIST, offsetof(struct args, list), 0, 0, NULL},
    {0, "kind", "K", "kind", LLM_CHOICE, offsetof(struct args, kind), 0, 0, "bpe|byte|char"},
    {'f', "flag", NULL, "a flag", LLM_FLAG, offsetof(struct args, flag), 0, 0, NULL},
    {0},
};
static const struct llm_cli cli = {.name = "llm-test", .summary = "a test", .usage = "[OPTION]... [FILE]...", .examples = "llm-test x",
                                   .options = options, .common = LLM_COMMON_ALL};

static int parse(struct args *a, ...)
{
    char *argv[16] = {"llm-test"}, *word;
    int argc = 1;
    va_list words;
    va_start(words, a);
    while ((word = va_arg(words, char *))) argv[argc++] = word;
    va_end(words);
    return llm_cli_parse(&cli, a, argc, argv);
}

/* Runs the parser in a child, because it exits; returns the status, stderr in `text`. */
static int exit_of(char *text, size_t room, const char *word, const char *value)
{
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct args a = {.layer = -1};
        dup2(fd[1], 2);
        if (!freopen("/dev/null", "w", stdout)) _exit(99);
        parse(&a, word, value, NULL);
        _exit(50);
    }
    close(fd[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(fd[0], text + n, room - 1 - n)) > 0;) n += (size_t)got;
    text[n] = 0;
    close(fd[0]);
    int status;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

static void values(void **state)
{
    struct args a = {.layer = -1};
    (void)state;
    int rest = parse(&a, "-l3", "file", "--size=4K", "--temp", "0.5", "--list", "a", "--list=b", "--kind", "byte", "-f", "--seed", "9", NULL);
    assert_int_equal(a.layer, 3);
    assert_int_equal(a.size, 4096);
    assert_true(a.temp == 0.5);
    assert_int_equal(a.list.n, 2);
    assert_string_equal(a.list.v[1], "b");
    assert_int_equal(a.kind, 1);
    assert_int_equal(a.flag, 1);
    assert_int_equal(a.common.seed, 9);
    assert_int_equal(a.common.seed_given, 1);
    assert_int_equal(rest, 13); /* operands come last */
    free(a.list.v);
}

static void misuse(void **state)
{
    static const struct { const char *word, *value; } rows[] = {
        {"-l", "101"}, {"-l", "x"}, {"-l", "3x"}, {"-l", ""}, {"-l", " 3"}, {"-l", "99999999999999999999"}, {"-j", "0"}, {"-j", "-1"},
        {"--temp", "nan"}, {"--temp", "inf"}, {"--temp", "1e400"}, {"--kind", "gzip"}, {"--nope", NULL}, {"-Z", NULL}, {"-l", NULL},
        {"--size", "9999999999G"}, {"--flag=1", NULL}};
    char text[1000];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(exit_of(text, sizeof text, rows[i].word, rows[i].value), 2);
        assert_memory_equal(text, "llm-test: ", 10);
        assert_non_null(strstr(text, "Try 'llm-test --help'."));
    }
}

static void help_is_success(void **state)
{
    char text[1000];
    (void)state;
    assert_int_equal(exit_of(text, sizeof text, "--help", NULL), 0);
    assert_string_equal(text, "");
    assert_int_equal(exit_of(text, sizeof text, "-V", NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(misuse), cmocka_unit_test(help_is_success)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
