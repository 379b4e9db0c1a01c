/* Pictures: what is read, and what augmentation makes of them, by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/pictures.h"
#include "io/message.h"

enum { SIDE = 3, SIZE = SIDE * SIDE };
static const float pixels[2 * SIZE] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 60, 70, 80, 90};
static char path[] = "/tmp/test_pictures.XXXXXX";

/* Two pictures of classes 4 and 1, in a message each. */
static struct llm_pictures *make(void)
{
    static const int64_t labels[] = {4, 1};
    struct llm_err e;
    struct llm_output *o = llm_output_open(path, true, &e);
    struct llm_writer *w = llm_writer_create(o, &e);
    for (int i = 0; i < 2; i++) {
        const struct llm_tensor_out t[] = {{.name = "pixel_values", .dtype = LLM_F32, .n_dims = 5, .shape = {1, 1, 1, SIDE, SIDE},
                                            .data = pixels + i * SIZE},
                                           {.name = "labels", .dtype = LLM_I64, .n_dims = 1, .shape = {1}, .data = labels + i}};
        assert_int_equal(llm_writer_message(w, "images", NULL, t, 2, &e), 0);
    }
    assert_int_equal(llm_writer_end(w, &e), 0);
    llm_writer_destroy(w);
    assert_int_equal(llm_output_commit(o, &e), 0);
    const char *const paths[] = {path};
    struct llm_pictures *p = llm_pictures_open(paths, 1, &e);
    assert_non_null(p);
    return p;
}

static void expect(const float *got, const float *want)
{
    for (int i = 0; i < SIZE; i++) assert_true(got[i] == want[i]);
}

static void test_reading(void **state)
{
    (void)state;
    float got[SIZE];
    struct llm_pictures *p = make();
    assert_int_equal(llm_pictures_count(p), 2);
    assert_int_equal(llm_pictures_classes(p), 5);
    assert_int_equal(llm_pictures_label(p, 0), 4);
    assert_int_equal(llm_pictures_label(p, 1), 1);
    llm_pictures_get(p, 1, got);
    expect(got, pixels + SIZE);
    assert_true(llm_pictures_hash(p, 0, 1) != llm_pictures_hash(p, 1, 1));
    llm_pictures_close(p);
}

static void test_changes(void **state)
{
    (void)state;
    float room[SIZE], got[SIZE];
    struct llm_pictures *p = make();
    llm_pictures_augmented(p, 0, &(struct llm_augmented){.own = {.dx = 1, .dy = -1}, .keep = 1}, room, got);
    expect(got, (const float[]){0, 4, 5, 0, 7, 8, 0, 0, 0});
    llm_pictures_augmented(p, 0, &(struct llm_augmented){.own = {.flip = true}, .keep = 1}, room, got);
    expect(got, (const float[]){3, 2, 1, 6, 5, 4, 9, 8, 7});
    llm_pictures_augmented(p, 0, &(struct llm_augmented){.others = {.dx = -2}, .other = 1, .keep = .75f}, room, got);
    expect(got, (const float[]){.75f + 7.5f, 1.5f, 2.25f, 3 + 15, 3.75f, 4.5f, 5.25f + 22.5f, 6, 6.75f});
    llm_pictures_close(p);
}

/* Moments of what is drawn: places and turns are even, shares are those of Beta(alpha, alpha), whose variance is 1 / (4 (2 alpha + 1)). */
static void test_draws(void **state)
{
    (void)state;
    enum { N = 20000 };
    for (int k = 0; k < 3; k++) {
        const double alpha = (const double[]){.2, 1, 3}[k];
        const struct llm_augment a = {.crop = 2, .flip = .25, .mixup = alpha};
        double share = 0, squares = 0, turned = 0, places[5] = {0}, others[4] = {0};
        for (uint32_t i = 0; i < N; i++) {
            const struct llm_augmented d = llm_augment_draw(&a, 1, 2, i, 4);
            assert_true(d.keep >= 0 && d.keep <= 1 && llabs(d.own.dx) <= 2 && llabs(d.own.dy) <= 2 && d.other >= 0 && d.other < 4);
            share += d.keep;
            squares += (d.keep - .5) * (d.keep - .5);
            turned += d.own.flip;
            places[d.own.dx + 2]++;
            others[d.other]++;
        }
        assert_true(fabs(share / N - .5) < .015);
        assert_true(fabs(squares / N * 4 * (2 * alpha + 1) - 1) < .04);
        assert_true(fabs(turned / N - .25) < .015);
        for (int i = 0; i < 5; i++) assert_true(fabs(places[i] / N - .2) < .015);
        for (int i = 0; i < 4; i++) assert_true(fabs(others[i] / N - .25) < .015);
    }
    const struct llm_augmented none = llm_augment_draw(&(struct llm_augment){.crop = 0}, 1, 2, 3, 4);
    assert_true(none.keep == 1 && none.own.dx == 0 && none.own.dy == 0 && !none.own.flip);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reading), cmocka_unit_test(test_changes), cmocka_unit_test(test_draws)};
    const int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
