#include "token/image/resample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

#define BITS 22 /* after the point: 32 bits less 8 of a sample and 2 for sums beyond it */

static double sinc(double x)
{
    return x == 0 ? 1 : sin(x * M_PI) / (x * M_PI);
}

static double lanczos(double x)
{
    return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Keys' kernel with a = -1/2. */
static double bicubic(double x)
{
    const double a = -.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double box(double x)
{
    return x > -.5 && x <= .5 ? 1 : 0;
}

static double hamming(double x)
{
    x = fabs(x);
    if (x == 0) return 1;
    if (x >= 1) return 0;
    x *= M_PI;
    return sin(x) / x * (.54f + .46f * cos(x)); /* constants in FP32, as Pillow has them */
}

static const struct {
    double (*at)(double x);
    double support;
} filters[LLM_FILTERS] = {
    [LLM_LANCZOS] = {lanczos, 3}, [LLM_BILINEAR] = {bilinear, 1}, [LLM_BICUBIC] = {bicubic, 2}, [LLM_BOX] = {box, .5}, [LLM_HAMMING] = {hamming, 1},
};

/* For each sample of the result: which samples of the source it sums, and their weights. */
struct weights {
    int64_t *first, *count;
    int32_t *w;                    /* [size, room] */
    int64_t room;
};

static void weights_release(struct weights *k)
{
    free(k->first);
    free(k->count);
    free(k->w);
}

static int weights_make(struct weights *k, int64_t from, int64_t to, enum llm_filter filter, struct llm_err *e)
{
    double scale = (double)from / (double)to, stretch = scale < 1 ? 1 : scale, support = filters[filter].support * stretch;
    *k = (struct weights){.room = (int64_t)ceil(support) * 2 + 1};
    k->first = llm_alloc((size_t)to, sizeof *k->first, "weights of a filter", e);
    k->count = k->first ? llm_alloc((size_t)to, sizeof *k->count, "weights of a filter", e) : NULL;
    k->w = k->count ? llm_alloc((size_t)to, sizeof *k->w * (size_t)k->room, "weights of a filter", e) : NULL;
    double *exact = k->w ? llm_alloc((size_t)k->room, sizeof *exact, "weights of a filter", e) : NULL;
    if (!exact) {
        weights_release(k);
        return -1;
    }
    for (int64_t i = 0; i < to; i++) {
        double centre = ((double)i + .5) * scale, sum = 0;
        int64_t first = (int64_t)(centre - support + .5), end = (int64_t)(centre + support + .5);
        if (first < 0) first = 0;
        if (end > from) end = from;
        for (int64_t j = first; j < end; j++) {
            exact[j - first] = filters[filter].at(((double)j - centre + .5) * (1 / stretch));
            sum += exact[j - first];
        }
        for (int64_t j = 0; j < end - first; j++) {
            double v = sum != 0 ? exact[j] / sum : exact[j];
            k->w[i * k->room + j] = (int32_t)(v * (1 << BITS) + (v < 0 ? -.5 : .5));
        }
        k->first[i] = first;
        k->count[i] = end - first;
    }
    free(exact);
    return 0;
}

static unsigned char sample(int32_t sum)
{
    int32_t v = sum >> BITS;
    return (unsigned char)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void columns(const struct llm_image *in, const struct weights *k, struct llm_image *out)
{
    for (int64_t y = 0; y < out->height; y++) {
        unsigned char *to = out->rgb + y * out->width * 3;
        for (int64_t x = 0; x < out->width; x++, to += 3) {
            const unsigned char *p = in->rgb + (y * in->width + k->first[x]) * 3;
            const int32_t *w = k->w + x * k->room;
            int32_t r = 1 << (BITS - 1), g = r, b = r;
            for (int64_t j = 0; j < k->count[x]; j++, p += 3) {
                r += p[0] * w[j];
                g += p[1] * w[j];
                b += p[2] * w[j];
            }
            to[0] = sample(r);
            to[1] = sample(g);
            to[2] = sample(b);
        }
    }
}

/* `sums`: of a row. */
static void rows(const struct llm_image *in, const struct weights *k, int32_t *sums, struct llm_image *out)
{
    int64_t n = in->width * 3;
    for (int64_t y = 0; y < out->height; y++) {
        for (int64_t i = 0; i < n; i++) sums[i] = 1 << (BITS - 1);
        for (int64_t j = 0; j < k->count[y]; j++) {
            const unsigned char *p = in->rgb + (k->first[y] + j) * n;
            int32_t w = k->w[y * k->room + j];
            for (int64_t i = 0; i < n; i++) sums[i] += p[i] * w;
        }
        for (int64_t i = 0; i < n; i++) out->rgb[y * n + i] = sample(sums[i]);
    }
}

/* Which sample of `from` is nearest to each of `to`: positions are added up, as Pillow adds them, so that their rounding is the same. */
static int nearest_places(int64_t **places, int64_t from, int64_t to, struct llm_err *e)
{
    double step = (double)from / (double)to, at = step * .5;
    *places = llm_alloc((size_t)to, sizeof **places, "places of a picture", e);
    if (!*places) return -1;
    for (int64_t i = 0; i < to; i++, at += step) (*places)[i] = (int64_t)at < from ? (int64_t)at : from - 1;
    return 0;
}

static int nearest(const struct llm_image *in, struct llm_image *out, struct llm_err *e)
{
    int64_t *x_of = NULL, *y_of = NULL;
    int bad = nearest_places(&x_of, in->width, out->width, e);
    if (bad == 0) bad = nearest_places(&y_of, in->height, out->height, e);
    unsigned char *to = out->rgb;
    for (int64_t y = 0; y < out->height && bad == 0; y++) {
        for (int64_t x = 0; x < out->width; x++, to += 3) memcpy(to, in->rgb + (y_of[y] * in->width + x_of[x]) * 3, 3);
    }
    free(x_of);
    free(y_of);
    return bad;
}

static int by_columns(const struct llm_image *in, enum llm_filter filter, struct llm_image *out, struct llm_err *e)
{
    struct weights k;
    if (weights_make(&k, in->width, out->width, filter, e) < 0) return -1;
    columns(in, &k, out);
    weights_release(&k);
    return 0;
}

static int by_rows(const struct llm_image *in, enum llm_filter filter, struct llm_image *out, struct llm_err *e)
{
    struct weights k;
    if (weights_make(&k, in->height, out->height, filter, e) < 0) return -1;
    int32_t *sums = llm_alloc((size_t)in->width, 3 * sizeof *sums, "a row of a picture", e);
    if (sums) rows(in, &k, sums, out);
    free(sums);
    weights_release(&k);
    return sums ? 0 : -1;
}

int llm_image_resize(const struct llm_image *in, int64_t width, int64_t height, enum llm_filter filter, bool columns_first, struct llm_image *out,
                     struct llm_err *e)
{
    struct llm_image between = {0};
    int bad;
    if (llm_image_alloc(out, width, height, e) < 0) return -1;
    if (width == in->width && height == in->height) {
        memcpy(out->rgb, in->rgb, (size_t)(width * height) * 3);
        return 0;
    }
    if (filter == LLM_NEAREST) {
        bad = nearest(in, out, e);
    } else if (height == in->height) {
        bad = by_columns(in, filter, out, e);
    } else if (width == in->width) {
        bad = by_rows(in, filter, out, e);
    } else if (!columns_first && in->height > height && in->height - height > 2 * (in->width - width)) {
        bad = llm_image_alloc(&between, in->width, height, e);
        if (bad == 0) bad = by_rows(in, filter, &between, e);
        if (bad == 0) bad = by_columns(&between, filter, out, e);
        llm_image_release(&between);
    } else {
        bad = llm_image_alloc(&between, width, in->height, e);
        if (bad == 0) bad = by_columns(in, filter, &between, e);
        if (bad == 0) bad = by_rows(&between, filter, out, e);
        llm_image_release(&between);
    }
    if (bad < 0) llm_image_release(out);
    return bad;
}
