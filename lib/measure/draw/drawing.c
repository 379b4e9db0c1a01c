#include "measure/draw/drawing_internal.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "measure/draw/font.h"

enum { TEXT_ROOM = 1024 };

struct llm_drawing *llm_drawing_create(int width, int height, struct llm_err *e)
{
    if (width < 1 || height < 1 || width > LLM_DRAWING_MAX || height > LLM_DRAWING_MAX) {
        llm_fail(e, EX_UNAVAILABLE, "picture: expected 1 to %d pixels a side, found %d × %d", LLM_DRAWING_MAX, width, height);
        return NULL;
    }
    struct llm_drawing *d = llm_calloc(1, sizeof *d, "a drawing", e);
    if (!d) return NULL;
    d->width = width;
    d->height = height;
    return d;
}

void llm_drawing_destroy(struct llm_drawing *d)
{
    for (size_t i = 0; d && i < d->n; i++) {
        free(d->items[i].points);
        free(d->items[i].edges);
        free(d->items[i].colours);
        free(d->items[i].text);
    }
    if (d) free(d->items);
    free(d);
}

static struct llm_draw_item *add(struct llm_drawing *d, enum llm_drawn kind)
{
    if (d->err.status || llm_grow((void **)&d->items, &d->room, d->n + 1, sizeof *d->items, &d->err) < 0) return NULL;
    d->items[d->n] = (struct llm_draw_item){.kind = kind};
    return &d->items[d->n++];
}

void llm_draw_rect(struct llm_drawing *d, int x, int y, int width, int height, struct llm_rgb colour)
{
    struct llm_draw_item *i = add(d, LLM_DRAWN_RECT);
    if (!i) return;
    i->x = x;
    i->y = y;
    i->width = width;
    i->height = height;
    i->colour = colour;
}

void llm_draw_line(struct llm_drawing *d, const double *x, const double *y, size_t n, double thickness, struct llm_rgb colour)
{
    struct llm_draw_item *i = add(d, LLM_DRAWN_LINE);
    if (!i) return;
    i->points = llm_alloc(2 * n, sizeof *i->points, "a line", &d->err);
    if (!i->points) return;
    memcpy(i->points, x, n * sizeof *x);
    memcpy(i->points + n, y, n * sizeof *y);
    i->cols = n;
    i->thickness = thickness;
    i->colour = colour;
}

void llm_draw_text(struct llm_drawing *d, int x, int y, int width, struct llm_text how, const char *text)
{
    char fitted[TEXT_ROOM];
    struct llm_draw_item *i = add(d, LLM_DRAWN_TEXT);
    if (!i) return;
    i->width = llm_text_fit(text, how.unit, width, fitted, sizeof fitted);
    i->text = strdup(fitted);
    if (!i->text) llm_no_memory(&d->err, "a text");
    i->x = x;
    i->y = y;
    i->how = how;
}

void llm_draw_cells(struct llm_drawing *d, const int *x, size_t cols, const int *y, size_t rows, int cell_width, int cell_height,
                    const struct llm_rgb *colours)
{
    struct llm_draw_item *i = add(d, LLM_DRAWN_CELLS);
    if (!i) return;
    i->edges = llm_alloc(cols + rows, sizeof *i->edges, "a grid", &d->err);
    i->colours = i->edges ? llm_alloc(rows * cols, sizeof *colours, "a grid", &d->err) : NULL;
    if (!i->colours) return;
    memcpy(i->edges, x, cols * sizeof *x);
    memcpy(i->edges + cols, y, rows * sizeof *y);
    memcpy(i->colours, colours, rows * cols * sizeof *colours);
    i->cols = cols;
    i->rows = rows;
    i->width = cell_width;
    i->height = cell_height;
}
