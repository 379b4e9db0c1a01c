/* PNG images (libpng). */
#ifndef LLM_IO_PNG_H
#define LLM_IO_PNG_H

#include "base/buf.h"
#include "io/output.h"

/* Writes 8-bit RGB, rows from the top. `o` is not committed. The bytes depend on the pixels and on libpng's version alone. */
int llm_png_write(struct llm_output *o, const unsigned char *rgb, int64_t width, int64_t height, struct llm_err *e) LLM_MUST_CHECK;
/* Appends the same image to `b`. */
int llm_png_put(struct llm_buf *b, const unsigned char *rgb, int64_t width, int64_t height, struct llm_err *e) LLM_MUST_CHECK;

#endif
