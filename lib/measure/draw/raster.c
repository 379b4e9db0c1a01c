/* The back end that makes pixels: strokes are antialiased by their distance from each pixel's centre. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "io/png.h"
#include "measure/draw/drawing_internal.h"

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

struct ink_of { struct image *m; const struct llm_draw_item *t; };

static void ink_square(void *arg, int x, int y, int width, int height)
{
    const struct ink_of *k = arg;
    fill(k->m, x, y, width, height, k->t->how.colour);
}

static void ink_stroke(void *arg, const double *x, const double *y, size_t n)
{
    const struct ink_of *k = arg;
    line(k->m, x, y, n, llm_text_radius(k->t), k->t->how.colour);
}

static void draw_text(struct image *m, const struct llm_draw_item *t)
{
    struct ink_of k = {m, t};
    llm_text_ink(t, ink_stroke, ink_square, &k);
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
