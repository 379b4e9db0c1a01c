/* The points of a scaling law, from logs of llm-train and from tables (io/columns.h).
 *
 * Rows with a number in the column `step` belong to runs: a run ends where its file ends or the step does not rise. A run gives one point: its
 * last row that has a loss, with the largest learning rate of all its rows. Every other row is a point of its own. */
#ifndef LLM_MEASURE_SCALING_POINTS_H
#define LLM_MEASURE_SCALING_POINTS_H

#include "io/columns.h"
#include "measure/scaling.h"

struct llm_scaling_columns {
    const char *params, *tokens, *loss, *rate; /* names */
    const char *compute; /* NULL: `flops`, or, where there is no such column, factor · params · tokens */
    double factor;
};
struct llm_scaling_reading {
    enum llm_scaling_law law;
    struct llm_scaling_columns columns;
    /* Filled: */
    double *x[2], *y, *other; /* [n]; `other`: with LLM_LAW_LR the losses, NaN where there is none */
    size_t n, room;
    struct llm_column_names names;
    const char *chosen[3];    /* names of x and y */
    struct llm_scaling_run { const char *file; double step, x[2], y, other, rate; bool any; } run; /* the one that is being read */
};
/* The caller sets law and columns, the rest is 0. Reads the file as further points. */
int llm_scaling_read(struct llm_scaling_reading *r, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* After the last file. Of learning rates one a compute remains: that with the lowest loss, moved to the minimum of the parabola over log(rate)
 * through it and its neighbours. Status 2: a column is missing; 65: a number is not above 0. */
int llm_scaling_finish(struct llm_scaling_reading *r, struct llm_err *e) LLM_MUST_CHECK;
void llm_scaling_reading_release(struct llm_scaling_reading *r);

#endif
