#include "token/image/planes.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

/* For each sample of the result: which samples of the source it sums, and their weights. */
struct weights {
    int64_t *first, *count;
    float *w;                      /* [size, room] */
    int64_t room;
};

static void weights_release(struct weights *k)
{
    free(k->first);
    free(k->count);
    free(k->w);
}

/* Sample `i` of a result whose samples lie `scale` apart in a source of `from` samples: an antialiased triangle. Types and order are PyTorch's. */
static void weights_of(struct weights *k, int64_t i, int64_t from, float scale)
{
    const float stretch = scale < 1 ? 1 : scale, inverse = scale < 1 ? 1 : (float)(1. / (double)scale);
    const float centre = (float)((double)scale * ((double)i + .5));
    int64_t first = (int64_t)((double)(centre - stretch) + .5), end = (int64_t)((double)(centre + stretch) + .5);
    float *w = k->w + i * k->room, sum = 0;
    if (first < 0) first = 0;
    if (end > from) end = from;
    if (end > first + k->room) end = first + k->room;
    for (int64_t j = 0; j < end - first; j++) {
        const float x = fabsf((float)(((double)((float)(j + first) - centre) + .5) * (double)inverse));
        w[j] = x < 1 ? 1 - x : 0;
        sum += w[j];
    }
    for (int64_t j = 0; j < end - first && sum != 0; j++) w[j] /= sum;
    k->first[i] = first;
    k->count[i] = end - first;
}

static int weights_make(struct weights *k, int64_t from, int64_t to, struct llm_err *e)
{
    const float scale = (float)from / (float)to;
    *k = (struct weights){.room = (int64_t)ceilf(scale < 1 ? 1 : scale) * 2 + 1};
    k->first = llm_alloc((size_t)to, sizeof *k->first, "weights of a filter", e);
    k->count = k->first ? llm_alloc((size_t)to, sizeof *k->count, "weights of a filter", e) : NULL;
    k->w = k->count ? llm_alloc((size_t)to, sizeof *k->w * (size_t)k->room, "weights of a filter", e) : NULL;
    if (!k->w) {
        weights_release(k);
        return -1;
    }
    for (int64_t i = 0; i < to; i++) weights_of(k, i, from, scale);
    return 0;
}

/* The sum of n samples, `step` apart, times their weights, rounded as PyTorch's kernel rounds it on x86-64 with AVX2: after the first product, each
 * whole group of four is multiplied and then added in order; the rest is added by FMA. */
static float weighted(const float *p, int64_t step, const float *w, int64_t n)
{
    float sum = n > 0 ? p[0] * w[0] : 0;
    int64_t j = 1;
    for (; n - j >= 4; j += 4) {
        for (int64_t i = j; i < j + 4; i++) sum += p[i * step] * w[i];
    }
    for (; j < n; j++) sum = fmaf(p[j * step], w[j], sum);
    return sum;
}

/* Resamples each of `lines` lines of `from` samples to `to`. Samples of a line are `step` apart, in the result too; lines are `in_line` and
 * `out_line` apart. */
static int resample(const float *in, int64_t from, int64_t in_line, float *out, int64_t to, int64_t out_line, int64_t step, int64_t lines,
                    struct llm_err *e)
{
    struct weights k;
    if (weights_make(&k, from, to, e) < 0) return -1;
    for (int64_t line = 0; line < lines; line++) {
        const float *source = in + line * in_line;
        for (int64_t i = 0; i < to; i++)
            out[line * out_line + i * step] = weighted(source + k.first[i] * step, step, k.w + i * k.room, k.count[i]);
    }
    weights_release(&k);
    return 0;
}

/* `out` [height, width] becomes `in` [h, w] resized: its rows first, then its columns. `between` has [h, width]. */
static int resize(const float *in, int64_t h, int64_t w, float *between, float *out, int64_t height, int64_t width, struct llm_err *e)
{
    if (resample(in, w, w, between, width, width, 1, h, e) < 0) return -1;
    return resample(between, h, 1, out, height, 1, width, width, e);
}

/* The offset of a crop of `want` samples in `have`: negative where zeros go before them. An odd sample is cut or added at the end. */
static int64_t offset(int64_t have, int64_t want)
{
    return have >= want ? (have - want) / 2 : -((want - have) / 2);
}

/* Copies the crop of `plane` [height, width] to `to`, with zeros outside of it, and normalises. */
static void finish(const struct llm_image_processor *p, int channel, const float *plane, int64_t height, int64_t width, const struct llm_pixels *out)
{
    const int64_t y0 = offset(height, out->height), x0 = offset(width, out->width);
    const float mean = (float)p->mean[channel], deviation = (float)p->deviation[channel];
    float *to = out->v + channel * out->height * out->width;
    for (int64_t y = y0; y < y0 + out->height; y++) {
        for (int64_t x = x0; x < x0 + out->width; x++, to++) {
            const float v = y >= 0 && y < height && x >= 0 && x < width ? plane[y * width + x] : 0;
            *to = p->normalise ? (v - mean) / deviation : v;
        }
    }
}

static int check_size(int64_t height, int64_t width, struct llm_err *e)
{
    if (width <= LLM_IMAGE_MAX_PIXELS / height) return 0;
    return llm_fail(e, EX_DATAERR, "expected at most %d pixels, found %" PRId64 " x %" PRId64, LLM_IMAGE_MAX_PIXELS, width, height);
}

int llm_image_planes(const struct llm_image_processor *p, const struct llm_image *im, int64_t height, int64_t width, struct llm_pixels *out,
                     struct llm_err *e)
{
    const int64_t h = im->height, w = im->width;
    const bool same = h == height && w == width;
    out->height = p->centre_crop ? p->crop_height : height;
    out->width = p->centre_crop ? p->crop_width : width;
    if (check_size(height, width, e) < 0 || check_size(h, width, e) < 0 || check_size(out->height, out->width, e) < 0 ||
        llm_grow((void **)&out->v, &out->room, (size_t)(3 * out->height * out->width), sizeof *out->v, e) < 0)
        return -1;
    float *source = llm_alloc((size_t)(h * w), sizeof *source, "a picture", e);
    float *between = !source || same ? NULL : llm_alloc((size_t)(h * width), sizeof *between, "a picture", e);
    float *plane = !between ? NULL : llm_alloc((size_t)(height * width), sizeof *plane, "a picture", e);
    int bad = source && (same || plane) ? 0 : -1;
    const float factor = p->rescale ? (float)p->factor : 1;
    for (int c = 0; c < 3 && bad == 0; c++) {
        for (int64_t i = 0; i < h * w; i++) source[i] = (float)im->rgb[i * 3 + c] * factor;
        if (!same) bad = resize(source, h, w, between, plane, height, width, e);
        if (bad == 0) finish(p, c, same ? source : plane, height, width, out);
    }
    out->crops.n = 1;
    free(source);
    free(between);
    free(plane);
    return bad;
}
