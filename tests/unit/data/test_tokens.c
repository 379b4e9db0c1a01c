/* Token streams: equal messages, documents that continue, files and pipes read at random, strangers refused. */
#include "../io/fixture.h"

#include "data/tokens.h"

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static int32_t id_at(uint64_t i, int32_t vocab)
{
    return (int32_t)(i * 2654435761u % (uint64_t)vocab);
}

/* n tokens, put `step` at a time, a document every `doc` of them. */
static void write_tokens(const char *path, const char *id, int32_t vocab, size_t n, size_t step, size_t doc, bool mask)
{
    struct llm_err e = {0};
    struct llm_output *o = llm_output_open(path, true, &e);
    struct llm_tokens_writer *w = llm_tokens_writer_create(o, id, vocab, mask, &e);
    int32_t *ids = malloc((step + 1) * sizeof *ids);
    uint8_t *masks = malloc(step + 1);
    assert_true(o && w && ids && masks);
    for (size_t at = 0, now; at < n; at += now) {
        now = n - at < step ? n - at : step;
        if (doc && now > doc - at % doc) now = doc - at % doc;
        for (size_t i = 0; i < now; i++) {
            ids[i] = id_at(at + i, vocab);
            masks[i] = (at + i) % 3 != 0;
        }
        assert_int_equal(llm_tokens_put(w, ids, mask ? masks : NULL, now, &e), 0);
        if (doc && (at + now) % doc == 0) assert_int_equal(llm_tokens_end_document(w, &e), 0);
    }
    assert_int_equal(llm_tokens_finish(w, &e), 0);
    llm_tokens_writer_destroy(w);
    assert_int_equal(llm_output_commit(o, &e), 0);
    free(ids);
    free(masks);
}

static struct llm_tokens *open_one(const char *path, const char *id, int32_t vocab, struct llm_err *e)
{
    *e = (struct llm_err){0};
    return llm_tokens_open(&path, 1, id, vocab, e);
}

static void expect_ids(const struct llm_tokens *t, uint64_t at, size_t n, int32_t vocab, bool mask)
{
    int32_t ids[1000];
    uint8_t masks[1000];
    llm_tokens_get(t, at, n, ids, masks);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ids[i], id_at(at + i, vocab));
        assert_int_equal(masks[i], !mask || (at + i) % 3 != 0);
    }
}

static void round_trip(void **state)
{
    static const size_t counts[] = {1, 7, LLM_TOKENS_PER_MESSAGE, LLM_TOKENS_PER_MESSAGE + 5, 2 * LLM_TOKENS_PER_MESSAGE};
    struct llm_err e;
    (void)state;
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        size_t n = counts[k], n_ends;
        int32_t vocab = k % 2 ? 65536 : 100000;
        write_tokens("a.tok", ID_A, vocab, n, 999983, 4093, k & 1);
        struct llm_tokens *t = open_one("a.tok", ID_A, vocab, &e);
        if (!t) fail_msg("%s", e.text);
        assert_int_equal(llm_tokens_count(t), n);
        assert_int_equal(llm_tokens_vocab_size(t), vocab);
        assert_string_equal(llm_tokens_tokenizer(t), ID_A);
        const uint64_t *ends = llm_tokens_doc_ends(t, &n_ends);
        assert_int_equal(n_ends, n / 4093);
        for (size_t i = 0; i < n_ends; i++) assert_int_equal(ends[i], (i + 1) * 4093);
        for (uint64_t at = 0; at < n; at += 500000) expect_ids(t, at, n - at < 1000 ? n - at : 1000, vocab, k & 1);
        if (n > LLM_TOKENS_PER_MESSAGE) expect_ids(t, LLM_TOKENS_PER_MESSAGE - 3, 8, vocab, k & 1);
        llm_tokens_close(t);
    }
}

/* The bytes do not depend on how tokens came; nor does the fingerprint on how they are read. */
static void same_bytes(void **state)
{
    size_t n[2];
    unsigned char *bytes[2];
    char hex[3][17];
    struct llm_err e = {0};
    (void)state;
    write_tokens("a.tok", ID_A, 300, 30000, 7, 1000, false);
    write_tokens("b.tok", ID_A, 300, 30000, 30000, 1000, false);
    for (int i = 0; i < 2; i++) {
        bytes[i] = get_file(i ? "b.tok" : "a.tok", &n[i]);
        struct llm_tokens *t = open_one(i ? "b.tok" : "a.tok", NULL, 0, &e);
        assert_int_equal(llm_tokens_fingerprint(t, hex[i], &e), 0);
        llm_tokens_close(t);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    pid_t pid = pipe_in(bytes[0], n[0], 1000);
    struct llm_tokens *t = open_one("-", ID_A, 300, &e);
    pipe_done(pid);
    if (!t) fail_msg("%s", e.text);
    expect_ids(t, 29000, 1000, 300, false);
    assert_int_equal(llm_tokens_fingerprint(t, hex[2], &e), 0);
    llm_tokens_close(t);
    assert_string_equal(hex[0], hex[1]);
    assert_string_equal(hex[0], hex[2]);
    write_tokens("c.tok", ID_A, 300, 30000, 30000, 1001, false); /* documents count */
    t = open_one("c.tok", NULL, 0, &e);
    assert_int_equal(llm_tokens_fingerprint(t, hex[1], &e), 0);
    llm_tokens_close(t);
    assert_string_not_equal(hex[0], hex[1]);
    free(bytes[0]);
    free(bytes[1]);
}

/* `cat a.tok b.tok`, and two inputs, are one run of tokens. */
static void one_after_another(void **state)
{
    struct llm_err e = {0};
    const char *paths[] = {"a.tok", "cat.tok"};
    int32_t ids[10];
    (void)state;
    write_tokens("a.tok", ID_A, 300, 100, 100, 40, false);
    write_tokens("b.tok", ID_A, 300, 5, 5, 5, true);
    assert_int_equal(system("cat a.tok b.tok > cat.tok"), 0);
    struct llm_tokens *t = llm_tokens_open(paths, 2, ID_A, 300, &e);
    if (!t) fail_msg("%s", e.text);
    assert_int_equal(llm_tokens_count(t), 205);
    llm_tokens_get(t, 198, 7, ids, NULL);
    assert_int_equal(ids[0], id_at(98, 300));
    assert_int_equal(ids[2], id_at(0, 300));
    assert_int_equal(ids[6], id_at(4, 300));
    size_t n;
    const uint64_t *ends = llm_tokens_doc_ends(t, &n);
    assert_int_equal(n, 5);
    assert_int_equal(ends[4], 205);
    llm_tokens_close(t);
}

static void no_tokens(void **state)
{
    struct llm_err e = {0};
    (void)state;
    write_tokens("none.tok", ID_A, 300, 0, 1, 0, false);
    struct llm_tokens *t = open_one("none.tok", ID_A, 300, &e);
    if (!t) fail_msg("%s", e.text);
    assert_int_equal(llm_tokens_count(t), 0);
    llm_tokens_close(t);
}

static void strangers(void **state)
{
    struct llm_err e;
    size_t n;
    (void)state;
    write_tokens("a.tok", ID_A, 300, 100, 100, 40, false);
    assert_null(open_one("a.tok", ID_B, 300, &e));
    assert_int_equal(e.status, EX_DATAERR);
    assert_non_null(strstr(e.text, "another tokenizer"));
    assert_null(open_one("a.tok", ID_A, 200, &e));
    assert_int_equal(e.status, EX_DATAERR);
    assert_non_null(strstr(e.text, "expected below 200"));
    unsigned char *bytes = get_file("a.tok", &n);
    for (size_t cut = 0; cut < n; cut += 3) {
        put_file("cut.tok", bytes, cut);
        assert_null(open_one("cut.tok", ID_A, 300, &e));
        assert_int_equal(e.status, EX_DATAERR);
    }
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 1;
        put_file("flip.tok", bytes, n);
        assert_null(open_one("flip.tok", ID_A, 300, &e));
        assert_int_equal(e.status, EX_DATAERR);
        bytes[i] ^= 1;
    }
    free(bytes);
    put_file("text.tok", "Once upon a time there was", 26);
    assert_null(open_one("text.tok", ID_A, 300, &e));
    assert_int_equal(e.status, EX_DATAERR);
    assert_null(open_one("absent.tok", ID_A, 300, &e));
    assert_int_equal(e.status, EX_NOINPUT);
    struct llm_output *o = llm_output_open("x.tok", true, &e);
    struct llm_tokens_writer *w = llm_tokens_writer_create(o, ID_A, 300, false, &e);
    assert_int_equal(llm_tokens_put(w, (int32_t[]){300}, NULL, 1, &e), -1);
    assert_int_equal(llm_tokens_put(w, (int32_t[]){-1}, NULL, 1, &e), -1);
    llm_tokens_writer_destroy(w);
    llm_output_abandon(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip), cmocka_unit_test(same_bytes), cmocka_unit_test(one_after_another),
                                       cmocka_unit_test(no_tokens), cmocka_unit_test(strangers)};
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
