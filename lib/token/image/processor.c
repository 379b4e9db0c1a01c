#include "token/image/processor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "token/image/planes.h"

#define IDEFICS_LIMIT 4096 /* of a side before it is cut into tiles */

void llm_pixels_release(struct llm_pixels *px)
{
    free(px->v);
    *px = (struct llm_pixels){0};
}

/* A window of `im` whose upper left corner is (x, y), which may lie outside: what is outside has `colour`. */
static int window(const struct llm_image *im, int64_t x, int64_t y, int64_t width, int64_t height, const unsigned char colour[3],
                  struct llm_image *out, struct llm_err *e)
{
    if (llm_image_alloc(out, width, height, e) < 0) return -1;
    int64_t left = x < 0 ? (-x < width ? -x : width) : 0, right = im->width - x < width ? im->width - x : width;
    for (int64_t row = 0; row < height; row++) {
        unsigned char *to = out->rgb + row * width * 3;
        bool inside = y + row >= 0 && y + row < im->height && right > left;
        for (int64_t i = 0; i < width; i++) {
            if (!inside || i < left || i >= right) memcpy(to + i * 3, colour, 3);
        }
        if (inside) memcpy(to + left * 3, im->rgb + ((y + row) * im->width + x + left) * 3, (size_t)(right - left) * 3);
    }
    return 0;
}

static const unsigned char black[3];

/* Replaces *im by its window. */
static int cut(struct llm_image *im, int64_t x, int64_t y, int64_t width, int64_t height, const unsigned char colour[3], struct llm_err *e)
{
    struct llm_image out;
    if (window(im, x, y, width, height, colour, &out, e) < 0) return -1;
    llm_image_release(im);
    *im = out;
    return 0;
}

static int resize(const struct llm_image_processor *p, struct llm_image *im, int64_t height, int64_t width, struct llm_err *e)
{
    struct llm_image out;
    if (llm_image_resize(im, width, height, p->filter, p->columns_first, &out, e) < 0) return -1;
    llm_image_release(im);
    *im = out;
    return 0;
}

/* Python's round: of two equally near numbers the even one. */
static int64_t rounded(double x)
{
    return (int64_t)rint(x);
}

/* The size after the step "resize" of processors without tiles. Divisions and products are in double and in this order, as Python computes them. */
static void size_of(const struct llm_image_processor *p, int64_t h, int64_t w, int64_t *height, int64_t *width)
{
    int64_t small = h < w ? h : w, large = h < w ? w : h;
    if (!p->shortest) {
        *height = p->height;
        *width = p->width;
        return;
    }
    int64_t size = p->shortest;
    double raw = (double)size;
    if (p->longest && (double)large / (double)small * raw > (double)p->longest) {
        raw = (double)p->longest * (double)small / (double)large;
        size = rounded(raw);
        if (small == size) {
            *height = h;
            *width = w;
            return;
        }
    }
    int64_t long_side = p->longest ? (int64_t)(raw * (double)large / (double)small) : (int64_t)((double)(size * large) / (double)small);
    if (size < 1) size = 1;
    if (long_side < 1) long_side = 1;
    *height = w < h ? long_side : size;
    *width = w < h ? size : long_side;
}

static int planes(const struct llm_image_processor *p, const struct llm_image *im, struct llm_pixels *out, struct llm_err *e)
{
    int64_t height = im->height, width = im->width;
    if (p->resize) size_of(p, im->height, im->width, &height, &width);
    return llm_image_planes(p, im, height, width, out, e);
}

static int resize_step(const struct llm_image_processor *p, struct llm_image *im, struct llm_err *e)
{
    int64_t height, width;
    size_of(p, im->height, im->width, &height, &width);
    return resize(p, im, height, width, e);
}

/* transformers' center_crop: a picture that is smaller than the crop lies in the middle of black, the odd pixel before it. */
static int centre_crop(const struct llm_image_processor *p, struct llm_image *im, struct llm_err *e)
{
    int64_t height = p->crop_height, width = p->crop_width, h = im->height, w = im->width;
    int64_t top = h >= height ? (h - height) / 2 : -((height - h + 1) / 2), left = w >= width ? (w - width) / 2 : -((width - w + 1) / 2);
    return cut(im, left, top, width, height, black, e);
}

static int pad_square(const struct llm_image_processor *p, struct llm_image *im, struct llm_err *e)
{
    int64_t side = im->width > im->height ? im->width : im->height;
    unsigned char mean[3];
    for (int i = 0; i < 3; i++) mean[i] = (unsigned char)(int64_t)(p->mean[i] * 255);
    if (im->width == im->height) return 0;
    return cut(im, -((side - im->width) / 2), -((side - im->height) / 2), side, side, mean, e);
}

/* The number of a sample: by a table, as there are 256. Sums and quotients are in FP32, the product before them in double. */
static int append(const struct llm_image_processor *p, const struct llm_image *im, struct llm_pixels *out, struct llm_err *e)
{
    float table[3][256];
    int64_t n = im->height * im->width;
    if (out->crops.n && (im->height != out->height || im->width != out->width))
        return llm_fail(e, EX_DATAERR, "crops of %" PRId64 " x %" PRId64 " and %" PRId64 " x %" PRId64 " pixels", out->width, out->height, im->width,
                        im->height);
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < 256; i++) {
            float v = p->rescale ? (float)(i * p->factor) : (float)i;
            table[c][i] = p->normalise ? (v - (float)p->mean[c]) / (float)p->deviation[c] : v;
        }
    }
    if (llm_grow((void **)&out->v, &out->room, (size_t)((out->crops.n + 1) * 3 * n), sizeof *out->v, e) < 0) return -1;
    float *to = out->v + out->crops.n * 3 * n;
    for (int c = 0; c < 3; c++) {
        for (int64_t i = 0; i < n; i++) to[c * n + i] = table[c][im->rgb[i * 3 + c]];
    }
    out->height = im->height;
    out->width = im->width;
    out->crops.n++;
    return 0;
}

/* Resizing, the crop, the numbers. *im is changed. */
static int finish(const struct llm_image_processor *p, struct llm_image *im, struct llm_pixels *out, struct llm_err *e)
{
    if (p->resize && resize_step(p, im, e) < 0) return -1;
    if (p->centre_crop && centre_crop(p, im, e) < 0) return -1;
    return append(p, im, out, e);
}

static int finish_window(const struct llm_image_processor *p, const struct llm_image *im, int64_t x, int64_t y, int64_t width, int64_t height,
                         struct llm_pixels *out, struct llm_err *e)
{
    struct llm_image part;
    if (window(im, x, y, width, height, black, &part, e) < 0) return -1;
    int bad = p->cut == LLM_IMAGE_TILES ? append(p, &part, out, e) : finish(p, &part, out, e);
    llm_image_release(&part);
    return bad;
}

/* LLaVA-NeXT, select_best_resolution: the most pixels of the picture, then the least waste. */
static const int64_t *best_grid(const struct llm_image_processor *p, const struct llm_image *im)
{
    const int64_t *best = p->grids[0];
    int64_t most = 0, least = INT64_MAX;
    for (int64_t i = 0; i < p->n_grids; i++) {
        int64_t h = p->grids[i][0], w = p->grids[i][1];
        double by_width = (double)w / (double)im->width, by_height = (double)h / (double)im->height;
        double scale = by_height < by_width ? by_height : by_width;
        int64_t pixels = (int64_t)((double)im->width * scale) * (int64_t)((double)im->height * scale);
        if (pixels > im->width * im->height) pixels = im->width * im->height;
        int64_t waste = w * h - pixels;
        if (pixels > most || (pixels == most && waste < least)) {
            most = pixels;
            least = waste;
            best = p->grids[i];
        }
    }
    return best;
}

static int any_resolution(const struct llm_image_processor *p, const struct llm_image *im, struct llm_pixels *out, struct llm_err *e)
{
    const int64_t *grid = best_grid(p, im);
    int64_t tile = p->crop_height;
    double by_width = (double)grid[1] / (double)im->width, by_height = (double)grid[0] / (double)im->height;
    int64_t width = grid[1], height = grid[0];
    if (by_width < by_height) height = (int64_t)ceil((double)im->height * by_width);
    else width = (int64_t)ceil((double)im->width * by_height);
    if (height > grid[0]) height = grid[0];
    if (width > grid[1]) width = grid[1];
    struct llm_image part = {0};
    int bad = llm_image_resize(im, p->width ? p->width : p->shortest, p->height ? p->height : p->shortest, p->filter, p->columns_first, &part, e);
    if (bad == 0) bad = finish(p, &part, out, e);
    llm_image_release(&part);
    if (bad == 0) bad = llm_image_resize(im, width, height, p->filter, p->columns_first, &part, e);
    if (bad == 0) bad = cut(&part, -((grid[1] - width) / 2), -((grid[0] - height) / 2), grid[1], grid[0], black, e);
    for (int64_t y = 0; y < grid[0] && bad == 0; y += tile) {
        out->crops.rows++;
        out->crops.columns = 0;
        for (int64_t x = 0; x < grid[1] && bad == 0; x += tile) {
            bad = finish_window(p, &part, x, y, grid[1] - x < tile ? grid[1] - x : tile, grid[0] - y < tile ? grid[0] - y : tile, out, e);
            out->crops.columns++;
        }
    }
    llm_image_release(&part);
    return bad;
}

static int64_t even(int64_t n)
{
    return n + n % 2;
}

static int64_t multiple(int64_t n, int64_t of)
{
    return (n + of - 1) / of * of;
}

/* Idefics 3: the longer side becomes `longest`, the other an even number; neither above IDEFICS_LIMIT. */
static void tiled_size(const struct llm_image_processor *p, int64_t *height, int64_t *width)
{
    if (!p->longest) {
        *height = p->height;
        *width = p->width;
        return;
    }
    double ratio = (double)*width / (double)*height;
    if (*width >= *height) {
        *width = p->longest;
        *height = even((int64_t)((double)*width / ratio));
    } else {
        *height = p->longest;
        *width = even((int64_t)((double)*height * ratio));
    }
    if (*height < 1) *height = 1;
    if (*width < 1) *width = 1;
    ratio = (double)*width / (double)*height;
    if (*width >= *height && *width > IDEFICS_LIMIT) {
        *width = IDEFICS_LIMIT;
        *height = (int64_t)((double)*width / ratio);
    } else if (*height > *width && *height > IDEFICS_LIMIT) {
        *height = IDEFICS_LIMIT;
        *width = (int64_t)((double)*height * ratio);
    }
    if (*height < 1) *height = 1;
    if (*width < 1) *width = 1;
}

static int tiled(const struct llm_image_processor *p, struct llm_image *im, struct llm_pixels *out, struct llm_err *e)
{
    int64_t height = im->height, width = im->width, tile = p->tile;
    if (p->resize) {
        tiled_size(p, &height, &width);
        if (resize(p, im, height, width, e) < 0) return -1;
    }
    if (p->split) {
        double ratio = (double)width / (double)height;
        if (width >= height) {
            width = multiple(width, tile);
            height = multiple((int64_t)((double)width / ratio), tile);
        } else {
            height = multiple(height, tile);
            width = multiple((int64_t)((double)height * ratio), tile);
        }
        if (resize(p, im, height, width, e) < 0) return -1;
        if (height > tile || width > tile) {
            out->crops.rows = height / tile;
            out->crops.columns = width / tile;
        }
        for (int64_t i = 0; i < out->crops.rows * out->crops.columns; i++) {
            if (finish_window(p, im, i % out->crops.columns * tile, i / out->crops.columns * tile, tile, tile, out, e) < 0) return -1;
        }
    }
    if (resize(p, im, tile, tile, e) < 0) return -1;
    return append(p, im, out, e);
}

int llm_image_process(const struct llm_image_processor *p, const struct llm_image *im, struct llm_pixels *out, struct llm_err *e)
{
    struct llm_image own;
    out->crops = (struct llm_crops){.height = im->height, .width = im->width};
    if (p->cut == LLM_IMAGE_ANY_RESOLUTION) return any_resolution(p, im, out, e);
    if (p->planes) return planes(p, im, out, e);
    if (window(im, 0, 0, im->width, im->height, black, &own, e) < 0) return -1;
    int bad = p->pad_square ? pad_square(p, &own, e) : 0;
    if (bad == 0) bad = p->cut == LLM_IMAGE_TILES ? tiled(p, &own, out, e) : finish(p, &own, out, e);
    llm_image_release(&own);
    return bad;
}
