#include "measure/plot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "measure/draw/font.h"
#include "measure/draw/scale.h"

/* Colours that people with any kind of colour vision tell apart, dark enough on white, light enough on black. */
static const struct llm_rgb on_white[LLM_PLOT_SERIES] = {{0, 95, 168}, {196, 78, 0}, {0, 122, 88}, {176, 58, 128},
                                                         {128, 98, 0}, {60, 60, 68}, {22, 140, 190}, {150, 30, 30}};
static const struct llm_rgb on_black[LLM_PLOT_SERIES] = {{96, 178, 255}, {255, 150, 72}, {64, 208, 160}, {238, 140, 204},
                                                         {228, 196, 72}, {200, 200, 208}, {120, 226, 255}, {255, 120, 120}};

void llm_plot_release(struct llm_plot *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->v[i].name);
        free(p->v[i].x);
        free(p->v[i].y);
    }
    for (size_t i = 0; i < p->n_names; i++) free(p->names[i]);
    free(p->names);
    p->n = p->n_names = p->names_room = 0;
    p->names = NULL;
}

/* ---- the points in order ---- */

struct point { double x, y; size_t at; };

static int by_x(const void *a, const void *b)
{
    const struct point *p = a, *q = b;
    return p->x != q->x ? (p->x > q->x) - (p->x < q->x) : (p->at > q->at) - (p->at < q->at);
}

static int sort(struct llm_series *s, struct llm_err *e)
{
    bool sorted = true;
    for (size_t i = 1; i < s->n; i++) sorted &= s->x[i - 1] <= s->x[i];
    if (sorted) return 0;
    struct point *v = llm_alloc(s->n, sizeof *v, "points", e);
    if (!v) return -1;
    for (size_t i = 0; i < s->n; i++) v[i] = (struct point){s->x[i], s->y[i], i};
    qsort(v, s->n, sizeof *v, by_x);
    for (size_t i = 0; i < s->n; i++) {
        s->x[i] = v[i].x;
        s->y[i] = v[i].y;
    }
    free(v);
    return 0;
}

int llm_plot_finish(struct llm_plot *p, struct llm_err *e)
{
    size_t points = 0;
    for (size_t k = 0; k < p->n; k++) {
        const struct llm_series *s = &p->v[k];
        points += s->n;
        for (size_t i = 0; i < s->n; i++) {
            bool x = p->log_x && !p->names && s->x[i] <= 0;
            if (!x && !(p->log_y && s->y[i] <= 0)) continue;
            return llm_fail(e, EX_DATAERR, "%s: expected numbers above 0 on a logarithmic axis, found %g", x ? p->x_label : s->name,
                            x ? s->x[i] : s->y[i]);
        }
        if (sort(&p->v[k], e) < 0) return -1;
    }
    return points > 0 ? 0 : llm_fail(e, EX_DATAERR, "expected rows with numbers to draw, found none");
}

/* ---- axes ---- */

struct axes { struct llm_scale x, y; double x_ticks[LLM_SCALE_TICKS], y_ticks[LLM_SCALE_TICKS]; int n_x, n_y; };

/* An axis with some space around its numbers; bars begin at 0. */
static struct llm_scale scale_of(double low, double high, bool log, bool bars)
{
    struct llm_scale s = {low, high, log ? LLM_SCALE_LOG : LLM_SCALE_LINEAR, false};
    if (log) {
        double more = high > low ? pow(high / low, .04) : 1.5;
        s.low /= more;
        s.high *= more;
        return s;
    }
    if (bars) s.low = fmin(low, 0), s.high = fmax(high, 0);
    double more = .05 * (s.high > s.low ? s.high - s.low : s.high != 0 ? fabs(s.high) : 1);
    if (!bars || s.low < 0) s.low -= more;
    if (!bars || s.high > 0) s.high += more;
    return s;
}

static struct axes axes_of(const struct llm_plot *p)
{
    struct axes a;
    double x[2] = {INFINITY, -INFINITY}, y[2] = {INFINITY, -INFINITY};
    for (size_t k = 0; k < p->n; k++) {
        for (size_t i = 0; i < p->v[k].n; i++) {
            x[0] = fmin(x[0], p->v[k].x[i]), x[1] = fmax(x[1], p->v[k].x[i]);
            y[0] = fmin(y[0], p->v[k].y[i]), y[1] = fmax(y[1], p->v[k].y[i]);
        }
    }
    a.x = p->names ? (struct llm_scale){-.5, (double)p->n_names - .5, LLM_SCALE_LINEAR, false} : scale_of(x[0], x[1], p->log_x, false);
    if (!p->names && !p->log_x && x[1] > x[0]) a.x.low = x[0], a.x.high = x[1]; /* lines reach the sides */
    a.y = scale_of(y[0], y[1], p->log_y, p->names && !p->log_y);
    a.n_x = p->names ? 0 : llm_scale_ticks(&a.x, a.x_ticks);
    a.n_y = llm_scale_ticks(&a.y, a.y_ticks);
    return a;
}

/* ---- as a drawing ---- */

enum { GAP = 10, LETTER = 13, TICK = 5, LEGEND_LINE = 22, ROW = 20 };

struct frame { int left, top, width, height; struct axes a; struct llm_rgb ink, grid; const struct llm_rgb *colours; };

static double at_x(const struct frame *f, double v) { return f->left + llm_scale_at(&f->a.x, v) * (f->width - 1); }
static double at_y(const struct frame *f, double v) { return f->top + (1 - llm_scale_at(&f->a.y, v)) * (f->height - 1); }

static struct llm_text text_of(const struct frame *f, enum llm_anchor anchor)
{
    return (struct llm_text){LLM_TEXT_BODY, anchor, false, f->ink};
}

/* Draws the names of the series from `top` on, several on a line, and returns the height that they take; d NULL: only the height. */
static int legend(const struct llm_plot *p, struct llm_drawing *d, const struct frame *f, int top)
{
    int x = f->left, y = top;
    if (p->n < 2) return 0;
    for (size_t k = 0; k < p->n; k++) {
        int text = llm_text_width(p->v[k].name, LLM_TEXT_BODY), most = p->width - f->left - GAP - LEGEND_LINE - 6;
        int width = LEGEND_LINE + 6 + (text < most ? text : most) + 2 * GAP;
        if (x > f->left && x + width > p->width) x = f->left, y += ROW;
        if (d) {
            llm_draw_rect(d, x, y + ROW / 2 - 2, LEGEND_LINE, 4, f->colours[k]);
            llm_draw_text(d, x + LEGEND_LINE + 6, y + ROW / 2 + 4, most, text_of(f, LLM_ANCHOR_START), p->v[k].name);
        }
        x += width;
    }
    return y - top + ROW + GAP / 2;
}

static void draw_y_axis(struct llm_drawing *d, const struct llm_plot *p, const struct frame *f)
{
    char number[32];
    for (int i = 0; i < f->a.n_y; i++) {
        int y = (int)lround(at_y(f, f->a.y_ticks[i]));
        llm_draw_rect(d, f->left, y, f->width, 1, f->grid);
        llm_scale_number(f->a.y_ticks[i], number, sizeof number);
        llm_draw_text(d, f->left - TICK - 2, y + 4, f->left, text_of(f, LLM_ANCHOR_END), number);
    }
    struct llm_text up = text_of(f, LLM_ANCHOR_MIDDLE);
    up.upwards = true;
    llm_draw_text(d, GAP + LETTER, f->top + f->height / 2, f->height, up, p->y_label);
}

static void draw_x_axis(struct llm_drawing *d, const struct llm_plot *p, const struct frame *f)
{
    char number[32];
    int bottom = f->top + f->height, room = p->names ? f->width / (int)p->n_names - 4 : 0;
    for (int i = 0; i < f->a.n_x; i++) {
        int x = (int)lround(at_x(f, f->a.x_ticks[i]));
        llm_draw_rect(d, x, bottom, 1, TICK, f->ink);
        llm_scale_number(f->a.x_ticks[i], number, sizeof number);
        llm_draw_text(d, x, bottom + TICK + LETTER, f->width, text_of(f, LLM_ANCHOR_MIDDLE), number);
    }
    for (size_t i = 0; i < p->n_names && room > 0; i++) {
        llm_draw_text(d, (int)lround(at_x(f, (double)i)), bottom + TICK + LETTER, room, text_of(f, LLM_ANCHOR_MIDDLE), p->names[i]);
    }
    llm_draw_text(d, f->left + f->width / 2, bottom + TICK + 2 * LETTER + 8, f->width, text_of(f, LLM_ANCHOR_MIDDLE), p->x_label);
    llm_draw_rect(d, f->left, bottom, f->width, 1, f->ink);
    llm_draw_rect(d, f->left, f->top, 1, f->height, f->ink);
}

static void draw_bars(struct llm_drawing *d, const struct llm_plot *p, const struct frame *f)
{
    double slot = (double)f->width / (double)p->n_names, width = slot * .8 / (double)p->n;
    int zero = (int)lround(at_y(f, p->log_y ? f->a.y.low : 0));
    for (size_t k = 0; k < p->n; k++) {
        for (size_t i = 0; i < p->v[k].n; i++) {
            int x = (int)lround(at_x(f, p->v[k].x[i]) - slot * .4 + width * (double)k), y = (int)lround(at_y(f, p->v[k].y[i]));
            llm_draw_rect(d, x, y < zero ? y : zero, width > 2 ? (int)width : 1, abs(zero - y) + 1, f->colours[k]);
        }
    }
}

/* A line of many points keeps, for each column of pixels, the first, lowest, highest and last. */
static size_t thin(const struct llm_series *s, const struct frame *f, double *x, double *y)
{
    size_t n = 0;
    for (size_t i = 0, end; i < s->n; i = end) {
        size_t low = i, high = i;
        double column = floor(at_x(f, s->x[i]));
        for (end = i + 1; end < s->n && floor(at_x(f, s->x[end])) == column; end++) {
            if (s->y[end] < s->y[low]) low = end;
            if (s->y[end] > s->y[high]) high = end;
        }
        const size_t keep[4] = {i, low < high ? low : high, low < high ? high : low, end - 1};
        for (int k = 0; k < 4; k++) {
            if (k > 0 && keep[k] == keep[k - 1]) continue;
            x[n] = at_x(f, s->x[keep[k]]);
            y[n++] = at_y(f, s->y[keep[k]]);
        }
    }
    return n;
}

static int draw_lines(struct llm_drawing *d, const struct llm_plot *p, const struct frame *f, struct llm_err *e)
{
    enum { MARKED = 50 }; /* points of a series that are marked one by one */
    for (size_t k = 0; k < p->n; k++) {
        const struct llm_series *s = &p->v[k];
        double *x = llm_alloc(4 * s->n, sizeof *x, "points", e), *y = x ? llm_alloc(4 * s->n, sizeof *y, "points", e) : NULL;
        size_t n = y && !s->points ? thin(s, f, x, y) : 0;
        for (size_t i = 0; y && s->points && i < s->n; i++) {
            x[n] = at_x(f, s->x[i]);
            y[n++] = at_y(f, s->y[i]);
        }
        if (n > 1 && !s->points) llm_draw_line(d, x, y, n, 2, f->colours[k]);
        for (size_t i = 0; i < n && (s->points || s->n <= MARKED); i++)
            llm_draw_rect(d, (int)lround(x[i]) - 3, (int)lround(y[i]) - 3, 7, 7, f->colours[k]);
        free(x);
        free(y);
        if (!y) return -1;
    }
    return 0;
}

struct llm_drawing *llm_plot_draw(const struct llm_plot *p, struct llm_err *e)
{
    struct frame f = {.a = axes_of(p), .ink = llm_ink, .grid = {225, 225, 228}, .colours = on_white};
    struct llm_drawing *d = llm_drawing_create(p->width, p->height, e);
    char number[32];
    int widest = 0;
    if (!d) return NULL;
    if (p->dark) {
        f.ink = (struct llm_rgb){232, 232, 236};
        f.grid = (struct llm_rgb){58, 58, 64};
        f.colours = on_black;
        llm_draw_rect(d, 0, 0, p->width, p->height, (struct llm_rgb){24, 24, 28});
    }
    for (int i = 0; i < f.a.n_y; i++) {
        llm_scale_number(f.a.y_ticks[i], number, sizeof number);
        int width = llm_text_width(number, LLM_TEXT_BODY);
        widest = width > widest ? width : widest;
    }
    f.left = GAP + LETTER + GAP + widest + TICK;
    int title = p->title ? 2 * GAP + LETTER + 4 : GAP, above = title + legend(p, NULL, &f, title);
    f.top = above + GAP;
    f.width = p->width - f.left - 2 * GAP - 8;
    f.height = p->height - f.top - TICK - 2 * LETTER - 8 - GAP - 4;
    if (f.width < 60 || f.height < 40) {
        llm_fail(e, LLM_EX_USAGE, "picture: expected more pixels than %d × %d for these texts", p->width, p->height);
        llm_drawing_destroy(d);
        return NULL;
    }
    const struct llm_text heading = {LLM_TEXT_TITLE, LLM_ANCHOR_START, false, f.ink};
    if (p->title) llm_draw_text(d, f.left, GAP + LETTER + 6, p->width - f.left - GAP, heading, p->title);
    legend(p, d, &f, title);
    draw_y_axis(d, p, &f);
    if (p->names) draw_bars(d, p, &f);
    else if (draw_lines(d, p, &f, e) < 0) {
        llm_drawing_destroy(d);
        return NULL;
    }
    draw_x_axis(d, p, &f);
    return d;
}

/* ---- as text ---- */

/* Characters whose quarters are covered: bit 0 upper left, 1 upper right, 2 lower left, 3 lower right. */
static const char *const quarters[16] = {" ", "\u2598", "\u259D", "\u2580", "\u2596", "\u258C", "\u259E", "\u259B",
                                         "\u2597", "\u259A", "\u2590", "\u259C", "\u2584", "\u2599", "\u259F", "\u2588"};

/* Dots of 2 × 2 a character, [2·rows, 2·cols]: bit k, that series k covers it. */
struct dots { int cols, rows; unsigned char *v; };

static void dot(struct dots *g, int x, int y, size_t series)
{
    if (x >= 0 && x < g->cols && y >= 0 && y < g->rows) g->v[(size_t)y * (size_t)g->cols + (size_t)x] |= (unsigned char)(1u << series);
}

static void segment(struct dots *g, double x0, double y0, double x1, double y1, size_t series)
{
    int n = (int)ceil(fmax(fabs(x1 - x0), fabs(y1 - y0)));
    for (int i = 0; i <= n; i++) {
        double t = n ? (double)i / n : 0;
        dot(g, (int)lround(x0 + t * (x1 - x0)), (int)lround(y0 + t * (y1 - y0)), series);
    }
}

static void fill_dots(struct dots *g, const struct llm_plot *p, const struct axes *a)
{
    double zero = (1 - llm_scale_at(&a->y, p->log_y ? a->y.low : 0)) * (g->rows - 1);
    for (size_t k = 0; k < p->n; k++) {
        const struct llm_series *s = &p->v[k];
        double before[2] = {0, 0};
        for (size_t i = 0; i < s->n; i++) {
            double x = llm_scale_at(&a->x, s->x[i]) * (g->cols - 1), y = (1 - llm_scale_at(&a->y, s->y[i])) * (g->rows - 1);
            double half = p->names ? .4 * g->cols / (double)p->n_names : 0, width = 2 * half / (double)p->n;
            if (p->names) {
                double from = x - half + width * (double)k;
                for (double w = 0; w < fmax(width - 1, 1); w++) segment(g, from + w, zero, from + w, y, k);
            } else {
                segment(g, i && !s->points ? before[0] : x, i && !s->points ? before[1] : y, x, y, k);
            }
            before[0] = x;
            before[1] = y;
        }
    }
}

static int put_cell(const struct dots *g, int row, int col, bool alone, struct llm_buf *out, struct llm_err *e)
{
    unsigned shape = 0, series = 0;
    for (int i = 0; i < 4; i++) {
        unsigned v = g->v[(size_t)(2 * row + i / 2) * (size_t)g->cols + (size_t)(2 * col + i % 2)];
        shape |= (v != 0) << i;
        series |= v;
    }
    if (alone) return llm_buf_printf(out, e, "%s", quarters[shape]);
    int last = -1; /* the last series lies on top */
    for (int k = 0; k < LLM_PLOT_SERIES; k++)
        if (series >> k & 1) last = k;
    return llm_buf_printf(out, e, "%c", last < 0 ? ' ' : 'a' + last);
}

/* The number of a tick whose line is this row, or "". */
static void row_label(const struct axes *a, int row, int rows, char *out, size_t room)
{
    *out = 0;
    for (int i = 0; i < a->n_y; i++) {
        if ((int)lround((1 - llm_scale_at(&a->y, a->y_ticks[i])) * (rows - 1)) == row) llm_scale_number(a->y_ticks[i], out, room);
    }
}

static int put_x_labels(const struct llm_plot *p, const struct axes *a, int left, int cols, struct llm_buf *out, struct llm_err *e)
{
    char number[32];
    int at = 0, n = p->names ? (int)p->n_names : a->n_x;
    if (llm_buf_printf(out, e, "%*s ", left, "") < 0) return -1;
    for (int i = 0; i < n; i++) {
        double v = p->names ? i : a->x_ticks[i];
        const char *text = p->names ? p->names[i] : number;
        if (!p->names) llm_scale_number(v, number, sizeof number);
        int room = p->names ? cols / n - 1 : cols, length = (int)strlen(text) < room ? (int)strlen(text) : room;
        int from = (int)lround(llm_scale_at(&a->x, v) * (cols - 1)) - length / 2;
        from = from + length > cols ? cols - length : from < 0 ? 0 : from;
        if (length < 1 || from < at) continue;
        if (llm_buf_printf(out, e, "%*s%.*s", from - at, "", length, text) < 0) return -1;
        at = from + length + 1;
        if (llm_buf_printf(out, e, " ") < 0) return -1;
    }
    while (out->n && out->p[out->n - 1] == ' ') out->p[--out->n] = 0;
    int length = (int)strlen(p->x_label);
    return llm_buf_printf(out, e, "\n%*s %*s%s\n", left, "", cols > length ? (cols - length) / 2 : 0, "", p->x_label);
}

static int put_rows(const struct llm_plot *p, const struct axes *a, const struct dots *g, int left, struct llm_buf *out, struct llm_err *e)
{
    char number[32];
    int cols = g->cols / 2, rows = g->rows / 2;
    for (int r = 0; r < rows; r++) {
        row_label(a, r, rows, number, sizeof number);
        if (llm_buf_printf(out, e, "%*s%s", left, number, *number ? "\u2524" : "\u2502") < 0) return -1;
        for (int c = 0; c < cols; c++)
            if (put_cell(g, r, c, p->n == 1, out, e) < 0) return -1;
        while (out->n && out->p[out->n - 1] == ' ') out->p[--out->n] = 0;
        if (llm_buf_printf(out, e, "\n") < 0) return -1;
    }
    if (llm_buf_printf(out, e, "%*s\u2514", left, "") < 0) return -1;
    for (int c = 0; c < cols; c++)
        if (llm_buf_printf(out, e, "\u2500") < 0) return -1;
    return llm_buf_printf(out, e, "\n");
}

int llm_plot_text(const struct llm_plot *p, int cols, int rows, struct llm_buf *out, struct llm_err *e)
{
    struct axes a = axes_of(p);
    char number[32];
    int left = 0;
    for (int i = 0; i < a.n_y; i++) {
        llm_scale_number(a.y_ticks[i], number, sizeof number);
        left = (int)strlen(number) > left ? (int)strlen(number) : left;
    }
    cols -= left + 1;
    rows -= 3 + (p->title != NULL) + (p->n > 1 ? (int)p->n : 1);
    cols = cols < 16 ? 16 : cols;
    rows = rows < 4 ? 4 : rows;
    struct dots g = {2 * cols, 2 * rows, llm_calloc((size_t)(4 * cols) * (size_t)rows, 1, "a chart", e)};
    if (!g.v) return -1;
    fill_dots(&g, p, &a);
    int status = p->title ? llm_buf_printf(out, e, "%s\n", p->title) : 0;
    if (status == 0 && p->n == 1) status = llm_buf_printf(out, e, "%s\n", p->y_label);
    for (size_t k = 0; k < p->n && p->n > 1 && status == 0; k++) status = llm_buf_printf(out, e, "%c %s\n", 'a' + (int)k, p->v[k].name);
    if (status == 0) status = put_rows(p, &a, &g, left, out, e);
    if (status == 0) status = put_x_labels(p, &a, left, cols, out, e);
    free(g.v);
    return status;
}
