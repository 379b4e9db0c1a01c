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
#include "base/suggest.h"
#include "base/utf8.h"

struct args {
    struct llm_common common;
    int64_t layer, size;
    double temp;
    const char *name;
    struct llm_strs list;
    int kind, flag, planet;
};
static const struct llm_opt options[] = {
    {'l', "layer", "N", "only layer N [all]", LLM_INT, offsetof(struct args, layer), 0, 100, NULL},
    {0, "size", "N", "bytes", LLM_SIZE, offsetof(struct args, size), 0, 0, NULL},
    {'t', "temp", "X", "temperature", LLM_REAL, offsetof(struct args, temp), 0, 10, NULL},
    {0, "name", "S", "a name", LLM_STR, offsetof(struct args, name), 0, 0, NULL},
    {0, "list", "S", "names", LLM_LIST, offsetof(struct args, list), 0, 0, NULL},
    {0, "kind", "K", "kind", LLM_CHOICE, offsetof(struct args, kind), 0, 0, "bpe|byte|char"},
    {0, "planet", "P", "one of %w", LLM_CHOICE, offsetof(struct args, planet), 0, 0, NULL},
    {'f', "flag", NULL, "a flag", LLM_FLAG, offsetof(struct args, flag), 0, 0, NULL},
    {0},
};
static const char *planet(int i)
{
    static const char *const names[] = {"mercury", "venus", "earth", NULL};
    return names[i];
}
static const struct llm_words tables[] = {{"planet", planet}, {0}};
static const struct llm_alias aliases[] = {{"--temperature", "temp"}, {"-T", "temp"}, {"-sys", "name"}, {0}};
static const struct llm_foreign foreign[] = {{"--lora", "no adapters"}, {"-ngl", "no devices"}, {0}};
static const struct llm_cli cli = {.name = "llm-test", .summary = "a test", .usage = "[OPTION]... [FILE]...", .examples = "llm-test x",
                                   .options = options, .common = LLM_COMMON_ALL, .words = tables, .aliases = aliases, .foreign = foreign};

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

static void other_names(void **state)
{
    struct args a = {.layer = -1};
    (void)state;
    parse(&a, "--temperature=2", "-sys", "x", "--planet", "Earth", NULL);
    assert_true(a.temp == 2);
    assert_string_equal(a.name, "x");
    assert_int_equal(a.planet, 2); /* the row of the table, in any case */
    parse(&a, "-T3", "--tempera", "4", "--la=7", NULL);
    assert_true(a.temp == 4);
    assert_int_equal(a.layer, 7);
    assert_ptr_equal(llm_cli_option(&cli, "temperature"), llm_cli_option(&cli, "temp"));
    assert_null(llm_cli_option(&cli, "tem")); /* whole names only */
}

static void operands_move_behind_options(void **state)
{
    char *argv[] = {"llm-test", "one", "-f", "two", "-l", "3", "--", "-x", "three", NULL};
    struct args a = {.layer = -1};
    (void)state;
    for (int turn = 0; turn < 2; turn++) { /* parsing once more finds the same */
        int rest = llm_cli_parse(&cli, &a, 9, argv);
        assert_int_equal(rest, 5);
        assert_string_equal(argv[rest], "one");
        assert_string_equal(argv[rest + 1], "two");
        assert_string_equal(argv[rest + 2], "-x");
        assert_string_equal(argv[rest + 3], "three");
        assert_int_equal(a.layer, 3);
    }
}

static void misuse_says_what_helps(void **state)
{
    static const struct { const char *word, *value, *text; } rows[] = {
        {"--tmep", "1", "unknown option '--tmep' (did you mean --temp?)"},
        {"--temprature", "1", "(did you mean --temp?)"},
        {"--l", "1", "option '--l' is ambiguous: --layer, --list"},
        {"--planet", "erath", "expected one of mercury|venus|earth, found 'erath' (did you mean earth?)"},
        {"--kind", "bytr", "(did you mean byte?)"},
        {"--lora", "x", "there is no --lora here: no adapters"},
        {"-ngl", "9", "there is no -ngl here: no devices"},
        {"-fZ", NULL, "unknown option '-Z' in '-fZ'"},
        {"--flag=1", NULL, "option '--flag' takes no argument, found '1'"},
        {"--temp", NULL, "option '--temp' needs an argument"}};
    char text[1000];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(exit_of(text, sizeof text, rows[i].word, rows[i].value), 2);
        if (!strstr(text, rows[i].text)) fail_msg("%s: expected '%s', found '%s'", rows[i].word, rows[i].text, text);
    }
}

static void json_takes_the_same_names(void **state)
{
    static const struct { const char *json; int status; } bad[] = {{"{\"layer\": 101}", 65}, {"{\"temp\": \"x\"}", 65}, {"{\"layer\": 1.5}", 65},
                                                                    {"{\"temp\": 1, \"temperature\": 1}", 65}, {"{\"flag\": 1}", 65}};
    struct args a = {.layer = -1, .temp = .5};
    struct llm_err e = {0};
    (void)state;
    json_t *o = json_loads("{\"layer\": 3, \"temperature\": 2, \"flag\": true, \"size\": 9, \"seed\": null, \"other\": 1}", 0, NULL);
    assert_int_equal(llm_cli_take_json(&cli, "layer|temp|flag|seed", &a, o, &e), 0);
    assert_int_equal(a.layer, 3);
    assert_true(a.temp == 2 && a.flag == 1 && a.size == 0);
    assert_int_equal(json_object_size(o), 2); /* size is not allowed here, other is no option */
    json_decref(o);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o = json_loads(bad[i].json, 0, NULL);
        assert_int_equal(llm_cli_take_json(&cli, "layer|temp|flag", &a, o, &e), -1);
        assert_int_equal(e.status, bad[i].status);
        json_decref(o);
    }
}

static void edit_distances(void **state)
{
    static const struct { const char *a, *b; int d; } rows[] = {
        {"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"temp", "tmep", 1}, {"top-k", "top_k", 0}, {"TOP-K", "top-k", 0}, {"kitten", "sitting", 3},
        {"ca", "abc", 3}, {"learning-rate", "learningrate", 1}};
    char longer[100] = {0};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(llm_edit_distance(rows[i].a, rows[i].b), rows[i].d);
        assert_int_equal(llm_edit_distance(rows[i].b, rows[i].a), rows[i].d);
    }
    memset(longer, 'x', sizeof longer - 1);
    assert_true(llm_edit_distance(longer, "x") > 1000);
}

/* What is near: few wrong letters, other separators, one letter missing among others that changed places. */
static void suggestions(void **state)
{
    static const char *const known[] = {"nano", "tiny", "q4_k_m", "q4_k_s", "q8_0", "t5-mini", "rnn"};
    static const struct { const char *word, *text; } rows[] = {
        {"tni", " (did you mean tiny?)"}, {"tin", " (did you mean tiny?)"}, {"tyn", " (did you mean tiny?)"}, {"q4km", " (did you mean q4_k_m?)"},
        {"Q4KM", " (did you mean q4_k_m?)"}, {"t5mini", " (did you mean t5-mini?)"}, {"t5_mini", " (did you mean t5-mini?)"}, {"yin", ""}, {"ti", ""},
        {"foo", ""}, {"", ""}, {"q80", " (did you mean q8_0?)"}, {"q4_km", " (did you mean q4_k_m?)"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct llm_suggest s;
        llm_suggest_begin(&s, rows[i].word);
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) llm_suggest_add(&s, known[k], known[k]);
        assert_string_equal(llm_suggest_text(&s, ""), rows[i].text);
    }
}

static void escapes(void **state)
{
    static const struct { const char *from, *to; } rows[] = {
        {"plain \\ text", "plain \\ text"}, {"a\nb\tc\r", "a\\nb\\tc\\r"}, {"\x1b[0m", "\\x1b[0m"}, {"\x7f", "\\x7f"}, {"\xff\xc3", "\\xff\\xc3"},
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"}, {"\xc2\x9b", "\\xc2\\x9b"}, {"\xe2\x80\xae!", "\\xe2\\x80\\xae!"}};
    char out[100], small[6];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(llm_utf8_escape(rows[i].from, strlen(rows[i].from), out, sizeof out), strlen(rows[i].to));
        assert_string_equal(out, rows[i].to);
    }
    assert_int_equal(llm_utf8_escape("ab\x1bz", 4, small, sizeof small), 2); /* what does not fit is not begun */
    assert_string_equal(small, "ab");
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(other_names), cmocka_unit_test(operands_move_behind_options),
        cmocka_unit_test(misuse), cmocka_unit_test(misuse_says_what_helps), cmocka_unit_test(json_takes_the_same_names),
        cmocka_unit_test(edit_distances), cmocka_unit_test(suggestions), cmocka_unit_test(escapes), cmocka_unit_test(help_is_success)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
