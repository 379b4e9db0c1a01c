/* The goldens of tests/golden/formats, good and bad, by lib/io and by the second reader; and what lib/io writes by the second reader. */
#include "fixture.h"
#include "second_reader.h"

#include "io/checkpoint.h"
#include "io/sniff.h"

#define GOLDEN "tests/golden/formats/"
static char root[3000];

/* Whether lib/io takes the file; what it holds as the second reader writes it. */
static bool first_stream(struct second *s, const char *path, struct llm_err *e)
{
    const struct llm_header *h;
    int got = -1;
    struct llm_stream *in = llm_stream_create(path, e);
    while (in && (got = llm_stream_next(in, &h, e)) > 0) {
        second_says(s, "message", h->kind ? h->kind : "", h->header_bytes - 8, 0);
        for (size_t i = 0; i < h->n_entries && got > 0; i++) {
            const struct llm_entry *t = &h->entries[i];
            const char *native = llm_dtypes[t->dtype].safetensors;
            unsigned char small[1000];
            if (t->bytes > sizeof small) { /* claimed, and not there */
                got = llm_stream_read(in, small, sizeof small, e) < 0 ? -1 : 1;
                continue;
            }
            if (llm_stream_read(in, small, t->bytes, e) < 0) got = -1;
            else second_says(s, t->name, native ? native : llm_dtypes[t->dtype].name, t->bytes, XXH64(small, t->bytes, 0));
        }
        if (got < 0) break;
    }
    llm_stream_destroy(in);
    return got == 0;
}

static bool first_checkpoint(struct second *s, const char *path, struct llm_err *e)
{
    struct llm_checkpoint *c = llm_checkpoint_open(path, e);
    if (!c) return false;
    const struct llm_header *h = llm_checkpoint_header(c);
    bool good = true;
    second_says(s, "message", h->kind ? h->kind : "", h->header_bytes - 8, 0);
    for (size_t i = 0; i < h->n_entries && good; i++) {
        const struct llm_entry *t = &h->entries[i];
        unsigned char *p = malloc(t->bytes + 1);
        good = llm_checkpoint_read(c, t, p, e) == 0;
        if (good)
            second_says(s, t->name, llm_dtypes[t->dtype].safetensors ? llm_dtypes[t->dtype].safetensors : llm_dtypes[t->dtype].name, t->bytes,
                        XXH64(p, t->bytes, 0));
        free(p);
    }
    llm_checkpoint_close(c);
    return good;
}

static bool is_checkpoint(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot, ".llm") == 0;
}

static bool first(struct second *s, const char *path, bool pipe, struct llm_err *e)
{
    size_t n;
    *e = (struct llm_err){0};
    if (!pipe) return is_checkpoint(path) ? first_checkpoint(s, path, e) : first_stream(s, path, e);
    unsigned char *bytes = get_file(path, &n);
    pid_t pid = pipe_in(bytes, n, 50);
    bool good = is_checkpoint(path) ? first_checkpoint(s, "-", e) : first_stream(s, "-", e);
    pipe_done(pid);
    free(bytes);
    return good;
}

static bool second(struct second *s, const char *path)
{
    size_t n;
    unsigned char *bytes = get_file(path, &n);
    bool good = is_checkpoint(path) ? second_checkpoint(s, bytes, n) : second_stream(s, bytes, n);
    free(bytes);
    return good;
}

static int next_row(FILE *list, char path[4000], char says[100])
{
    char file[100];
    if (fscanf(list, "%99[^\t]\t%99[^\n]\n", file, says) != 2) return 0;
    snprintf(path, 4000, "%s/" GOLDEN "%s", root, file);
    return 1;
}

static FILE *open_list(const char *name)
{
    char path[4000];
    snprintf(path, sizeof path, "%s/" GOLDEN "%s", root, name);
    FILE *list = fopen(path, "r");
    assert_non_null(list);
    return list;
}

static void good_goldens(void **state)
{
    char path[4000], says[100];
    struct llm_err e;
    (void)state;
    FILE *list = open_list("good.tsv");
    for (int n = 0; next_row(list, path, says) || (assert_true(n >= 9), 0); n++) {
        struct second a = {0}, b = {0}, c = {0};
        if (!first(&a, path, false, &e)) fail_msg("%s", e.text);
        if (!first(&b, path, true, &e)) fail_msg("%s: pipe: %s", path, e.text);
        if (!second(&c, path)) fail_msg("%s: second reader", path);
        assert_string_equal(a.text, b.text);
        assert_string_equal(a.text, c.text);
        if (strcmp(says, "checkpoint") == 0 && !is_checkpoint(path)) {
            struct llm_checkpoint *plain = llm_checkpoint_open(path, &e);
            assert_non_null(plain);
            llm_checkpoint_close(plain);
        }
        free(a.text);
        free(b.text);
        free(c.text);
    }
    fclose(list);
}

static void bad_goldens(void **state)
{
    char path[4000], says[100], before[sizeof((struct llm_err *)0)->text] = "";
    struct llm_err e;
    (void)state;
    FILE *list = open_list("bad.tsv");
    for (int n = 0; next_row(list, path, says) || (assert_true(n >= 50), 0); n++) {
        for (int pipe = 0; pipe < 2; pipe++) {
            struct second s = {0};
            if (first(&s, path, pipe, &e)) fail_msg("%s: accepted%s", path, pipe ? " from a pipe" : "");
            if (e.status != EX_DATAERR || (!pipe && !strstr(e.text, says)))
                fail_msg("%s: expected '%s', found %d '%s'", path, says, e.status, e.text);
            /* of messages, which are read in order either way, also the words are the same */
            if (pipe && !is_checkpoint(path) && strcmp(strchr(e.text, ':'), strchr(before + strlen(path) - 1, ':')) != 0)
                fail_msg("%s: from a pipe '%s', from the file '%s'", path, e.text, before);
            memcpy(before, e.text, sizeof before);
            free(s.text);
        }
        struct second s = {0};
        if (second(&s, path)) fail_msg("%s: accepted by the second reader", path);
        free(s.text);
    }
    fclose(list);
}

static void what_we_write(void **state)
{
    static const uint16_t half[5] = {1, 2, 3, 0x8004, 5};
    static const double wide[3] = {1, -2, 3};
    static const unsigned char block[34] = {1, 2, 3};
    const struct llm_tensor_out t[] = {
        {"h", LLM_BF16, 1, {5}, half}, {"w", LLM_F64, 2, {3, 1}, wide}, {"q", LLM_Q8_0, 2, {1, 32}, block}, {"e", LLM_F32, 1, {0}, NULL}};
    struct llm_err e = {0};
    (void)state;
    for (int planes = 0; planes < 2; planes++) {
        const struct llm_checkpoint_options opt = {.planes = planes};
        struct llm_output *o = llm_output_open("ours.llm", true, &e);
        assert_int_equal(llm_checkpoint_write(o, NULL, t, 4, &opt, &e), 0);
        assert_int_equal(llm_output_commit(o, &e), 0);
        o = llm_output_open("ours.tensors", true, &e);
        struct llm_writer *w = llm_writer_create(o, &e);
        assert_int_equal(llm_writer_message(w, "test", NULL, t, 4, &e), 0);
        assert_int_equal(llm_writer_message(w, "test", NULL, t, 2, &e), 0);
        assert_int_equal(llm_writer_end(w, &e), 0);
        llm_writer_destroy(w);
        assert_int_equal(llm_output_commit(o, &e), 0);
        for (int i = 0; i < 2; i++) {
            struct second a = {0}, b = {0};
            const char *path = i ? "ours.llm" : "ours.tensors";
            assert_true(first(&a, path, false, &e));
            assert_true(second(&b, path));
            assert_string_equal(a.text, b.text);
            free(a.text);
            free(b.text);
        }
    }
}

static void contents_are_recognised(void **state)
{
    static const struct { const char *file; enum llm_content content; const char *kind; } rows[] = {
        {"checkpoint.llm", LLM_CONTENT_CHECKPOINT, ""}, {"tokens.tok", LLM_CONTENT_MESSAGE, "tokens"}, {"cache.kv", LLM_CONTENT_MESSAGE, "kvcache"},
        {"foreign.safetensors", LLM_CONTENT_MESSAGE, ""}, {"bad/plain-zstd.llm", LLM_CONTENT_ZSTD, ""}, {"bad/empty.tensors", LLM_CONTENT_EMPTY, ""},
        {"good.tsv", LLM_CONTENT_TEXT, ""}};
    char path[4000], kind[32];
    struct llm_err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum llm_content content;
        snprintf(path, sizeof path, "%s/" GOLDEN "%s", root, rows[i].file);
        struct llm_file *f = llm_file_open(path, &e);
        assert_non_null(f);
        assert_int_equal(llm_sniff(f, &content, &e), 0);
        assert_int_equal(content, rows[i].content);
        assert_int_equal(llm_sniff_kind(f, kind, &e), 0);
        assert_string_equal(kind, rows[i].kind);
        assert_int_equal(llm_file_offset(f), 0);
        llm_file_close(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(good_goldens), cmocka_unit_test(bad_goldens), cmocka_unit_test(what_we_write),
                                       cmocka_unit_test(contents_are_recognised)};
    if (!getcwd(root, sizeof root)) return 1;
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
