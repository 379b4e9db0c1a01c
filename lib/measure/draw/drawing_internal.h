/* What a drawing holds, for back ends. */
#ifndef LLM_MEASURE_DRAW_DRAWING_INTERNAL_H
#define LLM_MEASURE_DRAW_DRAWING_INTERNAL_H

#include "measure/draw/drawing.h"

enum llm_drawn { LLM_DRAWN_RECT, LLM_DRAWN_LINE, LLM_DRAWN_TEXT, LLM_DRAWN_CELLS };
struct llm_draw_item {
    enum llm_drawn kind;
    int x, y, width, height;      /* rect; text: the anchor; cells: size of a cell in width and height */
    struct llm_rgb colour;
    double thickness;             /* line */
    size_t cols, rows;            /* line: points in cols; cells */
    double *points;               /* line: x [cols], then y [cols] */
    int *edges;                   /* cells: x [cols], then y [rows] */
    struct llm_rgb *colours;      /* cells [rows, cols] */
    char *text;
    struct llm_text how;
};
struct llm_drawing {
    int width, height;
    struct llm_draw_item *items; /* each owns its arrays and its text */
    size_t n, room;
    struct llm_err err;          /* the first failure */
};

/* A text as connected strokes through n points, each twice as thick as llm_text_radius, and as filled squares. */
typedef void llm_ink_stroke(void *arg, const double *x, const double *y, size_t n);
typedef void llm_ink_square(void *arg, int x, int y, int width, int height);
void llm_text_ink(const struct llm_draw_item *t, llm_ink_stroke *stroke, llm_ink_square *square, void *arg);
double llm_text_radius(const struct llm_draw_item *t);

#endif
