/* The stroke font of pictures: our own design, so that a picture needs no font files and has the same pixels everywhere.
 *
 * Glyphs are strokes on a grid of units: capitals are 12 units high, small letters 8, descenders reach 4 below the baseline. The font covers ASCII,
 * Latin letters with accents (by canonical decomposition), Greek, Cyrillic and common punctuation. Any other character becomes a box that holds its
 * code point as 4 or 6 hexadecimal digits; a byte that is not UTF-8 becomes a box with 2 digits. */
#ifndef LLM_MEASURE_DRAW_FONT_H
#define LLM_MEASURE_DRAW_FONT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LLM_GLYPH_POINTS = 200, LLM_GLYPH_STROKES = 16 };

/* One character. x counts from the pen to the right, y from the baseline upwards, both in pixels. */
struct llm_glyph {
    int advance;                              /* pixels from this character's pen to the next */
    int n_digits;                             /* 0: strokes; 2, 4 or 6: a box with so many hexadecimal digits of `code` */
    uint32_t code;
    int n_points, n_strokes;
    int ends[LLM_GLYPH_STROKES];              /* stroke i consists of the points from ends[i - 1] (0 for the first) up to ends[i] */
    double x[LLM_GLYPH_POINTS], y[LLM_GLYPH_POINTS];
};
/* Reads the character at *s, which is not the end of the text, with the accents that follow it, and moves *s to the next one. `unit` is the size of a
 * unit in pixels; points are moved to whole pixels so that stems are sharp. */
void llm_glyph_next(struct llm_glyph *g, const char **s, double unit);
/* Pixels that a text takes. */
int llm_text_width(const char *s, double unit);
/* Copies `s` into out [room], cut at the end and closed with an ellipsis if it takes more than `width` pixels. Returns the pixels taken. */
int llm_text_fit(const char *s, double unit, int width, char *out, size_t room);

/* The strokes of a code point in the notation that glyphs.c describes; NULL if the font has none. */
const char *llm_glyph_design(uint32_t code);
/* The strokes of a combining mark over a small letter; NULL if the font has none. *below: the mark stands below the letter. */
const char *llm_glyph_mark(uint32_t code, bool *below);

/* A box with hexadecimal digits: edges of its frame from the pen and from the baseline in pixels, and digits of 3 × 5 squares inside.
 * llm_box_digit gives the rows of a digit from the top, 3 bits each, the first column in bit 2. */
struct llm_glyph_box { int square, left, right, bottom, top; };
struct llm_glyph_box llm_glyph_box(const struct llm_glyph *g, double unit);
unsigned llm_box_digit(int digit, int row);

#endif
