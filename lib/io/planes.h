/* Byte planes: what makes zstd worth its time on weights. Each little-endian element is rotated left by one bit, so that the sign goes
 * below the mantissa and the exponent fills the top byte; then the top byte of all elements, the next of all, and so on down. Works within one
 * chunk of at most LLM_FRAME_BYTES, which holds whole elements (formats/checkpoint.md). */
#ifndef LLM_IO_PLANES_H
#define LLM_IO_PLANES_H

#include <stddef.h>

#define LLM_FRAME_BYTES ((size_t)4 << 20)

/* width: bytes an element (2, 4, 8); bytes: a multiple of it. They must not overlap. */
void llm_planes_split(const unsigned char *numbers, unsigned char *planes, size_t bytes, int width);
void llm_planes_join(const unsigned char *planes, unsigned char *numbers, size_t bytes, int width);

#endif
