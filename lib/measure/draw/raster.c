/* The back end that makes pixels: strokes are antialiased by their distance from each pixel's centre. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "io/png.h"
#include "measure/draw/drawing_internal.h"
#include "measure/draw/font.h"

struct image {
    int width, height;
    unsigned char *rgb;
    unsigned char *cover; /* [height, width]: how much of each pixel the strokes at hand cover; all 0 between strokes */
};

static void fill(struct image *m, int x, int y, int width, int height, struct llm_rgb c)
{
    int right = x + width > m->width ? m->width : x + width, bottom = y + height > m->height ? m->height : y + height;
    for (int j = y < 0 ? 0 : y; j < bottom; j++) {
        for (int i = x < 0 ? 0 : x; i < right; i++) memcpy(m->rgb + 3 * ((size_t)j * (size_t)m->width + (size_t)i), &c, 3);
    }
}

struct frame { int left, top, right, bottom; }; /* right and bottom are outside */

static struct frame around(const struct image *m, double x0, double y0, double x1, double y1, double radius)
{
    double left = floor(fmin(x0, x1) - radius), top = floor(fmin(y0, y1) - radius), right = ceil(fmax(x0, x1) + radius) + 1,
           bottom = ceil(fmax(y0, y1) + radius) + 1;
    return (struct frame){(int)fmin(fmax(left, 0), m->width), (int)fmin(fmax(top, 0), m->height), (int)fmin(fmax(right, 0), m->width),
                          (int)fmin(fmax(bottom, 0), m->height)};
}

/* Adds a segment to the cover. */
static void cover(struct image *m, double x0, double y0, double x1, double y1, double radius)
{
    struct frame f = around(m, x0, y0, x1, y1, radius);
    double dx = x1 - x0, dy = y1 - y0, length = dx * dx + dy * dy;
    for (int y = f.top; y < f.bottom; y++) {
        for (int x = f.left; x < f.right; x++) {
            double t = length > 0 ? ((x - x0) * dx + (y - y0) * dy) / length : 0;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            double ex = x - x0 - t * dx, ey = y - y0 - t * dy, part = radius + .5 - sqrt(ex * ex + ey * ey);
            unsigned char c = part <= 0 ? 0 : part >= 1 ? 255 : (unsigned char)(255 * part + .5), *at = m->cover + (size_t)y * (size_t)m->width + x;
            *at = c > *at ? c : *at;
        }
    }
}

/* Paints what the segment had covered, and clears the cover there. */
static void paint(struct image *m, double x0, double y0, double x1, double y1, double radius, struct llm_rgb colour)
{
    struct frame f = around(m, x0, y0, x1, y1, radius);
    const unsigned char c[3] = {colour.r, colour.g, colour.b};
    for (int y = f.top; y < f.bottom; y++) {
        for (int x = f.left; x < f.right; x++) {
            size_t at = (size_t)y * (size_t)m->width + (size_t)x;
            int part = m->cover[at];
            for (int k = 0; k < 3; k++) m->rgb[3 * at + k] = (unsigned char)((m->rgb[3 * at + k] * (255 - part) + c[k] * part + 127) / 255);
            m->cover[at] = 0;
        }
    }
}

static void line(struct image *m, const double *x, const double *y, size_t n, double radius, struct llm_rgb colour)
{
    for (size_t i = 0; i + 1 < n; i++) cover(m, x[i], y[i], x[i + 1], y[i + 1], radius);
    for (size_t i = 0; i + 1 < n; i++) paint(m, x[i], y[i], x[i + 1], y[i + 1], radius, colour);
}

/* Where a text's pixel (right, up) from its pen is in the image. */
static void place(const struct llm_draw_item *t, double pen, double right, double up, double *x, double *y)
{
    *x = t->how.upwards ? t->x - up : t->x + pen + right;
    *y = t->how.upwards ? t->y - pen - right : t->y - up;
}

static void box_square(struct image *m, const struct llm_draw_item *t, double pen, int right, int up, int width, int height)
{
    double x0, y0, x1, y1;
    place(t, pen, right, up, &x0, &y0);
    place(t, pen, right + width - 1, up + height - 1, &x1, &y1);
    fill(m, (int)fmin(x0, x1), (int)fmin(y0, y1), (int)fabs(x1 - x0) + 1, (int)fabs(y1 - y0) + 1, t->how.colour);
}

static void draw_box(struct image *m, const struct llm_draw_item *t, const struct llm_glyph *g, double pen)
{
    struct llm_glyph_box b = llm_glyph_box(g, t->how.unit);
    int q = b.square, columns = g->n_digits == 2 ? 2 : g->n_digits / 2, width = b.right - b.left + q, height = b.top - b.bottom + q;
    box_square(m, t, pen, b.left, b.bottom, width, q);
    box_square(m, t, pen, b.left, b.top, width, q);
    box_square(m, t, pen, b.left, b.bottom, q, height);
    box_square(m, t, pen, b.right, b.bottom, q, height);
    for (int i = 0; i < g->n_digits; i++) {
        int digit = (int)(g->code >> (4 * (g->n_digits - 1 - i)) & 15), left = b.left + 2 * q + i % columns * 4 * q;
        int top = b.top - 2 * q - i / columns * 6 * q;
        for (int k = 0; k < 15; k++) {
            if (llm_box_digit(digit, k / 3) >> (2 - k % 3) & 1) box_square(m, t, pen, left + k % 3 * q, top - k / 3 * q, q, q);
        }
    }
}

static void draw_glyph(struct image *m, const struct llm_draw_item *t, const struct llm_glyph *g, double pen, double radius)
{
    double x[LLM_GLYPH_POINTS], y[LLM_GLYPH_POINTS];
    for (int i = 0; i < g->n_points; i++) place(t, pen, g->x[i], g->y[i], &x[i], &y[i]);
    for (int s = 0, i = 0; s < g->n_strokes; i = g->ends[s++]) {
        line(m, x + i, y + i, (size_t)(g->ends[s] - i), radius, t->how.colour);
    }
}

static void draw_text(struct image *m, const struct llm_draw_item *t)
{
    struct llm_glyph g;
    double radius = .2 + .55 * t->how.unit;
    int pen = t->how.anchor == LLM_ANCHOR_END ? -t->width : t->how.anchor == LLM_ANCHOR_MIDDLE ? -(t->width / 2) : 0;
    for (const char *s = t->text; *s; pen += g.advance) {
        llm_glyph_next(&g, &s, t->how.unit);
        if (g.n_digits) draw_box(m, t, &g, pen);
        else draw_glyph(m, t, &g, pen, radius);
    }
}

static void draw_cells(struct image *m, const struct llm_draw_item *g)
{
    for (size_t r = 0; r < g->rows; r++) {
        for (size_t c = 0; c < g->cols; c++) fill(m, g->edges[c], g->edges[g->cols + r], g->width, g->height, g->colours[r * g->cols + c]);
    }
}

int llm_drawing_png(const struct llm_drawing *d, struct llm_output *o, struct llm_err *e)
{
    size_t pixels = (size_t)d->width * (size_t)d->height;
    struct image m = {d->width, d->height, NULL, NULL};
    int status = -1;
    if (d->err.status) {
        *e = d->err;
        return -1;
    }
    m.rgb = llm_alloc(pixels, 3, "a picture", e);
    m.cover = m.rgb ? llm_calloc(pixels, 1, "a picture", e) : NULL;
    if (m.cover) {
        memset(m.rgb, 255, pixels * 3);
        for (size_t i = 0; i < d->n; i++) {
            const struct llm_draw_item *t = &d->items[i];
            if (t->kind == LLM_DRAWN_RECT) fill(&m, t->x, t->y, t->width, t->height, t->colour);
            else if (t->kind == LLM_DRAWN_LINE) line(&m, t->points, t->points + t->cols, t->cols, t->thickness / 2, t->colour);
            else if (t->kind == LLM_DRAWN_TEXT) draw_text(&m, t);
            else draw_cells(&m, t);
        }
        status = llm_png_write(o, m.rgb, m.width, m.height, e);
    }
    free(m.rgb);
    free(m.cover);
    return status;
}
