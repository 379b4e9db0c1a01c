/* A feed cuts the rows that the mapped file gives, over the borders of messages and files, and counts what it passed. */
#include "../io/fixture.h"

#include "base/hash.h"
#include "data/feed.h"

enum { VOCAB = 300, LENGTH = 1000 };

static int32_t id_at(uint64_t i) { return (int32_t)(i * 2654435761u % VOCAB); }

/* n tokens that go on from `first`, documents of 700. */
static void write_tokens(const char *path, uint64_t first, uint64_t n, bool mask)
{
    struct llm_err e = {0};
    struct llm_output *o = llm_output_open(path, true, &e);
    struct llm_tokens_writer *w = llm_tokens_writer_create(o, "aaaa", VOCAB, mask, &e);
    assert_true(o && w);
    for (uint64_t i = first; i < first + n; i++) {
        int32_t id = id_at(i);
        uint8_t counts = i % 5 != 0;
        assert_int_equal(llm_tokens_put(w, &id, &counts, 1, &e), 0);
        if (i % 700 == 699) assert_int_equal(llm_tokens_end_document(w, &e), 0);
    }
    assert_int_equal(llm_tokens_finish(w, &e), 0);
    llm_tokens_writer_destroy(w);
    assert_int_equal(llm_output_commit(o, &e), 0);
}

static void compare(const char *const *paths, size_t n_paths, uint64_t total, uint64_t stride)
{
    struct llm_err e = {0};
    struct llm_rows a, b;
    struct llm_tokens *t = llm_tokens_open(paths, n_paths, "aaaa", VOCAB, &e);
    struct llm_feed *f = llm_feed_create(paths, n_paths, "aaaa", VOCAB, &e);
    if (!t || !f) fail_msg("%s", e.text);
    assert_int_equal(llm_feed_vocab_size(f), VOCAB);
    assert_int_equal(llm_rows_init(&a, 2, LENGTH, &e), 0);
    assert_int_equal(llm_rows_init(&b, 2, LENGTH, &e), 0);
    uint64_t at = 0;
    for (; at + LENGTH + 1 <= total; at += stride) {
        int64_t row = (int64_t)(at / stride % 2);
        bool cross = at % 3 == 0;
        uint64_t ahead = at - llm_feed_position(f);
        llm_rows_cut(&a, row, t, at, LENGTH + 1, cross);
        if (llm_feed_cut(f, &b, row, ahead, cross, &e) != 1) fail_msg("%s", e.text);
        assert_memory_equal(a.ids + row * LENGTH, b.ids + row * LENGTH, LENGTH * sizeof *a.ids);
        assert_memory_equal(a.targets + row * LENGTH, b.targets + row * LENGTH, LENGTH * sizeof *a.ids);
        assert_memory_equal(a.positions + row * LENGTH, b.positions + row * LENGTH, LENGTH * sizeof *a.ids);
        assert_memory_equal(a.doc_start + row * LENGTH, b.doc_start + row * LENGTH, LENGTH * sizeof *a.ids);
        if (row) assert_int_equal(llm_feed_advance(f, stride + ahead, &e), 0); /* every other time */
    }
    assert_int_equal(llm_feed_cut(f, &b, 0, at - llm_feed_position(f), false, &e), 0); /* the end */
    uint64_t passed = llm_feed_position(f);
    int32_t *ids = malloc(passed * sizeof *ids);
    assert_non_null(ids);
    for (uint64_t i = 0; i < passed; i++) ids[i] = id_at(i);
    assert_int_equal(llm_feed_hash(f), llm_xxh64(ids, passed * sizeof *ids, 0));
    free(ids);
    llm_rows_release(&a);
    llm_rows_release(&b);
    llm_tokens_close(t);
    llm_feed_destroy(f);
}

static void test_messages(void **state)
{
    (void)state;
    const uint64_t n = LLM_TOKENS_PER_MESSAGE + 5000;
    write_tokens("long.tok", 0, n, false);
    compare((const char *const[]){"long.tok"}, 1, n, 99991);
}

static void test_files(void **state)
{
    (void)state;
    write_tokens("a.tok", 0, 3500, true);
    write_tokens("b.tok", 3500, 0, true);
    write_tokens("c.tok", 3500, 2800, true);
    compare((const char *const[]){"a.tok", "b.tok", "c.tok"}, 3, 6300, 301);
}

static void test_refusals(void **state)
{
    (void)state;
    struct llm_err e = {0};
    struct llm_rows r;
    const char *path = "a.tok";
    assert_int_equal(llm_rows_init(&r, 1, LENGTH, &e), 0);
    write_tokens("a.tok", 0, 3500, false);
    assert_null(llm_feed_create(&path, 1, "bbbb", VOCAB, &e));
    assert_int_equal(e.status, EX_DATAERR);
    assert_null(llm_feed_create(&path, 1, "aaaa", 100, &e));
    assert_int_equal(e.status, EX_DATAERR);
    assert_non_null(strstr(e.text, "expected below 100"));
    assert_int_equal(truncate("a.tok", 6000), 0);
    assert_null(llm_feed_create(&path, 1, "aaaa", VOCAB, &e));
    assert_non_null(strstr(e.text, "cut short"));
    path = "none.tok";
    assert_null(llm_feed_create(&path, 1, "aaaa", VOCAB, &e));
    assert_int_equal(e.status, EX_NOINPUT);
    /* no tokens at all: no row */
    path = "b.tok";
    write_tokens("b.tok", 0, 0, false);
    struct llm_feed *f = llm_feed_create(&path, 1, "aaaa", VOCAB, &e);
    assert_non_null(f);
    assert_int_equal(llm_feed_cut(f, &r, 0, 0, false, &e), 0);
    llm_feed_destroy(f);
    llm_rows_release(&r);
}

/* 0: the whole stream is good. */
static int whole_feed(const char *path, struct llm_err *e)
{
    struct llm_feed *f = llm_feed_create(&path, 1, NULL, 0, e);
    int got = f ? llm_feed_advance(f, 1 << 20, e) : -1;
    llm_feed_destroy(f);
    return got;
}

/* Whatever byte is changed and wherever the file ends: a feed takes it exactly when the reader of files does. */
static void test_damage(void **state)
{
    (void)state;
    struct llm_err e = {0};
    unsigned char bytes[4096];
    const char *path = "x.tok";
    write_tokens("a.tok", 0, 90, true);
    FILE *f = fopen("a.tok", "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f), refused = 0;
    fclose(f);
    assert_true(n > 500 && n < sizeof bytes);
    for (size_t i = 0; i < 3 * n; i++) {
        size_t at = i / 3;
        unsigned char kept = bytes[at];
        if (i % 3) bytes[at] ^= i % 3 == 1 ? 0x01 : 0x90;
        put_file(path, bytes, i % 3 ? n : at);
        bytes[at] = kept;
        struct llm_tokens *t = llm_tokens_open(&path, 1, NULL, 0, &e);
        if ((whole_feed(path, &e) == 0) != (t != NULL)) fail_msg("byte %zu, way %zu: %s", at, i % 3, e.text);
        refused += !t;
        llm_tokens_close(t);
    }
    print_message("  %zu of %zu refused\n", refused, 3 * n);
    assert_true(refused > 3 * n * 9 / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_messages, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_files, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_refusals, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_damage, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
