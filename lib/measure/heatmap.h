/* Heat maps: a matrix of numbers as coloured cells, with title, axes, labels and a colour bar. */
#ifndef LLM_MEASURE_HEATMAP_H
#define LLM_MEASURE_HEATMAP_H

#include "io/output.h"
#include "measure/draw/scale.h"

/* The columns or the rows. */
struct llm_heatmap_axis {
    int64_t n;
    const char *name;           /* what one of them is: "head" */
    const char *const *labels;  /* [n] texts; NULL: their numbers */
    const int32_t *numbers;     /* [n]; NULL: from 0 */
    bool numbered;              /* columns with labels: show numbers above the map, too */
    const int64_t *groups;      /* [n] ascending: the number of the group that each belongs to; NULL: no groups */
    const char *group_name;     /* "layer" */
};
struct llm_heatmap {
    const char *title, *subtitle;
    const char *value;          /* what the colours mean, with its unit */
    const float *v;             /* [y.n, x.n]; what is not finite is grey */
    struct llm_heatmap_axis x, y;
    enum llm_scaling scale;
};
/* Writes PNG; `o` is not committed. A matrix of more than 1,024 columns or rows is binned: a cell shows the number that is largest in magnitude of
 * several neighbours (RATIO: furthest from 1), and the caption says of how many. */
int llm_heatmap_write(struct llm_output *o, const struct llm_heatmap *h, struct llm_err *e) LLM_MUST_CHECK;

#endif
