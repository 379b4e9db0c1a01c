/* Charts: series of points as lines over a numeric axis, or as bars over names; as a drawing, or as text for a terminal. */
#ifndef LLM_MEASURE_PLOT_H
#define LLM_MEASURE_PLOT_H

#include "base/buf.h"
#include "measure/draw/drawing.h"

enum { LLM_PLOT_SERIES = 8 }; /* at most: colours that can be told apart */
struct llm_series {
    char *name;
    double *x, *y;               /* [n], finite; in order of x */
    size_t n, x_room, y_room;
    bool points;                 /* marks without a line */
};
struct llm_plot {
    const char *title, *x_label, *y_label; /* title: NULL for none */
    bool log_x, log_y, dark;
    int width, height;           /* pixels */
    struct llm_series v[LLM_PLOT_SERIES];
    size_t n;
    char **names;                /* [n_names]: x is an index of these; NULL: x is a number */
    size_t n_names, names_room;
};
/* Puts the points in order of x (equal ones as they came) and checks that there are some, and that none is below or at 0 on a logarithmic axis. */
int llm_plot_finish(struct llm_plot *p, struct llm_err *e) LLM_MUST_CHECK;
/* NULL: see `e`. */
struct llm_drawing *llm_plot_draw(const struct llm_plot *p, struct llm_err *e) LLM_MUST_CHECK;
/* Appends the chart as `rows` lines of `cols` characters and the names of the series. One series is drawn in quarters of a character, several with a
 * letter each. */
int llm_plot_text(const struct llm_plot *p, int cols, int rows, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;
void llm_plot_release(struct llm_plot *p); /* series and names */

#endif
