/* Texts of drawings as strokes and squares, for every back end. */
#include <math.h>
#include "measure/draw/drawing_internal.h"
#include "measure/draw/font.h"

double llm_text_radius(const struct llm_draw_item *t) { return .2 + .55 * t->how.unit; }

/* Where a text's pixel (right, up) from its pen is in the image. */
static void place(const struct llm_draw_item *t, double pen, double right, double up, double *x, double *y)
{
    *x = t->how.upwards ? t->x - up : t->x + pen + right;
    *y = t->how.upwards ? t->y - pen - right : t->y - up;
}

struct ink { const struct llm_draw_item *t; llm_ink_stroke *stroke; llm_ink_square *square; void *arg; };

static void box_square(const struct ink *k, double pen, int right, int up, int width, int height)
{
    double x0, y0, x1, y1;
    place(k->t, pen, right, up, &x0, &y0);
    place(k->t, pen, right + width - 1, up + height - 1, &x1, &y1);
    k->square(k->arg, (int)fmin(x0, x1), (int)fmin(y0, y1), (int)fabs(x1 - x0) + 1, (int)fabs(y1 - y0) + 1);
}

static void box(const struct ink *k, const struct llm_glyph *g, double pen)
{
    struct llm_glyph_box b = llm_glyph_box(g, k->t->how.unit);
    int q = b.square, columns = g->n_digits == 2 ? 2 : g->n_digits / 2, width = b.right - b.left + q, height = b.top - b.bottom + q;
    box_square(k, pen, b.left, b.bottom, width, q);
    box_square(k, pen, b.left, b.top, width, q);
    box_square(k, pen, b.left, b.bottom, q, height);
    box_square(k, pen, b.right, b.bottom, q, height);
    for (int i = 0; i < g->n_digits; i++) {
        int digit = (int)(g->code >> (4 * (g->n_digits - 1 - i)) & 15), left = b.left + 2 * q + i % columns * 4 * q;
        int top = b.top - 2 * q - i / columns * 6 * q;
        for (int s = 0; s < 15; s++) {
            if (llm_box_digit(digit, s / 3) >> (2 - s % 3) & 1) box_square(k, pen, left + s % 3 * q, top - s / 3 * q, q, q);
        }
    }
}

static void glyph(const struct ink *k, const struct llm_glyph *g, double pen)
{
    double x[LLM_GLYPH_POINTS], y[LLM_GLYPH_POINTS];
    for (int i = 0; i < g->n_points; i++) place(k->t, pen, g->x[i], g->y[i], &x[i], &y[i]);
    for (int s = 0, i = 0; s < g->n_strokes; i = g->ends[s++]) k->stroke(k->arg, x + i, y + i, (size_t)(g->ends[s] - i));
}

void llm_text_ink(const struct llm_draw_item *t, llm_ink_stroke *stroke, llm_ink_square *square, void *arg)
{
    struct ink k = {t, stroke, square, arg};
    struct llm_glyph g;
    int pen = t->how.anchor == LLM_ANCHOR_END ? -t->width : t->how.anchor == LLM_ANCHOR_MIDDLE ? -(t->width / 2) : 0;
    for (const char *s = t->text; *s; pen += g.advance) {
        llm_glyph_next(&g, &s, t->how.unit);
        if (g.n_digits) box(&k, &g, pen);
        else glyph(&k, &g, pen);
    }
}
