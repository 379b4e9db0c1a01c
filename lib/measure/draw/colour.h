/* Colours of pictures, 8-bit sRGB. */
#ifndef LLM_MEASURE_DRAW_COLOUR_H
#define LLM_MEASURE_DRAW_COLOUR_H

#include <stdbool.h>

struct llm_rgb { unsigned char r, g, b; };

extern const struct llm_rgb llm_ink, llm_pale_ink, llm_no_value; /* text and axes; less important text; cells without a number */

/* From dark violet (0) over blue and green to yellow (1) in even steps of perceived lightness, so that a grey print keeps the order. */
struct llm_rgb llm_colour_sequence(double x);
/* From blue (-1) over near white (0) to red (1); both ends are equally dark. */
struct llm_rgb llm_colour_diverging(double x);

#endif
