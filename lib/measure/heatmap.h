/* Heat maps: a matrix of numbers as colours. */
#ifndef LLM_MEASURE_HEATMAP_H
#define LLM_MEASURE_HEATMAP_H

#include "io/output.h"

/* v [rows, cols] from dark (the least) over red to white (the greatest); what is not finite is grey. Small matrices get cells of several pixels.
 * Written as PNG; `o` is not committed. */
int llm_heatmap_write(struct llm_output *o, const float *v, int64_t rows, int64_t cols, struct llm_err *e) LLM_MUST_CHECK;
/* The colour of x in [0, 1]. */
void llm_heatmap_colour(double x, unsigned char rgb[3]);

#endif
