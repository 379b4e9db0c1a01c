/* Heat maps as pages of HTML that need nothing else: the map, and under the pointer its row, its column and its number. */
#ifndef LLM_MEASURE_HEATMAP_HTML_H
#define LLM_MEASURE_HEATMAP_HTML_H

#include "measure/heatmap.h"

/* Numbers must not be negative; what is not finite is grey. A number has 8 bits in the page: the root of its share of the largest. A matrix of more
 * than 1,024 columns or rows is binned by the largest of neighbours, and the page says of how many. Scale and groups are not used. `o` is not
 * committed. */
int llm_heatmap_html(struct llm_output *o, const struct llm_heatmap *h, struct llm_err *e) LLM_MUST_CHECK;

#endif
