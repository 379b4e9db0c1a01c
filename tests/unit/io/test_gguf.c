/* GGUF: a file of the gguf package's own writer (tests/oracle/gguf_golden.py) read to the last value; files that are not believed. */
#include "fixture.h"

#include <math.h>

#include "io/checkpoint.h"
#include "io/gguf.h"

static struct llm_buf sample;

static void load_sample(void)
{
    struct llm_err e;
    FILE *f = fopen("tests/golden/formats/sample.gguf", "rb");
    assert_non_null(f);
    assert_int_equal(llm_buf_reserve(&sample, 1 << 16, &e), 0);
    sample.n = fread(sample.p, 1, 1 << 16, f);
    fclose(f);
    assert_true(sample.n > 1000);
}

static int parse(const void *p, size_t n, struct llm_gguf *g, struct llm_header *h, struct llm_err *e)
{
    *e = (struct llm_err){0};
    return llm_gguf_parse(g, h, p, n, "x", e);
}

static int64_t whole(const struct llm_gguf *g, const char *key)
{
    int64_t v = 12345;
    struct llm_err e;
    assert_int_equal(llm_gguf_int(g, key, INT64_MIN, INT64_MAX, &v, &e), 0);
    return v;
}

static void values(void **state)
{
    struct llm_gguf g;
    struct llm_header h;
    struct llm_err e;
    double real = 0;
    bool flag = false;
    const char *s = NULL;
    size_t n = 0;
    uint64_t at = 0;
    (void)state;
    if (parse(sample.p, sample.n, &g, &h, &e) < 0) fail_msg("%s", e.text);
    assert_int_equal(whole(&g, "t.u8"), 200);
    assert_int_equal(whole(&g, "t.i8"), -100);
    assert_int_equal(whole(&g, "t.u16"), 60000);
    assert_int_equal(whole(&g, "t.i16"), -30000);
    assert_int_equal(whole(&g, "t.u32"), 4000000000);
    assert_int_equal(whole(&g, "t.i32"), -2000000000);
    assert_int_equal(whole(&g, "t.u64"), (int64_t)1 << 40);
    assert_int_equal(whole(&g, "t.i64"), -((int64_t)1 << 40));
    assert_int_equal(whole(&g, "t.absent"), 12345);
    assert_int_equal(llm_gguf_real(&g, "t.f32", &real, &e), 0);
    assert_true(real == .15625);
    assert_int_equal(llm_gguf_real(&g, "t.f64", &real, &e), 0);
    assert_true(real == -2.5);
    assert_int_equal(llm_gguf_bool(&g, "t.bool", &flag, &e), 0);
    assert_true(flag);
    assert_int_equal(llm_gguf_str(&g, "t.string", &s, &n, &e), 0);
    assert_int_equal(n, strlen("grüße"));
    assert_memory_equal(s, "grüße", n);
    const struct llm_gguf_value *numbers = llm_gguf_find(&g, "t.numbers"), *words = llm_gguf_find(&g, "t.words");
    assert_true(numbers && numbers->is_array && numbers->n == 3 && llm_gguf_whole(numbers, 1) == -2 && llm_gguf_number(numbers, 2) == 3);
    assert_true(words && words->n == 3);
    assert_true(llm_gguf_next(words, &at, &s, &n) && n == 3 && memcmp(s, "one", 3) == 0);
    assert_true(llm_gguf_next(words, &at, &s, &n) && n == 0);
    assert_true(llm_gguf_next(words, &at, &s, &n) && n == 5 && memcmp(s, "three", 5) == 0);
    assert_false(llm_gguf_next(words, &at, &s, &n));
    /* other types, and what is out of range */
    int64_t v;
    assert_int_equal(llm_gguf_int(&g, "t.string", 0, 9, &v, &e), -1);
    assert_int_equal(llm_gguf_int(&g, "t.numbers", 0, 9, &v, &e), -1);
    assert_int_equal(llm_gguf_int(&g, "t.u8", 0, 199, &v, &e), -1);
    assert_non_null(strstr(e.text, "t.u8: expected 0 to 199, found 200"));
    assert_int_equal(llm_gguf_bool(&g, "t.u8", &flag, &e), -1);
    llm_gguf_release(&g);
    llm_header_release(&h);
}

/* The tensors' values, as a file (mapped) and as a pipe; (i - 50) / 8 in [2, 64]. */
static void check_tensors(struct llm_file *file)
{
    static const struct { const char *name; enum llm_dtype dtype; double most; } rows[] = {
        {"a.f32", LLM_F32, 0}, {"b.f16", LLM_F16, 0}, {"c.q8_0", LLM_Q8_0, .05}, {"d.q4_0", LLM_Q4_0, .8}, {"e.q5_1", LLM_Q5_1, .3},
        {"f.bf16", LLM_BF16, .05}};
    struct llm_err e;
    assert_non_null(file);
    struct llm_checkpoint *c = llm_checkpoint_from_file(file, &e);
    if (!c) fail_msg("%s", e.text);
    assert_non_null(llm_checkpoint_gguf(c));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct llm_entry *t = llm_header_find(llm_checkpoint_header(c), rows[i].name);
        unsigned char raw[512];
        float x[128];
        assert_true(t && t->dtype == rows[i].dtype && t->n_dims == 2 && t->shape[0] == 2 && t->shape[1] == 64);
        assert_int_equal(llm_checkpoint_read(c, t, raw, &e), 0);
        const void *lies = llm_checkpoint_borrow(c, t);
        assert_non_null(lies);
        assert_memory_equal(lies, raw, t->bytes);
        llm_dtypes[t->dtype].decode(raw, x, 128);
        for (int j = 0; j < 128; j++) assert_true(fabs((double)x[j] - (j - 50) / 8.0) <= rows[i].most);
    }
    llm_checkpoint_close(c);
}

static void tensors(void **state)
{
    struct llm_err e;
    (void)state;
    check_tensors(llm_file_open("tests/golden/formats/sample.gguf", &e));
    check_tensors(llm_file_from_memory(sample.p, sample.n, "memory", &e));
}

/* Cut anywhere: refused, unless only the last tensor's padding is gone. Any bit flipped: no crash, and what is accepted stays inside. */
static void cut_and_flipped(void **state)
{
    struct llm_gguf g;
    struct llm_header h;
    struct llm_err e;
    (void)state;
    for (size_t n = 0; n + 32 < sample.n; n++) {
        char *copy = malloc(n + 1); /* its own allocation: a byte too far is seen by the sanitizers */
        memcpy(copy, sample.p, n);
        assert_int_equal(parse(copy, n, &g, &h, &e), -1);
        assert_int_equal(e.status, EX_DATAERR);
        free(copy);
    }
    char *copy = malloc(sample.n);
    for (size_t at = 0; at < sample.n; at++) {
        memcpy(copy, sample.p, sample.n);
        copy[at] ^= (char)(1 << at % 8);
        if (parse(copy, sample.n, &g, &h, &e) < 0) continue;
        for (size_t i = 0; i < h.n_entries; i++) assert_true(h.header_bytes + h.entries[i].offset + h.entries[i].bytes <= sample.n);
        llm_gguf_release(&g);
        llm_header_release(&h);
    }
    free(copy);
}

/* A file in the making. */
static void put(struct llm_buf *b, uint64_t v, int bytes)
{
    struct llm_err e;
    char raw[8];
    for (int i = 0; i < bytes; i++) raw[i] = (char)(v >> (8 * i));
    assert_int_equal(llm_buf_put(b, raw, (size_t)bytes, &e), 0);
}

static void put_text(struct llm_buf *b, const char *text)
{
    struct llm_err e;
    put(b, strlen(text), 8);
    assert_int_equal(llm_buf_put(b, text, strlen(text), &e), 0);
}

static void begin(struct llm_buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_values)
{
    struct llm_err e;
    b->n = 0;
    assert_int_equal(llm_buf_put(b, "GGUF", 4, &e), 0);
    put(b, version, 4);
    put(b, n_tensors, 8);
    put(b, n_values, 8);
}

static void put_tensor(struct llm_buf *b, const char *name, uint64_t rows, uint64_t cols, uint32_t type, uint64_t offset)
{
    put_text(b, name);
    put(b, 2, 4);
    put(b, cols, 8);
    put(b, rows, 8);
    put(b, type, 4);
    put(b, offset, 8);
}

static void refused(struct llm_buf *b, const char *why)
{
    struct llm_gguf g;
    struct llm_header h;
    struct llm_err e;
    for (int i = 0; i < 512; i++) put(b, 0, 1); /* data enough */
    assert_int_equal(parse(b->p, b->n, &g, &h, &e), -1);
    assert_int_equal(e.status, EX_DATAERR);
    if (!strstr(e.text, why)) fail_msg("expected '%s' in: %s", why, e.text);
    b->n = 0;
}

static void bad_files(void **state)
{
    struct llm_buf b = {0};
    (void)state;
    begin(&b, 1, 0, 0);
    refused(&b, "version 2 or 3, found 1");
    begin(&b, 0x03000000, 0, 0);
    refused(&b, "big-endian");
    begin(&b, 3, UINT64_MAX, 0);
    refused(&b, "number of tensors");
    begin(&b, 3, 0, (uint64_t)1 << 63);
    refused(&b, "number of metadata values");
    begin(&b, 3, 0, 1);
    put(&b, UINT64_MAX, 8); /* a key's length */
    refused(&b, "key: expected at most");
    begin(&b, 3, 0, 1);
    put_text(&b, "k");
    put(&b, 13, 4);
    refused(&b, "k: unknown type 13");
    begin(&b, 3, 0, 1);
    put_text(&b, "k");
    put(&b, 9, 4);
    put(&b, 9, 4);
    refused(&b, "arrays of arrays");
    begin(&b, 3, 0, 1);
    put_text(&b, "k");
    put(&b, 9, 4);
    put(&b, 10, 4);
    put(&b, (uint64_t)1 << 61, 8);
    refused(&b, "k: expected at most");
    begin(&b, 3, 0, 1);
    put_text(&b, "k");
    put(&b, 7, 4);
    put(&b, 2, 1);
    refused(&b, "expected 0 or 1, found 2");
    begin(&b, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_text(&b, "k");
        put(&b, 0, 4);
        put(&b, 1, 1);
    }
    refused(&b, "k: stands twice");
    begin(&b, 3, 0, 1);
    put_text(&b, "general.alignment");
    put(&b, 4, 4);
    put(&b, 24, 4);
    refused(&b, "power of two, found 24");
    llm_buf_release(&b);
}

static void bad_tensors(void **state)
{
    struct llm_buf b = {0};
    (void)state;
    begin(&b, 3, 1, 0);
    put_tensor(&b, "t", (uint64_t)1 << 40, (uint64_t)1 << 40, 0, 0);
    refused(&b, "too many elements");
    begin(&b, 3, 1, 0);
    put_tensor(&b, "t", 1, 32, 4, 0); /* Q4_2, gone long ago */
    refused(&b, "unknown or unsupported type 4");
    begin(&b, 3, 1, 0);
    put_tensor(&b, "t", 64, 33, 8, 0);
    refused(&b, "whole blocks of 32 (q8_0), found 33");
    begin(&b, 3, 1, 0);
    put_tensor(&b, "t", 2, 32, 0, 4);
    refused(&b, "multiple of 32, found 4");
    begin(&b, 3, 1, 0);
    put_tensor(&b, "t", 1, 32, 0, UINT64_MAX - 31);
    refused(&b, "cut short");
    begin(&b, 3, 1, 0);
    put_tensor(&b, "t", 64, 64, 0, 0);
    refused(&b, "cut short");
    begin(&b, 3, 2, 0);
    put_tensor(&b, "t", 2, 32, 0, 0);
    put_tensor(&b, "u", 2, 32, 0, 32);
    refused(&b, "tensor 'u': overlaps another");
    begin(&b, 3, 2, 0);
    put_tensor(&b, "t", 1, 8, 0, 0);
    put_tensor(&b, "t", 1, 8, 0, 32);
    refused(&b, "tensor 't': stands twice");
    begin(&b, 3, 1, 0);
    put_text(&b, "t");
    put(&b, 5, 4);
    refused(&b, "at most 4 dimensions, found 5");
    llm_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(tensors), cmocka_unit_test(cut_and_flipped),
                                       cmocka_unit_test(bad_files), cmocka_unit_test(bad_tensors)};
    load_sample();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    llm_buf_release(&sample);
    return failed;
}
