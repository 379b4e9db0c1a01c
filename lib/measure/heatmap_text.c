#include "measure/heatmap_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHADES = 5, NUMBER = 6, ROWS = 48 }; /* NUMBER: characters before a row; ROWS: of a map at most */
static const char *const shades[SHADES] = {"\xc2\xb7", "\xe2\x96\x91", "\xe2\x96\x92", "\xe2\x96\x93", "\xe2\x96\x88"}; /* · ░ ▒ ▓ █ */

/* Columns or rows: how many `v` has, how many of those a character stands for, and how many of the axis. */
struct line { const struct llm_heatmap_axis *axis; int64_t stored, step, all, n; };

static struct line line_of(const struct llm_heatmap_axis *a, int64_t room)
{
    struct line l = {.axis = a, .stored = a->step > 1 ? (a->n + a->step - 1) / a->step : a->n};
    l.step = (l.stored + room - 1) / room;
    l.all = l.step * (a->step > 1 ? a->step : 1);
    l.n = (l.stored + l.step - 1) / l.step;
    return l;
}

static int64_t number_of(const struct line *l, int64_t i)
{
    int64_t at = i * l->all < l->axis->n ? i * l->all : l->axis->n - 1;
    return l->axis->numbers ? l->axis->numbers[at] : at;
}

static const char *label_of(const struct line *l, int64_t i)
{
    int64_t at = i * l->all < l->axis->n ? i * l->all : l->axis->n - 1;
    return l->axis->labels ? l->axis->labels[at] : "";
}

static float largest_of(const float *v, const struct line *x, const struct line *y, int64_t row, int64_t col)
{
    float max = (float)NAN;
    for (int64_t r = row * y->step; r < (row + 1) * y->step && r < y->stored; r++) {
        for (int64_t c = col * x->step; c < (col + 1) * x->step && c < x->stored; c++) {
            float z = v[r * x->stored + c];
            if (isfinite(z) && !(z <= max)) max = z;
        }
    }
    return max;
}

static const char *shade_of(float v, double largest)
{
    if (!isfinite(v)) return " ";
    double x = largest > 0 ? sqrt((double)v / largest) : 0;
    return shades[x >= 1 ? SHADES - 1 : (int)(x * SHADES)];
}

static int put_panel(struct llm_buf *b, const float *v, const struct line *x, const struct line *y, int wide, double largest, struct llm_err *e)
{
    for (int64_t r = 0; r < y->n; r++) {
        if (llm_buf_printf(b, e, "%*" PRId64 " ", NUMBER - 1, number_of(y, r)) < 0) return -1;
        for (int64_t c = 0; c < x->n; c++) {
            const char *s = shade_of(largest_of(v, x, y, r, c), largest);
            if (llm_buf_printf(b, e, "%s%s", s, wide > 1 ? s : "") < 0) return -1;
        }
        if (llm_buf_printf(b, e, " %s\n", label_of(y, r)) < 0) return -1;
    }
    int64_t every = (8 + wide - 1) / wide; /* characters between numbers of columns */
    if (llm_buf_printf(b, e, "%*s", NUMBER, "") < 0) return -1;
    for (int64_t c = 0; c < x->n; c += every) {
        if (llm_buf_printf(b, e, "%-*" PRId64, (int)every * wide, number_of(x, c)) < 0) return -1;
    }
    return llm_buf_printf(b, e, "\n") < 0 ? -1 : 0;
}

int llm_heatmap_text(struct llm_buf *b, const struct llm_heatmap *h, int cols, struct llm_err *e)
{
    if (h->x.n < 1 || h->y.n < 1) return llm_fail(e, EX_DATAERR, "picture: expected numbers to draw, found none");
    int64_t room = cols - NUMBER - 1 > 8 ? cols - NUMBER - 1 : 8, panels = h->n_panels > 1 ? h->n_panels : 1;
    struct line x = line_of(&h->x, room), y = line_of(&h->y, ROWS);
    int wide = 2 * x.n <= room ? 2 : 1;
    double largest = 0;
    for (int64_t i = 0; i < panels * x.stored * y.stored; i++) {
        if (h->v[i] < 0) return llm_fail(e, EX_DATAERR, "map: expected numbers that are not negative, found %g", (double)h->v[i]);
        if (h->v[i] > largest) largest = (double)h->v[i];
    }
    int bad = llm_buf_printf(b, e, "%s\n%s%sdown: %s, across: %s\n", h->title, h->subtitle ? h->subtitle : "", h->subtitle ? "; " : "", h->y.name,
                             h->x.name) < 0;
    for (int64_t p = 0; p < panels && !bad; p++) {
        bad = (h->panels && llm_buf_printf(b, e, "%s\n", h->panels[p]) < 0)
              || put_panel(b, h->v + p * x.stored * y.stored, &x, &y, wide, largest, e) < 0;
    }
    for (int i = 0; i < SHADES && !bad; i++) {
        double share = (i + 1) / (double)SHADES;
        bad = llm_buf_printf(b, e, "%s%s \xe2\x89\xa4 %.2g", i ? "  " : "", shades[i], largest * share * share) < 0;
    }
    bad = bad || llm_buf_printf(b, e, "  (%s)\n", h->value) < 0;
    if (!bad && (x.all > 1 || y.all > 1)) {
        bad = llm_buf_printf(b, e, "A cell shows the largest among up to %" PRId64 " \xc3\x97 %" PRId64 " neighbours.\n", x.all, y.all) < 0;
    }
    return bad ? -1 : 0;
}
