/* Heat maps are laid out from the inside: cells, then labels, then the margins that the labels need. */
#include "measure/heatmap.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "measure/draw/drawing.h"
#include "measure/draw/font.h"

enum {
    BINS = 1024,                                        /* cells a side at most */
    PANEL_GAP = 18,                                     /* pixels between panels */
    WIDE = 1200, TALL = 960, CELL = 28,                 /* room for cells, and the largest cell */
    LINE = 16, TITLE_LINE = 24, MARGIN = 14, PAD = 6,   /* of text; around the picture; between label and axis */
    TICK = 4, DENSE = 12,                               /* pixels between labels that stand side by side */
    LABEL = 150, ROW_LABEL = 300, GROUP_LABEL = 110,    /* longest labels: of columns, of rows, of groups */
    BAR = 14, BAR_GAP = 28, BAR_TALL = 160, BAR_NUMBER = 64, NARROW = 420
};

/* An axis cut into bins; a bin lies within one group. */
struct side {
    const struct llm_heatmap_axis *axis;
    size_t n;          /* bins */
    int64_t *first;    /* [n + 1]: the first column or row of each bin */
    int *at;           /* [n]: the pixel where each bin begins */
    int cell, end;     /* pixels of a bin; where the last one ends */
    int64_t along;     /* panels beside or below each other */
    int64_t max;      /* columns or rows of the largest bin */
    int label_width, group_width;
};

struct map {
    const struct llm_heatmap *h;
    struct side x, y;
    struct llm_scale scale;
    float *v;          /* [panels, y.n, x.n] of bins */
    int64_t panels;    /* at least 1 */
    int left, top, right, bottom; /* of the cells */
    int bar, bar_end, width, height;
    char caption[200];
    struct llm_drawing *d;
};

static struct llm_text how(enum llm_anchor anchor, bool upwards, bool pale)
{
    return (struct llm_text){LLM_TEXT_BODY, anchor, upwards, pale ? llm_pale_ink : llm_ink};
}

/* ---- bins ---- */

int64_t llm_heatmap_across(int64_t n_panels, int64_t cols, int64_t rows)
{
    int64_t best = 1, least = INT64_MAX;
    for (int64_t across = 1; across <= n_panels; across++) {
        int64_t down = (n_panels + across - 1) / across, wide = across * cols, tall = down * rows, side = wide > tall ? wide : tall;
        if (side < least) best = across;
        if (side < least) least = side;
    }
    return best;
}

int64_t llm_heatmap_step(int64_t n, int64_t along)
{
    int64_t room = BINS / along > 0 ? BINS / along : 1;
    return (n + room - 1) / room;
}

static int cut(struct side *s, int64_t room, struct llm_err *e)
{
    const struct llm_heatmap_axis *a = s->axis;
    int64_t step = a->step > 1 ? a->step : llm_heatmap_step(a->n, s->along);
    s->first = llm_alloc((size_t)a->n + 1, sizeof *s->first, "a heat map", e);
    s->at = s->first ? llm_alloc((size_t)a->n, sizeof *s->at, "a heat map", e) : NULL;
    if (!s->at) return -1;
    for (int64_t i = 0; i < a->n; s->n++) {
        int64_t end = i + 1;
        while (end < a->n && end - i < step && (!a->groups || a->groups[end] == a->groups[i])) end++;
        s->first[s->n] = i;
        s->max = end - i > s->max ? end - i : s->max;
        i = end;
    }
    s->first[s->n] = a->n;
    int64_t cell = room / s->along / (int64_t)s->n;
    s->cell = cell < 1 ? 1 : cell > CELL ? CELL : (int)cell;
    return 0;
}

static bool begins_group(const struct side *s, size_t bin)
{
    const int64_t *g = s->axis->groups;
    return bin > 0 && g && g[s->first[bin]] != g[s->first[bin] - 1];
}

static size_t group_end(const struct side *s, size_t bin)
{
    do bin++;
    while (bin < s->n && !begins_group(s, bin));
    return bin;
}

/* The columns or rows of llm_heatmap.v that a bin has: [*from, *to). Returns how many there are in all. */
static int64_t stored(const struct side *s, size_t bin, int64_t *from, int64_t *to)
{
    bool binned = s->axis->step > 1;
    *from = binned ? (int64_t)bin : s->first[bin];
    *to = binned ? (int64_t)bin + 1 : s->first[bin + 1];
    return binned ? (int64_t)s->n : s->axis->n;
}

/* The number that stands out most, NaN if none is finite. */
static float pick(const struct map *m, int64_t panel, size_t row, size_t col)
{
    float best = (float)NAN;
    double max = -1;
    int64_t top, bottom, left, right, rows = stored(&m->y, row, &top, &bottom), cols = stored(&m->x, col, &left, &right);
    for (int64_t r = top; r < bottom; r++) {
        for (int64_t c = left; c < right; c++) {
            float v = m->h->v[(panel * rows + r) * cols + c];
            double size = m->h->scale == LLM_SCALE_RATIO ? fabs(log((double)v)) : fabs((double)v);
            if (!isfinite(v) || size <= max) continue;
            best = v;
            max = size;
        }
    }
    return best;
}

static int bin(struct map *m, struct llm_err *e)
{
    if (cut(&m->x, WIDE, e) < 0 || cut(&m->y, TALL, e) < 0) return -1;
    m->v = llm_alloc((size_t)m->panels * m->y.n * m->x.n, sizeof *m->v, "a heat map", e);
    if (!m->v) return -1;
    for (size_t i = 0; i < (size_t)m->panels * m->y.n; i++) {
        for (size_t c = 0; c < m->x.n; c++) m->v[i * m->x.n + c] = pick(m, (int64_t)(i / m->y.n), i % m->y.n, c);
    }
    if (m->x.max > 1 || m->y.max > 1) {
        snprintf(m->caption, sizeof m->caption, "A cell shows the %s among up to %" PRId64 " × %" PRId64 " neighbours.",
                 m->h->scale == LLM_SCALE_RATIO ? "number furthest from 1" : "number of largest magnitude", m->x.max, m->y.max);
    }
    return llm_scale_init(&m->scale, m->h->scale, m->v, (size_t)m->panels * m->x.n * m->y.n, e);
}

/* ---- layout ---- */

static const char *number_of(const struct side *s, size_t bin, char *text, size_t room)
{
    int64_t i = s->first[bin];
    snprintf(text, room, "%" PRId64, s->axis->numbers ? s->axis->numbers[i] : i);
    return text;
}

static const char *label(const struct side *s, size_t bin, char *number, size_t room)
{
    if (s->axis->labels) return s->axis->labels[s->first[bin]];
    return number_of(s, bin, number, room);
}

static const char *group_label(const struct side *s, size_t bin, bool named, char *text, size_t room)
{
    snprintf(text, room, "%s%s%" PRId64, named ? s->axis->group_name : "", named ? " " : "", s->axis->groups[s->first[bin]]);
    return text;
}

/* Every how many bins there is a label, so that labels are `room` pixels apart. */
static size_t every(const struct side *s, int room)
{
    static const size_t steps[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
    size_t i = 0;
    while (i < sizeof steps / sizeof *steps - 1 && (int)steps[i] * s->cell < room) i++;
    return steps[i];
}

static void measure_labels(struct side *s, int longest)
{
    char text[80];
    size_t step = every(s, DENSE);
    for (size_t i = 0; i < s->n; i++) {
        int w = i % step ? 0 : llm_text_width(label(s, i, text, sizeof text), LLM_TEXT_BODY);
        s->label_width = w > s->label_width ? w : s->label_width;
        if (!s->axis->groups || (i > 0 && !begins_group(s, i))) continue;
        w = llm_text_width(group_label(s, i, true, text, sizeof text), LLM_TEXT_BODY);
        s->group_width = w > s->group_width ? w : s->group_width;
    }
    if (s->label_width > longest) s->label_width = longest;
    if (s->group_width > GROUP_LABEL) s->group_width = GROUP_LABEL;
}

/* Groups stand apart where cells are large enough for it. */
static void place(struct side *s, int start)
{
    int gap = s->cell >= 3 ? 2 : s->cell == 2 ? 1 : 0, at = start;
    for (size_t i = 0; i < s->n; i++, at += s->cell) {
        if (begins_group(s, i)) at += gap;
        s->at[i] = at;
    }
    s->end = at;
}

/* Texts under columns run upwards unless the widest has room under its cell. */
static bool labels_rotated(const struct side *x)
{
    return x->axis->labels && x->label_width + PAD > x->cell;
}

static void lay_out(struct map *m)
{
    const struct llm_heatmap *h = m->h;
    int title = MARGIN + TITLE_LINE + (h->subtitle ? LINE : 0);
    measure_labels(&m->x, LABEL);
    measure_labels(&m->y, ROW_LABEL);
    m->left = MARGIN + (h->y.name ? LINE + PAD : 0) + (h->y.groups ? m->y.group_width + 2 * PAD : 0) + m->y.label_width + PAD + TICK;
    m->top = title + PAD + (h->x.numbered && m->panels == 1 ? LINE + TICK : 0) + (h->panels ? LINE : 0);
    place(&m->x, m->left);
    place(&m->y, m->top);
    m->right = m->left + (int)m->x.along * (m->x.end - m->left + PANEL_GAP) - PANEL_GAP;
    m->bottom = m->top + (int)m->y.along * (m->y.end - m->top + PANEL_GAP + LINE) - PANEL_GAP - LINE;
    int below = TICK + PAD + (labels_rotated(&m->x) ? m->x.label_width : LINE) + (h->x.groups ? LINE + PAD : 0) + (h->x.name ? LINE + PAD : 0);
    m->bar = m->right + BAR_GAP;
    m->bar_end = m->bottom - m->top < BAR_TALL ? m->top + BAR_TALL : m->bottom;
    m->width = m->bar + BAR + TICK + BAR_NUMBER + LINE + MARGIN;
    if (m->width < NARROW) m->width = NARROW;
    m->height = (m->bottom + below > m->bar_end + PAD ? m->bottom + below : m->bar_end + PAD) + (m->caption[0] ? LINE + PAD : 0) + MARGIN;
}

/* ---- drawing ---- */

static struct llm_rgb colour(const struct map *m, double v)
{
    double x = llm_scale_at(&m->scale, v);
    if (!isfinite(v)) return llm_no_value;
    return m->scale.kind == LLM_SCALE_RATIO ? llm_colour_diverging(2 * x - 1) : llm_colour_sequence(x);
}

/* The pixels of a map over a picture: half of each is the picture's, half the colour of its cell. */
static int draw_over(struct map *m, const float *v, struct llm_err *e)
{
    const struct llm_image *under = m->h->under;
    size_t wide = (size_t)(m->right - m->left), tall = (size_t)(m->bottom - m->top);
    struct llm_rgb *colours = llm_alloc(wide * tall, sizeof *colours, "a heat map", e);
    int *at = llm_alloc(wide + tall, sizeof *at, "a heat map", e);
    for (size_t i = 0; colours && at && i < wide * tall; i++) {
        size_t x = i % wide, y = i / wide;
        const unsigned char *p = under->rgb + 3 * ((size_t)under->height * y / tall * (size_t)under->width + (size_t)under->width * x / wide);
        struct llm_rgb c = colour(m, (double)v[y / (size_t)m->y.cell * m->x.n + x / (size_t)m->x.cell]);
        colours[i] = (struct llm_rgb){(unsigned char)((p[0] + c.r) / 2), (unsigned char)((p[1] + c.g) / 2), (unsigned char)((p[2] + c.b) / 2)};
    }
    for (size_t i = 0; at && i < wide + tall; i++) at[i] = i < wide ? m->left + (int)i : m->top + (int)(i - wide);
    int status = colours && at ? 0 : -1;
    if (status == 0) llm_draw_cells(m->d, at, wide, at + wide, tall, 1, 1, colours);
    free(colours);
    free(at);
    return status;
}

static int draw_cells(struct map *m, int64_t panel, struct llm_err *e)
{
    size_t n = m->x.n * m->y.n;
    const float *v = m->v + (size_t)panel * n;
    if (m->h->under) return draw_over(m, v, e);
    struct llm_rgb *colours = llm_alloc(n, sizeof *colours, "a heat map", e);
    if (!colours) return -1;
    for (size_t i = 0; i < n; i++) colours[i] = colour(m, (double)v[i]);
    llm_draw_cells(m->d, m->x.at, m->x.n, m->y.at, m->y.n, m->x.cell, m->y.cell, colours);
    free(colours);
    return 0;
}

static void draw_titles(const struct map *m)
{
    const struct llm_heatmap *h = m->h;
    int room = m->width - 2 * MARGIN;
    llm_draw_text(m->d, MARGIN, MARGIN + 14, room, (struct llm_text){LLM_TEXT_TITLE, LLM_ANCHOR_START, false, llm_ink}, h->title);
    if (h->subtitle) llm_draw_text(m->d, MARGIN, MARGIN + TITLE_LINE + 10, room, how(LLM_ANCHOR_START, false, true), h->subtitle);
    if (m->caption[0]) llm_draw_text(m->d, MARGIN, m->height - MARGIN, room, how(LLM_ANCHOR_START, false, true), m->caption);
}

/* Whether the label of bin i, `room` pixels wide, touches that of the next group. */
static bool touches(const struct side *s, size_t start, size_t i, size_t end, int room)
{
    return i > start && end < s->n && s->at[end] - s->at[i] < room;
}

/* In each group labels begin anew; a group with room for one label alone has none unless it has one bin. */
static void draw_row_labels(const struct map *m)
{
    const struct side *y = &m->y;
    char text[80];
    int x = m->left - TICK - PAD;
    size_t step = every(y, DENSE);
    for (size_t start = 0, end; start < y->n; start = end) {
        end = group_end(y, start);
        if (y->axis->groups && end - start > 1 && end - start <= step) continue;
        for (size_t i = start; i < end && !touches(y, start, i, end, DENSE); i += step) {
            int middle = y->at[i] + y->cell / 2;
            llm_draw_rect(m->d, m->left - TICK, middle, TICK - 1, 1, llm_pale_ink);
            llm_draw_text(m->d, x, middle + 4, y->label_width, how(LLM_ANCHOR_END, false, false), label(y, i, text, sizeof text));
        }
    }
}

static void draw_row_groups(const struct map *m)
{
    const struct side *y = &m->y;
    char text[80];
    int x = m->left - 2 * TICK - PAD - y->label_width - PAD, free_from = 0;
    for (size_t start = 0, end; y->axis->groups && start < y->n; start = end) {
        end = group_end(y, start);
        int top = y->at[start], bottom = y->at[end - 1] + y->cell, middle = (top + bottom) / 2;
        llm_draw_rect(m->d, x + 1, top, 2, bottom - top, llm_pale_ink);
        if (middle - DENSE / 2 < free_from) continue;
        llm_draw_text(m->d, x - 3, middle + 4, GROUP_LABEL, how(LLM_ANCHOR_END, false, false), group_label(y, start, true, text, sizeof text));
        free_from = middle + DENSE / 2;
    }
}

static void draw_column_labels(const struct map *m)
{
    const struct side *x = &m->x;
    char text[80];
    bool rotated = labels_rotated(x);
    int room = rotated ? DENSE : x->label_width + PAD / 2;
    size_t step = every(x, room);
    int y = m->bottom + TICK + PAD + (rotated ? -3 : 8);
    for (size_t start = 0, end; start < x->n; start = end) {
        end = group_end(x, start);
        for (size_t i = start; i < end && !touches(x, start, i, end, room); i += step) {
            int middle = x->at[i] + x->cell / 2;
            llm_draw_rect(m->d, middle, m->bottom + 1, 1, TICK - 1, llm_pale_ink);
            llm_draw_text(m->d, rotated ? middle + 4 : middle, y, LABEL, how(rotated ? LLM_ANCHOR_END : LLM_ANCHOR_MIDDLE, rotated, false),
                          label(x, i, text, sizeof text));
        }
    }
}

/* Positions above the map, where the texts of tokens are below it. */
static void draw_column_numbers(const struct map *m)
{
    const struct side *x = &m->x;
    char text[24];
    size_t step = every(x, 44);
    for (size_t i = 0; x->axis->numbered && i < x->n; i += step) {
        int middle = x->at[i] + x->cell / 2;
        llm_draw_rect(m->d, middle, m->top - TICK, 1, TICK - 1, llm_pale_ink);
        llm_draw_text(m->d, middle, m->top - TICK - 4, LABEL, how(LLM_ANCHOR_MIDDLE, false, true), number_of(x, i, text, sizeof text));
    }
}

static int draw_column_groups(const struct map *m, int y)
{
    const struct side *x = &m->x;
    char text[80];
    if (!x->axis->groups) return y;
    for (size_t start = 0, end; start < x->n; start = end) {
        end = group_end(x, start);
        int left = x->at[start], right = x->at[end - 1] + x->cell;
        llm_draw_rect(m->d, left, y, right - left, 2, llm_pale_ink);
        llm_draw_text(m->d, (left + right) / 2, y + LINE - 1, right - left, how(LLM_ANCHOR_MIDDLE, false, false),
                      group_label(x, start, right - left > x->group_width, text, sizeof text));
    }
    return y + LINE + PAD;
}

/* The names of the axes, and below the map the groups of its columns. */
static void draw_names(const struct map *m)
{
    const struct llm_heatmap *h = m->h;
    int y = draw_column_groups(m, m->bottom + TICK + PAD + (labels_rotated(&m->x) ? m->x.label_width : LINE));
    if (h->x.name) llm_draw_text(m->d, (m->left + m->right) / 2, y + LINE - 2, m->width, how(LLM_ANCHOR_MIDDLE, false, true), h->x.name);
    if (h->y.name && llm_text_width(h->y.name, LLM_TEXT_BODY) > m->bottom - m->top) { /* hangs from the top of the map, below the subtitle */
        llm_draw_text(m->d, MARGIN + 10, m->top, m->height - m->top - MARGIN, how(LLM_ANCHOR_END, true, true), h->y.name);
    } else if (h->y.name) {
        llm_draw_text(m->d, MARGIN + 10, (m->top + m->bottom) / 2, m->bottom, how(LLM_ANCHOR_MIDDLE, true, true), h->y.name);
    }
}

/* A number beside the colour bar; returns the pixels of its text. */
static int draw_bar_number(const struct map *m, int y, double v, const char *sign)
{
    char number[32], text[40];
    llm_scale_number(v, number, sizeof number);
    snprintf(text, sizeof text, "%s%s", sign, number);
    llm_draw_rect(m->d, m->bar + BAR + 1, y, TICK - 1, 1, llm_pale_ink);
    llm_draw_text(m->d, m->bar + BAR + TICK + 4, y + 4, BAR_NUMBER, how(LLM_ANCHOR_START, false, false), text);
    return llm_text_width(text, LLM_TEXT_BODY);
}

/* Both ends have their numbers, and ticks between them that have room. */
static int draw_bar_numbers(const struct map *m)
{
    const struct llm_scale *s = &m->scale;
    double ticks[LLM_SCALE_TICKS];
    int n = s->high > s->low ? llm_scale_ticks(s, ticks) : 0, bottom = m->bar_end - 1;
    int widest = draw_bar_number(m, s->high > s->low ? bottom : (m->top + bottom) / 2, s->low, s->clipped ? "≤ " : ""), w;
    if (s->high > s->low) {
        w = draw_bar_number(m, m->top, s->high, "");
        widest = w > widest ? w : widest;
    }
    for (int i = 0; i < n; i++) {
        int y = m->top + (int)lrint((1 - llm_scale_at(s, ticks[i])) * (bottom - m->top));
        if (y < m->top + DENSE || y > bottom - DENSE) continue;
        w = draw_bar_number(m, y, ticks[i], "");
        widest = w > widest ? w : widest;
    }
    return widest;
}

static void draw_bar(const struct map *m)
{
    const struct llm_scale *s = &m->scale;
    int tall = m->bar_end - m->top;
    for (int i = 0; i < tall; i++) {
        double x = s->high > s->low ? 1 - (i + .5) / tall : .5;
        llm_draw_rect(m->d, m->bar, m->top + i, BAR, 1, s->kind == LLM_SCALE_RATIO ? llm_colour_diverging(2 * x - 1) : llm_colour_sequence(x));
    }
    int widest = draw_bar_numbers(m);
    llm_draw_text(m->d, m->bar + BAR + TICK + 4 + widest + LINE, (m->top + m->bar_end) / 2, m->height - 2 * MARGIN,
                  how(LLM_ANCHOR_MIDDLE, true, true), m->h->value);
}

/* The panels from left to right, then the next row of them; labels stand beside the first column and below the last row. */
static int draw_panels(struct map *whole, struct llm_err *e)
{
    int width = whole->x.end - whole->left, height = whole->y.end - whole->top;
    for (int64_t i = 0; i < whole->panels; i++) {
        struct map m = *whole;
        m.left += (int)(i % m.x.along) * (width + PANEL_GAP);
        m.top += (int)(i / m.x.along) * (height + PANEL_GAP + LINE);
        m.right = m.left + width;
        m.bottom = m.top + height;
        place(&m.x, m.left);
        place(&m.y, m.top);
        if (draw_cells(&m, i, e) < 0) return -1;
        if (m.h->panels) llm_draw_text(m.d, m.left, m.top - 4, width, how(LLM_ANCHOR_START, false, false), m.h->panels[i]);
        if (i % m.x.along == 0) draw_row_labels(&m);
        if (i % m.x.along == 0) draw_row_groups(&m);
        if (i + m.x.along >= m.panels) draw_column_labels(&m);
        if (m.panels == 1) draw_column_numbers(&m);
    }
    place(&whole->x, whole->left);
    place(&whole->y, whole->top);
    return 0;
}

static int draw(struct llm_output *o, const struct llm_heatmap *h, bool svg, struct llm_err *e)
{
    int64_t panels = h->n_panels > 1 ? h->n_panels : 1, across = llm_heatmap_across(panels, h->x.n, h->y.n);
    struct map m = {.h = h, .x.axis = &h->x, .y.axis = &h->y, .panels = panels, .x.along = across, .y.along = (panels + across - 1) / across};
    int status = h->x.n < 1 || h->y.n < 1 ? llm_fail(e, EX_DATAERR, "picture: expected numbers to draw, found none") : bin(&m, e);
    if (status == 0) {
        lay_out(&m);
        m.d = llm_drawing_create(m.width, m.height, e);
        status = m.d ? draw_panels(&m, e) : -1;
    }
    if (status == 0) {
        draw_titles(&m);
        draw_names(&m);
        draw_bar(&m);
        status = svg ? llm_drawing_svg(m.d, o, e) : llm_drawing_png(m.d, o, e);
    }
    llm_drawing_destroy(m.d);
    free(m.v);
    free(m.x.first);
    free(m.x.at);
    free(m.y.first);
    free(m.y.at);
    return status;
}

int llm_heatmap_write(struct llm_output *o, const struct llm_heatmap *h, struct llm_err *e)
{
    return draw(o, h, false, e);
}

int llm_heatmap_svg(struct llm_output *o, const struct llm_heatmap *h, struct llm_err *e)
{
    return draw(o, h, true, e);
}
