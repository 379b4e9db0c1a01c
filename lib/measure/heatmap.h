/* Heat maps: a matrix of numbers as coloured cells, with title, axes, labels and a colour bar. */
#ifndef LLM_MEASURE_HEATMAP_H
#define LLM_MEASURE_HEATMAP_H

#include "io/image.h"
#include "io/output.h"
#include "measure/draw/scale.h"

/* The columns or the rows. */
struct llm_heatmap_axis {
    int64_t n;
    const char *name;           /* what one of them is: "head" */
    const char *const *labels;  /* [n] texts; NULL: their numbers */
    const int32_t *numbers;     /* [n]; NULL: from 0 */
    bool numbered;              /* columns with labels: show numbers above the map, too */
    int64_t step;               /* > 1: `v` has one column for so many, the last for the rest, from llm_heatmap_step; 0: one for each */
    const int64_t *groups;      /* [n] ascending: the number of the group that each belongs to; NULL: no groups */
    const char *group_name;     /* "layer" */
};
struct llm_heatmap {
    const char *title, *subtitle;
    const char *value;          /* what the colours mean, with its unit */
    const float *v;             /* [n_panels, y.n, x.n]; what is not finite is grey */
    struct llm_heatmap_axis x, y;
    int64_t n_panels;           /* several maps with these axes and one scale of colours, beside and below each other; 0: one map */
    const char *const *panels;  /* [n_panels] what each is: "head 3"; NULL where there is one map */
    enum llm_scaling scale;
    const struct llm_image *under; /* NULL, or a picture below the cells of each map, which shows through them; neither axis has groups */
};
/* How many of n panels of so many columns and rows stand beside each other. */
int64_t llm_heatmap_across(int64_t n_panels, int64_t cols, int64_t rows);
/* How many columns (rows) become one where `along` panels stand beside (below) each other: a picture has at most 1,024 cells a side. */
int64_t llm_heatmap_step(int64_t n, int64_t along);
/* Writes PNG; `o` is not committed. A matrix of more than 1,024 columns or rows, over all panels, is binned: a cell shows the number that is largest
 * in magnitude of several neighbours (RATIO: furthest from 1), and the caption says of how many. */
int llm_heatmap_write(struct llm_output *o, const struct llm_heatmap *h, struct llm_err *e) LLM_MUST_CHECK;
/* The same as SVG. */
int llm_heatmap_svg(struct llm_output *o, const struct llm_heatmap *h, struct llm_err *e) LLM_MUST_CHECK;

#endif
