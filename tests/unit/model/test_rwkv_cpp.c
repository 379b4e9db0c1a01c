/* Files of rwkv.cpp: the logits that its tests expect after the bytes of "in (a quote, then "in"), in every data type that the shared files have; a
 * small file, cut anywhere, or with a number changed, is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cpu/pool.h"
#include "io/rwkv_cpp.h"
#include "model/model.h"

#define FOLDER "../shared/data/models/rwkv-tiny/"
enum { VOCAB = 256, ARENA = 1 << 26 };

/* The greatest difference from the expected logits, relative to their range. */
static double difference(const char *name, const float *want)
{
    char path[128];
    struct llm_err e;
    struct llm_ctx c;
    snprintf(path, sizeof path, FOLDER "tiny-rwkv-%s.bin", name);
    struct llm_model *m = llm_model_load(path, &e);
    if (!m) fail_msg("%s", e.text);
    assert_int_equal(llm_ctx_init(&c, ARENA, 64, false, &e), 0);
    c.compute = LLM_COMPUTE_F32;
    const struct llm_batch b = {.ids = (int32_t[]){'"', 'i', 'n'}, .positions = (int32_t[]){0, 1, 2}, .n_tokens = 3};
    struct llm_tensor *y = llm_model_logits(&c, m, llm_model_forward(&c, m, &b));
    if (llm_ctx_failed(&c)) fail_msg("%s", c.err.text);
    assert_int_equal(y->cols, VOCAB);
    float low = INFINITY, high = -INFINITY;
    double worst = 0;
    for (int i = 0; i < VOCAB; i++) {
        worst = fmax(worst, fabs((double)y->data[2 * y->stride + i] - (double)want[i]));
        low = fminf(low, want[i]);
        high = fmaxf(high, want[i]);
    }
    llm_ctx_release(&c);
    llm_model_destroy(m);
    return worst / (double)(high - low);
}

static void test_logits(void **state)
{
    static const struct { const char *model, *type; double most; } files[] = {
        {"4v0-660K", "FP32", 1e-6}, {"4v0-660K", "FP16", 1e-3}, {"4v0-660K", "Q5_0", .03}, {"4v0-660K", "Q5_1", .03}, {"5v2-730K", "FP32", 1e-6},
        {"6v0-3m", "Q5_1", .01}, {"7v0-834K", "FP32", 1e-6}, {"7v0-834K", "FP16", 1e-3}, {"7v0-834K", "Q5_0", .03},
        {"7v0-834K", "Q5_1", .03}};
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[64];
        float want[VOCAB];
        snprintf(name, sizeof name, FOLDER "expected-logits-%s.bin", files[i].model);
        FILE *in = fopen(name, "rb");
        if (!in) skip();
        assert_int_equal(fread(want, sizeof *want, VOCAB, in), VOCAB);
        fclose(in);
        snprintf(name, sizeof name, "%s-%s", files[i].model, files[i].type);
        double found = difference(name, want);
        print_message("  %-14s worst difference %.1e of the range\n", name, found);
        if (!(found <= files[i].most)) fail_msg("%s: logits differ by %g of their range", name, found);
    }
}

/* The golden of formats/rwkv_cpp.md: a header of two layers, then an F32 matrix [2, 3] and a Q5_0 vector [32]. */
static size_t small_file(unsigned char out[256])
{
    FILE *in = fopen("tests/golden/formats/small.rwkv", "rb");
    assert_non_null(in);
    size_t n = fread(out, 1, 256, in);
    fclose(in);
    return n;
}

static int parse(const unsigned char *p, size_t n, struct llm_header *h, struct llm_err *e)
{
    struct llm_rwkv_cpp f;
    unsigned char *exact = malloc(n); /* so that a sanitizer sees what is read beyond */
    memcpy(exact, p, n);
    int got = llm_rwkv_cpp_parse(&f, h, exact, n, "file", e);
    if (got == 0) assert_true(f.vocab == 5 && f.width == 3 && f.layers == 2);
    free(exact);
    return got;
}

static void test_bad(void **state)
{
    /* Where a number stands, what it becomes, and the words of the message. */
    static const struct { size_t at; unsigned char value; const char *say; } changes[] = {
        {0, 'x', "version 100 or 101"}, {4, 102, "version 100 or 101"}, {24, 0, "dimensions"}, {24, 4, "dimensions"}, {28, 0, "name"},
        {32, 4, "data type"}, {32, 200, "data type"}, {36, 0, "too many elements"}, {39, 0x7f, "cut short"}, {44, 0, "without NUL"},
        {4, 100, "version 101 of the file"}, {81, 33, "whole blocks"}};
    unsigned char file[256];
    struct llm_header h;
    struct llm_err e = {0};
    const size_t n = small_file(file);
    (void)state;
    if (parse(file, n, &h, &e) < 0) fail_msg("%s", e.text);
    assert_int_equal(h.n_entries, 2);
    const struct llm_entry *a = llm_header_find(&h, "a"), *b = llm_header_find(&h, "bc");
    assert_true(a && a->n_dims == 2 && a->shape[0] == 2 && a->shape[1] == 3 && a->dtype == LLM_F32 && a->bytes == 24);
    assert_true(b && b->n_dims == 1 && b->shape[0] == 32 && b->dtype == LLM_Q5_0 && b->bytes == 22);
    llm_header_release(&h);
    for (size_t cut = 1; cut < n; cut++) {
        if (cut == 24 || cut == 69) continue; /* between two tensors; what is missing is found when the model is made */
        assert_int_equal(parse(file, cut, &h, &e), -1);
        assert_int_equal(e.status, EX_DATAERR);
    }
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        small_file(file);
        file[changes[i].at] = changes[i].value;
        assert_int_equal(parse(file, n, &h, &e), -1);
        if (!strstr(e.text, changes[i].say)) fail_msg("byte %zu: %s", changes[i].at, e.text);
    }
    size_t same = small_file(file);
    memcpy(file + same, file + 24, 45);
    assert_int_equal(parse(file, same + 45, &h, &e), -1);
    assert_non_null(strstr(e.text, "'a': stands twice"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_logits), cmocka_unit_test(test_bad)};
    struct llm_err e;
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
