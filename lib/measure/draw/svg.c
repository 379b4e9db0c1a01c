/* The back end that makes SVG. Texts are drawn as the strokes that the PNG has, so that both look alike everywhere; aria-label has their
 * characters. */
#include <stdlib.h>
#include <string.h>
#include "base/base64.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "io/png.h"
#include "measure/draw/drawing_internal.h"

struct page { struct llm_output *o; struct llm_err *e; int bad; };

#define PUT(page, ...) ((page)->bad |= (page)->bad || llm_output_printf((page)->o, (page)->e, __VA_ARGS__) < 0)

/* What XML may not contain becomes U+FFFD. */
static void put_label(struct page *p, const char *s)
{
    for (size_t n = strlen(s), at = 0; at < n;) {
        uint32_t c;
        int length = llm_utf8_next((const unsigned char *)s + at, n - at, &c);
        if (length <= 0 || c < 0x20 || c == 0xFFFE || c == 0xFFFF) PUT(p, "\xEF\xBF\xBD");
        else if (c == '&' || c == '<' || c == '"') PUT(p, "&#%u;", (unsigned)c);
        else PUT(p, "%.*s", length, s + at);
        at += length > 0 ? (size_t)length : 1;
    }
}

static unsigned hex(struct llm_rgb c) { return (unsigned)c.r << 16 | (unsigned)c.g << 8 | c.b; }

static void put_rect(struct page *p, int x, int y, int width, int height, struct llm_rgb c)
{
    PUT(p, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#%06x\"/>\n", x, y, width, height, hex(c));
}

/* Integer coordinates are the centres of pixels. */
static void stroke(void *arg, const double *x, const double *y, size_t n)
{
    struct page *p = arg;
    for (size_t i = 0; i < n; i++) PUT(p, "%s%.1f %.1f", i ? "L" : "M", x[i] + .5, y[i] + .5);
}

struct boxes { struct page *p; struct llm_rgb colour; };

static void square(void *arg, int x, int y, int width, int height)
{
    const struct boxes *b = arg;
    put_rect(b->p, x, y, width, height, b->colour);
}

static void no_stroke(void *arg, const double *x, const double *y, size_t n) { (void)arg, (void)x, (void)y, (void)n; }

static void no_square(void *arg, int x, int y, int width, int height) { (void)arg, (void)x, (void)y, (void)width, (void)height; }

static void put_path(struct page *p, double thickness, struct llm_rgb c)
{
    PUT(p, "\" fill=\"none\" stroke=\"#%06x\" stroke-width=\"%.3g\" stroke-linecap=\"round\" stroke-linejoin=\"round\"/>", hex(c), thickness);
}

static void put_text(struct page *p, const struct llm_draw_item *t)
{
    PUT(p, "<g role=\"img\" aria-label=\"");
    put_label(p, t->text);
    PUT(p, "\"><path d=\"");
    llm_text_ink(t, stroke, no_square, p);
    put_path(p, 2 * llm_text_radius(t), t->how.colour);
    llm_text_ink(t, no_stroke, square, &(struct boxes){p, t->how.colour});
    PUT(p, "</g>\n");
}

enum { FEW_CELLS = 1024 }; /* as rectangles; more are pictures within the picture */

/* The end of a run of columns (rows) from `at` on that stand `size` pixels apart. */
static size_t run_end(const int *edges, size_t n, size_t at, int size)
{
    do at++;
    while (at < n && edges[at] == edges[at - 1] + size);
    return at;
}

/* Columns [left, right) and rows [top, bottom) of a grid as a picture of a pixel for each cell. */
static int put_image(struct page *p, const struct llm_draw_item *g, size_t left, size_t right, size_t top, size_t bottom)
{
    const int *x = g->edges, *y = g->edges + g->cols;
    size_t cols = right - left, rows = bottom - top;
    struct llm_buf png = {0}, text = {0};
    unsigned char *rgb = llm_alloc(rows * cols, 3, "a picture", p->e);
    for (size_t i = 0; rgb && i < rows * cols; i++) memcpy(rgb + 3 * i, &g->colours[(top + i / cols) * g->cols + left + i % cols], 3);
    int bad = !rgb || llm_png_put(&png, rgb, (int64_t)cols, (int64_t)rows, p->e) < 0 || llm_base64_put(&text, png.p, png.n, p->e) < 0;
    if (!bad) {
        PUT(p, "<image x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" "
            "href=\"data:image/png;base64,", x[left], y[top], (int)cols * g->width, (int)rows * g->height);
        if (llm_output_write(p->o, text.p, text.n, p->e) < 0) p->bad = -1;
        PUT(p, "\"/>\n");
    }
    free(rgb);
    llm_buf_release(&png);
    llm_buf_release(&text);
    return bad ? -1 : 0;
}

static void put_cells(struct page *p, const struct llm_draw_item *g)
{
    for (size_t top = 0, bottom; g->rows * g->cols > FEW_CELLS && top < g->rows; top = bottom) {
        bottom = run_end(g->edges + g->cols, g->rows, top, g->height);
        for (size_t left = 0, right; left < g->cols; left = right) {
            right = run_end(g->edges, g->cols, left, g->width);
            if (put_image(p, g, left, right, top, bottom) < 0) p->bad = -1;
        }
    }
    if (g->rows * g->cols > FEW_CELLS) return;
    for (size_t i = 0; i < g->rows * g->cols; i++) {
        put_rect(p, g->edges[i % g->cols], g->edges[g->cols + i / g->cols], g->width, g->height, g->colours[i]);
    }
}

int llm_drawing_svg(const struct llm_drawing *d, struct llm_output *o, struct llm_err *e)
{
    struct page p = {o, e, 0};
    if (d->err.status) {
        *e = d->err;
        return -1;
    }
    PUT(&p, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", d->width, d->height, d->width,
        d->height);
    put_rect(&p, 0, 0, d->width, d->height, (struct llm_rgb){255, 255, 255});
    for (size_t i = 0; i < d->n; i++) {
        const struct llm_draw_item *t = &d->items[i];
        if (t->kind == LLM_DRAWN_RECT) put_rect(&p, t->x, t->y, t->width, t->height, t->colour);
        else if (t->kind == LLM_DRAWN_TEXT) put_text(&p, t);
        else if (t->kind == LLM_DRAWN_CELLS) put_cells(&p, t);
        else {
            PUT(&p, "<path d=\"");
            stroke(&p, t->points, t->points + t->cols, t->cols);
            put_path(&p, t->thickness, t->colour);
            PUT(&p, "\n");
        }
    }
    PUT(&p, "</svg>\n");
    return p.bad ? -1 : 0;
}
