/* Pictures: the font, colours, scales, and heat maps against goldens by pixels (tests/golden/pictures, looked at when they were made). */
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/buf.h"
#include "measure/draw/drawing.h"
#include "measure/draw/font.h"
#include "measure/draw/scale.h"
#include "measure/heatmap.h"

/* ---- the font ---- */

static void every_character_is_visible(void **state)
{
    (void)state;
    for (uint32_t c = '!'; c <= '~'; c++) {
        const char text[] = {(char)c, 0}, *s = text;
        struct llm_glyph g;
        llm_glyph_next(&g, &s, LLM_TEXT_BODY);
        if (g.n_digits != 0 || g.n_strokes == 0 || g.n_points == LLM_GLYPH_POINTS || *s) fail_msg("'%c'", (int)c);
        for (uint32_t d = '!'; d < c; d++) {
            if (strcmp(llm_glyph_design(c), llm_glyph_design(d)) == 0) fail_msg("'%c' looks like '%c'", (int)c, (int)d);
        }
    }
    static const struct { const char *text; int digits; uint32_t code; } others[] = {
        {"ä", 0, 0xe4}, {"Ẫ", 0, 0x1eaa}, {"ß", 0, 0xdf}, {"Ж", 0, 0x416}, {"й", 0, 0x439}, {"ω", 0, 0x3c9}, {"…", 0, 0x2026}, {"a\xcc\x88", 0, 'a'},
        {"中", 4, 0x4e2d}, {"\xf0\x9f\x99\x82", 6, 0x1f642}, {"\xff", 2, 0xff}, {"\xe4", 2, 0xe4}, {"\x01", 4, 1}, {"\xcc\x88", 4, 0x308}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *s = others[i].text;
        struct llm_glyph g;
        llm_glyph_next(&g, &s, LLM_TEXT_BODY);
        if (*s || g.n_digits != others[i].digits || g.code != others[i].code || (g.n_digits == 0 && g.n_strokes == 0)) fail_msg("%s", others[i].text);
        assert_true(g.advance > 0);
    }
}

static void long_texts_are_cut(void **state)
{
    (void)state;
    char out[64];
    assert_int_equal(llm_text_fit("token", LLM_TEXT_BODY, 500, out, sizeof out), llm_text_width("token", LLM_TEXT_BODY));
    assert_string_equal(out, "token");
    for (int width = 20; width < 100; width += 7) {
        int taken = llm_text_fit("äöü a rather long text, 中文", LLM_TEXT_BODY, width, out, sizeof out);
        size_t n = strlen(out);
        assert_true(taken <= width && n > 3 && strcmp(out + n - 3, "…") == 0);
        assert_int_equal(taken, llm_text_width(out, LLM_TEXT_BODY));
    }
    llm_text_fit("0123456789012345678901234567890123456789012345678901234567890123456789", LLM_TEXT_BODY, 5000, out, sizeof out);
    assert_true(strlen(out) < sizeof out); /* cut by the room, too */
}

/* ---- colours ---- */

/* Perceived lightness, L of OKLab. */
static double lightness(struct llm_rgb c)
{
    const double in[] = {c.r / 255.0, c.g / 255.0, c.b / 255.0};
    double v[3];
    for (int i = 0; i < 3; i++) v[i] = in[i] <= .04045 ? in[i] / 12.92 : pow((in[i] + .055) / 1.055, 2.4);
    double l = cbrt(.4122214708 * v[0] + .5363325363 * v[1] + .0514459929 * v[2]);
    double m = cbrt(.2119034982 * v[0] + .6806995451 * v[1] + .1073969566 * v[2]);
    double s = cbrt(.0883024619 * v[0] + .2817188376 * v[1] + .6299787005 * v[2]);
    return .2104542553 * l + .7936177850 * m - .0040720468 * s;
}

static void colours_are_ordered_by_lightness(void **state)
{
    (void)state;
    for (int i = 0; i <= 64; i++) {
        assert_float_equal((float)lightness(llm_colour_sequence(i / 64.0)), (float)(.26 + .66 * i / 64), .02f);
        if (i > 0) assert_true(lightness(llm_colour_sequence(i / 64.0)) > lightness(llm_colour_sequence((i - 1) / 64.0)));
        assert_float_equal((float)lightness(llm_colour_diverging(i / 64.0)), (float)lightness(llm_colour_diverging(-i / 64.0)), .02f);
    }
    const struct llm_rgb low = llm_colour_sequence(-1), lowest = llm_colour_sequence(0); /* outside: the nearer end */
    assert_memory_equal(&low, &lowest, 3);
}

/* ---- scales ---- */

static void scales(void **state)
{
    (void)state;
    struct llm_scale s;
    struct llm_err e = {0};
    double ticks[LLM_SCALE_TICKS];
    const float even[] = {2, 3, 4, 5, (float)NAN, 6.5f};
    const float sink[] = {.9f, .001f, .002f, .0015f, .001f, 0, .002f}, zeros[] = {0, 0}, signs[] = {-1, 1000, 2};
    assert_int_equal(llm_scale_init(&s, LLM_SCALE_AUTO, even, 6, &e), 0);
    assert_true(s.kind == LLM_SCALE_LINEAR && s.low == 2 && s.high == 6.5);
    assert_int_equal(llm_scale_ticks(&s, ticks), 5);
    assert_true(ticks[0] == 2 && ticks[4] == 6);
    assert_int_equal(llm_scale_init(&s, LLM_SCALE_AUTO, sink, 7, &e), 0);
    assert_true(s.kind == LLM_SCALE_LOG && s.clipped && s.low == (double)sink[1] && s.high == (double)sink[0]);
    assert_true(llm_scale_at(&s, 0) == 0 && llm_scale_at(&s, .9f) == 1 && fabs(llm_scale_at(&s, .03) - .5) < .01);
    assert_int_equal(llm_scale_ticks(&s, ticks), 3);
    assert_true(fabs(ticks[0] - .001) < 1e-9 && fabs(ticks[2] - .1) < 1e-9);
    assert_int_equal(llm_scale_init(&s, LLM_SCALE_LINEAR, sink, 7, &e), 0);
    assert_true(s.kind == LLM_SCALE_LINEAR && s.low == 0);
    assert_int_equal(llm_scale_init(&s, LLM_SCALE_AUTO, zeros, 2, &e), 0);
    assert_true(s.low == 0 && s.high == 0 && llm_scale_at(&s, 0) == .5 && llm_scale_ticks(&s, ticks) == 1);
    assert_int_equal(llm_scale_init(&s, LLM_SCALE_AUTO, signs, 3, &e), 0);
    assert_true(s.kind == LLM_SCALE_LINEAR);
    assert_int_equal(llm_scale_init(&s, LLM_SCALE_RATIO, (const float[]){.5f, 8}, 2, &e), 0);
    assert_true(s.low == .125 && s.high == 8 && llm_scale_at(&s, 1) == .5);
    assert_int_equal(llm_scale_init(&s, LLM_SCALE_LOG, signs, 3, &e), -1);
    assert_int_equal(e.status, EX_DATAERR);
    assert_int_equal(llm_scale_init(&s, LLM_SCALE_LOG, zeros, 2, &e), -1);
    assert_int_equal(llm_scale_init(&s, LLM_SCALE_AUTO, (const float[]){(float)NAN, INFINITY}, 2, &e), -1);
    char text[32];
    static const struct { double v; const char *text; } numbers[] = {
        {0, "0"}, {.25, "0.25"}, {1e-5, "1e-5"}, {1200, "1200"}, {3e6, "3e6"}, {-2.5, "-2.5"}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        llm_scale_number(numbers[i].v, text, sizeof text);
        assert_string_equal(text, numbers[i].text);
    }
}

/* ---- pictures ---- */

static void read_png(const char *path, png_image *image, unsigned char **rgb)
{
    memset(image, 0, sizeof *image);
    image->version = PNG_IMAGE_VERSION;
    if (!png_image_begin_read_from_file(image, path)) fail_msg("%s: %s", path, image->message);
    image->format = PNG_FORMAT_RGB;
    *rgb = malloc(PNG_IMAGE_SIZE(*image));
    assert_non_null(*rgb);
    assert_true(png_image_finish_read(image, NULL, *rgb, 0, NULL));
}

static void draw_to(const char *path, const struct llm_heatmap *h)
{
    struct llm_err e = {0};
    struct llm_output *o = llm_output_open(path, true, &e);
    assert_non_null(o);
    if (llm_heatmap_write(o, h, &e) < 0 || llm_output_commit(o, &e) < 0) fail_msg("%s", e.text);
}

/* Every channel of every pixel within one step: pow and log of another C library may round differently. */
static void is_golden(const char *name, const struct llm_heatmap *h)
{
    char found[64], golden[64];
    png_image a, b;
    unsigned char *x, *y;
    snprintf(found, sizeof found, "/tmp/llm-%s-XXXXXX", name);
    int fd = mkstemp(found);
    assert_true(fd >= 0);
    close(fd);
    draw_to(found, h);
    snprintf(golden, sizeof golden, "tests/golden/pictures/%s.png", name);
    read_png(found, &a, &x);
    read_png(golden, &b, &y);
    if (a.width != b.width || a.height != b.height)
        fail_msg("%s: %u x %u, expected %u x %u as %s", found, a.width, a.height, b.width, b.height, golden);
    for (size_t i = 0; i < PNG_IMAGE_SIZE(a); i++) {
        if (abs(x[i] - y[i]) > 1) fail_msg("%s differs from %s in column %zu, row %zu", found, golden, i / 3 % a.width, i / 3 / a.width);
    }
    unlink(found);
    free(x);
    free(y);
}

static void heat_map_with_a_sink(void **state)
{
    (void)state;
    enum { ROWS = 6, COLS = 9 };
    static const char *const labels[COLS] = {"<s>", "␣The", "␣quick", "ф", "中", "\\n", "ä", "a␣token␣of␣very␣much␣text␣that␣does␣not␣end", "."};
    static const int64_t layers[ROWS] = {0, 0, 0, 1, 1, 1};
    static const int32_t heads[ROWS] = {0, 1, 2, 0, 1, 2};
    float v[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) v[i] = i % COLS == 0 ? .8f + (float)i / 500 : .002f * (float)(1 + i * 7 % 11);
    v[13] = (float)NAN;
    v[20] = 0;
    is_golden("sink", &(struct llm_heatmap){.title = "Attention to each token", .subtitle = "two layers", .value = "probability", .v = v,
        .x = {.n = COLS, .name = "token", .labels = labels, .numbered = true},
        .y = {.n = ROWS, .name = "head", .numbers = heads, .groups = layers, .group_name = "layer"}});
}

static void heat_map_of_ratios(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 6 };
    static const char *const places[ROWS] = {"embeddings", "layers.0.mlp", "logits"};
    static const int32_t widths[COLS] = {32, 64, 128, 32, 64, 128};
    static const int64_t steps[COLS] = {0, 0, 0, 1, 1, 1};
    const float v[ROWS * COLS] = {1, 1, 1, 1, .9f, .8f, 1, 1.5f, 2, 1, 4, 16, 1, .7f, .5f, 1, .4f, .2f};
    is_golden("ratios", &(struct llm_heatmap){.title = "Coordinate check", .value = "size relative to width 32", .v = v, .scale = LLM_SCALE_RATIO,
        .x = {.n = COLS, .name = "width", .numbers = widths, .groups = steps, .group_name = "step"}, .y = {.n = ROWS, .labels = places}});
}

static void grid_of_panels(void **state)
{
    (void)state;
    enum { PANELS = 3, N = 7 };
    static const char *const names[PANELS] = {"head 0", "head 1", "head 2"}, *const labels[N] = {"<s>", "␣The", "␣cat", "␣sat", ".", "␣The", "␣cat"};
    float v[PANELS * N * N];
    for (int i = 0; i < PANELS * N * N; i++) {
        int head = i / (N * N), query = i / N % N, key = i % N, wanted = head == 0 ? 0 : head == 1 ? query - 1 : query - 4;
        v[i] = key > query ? (float)NAN : key == wanted ? .7f : .02f * (float)(1 + (query * 3 + key) % 4);
    }
    is_golden("grid", &(struct llm_heatmap){.title = "Attention of layer 1, head by head", .subtitle = "three heads", .value = "probability", .v = v,
        .n_panels = PANELS, .panels = names, .x = {.n = N, .name = "key", .labels = labels, .numbered = true},
        .y = {.n = N, .name = "query", .labels = labels}});
}

/* A map that its caller has binned is the map that the drawing would have binned. */
static void binned_before(void **state)
{
    (void)state;
    enum { N = 2100, STEP = 3, BINS = N / STEP };
    float *v = calloc((size_t)N * N, sizeof *v), *bins = calloc((size_t)BINS * BINS, sizeof *bins);
    char a[2][40] = {"/tmp/llm-whole-XXXXXX", "/tmp/llm-bins-XXXXXX"};
    unsigned char *x, *y;
    png_image p, q;
    assert_true(v && bins);
    assert_int_equal(llm_heatmap_step(N, 1), STEP);
    for (int i = 0; i < N * N; i++) {
        v[i] = (float)((i / N * 31 + i % N * 17) % 101);
        float *bin = &bins[i / N / STEP * BINS + i % N / STEP];
        if (v[i] > *bin) *bin = v[i];
    }
    for (int i = 0; i < 2; i++) {
        int fd = mkstemp(a[i]);
        assert_true(fd >= 0);
        close(fd);
        draw_to(a[i], &(struct llm_heatmap){.title = "map", .value = "v", .v = i ? bins : v, .x = {.n = N, .name = "x", .step = i ? STEP : 0},
            .y = {.n = N, .name = "y", .step = i ? STEP : 0}});
    }
    read_png(a[0], &p, &x);
    read_png(a[1], &q, &y);
    assert_int_equal(p.width, q.width);
    assert_int_equal(p.height, q.height);
    assert_memory_equal(x, y, PNG_IMAGE_SIZE(p));
    unlink(a[0]);
    unlink(a[1]);
    free(x);
    free(y);
    free(v);
    free(bins);
}

static void panels_fill_a_square(void **state)
{
    (void)state;
    assert_int_equal(llm_heatmap_across(1, 4096, 4096), 1);
    assert_int_equal(llm_heatmap_across(9, 4096, 4096), 3);
    assert_int_equal(llm_heatmap_across(8, 10, 10), 3);
    assert_int_equal(llm_heatmap_across(2, 70, 8), 1);
    assert_int_equal(llm_heatmap_across(2, 8, 70), 2);
    assert_int_equal(llm_heatmap_step(1024, 1), 1);
    assert_int_equal(llm_heatmap_step(4096, 3), 13);
    assert_int_equal(llm_heatmap_step(1, 2000), 1);
}

static void large_maps_are_binned(void **state)
{
    (void)state;
    enum { ROWS = 1500, COLS = 5000 };
    char path[] = "/tmp/llm-large-XXXXXX";
    png_image image;
    unsigned char *rgb;
    float *v = calloc((size_t)ROWS * COLS, sizeof *v);
    int64_t *groups = calloc(ROWS, sizeof *groups);
    assert_non_null(v);
    for (int i = 0; i < ROWS; i++) groups[i] = i / 375; /* no multiple of a bin */
    v[777 * COLS + 4321] = 1; /* one number, which must not get lost */
    close(mkstemp(path));
    draw_to(path, &(struct llm_heatmap){.title = "t", .value = "v", .v = v, .scale = LLM_SCALE_LINEAR, .x = {.n = COLS},
                                        .y = {.n = ROWS, .groups = groups, .group_name = "layer"}});
    read_png(path, &image, &rgb);
    assert_true(image.width < 1500 && image.height < 1300);
    const struct llm_rgb bright = llm_colour_sequence(1);
    int found = 0;
    for (size_t y = 0; y < image.height; y++) {
        for (size_t x = 0; x + 160 < image.width; x++) found += memcmp(rgb + 3 * (y * image.width + x), &bright, 3) == 0; /* not the colour bar */
    }
    assert_int_equal(found, 1);
    unlink(path);
    free(rgb);
    free(v);
    free(groups);
}

static void drawings_refuse(void **state)
{
    (void)state;
    struct llm_err e = {0};
    assert_null(llm_drawing_create(LLM_DRAWING_MAX + 1, 10, &e));
    assert_int_equal(e.status, EX_UNAVAILABLE);
    assert_null(llm_drawing_create(10, 0, &e));
    struct llm_output *o = llm_output_open("/dev/null", true, &e);
    assert_non_null(o);
    assert_int_equal(llm_heatmap_write(o, &(struct llm_heatmap){.title = "", .value = ""}, &e), -1);
    assert_int_equal(e.status, EX_DATAERR);
    /* items that reach beyond the picture are cut */
    struct llm_drawing *d = llm_drawing_create(20, 20, &e);
    assert_non_null(d);
    llm_draw_rect(d, -5, -5, 100, 3, llm_ink);
    llm_draw_text(d, -10, 25, 1000, (struct llm_text){LLM_TEXT_TITLE, LLM_ANCHOR_START, false, llm_ink}, "beyond 中 all edges");
    llm_draw_text(d, 10, 50, 1000, (struct llm_text){LLM_TEXT_BODY, LLM_ANCHOR_START, true, llm_ink}, "beyond 中 all edges");
    llm_draw_line(d, (const double[]){-1e9, 10, 1e9}, (const double[]){-1e9, 10, 30}, 3, 2, llm_ink);
    llm_draw_cells(d, (const int[]){-5, 15}, 2, (const int[]){-5, 15}, 2, 10, 10, (const struct llm_rgb[]){llm_ink, llm_ink, llm_ink, llm_ink});
    assert_int_equal(llm_drawing_png(d, o, &e), 0);
    llm_drawing_destroy(d);
    llm_output_abandon(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_is_visible), cmocka_unit_test(long_texts_are_cut), cmocka_unit_test(colours_are_ordered_by_lightness),
        cmocka_unit_test(scales), cmocka_unit_test(heat_map_with_a_sink), cmocka_unit_test(heat_map_of_ratios),
        cmocka_unit_test(grid_of_panels), cmocka_unit_test(binned_before), cmocka_unit_test(panels_fill_a_square),
        cmocka_unit_test(large_maps_are_binned),
        cmocka_unit_test(drawings_refuse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
