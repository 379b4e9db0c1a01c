/* Drawings: a list of rectangles, lines, texts and grids of cells that a back end turns into a file. Coordinates are pixels from the top left corner;
 * later items cover earlier ones. The drawing functions copy what they are given; their errors are kept until the drawing is written. */
#ifndef LLM_MEASURE_DRAW_DRAWING_H
#define LLM_MEASURE_DRAW_DRAWING_H

#include "io/output.h"
#include "measure/draw/colour.h"

enum { LLM_DRAWING_MAX = 8192 }; /* pixels a side */
/* Sizes of text: pixels of a unit of the font (font.h). */
#define LLM_TEXT_BODY 0.75
#define LLM_TEXT_TITLE 1.0

enum llm_anchor { LLM_ANCHOR_START, LLM_ANCHOR_MIDDLE, LLM_ANCHOR_END };
struct llm_text {
    double unit;            /* LLM_TEXT_BODY, LLM_TEXT_TITLE */
    enum llm_anchor anchor; /* which point of the text's baseline stands at (x, y) */
    bool upwards;           /* rotated: the text runs from the bottom to the top */
    struct llm_rgb colour;
};

struct llm_drawing;
/* White. NULL: see `e`. */
struct llm_drawing *llm_drawing_create(int width, int height, struct llm_err *e) LLM_MUST_CHECK;
void llm_drawing_destroy(struct llm_drawing *d);
void llm_draw_rect(struct llm_drawing *d, int x, int y, int width, int height, struct llm_rgb colour);
/* Connected segments through n points; integer coordinates are the centres of pixels. */
void llm_draw_line(struct llm_drawing *d, const double *x, const double *y, size_t n, double thickness, struct llm_rgb colour);
/* A text of at most `width` pixels: what does not fit is cut and ends with an ellipsis. */
void llm_draw_text(struct llm_drawing *d, int x, int y, int width, struct llm_text how, const char *text);
/* A grid of colours [rows, cols]: column c fills the pixels from x[c] to x[c] + cell_width, row r those from y[r] to y[r] + cell_height. */
void llm_draw_cells(struct llm_drawing *d, const int *x, size_t cols, const int *y, size_t rows, int cell_width, int cell_height,
                    const struct llm_rgb *colours);
/* Writes the drawing as PNG; `o` is not committed. 0, or -1 also if drawing had failed before. */
int llm_drawing_png(const struct llm_drawing *d, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* The same as SVG. */
int llm_drawing_svg(const struct llm_drawing *d, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;

#endif
