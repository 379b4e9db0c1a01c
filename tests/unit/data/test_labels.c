/* Labels in token streams: they come back with their documents, over messages and files; what is wrong is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cpu/pool.h"
#include "data/tokens.h"

static char folder[] = "/tmp/llm-labels.XXXXXX";

/* A stream of `n` documents of `length` tokens, of the classes listed over and over; NULL: without. */
static void write_stream(const char *name, const char *const *labels, int n_labels, int n, size_t length)
{
    struct llm_err e = {0};
    int32_t *ids = calloc(length, sizeof *ids);
    struct llm_output *o = llm_output_open(name, true, &e);
    struct llm_tokens_writer *w = llm_tokens_writer_create(o, "aaaa", 300, false, &e);
    assert_non_null(w);
    for (int i = 0; i < n; i++) {
        if (labels) assert_int_equal(llm_tokens_label(w, labels[i % n_labels], &e), 0);
        assert_int_equal(llm_tokens_put(w, ids, NULL, length, &e), 0);
        assert_int_equal(llm_tokens_end_document(w, &e), 0);
    }
    assert_int_equal(llm_tokens_finish(w, &e), 0);
    llm_tokens_writer_destroy(w);
    assert_int_equal(llm_output_commit(o, &e), 0);
    free(ids);
}

static void test_come_back(void **state)
{
    static const char *const one[] = {"b", "a"}, *const other[] = {"c", "b", "\xc3\xa4"};
    static const char *const want[] = {"b", "a", "b", "c", "b", "\xc3\xa4", "c"};
    const char *const paths[] = {"one.tok", "other.tok"}, *swapped[] = {"other.tok", "one.tok"};
    struct llm_err e = {0};
    const struct llm_labels *names;
    char first[17], second[17];
    (void)state;
    write_stream("one.tok", one, 2, 3, (1 << 22) - 5); /* a document a message, and some of the next */
    write_stream("other.tok", other, 3, 4, 7);
    struct llm_tokens *t = llm_tokens_open(paths, 2, NULL, 0, &e);
    if (!t) fail_msg("%s", e.text);
    const int32_t *labels = llm_tokens_labels(t, &names);
    assert_non_null(labels);
    assert_int_equal(llm_labels_count(names), 4);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) assert_string_equal(llm_labels_name(names, labels[i]), want[i]);
    assert_int_equal(llm_tokens_fingerprint(t, first, &e), 0);
    llm_tokens_close(t);
    t = llm_tokens_open(swapped, 2, NULL, 0, &e);
    assert_non_null(t);
    assert_int_equal(llm_tokens_fingerprint(t, second, &e), 0);
    assert_string_not_equal(first, second);
    llm_tokens_close(t);
}

static void test_some_without(void **state)
{
    static const char *const one[] = {"b", "a"};
    const char *const paths[] = {"with.tok", "without.tok"}, *const swapped[] = {"without.tok", "with.tok"};
    struct llm_err e = {0};
    (void)state;
    write_stream("with.tok", one, 2, 3, 5);
    write_stream("without.tok", NULL, 0, 3, 5);
    assert_null(llm_tokens_open(paths, 2, NULL, 0, &e));
    assert_int_equal(e.status, EX_DATAERR);
    assert_null(llm_tokens_open(swapped, 2, NULL, 0, &e));
    assert_string_equal(e.text, "with.tok: expected labels in all messages with documents, or in none");
}

static void test_damaged(void **state)
{
    static const char *const one[] = {"b", "a"};
    struct llm_err e = {0};
    const char *path = "damaged.tok";
    char bytes[2048];
    (void)state;
    write_stream(path, one, 2, 3, 5);
    for (int kind = 0; kind < 3; kind++) {
        FILE *f = fopen("damaged.tok", "r+b");
        size_t n = fread(bytes, 1, sizeof bytes, f);
        char *at = memmem(bytes, n, kind == 0 ? "[\\\"b\\\"" : kind == 1 ? "[\\\"c\\\"" : "llm.labels", kind < 2 ? 6 : 10);
        assert_non_null(at);
        if (kind == 0) memcpy(at, "[\\\"c\\\"", 6); /* another name is another name */
        if (kind == 1) memcpy(at, "[\\\"a\\\"", 6); /* twice */
        if (kind == 2) memcpy(at, "llm.label_", 10);
        rewind(f);
        assert_int_equal(fwrite(bytes, 1, n, f), n);
        fclose(f);
        struct llm_tokens *t = llm_tokens_open(&path, 1, NULL, 0, &e);
        assert_null(t); /* the message's hash, or what it says */
        assert_int_equal(e.status, EX_DATAERR);
    }
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_come_back), cmocka_unit_test(test_some_without), cmocka_unit_test(test_damaged)};
    if (!mkdtemp(folder) || chdir(folder) != 0 || llm_pool_start(1, &e) < 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    const char *const files[] = {"one.tok", "other.tok", "with.tok", "without.tok", "damaged.tok"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(files[i]);
    if (chdir("/") != 0 || rmdir(folder) != 0) return 1;
    return failed;
}
