#include "measure/draw/font.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

enum { BASELINE = 4, SPACE = 5, CURVE = 6 }; /* in units; segments of a curve */
#define GAP 3.4 /* units between characters */

struct pen {
    struct llm_glyph *g;
    double unit, dx, dy; /* of the design's origin, in units */
    double x, y;         /* where the pen is, in pixels */
};

static int base36(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static int design_width(const char *design)
{
    int width = 0;
    for (const char *p = design; *p;) {
        if (*p == ' ' || *p == '~') {
            p++;
            continue;
        }
        if (base36(p[0]) > width) width = base36(p[0]);
        p += 2;
    }
    return width;
}

static double snap(double units, double unit)
{
    return floor(units * unit + .5);
}

static void add_point(struct pen *p, double x, double y)
{
    struct llm_glyph *g = p->g;
    p->x = x;
    p->y = y;
    if (g->n_points == LLM_GLYPH_POINTS) return;
    g->x[g->n_points] = x;
    g->y[g->n_points++] = y;
}

static void curve_to(struct pen *p, double cx, double cy, double x, double y)
{
    double x0 = p->x, y0 = p->y;
    for (int i = 1; i <= CURVE; i++) {
        double t = (double)i / CURVE, u = 1 - t;
        add_point(p, u * u * x0 + 2 * u * t * cx + t * t * x, u * u * y0 + 2 * u * t * cy + t * t * y);
    }
}

static void end_stroke(struct pen *p)
{
    struct llm_glyph *g = p->g;
    int first = g->n_strokes ? g->ends[g->n_strokes - 1] : 0;
    if (g->n_points > first && g->n_strokes < LLM_GLYPH_STROKES) g->ends[g->n_strokes++] = g->n_points;
}

static void draw_design(struct pen *p, const char *s)
{
    double cx = 0, cy = 0;
    bool control = false;
    for (; *s; s += *s == ' ' ? 1 : 2) {
        if (*s == ' ') {
            end_stroke(p);
            continue;
        }
        bool curved = *s == '~';
        s += curved;
        double x = snap(base36(s[0]) + p->dx, p->unit), y = snap(base36(s[1]) - BASELINE + p->dy, p->unit);
        if (curved && control) curve_to(p, cx, cy, (cx + x) / 2, (cy + y) / 2);
        else if (!curved && control) curve_to(p, cx, cy, x, y);
        else if (!curved) add_point(p, x, y);
        control = curved;
        cx = x;
        cy = y;
    }
    end_stroke(p);
}

/* The next code point, or -1 and one byte for what is not UTF-8. */
static int32_t next_code(const char **s)
{
    utf8proc_int32_t code;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)*s, (utf8proc_ssize_t)strnlen(*s, 4), &code);
    *s += n > 0 ? n : 1;
    return n > 0 ? code : -1;
}

/* Over capitals and ascenders a mark stands higher than over small letters. */
static void draw_mark(struct pen *p, const char *design, bool below, const char *base, int width)
{
    int top = 0;
    for (const char *c = base; *c; c += *c == ' ' || *c == '~' ? 1 : 2) {
        if (*c != ' ' && *c != '~' && base36(c[1]) > top) top = base36(c[1]);
    }
    p->dx = (width - design_width(design)) / 2.0;
    p->dy = !below && top > BASELINE + 8 ? 4 : 0;
    draw_design(p, design);
}

void llm_glyph_next(struct llm_glyph *g, const char **s, double unit)
{
    const char *start = *s, *design, *mark;
    int32_t code = next_code(s), parts[8];
    bool below;
    *g = (struct llm_glyph){.code = code < 0 ? (unsigned char)*start : (uint32_t)code};
    struct pen p = {.g = g, .unit = unit};
    utf8proc_ssize_t n = code < 0 ? 0 : 1;
    parts[0] = code;
    design = code < 0 ? NULL : llm_glyph_design((uint32_t)code);
    if (!design && code > 0) {
        n = utf8proc_decompose_char(code, parts, 8, UTF8PROC_DECOMPOSE, NULL);
        design = n > 0 && n <= 8 ? llm_glyph_design((uint32_t)parts[0]) : NULL;
        for (int i = 1; design && i < n; i++) {
            if (!llm_glyph_mark((uint32_t)parts[i], &below)) design = NULL;
        }
    }
    if (!design) {
        g->n_digits = code < 0 ? 2 : code > 0xffff ? 6 : 4;
        struct llm_glyph_box box = llm_glyph_box(g, unit);
        g->advance = box.right + 2 * box.square;
        return;
    }
    int width = design_width(design);
    uint32_t base = (uint32_t)parts[0];
    g->advance = (int)(*design ? snap(width, unit) + snap(GAP, unit) : snap(SPACE, unit));
    const char *after = *s;
    int32_t follows = *after ? next_code(&after) : 0;
    bool marked = n > 1 || (follows > 0 && llm_glyph_mark((uint32_t)follows, &below));
    if (marked && (base == 'i' || base == 'j' || base == 0x456)) design = base == 'j' ? "2c22~2000" : "0c04";
    draw_design(&p, design);
    for (int i = 1; i < n; i++) {
        mark = llm_glyph_mark((uint32_t)parts[i], &below);
        draw_mark(&p, mark, below, design, width);
    }
    for (; follows > 0 && (mark = llm_glyph_mark((uint32_t)follows, &below)); follows = *after ? next_code(&after) : 0) {
        draw_mark(&p, mark, below, design, width);
        *s = after;
    }
}

int llm_text_width(const char *s, double unit)
{
    struct llm_glyph g;
    int width = 0;
    while (*s) {
        llm_glyph_next(&g, &s, unit);
        width += g.advance;
    }
    return width;
}

int llm_text_fit(const char *s, double unit, int width, char *out, size_t room)
{
    static const char ellipsis[] = "…";
    struct llm_glyph g;
    int all = llm_text_width(s, unit), taken = 0, dots = llm_text_width(ellipsis, unit);
    const char *end = s, *next = s;
    if (all <= width && strlen(s) < room) {
        memcpy(out, s, strlen(s) + 1);
        return all;
    }
    while (*next) {
        llm_glyph_next(&g, &next, unit);
        if (taken + g.advance + dots > width || (size_t)(next - s) + sizeof ellipsis > room) break;
        taken += g.advance;
        end = next;
    }
    snprintf(out, room, "%.*s%s", (int)(end - s), s, ellipsis);
    return taken + dots;
}

struct llm_glyph_box llm_glyph_box(const struct llm_glyph *g, double unit)
{
    int q = unit < 1.2 ? 1 : (int)floor(unit * 1.2), columns = g->n_digits == 2 ? 2 : g->n_digits / 2, rows = g->n_digits == 2 ? 1 : 2;
    int middle = (int)snap(5, unit), tall = rows * 6 * q + 3 * q;
    return (struct llm_glyph_box){q, 0, (columns * 4 + 2) * q, middle - tall / 2, middle - tall / 2 + tall - q};
}

unsigned llm_box_digit(int digit, int row)
{
    static const uint16_t digits[16] = {075557, 026227, 071747, 071717, 055711, 074717, 074757, 071122,
                                        075757, 075717, 075755, 065656, 074447, 065556, 074747, 074744};
    return (unsigned)digits[digit] >> (12 - 3 * row) & 7;
}
