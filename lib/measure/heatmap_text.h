/* Heat maps as text for a terminal: shades of blocks. */
#ifndef LLM_MEASURE_HEATMAP_TEXT_H
#define LLM_MEASURE_HEATMAP_TEXT_H

#include "base/buf.h"
#include "measure/heatmap.h"

/* Appends the panels below each other, at most `cols` characters wide beside the texts of the rows. Numbers must not be negative; shades stand for
 * the root of their share of the largest. A matrix that does not fit is binned by the largest of neighbours, and a line says of how many. Scale and
 * groups are not used. 0 or -1. */
int llm_heatmap_text(struct llm_buf *b, const struct llm_heatmap *h, int cols, struct llm_err *e) LLM_MUST_CHECK;

#endif
