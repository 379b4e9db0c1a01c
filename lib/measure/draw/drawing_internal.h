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

#endif
